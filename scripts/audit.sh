#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Checks the crates that are linked into Paceline against deny.toml. `make test` has a test for
# licences, sources and bans; this is cargo deny's own word, and the advisories, for which
# it fetches their database (network). It takes minutes to build, once.
set -euo pipefail
source "$(dirname "$0")/common.sh"

if ! cargo deny --version >/dev/null 2>&1; then
	echo "audit: will install with cargo, for this user: cargo-deny"
	cargo install --locked cargo-deny
fi
cargo deny check licenses sources bans
if cargo deny fetch db; then
	cargo deny check advisories
else
	fail "audit: the database of advisories cannot be had: they are NOT checked." \
		"Licences, sources and bans are as deny.toml wants them."
fi

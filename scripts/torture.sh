#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Properties on a hundred thousand new cases, two hundred kills of each kind at random moments and ten
# thousand short jobs: nothing may be left, nothing may grow. It needs root and a host where
# no job of Paceline runs; an hour and a half.
# Other numbers: scripts/torture.sh KILLS JOBS [SEED]
set -euo pipefail
source "$(dirname "$0")/common.sh"

[ "$(id -u)" -eq 0 ] || fail "this needs root: sudo -E make torture"
build
heading "properties, new cases"
PROPTEST_CASES=100000 cargo test --release --locked -p paceline-control -p paceline-simulator \
	-p paceline-emulator -p paceline-policy -p paceline-coordinator -p paceline-security \
	-p paceline-phase
heading "kills"
python3 tests/torture/kills.py --paceline "$paceline" --rounds "${1:-200}" --seed "${3:-1}"
heading "kills of transfers"
python3 tests/torture/transfer_kills.py --paceline "$paceline" --kills "${1:-200}" --seed "${3:-1}"
heading "kills of gateways"
PACELINE_KILLS="${1:-200}" cargo test --release --locked -p paceline-cli --test transparent -- \
	--nocapture a_gateway_killed_at_any_moment
heading "short jobs"
python3 tests/torture/short_jobs.py --paceline "$paceline" --jobs "${2:-10000}"

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Builds as the calling user, and installs below DESTDIR/PREFIX the files that scripts/stage.sh
# lists: the binary with its man pages and completions, the phase library with its header and its Python
# module, the MPI shim, and the units of the agent and the gateway, which are neither enabled
# nor started.
set -euo pipefail
source "$(dirname "$0")/common.sh"
source scripts/stage.sh

prefix=${PREFIX:-/usr/local}
to=${DESTDIR:-}$prefix
# BUILT: a directory with the built programs.
if [ -n "${BUILT:-}" ]; then paceline=$BUILT/paceline; else build; fi
staged=$(mktemp -d)
trap 'rm -rf "$staged"' EXIT
stage "$staged" "$prefix"
# The permissions of the deepest existing directory of the path apply.
above=$to
until [ -d "$above" ]; do above=$(dirname "$above"); done
as_owner() { if [ -w "$above" ]; then "$@"; else as_root "$@"; fi; }
# File by file: directories that are there keep their modes.
while IFS= read -r file; do
	if [ -L "$staged/$file" ]; then
		as_owner ln -sfn "$(readlink "$staged/$file")" "$to/$file"
	else
		as_owner install -D -m "$(stat -c %a "$staged/$file")" "$staged/$file" "$to/$file"
	fi
done < <(cd "$staged" && find . -type f -print -o -type l -print | sort)
echo "installed $to/bin/paceline; next: sudo paceline doctor"

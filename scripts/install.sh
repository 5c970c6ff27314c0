#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Builds as whoever calls it, and installs below DESTDIR/PREFIX: the binary, the
# phase library with its header and its Python module, the MPI shim, and the units of the agent, which are
# neither enabled nor started.
set -euo pipefail
source "$(dirname "$0")/common.sh"

prefix=${PREFIX:-/usr/local}
to=${DESTDIR:-}$prefix
built=$(dirname "$paceline")
build
# The deepest directory of the path that exists says who may write there.
above=$to
until [ -d "$above" ]; do above=$(dirname "$above"); done
as_owner() { if [ -w "$above" ]; then "$@"; else as_root "$@"; fi; }
as_owner install -D -m 755 "$paceline" "$to/bin/paceline"
as_owner install -D -m 644 include/paceline.h "$to/include/paceline.h"
as_owner install -D -m 755 "$built/libpaceline.so" "$to/lib/libpaceline.so"
as_owner install -D -m 755 "$built/libpaceline-mpi.so" "$to/lib/paceline/libpaceline-mpi.so"
as_owner install -D -m 755 "$built/libpaceline-yield.so" "$to/lib/paceline/libpaceline-yield.so"
# The shim looks for the library beside itself: there is one, wherever it is found.
as_owner ln -sf ../libpaceline.so "$to/lib/paceline/libpaceline.so"
as_owner install -D -m 644 python/paceline.py "$to/lib/python3/dist-packages/paceline.py"
# Where systemd looks below /usr and /usr/local.
unit=$(mktemp)
trap 'rm -f "$unit"' EXIT
sed "s|/usr/local/bin|$prefix/bin|" packaging/paceline-agent.service >"$unit"
as_owner install -D -m 644 "$unit" "$to/lib/systemd/system/paceline-agent.service"
as_owner install -D -m 644 packaging/paceline-agent.socket "$to/lib/systemd/system/paceline-agent.socket"
echo "installed $to/bin/paceline; next: sudo paceline doctor"

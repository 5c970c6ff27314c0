#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Builds as whoever calls it, and installs below DESTDIR/PREFIX: the binary, the
# phase library with its header, and the MPI shim. Paceline has no service.
set -euo pipefail
source "$(dirname "$0")/common.sh"

to=${DESTDIR:-}${PREFIX:-/usr/local}
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
# The shim looks for the library beside itself: there is one, wherever it is found.
as_owner ln -sf ../libpaceline.so "$to/lib/paceline/libpaceline.so"
echo "installed $to/bin/paceline; next: sudo paceline doctor"

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Builds as whoever calls it, and installs the one binary below DESTDIR/PREFIX.
# Nothing else is put on the system: Paceline has no service.
set -euo pipefail
source "$(dirname "$0")/common.sh"

to=${DESTDIR:-}${PREFIX:-/usr/local}/bin
build
# The deepest directory of the path that exists says who may write there.
above=$to
until [ -d "$above" ]; do above=$(dirname "$above"); done
if [ -w "$above" ]; then
	install -D -m 755 "$paceline" "$to/paceline"
else
	as_root install -D -m 755 "$paceline" "$to/paceline"
fi
echo "installed $to/paceline; next: sudo paceline doctor"

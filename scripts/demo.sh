#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# demo.sh virtual|live: bursts after idle on a long fat network, under CUBIC, BBR,
# the paper's pacing and Paceline. Ends with the table and the page's path.
set -euo pipefail
source "$(dirname "$0")/common.sh"

backend=$1
case $backend in
virtual) out=out/demo ;;
live) out=out/demo-live ;;
*) fail "demo.sh: unknown backend $backend; known are virtual and live" ;;
esac

heading "building"
build
heading "experiments/startup-pacing.toml on the $backend backend"
run=("$paceline" lab run experiments/startup-pacing.toml --backend "$backend" --out "$out")
status=0
if [ "$backend" = live ]; then
	as_root "${run[@]}" || status=$?
	# Files that root wrote belong to the calling user.
	[ ! -d "$out" ] || as_root chown -R "$(id -u):$(id -g)" "$out"
else
	"${run[@]}" || status=$?
fi
case $status in
0) ;;
1) echo "demo: a claim above does not hold" >&2 ;;
3) echo "demo: the run is invalid: see its warnings above (live: is the machine busy?)" >&2 ;;
esac
exit "$status"

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Table 1 of feng-2000 in Debian's ns-3, for the simulator to be compared with: builds
# ns3-dumbbell.cc, runs it one at a time, seeds outermost, and writes
#     OUT/runs.jsonl  one run a line
#     OUT/table.md    means over the seeds, with how far they spread
#     OUT/about.txt   version, command and machine
# Runs that runs.jsonl has already are not done again.
#
#     tests/peers/ns3.sh [OUT]
#     SEEDS="1 2 3" CLIENTS="10 60" VARIANTS="newreno:fifo" tests/peers/ns3.sh OUT
#     MORE="--delack=2" tests/peers/ns3.sh OUT      options of ns3-dumbbell.cc for all runs
set -euo pipefail
cd "$(dirname "$0")/../.."

out=${1:-docs/results/ns3}
seeds=${SEEDS:-1 2 3 4 5}
clients=${CLIENTS:-10 20 30 41 50 60}
variants=${VARIANTS:-udp:fifo newreno:fifo newreno:red udp:red}
read -ra more <<<"${MORE:-}"

version=$(pkg-config --modversion ns3-core 2>/dev/null) || {
	echo "ns-3 is not installed: apt-get install libns3-dev" >&2
	exit 2
}
build=${CARGO_TARGET_DIR:-target}/peers
program=$build/ns3-dumbbell
mkdir -p "$build" "$out"
if [ ! -x "$program" ] || [ tests/peers/ns3-dumbbell.cc -nt "$program" ]; then
	echo "building $program against ns-3 $version"
	# Not pkg-config's --libs: it names libraries that libns3-dev does not depend on.
	"${CXX:-g++}" -std=c++17 -O2 -Wall -Wextra -o "$program" tests/peers/ns3-dumbbell.cc \
		$(pkg-config --cflags ns3-core) \
		-lns3-applications -lns3-point-to-point -lns3-internet -lns3-traffic-control \
		-lns3-network -lns3-core
fi

{
	echo "ns-3 $version, package libns3-dev $(dpkg-query -W -f '${Version}' libns3-dev 2>/dev/null || echo unknown)"
	echo "command: SEEDS=\"$seeds\" CLIENTS=\"$clients\" VARIANTS=\"$variants\" MORE=\"${more[*]}\" tests/peers/ns3.sh"
	echo "machine: $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1), $(nproc) CPUs, Linux $(uname -r | cut -d - -f 1)"
	echo "load average at the start: $(cut -d ' ' -f 1-3 /proc/loadavg)"
} >"$out/about.txt"

runs=$out/runs.jsonl
touch "$runs"
for seed in $seeds; do
	for variant in $variants; do
		for count in $clients; do
			transport=${variant%:*} queue=${variant#*:}
			if grep -q "\"transport\":\"$transport\",\"queue\":\"$queue\",\"clients\":$count,\"seed\":$seed," "$runs"; then
				continue
			fi
			"$program" --transport="$transport" --queue="$queue" --clients="$count" \
				--seed="$seed" "${more[@]}" >>"$runs"
			tail -n 1 "$runs" | cut -c 1-80
		done
	done
done
python3 tests/peers/table.py "$runs" >"$out/table.md"
cat "$out/table.md"

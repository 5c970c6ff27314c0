#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# The cost of the control laws on the host, the cost of Paceline on this machine's
# kernel (root, idle machine), the study's scenario in ns-3, and every experiment in full
# on the virtual backend.
# Into results/bench/: peers, control.txt, torch.txt, phases.txt, burst.txt, live-overhead.json, ns3,
# simulator-speed.txt, transfer.txt, gateway.txt, report, virtual/EXPERIMENT, virtual/small-bursts.csv and
# kernels/SUITE.
# Results to keep are copied to docs/results/EXPERIMENT by hand: results.json and table.txt.
# Made to be left alone for hours on 2 cores.
set -euo pipefail
source "$(dirname "$0")/common.sh"

place=results/bench
mkdir -p $place/virtual
failed=()

heading "building"
build
cargo bench --locked -p paceline-lab --bench live_overhead --no-run

heading "control laws: time of one call"
cargo bench --locked -p paceline-control --bench cost | tee "$place/control.txt"

heading "phases: time of one switch, and of the shim per collective"
{
	cargo bench --locked -p paceline-phase --bench cost
	make --no-print-directory -C mpi cost
} | tee "$place/phases.txt"

heading "burst: time per packet"
cargo bench --locked -p paceline-cli --bench burst_cost --no-run
burst_cost=$(cargo bench --locked -p paceline-cli --bench burst_cost --no-run 2>&1 |
	sed -n 's/.*(\(.*burst_cost-[0-9a-f]*\)).*/\1/p')
[ -n "$burst_cost" ] || fail "cargo did not name the benchmark burst_cost"
as_root "$burst_cost" | tee "$place/burst.txt" || failed+=("burst_cost")

heading "ns-3: Table 1 of feng-2000"
tests/peers/ns3.sh "$place/ns3" || failed+=("ns3")
"$paceline" sim sweep tests/peers/ns3-dumbbell.toml --out "$place/ns3/simulator" || failed+=("ns3-dumbbell")
python3 tests/peers/compare.py "$place/ns3/table.md" "$place/ns3/simulator/results.json" | tee "$place/ns3/simulator.md"

heading "PyTorch: classes of two ranks of Gloo"
as_root /usr/bin/python3 -B tests/torch/test.py "$(realpath "$paceline")" 2>&1 | tee "$place/torch.txt" || failed+=("torch")

heading "live: paceline send beside rsync, rclone, lftp and aria2"
as_root python3 tests/peers/movers.py --paceline "$paceline" --out "$place/peers" || failed+=("peers")

heading "live: paceline gateway beside haproxy and kcptun"
as_root python3 tests/peers/gateways.py --paceline "$paceline" --out "$place/peers" || failed+=("gateways")
[ ! -d "$place/peers" ] || as_root chown -R "$(id -u):$(id -g)" "$place/peers"

heading "simulator: speed beside ns-3, and from a thousand clients to a hundred thousand"
{
	python3 tests/peers/speed.py "${CARGO_TARGET_DIR:-target}/peers/ns3-dumbbell" "$paceline" 5
	cargo bench --locked -p paceline-simulator --bench speed
} | tee "$place/simulator-speed.txt" || failed+=("simulator speed")

heading "transfer: memory for a million files of 1 KB, bytes sent of a sparse image of 10 GiB"
{
	cargo test --locked --release -p paceline-cli --test transfer -- --ignored --nocapture million
	cargo test --locked --release -p paceline-mover --lib -- --ignored --nocapture 10_gib
} | tee "$place/transfer.txt" || failed+=("transfer")

heading "coordinator: 10,000 streams on 200 hosts"
cargo bench --locked -p paceline-coordinator --bench scale | tee "$place/coordinator.txt"

heading "gateways: Comet-TCP's path at its own size, simulated"
cargo bench --locked -p paceline-gateway --bench paper | tee "$place/gateway.txt" || failed+=("gateway")

heading "live: throughput over veth, CUBIC and Paceline in pairs"
binary=$(cargo bench --locked -p paceline-lab --bench live_overhead --no-run 2>&1 |
	sed -n 's/.*(\(.*live_overhead-[0-9a-f]*\)).*/\1/p')
[ -n "$binary" ] || fail "cargo did not name the benchmark live_overhead"
as_root "$binary" --out "$place/live-overhead.json" || failed+=("live_overhead")
[ ! -f "$place/live-overhead.json" ] || as_root chown "$(id -u):$(id -g)" "$place/live-overhead.json"

for experiment in experiments/*.toml; do
	name=$(basename "$experiment" .toml)
	# Real programs need packages of their own.
	! grep -q '^\[\[program\]\]' "$experiment" || continue
	# Scenarios of the simulator.
	if grep -q '^\[flows\.' "$experiment"; then
		heading "sim: $name"
		"$paceline" sim sweep "$experiment" --out "$place/sim/$name" || failed+=("$name")
		continue
	fi
	heading "virtual: $name"
	"$paceline" lab run "$experiment" --backend virtual --out "$place/virtual/$name" || failed+=("$name")
done

heading "virtual: small bursts drawn at random, which the simulator is held against"
tests/simulator/small_bursts.py --paceline "$paceline" --out "$place/virtual/small-bursts.csv" ||
	failed+=("small bursts")

heading "virtual: what paceline report estimates, against separate runs"
/usr/bin/python3 tests/report/labs.py --paceline "$paceline" --labs 20 --out "$place/report" | tee "$place/report.txt" ||
	failed+=("report")

heading "every kernel"
KERNELS_OUT="$place/kernels" scripts/kernels.sh || failed+=("kernels")

heading "done"
ls -d "$place"/*
if [ ${#failed[@]} -gt 0 ]; then
	echo "not all claims hold, or runs are invalid: ${failed[*]}" >&2
	exit 1
fi

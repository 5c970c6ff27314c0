#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# What test.sh runs beside its tests, because it needs nothing of this host but a CPU: lint,
# documentation, the laws with a sanitizer, the simulator, and the lab's guests. Its output is
# shown when it is done.
set -euo pipefail
source "$(dirname "$0")/common.sh"

results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
# At a signal the guest that runs is ended first, then this.
trap 'exit 143' TERM INT

lab() { # name, arguments of lab run...: must end with all claims holding
	local name=$1
	shift
	"$paceline" lab run "$@" --backend virtual --out "$results/$name"
}

heading "simulator: paths drawn at random"
for seed in 1 2 3 4 5; do
	"$paceline" lab run experiments/paths-sim.toml --backend sim --seed "$seed" --out "$results/paths-$seed"
done

if [ "$(uname -m)" = x86_64 ]; then
	heading "lab: bursts after idle"
	lab startup experiments/startup-pacing.toml --variant paceline

	heading "lab: all-to-all and one-to-one in turn"
	lab phases experiments/phase-switch.toml --quick --variant paceline

	heading "lab: many senders at once, with and without the RTO law"
	lab incast experiments/incast-timeouts.toml --quick

	heading "lab: parallel streams under the coordinator"
	lab decp experiments/decp-trouble.toml --quick --variant paceline

	heading "lab: packets leave about as fast as the window asks for"
	lab rates experiments/spacing-rates.toml --quick

	heading "lab: the kernel's link and the emulator's are alike"
	lab conformance experiments/conformance.toml --quick

	heading "lab: a rate that comes back is found under fq, too"
	lab fq experiments/host-fq.toml --quick --variant paceline

	heading "lab: what paceline report estimates; one drawn lab, so its claim is not judged"
	/usr/bin/python3 tests/report/labs.py --paceline "$paceline" --labs 1 --bursts 150 --paired-runs 2 --out "$results/report"

	heading "lab: in short on other kernels"
	scripts/kernels.sh --short trixie sid experimental

	heading "lab: the same run twice gives the same bytes"
	for number in 1 2; do
		lab "same-$number" experiments/startup-initial-rate.toml --quick --variant paceline
	done
	cmp "$results/same-1/results.json" "$results/same-2/results.json"
else
	heading "lab: skipped, the virtual backend runs on x86_64 only"
fi

# Last: until cargo has begun the tests it wants the build directory for itself.
heading "lint"
if has_cargo_tool clippy; then
	cargo clippy --release --locked --workspace --all-targets -- -D warnings
fi

heading "public documentation"
RUSTDOCFLAGS="-D warnings" cargo doc --quiet --release --locked --workspace --no-deps

heading "dependencies"
# A test checks licences, sources and bans against deny.toml; the other checks need a tool
# and the network.
if cargo deny --version >/dev/null 2>&1; then
	cargo deny check licenses sources bans
fi
echo "not checked here: advisories (make audit)"

heading "control laws with UndefinedBehaviorSanitizer"
# Which their build has without optimisation.
cargo test --locked -p paceline-control

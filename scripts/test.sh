#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Everything that must hold before a change goes in. The last line counts what
# cargo's test runners executed: "N passed, N failed".
set -euo pipefail
source "$(dirname "$0")/common.sh"

results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
export CARGO_TERM_COLOR=never
# The same cases each time; `make torture` draws new ones.
export PROPTEST_RNG_SEED=20

lab() { # name, arguments of lab run...: must end with all claims holding
	local name=$1
	shift
	"$paceline" lab run "$@" --backend virtual --out "$results/$name"
}

tool() { # cargo subcommand: whether it is there; in CI it must be
	cargo "$1" --version >/dev/null 2>&1 && return
	[ "${CI:-}" != true ] || fail "cargo $1 is not installed; in CI it must be"
	echo "skipped: cargo $1 is not installed"
	return 1
}

heading "format"
if tool fmt; then
	cargo fmt --all --check
fi

heading "build"
build

heading "tests"
if [ "$(id -u)" -ne 0 ]; then
	echo "not root: tests that need it say \"skipped\"; sudo -E make test runs them all"
fi
tests=0
cargo test --release --locked --workspace --no-fail-fast 2>&1 | tee "$results/tests" || tests=$?
counted=$(awk '/^test result: / { passed += $4; failed += $6 }
	END { printf "%d passed, %d failed", passed, failed }' "$results/tests")
if [ "$tests" -ne 0 ]; then
	echo "$counted"
	exit "$tests"
fi
case $counted in
"0 passed"*) fail "no test was executed" ;;
esac

if [ "$(id -u)" -eq 0 ] && { command -v slurmd >/dev/null || [ "${CI:-}" = true ]; }; then
	heading "jobs under Slurm"
	tests/slurm/test.sh "$(realpath "$paceline")"
fi

if [ "$(id -u)" -eq 0 ] && [ "$(uname -m)" = x86_64 ]; then
	heading "the agent under systemd"
	python3 tests/systemd/test.py "$paceline"
fi

heading "manifests and pods of Kubernetes"
PYTHONPATH=${CARGO_TARGET_DIR:-target}/kubernetes-validate python3 tests/kubernetes/test.py "$paceline"

if command -v dpkg-shlibdeps >/dev/null || [ "${CI:-}" = true ]; then
	heading "Debian package"
	tests/packages/test.sh "$(dirname "$(realpath "$paceline")")"
fi

if command -v promtool >/dev/null || [ "${CI:-}" = true ]; then
	heading "metrics under Prometheus"
	python3 tests/metrics/test.py "$paceline"
fi

if [ "$(id -u)" -eq 0 ]; then
	heading "programs across a pair of gateways"
	python3 tests/gateway/programs.py "$paceline"
fi

heading "control laws with UndefinedBehaviorSanitizer"
# Which their build has without optimisation.
cargo test --locked -p paceline-control

heading "MPI shim"
make --no-print-directory -C mpi test

heading "Python module, with the library and without"
for library in "$(dirname "$(realpath "$paceline")")/libpaceline.so" ""; do
	PYTHONDONTWRITEBYTECODE=1 PACELINE_LIBRARY=$library python3 python/test_paceline.py
done

heading "lint"
if tool clippy; then
	cargo clippy --release --locked --workspace --all-targets -- -D warnings
fi

heading "public documentation"
RUSTDOCFLAGS="-D warnings" cargo doc --quiet --release --locked --workspace --no-deps

heading "dependencies"
# Licences, sources and bans were held against deny.toml by a test; what else there is
# to say needs a tool and the network.
if cargo deny --version >/dev/null 2>&1; then
	cargo deny check licenses sources bans
fi
echo "not checked here: advisories (make audit)"

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

heading "done"
echo "$counted"

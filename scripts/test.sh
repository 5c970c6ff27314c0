#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Everything that must hold before a change goes in. The last line counts what
# cargo's test runners executed: "N passed, N failed".
set -euo pipefail
source "$(dirname "$0")/common.sh"

results=$(mktemp -d)
beside= # process group of what runs beside the tests
finish() {
	if [ -n "$beside" ]; then
		kill -- "-$beside" 2>/dev/null && wait "$beside" || true
	fi
	rm -rf "$results"
}
trap finish EXIT
export CARGO_TERM_COLOR=never
# The same cases each time; `make torture` draws new ones.
export PROPTEST_RNG_SEED=20

heading "format"
if has_cargo_tool fmt; then
	cargo fmt --all --check
fi

heading "build"
# Everything that the tests need, in one command: they ask for more features of tokio, so
# what depends on tokio would be compiled a second time after a build without them. And what
# runs beside the tests does not wait for a build.
build --lib --bins --tests --examples

heading "tests"
if [ "$(id -u)" -ne 0 ]; then
	echo "not root: tests that need it say \"skipped\"; sudo -E make test runs them all"
fi
set -m
nice -n 10 scripts/apart.sh >"$results/beside" 2>&1 &
beside=$!
set +m
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
	heading "jobs on four nodes of Slurm, and sweeps"
	tests/slurm/nodes.sh "$(realpath "$paceline")"
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

heading "MPI shim"
make --no-print-directory -C mpi test

heading "Python module, with the library and without"
for library in "$(dirname "$(realpath "$paceline")")/libpaceline.so" ""; do
	PYTHONDONTWRITEBYTECODE=1 PACELINE_LIBRARY=$library python3 python/test_paceline.py
done

heading "what ran beside the tests: its times are from its own start"
status=0
wait "$beside" || status=$?
beside=
cat "$results/beside"
if [ "$status" -ne 0 ]; then
	echo "$counted"
	exit "$status"
fi

heading "done"
echo "$counted"

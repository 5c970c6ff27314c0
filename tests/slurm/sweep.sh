# SPDX-License-Identifier: Apache-2.0 OR MIT
# Sourced by nodes.sh: sweeps over the nodes, by an array of jobs and by the ranks of mpirun.
# shellcheck shell=bash disable=SC2154

echo "== a sweep of the simulator over an array of jobs, and over ranks, gives the bytes of one host"
cat >clients.toml <<'SCENARIO'
title = "A few clients"
description = "For the test of sweeps."
seeds = 3
duration = "5s"

[link.gateway]
rate = "50mbit"
delay = "25ms"
queue = { packets = 50 }

[sender.reno]
[sender.cubic]

[flows.clients]
count = 5
tcp = "reno"
edge_rate = "10mbit"
edge_delay = "25ms"
path = ["gateway"]
source.poisson = "10ms"

[variant.reno.set]
"flows.clients.tcp" = "reno"

[variant.cubic.set]
"flows.clients.tcp" = "cubic"
SCENARIO
shared=$place/shared
mkdir "$shared"
chown nobody "$shared"
sweep() { user env PACELINE="$paceline" HOME=/tmp "$source/contrib/slurm/paceline-sweep" "$@"; }
(cd / && sweep 4 "$place/clients.toml" "$shared/array" --chdir=/) >out.log 2>&1 || fail "$(cat out.log "$shared"/array/*.log)"
"$paceline" sim sweep clients.toml --out one >/dev/null 2>&1
cmp one/results.json "$shared/array/results.json" || fail "the array's results differ"
sweep --ranks 4 "$place/clients.toml" "$shared/ranks" \
	mpirun.openmpi -np 4 --oversubscribe --host node0:4 --mca btl self >out.log 2>&1 || fail "$(cat out.log)"
cmp one/results.json "$shared/ranks/results.json" || fail "the ranks' results differ"

echo "== seeds of an experiment of the lab over an array, and errors are reported"
LAB_OPTIONS="--backend sim --quick" sweep 3 "$source/experiments/paths-sim.toml" "$shared/seeds" --chdir=/ >out.log 2>&1 ||
	fail "$(cat out.log "$shared"/seeds/*.log)"
for seed in 1 2 3; do
	grep -q "\"seed\": $seed," "$shared/seeds/part-$seed/results.json" || fail "seed $seed: $(head -c 300 "$shared/seeds/part-$seed/results.json")"
done
[ -s "$shared/seeds/report.html" ] || fail "no page"
! sweep 0 "$place/clients.toml" "$shared/none" >out.log 2>&1 || fail "no part was taken for a number"
grep -q "0: expected the number of parts" out.log || fail "$(cat out.log)"
! sweep --ranks 3 "$place/clients.toml" "$shared/none" env OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 >out.log 2>&1 || fail "two ranks for three parts"
grep -q "2 ranks for 3 parts" out.log || fail "$(cat out.log)"
sed 's/^seeds = 3/seeds = 0/' clients.toml >broken.toml
! (cd / && sweep 2 "$place/broken.toml" "$shared/broken" --chdir=/) >out.log 2>&1 || fail "a file with an error was swept"
grep -q "not all parts were done" out.log || fail "$(cat out.log)"
until_true "the end of all jobs" no_slurm_jobs

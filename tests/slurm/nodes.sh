#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Slurm with four nodes: hosts of a `paceline lab`, each with a slurmd, a network, a name and a
# Paceline agent of its own; steps across all of them, under the plugin. Needs root and what
# test.sh needs, and Open MPI. Argument: the paceline to test (default target/release/paceline).
set -euo pipefail
[ -z "${TRACE:-}" ] || { PS4="+ \$SECONDS "; set -x; }
cd "$(dirname "$0")/../.."

if [ -z "${PACELINE_SLURM_TEST:-}" ]; then
	paceline=$(realpath "${1:-target/release/paceline}")
	export PACELINE_SLURM_TEST="$paceline"
	exec unshare --mount "$0"
fi
source=$PWD
source tests/slurm/common.sh
nodes=(node0 node1 node2 node3)

# ---- four hosts at a switch
cd "$place"
cat >slurm-nodes.toml <<'TOPOLOGY'
[[cluster]]
name = "node"
hosts = 4
edge_rate = "1gbit"
switch_buffer = "256KiB"
TOPOLOGY
lab=slurm-nodes-$$
"$paceline" lab up slurm-nodes.toml --name "$lab" >lab.log 2>&1 || fail "$(cat lab.log)"
# Not in a function, so that $! is the background process itself.
exec_on=("$paceline" lab exec --lab "$lab")
on() { "${exec_on[@]}" "$@"; } # node, command...
cat >server.py <<'SERVER'
import socket, threading
def serve(c):
    while c.recv(65536): pass
s = socket.create_server(("", 7000), backlog=256)
while True:
    c, _ = s.accept()
    threading.Thread(target=serve, args=(c,), daemon=True).start()
SERVER

# ---- Slurm: a controller on the first, a slurmd and an agent on each
start_munge
printf 'groups = ["nogroup"]\npolicies = ["lfn", "pace"]\n' >agent.toml
declare -A agents
start_agent() { # node
	"${exec_on[@]}" "$1" "$paceline" --verbose agent --config agent.toml --directory "$place/agent-$1" 2>>"agent-$1.log" &
	agents[$1]=$!
	processes+=("${agents[$1]}")
	until_true "the agent's socket on $1" test -S "agent-$1/jobs.sock"
}
for node in "${nodes[@]}"; do
	mkdir "$node"
	configure "$node/slurm.conf" "node0(node0)" "$place/$node/plugstack.conf"
	cp cgroup.conf "$node/"
	cat >>"$node/slurm.conf" <<-CONF
		NodeName=node[0-3] CPUs=2 State=UNKNOWN
		PartitionName=p Nodes=node[0-3] Default=YES State=UP OverSubscribe=FORCE:4
		MaxArraySize=64
	CONF
	# Only this path differs from node to node.
	echo "optional $place/paceline_spank.so agent=$place/agent-$node patience=5" >"$node/plugstack.conf"
	start_agent "$node"
	"${exec_on[@]}" "$node" python3 server.py &
	processes+=($!)
done
export SLURM_CONF=$place/node0/slurm.conf
"${exec_on[@]}" node0 slurmctld -D >/dev/null 2>&1 &
processes+=($!)
for node in "${nodes[@]}"; do
	SLURM_CONF=$place/$node/slurm.conf LD_PRELOAD=${unified:-} "${exec_on[@]}" "$node" slurmd -D -N "$node" >/dev/null 2>&1 &
	processes+=($!)
done
# Commands of Slurm run on the first node, which the controller is on.
for name in srun sbatch salloc scancel squeue sinfo; do
	eval "$name() { on node0 $name \"\$@\"; }"
done
user() { on node0 setpriv --reuid nobody --regid nogroup --clear-groups -- "$@"; }
four_idle() { [ "$(sinfo --noheader --format %D,%T)" = 4,idle ]; }
until_true "four idle nodes" four_idle

cat >rank.py <<'RANK'
import os, signal, socket, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
here = os.environ["SLURMD_NODENAME"]
there = "node%d" % ((int(here[4:]) + 1) % 4)
connection = socket.create_connection((there, 7000))
connection.sendall(b"x" * 10000)
control = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
print(here, os.getpid(), control.rstrip(b"\0").decode(), flush=True)
time.sleep(float(sys.argv[1]))
RANK

for who in on\ node0 user; do
	echo "== a step on four nodes, as ${who/on node0/root}: listed, cancelled although it ignores SIGTERM, gone"
	ranks=$(mktemp "$place/ranks.XXXXXX")
	chmod 666 "$ranks"
	$who srun --chdir=/ -N 4 -n 8 --overcommit --paceline=lfn python3 "$place/rank.py" 600 >"$ranks" 2>srun.log &
	srun=$!
	until_true "eight ranks" sh -c "[ \$(wc -l <$ranks) = 8 ]"
	[ "$(grep -c ' paceline_cubic$' "$ranks")" = 8 ] || fail "not adapted: $(cat "$ranks" srun.log)"
	id=$(squeue --noheader --format %A)
	jobs | python3 -c '
import json, sys
slurm = sys.argv[1]
jobs = {job["cgroup"]: job for job in json.load(sys.stdin)["jobs"]}
assert len(jobs) == 4, jobs
for node in range(4):
    job = next(job for place, job in jobs.items() if place.endswith(f"/node{node}_slurmstepd.scope/job_{slurm}/step_0/user"))
    assert job["governed"] == 2 and job["policy"] == "lfn" and job["shared"], job' "$id" || fail "status"
	for node in "${nodes[@]}"; do
		listed=$(SLURM_CONF=$place/$node/slurm.conf on "$node" scontrol listpids "$id" "$node" | awk '{print $1}')
		while read -r at process _; do
			[ "$at" != "$node" ] || grep -qx "$process" <<<"$listed" || fail "scontrol listpids on $node lacks $process: $listed"
		done <"$ranks"
	done
	$who scancel "$id"
	wait "$srun" || true
	until_true "the end of job $id" no_slurm_jobs
	until_true "the end of its cgroups" no_steps
	while read -r _ process _; do
		! [ -e "/proc/$process" ] || fail "$process lives on"
	done <"$ranks"
	until_true "no job" no_jobs
done

echo "== a failure of one node is reported with its name, and all tasks run"
kill "${agents[node2]}"
until_true "the agent's end" sh -c "! kill -0 ${agents[node2]}"
user srun --chdir=/ -N 4 -n 8 --overcommit --paceline=lfn python3 "$place/rank.py" 0 >out.log 2>srun.log || fail "$(cat out.log srun.log)"
[ "$(grep -c ' paceline_cubic$' out.log)" = 6 ] || fail "six of eight: $(cat out.log)"
[ "$(grep '^node2 ' out.log | grep -vc paceline)" = 2 ] || fail "node2: $(cat out.log)"
[ "$(grep -c "runs without the policy" srun.log)" = 1 ] || fail "not reported once: $(cat srun.log)"
grep -q "no agent answers at $place/agent-node2/jobs.sock" srun.log || fail "not reported: $(cat srun.log)"
start_agent node2
until_true "no job" no_jobs
user srun --chdir=/ -N 4 -n 4 --paceline=beowulf python3 "$place/rank.py" 0 >out.log 2>srun.log || fail "$(cat out.log srun.log)"
! grep -q paceline out.log || fail "beowulf: $(cat out.log)"
[ "$(grep -c "policy beowulf is not allowed" srun.log)" = 4 ] || fail "not reported once by each node: $(cat srun.log)"

echo "== mpirun in a batch script: it is in one step, and its daemons in others"
cat >exchange.c <<'MPI'
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
static char block[100000], blocks[8 * sizeof(block)];
int main(int argc, char **argv)
{
	int rank, governed = 0, all;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Allgather(block, sizeof(block), MPI_CHAR, blocks, sizeof(block), MPI_CHAR, MPI_COMM_WORLD);
	for (int fd = 0; fd < 256; fd++) {
		char name[16] = "";
		socklen_t length = sizeof(name);
		if (!getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &length))
			governed += !strcmp(name, "paceline_cubic");
	}
	governed = governed > 0;
	MPI_Reduce(&governed, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
	if (!rank)
		printf("%d ranks have connections under the policy\n", all);
	MPI_Finalize();
	return 0;
}
MPI
mpicc.openmpi -o exchange exchange.c
cat >mpi.sh <<BATCH
#!/bin/sh
export HOME=/tmp
exec mpirun.openmpi -np 8 --map-by node --oversubscribe --mca btl tcp,self --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0 $place/exchange
BATCH
out=$(mktemp "$place/batch.XXXXXX")
chmod 666 "$out"
user sbatch --wait --chdir=/ -N 4 --output="$out" --paceline=lfn "$place/mpi.sh" >/dev/null || fail "sbatch: $(cat "$out")"
grep -q '^8 ranks have connections under the policy$' "$out" || fail "$(cat "$out")"
until_true "no job" no_jobs

echo "== 128 tasks of a step, on four nodes and on one: how long they take to start and end"
cpus() {
	local all=0 node
	for node in "${nodes[@]}"; do all=$((all + $(cpu "${agents[$node]}"))); done
	echo $all
}
timed() { # what, srun's arguments...: without a policy, and with one
	local what=$1 took=() option from
	shift
	until_true "no other job" no_slurm_jobs
	for option in --paceline=none --paceline=lfn; do
		[ $option = --paceline=none ] || before=$(cpus)
		from=$(date +%s%N)
		user srun --chdir=/ "$@" --overcommit $option true >out.log 2>srun.log || fail "$(cat out.log srun.log)"
		took+=($((($(date +%s%N) - from) / 1000000)))
	done
	echo "$what: ${took[0]} ms without a policy, ${took[1]} ms with one; the agents' CPU time: $(($(cpus) - before)) ms"
}
timed "4 x 32, no other job on the host" -N 4 -n 128
until_true "no job" no_jobs
mkfifo lasting
"$paceline" run --quiet --policy lfn -- cat lasting 2>/dev/null &
lasting=$!
until_true "another job" sh -c "'$paceline' status | grep -q lfn"
timed "4 x 32, beside another job" -N 4 -n 128
timed "1 x 128, beside another job" -w node1 -n 128
timed "1 x 1, beside another job" -w node1 -n 1
: >lasting
wait $lasting
until_true "no job" no_jobs
until_true "no step" no_steps
jobs | python3 -c '
import json, sys
assert not json.load(sys.stdin)["congestion_controls"]' || fail "a congestion control stays"

source "$source/tests/slurm/sweep.sh"
failed=0
echo "all of it holds"

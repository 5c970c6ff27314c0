#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# `paceline run` under Slurm itself, and the plugin: a controller and a node on this machine,
# in namespaces of their own. Needs root, and the packages slurmctld, slurmd, slurm-client,
# munge, libslurm-dev and libjson-c-dev. Argument: the paceline to test (default target/release/paceline).
set -euo pipefail
[ -z "${TRACE:-}" ] || { PS4="+ \$SECONDS "; set -x; }
cd "$(dirname "$0")/../.."

if [ -z "${PACELINE_SLURM_TEST:-}" ]; then
	paceline=$(realpath "${1:-target/release/paceline}")
	export PACELINE_SLURM_TEST="$paceline"
	exec unshare --mount --net --uts "$0"
fi

source=$PWD
source tests/slurm/common.sh
nodes=(node1)

# ---- a node: a name, a network with another host on it
hostname node1
{ cat /etc/hosts; echo "10.97.0.1 node1"; } >"$place/hosts"
mount --bind "$place/hosts" /etc/hosts
ip link set lo up
unshare --net sleep infinity & # the other host
processes+=($!)
other=$!
until_true "the other host's namespace" sh -c "[ \$(readlink /proc/$other/ns/net) != \$(readlink /proc/self/ns/net) ]"
ip link add v0 type veth peer name v1 netns "$other"
ip addr add 10.97.0.1/24 dev v0
ip link set v0 up
nsenter --net="/proc/$other/ns/net" sh -c 'ip addr add 10.97.0.2/24 dev v1; ip link set v1 up'
nsenter --net="/proc/$other/ns/net" python3 -c '
import socket, threading
def serve(c):
    while c.recv(65536): pass
s = socket.create_server(("10.97.0.2", 7000), backlog=256)
while True:
    c, _ = s.accept()
    threading.Thread(target=serve, args=(c,), daemon=True).start()
' &
processes+=($!)

# ---- Slurm
cd "$place"
start_munge
configure "$place/slurm.conf" "node1(10.97.0.1)" "$place/plugstack.conf"
cat >>slurm.conf <<CONF
NodeName=node1 NodeAddr=10.97.0.1 CPUs=2 State=UNKNOWN
PartitionName=p Nodes=node1 Default=YES State=UP OverSubscribe=FORCE:4
CONF
echo "optional $place/paceline_spank.so agent=$place/agent patience=5" >plugstack.conf
export SLURM_CONF=$place/slurm.conf
slurmctld -D >/dev/null 2>&1 &
processes+=($!)
LD_PRELOAD=${unified:-} slurmd -D -N node1 >/dev/null 2>&1 &
processes+=($!)
until_true "an idle node" sh -c 'sinfo --noheader --format %T | grep -q idle'

# ---- the agent, for a user without rights
printf 'groups = ["nogroup"]\npolicies = ["lfn", "pace"]\n' >agent.toml
"$paceline" --verbose agent --config agent.toml --directory "$place/agent" 2>agent.log &
agent=$!
processes+=("$agent")
until_true "the agent's socket" test -S agent/jobs.sock

run=("$paceline" run --agent "$place/agent" --)
echo "== the program stays in its task's cgroup"
for who in "" as_user; do
	plain=$($who srun --chdir=/ -n 2 --overcommit grep ^0:: /proc/self/cgroup | sort)
	ours=$($who srun --chdir=/ -n 2 --overcommit "${run[@]}" grep ^0:: /proc/self/cgroup | sort)
	[ "$(sed 's/.*step_0//' <<<"$plain")" = "$(sed 's/.*step_0//' <<<"$ours")" ] ||
		fail "${who:-root}: $plain / $ours"
	grep -q 'user/task_' <<<"$ours" || fail "$ours"
	until_true "no job" no_jobs
done

cat >rank.py <<'RANK'
import os, signal, socket, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
connection = socket.create_connection(("10.97.0.2", 7000))
connection.sendall(b"x" * 10000)
control = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
print(os.getpid(), control.rstrip(b"\0").decode(), flush=True)
time.sleep(600)
RANK

for who in "" as_user; do
	echo "== scancel as ${who:-root}: a program that ignores SIGTERM"
	ranks=$($who mktemp /tmp/paceline-slurm-ranks.XXXXXX)
	$who srun --chdir=/ -n 2 --overcommit "${run[@]}" python3 "$place/rank.py" >"$ranks" 2>srun.log &
	srun=$!
	until_true "two ranks" sh -c "[ \$(wc -l <$ranks) = 2 ]"
	[ "$(grep -c ' paceline_cubic$' "$ranks")" = 2 ] || fail "not adapted: $(cat "$ranks")"
	jobs | python3 -c '
import json, sys
jobs = json.load(sys.stdin)["jobs"]
assert len(jobs) == 1, jobs
assert jobs[0]["shared"] and jobs[0]["cgroup"].endswith("/step_0/user"), jobs
assert jobs[0]["governed"] == 2, jobs' || fail "status"
	id=$(squeue --noheader --format %A)
	listed=$(scontrol listpids "$id" | awk '{print $1}')
	while read -r process _; do
		grep -qx "$process" <<<"$listed" || fail "scontrol listpids lacks $process: $listed"
	done <"$ranks"
	$who scancel "$id"
	wait "$srun" || true
	until_true "the end of job $id" no_slurm_jobs
	until_true "the end of its cgroup" no_steps
	while read -r process _; do
		! [ -e "/proc/$process" ] || fail "$process lives on"
	done <"$ranks"
	rm -f "$ranks"
	until_true "no job" no_jobs
done

echo "== a batch script: two policies, one after the other"
cat >batch.sh <<BATCH
#!/bin/sh
$paceline run --agent $place/agent --policy pace -- true &&
$paceline run --agent $place/agent --policy lfn -- grep ^0:: /proc/self/cgroup
BATCH
out=$(as_user mktemp /tmp/paceline-slurm-batch.XXXXXX)
as_user sbatch --wait --chdir=/ --output="$out" batch.sh >/dev/null || fail "sbatch: $(cat "$out")"
grep -q 'step_batch/user/task_' "$out" || fail "batch: $(cat "$out")"
rm -f "$out"

echo "== 128 ranks of one user"
before=$(cpu "$agent")
as_user srun --chdir=/ -n 128 --overcommit "${run[@]}" true || fail "128 ranks"
echo "the agent's CPU time for 128 ranks, start and end: $(($(cpu "$agent") - before)) ms"
until_true "no job" no_jobs
until_true "no step" no_steps
# Leftovers of the last step in the kernel are visible from outside.
jobs | python3 -c '
import json, sys
assert not json.load(sys.stdin)["congestion_controls"]' || fail "a congestion control stays"

source "$source/tests/slurm/spank.sh"
jobs | python3 -c '
import json, sys
assert not json.load(sys.stdin)["congestion_controls"]' || fail "a congestion control stays"
failed=0
echo "all of it holds"

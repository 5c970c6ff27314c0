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

place=$(mktemp --directory /tmp/paceline-slurm.XXXXXX)
chmod 755 "$place"
cp "$PACELINE_SLURM_TEST" "$place/paceline"
make --no-print-directory -C packaging/slurm OUT="$place"
source=$PWD
paceline=$place/paceline
processes=()

end() { # whatever happened
	set +e
	scancel --user root 2>/dev/null
	scancel --user nobody 2>/dev/null
	# The last first: slurmd ends its steps with the help of the others.
	for ((at = ${#processes[@]} - 1; at >= 0; at--)); do
		kill "${processes[at]}" 2>/dev/null
		for _ in $(seq 100); do
			kill -0 "${processes[at]}" 2>/dev/null || break
			sleep 0.1
		done
		kill -KILL "${processes[at]}" 2>/dev/null
	done
	for log in slurmd slurmctld agent; do
		[ "${failed:-1}" = 0 ] || tail -n 5 "$place/$log.log" | sed "s/^/$log: /"
	done
	if [ -d /sys/fs/cgroup/system.slice/node1_slurmstepd.scope ]; then
		find /sys/fs/cgroup/system.slice/node1_slurmstepd.scope -depth -type d -exec rmdir {} + 2>/dev/null
	fi
	[ "${made:-0}" = 0 ] || rmdir /sys/fs/cgroup/system.slice 2>/dev/null
	rm -rf "$place"
}
trap end EXIT

fail() {
	echo "FAILED: $*"
	exit 1
}

until_true() { # what, command...
	local what=$1
	shift
	for _ in $(seq 600); do
		if "$@" >/dev/null 2>&1; then return; fi
		sleep 0.1
	done
	fail "never came: $what"
}

# ---- a node: the unified hierarchy alone, a name, a network with another host on it
mount --make-rprivate /
if ! [ -e /sys/fs/cgroup/cgroup.controllers ]; then
	umount --recursive /sys/fs/cgroup
	mount -t cgroup2 none /sys/fs/cgroup
	cc -shared -fPIC -o "$place/unified.so" tests/slurm/unified.c -ldl
	unified=$place/unified.so
fi
if ! [ -d /sys/fs/cgroup/system.slice ]; then
	mkdir /sys/fs/cgroup/system.slice
	made=1
fi
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
mkdir state spool run
head -c 64 /dev/urandom >munge.key
chmod 400 munge.key
munged --foreground --force --key-file="$place/munge.key" --socket="$place/run/munge.sock" \
	--pid-file="$place/run/munged.pid" --log-file="$place/munged.log" --seed-file="$place/run/seed" 2>/dev/null &
processes+=($!)
cat >slurm.conf <<CONF
ClusterName=paceline
SlurmctldHost=node1(10.97.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$place/run/munge.sock
CredType=cred/munge
PlugStackConfig=$place/plugstack.conf
StateSaveLocation=$place/state
SlurmdSpoolDir=$place/spool
SlurmctldPidFile=$place/run/slurmctld.pid
SlurmdPidFile=$place/run/slurmd.pid
SlurmctldLogFile=$place/slurmctld.log
SlurmdLogFile=$place/slurmd.log
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup
JobAcctGatherType=jobacct_gather/none
SelectType=select/linear
MailProg=/bin/true
KillWait=2
ReturnToService=2
SlurmctldPort=16817
SlurmdPort=16818
NodeName=node1 NodeAddr=10.97.0.1 CPUs=2 State=UNKNOWN
PartitionName=p Nodes=node1 Default=YES State=UP OverSubscribe=FORCE:4
CONF
echo "optional $place/paceline_spank.so agent=$place/agent patience=5" >plugstack.conf
printf '%s\n' CgroupPlugin=cgroup/v2 CgroupMountpoint=/sys/fs/cgroup IgnoreSystemd=yes \
	ConstrainCores=no ConstrainRAMSpace=no ConstrainDevices=no >cgroup.conf
export SLURM_CONF=$place/slurm.conf
until_true "munged's socket" test -S run/munge.sock
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

as_user() { setpriv --reuid nobody --regid nogroup --clear-groups -- "$@"; }
run=("$paceline" run --agent "$place/agent" --)
jobs() { "$paceline" status --json; }
count() { # how many jobs there are
	jobs | python3 -c 'import json, sys; print(len(json.load(sys.stdin)["jobs"]))'
}
no_jobs() { [ "$(count)" = 0 ]; }
no_steps() { ! ls -d /sys/fs/cgroup/system.slice/node1_slurmstepd.scope/job_* 2>/dev/null; }
no_slurm_jobs() { [ -z "$(squeue --noheader)" ]; }

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
cpu() { awk '{print ($14 + $15) * 10}' "/proc/$agent/stat"; } # ms; USER_HZ is 100
before=$(cpu)
as_user srun --chdir=/ -n 128 --overcommit "${run[@]}" true || fail "128 ranks"
echo "the agent's CPU time for 128 ranks, start and end: $(($(cpu) - before)) ms"
until_true "no job" no_jobs
until_true "no step" no_steps
# What the last step left in the kernel, if anything, is seen from outside.
jobs | python3 -c '
import json, sys
assert not json.load(sys.stdin)["congestion_controls"]' || fail "a congestion control stays"

source "$source/tests/slurm/spank.sh"
jobs | python3 -c '
import json, sys
assert not json.load(sys.stdin)["congestion_controls"]' || fail "a congestion control stays"
failed=0
echo "all of it holds"

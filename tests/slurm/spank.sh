# SPDX-License-Identifier: Apache-2.0 OR MIT
# Sourced by test.sh: the plugin of Slurm, srun/sbatch/salloc --paceline=POLICY.
# shellcheck shell=bash disable=SC2154

as_stranger() { setpriv --reuid daemon --regid daemon --clear-groups -- "$@"; }

echo "== srun --paceline: the step is under the policy, and scancel reaches it"
for who in "" as_user; do
	ranks=$($who mktemp /tmp/paceline-slurm-ranks.XXXXXX)
	$who srun --chdir=/ -n 2 --overcommit --paceline=lfn python3 "$place/rank.py" >"$ranks" 2>srun.log &
	srun=$!
	until_true "two ranks" sh -c "[ \$(wc -l <$ranks) = 2 ]"
	[ "$(grep -c ' paceline_cubic$' "$ranks")" = 2 ] || fail "not adapted: $(cat "$ranks" srun.log)"
	id=$(squeue --noheader --format %A)
	owner=$($who id -u)
	jobs | python3 -c '
import json, sys
owner, slurm = int(sys.argv[1]), sys.argv[2]
jobs = json.load(sys.stdin)["jobs"]
assert len(jobs) == 1, jobs
job = jobs[0]
assert job["shared"] and job["cgroup"].endswith(f"/job_{slurm}/step_0/user"), job
assert job["governed"] == 2 and job["policy"] == "lfn", job
assert job["owner_uid"] == owner and "group" not in job, job' "$owner" "$id" || fail "status"
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

echo "== the report of a step"
cat >short.py <<'RANK'
import socket
connection = socket.create_connection(("10.97.0.2", 7000))
connection.sendall(b"x" * 10000)
print(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode())
RANK
as_user srun --chdir=/ -n 2 --overcommit --paceline=lfn python3 "$place/short.py" >out.log 2>srun.log || fail "srun: $(cat srun.log)"
[ "$(grep -cx paceline_cubic out.log)" = 2 ] || fail "not adapted: $(cat out.log)"
grep -Eq 'paceline: 2 connections got the policy lfn: ([0-9]+ bursts?, )?[^,]+ retransmitted, [0-9]+ RTOs?$' srun.log || fail "no report: $(cat srun.log)"
until_true "no job" no_jobs

echo "== a step that asks for nothing, and one that asks for none, have nothing"
for option in "" --paceline=none; do
	as_user srun --chdir=/ $option python3 "$place/short.py" >out.log 2>srun.log || fail "srun: $(cat srun.log)"
	! grep -q paceline out.log srun.log || fail "adapted: $(cat out.log srun.log)"
done

echo "== sbatch and salloc: the script, and the steps in it"
cat >batch.sh <<BATCH
#!/bin/sh
python3 $place/short.py
srun -n 1 python3 $place/short.py
BATCH
out=$(as_user mktemp /tmp/paceline-slurm-batch.XXXXXX)
as_user sbatch --wait --chdir=/ --output="$out" --paceline=pace batch.sh >/dev/null || fail "sbatch: $(cat "$out")"
[ "$(grep -cx paceline_cubic "$out")" = 2 ] || fail "batch: $(cat "$out")"
grep -q '1 connection got the policy pace' "$out" || fail "batch: $(cat "$out")"
rm -f "$out"
(cd / && as_user salloc --paceline=pace srun -n 1 python3 "$place/short.py") >out.log 2>salloc.log || fail "salloc: $(cat salloc.log)"
[ "$(grep -cx paceline_cubic out.log)" = 1 ] || fail "salloc: $(cat out.log salloc.log)"
until_true "no job" no_jobs

echo "== 128 tasks of one step are one job"
before=$(cpu "$agent")
as_user srun --chdir=/ -n 128 --overcommit --paceline=lfn sleep 3 &
srun=$!
until_true "128 tasks in a job" sh -c "'$paceline' status --json | python3 -c '
import json, sys
jobs = json.load(sys.stdin)[\"jobs\"]
assert len(jobs) == 1 and sum(p[\"name\"] == \"sleep\" for p in jobs[0][\"processes\"]) == 128'"
wait "$srun" || fail "128 tasks"
echo "the agent's CPU time for 128 tasks, start and end: $(($(cpu "$agent") - before)) ms"
until_true "no job" no_jobs

echo "== a refusal is reported, and the task runs"
reported() { # the expected message, srun's arguments...
	local what=$1
	shift
	"$@" >out.log 2>srun.log || fail "the task did not run: $(cat out.log srun.log)"
	[ "$(grep -c done out.log)" -gt 0 ] || fail "the task did not run: $(cat out.log srun.log)"
	grep -q "$what" srun.log || fail "not reported \"$what\": $(cat srun.log)"
	[ "$(grep -c "runs without the policy" srun.log)" = 1 ] || fail "not reported once: $(cat srun.log)"
}
reported "policy beowulf is not allowed: use one of .*(policy)" as_user srun --chdir=/ -n 4 --overcommit --paceline=beowulf echo done
reported "user 1 is in none of the groups that may run jobs.*(group)" as_stranger srun --chdir=/ --paceline=lfn echo done
! as_user srun --chdir=/ --paceline= true 2>srun.log || fail "an empty name was taken"
grep -q -e "--paceline: expected the name of a policy" srun.log || fail "not reported: $(cat srun.log)"

echo "== without an agent, with a newer one, and with one that does not answer"
kill "$agent"
until_true "the agent's end" sh -c "! kill -0 $agent"
reported "no agent answers at $place/agent/jobs.sock" as_user srun --chdir=/ -n 8 --overcommit --paceline=lfn echo done
mkdir -p agent
cat >other-agent.py <<'OTHER'
import json, os, socket, sys
path, answer = sys.argv[1:]
if os.path.exists(path):
    os.unlink(path)
server = socket.socket(socket.AF_UNIX)
server.bind(path)
os.chmod(path, 0o666)
server.listen(64)
kept = []
while True:
    stream, _ = server.accept()
    asked = json.loads(stream.makefile().readline())
    assert asked["protocol"] == 1 and asked["method"] in ("attach-step", "report"), asked
    kept.append(stream)
    if answer:
        stream.sendall(answer.encode() + b"\n")
        stream.shutdown(socket.SHUT_RDWR)
OTHER
another() { # its answer
	python3 other-agent.py agent/jobs.sock "$1" 2>other.log &
	other_agent=$!
	processes+=("$other_agent")
	until_true "another agent" sh -c "python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"agent/jobs.sock\")'"
}
end_another() {
	kill "$other_agent"
	wait "$other_agent" 2>/dev/null || true
}
# The probe above hangs up without a request, which ends that agent's first reading of JSON.
sed -i 's/    asked = json.loads.*/    line = stream.makefile().readline()\n    if not line:\n        continue\n    asked = json.loads(line)/' other-agent.py
another '{"refused":{"code":"version","message":"this agent speaks version 9","more":1}}'
reported "this agent speaks version 9 (version)" as_user srun --chdir=/ --paceline=lfn echo done
end_another
another '{"conquered":{}}'
reported "the agent's answer is not one of this version" as_user srun --chdir=/ --paceline=lfn echo done
end_another
another 'nonsense'
reported "is no agent" as_user srun --chdir=/ --paceline=lfn echo done
end_another
another ''
reported "did not answer (no answer in time)" as_user srun --chdir=/ -n 8 --overcommit --paceline=lfn echo done
end_another
until_true "the end of all steps" no_steps

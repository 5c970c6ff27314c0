#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Runs as a service of the guest that test.py boots: the agent under systemd, by its units.
set -euo pipefail
fail() {
	echo "FAILED: $*"
	systemctl status --no-pager --lines 30 paceline-agent.socket paceline-agent.service || :
	exit 1
}
trap 'fail "line $LINENO: $BASH_COMMAND"' ERR

as_user() { setpriv --reuid nobody --regid daemon --clear-groups "$@"; }
agent() { systemctl show --property MainPID --value paceline-agent.service; }

systemctl start paceline-agent.socket
[ "$(agent)" = 0 ] || fail "the socket alone starts no agent"

# ---- the first job starts it
[ "$(as_user paceline run --policy lfn -- echo first)" = first ]
first=$(agent)
[ "$first" != 0 ] || fail "the job was not the agent's"
[ "$(systemctl show --property ActiveState --value paceline-agent.service)" = active ]
echo "ok: the first job starts the agent"

# ---- it is killed, and stopped: a job waits for the next one
kill -KILL "$first"
[ "$(as_user paceline run --policy lfn -- echo second)" = second ]
[ "$(agent)" != "$first" ]
systemctl stop paceline-agent.service
[ -S /run/paceline/jobs.sock ] || fail "the manager's socket is gone"
[ "$(as_user paceline run --policy lfn -- echo third)" = third ]
echo "ok: a job waits for an agent that restarts"

as_user paceline run --policy phase-aware -- /usr/bin/true 2>/dev/null &&
	fail "a policy that is not allowed is refused"
echo "ok: a policy that is not allowed is refused"

# ---- a service of the host is attached beside the agent, in another network namespace
service=/sys/fs/cgroup/service
mkdir "$service"
ip netns add other
ip -n other link set lo up
ip -n other address add 10.96.0.1/32 dev lo
ip -n other address add 10.96.0.2/32 dev lo
coproc talk {
	exec sh -c 'echo $$ >"$1/cgroup.procs" && shift && exec "$@"' sh "$service" \
		nsenter --net=/run/netns/other python3 -c '
import socket, sys
listener = socket.create_server(("10.96.0.1", 0))
ours = socket.create_connection(listener.getsockname(), source_address=("10.96.0.2", 0))
theirs, _ = listener.accept()
def name():
    return ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode()
for line in sys.stdin:
    print(name(), flush=True)'
}
ask() { # the congestion control of the connection
	echo >&"${talk[1]}"
	read -r answer <&"${talk[0]}"
	echo "$answer"
}
before=$(ask)
[[ $before != paceline* ]]
paceline attach --cgroup "$service" --policy lfn
after=$(ask)
[[ $after = paceline* ]] || fail "a connection of before attach, in another network namespace, has $after"
[ "$(as_user paceline run --policy lfn -- echo beside)" = beside ]
paceline detach --cgroup "$service"
[ "$(ask)" = "$before" ] || fail "detach leaves $(ask)"
echo "ok: attach reaches another network namespace: $before, $after, $before"

eval "exec ${talk[1]}>&-"
wait "$talk_PID"

# ---- a user changes a running job of the user's own, whose connections are there, too
coproc job {
	exec nsenter --net=/run/netns/other setpriv --reuid nobody --regid daemon --clear-groups \
		paceline run --policy lfn -- python3 -c '
import socket, sys
listener = socket.create_server(("10.96.0.1", 0))
ours = socket.create_connection(listener.getsockname(), source_address=("10.96.0.2", 0))
print(open("/proc/self/cgroup").read().rpartition("0::")[2].split()[0], flush=True)
sys.stdin.readline()'
}
read -r place <&"${job[0]}"
changed=$(as_user paceline set "$place" ack.delay=12ms)
[[ $changed = "ack.delay: tick -> 12ms"*"2 running connections changed" ]] || fail "set: $changed"
setpriv --reuid daemon --regid daemon --clear-groups paceline set "$place" ack.delay=40ms 2>/dev/null &&
	fail "another user changes the job"
echo >&"${job[1]}"
wait "$job_PID"
echo "ok: a user changes a job: $changed"

# ---- metrics, and the records of ended jobs, over a restart of the agent
mkdir -p /etc/default
echo 'PACELINE_AGENT_OPTIONS=--metrics 127.0.0.1:9842' >/etc/default/paceline-agent
systemctl restart paceline-agent.service
page() {
	exec {web}<>/dev/tcp/127.0.0.1/9842
	printf 'GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n' >&"$web"
	cat <&"$web"
	exec {web}>&-
}
ended=$(page | sed -n 's/^paceline_agent_jobs_ended_total \([0-9]*\).*/\1/p')
[ "$ended" = 0 ] || fail "an agent that has just started saw $ended jobs end"
[ "$(as_user paceline run --policy lfn -- echo counted)" = counted ]
until [ "$(page | sed -n 's/^paceline_agent_jobs_ended_total \([0-9]*\).*/\1/p')" = 1 ]; do sleep 0.1; done
page | grep -q '^paceline_bursts_total [0-9]' || fail "no bursts in $(page)"
[ "$(stat -c '%a %U' /var/lib/paceline)" = '700 root' ] || fail "$(stat /var/lib/paceline)"
systemctl restart paceline-agent.service
# That of `set`, before two restarts: two connections, and what they sent.
record=$(as_user paceline report "${place##*/}" --json)
[[ $record = *'"governed": 2'* && $record = *'"ended_unix_s"'* ]] || fail "no record: $record"
setpriv --reuid daemon --regid daemon --clear-groups paceline report "${place##*/}" 2>/dev/null &&
	fail "another user reads the record"
rm /etc/default/paceline-agent
systemctl restart paceline-agent.service
echo "ok: metrics by the unit, and records of ended jobs after restarts"

# ---- changes by the administrator
paceline doctor >/run/doctor || fail "doctor: $(cat /run/doctor)"
systemctl stop paceline-agent.socket
[ ! -e /run/paceline/jobs.sock ] || fail "the socket unit leaves its sockets"
systemctl stop paceline-agent.service
systemctl start paceline-agent.service
[ "$(as_user paceline run --policy lfn -- echo fourth)" = fourth ]
systemctl stop paceline-agent.service
[ ! -e /run/paceline ] || fail "the agent leaves $(ls /run/paceline)"
echo "ok: and without the socket unit"
echo "all held"

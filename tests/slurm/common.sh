# SPDX-License-Identifier: Apache-2.0 OR MIT
# Sourced by test.sh and nodes.sh, which run in a mount namespace of their own: a place that goes
# away at the end with all that was started, the unified hierarchy of cgroups, Slurm's keys.
# shellcheck shell=bash

place=$(mktemp --directory /tmp/paceline-slurm.XXXXXX)
chmod 755 "$place"
cp "$PACELINE_SLURM_TEST" "$place/paceline"
# Without a compiler, the test brings a built plugin.
if [ -n "${PACELINE_SLURM_PLUGIN:-}" ]; then
	cp "$PACELINE_SLURM_PLUGIN" "$place/paceline_spank.so"
else
	make --no-print-directory -C packaging/slurm OUT="$place"
fi
paceline=$place/paceline
processes=()
nodes=() # names of Slurm's

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
	[ -z "${lab:-}" ] || "$paceline" lab down "$lab" >/dev/null 2>&1
	for log in "$place"/{slurmd*,slurmctld,agent*}.log; do
		[ "${failed:-1}" = 0 ] || ! [ -e "$log" ] || tail -n "${PACELINE_SLURM_LINES:-5}" "$log" | sed "s/^/$(basename "$log"): /"
	done
	for node in "${nodes[@]}"; do
		find "/sys/fs/cgroup/system.slice/${node}_slurmstepd.scope" -depth -type d -exec rmdir {} + 2>/dev/null
	done
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
	for _ in $(seq "${PACELINE_SLURM_PATIENCE:-600}"); do
		if "$@" >/dev/null 2>&1; then return; fi
		sleep 0.1
	done
	fail "never came: $what"
}

# ---- the unified hierarchy alone, as slurmd wants it
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

start_munge() {
	mkdir "$place"/{state,spool,run}
	head -c 64 /dev/urandom >"$place/munge.key"
	chmod 400 "$place/munge.key"
	munged --foreground --force --key-file="$place/munge.key" --socket="$place/run/munge.sock" \
		--pid-file="$place/run/munged.pid" --log-file="$place/munged.log" --seed-file="$place/run/seed" 2>/dev/null &
	processes+=($!)
	until_true "munged's socket" test -S "$place/run/munge.sock"
}

configure() { # file, controller as NAME(ADDRESS), plugstack.conf; nodes come from the caller
	cat >"$1" <<-CONF
		ClusterName=paceline
		SlurmctldHost=$2
		SlurmUser=root
		AuthType=auth/munge
		AuthInfo=socket=$place/run/munge.sock
		CredType=cred/munge
		PlugStackConfig=$3
		StateSaveLocation=$place/state
		SlurmdSpoolDir=$place/spool/%n
		SlurmctldPidFile=$place/run/slurmctld.pid
		SlurmdPidFile=$place/run/slurmd-%n.pid
		SlurmctldLogFile=$place/slurmctld.log
		SlurmdLogFile=$place/slurmd-%n.log
		ProctrackType=proctrack/cgroup
		TaskPlugin=task/cgroup
		JobAcctGatherType=jobacct_gather/none
		SelectType=select/linear
		MailProg=/bin/true
		KillWait=2
		ReturnToService=2
		SlurmctldPort=16817
		SlurmdPort=16818
	CONF
	printf '%s\n' CgroupPlugin=cgroup/v2 CgroupMountpoint=/sys/fs/cgroup IgnoreSystemd=yes \
		ConstrainCores=no ConstrainRAMSpace=no ConstrainDevices=no >"$place/cgroup.conf"
}

as_user() { setpriv --reuid nobody --regid nogroup --clear-groups -- "$@"; }
jobs() { "$paceline" status --json; }
count() { # how many jobs there are
	jobs | python3 -c 'import json, sys; print(len(json.load(sys.stdin)["jobs"]))'
}
no_jobs() { [ "$(count)" = 0 ]; }
no_slurm_jobs() { [ -z "$(squeue --noheader)" ]; }
no_steps() {
	local node
	for node in "${nodes[@]}"; do
		! ls -d "/sys/fs/cgroup/system.slice/${node}_slurmstepd.scope"/job_* 2>/dev/null || return 1
	done
}
cpu() { awk '{print ($14 + $15) * 10}' "/proc/$1/stat"; } # ms of CPU time; USER_HZ is 100

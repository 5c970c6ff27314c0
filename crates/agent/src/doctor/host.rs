// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks of privileges, cgroups, timers and the host's own settings.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use nix::sched::{unshare, CloneFlags};
use paceline_bpf::refusal;
use paceline_cgroup::Hierarchy;
use paceline_net::tick;

use super::{sysctl, Check};
use crate::error::Result;
use crate::leftovers;
use crate::status::milliseconds;

pub(super) fn privileges(root: bool, agent: bool) -> Check {
    if !root && agent {
        return Check::ok(
            "privileges",
            "no root, but an agent runs jobs for members of its groups",
            "paceline run works for them without root; attach, detach, status and the checks that follow need it",
        );
    }
    if root {
        Check::ok(
            "privileges",
            "CAP_BPF, CAP_NET_ADMIN and CAP_SYS_ADMIN",
            "Paceline can load, attach and find BPF programs",
        )
    } else {
        Check::fail(
            "privileges",
            "CAP_BPF, CAP_NET_ADMIN or CAP_SYS_ADMIN is missing",
            "paceline run, attach and status need root; the job itself does not (paceline run --user NAME)",
            "sudo paceline ...",
        )
    }
}

pub(super) fn checks(root: bool) -> Vec<Check> {
    let mut checks = vec![lockdown(), cgroup(root)];
    checks.extend([timers(), default_congestion(), idle_restart()]);
    checks.extend([
        queueing(root, "fq", "not needed: TCP paces by itself", false),
        queueing(
            root,
            "netem",
            "only for manual link emulation; the lab brings its own",
            true,
        ),
    ]);
    checks
}

fn cgroup(root: bool) -> Check {
    const MEANING: &str =
        "a job's cgroup is a child of the caller's own, so all resource limits still apply";
    let hierarchy = match Hierarchy::find() {
        Ok(hierarchy) => hierarchy,
        Err(error) => {
            return Check::fail(
                "cgroup",
                error.to_string(),
                "Paceline cannot create jobs",
                "mount -t cgroup2 none /sys/fs/cgroup/unified",
            )
        }
    };
    if hierarchy.read_only() {
        return Check::fail(
            "cgroup",
            format!("{} is mounted read-only", hierarchy.mount().display()),
            "Paceline cannot create jobs, as in most containers",
            "run paceline on the host, or start the container with a writable cgroup",
        );
    }
    if !root {
        return Check::unchecked("cgroup", MEANING);
    }
    match try_cgroup(&hierarchy) {
        Ok(own) => Check::ok(
            "cgroup",
            format!("v2 at {}, own cgroup {} is writable", hierarchy.mount().display(), own.display()),
            MEANING,
        ),
        Err(error) => Check::fail(
            "cgroup",
            error.to_string(),
            "Paceline cannot create jobs in the caller's own cgroup",
            "start paceline from a cgroup that allows children (a login session, systemd-run --scope)",
        ),
    }
}

fn try_cgroup(hierarchy: &Hierarchy) -> Result<PathBuf> {
    let _lock = hierarchy.lock()?;
    let own = hierarchy.own()?;
    own.create_job(std::process::id())?.remove()?;
    Ok(own.path().to_path_buf())
}

pub(super) fn leftovers(root: bool) -> Check {
    const MEANING: &str = "the next command removes the leftovers of ended jobs";
    if !root {
        return Check::unchecked("leftovers", MEANING);
    }
    let clean = || -> Result<Vec<PathBuf>> {
        let hierarchy = Hierarchy::find()?;
        let lock = hierarchy.lock()?;
        Ok(leftovers::clean(&hierarchy, &lock)?.directories)
    };
    match clean() {
        Ok(removed) if removed.is_empty() => Check::ok("leftovers", "none", MEANING),
        Ok(removed) => Check::ok("leftovers", format!("removed {}", removed.len()), MEANING),
        Err(error) => Check::warn(
            "leftovers",
            error.to_string(),
            "leftovers of an ended job remain",
            "paceline status lists the running jobs",
        ),
    }
}

/// Lockdown for confidentiality denies BPF to read the kernel's memory.
fn lockdown() -> Check {
    const MEANING: &str = "BPF programs may use the functions that Paceline needs";
    match refusal::lockdown().as_deref() {
        Some("confidentiality") => Check::fail(
            "lockdown",
            format!("{} is set to confidentiality", refusal::LOCKDOWN),
            "BPF programs may not read kernel memory, so the kernel refuses Paceline's",
            "boot with lockdown=integrity, or without lockdown",
        ),
        Some(mode) => Check::ok("lockdown", mode, MEANING),
        None => Check::ok("lockdown", "none, or not readable here", MEANING),
    }
}

fn timers() -> Check {
    let tick = tick::tick();
    let hz = (1.0 / tick.as_secs_f64()).round();
    let minimum = milliseconds(tick::min_rto_us().into());
    let found = format!(
        "tick {} (HZ={hz}), minimum RTO {minimum}",
        milliseconds(tick::tick_us().into())
    );
    if hz >= 250.0 {
        return Check::ok("timers", found, "\"tick\" in a policy refers to this tick");
    }
    Check::warn(
        "timers",
        found,
        "this tick is too long for a short minimum RTO",
        "boot a kernel built with CONFIG_HZ=250 or 1000 for jobs that need it",
    )
}

fn default_congestion() -> Check {
    let default = sysctl("net.ipv4.tcp_congestion_control").unwrap_or_default();
    let available = sysctl("net.ipv4.tcp_available_congestion_control").unwrap_or_default();
    Check::ok(
        "default control",
        format!("{default} (available: {available})"),
        "for information: connections outside jobs keep it",
    )
}

fn idle_restart() -> Check {
    match sysctl("net.ipv4.tcp_slow_start_after_idle").as_deref() {
        Some("0") => Check::ok(
            "idle restart",
            "net.ipv4.tcp_slow_start_after_idle = 0",
            "connections outside jobs send their old cwnd in one burst after idle; a startup law paces it",
        ),
        Some(value) => Check::ok(
            "idle restart",
            format!("net.ipv4.tcp_slow_start_after_idle = {value}"),
            "connections outside jobs slow-start after idle; a startup law does not",
        ),
        None => Check::ok("idle restart", "not readable here", "for information"),
    }
}

/// Tries a queueing discipline in a network namespace of its own.
fn queueing(root: bool, kind: &'static str, meaning: &str, adds_delay: bool) -> Check {
    if !root {
        return Check::unchecked(kind, meaning);
    }
    let mut tc = Command::new("tc");
    tc.args(["qdisc", "add", "dev", "lo", "root", kind]);
    if adds_delay {
        tc.args(["delay", "1ms"]);
    }
    tc.stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // SAFETY: one system call; the namespace goes with the process.
    unsafe {
        tc.pre_exec(|| unshare(CloneFlags::CLONE_NEWNET).map_err(std::io::Error::from));
    }
    let found = match tc.status() {
        Ok(status) if status.success() => "available",
        Ok(_) => "not in this kernel",
        Err(_) => "not checked: no tc command",
    };
    Check::ok(kind, found, meaning)
}

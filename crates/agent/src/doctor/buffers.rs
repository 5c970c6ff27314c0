// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks of socket buffers: the host's limits against a path, and programs
//! that fix theirs.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::{sysctl, Check, PathOptions};

pub(super) fn checks(root: bool, path: PathOptions) -> Vec<Check> {
    let mut checks = vec![
        automatic("receive buffer", "net.ipv4.tcp_rmem", path),
        automatic("send buffer", "net.ipv4.tcp_wmem", path),
        by_hand(path),
    ];
    checks.push(match root {
        true => pinned(&tcp_sockets()),
        false => Check::unchecked("fixed buffers", FIXED),
    });
    checks
}

const FIXED: &str = "a program that sets SO_SNDBUF or SO_RCVBUF disables the kernel's buffer autotuning for that socket; no policy can undo it";

/// Compares the autotuning limit with the BDP of the path.
///
/// Twice the BDP: the kernel counts its own overhead in these sizes, and it
/// announces half of the receive buffer (tcp_adv_win_scale = 1).
fn automatic(name: &'static str, key: &str, path: PathOptions) -> Check {
    let needed = path.bdp_bytes().saturating_mul(2);
    let Some(sizes) = sysctl(key) else {
        return Check::ok(name, format!("cannot read {key} here"), "for information");
    };
    let numbers: Vec<u64> = sizes
        .split_whitespace()
        .filter_map(|number| number.parse().ok())
        .collect();
    let [least, initial, most] = numbers[..] else {
        return Check::ok(name, format!("{key} = {sizes}"), "for information");
    };
    let found = format!(
        "{key} grows to {most} bytes; {} needs {needed}",
        describe(path)
    );
    if most >= needed {
        Check::ok(name, found, "one connection can fill the path")
    } else {
        Check::warn(
            name,
            found,
            "one connection cannot fill the path, whatever the policy; describe your path with --rate and --rtt",
            &format!("sysctl -w {key}=\"{least} {initial} {needed}\""),
        )
    }
}

/// Limits for programs that choose their own sizes.
fn by_hand(path: PathOptions) -> Check {
    let limit = |key: &str| {
        sysctl(key)
            .and_then(|value| value.parse::<u64>().ok())
            .unwrap_or(0)
    };
    let (receive, send) = (limit("net.core.rmem_max"), limit("net.core.wmem_max"));
    let found = format!(
        "rmem_max {receive}, wmem_max {send} bytes; BDP {}",
        path.bdp_bytes()
    );
    if receive.min(send) >= path.bdp_bytes() {
        return Check::ok(
            "buffer limits",
            found,
            "programs that set their own buffers can reach the BDP",
        );
    }
    Check::warn(
        "buffer limits",
        found,
        "a program that sets its own buffers gets less than the BDP; other programs are not affected",
        &format!(
            "leave buffer sizes to the kernel (Open MPI: --mca btl_tcp_sndbuf 0 --mca btl_tcp_rcvbuf 0), or: sysctl -w net.core.rmem_max={0} net.core.wmem_max={0}",
            path.bdp_bytes()
        ),
    )
}

fn describe(path: PathOptions) -> String {
    format!(
        "{} with {} RTT",
        crate::status::rate(path.rate_bits_per_s),
        crate::status::milliseconds(path.rtt.as_micros() as u64)
    )
}

/// A TCP socket of a running process with a buffer fixed by its program.
#[derive(Debug, PartialEq, Eq)]
struct Fixed {
    pid: i32,
    program: String,
    /// SO_SNDBUF in bytes, if fixed.
    send: Option<i32>,
    /// SO_RCVBUF in bytes, if fixed.
    receive: Option<i32>,
}

fn pinned(fixed: &[Fixed]) -> Check {
    if fixed.is_empty() {
        return Check::ok(
            "fixed buffers",
            "no TCP socket of a running program has one",
            FIXED,
        );
    }
    let mut programs: BTreeMap<(&str, i32), (usize, i32, i32)> = BTreeMap::new();
    for socket in fixed {
        let entry = programs.entry((&socket.program, socket.pid)).or_default();
        entry.0 += 1;
        entry.1 = entry.1.max(socket.send.unwrap_or(0));
        entry.2 = entry.2.max(socket.receive.unwrap_or(0));
    }
    const SHOWN: usize = 5;
    let mut list: Vec<String> = programs
        .iter()
        .take(SHOWN)
        .map(|((program, pid), (sockets, send, receive))| {
            let size = |name: &str, bytes: i32| match bytes {
                0 => String::new(),
                bytes => format!(", {name} {bytes}"),
            };
            format!(
                "{program} ({pid}): {sockets} socket{}{}{}",
                if *sockets == 1 { "" } else { "s" },
                size("SO_SNDBUF", *send),
                size("SO_RCVBUF", *receive)
            )
        })
        .collect();
    if programs.len() > SHOWN {
        list.push(format!("and {} more programs", programs.len() - SHOWN));
    }
    Check::warn(
        "fixed buffers",
        list.join("; "),
        FIXED,
        "configure these programs to leave buffer sizes to the kernel (Open MPI: --mca btl_tcp_sndbuf 0 --mca btl_tcp_rcvbuf 0)",
    )
}

/// Asks every TCP socket of every process whether its buffers are fixed
/// (SO_BUF_LOCK, Linux 5.15), through a duplicate of its descriptor. sock_diag
/// lacks it.
fn tcp_sockets() -> Vec<Fixed> {
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let own = std::process::id() as i32;
    let mut fixed = Vec::new();
    for process in processes.flatten() {
        let Some(pid) = process
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        if pid != own {
            // A process that cannot be examined has ended or is protected.
            fixed.extend(sockets_of(pid).unwrap_or_default());
        }
    }
    fixed
}

fn sockets_of(pid: i32) -> std::io::Result<Vec<Fixed>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))?.flatten() {
        let is_socket = fs::read_link(entry.path())
            .is_ok_and(|target| target.to_string_lossy().starts_with("socket:"));
        if is_socket {
            numbers.extend(
                entry
                    .file_name()
                    .to_str()
                    .and_then(|name| name.parse::<i32>().ok()),
            );
        }
    }
    if numbers.is_empty() {
        return Ok(Vec::new());
    }
    let process = descriptor(|| {
        // SAFETY: no pointers are passed.
        unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) }
    })?;
    let program = fs::read_to_string(format!("/proc/{pid}/comm"))?
        .trim_end()
        .to_owned();
    let mut fixed = Vec::new();
    for number in numbers {
        let duplicate = descriptor(|| {
            // SAFETY: no pointers are passed.
            unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), number, 0) }
        });
        let Ok(socket) = duplicate else { continue };
        let option = |name| socket_option(&socket, name).unwrap_or(0);
        if option(libc::SO_PROTOCOL) != libc::IPPROTO_TCP {
            continue;
        }
        let locks = option(SO_BUF_LOCK);
        if locks & (SOCK_SNDBUF_LOCK | SOCK_RCVBUF_LOCK) != 0 {
            fixed.push(Fixed {
                pid,
                program: program.clone(),
                send: (locks & SOCK_SNDBUF_LOCK != 0).then(|| option(libc::SO_SNDBUF)),
                receive: (locks & SOCK_RCVBUF_LOCK != 0).then(|| option(libc::SO_RCVBUF)),
            });
        }
    }
    Ok(fixed)
}

/// asm-generic/socket.h and linux/socket.h.
const SO_BUF_LOCK: libc::c_int = 72;
const SOCK_SNDBUF_LOCK: libc::c_int = 1;
const SOCK_RCVBUF_LOCK: libc::c_int = 2;

fn descriptor(call: impl FnOnce() -> libc::c_long) -> std::io::Result<OwnedFd> {
    let number = call();
    if number < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(number as i32) })
}

fn socket_option(socket: &OwnedFd, name: libc::c_int) -> Option<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: `value` has room for `length` bytes.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            name,
            (&raw mut value).cast(),
            &mut length,
        )
    };
    (result == 0).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fixed_buffer_of_a_socket_shows() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let size: libc::c_int = 100_000;
        // SAFETY: `size` is as long as announced.
        let result = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_SNDBUF,
                (&raw const size).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            )
        };
        assert_eq!(result, 0);
        let own = std::process::id() as i32;
        // pidfd_getfd on oneself is always allowed.
        let found = sockets_of(own).unwrap();
        assert!(
            found
                .iter()
                .any(|fixed| fixed.send.is_some() && fixed.receive.is_none()),
            "{found:?}"
        );
        assert!(pinned(&found).found.contains("SO_SNDBUF"));
    }

    #[test]
    fn no_fixed_buffer_is_well() {
        assert_eq!(pinned(&[]).level, super::super::Level::Ok);
    }
}

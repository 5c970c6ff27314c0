// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What others than the caller can do to a host with Paceline: names, numbers, locks, places.

use std::process::Stdio;

use crate::common::{alone, output, paceline, wait_for};

#[test]
fn a_name_with_escapes_controls_no_terminal() {
    let Some(_alone) = alone() else {
        return;
    };
    let name = "\x1b[2J\u{9b}31m";
    let program =
        format!("import sys; open('/proc/self/comm', 'w').write({name:?}); sys.stdin.read()",);
    let mut job = paceline()
        .args(["run", "--policy", "standard", "--", "python3", "-c"])
        .arg(
            program
                .replace("\\u{1b}", "\\x1b")
                .replace("\\u{9b}", "\\x9b"),
        )
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mine = format!("paceline.{}.", job.id());
    wait_for("the process's name", |status| {
        let jobs = crate::common::jobs(status, &mine);
        let shown = jobs.first().map(|job| job["processes"][0]["name"] == name);
        shown == Some(true)
    });
    for arguments in [&["status"][..], &["status", "--json"]] {
        let shown = String::from_utf8(output(arguments).stdout).unwrap();
        let controls = |c: char| c.is_control() && c != '\n';
        assert!(!shown.contains(controls), "{shown:?}");
    }
    drop(job.stdin.take());
    job.wait().unwrap();
}

/// What a program of a job says by its standard output.
fn stdout_of(arguments: &[&str], program: &str) -> String {
    let output = paceline()
        .args(arguments)
        .args(["--", "python3", "-c", program])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn a_users_command_types_nothing_into_roots_terminal() {
    let Some(_alone) = alone() else {
        return;
    };
    // TIOCSTI, the same with a bit that the kernel does not look at, TIOCLINUX; and an ioctl
    // that is nobody's business. No terminal is there, which the kernel would say.
    let program = "\
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
def error(request):
    libc.ioctl(0, ctypes.c_ulong(request), b'x')
    return errno.errorcode[ctypes.get_errno()]
print(*(error(request) for request in (0x5412, 0x5412 | 1 << 32, 0x541c, 0x5413)))";
    let job = ["run", "--policy", "standard"];
    assert_eq!(stdout_of(&job, program), "ENOTTY ENOTTY ENOTTY ENOTTY");
    let job = ["run", "--policy", "standard", "--user", "nobody"];
    assert_eq!(stdout_of(&job, program), "EPERM EPERM EPERM ENOTTY");
}

#[test]
fn a_page_is_not_had_by_a_number_that_is_used_again() {
    let Some(_alone) = alone() else {
        return;
    };
    // A child connects and ends; another process gets its number; then what the child left
    // asks for the page of whoever connected.
    let program = format!(
        "\
import os, socket, struct
agent = socket.socket(socket.AF_UNIX)
def page():
    agent.sendall(struct.pack('=I', {version}))
    return len(socket.recv_fds(agent, 1, 1)[1])
child = os.fork()
if child == 0:
    agent.connect(os.environ['PACELINE_SOCKET'])
    os._exit(0)
os.waitpid(child, 0)
while True:
    with open('/proc/sys/kernel/ns_last_pid', 'w') as last:
        last.write(str(child - 1))
    read, write = os.pipe()
    other = os.fork()
    if other == 0:
        os.close(write)
        os.read(read, 1)
        os._exit(0)
    if other == child:
        break
    os.close(write)
    os.waitpid(other, 0)
try:
    print(page())
except ConnectionError:
    print(0)
os.close(write)
os.waitpid(other, 0)
agent = socket.socket(socket.AF_UNIX)
agent.connect(os.environ['PACELINE_SOCKET'])
print(page())",
        version = paceline_abi::PL_ABI_VERSION
    );
    // None for another's number; and one for its own.
    assert_eq!(stdout_of(&["run", "--policy", "lfn"], &program), "0\n1");
}

#[test]
fn an_empty_cgroup_that_looks_like_a_jobs_stays() {
    let Some(_alone) = alone() else {
        return;
    };
    let own = crate::common::own_cgroup();
    let number = std::process::id();
    let places: Vec<_> = ["anything", "12.x", "007.1", &format!("{number}.77")]
        .map(|name| own.join(format!("paceline.{name}")))
        .to_vec();
    for place in &places {
        std::fs::create_dir(place).unwrap();
    }
    assert!(output(&["status"]).status.success());
    for place in &places {
        assert!(place.exists(), "{}", place.display());
        std::fs::remove_dir(place).unwrap();
    }
}

#[test]
fn a_strangers_socket_by_the_name_of_a_lab_is_no_lab() {
    let Some(_alone) = alone() else {
        return;
    };
    let name = format!("stranger-{}", std::process::id());
    // It takes no calls, either.
    let program = format!(
        "\
import os, socket, sys
os.setuid(65534)
listener, caller = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
listener.bind('\\0paceline-lab.{name}')
listener.listen(0)
caller.connect('\\0paceline-lab.{name}')
print('up', flush=True)
sys.stdin.read()"
    );
    let mut stranger = std::process::Command::new("python3")
        .args(["-c", &program])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut up = [0; 3];
    std::io::Read::read_exact(stranger.stdout.as_mut().unwrap(), &mut up).unwrap();
    let list = output(&["lab", "list", "--json"]);
    drop(stranger.stdin.take());
    stranger.wait().unwrap();
    assert!(list.status.success(), "{list:?}");
    let shown = String::from_utf8_lossy(&list.stdout).into_owned();
    assert!(!shown.contains(&name), "{shown}");
}

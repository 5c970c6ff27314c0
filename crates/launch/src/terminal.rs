// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A command that root starts as another user shares root's terminal, and must not type there.
//!
//! TIOCSTI puts characters into a terminal's input as if they were typed: root's shell reads
//! them when the command is over. TIOCLINUX can paste a selection on the console to the same
//! end. Before Linux 6.2, and where `dev.tty.legacy_tiocsti` is 1 since, any process may do so
//! on its own terminal. A seccomp filter refuses both to the command and all that it starts. It
//! is transparent: a terminal of the command's own would stand between it and the user, and a
//! session of its own would take away Ctrl-C and the prompts of ssh.
//!
//! The filter is written out here, because the crate `seccompiler` ends a process of another
//! architecture: a 32-bit program on a 64-bit kernel.

use std::io;

use libc::{sock_filter, sock_fprog};

/// `struct seccomp_data`: the system call's number, the architecture, and the low half of its
/// second argument. The kernel looks at no more of an ioctl's request than that, and a filter
/// that compared all 64 bits would be passed by setting one above (CVE-2017-5226 and its kind).
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const REQUEST: u32 = 24;

/// AUDIT_ARCH_* of linux/audit.h, and ioctl's numbers there.
#[cfg(target_arch = "x86_64")]
const IOCTLS: [(u32, u32); 3] = [
    (0xc000_003e, 16),
    // The x32 calls of the same architecture.
    (0xc000_003e, 0x4000_0000 | 514),
    (0x4000_0003, 54), // i386
];
#[cfg(target_arch = "aarch64")]
const IOCTLS: [(u32, u32); 2] = [
    (0xc000_00b7, 29),
    (0x4000_0028, 54), // arm
];

const TIOCSTI: u32 = 0x5412;
const TIOCLINUX: u32 = 0x541c;

/// The filter of refused calls, ready to be installed between fork and exec.
#[derive(Debug)]
pub struct Filter(Vec<sock_filter>);

impl Default for Filter {
    fn default() -> Self {
        Self::new()
    }
}

impl Filter {
    pub fn new() -> Self {
        let mut program = Vec::new();
        for (architecture, ioctl) in IOCTLS {
            // Each block of eight: the next one begins where one of its questions is denied.
            program.extend([
                load(ARCHITECTURE),
                unless(architecture, 6),
                load(NUMBER),
                unless(ioctl, 4),
                load(REQUEST),
                // To the refusal: over the next question.
                step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, TIOCSTI, 1, 0),
                unless(TIOCLINUX, 1),
                answer(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
            ]);
        }
        program.push(answer(libc::SECCOMP_RET_ALLOW));
        Self(program)
    }

    /// For the calling thread and all that it starts. Takes CAP_SYS_ADMIN, and no
    /// `no_new_privs`, under which the command could not use sudo.
    pub fn apply(&self) -> io::Result<()> {
        let program = sock_fprog {
            len: self.0.len() as libc::c_ushort,
            filter: self.0.as_ptr().cast_mut(),
        };
        // SAFETY: the kernel copies the program, which is whole.
        let result = unsafe {
            libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::c_ulong::from(libc::SECCOMP_MODE_FILTER),
                &raw const program,
            )
        };
        match result {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

fn step(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    let code = code as u16;
    sock_filter { code, jt, jf, k }
}

fn load(offset: u32) -> sock_filter {
    step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset, 0, 0)
}

/// Goes over the next `steps` unless the value is `k`.
fn unless(k: u32, steps: u8) -> sock_filter {
    step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, k, 0, steps)
}

fn answer(what: u32) -> sock_filter {
    step(libc::BPF_RET | libc::BPF_K, what, 0, 0)
}

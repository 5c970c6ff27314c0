// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why a kernel with all needed features refuses Paceline.

use std::error::Error;
use std::fs;

/// Lockdown mode of the kernel; `none` without lockdown.
pub const LOCKDOWN: &str = "/sys/kernel/security/lockdown";

/// The active mode, if the kernel has lockdown: `none [integrity] confidentiality`.
pub fn lockdown() -> Option<String> {
    active(&fs::read_to_string(LOCKDOWN).ok()?)
}

fn active(modes: &str) -> Option<String> {
    let mode = modes.split_whitespace().find_map(|mode| {
        let mode = mode.strip_prefix('[')?;
        mode.strip_suffix(']')
    })?;
    Some(mode.to_owned())
}

/// Advice on a refusal of bpf(2), after its error's own text; empty where that is
/// enough.
pub fn hint(error: &libbpf_rs::Error) -> &'static str {
    hint_for(number(error), lockdown().as_deref())
}

fn hint_for(number: Option<i32>, lockdown: Option<&str>) -> &'static str {
    match number {
        Some(libc::EMFILE | libc::ENFILE) => {
            " (raise the limit of open files: ulimit -n, or LimitNOFILE in a unit)"
        }
        // BPF may not read the kernel's memory then, which the programs do.
        _ if lockdown == Some("confidentiality") => {
            " (this kernel is locked down for confidentiality, which denies BPF what Paceline needs: boot it with lockdown=integrity or without)"
        }
        Some(libc::EPERM) => {
            " (bpf() is denied: the seccomp filter of a container or unit, or a capability is missing; run Paceline on the host)"
        }
        Some(libc::ENOMEM) => " (the kernel has no memory for it, or ulimit -l is too low)",
        _ => "",
    }
}

/// The system's number of an error. libbpf-rs has it in the words of the innermost cause
/// alone: `Too many open files (os error 24)`.
fn number(error: &libbpf_rs::Error) -> Option<i32> {
    let mut innermost: &(dyn Error + 'static) = error;
    while let Some(cause) = innermost.source() {
        innermost = cause;
    }
    let words = innermost.to_string();
    let (_, after) = words.rsplit_once("(os error ")?;
    after.strip_suffix(')')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_has_its_own_advice() {
        let of = |number| libbpf_rs::Error::from_raw_os_error(number);
        assert_eq!(number(&of(libc::EMFILE)), Some(libc::EMFILE));
        let wrapped = libbpf_rs::ErrorExt::context(of(libc::EPERM), "cannot load");
        assert_eq!(number(&wrapped), Some(libc::EPERM));
        for (number, lockdown, words) in [
            (libc::EMFILE, None, "ulimit -n"),
            (libc::EMFILE, Some("confidentiality"), "ulimit -n"),
            (libc::EPERM, Some("none"), "seccomp"),
            (libc::EPERM, Some("confidentiality"), "locked down"),
            (libc::EINVAL, Some("confidentiality"), "locked down"),
            (libc::ENOMEM, None, "memory"),
        ] {
            let hint = hint_for(Some(number), lockdown);
            assert!(hint.contains(words), "{number} {lockdown:?}: {hint}");
        }
        assert_eq!(hint_for(Some(libc::EINVAL), Some("integrity")), "");
    }

    #[test]
    fn the_mode_in_force_is_the_one_in_brackets() {
        let modes = "none [integrity] confidentiality\n";
        assert_eq!(active(modes).as_deref(), Some("integrity"));
        assert_eq!(active(""), None);
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether this process may load BPF programs and walk the kernel's objects.

/// Neither root nor the capabilities that loading BPF takes.
#[derive(Debug, thiserror::Error)]
#[error(
    "{action} needs root, or CAP_BPF, CAP_NET_ADMIN and CAP_SYS_ADMIN together: sudo paceline ..."
)]
pub struct NotPermitted {
    /// The command.
    pub action: &'static str,
}

/// Fails where the caller cannot load BPF and walk its objects. `action` is the command
/// that needs it, for the message.
///
/// # Errors
/// [`NotPermitted`].
pub fn require(action: &'static str) -> Result<(), NotPermitted> {
    if capable() {
        Ok(())
    } else {
        Err(NotPermitted { action })
    }
}

/// Whether CAP_NET_ADMIN (12), CAP_SYS_ADMIN (21) and CAP_BPF (39) are effective.
pub fn capable() -> bool {
    const NEEDED: u64 = 1 << 12 | 1 << 21 | 1 << 39;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|set| u64::from_str_radix(set.trim(), 16).ok())
        .is_some_and(|set| set & NEEDED == NEEDED)
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Time in a guest that executes more than an instruction per nanosecond.
//!
//! The kernel measured the local APIC's timer against clocks that QEMU keeps and that
//! are not slowed down. A larger divisor of its input slows it down by the factor of the
//! TSC frequency that the kernel got. Without this each timer would fire too early,
//! several times.

use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;

use nix::sys::mman::{mmap, munmap, MapFlags, ProtFlags};

/// Environment variable of the first process: the guest is 2 to this power times faster.
pub const FASTER: &str = "PACELINE_FASTER";
/// Where the local APIC is, as the architecture has it unless it is moved.
const APIC_BASE: i64 = 0xfee0_0000;
const APIC_BYTES: NonZeroUsize = NonZeroUsize::new(4096).expect("not zero");
/// Its Divide Configuration Register, for the timer.
const DIVIDE_CONFIGURATION: usize = 0x3e0;
/// Its values to divide by 16, as Linux has it, by 32, by 64 and by 128.
const DIVIDE_BY_16: [u32; 4] = [0b0011, 0b1000, 0b1001, 0b1010];

/// Slows the timer down by the factor in the environment, if there is one.
pub fn slow_down() -> io::Result<()> {
    let Some(faster) = std::env::var_os(FASTER) else {
        return Ok(());
    };
    let divide = faster
        .to_str()
        .and_then(|faster| DIVIDE_BY_16.get(faster.parse::<usize>().ok()?))
        .ok_or(io::ErrorKind::InvalidInput)?;
    let memory = File::options().read(true).write(true).open("/dev/mem")?;
    let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: a new mapping, of a device's page, at an address of the kernel's choice.
    let page = unsafe {
        mmap(
            None,
            APIC_BYTES,
            access,
            MapFlags::MAP_SHARED,
            memory.as_fd(),
            APIC_BASE,
        )
    }?;
    // SAFETY: inside the mapping, and aligned; device registers are accessed as volatile.
    let was = unsafe {
        let register = page.byte_add(DIVIDE_CONFIGURATION).cast::<u32>().as_ptr();
        let was = register.read_volatile();
        register.write_volatile(*divide);
        was
    };
    // SAFETY: the mapping of above, and no pointer into it is left.
    unsafe { munmap(page, APIC_BYTES.get()) }?;
    if was != DIVIDE_BY_16[0] {
        return Err(io::Error::other(format!(
            "its timer divides by {was:#06b}, not by 16"
        )));
    }
    Ok(())
}

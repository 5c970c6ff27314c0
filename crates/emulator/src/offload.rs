// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disables the offloads of an interface.

use std::io;
use std::os::fd::AsRawFd;

use crate::EmulatorError;

/// `struct ethtool_value` of linux/ethtool.h.
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

/// `SIOCETHTOOL` and the commands of linux/ethtool.h.
const SIOCETHTOOL: libc::Ioctl = 0x8946;
const ETHTOOL_STXCSUM: u32 = 0x17;
const ETHTOOL_STSO: u32 = 0x1f;
const ETHTOOL_SGSO: u32 = 0x24;

/// Makes `interface`, in the calling thread's network namespace, segment and
/// checksum its packets itself, so that a link behind it sees the frames of a
/// wire. The far end of a [`crate::Port`]'s cable needs this.
/// Needs CAP_NET_ADMIN.
pub fn disable_offloads(interface: &str) -> Result<(), EmulatorError> {
    switch_off(interface).map_err(|source| EmulatorError::Port {
        interface: interface.to_owned(),
        step: "switch off the offloads of",
        source,
    })
}

fn switch_off(interface: &str) -> io::Result<()> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
    for command in [ETHTOOL_STSO, ETHTOOL_SGSO, ETHTOOL_STXCSUM] {
        let mut value = EthtoolValue { command, data: 0 };
        // SAFETY: ifreq is plain data; the name is copied with its NUL left
        // in place, and the pointer is to a live value of the right layout.
        unsafe {
            let mut request: libc::ifreq = std::mem::zeroed();
            if interface.len() >= request.ifr_name.len() {
                return Err(io::Error::from_raw_os_error(libc::ENODEV));
            }
            for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
                *to = from as libc::c_char;
            }
            request.ifr_ifru.ifru_data = std::ptr::from_mut(&mut value).cast();
            if libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &request) != 0 {
                return Err(io::Error::last_os_error());
            }
        }
    }
    Ok(())
}

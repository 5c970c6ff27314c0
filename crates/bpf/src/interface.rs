// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A network interface, as the calling thread's network namespace has it.

use std::ffi::CString;
use std::io;
use std::os::fd::AsRawFd;

use nix::sys::socket::{socket, AddressFamily, SockFlag, SockType};

/// Why there is no such interface.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No such interface in this network namespace.
    #[error("there is no interface {name} in this network namespace (ip link lists them)")]
    None {
        /// As given.
        name: String,
    },

    /// A system call failed.
    #[error("cannot read {name}'s type: {source}")]
    System {
        /// Of the interface.
        name: String,
        /// The system's error.
        source: io::Error,
    },
}

/// include/uapi/linux/if_arp.h: these have an Ethernet header, loopback too.
const ETHERNET: [u16; 2] = [1, 772];
/// And these none at all: tunnels of IP, WireGuard, tun.
const BARE_IP: [u16; 5] = [0xfffe, 519, 768, 769, 776];

/// The first header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// An Ethernet header.
    Ethernet,
    /// That of IP.
    Ip,
}

/// An interface that was there when it was looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    name: String,
    index: u32,
    hardware_type: u16,
}

impl Interface {
    /// Looks it up in the calling thread's network namespace.
    ///
    /// # Errors
    /// [`Error::None`].
    pub fn find(name: &str) -> Result<Self, Error> {
        let none = || Error::None {
            name: name.to_owned(),
        };
        let c_name = CString::new(name).map_err(|_| none())?;
        if name.is_empty() || name.len() >= libc::IFNAMSIZ {
            return Err(none());
        }
        // SAFETY: the name ends with NUL.
        let index = unsafe { libc::if_nametoindex(c_name.as_ptr()) };
        if index == 0 {
            return Err(none());
        }
        Ok(Interface {
            name: name.to_owned(),
            index,
            hardware_type: hardware_type(name).map_err(|source| Error::System {
                name: name.to_owned(),
                source,
            })?,
        })
    }

    /// As given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The kernel's number of it, in its network namespace.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// ARPHRD_* of include/uapi/linux/if_arp.h.
    pub fn hardware_type(&self) -> u16 {
        self.hardware_type
    }

    /// None for other hardware types.
    pub fn link(&self) -> Option<Link> {
        if ETHERNET.contains(&self.hardware_type) {
            Some(Link::Ethernet)
        } else if BARE_IP.contains(&self.hardware_type) {
            Some(Link::Ip)
        } else {
            None
        }
    }
}

fn hardware_type(name: &str) -> io::Result<u16> {
    let socket = socket(
        AddressFamily::Inet,
        SockType::Datagram,
        SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    // SAFETY: ifreq is plain data, for which zero is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.as_bytes()) {
        *to = *from as libc::c_char;
    }
    // SAFETY: the request lives across the call, which fills in the address.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFHWADDR, &raw mut request) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: SIOCGIFHWADDR succeeded, so this member is the one that is set.
    Ok(unsafe { request.ifr_ifru.ifru_hwaddr.sa_family })
}

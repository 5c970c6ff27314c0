// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `bpf/burst.h` in Rust. Both sides check the sizes.

/// No filter on this number or protocol.
pub const ANY: u16 = 0xffff;
/// Any VLAN tag.
pub const TAGGED: u16 = 0xfffe;

/// `struct pl_burst_slot`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Slot {
    pub window: u64,
    pub packets: u64,
    pub bytes: u64,
    pub start_ns: u64,
}

/// `struct pl_burst_address`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Address {
    /// Network order; IPv4 in the first four; already under the mask.
    pub bits: [[u8; 4]; 4],
    pub mask: [[u8; 4]; 4],
    /// 4, 6, or 0: no filter.
    pub family: u32,
}

/// `struct pl_burst_ports`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ports {
    pub least: u16,
    pub most: u16,
    pub asked: u16,
    pub reserved: u16,
}

/// `struct pl_burst_filter`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Filter {
    pub either: Address,
    pub source: Address,
    pub destination: Address,
    pub either_port: Ports,
    pub source_port: Ports,
    pub destination_port: Ports,
    pub vlan: u16,
    pub protocol: u16,
    pub family: u16,
    pub active: u16,
}

/// `struct pl_burst_config`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Config {
    pub origin_ns: u64,
    pub window_ns: u64,
    pub slots: u32,
    pub whole_packets: u32,
    pub ethernet: u32,
    pub reserved: u32,
    pub filter: Filter,
    pub padding: u32,
}

const _: () = assert!(size_of::<Slot>() == 32);
const _: () = assert!(size_of::<Filter>() == 140);
const _: () = assert!(size_of::<Config>() == 176);

impl Default for Filter {
    /// Every packet.
    fn default() -> Self {
        Filter {
            either: Address::default(),
            source: Address::default(),
            destination: Address::default(),
            either_port: Ports::default(),
            source_port: Ports::default(),
            destination_port: Ports::default(),
            vlan: ANY,
            protocol: ANY,
            family: 0,
            active: 0,
        }
    }
}

impl Config {
    /// As the programs read it.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: every byte belongs to a field, `padding` included.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), size_of::<Config>()) }
    }
}

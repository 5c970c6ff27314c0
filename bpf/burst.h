/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The layout that `paceline burst` and its programs share. It is no part of
 * paceline_abi.h: these programs live and end with one command, so no other
 * build ever meets them. crates/burst/src/layout.rs has the same in Rust,
 * and both sides check the sizes.
 */
#ifndef PACELINE_BURST_H
#define PACELINE_BURST_H

#define PL_BURST_ANY 0xffff /* a field of the filter that is not asked for */
#define PL_BURST_TAGGED 0xfffe /* vlan: any tag */

/* One window of one CPU. The row of a CPU is a ring: a slot is used again after
 * `slots` windows, and `window` is the one that it counts. Behind the row is one
 * more, in which the programs keep the CPU's latest window. */
struct pl_burst_slot {
	__u64 window; /* since the origin */
	__u64 packets;
	__u64 bytes;
	__u64 start_ns; /* CLOCK_MONOTONIC; of the one behind the row only */
};

struct pl_burst_address {
	__u32 bits[4]; /* network order; IPv4 in the first; already under the mask */
	__u32 mask[4];
	__u32 family; /* 4, 6, or 0: not asked for */
};

struct pl_burst_ports {
	__u16 least, most; /* host order */
	__u16 asked;
	__u16 reserved;
};

/* All of it must hold. */
struct pl_burst_filter {
	struct pl_burst_address either, source, destination;
	struct pl_burst_ports either_port, source_port, destination_port;
	__u16 vlan; /* the outermost tag's number, PL_BURST_TAGGED or PL_BURST_ANY */
	__u16 protocol; /* of IP, or PL_BURST_ANY */
	__u16 family; /* 4, 6, or 0: not asked for */
	__u16 active; /* anything is asked for */
};

struct pl_burst_config {
	__u64 origin_ns; /* CLOCK_MONOTONIC: window 0 begins here */
	__u64 window_ns;
	__u32 slots; /* of a CPU; a power of two */
	__u32 whole_packets; /* 1: a GSO packet is one packet, not its segments */
	__u32 ethernet; /* 1: frames begin with an Ethernet header, 0: with IP */
	__u32 reserved;
	struct pl_burst_filter filter;
};

_Static_assert(sizeof(struct pl_burst_slot) == 32, "as layout.rs has it");
_Static_assert(sizeof(struct pl_burst_filter) == 140, "as layout.rs has it");
_Static_assert(sizeof(struct pl_burst_config) == 176, "as layout.rs has it");

#endif

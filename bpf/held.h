/* SPDX-License-Identifier: GPL-2.0 */
/* State of a connection that holds some of its ACKs back (held.bpf.c). */
#ifndef PACELINE_HELD_H
#define PACELINE_HELD_H

#include "maps.h"

struct pl_held {
	/* Received segments; sequence numbers of the peer's data. */
	u64 arrived_ns; /* the last data; CLOCK_MONOTONIC */
	u32 high; /* the end of the data that arrived */
	u32 pushed; /* the end of the last message that ended (PSH) */
	u32 in_order; /* segments that arrived in order, since the last that did not */
	u32 segs_in; /* of the socket, at the last segment */
	u32 known; /* 1: `high` is */
	/* Sent segments. */
	u32 acked; /* by the last ACK that passed */
	u32 seen; /* by the last ACK, held back or not */
	u32 segs_out; /* of the socket, at the last segment */
	u64 held; /* ACKs that were held back */
	u64 verdict; /* on the last segment that left */
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct pl_held);
} pl_held_acks SEC(".maps");

#endif

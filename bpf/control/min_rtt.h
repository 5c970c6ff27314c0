/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT */
/* A path's minimum RTT, and which RTT samples count for it. */
#ifndef PACELINE_MIN_RTT_H
#define PACELINE_MIN_RTT_H

#include "path.h"

#define PL_MIN_RTT_AGE_US (300 * PL_USEC_PER_SEC) /* as net.ipv4.tcp_min_rtt_wlen: routes change */
#define PL_TIMESTAMP_US 1000 /* a tick of TCP's timestamps (TCP_TS_HZ in tcp.h) */

/*
 * An RTT sample that the law may use; 0: none. The RTT of a retransmitted segment comes from TCP's
 * timestamps, in whole ticks (tcp_rtt_tsopt_us in tcp_input.c): on a path of 1.5 ms it is 1 or 2 ms,
 * and must not become a minimum RTT. One in a thousand of the other RTTs is a whole tick, too. Above
 * the burst's minimum `least` a sample in ticks measures the queue: in incast most samples are such.
 */
static __always_inline __u32 pl_exact_rtt(__u32 rtt_us, __u32 least)
{
	return rtt_us % PL_TIMESTAMP_US || (least && rtt_us > least) ? rtt_us : 0;
}

/*
 * The path's minimum RTT, of all connections. Its date is that of the last sample within 1/32 of it:
 * the kernel's value is a minimum over 300 s and has no date.
 */
static __always_inline void pl_see_rtt(struct pl_path *path, __u32 rtt_us, __u64 now_us)
{
	__u32 least = path->min_rtt_us;

	if (!rtt_us)
		return;
	if (!least || rtt_us < least || now_us - path->min_rtt_at_us > PL_MIN_RTT_AGE_US)
		path->min_rtt_us = rtt_us;
	else if (rtt_us > least + least / PL_MIN_RTT_NEAR)
		return;
	path->min_rtt_at_us = now_us;
}

/* The RTT of a new connection's handshake, and on a new path any RTT. */
static __always_inline void pl_see_first_rtt(struct pl_path *path, const struct pl_tcp *tcp)
{
	if (!path->min_rtt_us || !tcp->sent_segs)
		pl_see_rtt(path, tcp->min_rtt_us, tcp->now_us);
}

#endif

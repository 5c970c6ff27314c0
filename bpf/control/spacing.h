/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT */
/*
 * Spacing of packets: TRC-TCP, kamezawa-2004, 4.
 *
 * A window that leaves at the interface's rate builds queues that a window spread over its
 * round trip does not. Two means, each by itself or together:
 *
 * - Clustered packet spacing (4.2): in slow start one window is spread over one round trip,
 *   at the rate that the next round trip's window needs, cwnd(n+1)/RTT. When slow start is
 *   over the pacing ends, and the ACKs keep the packets apart. The paper sends them by a
 *   timer of its own; here the kernel's pacing does.
 * - An inter-packet gap (4.1): so many bytes more between packets than the interface leaves,
 *   8 to 1023 with the paper's. That is a rate: line rate * MTU / (MTU + gap). The paper has
 *   the interface insert it, between all packets of all connections and always. Here it is
 *   a bound of each connection's pace: connections side by side can exceed it together, and
 *   connections outside of the job are not touched. And with segmentation offload the
 *   kernel keeps packets of up to a millisecond's worth apart, not each frame.
 */
#ifndef PACELINE_SPACING_H
#define PACELINE_SPACING_H

#include "path.h"

#define PL_FRAME_BYTES 90 /* of a segment's frame beside its payload: IPv4, TCP with timestamps, Ethernet and its usual gap */

/* The pacing rate that a gap leaves, of payload; 0: no gap in the policy. */
static __always_inline __u64 pl_gap_rate(const struct pl_policy *policy, __u32 mss)
{
	if (!policy->line_rate_bps || !policy->gap_bytes)
		return 0;
	return policy->line_rate_bps * mss / (mss + PL_FRAME_BYTES + policy->gap_bytes);
}

/* Pacing rate of the next packet; 0: none. `started`: the start-up law paces a start. */
static __always_inline __u64 pl_spacing_rate(const struct pl_policy *policy, const struct pl_tcp *tcp, int started)
{
	__u64 gap = pl_gap_rate(policy, tcp->mss), rate = 0;
	__u32 next;

	if (policy->clustered && !started && tcp->cwnd < tcp->ssthresh) {
		next = tcp->ssthresh / 2 < tcp->cwnd ? tcp->ssthresh : 2 * tcp->cwnd;
		rate = pl_rate(next, tcp->mss, tcp->srtt_us);
	}
	return gap && (!rate || gap < rate) ? gap : rate;
}

#endif

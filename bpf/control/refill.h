/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT */
/*
 * A window that has emptied within a burst, because the application had nothing to send for a part of a round
 * trip: rings of all-reduce, pipelined requests, streams. No ACK is left to clock the next write, and a
 * whole window of it would leave at the rate of the host's interface. Until its own ACKs come, a round trip
 * later, it is paced at the path's rate. RFC 7661 (4.4.1) recommends such pacing, and BBR always paces.
 *
 * Its condition is tp->app_limited, not the room in the window alone: one ACK for many segments, as GRO makes
 * them in a transfer, has the same effect and needs no pacing, because the ACK clock goes on around it.
 */
#ifndef PACELINE_REFILL_H
#define PACELINE_REFILL_H

#include "begin.h"
#include "learning.h"
#include "path.h"

/* Whether more than an initial window, which any TCP may send at once, may leave now; or it is leaving. */
static __always_inline int pl_wants_refill(const struct pl_start *s, int app_limited, __u32 cwnd, __u32 in_flight,
					   __u32 unsent, __u32 mss)
{
	return s->refilling ||
	       (s->state >= PL_START_MEASURED && app_limited && in_flight + PL_LEAD_SEGS < cwnd && unsent > mss);
}

/*
 * The pacing rate into such a window; 0: none. A path that the initial window fills needs no
 * pacing; beside the standing queue of other flows it would get too little (pl_pace_window); and in a queue
 * shorter than a paced packet of TSO the unpaced ones are shorter.
 */
static __always_inline __u64 pl_refill_rate(const struct pl_start *s, const struct pl_path *path,
					    const struct pl_policy *policy, const struct pl_tcp *tcp)
{
	__u64 rate = s->learning ? pl_learned(path) : path->rate_bps;

	if (policy->target != PL_TARGET_DELIVERY_RATE || policy->base == PL_BASE_BBR || tcp->recovering)
		return 0;
	if (path->lead_rtt_us > 2 * path->min_rtt_us || (s->packet_segs && pl_device_packet(path, tcp) > path->room_segs))
		return 0;
	if (pl_bdp_segs(rate, path->min_rtt_us, tcp->mss) <= PL_LEAD_SEGS)
		return 0;
	return pl_spread(path, rate, tcp->mss);
}

/* A transmission into a window that has emptied, or is being filled again. */
static __always_inline void pl_refill(struct pl_start *s, const struct pl_path *path, const struct pl_policy *policy,
				      const struct pl_tcp *tcp, struct pl_orders *orders)
{
	__u64 rate = pl_refill_rate(s, path, policy, tcp);

	if (!rate)
		return;
	/* The ACKs of a start's train come first: they end where the start did (paced_end). */
	if (!s->refilling && s->state == PL_START_BASE)
		s->paced_end = tcp->nxt;
	s->refilling = 1;
	s->pacing = 1;
	s->waited = 1;
	/* It joins the path, if at all, with an ACK (pl_keep_share). */
	orders->pacing_bps = rate / (path->active + !pl_on_path(s, path));
}

/* Whether an ACK of a paced segment has come: ACKs are the clock again. */
static __always_inline int pl_is_refilled(const struct pl_start *s, const struct pl_tcp *tcp)
{
	return s->refilling && (__s32)(tcp->una - s->paced_end) > 0;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT */
/*
 * Incast: messages that the initial window holds, on a path that the window fills. Many
 * hosts that send one at once overflow a queue. None of their windows is to blame, and what is
 * lost is most often a message's end, of which only a timeout tells. But a queue takes what
 * comes while it drains: spread over the time that all messages take together, nothing is
 * lost, and the last one arrives no later. No host knows that time. Where a message lost, the
 * next ones are spread over longer, by what its end has waited; where none does, over
 * a little less each time.
 */
#ifndef PACELINE_INCAST_H
#define PACELINE_INCAST_H

#include "path.h"

#define PL_SPREAD_DECAY 64 /* a message without a loss makes the time shorter by a part of so many; */
#define PL_SPREAD_HELD 1024 /* of so many where its end met a queue: there it is hardly too long */
#define PL_SPREAD_QUEUE 16 /* what waits for less than this part of the time is no queue */
#define PL_SPREAD_RTT_US 1000 /* of a local network: over a longer path they take less than a round trip */
#define PL_SPREAD_FIRST 8 /* round trips at most at first; then the time doubles at most: ACKs may be delayed */
#define PL_SPREAD_MAX_US 32000 /* what crowded times may cost the first message of quiet ones */
#define PL_SPREAD_OVER 2 /* times as long as the time, and who still has something to send waited for a timeout */

/* Nothing is in flight: what the last message said. */
static __always_inline void pl_incast_learn(const struct pl_start *s, struct pl_path *path, const struct pl_tcp *tcp)
{
	__u32 lost = tcp->retransmitted_segs - s->retransmitted0;
	__u32 sent = tcp->sent_segs - s->sent0 - lost;
	__u32 spread = path->spread_us;
	__u32 most = spread ? spread : PL_SPREAD_FIRST * path->min_rtt_us;
	__u32 part;

	if (!sent || sent > PL_LEAD_SEGS || path->min_rtt_us > PL_SPREAD_RTT_US)
		return;
	if (!lost) {
		part = s->waited_us < spread / PL_SPREAD_QUEUE ? PL_SPREAD_DECAY : PL_SPREAD_HELD;
		path->spread_us -= spread ? spread / part + 1 : 0;
		return;
	}
	/* Its end met a queue: it came too early by as much as it waited there. */
	spread += most < s->waited_us ? most : s->waited_us;
	path->spread_us = spread < PL_SPREAD_MAX_US ? spread : PL_SPREAD_MAX_US;
}

/*
 * A connection's first message that is longer than these few segments: no more are in
 * flight at first than the kernel takes for a thin stream (tcp_stream_is_thin), whose
 * timeouts do not double. Many that begin at once lose most of what they send, again and
 * again, and one whose timeouts double is soon the last. On a local network that costs two of
 * its round trips, once.
 */
static __always_inline void pl_incast_first(struct pl_start *s, const struct pl_path *path,
					    const struct pl_policy *policy, const struct pl_tcp *tcp,
					    struct pl_orders *orders)
{
	if (s->met || tcp->unsent <= PL_THIN_SEGS * tcp->mss)
		return;
	s->met = 1;
	if (policy->rto_linear && path->min_rtt_us && path->min_rtt_us <= PL_SPREAD_RTT_US &&
	    tcp->ssthresh >= PL_NO_SSTHRESH && tcp->cwnd > PL_THIN_SEGS) {
		orders->cwnd = PL_THIN_SEGS;
		s->turn_first = 1; /* turns.h has the last word */
	}
}

/* A message begins: whether it is spread. */
static __always_inline int pl_incast_begin(struct pl_start *s, const struct pl_path *path, const struct pl_policy *policy,
					   const struct pl_tcp *tcp, __u64 quiet_us)
{
	__u64 spread_us = pl_aged(path->spread_us, quiet_us, policy);
	__u32 segs = (tcp->unsent + tcp->mss - 1) / tcp->mss;

	if (!spread_us || segs < 2 || segs > PL_LEAD_SEGS)
		return 0;
	/* It would take the pace for the path's. */
	if (policy->base == PL_BASE_BBR)
		return 0;
	s->spread_segs = segs;
	s->spread_until_us = tcp->now_us + PL_SPREAD_OVER * spread_us;
	s->base_cwnd = tcp->cwnd;
	s->rate_bps = pl_rate(segs, tcp->mss, spread_us);
	s->state = PL_START_PACED;
	s->pacing = 1;
	return 1;
}

/*
 * The next segment of such a message. The window ends after it, or the stack would send
 * all as one packet where the round trip is short (tcp_tso_autosize); of more in flight it is
 * as much larger as the stack needs to not hold the segment back (tcp_tso_should_defer).
 * A loss does not hold the pace up: what is sent meanwhile tells at once whether the
 * repair was lost too, for which a timeout would be waited otherwise. So what is not
 * acknowledged counts, and not what is in flight: 8 KB from 64 hosts into 128 KiB took
 * 23.9 ms with that, and take 22.9.
 */
static __always_inline void pl_incast_send(const struct pl_start *s, const struct pl_tcp *tcp,
					   struct pl_orders *orders)
{
	__u32 window = tcp->packets_out + 1 + tcp->packets_out / 3;
	__u32 phase = (tcp->una * PL_GOLDEN_RATIO >> 24) + 1;

	orders->pacing_bps = s->rate_bps;
	/* Hosts that start together must not go on in step: the first gap is random, up to two. */
	if (tcp->sent_segs == s->sent0)
		orders->pacing_bps = s->rate_bps * 128 / phase;
	orders->cwnd = window < s->base_cwnd ? window : s->base_cwnd;
}

/* All of it has left: the window is the base's again, and has grown where nothing was lost. */
static __always_inline void pl_incast_end(struct pl_start *s, const struct pl_tcp *tcp, struct pl_orders *orders)
{
	int grown = tcp->retransmitted_segs == s->retransmitted0 && s->base_cwnd < PL_LEAD_SEGS;

	if (!tcp->recovering)
		orders->cwnd = s->base_cwnd + grown;
	orders->stop = 1;
	s->pacing = 0;
	s->spread_segs = 0;
	s->state = PL_START_BASE;
}

#endif

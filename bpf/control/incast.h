/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT */
/*
 * Incast: messages within the initial window, on a path that the window fills. Many hosts
 * that send one at once overflow a queue. No single window is too large, and the lost segments
 * are mostly a message's end, which only an RTO repairs. Spread over the time that the link
 * needs for all messages, none is lost, and the last one arrives no later. No host knows that
 * time. After a message with losses the next ones are spread over a longer time, by the queueing
 * delay of its end; without losses the time shrinks a little with each message.
 */
#ifndef PACELINE_INCAST_H
#define PACELINE_INCAST_H

#include "path.h"

#define PL_SPREAD_DECAY 64 /* the time shrinks by 1/64 per message without loss, */
#define PL_SPREAD_HELD 1024 /* by 1/1024 if its end met a queue: then the time is hardly too long */
#define PL_SPREAD_QUEUE 16 /* a queueing delay below 1/16 of the time is no queue */
#define PL_SPREAD_RTT_US 1000 /* longest minimum RTT of a local network: on a longer path the messages take less than an RTT */
#define PL_SPREAD_FIRST 8 /* longest first time, in RTTs; then it at most doubles: ACKs may be delayed */
#define PL_SPREAD_MAX_US 32000 /* longest time: the cost for the first message after crowded times */
#define PL_SPREAD_OVER 2 /* after so many times the time, a message with unsent data has waited for an RTO */

/* The end of a message: its losses, and the queueing delay of its end. */
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
	/* Its end met a queue: it was too early by the queueing delay. */
	spread += most < s->waited_us ? most : s->waited_us;
	path->spread_us = spread < PL_SPREAD_MAX_US ? spread : PL_SPREAD_MAX_US;
}

/*
 * A connection's first message, if it is longer than these few segments: at first the inflight is
 * that of a thin stream (tcp_stream_is_thin), whose RTO does not double. Many connections that
 * begin at once lose most of their segments, repeatedly, and the one whose RTO doubles is the
 * straggler. On a local network this costs two RTTs, once.
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
		s->turn_first = 1; /* turns.h decides */
	}
}

/* The start of a message: whether it is spread. */
static __always_inline int pl_incast_begin(struct pl_start *s, const struct pl_path *path, const struct pl_policy *policy,
					   const struct pl_tcp *tcp, __u64 quiet_us)
{
	__u64 spread_us = pl_aged(path->spread_us, quiet_us, policy);
	__u32 segs = (tcp->unsent + tcp->mss - 1) / tcp->mss;

	if (!spread_us || segs < 2 || segs > PL_LEAD_SEGS)
		return 0;
	/* BBR would measure the pacing rate as the path's. */
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
 * The next segment of a spread message. cwnd ends after it, because at a short RTT the stack would
 * send all as one packet (tcp_tso_autosize); with more in flight cwnd is as much larger as keeps
 * the stack from deferring the segment (tcp_tso_should_defer). A loss does not stop the pace: the
 * ACKs of the following segments show at once whether a repair was lost, too, instead of an RTO. So
 * cwnd counts from packets_out, not from the inflight: 8 KB from 64 hosts into 128 KiB take 22.9 ms,
 * 23.9 with the inflight.
 */
static __always_inline void pl_incast_send(const struct pl_start *s, const struct pl_tcp *tcp,
					   struct pl_orders *orders)
{
	__u32 window = tcp->packets_out + 1 + tcp->packets_out / 3;
	__u32 phase = (tcp->una * PL_GOLDEN_RATIO >> 24) + 1;

	orders->pacing_bps = s->rate_bps;
	/* Hosts that start together must not stay in step: the first gap is random, up to two. */
	if (tcp->sent_segs == s->sent0)
		orders->pacing_bps = s->rate_bps * 128 / phase;
	orders->cwnd = window < s->base_cwnd ? window : s->base_cwnd;
}

/* All of the message has left: cwnd is the base's again, and has grown if nothing was lost. */
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

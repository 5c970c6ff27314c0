/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT */
/*
 * Gaps: long messages of many hosts to one receiver at once, over paths that the initial
 * window fills. With as many senders as the receiver's queue has room for packets, a cwnd
 * of one segment each is too large, and there is no smaller one: only the time between
 * segments is left. If each sender sends one segment per gap, the queue holds their chance
 * coincidences. All messages of a round take the link's time for them together: so after a
 * message with losses, alone on its host, the next one is spaced over the duration of this one.
 * Within a message the ACKs adapt the gap. A queueing delay that is a small part of the queue's
 * length shows spare bandwidth, and the gap shrinks at once, so that a gap from crowded times
 * costs the first message after them a few segments' time; a delay of most of the queue's
 * length makes the gap a little longer. As Swift (SIGCOMM 2020) paces a cwnd below one segment.
 *
 * The message has its host's turn (turns.h): if another message of the host waits, the
 * congestion is the host's own, and turns schedule it.
 */
#ifndef PACELINE_GAPS_H
#define PACELINE_GAPS_H

#include "path.h"

#define PL_GAP_RTT_US 1000 /* longest minimum RTT of a local network */
#define PL_GAP_SEGS_MAX 128 /* longest message, segments: in a longer one cwnd adapts */
#define PL_GAP_LOSING 5 /* gaps begin when messages with an RTO outnumber the others by this; */
#define PL_GAP_TIMEOUTS 2 /* most RTOs of one message that count */
#define PL_GAP_MAX_US 20000 /* longest gap: 64 senders over 50 Mbit/s */
#define PL_GAP_NOISE 4 /* a queueing delay below 1/4 of min_rtt means no cross traffic: */
#define PL_GAP_FREE 2 /* the gap shrinks by 1/2 then, */
#define PL_GAP_FASTER 4 /* and by 1/4 if the delay was below a third of the queue; */
#define PL_GAP_SLOWER 16 /* it grows by 1/16 if the delay was above two thirds */
#define PL_GAP_FORGET 256 /* per ACK the known length of the queue moves to the delay by 1/256 of the difference */
#define PL_GAP_DELAYED_US 40000 /* TCP_DELACK_MIN of a stock kernel */

/* The end of a message: its RTOs, and its duration as the next gap. */
static __always_inline void pl_gap_learn(const struct pl_start *s, struct pl_path *path, const struct pl_tcp *tcp)
{
	__u32 lost = tcp->retransmitted_segs - s->retransmitted0;
	__u32 sent = tcp->sent_segs - s->sent0 - lost;
	__u64 took_us = s->went_us - s->began_us;

	if (!s->learning || sent <= PL_LEAD_SEGS || sent > PL_GAP_SEGS_MAX || path->min_rtt_us > PL_GAP_RTT_US)
		return;
	if (!s->gapped) {
		if (s->others)
			return;
		if (!s->timeouts) {
			path->losing -= path->losing != 0;
			return;
		}
		path->losing += s->timeouts < PL_GAP_TIMEOUTS ? s->timeouts : PL_GAP_TIMEOUTS;
		if (path->losing < PL_GAP_LOSING)
			return;
		path->losing = PL_GAP_LOSING;
	}
	took_us /= sent;
	path->gap_us = took_us < PL_GAP_MAX_US ? (__u32)took_us : PL_GAP_MAX_US;
	/* A gap shorter than an initial window per RTT: no cross traffic. */
	if (path->gap_us * PL_LEAD_SEGS < path->min_rtt_us)
		path->gap_us = 0;
}

/* The start of a message that has its host's turn. */
static __always_inline void pl_gap_begin(struct pl_start *s, const struct pl_tcp *tcp)
{
	s->base_cwnd = tcp->cwnd;
	s->gapped = 1;
	s->waits = 0;
	s->pacing = 1;
	s->state = PL_START_PACED;
}

/* The message goes on under the base's cwnd. */
static __always_inline void pl_gap_end(struct pl_start *s, const struct pl_tcp *tcp, struct pl_orders *orders)
{
	if (!tcp->recovering)
		orders->cwnd = s->base_cwnd;
	orders->stop = 1;
	s->pacing = 0;
	s->state = PL_START_BASE;
}

/*
 * The next segment. cwnd ends after it, as in incast.h; the base's response to a loss does not
 * delay the following segments, whose ACKs show the loss to the stack. Where the RTO of thin streams
 * does not double (tcp_stream_is_thin), the stream stays thin: the RTO after a lost repair is as
 * long as the first one.
 */
static __always_inline void pl_gap_send(struct pl_start *s, const struct pl_policy *policy, const struct pl_tcp *tcp,
					struct pl_orders *orders)
{
	__u32 window = tcp->in_flight + 1 + tcp->in_flight / 3;
	__u32 most = s->base_cwnd > PL_LEAD_SEGS ? s->base_cwnd : PL_LEAD_SEGS;
	__u64 gap_us = s->gap_us;

	if (tcp->sent_segs - s->sent0 > PL_GAP_SEGS_MAX) {
		pl_gap_end(s, tcp, orders);
		return;
	}
	/* Hosts that start together must not stay in step; the first segments of all take a gap. */
	if (tcp->sent_segs == s->sent0)
		gap_us += gap_us * ((tcp->una * PL_GOLDEN_RATIO >> 24) + 1) / 256;
	orders->pacing_bps = pl_rate(1, tcp->mss, gap_us);
	if (policy->rto_linear && tcp->packets_out >= PL_THIN_SEGS)
		window = tcp->in_flight ? tcp->in_flight : 1;
	orders->cwnd = window < most ? window : most;
	s->went_us = tcp->now_us;
}

/* Whether the ACK of a single segment may be a delayed ACK. */
static __always_inline int pl_gap_delayed(const struct pl_start *s, const struct pl_policy *policy,
					  const struct pl_tcp *tcp)
{
	__u32 delay_us = policy->delayed_ack_us ? policy->delayed_ack_us : PL_GAP_DELAYED_US;

	/* A timer of some ticks fires up to one early. */
	return tcp->delivered_segs - s->turn_delivered == 1 && s->waited_us >= delay_us / 2;
}

/* An ACK of a message with gaps; `s->waited_us` is its queueing delay. */
static __always_inline void pl_gap_on_ack(struct pl_start *s, const struct pl_path *path,
					  const struct pl_policy *policy, const struct pl_tcp *tcp)
{
	if (!tcp->rtt_us)
		return;
	if (pl_gap_delayed(s, policy, tcp)) {
		s->gap_us -= s->gap_us / PL_GAP_FASTER;
		return;
	}
	if (s->waited_us > s->queue_us)
		s->queue_us = s->waited_us;
	else
		s->queue_us -= (s->queue_us - s->waited_us) / PL_GAP_FORGET;
	if (s->waited_us < path->min_rtt_us / PL_GAP_NOISE)
		s->gap_us -= s->gap_us / PL_GAP_FREE;
	else if (s->waited_us < s->queue_us / 3)
		s->gap_us -= s->gap_us / PL_GAP_FASTER;
	else if (s->waited_us > s->queue_us / 3 * 2 && s->gap_us < PL_GAP_MAX_US)
		s->gap_us += s->gap_us / PL_GAP_SLOWER;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT */
/*
 * Gaps: long messages of many hosts to one receiver at once, over paths that the initial
 * window fills. With as many senders as the receiver's queue has room for packets, a window
 * of one segment each is too much, and no smaller one exists: what is left is time between
 * segments. A sender that leaves one segment in each gap, while the others do the same,
 * needs no window, and the queue holds their chance meetings. All messages of a round
 * together take as long as the link takes for them: so a message that lost, alone on its
 * host, sends the next one over the time that this one took. Within a message the ACKs say
 * more: one that waited for little of what the queue was seen to hold says that the link
 * had time to spare, and the gap gets shorter at once, so that what crowded times have left
 * costs the first message of quiet ones a few gaps; after one that waited for most of it
 * the gap is a little longer.
 *
 * The message has its host's turn (turns.h): where another one of the host waits for it,
 * the crowd is this host's own, and goes by turns.
 */
#ifndef PACELINE_GAPS_H
#define PACELINE_GAPS_H

#include "path.h"

#define PL_GAP_RTT_US 1000 /* of a local network */
#define PL_GAP_SEGS_MAX 128 /* of longer messages a window finds its way while they last */
#define PL_GAP_LOSING 5 /* by so much more often do messages time out than not: a window is too much; */
#define PL_GAP_TIMEOUTS 2 /* of one message so many count at most */
#define PL_GAP_MAX_US 20000 /* between segments: of 64 senders over 50 Mbit/s */
#define PL_GAP_NOISE 4 /* a wait below min_rtt divided by this means no competing traffic: */
#define PL_GAP_FREE 2 /* by a part of so many a gap is shorter then, */
#define PL_GAP_FASTER 4 /* and by this where less than a third of the queue was waited for; */
#define PL_GAP_SLOWER 16 /* by this it is longer where more than two thirds were */
#define PL_GAP_FORGET 256 /* how much a queue holds is forgotten by this part of the difference per ACK */
#define PL_GAP_DELAYED_US 40000 /* TCP_DELACK_MIN of a stock kernel */

/* Nothing is in flight: what the last message said. */
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
	/* As fast as an initial window in each round trip: nobody else is there. */
	if (path->gap_us * PL_LEAD_SEGS < path->min_rtt_us)
		path->gap_us = 0;
}

/* A message begins that has its host's turn. */
static __always_inline void pl_gap_begin(struct pl_start *s, const struct pl_tcp *tcp)
{
	s->base_cwnd = tcp->cwnd;
	s->gapped = 1;
	s->waits = 0;
	s->pacing = 1;
	s->state = PL_START_PACED;
}

/* It goes on under the base's window. */
static __always_inline void pl_gap_end(struct pl_start *s, const struct pl_tcp *tcp, struct pl_orders *orders)
{
	if (!tcp->recovering)
		orders->cwnd = s->base_cwnd;
	orders->stop = 1;
	s->pacing = 0;
	s->state = PL_START_BASE;
}

/*
 * The next segment. The window ends after it, as in incast.h; what the base makes of a loss
 * meanwhile does not hold the others up, from whose ACKs the stack learns of it. Where
 * timeouts of thin streams do not double (tcp_stream_is_thin), it stays one: a repair that is
 * lost, too, is waited for as long as the first time.
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
	/* Hosts that start together must not go on in step; and the first segments of all take a gap. */
	if (tcp->sent_segs == s->sent0)
		gap_us += gap_us * ((tcp->una * PL_GOLDEN_RATIO >> 24) + 1) / 256;
	orders->pacing_bps = pl_rate(1, tcp->mss, gap_us);
	if (policy->rto_linear && tcp->packets_out >= PL_THIN_SEGS)
		window = tcp->in_flight ? tcp->in_flight : 1;
	orders->cwnd = window < most ? window : most;
	s->went_us = tcp->now_us;
}

/* The ACK of one segment that waited so long may have been delayed for want of a second one. */
static __always_inline int pl_gap_delayed(const struct pl_start *s, const struct pl_policy *policy,
					  const struct pl_tcp *tcp)
{
	__u32 delay_us = policy->delayed_ack_us ? policy->delayed_ack_us : PL_GAP_DELAYED_US;

	/* A timer of some ticks fires up to one early. */
	return tcp->delivered_segs - s->turn_delivered == 1 && s->waited_us >= delay_us / 2;
}

/* An ACK of such a message; `s->waited_us` is what it says. */
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

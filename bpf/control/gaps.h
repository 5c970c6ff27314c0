/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT */
/*
 * Gaps: long messages of many hosts to one receiver at once, over paths that the initial
 * window fills. With as many senders as the receiver's queue has room for packets, a window
 * of one segment each is too much, and no smaller one exists: what is left is time between
 * segments. A sender that leaves one segment in each gap, while the others do the same,
 * needs no window, and the queue holds their chance meetings. All messages of a round
 * together take as long as the link takes for them: so a message that lost, alone on its
 * host, sends the next one over the time that this one took, and a little longer or
 * shorter each time, as its end met a queue or not. Within a message an ACK that waited
 * in no queue says that the link had time to spare: the gap gets shorter at once, so that what
 * crowded times have left costs the first message of quiet ones a few gaps.
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
#define PL_GAP_QUEUE 3 /* what waits for less than this part of a gap found time to spare, */
#define PL_GAP_NOISE 4 /* and what waits for less than this part of the least RTT */
#define PL_GAP_FASTER 3 /* by a part of so many a gap is shorter after an ACK that did */
#define PL_GAP_LONGER 16 /* by a part of so many a message takes longer after one whose end did not, */
#define PL_GAP_SHORTER 64 /* and shorter after one whose end did */

/* Whether a segment waited long enough for the others to have been there. */
static __always_inline int pl_gap_queued(const struct pl_start *s, const struct pl_path *path)
{
	__u32 least = s->gap_us / PL_GAP_QUEUE;

	if (least < path->min_rtt_us / PL_GAP_NOISE)
		least = path->min_rtt_us / PL_GAP_NOISE;
	return s->waited_us > least;
}

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
	} else if (lost > 1 || pl_gap_queued(s, path)) {
		/* One is lost where all begin. */
		took_us += took_us / PL_GAP_LONGER;
	} else {
		took_us -= took_us / PL_GAP_SHORTER;
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
 * meanwhile does not hold the others up, from whose ACKs the stack learns of it.
 */
static __always_inline void pl_gap_send(struct pl_start *s, const struct pl_tcp *tcp, struct pl_orders *orders)
{
	__u32 window = tcp->packets_out + 1 + tcp->packets_out / 3;
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
	orders->cwnd = window < most ? window : most;
	s->went_us = tcp->now_us;
}

/* An ACK of such a message; `s->waited_us` is what it says. */
static __always_inline void pl_gap_on_ack(struct pl_start *s, const struct pl_path *path, const struct pl_tcp *tcp)
{
	if (tcp->rtt_us && !pl_gap_queued(s, path))
		s->gap_us -= s->gap_us / PL_GAP_FASTER;
}

#endif

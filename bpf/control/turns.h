/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT */
/*
 * Turns: long messages from one host to many others at once, on paths that the initial
 * window fills, as in an all-to-all of a local network. Together the windows of these
 * connections overflow the short queues, and the rest of each window is too small for a fast
 * retransmit, so RTOs repair the losses. A few connections with a whole window fill such a
 * path as well as all of them with a part of one. So where messages lose segments, a host's
 * connections take turns: several at a time send their messages under the base algorithm and
 * a window that all turns of the host share. That window decides how many turns there are at
 * a time, because a receiver's port without a turn is idle. Each waiting connection sends a
 * segment now and then, which requests a turn. The rate of these requests per host does not
 * depend on the number of waiting connections, and a connection that waits alone waits for
 * next to no time. Hosts do not know of each other: the shared window finds each one's share.
 */
#ifndef PACELINE_TURNS_H
#define PACELINE_TURNS_H

#include "path.h"
#include "gaps.h"

#define PL_TURN_RTT_US 1000 /* longest minimum RTT of a local network */
/* A host requests a turn once per so many */
#define PL_TURN_GAP_SEGS 3 /* segments under a shared window of PL_LEAD_SEGS, less often under a smaller one, */
#define PL_TURN_GAP_MAX_US 180 /* at least once in this time: no connection sends from a turn's end until then, */
#define PL_TURN_GAP_MIN_US 50 /* and at most once in this time: each request is a timer interrupt. */
#define PL_TURN_LEASE_US 4000 /* all turns end when nothing is delivered for an RTT and this time */
#define PL_TURN_WINDOW_UNIT 64 /* the shared window grows by a segment per so many delivered segments, */
#define PL_TURN_WINDOW_CUT 4 /* and a loss reduces it by 1/4, */
#define PL_TURN_PLACES 16 /* most turns at a time: with four segments each they are 96 KB, more than the queue of a port with 64 KiB */
#define PL_TURN_SEGS 4 /* segments of the shared window per turn */
#define PL_TURN_LOSING 1024 /* turns begin where long messages lose more than 1/1024, */
#define PL_TURN_SENT 1024 /* counted over so many recent segments; two losses of the first ones suffice */
#define PL_TURN_TOGETHER_US 1000 /* longest time between first messages that the host begins together */
#define PL_TURN_CUT_US 4000 /* at most once in this time: the other losses are of the same queue */
#define PL_TURN_WINDOW_LEAST 3 /* least window of a turn, segments: with fewer most losses are found by an RTO */
#define PL_TURN_WINDOW_MOST 1024 /* largest shared window, segments: no limit */

/* The end of a message: counts its segments and losses if it should have waited for a turn. */
static __always_inline void pl_turn_learn(struct pl_start *s, const struct pl_path *path, const struct pl_tcp *tcp)
{
	__u32 lost = tcp->retransmitted_segs - s->retransmitted0;
	__u32 sent = tcp->sent_segs - s->sent0 - lost;

	s->turn_sent = 0;
	if (!s->learning || sent <= PL_LEAD_SEGS || path->min_rtt_us > PL_TURN_RTT_US)
		return;
	s->turn_sent = sent;
	s->turn_lost = lost;
}

/* Whether the host's long messages have recently lost so much that turns are better. */
static __always_inline void pl_turn_count(struct pl_start *s, struct pl_turn *turn, const struct pl_tcp *tcp)
{
	turn->sent += s->turn_sent;
	turn->lost += s->turn_lost;
	s->turn_sent = 0;
	s->turn_lost = 0;
	if (turn->lost * PL_TURN_LOSING > turn->sent + PL_TURN_SENT)
		turn->crowded_us = tcp->now_us;
	if (turn->sent > 2 * PL_TURN_SENT) {
		turn->sent /= 2;
		turn->lost /= 2;
	}
}

/* A message begins: whether it is one that waits where messages are lost. */
static __always_inline int pl_turn_wants(struct pl_start *s, const struct pl_path *path, const struct pl_policy *policy,
					 const struct pl_tcp *tcp)
{
	__u64 gap_us = PL_TURN_GAP_MAX_US;

	/* BBR would measure the pacing rate as the path's. */
	if (path->min_rtt_us > PL_TURN_RTT_US || policy->base == PL_BASE_BBR)
		return 0;
	/* A long write may come segment by segment; then the last message shows their length. */
	if (tcp->unsent <= PL_LEAD_SEGS * tcp->mss && s->burst_segs <= PL_LEAD_SEGS)
		return 0;
	if (path->rate_bps)
		gap_us = PL_TURN_GAP_SEGS * tcp->mss * PL_USEC_PER_SEC / path->rate_bps;
	s->turn_gap_us = gap_us < PL_TURN_GAP_MAX_US ? gap_us : PL_TURN_GAP_MAX_US;
	return 1;
}

/* Turns that the host has at a time, at most. */
static __always_inline __u32 pl_turn_places(const struct pl_turn *turn)
{
	__u32 places = turn->window / (PL_TURN_SEGS * PL_TURN_WINDOW_UNIT);

	if (!places)
		return 1;
	return places < PL_TURN_PLACES ? places : PL_TURN_PLACES;
}

/* Segments of each turn: an equal part of the window, also for those that will begin at once. */
static __always_inline __u32 pl_turn_window(const struct pl_turn *turn)
{
	__u32 sharers = turn->taken + turn->waiting;
	__u32 places = pl_turn_places(turn);
	__u32 window;

	if (sharers > places)
		sharers = places;
	window = turn->window / (PL_TURN_WINDOW_UNIT * (sharers ? sharers : 1));
	return window > PL_TURN_WINDOW_LEAST ? window : PL_TURN_WINDOW_LEAST;
}

/* Something arrives of a turn, or it begins: those of the host go on. */
static __always_inline void pl_turn_lease(struct pl_turn *turn, const struct pl_tcp *tcp)
{
	turn->until_us = tcp->now_us + PL_TURN_LEASE_US + tcp->srtt_us;
}

/* The end of a message's turn. */
static __always_inline void pl_turn_end(struct pl_start *s, struct pl_turn *turn)
{
	if (s->turn_held && s->turn == turn->number && turn->taken)
		turn->taken--;
	s->turn_held = 0;
}

/* One waiting message less, never below 0: it may have begun to wait before the map was made. */
static __always_inline void pl_turn_waits_no_longer(struct pl_turn *turn)
{
	if (turn->waiting)
		turn->waiting--;
}

/* The message waits no longer: cwnd decides. */
static __always_inline void pl_turn_go(struct pl_start *s, const struct pl_tcp *tcp, struct pl_orders *orders)
{
	orders->pacing_bps = 0;
	orders->cwnd = tcp->recovering ? 0 : s->base_cwnd;
	orders->stop = 1;
	s->pacing = 0;
	s->waits = 0;
	s->state = PL_START_BASE;
}

/* The shared window: grows with the delivered segments of turns; a loss of any message reduces it. */
static __always_inline void pl_turn_adapt(struct pl_start *s, struct pl_turn *turn, const struct pl_tcp *tcp)
{
	if (tcp->retransmitted_segs == s->turn_retransmitted) {
		if (s->waits || tcp->cwnd >= pl_turn_window(turn))
			turn->window += tcp->delivered_segs - s->turn_delivered;
		if (turn->window > PL_TURN_WINDOW_MOST * PL_TURN_WINDOW_UNIT)
			turn->window = PL_TURN_WINDOW_MOST * PL_TURN_WINDOW_UNIT;
	} else if (tcp->now_us - turn->cut_us > PL_TURN_CUT_US) {
		turn->window -= turn->window / PL_TURN_WINDOW_CUT;
		if (turn->window < PL_TURN_WINDOW_UNIT)
			turn->window = PL_TURN_WINDOW_UNIT;
		turn->cut_us = tcp->now_us;
	}
	s->turn_retransmitted = tcp->retransmitted_segs;
	s->turn_delivered = tcp->delivered_segs;
}

/* Sends a segment and goes on waiting, unless a turn is free. */
static __always_inline void pl_turn_ask(struct pl_start *s, struct pl_turn *turn, const struct pl_policy *policy,
					const struct pl_tcp *tcp, int due, struct pl_orders *orders)
{
	__u32 window = tcp->in_flight + 1;
	__u32 phase = (tcp->una * PL_GOLDEN_RATIO >> 24) + 1;
	__u64 gap_us;

	if (tcp->now_us >= turn->until_us) {
		turn->number++;
		turn->taken = 0;
	}
	if (!due || turn->taken >= pl_turn_places(turn)) {
		gap_us = (__u64)s->turn_gap_us * PL_LEAD_SEGS * PL_TURN_WINDOW_UNIT / turn->window;
		if (gap_us < PL_TURN_GAP_MIN_US)
			gap_us = PL_TURN_GAP_MIN_US;
		s->rate_bps = pl_rate(1, tcp->mss, gap_us * (turn->waiting ? turn->waiting : 1));
		orders->pacing_bps = s->rate_bps;
		/* Messages that begin together must not stay in step: the first gap is random, up to two. */
		if (tcp->sent_segs == s->sent0)
			orders->pacing_bps = s->rate_bps * 128 / phase;
		orders->cwnd = window < s->base_cwnd ? window : s->base_cwnd;
		if (due) {
			s->others = 1;
			s->alone = 0;
			turn->others_us = tcp->now_us;
		}
		return;
	}
	pl_turn_waits_no_longer(turn);
	turn->taken++;
	s->turn = turn->number;
	s->turn_held = 1;
	pl_turn_lease(turn, tcp);
	if (s->gap_us) {
		pl_gap_begin(s, tcp);
		pl_gap_send(s, policy, tcp, orders);
		return;
	}
	s->base_cwnd = s->alone ? tcp->cwnd : pl_turn_window(turn);
	pl_turn_go(s, tcp, orders);
}

/*
 * The first message of a connection, which begins with few segments by incast.h. Messages that
 * a host begins together leave its own port one after the other: the few would only change
 * the order in which an all-to-all sends them, each host to another one. Sixteen hosts with
 * 16 KB reach 63 Mbit/s of 94 with the few segments, and 85 without.
 */
static __always_inline void pl_turn_first(struct pl_start *s, struct pl_turn *turn, const struct pl_tcp *tcp,
					  struct pl_orders *orders)
{
	if (tcp->now_us - turn->first_us < PL_TURN_TOGETHER_US)
		orders->cwnd = 0;
	turn->first_us = tcp->now_us;
	s->turn_first = 0;
}

/* Called before each transmission of a message that lost, wants a turn, or waits; `due`: the pacing timer does not hold it back. */
static __always_inline void pl_turn_before_send(struct pl_start *s, struct pl_turn *turn,
						const struct pl_policy *policy, const struct pl_tcp *tcp, int due,
						struct pl_orders *orders)
{
	if (s->turn_first)
		pl_turn_first(s, turn, tcp, orders);
	if (s->turn_sent)
		pl_turn_count(s, turn, tcp);
	if (!turn->window)
		turn->window = PL_LEAD_SEGS * PL_TURN_WINDOW_UNIT;
	/* Other messages of this host have waited: it has turns. */
	if (s->turn_wants)
		s->alone = !turn->others_us || !pl_aged(2, tcp->now_us - turn->others_us, policy);
	if (!s->alone)
		s->gap_us = 0;
	if (s->turn_wants && (s->gap_us || (turn->crowded_us && pl_aged(2, tcp->now_us - turn->crowded_us, policy)))) {
		s->waits = 1;
		s->base_cwnd = tcp->cwnd;
		s->state = PL_START_PACED;
		s->pacing = 1;
		turn->waiting++;
		s->turn_retransmitted = tcp->retransmitted_segs;
		s->turn_delivered = tcp->delivered_segs;
		due = s->alone;
	}
	s->turn_wants = 0;
	if (s->waits)
		pl_turn_ask(s, turn, policy, tcp, due, orders);
}

/* An ACK of a message that waits, or has had its turn. */
static __always_inline void pl_turn_on_ack(struct pl_start *s, struct pl_turn *turn, const struct pl_tcp *tcp,
					   struct pl_orders *orders)
{
	__u32 window;

	pl_turn_adapt(s, turn, tcp);
	if (s->waits) {
		if (!tcp->unsent) {
			pl_turn_waits_no_longer(turn);
			pl_turn_go(s, tcp, orders);
		}
		return;
	}
	if (turn->waiting)
		s->alone = 0;
	window = pl_turn_window(turn);
	if (!s->alone && s->gapped && s->state == PL_START_PACED)
		pl_gap_end(s, tcp, orders);
	else if (!s->alone && !tcp->recovering && tcp->cwnd > window)
		orders->cwnd = window;
	if (s->turn_held && s->turn == turn->number)
		pl_turn_lease(turn, tcp);
	if (!tcp->unsent)
		pl_turn_end(s, turn);
	/* The turn is over, but the losses of its last window count. */
	if (!tcp->unsent && !tcp->packets_out)
		s->turn = 0;
}

/* The connection ends, or changes its phase class. */
static __always_inline void pl_turn_leave(struct pl_start *s, struct pl_turn *turn, const struct pl_tcp *tcp,
					  struct pl_orders *orders)
{
	if (s->waits) {
		pl_turn_waits_no_longer(turn);
		pl_turn_go(s, tcp, orders);
	}
	pl_turn_end(s, turn);
	s->turn = 0;
}

#endif

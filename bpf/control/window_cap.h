/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT */
/*
 * A bound of the window from outside: `uwnd` of kamezawa-2004, 5.1 and 5.2.
 *
 * uwnd.max caps what is sent and uwnd.min lifts it, apart from the congestion window,
 * which stays the base algorithm's. The paper changed the kernel's test whether a packet
 * may leave; here the window is written just before each transmission, and is the base's
 * own again when that lets it grow:
 *
 *     before each transmission     in force = own, lifted to min, capped by max
 *     before the base grows        a lifted window is its own again; one that a cap made
 *                                  smaller is not, and what it adds to it is dropped
 *     at a loss                    the base sees what was in flight, within the two
 *
 * - While a cap binds, the base's window is held (RFC 7661): the kernel still reports that
 *   the window limits the connection, so that it would grow without end, unproven, and
 *   leave as one burst when the cap goes.
 * - At a loss the base starts from what was in flight, or the connection would not give way:
 *   70 % of a window of 500 is no less than the 100 that are in force. A lifted window that
 *   was in flight is reduced as any other too: repairing 130 segments with 70 % of the
 *   base's own 60 would leave the path half empty. And where a cap of 100 came while 200 were
 *   in flight, 100 is what is left of them: 70 would be a second reduction. For the same
 *   reason the kernel's recovery (PRR) sees what is in force: it reduces in proportion to
 *   the window before the loss. An undo gives the base's own window back.
 * - Where a larger window comes into force at once (a cap is raised or goes, a lift begins)
 *   it doubles per round trip at most, as slow start does, and what it adds is paced over
 *   a round trip. A window that has not been used for long is so tried again with care.
 * - In CWR, Recovery and Loss nothing is lifted, and PRR's windows are capped as any other.
 * - A bound has a lease. When it ends there is none; nobody has to take it back.
 *
 * What a cap cannot hold back: a tail-loss probe and a retransmission after a timeout,
 * which the kernel sends without asking for the window, one segment each.
 *
 * Integer arithmetic only; no clock, no kernel type. State is one connection's, whose
 * socket lock the caller holds.
 */
#ifndef PACELINE_WINDOW_CAP_H
#define PACELINE_WINDOW_CAP_H

#include "path.h"

/* State of one connection. All zero is the right beginning: nothing is bounded. */
struct pl_window {
	__u64 step_us; /* when the window in force was last let grow */
	__u32 own; /* the base's own window while another is in force; 0: that one is */
	__u32 in_force; /* what was last written */
	__u32 ceiling; /* what the last bound left; grows to what is wanted; 0: no bound */
	__u32 undo; /* the base's own window before the last loss; 0: it was in force */
	__u8 binds; /* 1: less than the base's own window is in force */
	__u8 held; /* 1: and the base was not told since that it may grow again */
	__u8 pacing; /* 1: what the window adds is being paced */
};

/* Adds a bound to others: all hold, and the cap above the lift. */
static __always_inline void pl_uwnd_add(struct pl_uwnd *to, const struct pl_uwnd *other, __u64 now_us)
{
	if (now_us >= other->until_us)
		return;
	if (other->max_segs && (!to->max_segs || other->max_segs < to->max_segs))
		to->max_segs = other->max_segs;
	if (other->min_segs > to->min_segs)
		to->min_segs = other->min_segs < PL_MOST_SEGS ? other->min_segs : PL_MOST_SEGS;
}

/* The base's own window, where the socket has `cwnd`: it is smaller than what was in force after a loss alone. */
static __always_inline __u32 pl_window_own(const struct pl_window *w, __u32 cwnd)
{
	return w->own && (cwnd == w->in_force || (w->binds && cwnd > w->in_force)) ? w->own : cwnd;
}

/* The base is about to grow: the window that it is to see, where the socket has `cwnd`. */
static __always_inline __u32 pl_window_before_growth(struct pl_window *w, __u32 cwnd)
{
	__u32 own = pl_window_own(w, cwnd);

	if (w->binds)
		return cwnd;
	w->own = 0;
	return own;
}

/*
 * A loss, with so many segments in flight: the window that the base is to see. What becomes
 * of it is its own again. Between its own and what is in force it is what was used: not all
 * of a lift may have been, and a cap that fell a moment ago is not what was overfilled.
 */
static __always_inline __u32 pl_window_lost(struct pl_window *w, __u32 cwnd, __u32 packets_out)
{
	__u32 own = pl_window_own(w, cwnd);
	__u32 less = own < cwnd ? own : cwnd;
	__u32 more = own < cwnd ? cwnd : own;

	w->undo = own != cwnd ? own : 0;
	w->own = 0;
	w->binds = 0;
	if (packets_out <= less)
		return less;
	return packets_out < more ? packets_out : more;
}

/*
 * What the base is shown of a lifted window while it looks at an ACK, where the socket has
 * `cwnd`: its own. It may still turn out to be a loss, of what is in force.
 */
static __always_inline __u32 pl_window_before_ack(const struct pl_window *w, __u32 cwnd)
{
	return w->binds ? cwnd : pl_window_own(w, cwnd);
}

/* And after it: what is in force, unless another law has set the window. */
static __always_inline __u32 pl_window_after_ack(const struct pl_window *w, __u32 cwnd)
{
	return w->own && !w->binds && cwnd == w->own ? w->in_force : cwnd;
}

/* The loss was none. `cwnd`: what the base takes its window back to. */
static __always_inline __u32 pl_window_undo(struct pl_window *w, __u32 cwnd)
{
	w->own = 0;
	w->binds = 0;
	return w->undo ? w->undo : cwnd;
}

/* Another law sets the base's window. */
static __always_inline void pl_window_set(struct pl_window *w)
{
	w->own = 0;
	w->binds = 0;
}

/* How far the window in force may grow at once, and when again. */
static __always_inline void pl_window_grow(struct pl_window *w, __u32 wanted, const struct pl_tcp *tcp)
{
	/* A small step is less than any TCP may send at once (RFC 6928). */
	if (wanted <= w->ceiling + PL_LEAD_SEGS / 2 && !w->pacing) {
		w->ceiling = wanted;
		return;
	}
	if (w->pacing && tcp->now_us - w->step_us < tcp->srtt_us)
		return;
	w->ceiling = wanted / 2 < w->ceiling ? wanted : 2 * w->ceiling;
	w->step_us = tcp->now_us;
	w->pacing = 1;
}

/*
 * Called before each transmission, after all others have had their say. `tcp->cwnd` is
 * the base's own window, `uwnd` what bounds it now: zero where nothing does.
 * orders->cwnd is the window; orders->settled says that the base may grow again after it
 * had been held; orders->stop that what was paced has left.
 */
static __always_inline void pl_window_before_send(struct pl_window *w, const struct pl_uwnd *uwnd,
						  const struct pl_tcp *tcp, struct pl_orders *orders)
{
	__u32 most = uwnd->max_segs ? uwnd->max_segs : ~0u;
	__u32 own = tcp->cwnd, wanted = own;

	if (uwnd->min_segs > own && !tcp->recovering)
		wanted = uwnd->min_segs;
	if (wanted > most)
		wanted = most;
	if (!w->ceiling && wanted > own)
		w->ceiling = own;
	if (w->ceiling && wanted > w->ceiling)
		pl_window_grow(w, wanted, tcp);
	else if (w->ceiling || wanted < own)
		w->ceiling = wanted;
	/* What was added goes out over a round trip; then the ACKs keep time again. */
	if (w->pacing && w->ceiling >= wanted &&
	    (tcp->now_us - w->step_us >= tcp->srtt_us || !tcp->unsent || tcp->recovering)) {
		w->pacing = 0;
		orders->stop = 1;
	}
	if (w->ceiling && w->ceiling < wanted)
		wanted = w->ceiling;
	orders->cwnd = wanted;
	if (w->pacing)
		orders->pacing_bps = pl_rate(wanted, tcp->mss, tcp->srtt_us);
	w->in_force = wanted;
	w->own = wanted == own ? 0 : own;
	w->binds = wanted < own;
	if (w->binds) {
		w->held = 1;
		return;
	}
	orders->settled = w->held;
	w->held = 0;
	if (!w->own && !w->pacing)
		w->ceiling = 0;
}

#endif

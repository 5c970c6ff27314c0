/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT */
/*
 * A bound of the window from outside: `uwnd` of kamezawa-2004, 5.1 and 5.2.
 *
 * uwnd.max caps the effective cwnd and uwnd.min lifts it. The base algorithm keeps a cwnd
 * of its own, base_cwnd. The paper changed the kernel's test whether a packet may leave.
 * Here the effective cwnd is written to snd_cwnd just before each transmission, and
 * base_cwnd is written back when the base lets it grow:
 *
 *     before each transmission     effective = base_cwnd, lifted to min, capped by max
 *     before the base grows        a lift is taken back; a cap stays, and the growth on top
 *                                  of it is dropped
 *     at a loss                    the base sees the inflight, within the two
 *
 * - While a cap binds, base_cwnd is held (RFC 7661): the kernel still reports that the
 *   connection is cwnd-limited, so base_cwnd would grow without end, unproven, and leave as
 *   one burst when the cap goes.
 * - At a loss the base starts from the inflight. Else the connection would not back off:
 *   70 % of a base_cwnd of 500 is more than an effective cwnd of 100. A lifted window that
 *   was in flight is reduced as any other: repairing 130 segments with 70 % of a base_cwnd
 *   of 60 would leave the path half empty. Where a cap of 100 came while 200 were in flight,
 *   100 are left of them: 70 would be a second reduction. For the same reason the
 *   kernel's recovery (PRR) sees the effective cwnd: it reduces in proportion to the window
 *   before the loss. An undo restores base_cwnd.
 * - Where the effective cwnd rises at once (a cap is raised or goes, a lift begins) it
 *   doubles per round trip at most, as slow start does, and the increase is paced over a
 *   round trip. So a window that has not been used for long is probed again with care.
 * - In CWR, Recovery and Loss nothing is lifted, and PRR's windows are capped as any other.
 * - A bound has a lease and expires by itself.
 *
 * A cap does not hold back a tail-loss probe or a retransmission after a timeout: the kernel
 * sends them without a test of the window, one segment each.
 *
 * Integer arithmetic only; no clock, no kernel type. State is one connection's, whose
 * socket lock the caller holds.
 */
#ifndef PACELINE_WINDOW_CAP_H
#define PACELINE_WINDOW_CAP_H

#include "path.h"

/* State of one connection. All zero at first: no bound. */
struct pl_window {
	__u64 step_us; /* when the effective cwnd was last let grow */
	__u32 base_cwnd; /* the base algorithm's cwnd while the effective one differs; else 0 */
	__u32 effective_cwnd; /* last written to the socket */
	__u32 ceiling; /* the last bounded window; grows to the wanted one; 0: no bound */
	__u32 undo; /* base_cwnd before the last loss; 0: it was the effective one */
	__u8 binds; /* 1: the effective cwnd is less than base_cwnd */
	__u8 held; /* 1: a cap has held base_cwnd since the last orders->settled */
	__u8 pacing; /* 1: the window's increase is being paced */
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

/* base_cwnd, where the socket has `cwnd`. Only a loss makes `cwnd` smaller than the effective cwnd. */
static __always_inline __u32 pl_window_base_cwnd(const struct pl_window *w, __u32 cwnd)
{
	return w->base_cwnd && (cwnd == w->effective_cwnd || (w->binds && cwnd > w->effective_cwnd)) ? w->base_cwnd : cwnd;
}

/* The base is about to grow: the window that it is to see, where the socket has `cwnd`. */
static __always_inline __u32 pl_window_before_growth(struct pl_window *w, __u32 cwnd)
{
	__u32 base_cwnd = pl_window_base_cwnd(w, cwnd);

	if (w->binds)
		return cwnd;
	w->base_cwnd = 0;
	return base_cwnd;
}

/*
 * A loss, with so many segments in flight: the window that the base is to see, and which is
 * base_cwnd from then on. It is the inflight, clamped to between base_cwnd and the effective
 * cwnd: a lift may not have been used up, and a cap that fell a moment ago did not overfill
 * the queue.
 */
static __always_inline __u32 pl_window_lost(struct pl_window *w, __u32 cwnd, __u32 packets_out)
{
	__u32 base_cwnd = pl_window_base_cwnd(w, cwnd);
	__u32 less = base_cwnd < cwnd ? base_cwnd : cwnd;
	__u32 more = base_cwnd < cwnd ? cwnd : base_cwnd;

	w->undo = base_cwnd != cwnd ? base_cwnd : 0;
	w->base_cwnd = 0;
	w->binds = 0;
	if (packets_out <= less)
		return less;
	return packets_out < more ? packets_out : more;
}

/*
 * The window that the base sees of a lifted one while it handles an ACK, where the socket has
 * `cwnd`: base_cwnd. The ACK may still report a loss, of the effective cwnd.
 */
static __always_inline __u32 pl_window_before_ack(const struct pl_window *w, __u32 cwnd)
{
	return w->binds ? cwnd : pl_window_base_cwnd(w, cwnd);
}

/* The window after that ACK: the effective cwnd, unless another law has set the window. */
static __always_inline __u32 pl_window_after_ack(const struct pl_window *w, __u32 cwnd)
{
	return w->base_cwnd && !w->binds && cwnd == w->base_cwnd ? w->effective_cwnd : cwnd;
}

/* The loss was spurious. `cwnd`: the window that the base's undo restores. */
static __always_inline __u32 pl_window_undo(struct pl_window *w, __u32 cwnd)
{
	w->base_cwnd = 0;
	w->binds = 0;
	return w->undo ? w->undo : cwnd;
}

/* Another law sets the base's window. */
static __always_inline void pl_window_set(struct pl_window *w)
{
	w->base_cwnd = 0;
	w->binds = 0;
}

/* How far the effective cwnd may grow at once, and when again. */
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
 * Called before each transmission, after all other laws. `tcp->cwnd` is base_cwnd, `uwnd`
 * the bound now: zero where there is none.
 * orders->cwnd is the window; orders->settled: the base may grow again after it had been
 * held; orders->stop: the paced increase has left.
 */
static __always_inline void pl_window_before_send(struct pl_window *w, const struct pl_uwnd *uwnd,
						  const struct pl_tcp *tcp, struct pl_orders *orders)
{
	__u32 most = uwnd->max_segs ? uwnd->max_segs : ~0u;
	__u32 base_cwnd = tcp->cwnd, wanted = base_cwnd;

	if (uwnd->min_segs > base_cwnd && !tcp->recovering)
		wanted = uwnd->min_segs;
	if (wanted > most)
		wanted = most;
	if (!w->ceiling && wanted > base_cwnd)
		w->ceiling = base_cwnd;
	if (w->ceiling && wanted > w->ceiling)
		pl_window_grow(w, wanted, tcp);
	else if (w->ceiling || wanted < base_cwnd)
		w->ceiling = wanted;
	/* The increase is sent over a round trip; then the ACKs are the clock again. */
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
	w->effective_cwnd = wanted;
	w->base_cwnd = wanted == base_cwnd ? 0 : base_cwnd;
	w->binds = wanted < base_cwnd;
	if (w->binds) {
		w->held = 1;
		return;
	}
	orders->settled = w->held;
	w->held = 0;
	if (!w->base_cwnd && !w->pacing)
		w->ceiling = 0;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT */
/*
 * Even streams: the connections of a job to one destination share one window.
 *
 * A program that stripes its data over parallel connections is as fast as the slowest of
 * them times their number. Each by itself, they are uneven for long: the earlier one, or the
 * one with less loss, has the larger window. Here the path has the window, and each stream an
 * equal part of it:
 *
 *     a stream's window grows           the path's grows by as much
 *     a stream loses                    it reduces its own part, the path's falls by that
 *     before each transmission          a stream's window = path's window / streams
 *
 * So the base algorithm decides the total inflight, with as much growth and reduction as for
 * so many separate connections; only its division is changed. A stream that ends leaves its
 * part to the others. In Recovery and Loss a stream's window is the kernel's own (PRR); after
 * that it gets its part again, as the others' losses and growth have left it.
 *
 * Equal windows are not enough: a stream that repairs a loss, or waits for a timeout, falls
 * behind, and the program waits for it. So a stream that has delivered less than the mean of
 * all has up to a quarter more than an equal part, until it has caught up, and those that are
 * ahead have as much less. Segments delivered before another stream began do not count.
 *
 * An app-limited connection is no stream: it would have a part that it does not use, and the
 * others' would grow as slowly as if it did. It leaves with its inflight, and comes back with
 * its window.
 *
 * A stream below its part grows to it in small steps, as ACKs come in, and not as one burst.
 * The slow start of a stream that begins beside others ends at once when their window is
 * known to be full: one of them has lost, or has left slow start. Else it would overflow the
 * queue of all.
 *
 * Congestion Manager (RFC 3124) and TCB interdependence (RFC 9040) share a window in the
 * same way. Integer arithmetic only; no clock, no kernel type. The caller holds the path's
 * lock.
 */
#ifndef PACELINE_EVEN_H
#define PACELINE_EVEN_H

#include "path.h"

#define PL_EVEN_LEAST_SEGS 2 /* of a part: below it a loss is found by a timeout only */
#define PL_EVEN_STEP_SEGS (PL_LEAD_SEGS / 2) /* a part is given in such steps: less than any TCP may send at once (RFC 6928) */
#define PL_EVEN_LAG_ROUNDS 8 /* a stream catches up with the mean within about so many round trips */
#define PL_EVEN_LAG_MOST 4 /* by a part of so many more than its equal part, at most */
#define PL_EVEN_TURN_SHIFT 17 /* of a time in microseconds: the remainder of the division goes round each 131 ms */

/* State of one connection. All zero at first. */
struct pl_even {
	__u64 since_us; /* of the path's streams, of which it is one; 0: of none */
	__u64 progress_segs; /* delivered since it is; it began with the mean of the others */
	__u32 delivered_segs; /* the socket's counter, as far as it is in there */
	__u32 number; /* among these */
	__u32 cwnd; /* the window that it was left with; 0: not known, for it repaired a loss */
	__u32 lost_segs; /* that the path's window lost by the last loss, for an undo */
	__u32 reserved;
};

/* Whether a connection is a stream of this path, and not of one that was forgotten since. */
static __always_inline int pl_even_is_in(const struct pl_even *e, const struct pl_path *path)
{
	return e->since_us && e->since_us == path->even_since_us;
}

/* Changes the window of all, not below the minimum of each stream. Returns the change. */
static __always_inline __s32 pl_even_change(struct pl_path *path, __s32 segs)
{
	__s32 least = path->even_streams * PL_EVEN_LEAST_SEGS, was = path->even_segs, is = was + segs;

	if (segs < 0 && is < least)
		is = was < least ? was : least;
	path->even_segs = is;
	return is - was;
}

static __always_inline __u32 pl_even_streams(const struct pl_path *path)
{
	return path->even_streams ? path->even_streams : 1;
}

/* The equal part of a stream. */
static __always_inline __u32 pl_even_part(const struct pl_even *e, const struct pl_path *path, __u64 now_us)
{
	__u32 streams = pl_even_streams(path), part = path->even_segs / streams;
	__u32 place = (e->number + (__u32)(now_us >> PL_EVEN_TURN_SHIFT)) % streams;

	if (place < path->even_segs % streams)
		part++;
	return part < PL_EVEN_LEAST_SEGS ? PL_EVEN_LEAST_SEGS : part;
}

/* Segments of a stream above its equal part `part`, or below, with which it reaches the mean of all. */
static __always_inline __s32 pl_even_catch_up(struct pl_even *e, struct pl_path *path, __u32 part)
{
	__u64 mean = path->even_progress / pl_even_streams(path), own = e->progress_segs;
	__u64 most = part / PL_EVEN_LAG_MOST, longest = (__u64)PL_EVEN_LAG_ROUNDS * part, change;

	if (own > mean) {
		change = (own - mean) / PL_EVEN_LAG_ROUNDS;
		return -(__s32)(change < most ? change : most);
	}
	/* A stream that was idle for long does not make up for all of that time. */
	if (mean - own > longest) {
		e->progress_segs = mean - longest;
		path->even_progress += e->progress_segs - own;
	}
	change = (mean - e->progress_segs) / PL_EVEN_LAG_ROUNDS;
	return change < most ? change : most;
}

/* Counts the delivered segments of a stream. */
static __always_inline void pl_even_advance(struct pl_even *e, struct pl_path *path, const struct pl_tcp *tcp)
{
	__u32 more = tcp->delivered_segs - e->delivered_segs;

	e->delivered_segs = tcp->delivered_segs;
	e->progress_segs += more;
	path->even_progress += more;
}

static __always_inline void pl_even_join(struct pl_even *e, struct pl_path *path, const struct pl_tcp *tcp)
{
	__u32 part;

	if (!path->even_streams || !path->even_since_us) {
		/* A new generation: an earlier stream that never left is not in it. */
		path->even_since_us = tcp->now_us > path->even_since_us ? tcp->now_us : path->even_since_us + 1;
		path->even_streams = 0;
		path->even_segs = 0;
		path->even_full = 0;
		path->even_progress = 0;
	}
	e->since_us = path->even_since_us;
	e->number = path->even_streams;
	e->delivered_segs = tcp->delivered_segs;
	e->progress_segs = path->even_progress / pl_even_streams(path);
	path->even_progress += e->progress_segs;
	e->cwnd = 0;
	e->lost_segs = 0;
	part = path->even_streams ? pl_even_part(e, path, tcp->now_us) : tcp->cwnd;
	path->even_streams++;
	path->even_segs += tcp->cwnd < part ? tcp->cwnd : part;
}

/* A stream has nothing more to send, or ends: its part is the others'. */
static __always_inline void pl_even_leave(struct pl_even *e, struct pl_path *path)
{
	if (pl_even_is_in(e, path) && path->even_streams) {
		path->even_streams--;
		path->even_progress -= e->progress_segs;
	}
	e->since_us = 0;
}

/* The stream is app-limited: its inflight leaves the window of all with it. */
static __always_inline void pl_even_rest(struct pl_even *e, struct pl_path *path, const struct pl_tcp *tcp)
{
	__u32 part = pl_even_part(e, path, tcp->now_us);

	if (pl_even_is_in(e, path))
		pl_even_change(path, -(__s32)(tcp->in_flight < part ? tcp->in_flight : part));
	pl_even_leave(e, path);
}

/* Before each transmission; orders->cwnd is the window, orders->ssthresh ends a slow start. */
static __always_inline void pl_even_before_send(struct pl_even *e, struct pl_path *path, const struct pl_tcp *tcp,
						struct pl_orders *orders)
{
	__u32 cwnd = tcp->cwnd, part, most;

	if (pl_even_is_in(e, path))
		pl_even_advance(e, path, tcp);
	if (tcp->recovering) {
		e->cwnd = 0;
		return;
	}
	e->lost_segs = 0;
	if (tcp->app_limited) {
		pl_even_rest(e, path, tcp);
		return;
	}
	if (!pl_even_is_in(e, path))
		pl_even_join(e, path, tcp);
	else if (e->cwnd)
		pl_even_change(path, (__s32)(cwnd - e->cwnd));
	if (tcp->ssthresh <= cwnd)
		path->even_full = 1;
	part = pl_even_part(e, path, tcp->now_us);
	part += pl_even_catch_up(e, path, part);
	most = tcp->in_flight + PL_EVEN_STEP_SEGS;
	if (cwnd > part)
		cwnd = part;
	else if (cwnd < most)
		cwnd = most < part ? most : part;
	e->cwnd = cwnd;
	orders->cwnd = cwnd;
	if (path->even_full && tcp->ssthresh > cwnd)
		orders->ssthresh = cwnd;
}

/* A loss, at which the base reduces the window from `cwnd` to `ssthresh`. */
static __always_inline void pl_even_lost(struct pl_even *e, struct pl_path *path, __u32 cwnd, __u32 ssthresh)
{
	if (!pl_even_is_in(e, path))
		return;
	e->lost_segs = cwnd > ssthresh ? -pl_even_change(path, (__s32)(ssthresh - cwnd)) : 0;
	path->even_full = 1;
	e->cwnd = 0;
}

/* The loss was spurious. */
static __always_inline void pl_even_undo(struct pl_even *e, struct pl_path *path)
{
	if (pl_even_is_in(e, path))
		pl_even_change(path, (__s32)e->lost_segs);
	e->lost_segs = 0;
	e->cwnd = 0;
}

#endif

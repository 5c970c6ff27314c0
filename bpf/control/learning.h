/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT */
/*
 * An unknown path: its rate by the ACK spacing of the base's slow start, and its use in the
 * same burst.
 */
#ifndef PACELINE_LEARNING_H
#define PACELINE_LEARNING_H

#include "path.h"

/*
 * The rate sample of the block of ACKs that ends with this one. For ACKs that were held up on their way
 * and released together, the time of their transmission counts.
 *
 * A train begins with an empty queue: if its first ACK exceeds the minimum RTT, a busy host held it up,
 * or the segments before it that it also acknowledges were on the link. Then the spacing of the others
 * is too small. The rate since the first ACK's due time, with all of its segments, is too low if a
 * later ACK was held up. So the lower one of both rates counts.
 */
static __always_inline __u64 pl_block_rate(const struct pl_path *path, const struct pl_tcp *tcp, __u32 segs)
{
	__u64 took_us = tcp->now_us - path->block_us, due_us = took_us;

	if (path->block_rtt_us > path->min_rtt_us)
		due_us += path->block_rtt_us - path->min_rtt_us;
	if (tcp->rtt_us && path->block_rtt_us > tcp->rtt_us)
		took_us += path->block_rtt_us - tcp->rtt_us;
	/* Which rate is the lower one, without a division. */
	if (path->block_first && (segs + path->block_first) * took_us < segs * due_us) {
		segs += path->block_first;
		took_us = due_us;
	}
	return pl_rate(segs, tcp->mss, took_us);
}

/*
 * The segments of this block left faster than they arrived: the later ones waited longer, by half of the time
 * between their ACKs at least. After idle the kernel calls the whole first window app-limited, although a message
 * may have written it at once. Segments that the application wrote one by one have no queue.
 */
static __always_inline int pl_is_train(const struct pl_path *path, const struct pl_tcp *tcp)
{
	__u32 queued_us = tcp->rtt_us - pl_less(tcp->rtt_us, path->block_rtt_us);

	return path->block_rtt_us && 2 * queued_us >= tcp->now_us - path->block_us;
}

/*
 * Rate samples by the ACK spacing of all connections of a path together. On an unknown path a block
 * begins with a train of ACKs without a pause, and its size doubles each time; on a known one the blocks
 * follow each other. The fastest block of the largest size counts.
 */
static __always_inline void pl_see_arrivals(struct pl_start *s, struct pl_path *path, const struct pl_tcp *tcp,
					    int timely, __u32 pause_us)
{
	int paused = !path->block_us || tcp->now_us - path->acked_us > pause_us;
	__u32 segs = tcp->delivered_segs - s->seen_segs;
	__u64 rate;

	if (paused)
		path->block_first = !s->learning ? 0 : segs < 0xffff ? segs : 0xffff;
	pl_update_path(s, path, tcp, timely);
	path->acked_us = tcp->now_us;
	segs = path->acked_segs - path->block_from;
	if (!paused && (segs < path->block_segs || tcp->now_us - path->block_us < PL_BLOCK_MIN_US))
		return;
	if (paused) {
		path->block_segs = pl_amount(PL_BLOCK_MIN_SEGS / (1 + s->learning), tcp->mss);
	} else {
		rate = pl_block_rate(path, tcp, segs);
		if (tcp->app_limited && !pl_is_train(path, tcp))
			rate = 0;
		if (rate && path->block_segs > path->learned_segs) {
			path->learned_segs = path->block_segs;
			path->learned_bps = rate;
		} else if (path->block_segs == path->learned_segs && rate > path->learned_bps) {
			path->learned_bps = rate;
		}
		if (path->block_segs >= pl_amount(PL_BLOCK_MAX_SEGS, tcp->mss))
			path->block_first = 0;
		else
			path->block_segs *= 2;
		if (path->block_first)
			return;
	}
	path->block_us = tcp->now_us;
	path->block_rtt_us = tcp->rtt_us;
	path->block_from = path->acked_segs;
}

/* An unknown path: the spacing of its ACKs, and the delivery rate of one connection. */
static __always_inline void pl_learn(struct pl_start *s, struct pl_path *path, const struct pl_tcp *tcp)
{
	if (!tcp->app_limited && tcp->carried_segs > PL_LEAD_SEGS && tcp->carried_us >= path->min_rtt_us) {
		__u64 carried = pl_rate(tcp->carried_segs, tcp->mss, tcp->carried_us);

		if (carried > path->carried_bps)
			path->carried_bps = carried;
	}
	/* The path is full: data waits for cwnd and there is a queue, or it overflowed. */
	if ((tcp->unsent && tcp->rtt_us > path->min_rtt_us + path->min_rtt_us / 4) || s->overflowed)
		path->filled = 1;
	/*
	 * The ACK spacing of paced segments is that of the pacing. During a repair ACKs come in lumps,
	 * and an earlier train is the better sample.
	 */
	if (!s->rounds && (!s->overflowed || !pl_learned_long(path, tcp->mss)))
		pl_see_arrivals(s, path, tcp, 1, path->min_rtt_us / 8);
}

/*
 * The rate of an unknown path so far. Unless the path was full, the delivery rate of a connection is
 * limited by its application or its cwnd, and each of the others may have as much beside it.
 */
static __always_inline __u64 pl_learned(const struct pl_path *path)
{
	__u64 learned = path->learned_bps - (path->learned_bps >> 4);
	__u64 carried = path->carried_bps * (path->filled || path->learned_bps ? 1 : path->peak);

	return learned > carried ? learned : carried;
}

/* The end of a burst on an unknown path: the rate so far becomes the path's. */
static __always_inline void pl_keep_learned(struct pl_start *s, struct pl_path *path, const struct pl_tcp *tcp)
{
	__u64 learned = pl_learned(path);
	__u32 done = tcp->delivered_segs - s->delivered0;
	/* Twice the delivery rate of one connection, times their number. */
	__u64 most = 2 * path->carried_bps * (path->peak ? path->peak : 1);

	if (!s->learning || !learned)
		return;
	/* During a repair ACKs come in lumps, and a short block is a poor sample. */
	if (s->overflowed && !pl_learned_long(path, tcp->mss) && most && learned > most)
		learned = most;
	if (learned > path->rate_bps)
		path->rate_bps = learned;
	/* Of a message within the initial window the law saw only the last ACK. */
	if (!s->flight_segs && done <= PL_LEAD_SEGS)
		s->flight_segs = done;
	if (s->flight_segs > path->flight_segs)
		path->flight_segs = s->flight_segs;
	path->confirmed_us = tcp->now_us;
}

/*
 * After the first repaired loss on an unknown path, unless it is random. The loss ended the base's slow
 * start, usually long before the path is full, because its doubling window comes in bursts that overflow a
 * short queue. The path's rate is known by then, and cwnd is led to it in the following round trips, by small
 * steps, because cross traffic may need a part.
 */
static __always_inline void pl_lead_learning(struct pl_start *s, struct pl_path *path,
					     const struct pl_tcp *tcp, struct pl_orders *orders)
{
	__u32 most = tcp->cwnd + tcp->cwnd / PL_STEP;
	__u64 learned = pl_learned(path);
	__u32 window;

	if (tcp->recovering || !s->overflowed) {
		/* Once only: a second loss is due to cross traffic or a short queue. */
		s->rounds = s->rounds ? PL_LED : 0;
		return;
	}
	/* A path that the initial window fills needs no help. */
	if (pl_bdp_segs(learned, path->min_rtt_us, tcp->mss) <= PL_LEAD_SEGS)
		return;
	if (!s->rounds) {
		s->rounds = PL_ROUNDS + PL_LED;
		pl_begin_round(s, path, tcp);
		/* Without pacing cwnd would leave in bursts that overflow a short queue. */
		orders->pacing_bps = pl_rate(tcp->cwnd, tcp->mss, path->min_rtt_us);
		s->pacing = 1;
	}
	pl_note_rtt(s, tcp->rtt_us);
	if (s->rounds == PL_LED || (__s32)(tcp->una - s->round_end) < 0)
		return;
	s->rounds--;
	window = pl_start_window(learned, 1, path->min_rtt_us, tcp);
	if (window > most)
		window = most;
	if (window > tcp->cwnd &&
	    pl_queued(path, learned, tcp, s->round_rtt_us) < pl_own_queue(path, learned, tcp))
		orders->ssthresh = window;
	pl_begin_round(s, path, tcp);
}

#endif

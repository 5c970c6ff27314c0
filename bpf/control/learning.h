/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT */
/*
 * A path not yet known: what the ACKs of the base's own slow start say it carries, and
 * what is done with it in the same burst.
 */
#ifndef PACELINE_LEARNING_H
#define PACELINE_LEARNING_H

#include "path.h"

/*
 * What the block of ACKs says that ends with this one. ACKs that a queue on their way held up
 * and let go count as they were sent.
 *
 * Where a train begins nothing of ours waits in the path: what its first ACK took beyond the
 * minimum RTT, it was held up on its way, by a busy host, or the segments before it that it
 * acknowledges too were on the link. The others came closer to it than they were sent if they
 * were not held up as much. Counted from when it was due, with all its segments, what is held
 * up later makes a rate too low; so the lower of both counts.
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
 * Spacing of the ACKs of all connections on a path together. On a path not yet known blocks
 * begin with a train of ACKs that come without a pause, and are twice as long each time; on
 * one that is known they follow each other. Only the largest size seen counts, and of these
 * the best.
 */
static __always_inline void pl_see_arrivals(struct pl_start *s, struct pl_path *path, const struct pl_tcp *tcp,
					    int timely, __u32 pause_us)
{
	int paused = !path->block_us || tcp->now_us - path->acked_us > pause_us;
	__u32 segs = tcp->delivered_segs - s->seen_segs;
	__u64 rate;

	if (paused)
		path->block_first = !s->learning ? 0 : segs < 0xffff ? segs : 0xffff;
	pl_tell(s, path, tcp, timely);
	path->acked_us = tcp->now_us;
	segs = path->acked_segs - path->block_from;
	if (!paused && (segs < path->block_segs || tcp->now_us - path->block_us < PL_BLOCK_MIN_US))
		return;
	if (paused) {
		path->block_segs = pl_amount(PL_BLOCK_MIN_SEGS, tcp->mss);
	} else {
		rate = pl_block_rate(path, tcp, segs);
		if (path->block_segs > path->learned_segs) {
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

/* A path not yet known: the spacing of its ACKs, and what one connection carried. */
static __always_inline void pl_learn(struct pl_start *s, struct pl_path *path, const struct pl_tcp *tcp)
{
	if (!tcp->app_limited && tcp->carried_segs > PL_LEAD_SEGS && tcp->carried_us >= path->min_rtt_us) {
		__u64 carried = pl_rate(tcp->carried_segs, tcp->mss, tcp->carried_us);

		if (carried > path->carried_bps)
			path->carried_bps = carried;
	}
	/* What waits for the window, behind what waits in the path; or was lost there. */
	if ((tcp->unsent && tcp->rtt_us > path->min_rtt_us + path->min_rtt_us / 4) ||
	    tcp->retransmitted_segs != s->retransmitted0)
		path->filled = 1;
	/*
	 * Once it is paced, ACKs come as they are paced, and tell that and no more. While losses
	 * are repaired they come in lumps: a train of before tells more.
	 */
	if (!s->rounds && (tcp->retransmitted_segs == s->retransmitted0 || !pl_learned_long(path, tcp->mss)))
		/* A message now and then says how often the application sends, not what fits. */
		pl_see_arrivals(s, path, tcp, 1, tcp->app_limited ? 0 : path->min_rtt_us / 8);
}

/*
 * What the ACKs on a path not yet known said so far. Unless the path was full, what a
 * connection carried in a round trip is what it needed or had a window for: as much as each
 * of the others may carry beside it.
 */
static __always_inline __u64 pl_learned(const struct pl_path *path)
{
	__u64 learned = path->learned_bps - (path->learned_bps >> 4);
	__u64 carried = path->carried_bps * (path->filled || path->learned_bps ? 1 : path->peak);

	return learned > carried ? learned : carried;
}

/* The end of a burst on a path not yet known: what its ACKs said is the path's rate. */
static __always_inline void pl_keep_learned(struct pl_start *s, struct pl_path *path, const struct pl_tcp *tcp)
{
	__u64 learned = pl_learned(path);
	__u32 done = tcp->delivered_segs - s->delivered0;
	/* Twice what one connection carried in a round trip, times those that there were. */
	__u64 most = 2 * path->carried_bps * (path->peak ? path->peak : 1);

	if (!s->learning || !learned)
		return;
	/* While losses are repaired ACKs come in lumps, and a short block tells little. */
	if (tcp->retransmitted_segs != s->retransmitted0 && !pl_learned_long(path, tcp->mss) && most && learned > most)
		learned = most;
	if (learned > path->rate_bps)
		path->rate_bps = learned;
	/* Of a message that the initial window held no ACK was looked at before the last. */
	if (!s->flight_segs && done <= PL_LEAD_SEGS)
		s->flight_segs = done;
	if (s->flight_segs > path->flight_segs)
		path->flight_segs = s->flight_segs;
	path->confirmed_us = tcp->now_us;
}

/*
 * A path not yet known has lost something, and that is repaired: the base's slow start
 * is over, most often long before the path is full, because a window that doubles
 * comes in bursts that a short queue does not hold. What the path carries has been
 * seen by then: in the round trips that follow the window is led there, by small steps,
 * for others may need a part of it.
 */
static __always_inline void pl_lead_learning(struct pl_start *s, struct pl_path *path,
					     const struct pl_tcp *tcp, struct pl_orders *orders)
{
	__u32 most = tcp->cwnd + tcp->cwnd / PL_STEP;
	__u64 learned = pl_learned(path);
	__u32 window;

	if (tcp->recovering || tcp->retransmitted_segs == s->retransmitted0) {
		/* Once: who loses again has met others, or a short queue's end. */
		s->rounds = s->rounds ? PL_LED : 0;
		return;
	}
	/* A path that the initial window fills needs no help. */
	if (pl_bdp_segs(learned, path->min_rtt_us, tcp->mss) <= PL_LEAD_SEGS)
		return;
	if (!s->rounds) {
		s->rounds = PL_ROUNDS + PL_LED;
		pl_begin_round(s, path, tcp);
		/* Or the window would go on in bursts that a short queue does not hold. */
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

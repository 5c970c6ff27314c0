/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT */
/*
 * How a burst starts: pacing at start-up, after matsuda-2005, 3.2.
 *
 *            nothing in flight, target known,
 *            breaker closed, window below it
 *    IDLE ------------------------------------> PACED     sends at the target
 *     ^  \                                        |
 *     |   \ otherwise                             | first ACK
 *     |    v                                      v
 *     |   BASE <------------------------------ MEASURED   the paced train's
 *     |     |        whole train acknowledged             ACKs are measured
 *     +-----+ all acknowledged, nothing to send
 *
 * How it differs from the paper:
 * - Target `ssthresh` is the paper's: rate = ssthresh * MSS / RTT, started when
 *   nothing is in flight and cwnd < ssthresh, stopped at the first ACK. (The
 *   paper prints the target as "RTT/ssthresh": that is the gap between packets,
 *   as the sentence after it shows.)
 * - Target `delivery-rate` starts at what the path delivered. ssthresh falls
 *   with each loss and after idle says little about the path; the spacing of
 *   the ACKs of a paced train says what the path carried of it.
 *   A train leaves over a span S and its ACKs arrive over a span A. A path that
 *   has room keeps A = S; one that has not stretches it, and S/A of the rate is
 *   what it gave. A sender that had to wait for its application stretches both
 *   alike, so that idleness is never taken for congestion.
 *   A path with more room than was used does not show in S and A. So a start that
 *   is alone on its path has a probe: a few segments at twice the rate, few enough
 *   to add no more to a queue than the initial window that any TCP may send (RFC
 *   6928). The spacing of the probe's own ACKs says how far the target may go; it
 *   moves by a factor of two per start at most. One probe per RTT and path.
 * - The round trips after the start go on measuring, and lead the base's window to
 *   the path's: a start is too short to know a path to a few percent, and from a
 *   window 5 % below the path CUBIC takes seconds to fill it.
 * - The first segments, a TCP's initial window, are hardly paced: a short
 *   message must not wait for a pace that long ones need.
 * - A bottleneck may lie on the paths of hosts that do not see each other. Where starts
 *   lose, the path is wary for a while: a burst is spread over half a round trip, and
 *   what it loses is repaired at the path's rate (loss.h).
 * - The target belongs to a path (job, host and destination) and is divided by
 *   the connections in a burst on it: N that start at once send one path's rate.
 *   The first packet of each allows for as many as started together last time. Who
 *   has sent everything leaves its share to the others. They do not probe: each has
 *   a voice in what the path's rate is, and together they aim at a short queue.
 *
 * Integer arithmetic only; no clock, no kernel type, no allocation. The caller
 * passes in what it sees of the connection and applies the orders. Both path
 * and start must be protected from concurrent calls by the caller.
 */
#ifndef PACELINE_STARTUP_H
#define PACELINE_STARTUP_H

#include "path.h"
#include "begin.h"
#include "gaps.h"
#include "incast.h"
#include "judge.h"
#include "learning.h"
#include "loss.h"
#include "turns.h"
#include "wanted.h"

/* A short queue has no room for more, or what the last growth did is not seen yet. */
static __always_inline int pl_is_short_of_room(const struct pl_start *s, const struct pl_path *path,
					       const struct pl_tcp *tcp)
{
	return path->room_segs && (s->round_cwnd < tcp->cwnd || path->rate_bps * s->waited_us >=
								path->room_segs * tcp->mss * PL_USEC_PER_SEC);
}

/*
 * The window that one connection alone does not exceed where a short queue overflowed (loss.h). A
 * queue never overflows below the BDP: such a limit is of a path that carried less.
 */
static __always_inline __u32 pl_inflight_hi(const struct pl_path *path, const struct pl_tcp *tcp)
{
	__u32 least = pl_bdp_segs(path->rate_bps, path->min_rtt_us, tcp->mss), hi = path->inflight_hi;

	return hi | ~pl_mask(pl_more(hi, least) - least) | pl_mask(path->active >> 1);
}

/* What a window may grow by in a round trip where a queue is short: slow start sends two for each that arrived. */
static __always_inline __u32 pl_window_step(const struct pl_path *path, __u32 cwnd)
{
	return pl_more(path->room_segs, cwnd / PL_STEP);
}

/* The base goes on by its own slow start, to this connection's share of the path. */
static __always_inline void pl_lead_window(const struct pl_start *s, const struct pl_path *path,
					   const struct pl_tcp *tcp, struct pl_orders *orders)
{
	__u32 share = pl_share_window(path, tcp);
	__u32 most = pl_amount(PL_WARY_GROWTH_SEGS, tcp->mss) / pl_active(path);
	__u32 more = tcp->cwnd / PL_STEP, shorter = pl_mask(s->packet_segs);

	if (more > most)
		more = most;
	/* Whose rate was found among others, who may be gone. */
	if (path->wary && share < tcp->cwnd + more && !pl_is_short_of_room(s, path, tcp))
		share = tcp->cwnd + more;
	share = pl_less(share, pl_less(tcp->cwnd + pl_window_step(path, tcp->cwnd), pl_inflight_hi(path, tcp)) | ~shorter);
	if (share > tcp->cwnd)
		orders->ssthresh = share;
}

/*
 * A larger window is tried: a little larger, and of those that share a path, which have no
 * probe, the more the more this burst has found; the less, the longer the path stays wary.
 * Without branches, each of which the verifier follows to the end.
 */
static __always_inline void pl_grow_window(const struct pl_start *s, struct pl_path *path)
{
	__u64 found = path->window_bps - s->rate_bps;
	__u32 voices = pl_voices(s);

	found &= (found >> 63) - 1;
	found = found * (voices - 1) / (4 * voices * (1 + path->wary));
	path->window_bps += (path->window_bps / 64 + found) / voices;
}

/*
 * The round trips of a long burst after its start, which is too short to measure a
 * path to a few percent. Once the window fills the path, what a round trip delivers
 * is the path's rate. While next to nothing waits in it, that is a least value, and a
 * larger window is tried; with a window below what is known, a value to be believed
 * if it is larger by more than the ACKs jitter. The rate itself is never raised by
 * guess: what one burst tried, the next would start at.
 */
static __always_inline void pl_follow_round(struct pl_start *s, struct pl_path *path, const struct pl_tcp *tcp,
					    struct pl_orders *orders)
{
	__u32 segs = path->acked_segs - s->round_segs;
	__u32 active = pl_active(path);

	pl_note_rtt(s, tcp->rtt_us);
	if (!tcp->unsent)
		s->waited = 1;
	if ((__s32)(tcp->una - s->round_end) < 0)
		return;
	s->rounds--;
	if (tcp->recovering) {
		/* The path is full, and the base knows how to go on, if slowly: too slowly for those that wait. */
		pl_vote(s, path, path->rate_bps - path->rate_bps / 32, tcp->mss, 1);
		if (!path->wary)
			s->rounds = 0;
		pl_begin_round(s, path, tcp);
		return;
	}
	if (!s->waited && s->round_rtt_us) {
		__u64 rate = pl_rate(segs, tcp->mss, tcp->now_us - s->round_us);
		__u32 waiting = pl_waiting_segs(path->rate_bps / active, tcp, pl_amount(PL_PROBE_SEGS, tcp->mss));
		int full = pl_queued(path, path->rate_bps, tcp, s->round_rtt_us) >= pl_room(path, tcp->mss);
		/* With a window for more, and no receiver's window below it. */
		int filled = s->round_cwnd >= pl_start_window(path->rate_bps, active, path->min_rtt_us, tcp) &&
			     tcp->packets_out + waiting >= s->round_cwnd;

		/* A queue that was there before we came says nothing of what the path carries. */
		if (full ? !pl_others_queue(path, path->rate_bps, tcp) :
			   rate - (filled ? 0 : rate / 16) > path->rate_bps)
			pl_vote(s, path, rate < 2 * s->rate_bps ? rate : 2 * s->rate_bps, tcp->mss, PL_ROUND_VOICE);
		path->confirmed_us = tcp->now_us;
		if (!full) {
			if (path->window_bps < path->rate_bps)
				path->window_bps = path->rate_bps;
			/*
			 * Only after a whole round with the window that is tried already; the segment, or two of
			 * a large window, by which the rate has moved since are not that.
			 */
			if (s->round_cwnd + (s->round_cwnd + 255) / 256 >= pl_share_window(path, tcp) &&
			    path->window_bps < rate + rate / 16)
				pl_grow_window(s, path);
			pl_lead_window(s, path, tcp, orders);
		}
	}
	pl_begin_round(s, path, tcp);
}

/*
 * One paced packet must not hold more than a short queue: the window ends there, and the pacing
 * timer asks again. The stack sends less than it would only within half a round trip of the
 * oldest segment on its way, or where that is a third of the window (tcp_tso_should_defer), and
 * waits for the first ACK otherwise. So later packets are half of what is on its way, as long
 * as no more of that can wait than the queue holds; or what the stack makes, where the round
 * trip is not short and that is no large part of it.
 */
static __always_inline __u32 pl_packet_end(const struct pl_start *s, const struct pl_path *path,
					   const struct pl_tcp *tcp, __u32 window)
{
	__u32 packet = path->room_segs, half = (tcp->packets_out + 1) / 2;

	if (path->min_rtt_us >= PL_NEAR_US && tcp->packets_out >= window / 2)
		return window;
	if (s->packet_segs && half > packet && half <= PL_PASSES * packet)
		packet = half;
	return window < tcp->packets_out + packet ? window : tcp->packets_out + packet;
}

/* A transmission that is not paced by the path's rate. Returns 0: it is. */
static __always_inline int pl_send_otherwise(struct pl_start *s, struct pl_path *path, const struct pl_policy *policy,
					     const struct pl_tcp *tcp, struct pl_orders *orders, __u32 n)
{
	if (s->waits)
		return 1;
	if (s->gapped) {
		pl_gap_send(s, policy, tcp, orders);
		return 1;
	}
	if (s->spread_segs) {
		if (n - (tcp->retransmitted_segs - s->retransmitted0) >= s->spread_segs ||
		    tcp->now_us > s->spread_until_us)
			pl_incast_end(s, tcp, orders);
		else
			pl_incast_send(s, tcp, orders);
		return 1;
	}
	if (tcp->recovering) {
		s->state = PL_START_MEASURED;
		s->paced_segs = n;
		s->paced_end = tcp->nxt;
		return 1;
	}
	if (policy->target == PL_TARGET_SSTHRESH) {
		orders->pacing_bps = s->rate_bps;
		orders->cwnd = s->base_cwnd;
		s->share_bps = s->rate_bps;
		return 1;
	}
	return 0;
}

/* The connection's share of the path at its `n`th segment. Returns among how many it is divided. */
static __always_inline __u32 pl_take_share(struct pl_start *s, struct pl_path *path, const struct pl_tcp *tcp, __u32 n)
{
	__u32 active;

	if (!pl_on_path(s, path))
		pl_join_path(s, path, tcp);
	active = path->active;
	/* Those that started together last time are about to: leave them room. */
	if (!n && !s->leading && active < path->expected)
		active = path->expected;
	if (!n || s->together < path->active)
		s->together = path->active;
	s->share_bps = s->rate_bps / active;
	/* With this packet all is sent, and the share is free for the others. */
	if (n >= pl_probe_from(tcp->mss) && tcp->unsent <= pl_packet_segs(s->share_bps, tcp) * tcp->mss)
		pl_leave_path(s, path);
	if (!n && tcp->now_us - path->lead_us > path->min_rtt_us) {
		/* Nobody else's lead and probe are on their way. */
		s->leading = 1;
		s->slow = active == 1 && pl_bdp_segs(s->share_bps, path->min_rtt_us, tcp->mss) < pl_whole_start(tcp->mss);
		s->probing = !s->slow && !pl_cautious(path, tcp->mss);
		path->lead_us = tcp->now_us;
	}
	return active;
}

/* Pace and window of a packet behind lead and what comes in front of the probe. */
static __always_inline void pl_pace_window(struct pl_start *s, const struct pl_path *path, const struct pl_tcp *tcp,
					   struct pl_orders *orders, __u32 active)
{
	__u32 window = pl_proven_window(path, s->rate_bps, active, tcp);

	orders->pacing_bps = s->share_bps;
	if (path->lead_rtt_us > 2 * path->min_rtt_us) {
		/*
		 * Others keep a queue there that is longer than the path. What is paced among their
		 * packets gets half of the path at best, and such a queue has room for a burst; a
		 * fair share is half of what is in flight.
		 */
		__u32 fair = pl_start_window(s->rate_bps / 2, active, path->lead_rtt_us, tcp);

		orders->pacing_bps = PL_BESIDE_SPEEDUP * s->share_bps;
		if (window < fair)
			window = fair;
	}
	orders->cwnd = window > s->base_cwnd ? window : s->base_cwnd;
	orders->cwnd = pl_less(orders->cwnd, pl_inflight_hi(path, tcp) | ~pl_mask(s->packet_segs));
	/* A slow path may not be one for long: the base's slow start finds out. */
	if (!s->slow || path->wary)
		orders->ssthresh = orders->cwnd;
	if (s->packet_segs || (path->room_segs && path->min_rtt_us < PL_SHORTENED_US))
		orders->cwnd = pl_packet_end(s, path, tcp, orders->cwnd);
}

/* A packet of a paced start, `n` segments after its first. */
static __always_inline void pl_send_paced(struct pl_start *s, struct pl_path *path, const struct pl_tcp *tcp,
					  struct pl_orders *orders, __u32 n)
{
	__u32 active = pl_take_share(s, path, tcp, n);

	/*
	 * One TSO packet must not hold more than the lead, or than the probe: the
	 * window ends there, and the pacing timer asks again.
	 */
	if (s->leading && n < PL_LEAD_SEGS) {
		/* A start that is spread is so because of what leads together do. A short queue holds one lead. */
		orders->pacing_bps = s->rate_bps * (s->rate_bps < path->rate_bps || path->room_segs ? 1 : PL_LEAD_SPEEDUP);
		orders->cwnd = PL_LEAD_SEGS;
		return;
	}
	if (s->probing && active == 1 && n < pl_probe_from(tcp->mss)) {
		orders->pacing_bps = s->share_bps;
		orders->cwnd = pl_probe_from(tcp->mss);
		return;
	}
	pl_pace_window(s, path, tcp, orders, active);
	if (!s->led) {
		s->led = 1;
		s->starts++;
	}
	if (s->probing && active == 1 && n >= pl_probe_from(tcp->mss) && n < pl_train_from(tcp->mss)) {
		orders->pacing_bps = 2 * s->share_bps;
		orders->cwnd = pl_train_from(tcp->mss);
		return;
	}
	/* Of many each sends little: all but its first packet counts. */
	if (n < (s->probing ? pl_train_from(tcp->mss) : active > 1 ? 2 : PL_LEAD_SEGS))
		return;
	if (!s->first_us) {
		s->first_us = tcp->now_us;
		s->first_segs = n;
	}
	s->last_us = tcp->now_us;
	s->last_segs = n;
}

/*
 * Called before each transmission, with what the connection looks like now.
 * Decides whether a start begins, and what pace and window the next packet has.
 */
static __always_inline void pl_start_before_send(struct pl_start *s, struct pl_path *path,
						 const struct pl_policy *policy, const struct pl_tcp *tcp,
						 struct pl_orders *orders)
{
	/* Of a message that is spread each segment may have arrived before the next one leaves. */
	int within = (s->state == PL_START_PACED && s->sent0 == tcp->sent_segs) ||
		     ((s->spread_segs || s->waits || s->turn) && tcp->unsent);
	__u32 n;

	if (!pl_wants_send(s, tcp->packets_out, tcp->repairing))
		return;
	pl_see_first_rtt(path, tcp);
	if (s->state == PL_START_MEASURED && tcp->packets_out) {
		if (policy->target == PL_TARGET_DELIVERY_RATE)
			pl_repair(s, path, tcp, orders);
		return;
	}
	if (!tcp->packets_out && !within) {
		/* The pacing timer asks once more after the last packet. */
		if (!tcp->unsent || !pl_start_burst(s, path, policy, tcp, orders))
			return;
	}
	if (s->state != PL_START_PACED)
		return;
	n = tcp->sent_segs - s->sent0;
	if (!pl_send_otherwise(s, path, policy, tcp, orders, n))
		pl_send_paced(s, path, tcp, orders, n);
}

/*
 * The window for a transmission that is not paced: while it is led on a path with a short queue,
 * or the initial window nearly fills the path, the base's own growth goes no further than the
 * queue holds, for it does not look at that.
 */
static __always_inline __u32 pl_led_window(const struct pl_start *s, __u32 cwnd, __u32 ssthresh)
{
	/* A window that nothing waits of is too small: the path carries more than it did. */
	if (s->held_segs && cwnd > s->held_segs && 2 * s->waited_us >= s->min_rtt_us)
		return s->held_segs;
	return s->packet_segs && s->rounds && s->state == PL_START_BASE && cwnd > ssthresh ? ssthresh : cwnd;
}

/* Who has nothing to send needs no share, nor who may not: its receiver's window is closed. */
static __always_inline void pl_keep_share(struct pl_start *s, struct pl_path *path, const struct pl_tcp *tcp)
{
	if (s->learning)
		return;
	if (!tcp->unsent || !tcp->packets_out)
		pl_leave_path(s, path);
	else if (!pl_on_path(s, path))
		pl_join_path(s, path, tcp);
}

/* The first ACK of a paced start: from here on its train is measured. */
static __always_inline void pl_end_paced(struct pl_start *s, struct pl_path *path, const struct pl_policy *policy,
					 const struct pl_tcp *tcp, struct pl_orders *orders)
{
	__u32 shorter;

	s->state = PL_START_MEASURED;
	s->paced_segs = tcp->sent_segs - s->sent0;
	s->paced_end = tcp->nxt;
	/* Nobody's on this path was in front of the first one's first segment. */
	if (s->leading || s->together == 1)
		path->lead_rtt_us = tcp->rtt_us;
	if (policy->target == PL_TARGET_SSTHRESH) {
		orders->stop = 1;
		s->pacing = 0;
	} else if (!s->led && tcp->cwnd < s->base_cwnd) {
		/* A burst no longer than its lead leaves the base's window. */
		orders->cwnd = s->base_cwnd;
	}
	orders->settled |= s->led;
	/* What is not paced comes in shorter packets: from here the ACKs keep time. */
	shorter = pl_mask(s->packet_segs) & pl_mask(s->led);
	orders->cwnd |= pl_less(tcp->cwnd, s->paced_segs) & shorter;
	orders->ssthresh |= pl_less(tcp->ssthresh, s->paced_segs + pl_window_step(path, s->paced_segs)) & shorter;
	orders->stop |= shorter & 1;
	s->pacing &= ~shorter;
}

/* An ACK of a paced train, of which `done` segments have arrived; `over`: it was the last. */
static __always_inline void pl_measure(struct pl_start *s, struct pl_path *path, const struct pl_policy *policy,
				       const struct pl_tcp *tcp, struct pl_orders *orders, __u32 done, int over)
{
	pl_judge_lead(s, path, tcp, done);
	pl_see_probe(s, path, tcp, done);
	if (s->first_us && !s->train_acked_us && done >= s->first_segs) {
		s->train_acked_us = tcp->now_us;
		s->train_acked_segs = tcp->delivered_segs;
	}
	pl_note_train_rtt(s, done, tcp->rtt_us);
	/* Under loss, half of the train is enough, and the rest may not come. */
	if (done >= s->last_segs || (tcp->recovering && done >= s->last_segs / 2))
		pl_judge_rate(s, path, tcp, tcp->recovering);
	if ((__s32)(tcp->una - s->paced_end) < 0 && !over)
		return;
	pl_believe_lead(s, path, tcp);
	pl_judge_loss(s, path, policy, tcp);
	s->state = PL_START_BASE;
	if (s->drained && !tcp->recovering && path->rate_bps >= s->rate_bps)
		pl_lead_window(s, path, tcp, orders);
	s->rounds = path->wary ? PL_WARY_ROUNDS : s->rated ? PL_ROUNDS : 0;
	pl_begin_round(s, path, tcp);
}

/*
 * From here the ACKs keep time, once they carry the whole window and that is what
 * it was led to. Where the receiver's window is still opening they do not: what it
 * releases at once is more than the path takes. Nor where the base's slow start
 * sends two packets for each that arrived, of 64 KB each with TSO. So the pace (now
 * the kernel's, 1.2 cwnd/srtt) stays until then.
 */
static __always_inline void pl_end_pacing(struct pl_start *s, const struct pl_tcp *tcp, struct pl_orders *orders)
{
	int growing = !s->slow && (orders->ssthresh || tcp->cwnd < tcp->ssthresh);

	if (s->pacing && s->state == PL_START_BASE && !(s->learning && s->rounds > PL_LED) &&
	    ((tcp->packets_out + pl_amount(PL_PROBE_SEGS, tcp->mss) >= tcp->cwnd && !growing) || !tcp->unsent || tcp->recovering)) {
		orders->stop = 1;
		s->pacing = 0;
	}
}

/* Called for each ACK, after the counters in `tcp` were brought up to date. */
static __always_inline void pl_start_on_ack(struct pl_start *s, struct pl_path *path,
					    const struct pl_policy *policy, const struct pl_tcp *tcp,
					    struct pl_orders *orders)
{
	__u32 done = tcp->delivered_segs - s->delivered0;
	int over = !tcp->packets_out && !tcp->unsent;

	pl_see_rtt(path, tcp->rtt_us, tcp->now_us);
	if (!s->learning && (over || pl_tells(s, tcp->delivered_segs, tcp->una)))
		pl_see_arrivals(s, path, tcp, pl_is_telling(s), path->min_rtt_us / 2);
	if (tcp->rtt_us && (!s->min_rtt_us || tcp->rtt_us < s->min_rtt_us))
		s->min_rtt_us = tcp->rtt_us;
	/* The final ACK may be a delayed one. */
	if (tcp->rtt_us && !(s->gapped && over))
		s->waited_us = pl_more(pl_more(tcp->rtt_us, s->most_rtt_us & pl_mask(s->packet_segs)), path->min_rtt_us) - path->min_rtt_us;
	pl_keep_share(s, path, tcp);
	if (s->spread_segs) {
		if (!tcp->unsent)
			pl_incast_end(s, tcp, orders);
	} else if (s->gapped && s->state == PL_START_PACED) {
		pl_gap_on_ack(s, path, policy, tcp);
		if (over)
			pl_gap_end(s, tcp, orders);
	} else if (s->state == PL_START_PACED && done && !s->waits) {
		pl_end_paced(s, path, policy, tcp, orders);
	}
	if (s->state == PL_START_MEASURED) {
		pl_measure(s, path, policy, tcp, orders, done, over);
	} else if (s->state == PL_START_BASE && s->learning) {
		if (!over && !s->gapped)
			s->went_us = tcp->now_us;
		pl_learn(s, path, tcp);
		if (tcp->packets_out > s->flight_segs && tcp->retransmitted_segs == s->retransmitted0)
			s->flight_segs = tcp->packets_out;
		pl_lead_learning(s, path, tcp, orders);
	} else if (s->state == PL_START_BASE && s->rounds) {
		pl_follow_round(s, path, tcp, orders);
	}
	pl_end_pacing(s, tcp, orders);
	if (over) {
		pl_keep_learned(s, path, tcp);
		pl_leave_path(s, path);
		s->state = PL_START_IDLE;
		if (s->pacing)
			orders->stop = 1;
		s->pacing = 0;
	}
}

#endif

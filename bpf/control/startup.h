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
 * - Target `delivery-rate` starts at the path's delivery rate. ssthresh falls with
 *   each loss and after idle is no estimate of the path; the ACK spacing of a paced
 *   train is a rate sample.
 *   A train leaves over a span S and its ACKs arrive over a span A. A path with
 *   room has A = S; a full path stretches the train, and S/A of the rate is its
 *   delivery rate. An app-limited sender stretches both spans alike, so idle time
 *   does not look like congestion.
 *   S and A do not show unused bandwidth. So a start that is alone on its path has
 *   a probe: a few segments at twice the rate, which add no more to a queue than
 *   the initial window of any TCP (RFC 6928). The spacing of the probe's ACKs bounds
 *   the new rate, which is at most doubled per start. One probe per RTT and path.
 * - The round trips after the start continue the measurement, and lead the base's
 *   cwnd to the path's: a start is too short for a precision of a few percent, and from
 *   a cwnd 5 % too small CUBIC takes seconds to fill the path.
 * - The first segments, a TCP's initial window, are hardly paced: pacing would delay
 *   short messages.
 * - Hosts that do not see each other may share a bottleneck. After lossy starts the path
 *   is wary: the next bursts are spread over half a round trip, and losses are repaired
 *   at the path's rate (loss.h).
 * - The target belongs to a path (job, host and destination) and is divided by the
 *   connections in a burst on it: N connections that start at once send at one path's
 *   rate. The first packet of each assumes as many as started together last time. A
 *   connection without unsent data leaves its share to the others. Shared starts have
 *   no probe: each rate sample has the weight 1/N, and together they aim at a short queue.
 *
 * Integer arithmetic only; no clock, no kernel type, no allocation. The caller passes in
 * its view of the connection and applies the orders. It must protect both path and start
 * from concurrent calls.
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
#include "min_rtt.h"
#include "refill.h"
#include "turns.h"
#include "wanted.h"

/* A short queue is in use, or the last growth of cwnd is not measured yet. */
static __always_inline int pl_is_short_of_room(const struct pl_start *s, const struct pl_path *path,
					       const struct pl_tcp *tcp)
{
	return path->room_segs && (s->round_cwnd < tcp->cwnd || path->rate_bps * s->waited_us >=
								path->room_segs * tcp->mss * PL_USEC_PER_SEC);
}

/*
 * inflight_hi: the largest window of a connection alone where a short queue overflowed (loss.h). A queue
 * does not overflow below the BDP: a smaller limit belongs to the time when the path was slower. Beyond the BDP a
 * TSO packet needs room in the window, which the stack fills with at most a third of the window
 * (tcp_tso_win_divisor): without it the path idles before each packet.
 */
static __always_inline __u32 pl_inflight_hi(const struct pl_path *path, const struct pl_tcp *tcp)
{
	__u32 least = pl_bdp_segs(path->rate_bps, path->min_rtt_us, tcp->mss), hi = path->inflight_hi;

	return pl_more(hi, least + pl_less(tcp->gso_segs, least / 2)) | ~pl_mask(pl_more(hi, least) - least) |
	       pl_mask(path->active >> 1);
}

/* Growth per round trip where a queue is short: slow start sends two segments for each delivered one. */
static __always_inline __u32 pl_window_step(const struct pl_path *path, __u32 cwnd)
{
	return pl_more(path->room_segs, cwnd / PL_STEP);
}

/* Sets ssthresh, up to which the base's slow start grows: this connection's share of the path. */
static __always_inline void pl_lead_window(const struct pl_start *s, const struct pl_path *path,
					   const struct pl_tcp *tcp, struct pl_orders *orders)
{
	__u32 share = pl_share_window(path, tcp);
	__u32 most = pl_amount(PL_WARY_GROWTH_SEGS, tcp->mss) / pl_active(path);
	__u32 more = tcp->cwnd / PL_STEP;

	if (more > most)
		more = most;
	/* The cross traffic of the rate sample may be gone. */
	if (path->wary && share < tcp->cwnd + more && !pl_is_short_of_room(s, path, tcp))
		share = tcp->cwnd + more;
	share = pl_less(share, (tcp->cwnd + pl_window_step(path, tcp->cwnd)) | ~pl_mask(s->packet_segs));
	share = pl_less(share, pl_inflight_hi(path, tcp) | ~pl_mask(s->capped));
	if (share > tcp->cwnd)
		orders->ssthresh = share;
}

/*
 * Probes for bandwidth by a slightly larger window. Connections that share a path have no probe, so they
 * add a part of this burst's gain; less on a wary path. Without branches, which cost the
 * verifier states.
 */
static __always_inline void pl_grow_window(const struct pl_start *s, struct pl_path *path)
{
	__u64 found = path->window_bps - s->rate_bps;
	__u32 sharers = pl_sharers(s);

	found &= (found >> 63) - 1;
	found = found * (sharers - 1) / (4 * sharers * (1 + path->wary));
	path->window_bps += (path->window_bps / 64 + found) / sharers;
}

/*
 * The round trips of a long burst after its start. Once cwnd fills the path, the delivery
 * rate of a round trip is a sample of the path's rate. Without a queue it is a lower bound,
 * and a larger cwnd is tried; with a cwnd below the path's BDP it counts only if it exceeds
 * the rate by more than ACK jitter. The rate itself is raised by samples only: the next burst
 * starts at it.
 */
static __always_inline void pl_follow_round(struct pl_start *s, struct pl_path *path, const struct pl_tcp *tcp,
					    struct pl_orders *orders)
{
	__u32 segs = path->acked_segs - s->round_segs;
	__u32 active = pl_active(path);
	int holds;

	pl_note_rtt(s, tcp->rtt_us);
	if (!tcp->unsent)
		s->waited = 1;
	if ((__s32)(tcp->una - s->round_end) < 0)
		return;
	/*
	 * Alone at a short queue that it fills, only round trips with losses count: the base would grow until the
	 * queue overflows. With many losses other flows share it, and the base competes as it does elsewhere.
	 */
	holds = s->capped && pl_is_short_alone(path) &&
		pl_queued(path, path->rate_bps, tcp, s->most_rtt_us) >= pl_room(path, tcp->mss);
	s->rounds -= (!holds) | tcp->recovering;
	if (pl_lost_much(tcp->retransmitted_segs - s->retransmitted0, tcp->sent_segs - s->sent0))
		s->overflowed = 1;
	if (tcp->recovering && s->overflowed) {
		/* The path is full, and the base recovers by itself; on a wary path that is too slow. */
		pl_take_sample(s, path, path->rate_bps - path->rate_bps / 32, tcp->mss, 1);
		if (!path->wary && !holds)
			s->rounds = 0;
		pl_begin_round(s, path, tcp);
		return;
	}
	if (!s->waited && s->round_rtt_us) {
		__u64 rate = pl_rate(segs, tcp->mss, tcp->now_us - s->round_us);
		__u32 waiting = pl_waiting_segs(path->rate_bps / active, tcp, pl_amount(PL_PROBE_SEGS, tcp->mss));
		int full = pl_queued(path, path->rate_bps, tcp, s->round_rtt_us) >= pl_room(path, tcp->mss);
		/* cwnd was in use, and the receiver's window is not below it. */
		int filled = s->round_cwnd >= pl_start_window(path->rate_bps, active, path->min_rtt_us, tcp) &&
			     tcp->packets_out + waiting >= s->round_cwnd;

		/* The standing queue of other flows is no sample of the path's rate. */
		if (full ? !path->contended && !(path->peak > 1 && pl_others_queue(path, path->rate_bps, tcp)) :
			   rate - (filled ? 0 : rate / 16) > path->rate_bps)
			pl_take_sample(s, path, rate < 2 * s->rate_bps ? rate : 2 * s->rate_bps, tcp->mss, PL_ROUND_WEIGHT);
		path->confirmed_us = tcp->now_us;
		if (!full) {
			if (path->window_bps < path->rate_bps)
				path->window_bps = path->rate_bps;
			/*
			 * Only after a whole round with the window on trial. The rate may have moved the share by
			 * a segment meanwhile, or two of a large window.
			 */
			if (s->round_cwnd + (s->round_cwnd + 255) / 256 >= pl_share_window(path, tcp) &&
			    path->window_bps < rate + rate / 16)
				pl_grow_window(s, path);
			pl_lead_window(s, path, tcp, orders);
		} else if (path->contended) {
			orders->ssthresh = tcp->cwnd + tcp->cwnd / PL_STEP;
		}
	}
	pl_begin_round(s, path, tcp);
}

/*
 * A paced packet must not be longer than a short queue: cwnd ends with it, and the pacing timer
 * calls again. The stack sends less than a full TSO packet only within half an RTT of the oldest
 * segment in flight, or if that is a third of the window, and otherwise defers until the first ACK
 * (tcp_tso_should_defer). So later packets are full, or half of the inflight, as long as the queue holds
 * the part of it that can wait; at a long RTT, where a full packet is a small part of the
 * window, they are full packets. In a start too short for a probe, before the queue is known, they are
 * half of the inflight: a full packet can be the rest of a message, and its loss is repaired by a timer.
 */
static __always_inline __u32 pl_packet_end(const struct pl_start *s, const struct pl_path *path,
					   const struct pl_tcp *tcp, __u32 window)
{
	__u32 packet = path->room_segs, half = (tcp->packets_out + 1) / 2;
	__u32 passes = pl_less(half, pl_gso_segs(pl_device_packet(path, tcp), tcp->device_segs, path->min_rtt_us));

	if (path->min_rtt_us >= PL_NEAR_US && tcp->packets_out >= window / 2)
		return window;
	if (!packet)
		packet = half;
	else if (s->packet_segs && passes > packet && passes <= PL_PASSES * packet)
		packet = passes;
	return window < tcp->packets_out + packet ? window : tcp->packets_out + packet;
}

/* A transmission of a burst that is not paced at the path's rate. Returns 0 if it is. */
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

/* The connection's share of the path at its `n`th segment. Returns the number of shares. */
static __always_inline __u32 pl_take_share(struct pl_start *s, struct pl_path *path, const struct pl_tcp *tcp, __u32 n)
{
	__u32 active;

	if (!pl_on_path(s, path))
		pl_join_path(s, path, tcp);
	active = path->active;
	/* As many as last time are about to start. */
	if (!n && !s->leading && active < path->expected)
		active = path->expected;
	if (!n || s->together < path->active)
		s->together = path->active;
	s->share_bps = s->rate_bps / active;
	/* With this packet all data is sent, and the share is free for the others. */
	if (n >= pl_probe_from(tcp->mss) && tcp->unsent <= pl_packet_segs(s->share_bps, tcp) * tcp->mss)
		pl_leave_path(s, path);
	if (!n && tcp->now_us - path->lead_us > path->min_rtt_us) {
		/* No other lead and probe are in flight on this path. */
		s->leading = 1;
		s->slow = active == 1 && pl_bdp_segs(s->share_bps, path->min_rtt_us, tcp->mss) < pl_whole_start(tcp->mss);
		s->probing = !s->slow && !pl_cautious(path, tcp->mss);
		path->lead_us = tcp->now_us;
	}
	return active;
}

/* Pacing rate and cwnd of a packet after lead and probe. */
static __always_inline void pl_pace_window(struct pl_start *s, const struct pl_path *path, const struct pl_tcp *tcp,
					   struct pl_orders *orders, __u32 active, __u32 n)
{
	__u32 window = pl_proven_window(path, s->rate_bps, active, tcp);

	orders->pacing_bps = s->share_bps;
	if (path->lead_rtt_us > 2 * path->min_rtt_us) {
		/*
		 * Other flows keep a standing queue longer than the RTT. Paced among their packets, a burst
		 * gets half of the path at best, and such a queue has room for a burst; the fair share is
		 * half of the inflight.
		 */
		__u32 fair = pl_start_window(s->rate_bps / 2, active, path->lead_rtt_us, tcp);

		orders->pacing_bps = PL_BESIDE_SPEEDUP * s->share_bps;
		if (window < fair)
			window = fair;
	} else if (path->contended) {
		/* The share is a rate, and each round trip takes as long as their queue makes it. */
		window = pl_more(window, pl_start_window(s->rate_bps, active, path->lead_rtt_us, tcp));
	}
	/* Not less than the base has, but where the windows of all are longer than path and queue. */
	orders->cwnd = pl_more(window, s->base_cwnd & (pl_is_volley(path, active) - 1));
	orders->cwnd = pl_less(orders->cwnd, pl_inflight_hi(path, tcp) | ~pl_mask(s->capped));
	/* A slow path may become faster: the base's slow start finds out. */
	if (!s->slow || path->wary)
		orders->ssthresh = orders->cwnd;
	if (s->packet_segs || (path->room_segs ? path->min_rtt_us < PL_SHORTENED_US : s->slow))
		orders->cwnd = pl_packet_end(s, path, tcp, orders->cwnd);
	/*
	 * Connections that start at once would go on in step, and a packet of each would meet in the queue. So
	 * their second packets are spread over the time between two packets of one.
	 */
	if (!n && active > 1) {
		orders->pacing_bps = orders->pacing_bps * active / (active + path->active);
		/* Their first packets do meet. Not where the first ACK may come before the second packet. */
		if (pl_is_volley(path, active) && window >= 4 && tcp->unsent > tcp->mss)
			orders->cwnd = 1;
	}
}

/* A packet of a paced start, `n` segments after its first. */
static __always_inline void pl_send_paced(struct pl_start *s, struct pl_path *path, const struct pl_tcp *tcp,
					  struct pl_orders *orders, __u32 n)
{
	__u32 active = pl_take_share(s, path, tcp, n);

	/*
	 * A TSO packet must not extend beyond the lead, or the probe: cwnd ends there, and
	 * the pacing timer calls again.
	 */
	if (s->leading && n < PL_LEAD_SEGS && !pl_is_volley(path, active)) {
		/* No speed-up where leads of many connections overflow a queue together, nor in a short queue. */
		orders->pacing_bps = s->rate_bps * (s->rate_bps < path->rate_bps || path->room_segs ? 1 : PL_LEAD_SPEEDUP);
		orders->cwnd = PL_LEAD_SEGS;
		return;
	}
	if (s->probing && active == 1 && n < pl_probe_from(tcp->mss)) {
		orders->pacing_bps = s->share_bps;
		orders->cwnd = pl_probe_from(tcp->mss);
		return;
	}
	pl_pace_window(s, path, tcp, orders, active, n);
	if (!s->led) {
		s->led = 1;
		s->starts++;
	}
	if (s->probing && active == 1 && n >= pl_probe_from(tcp->mss) && n < pl_train_from(tcp->mss)) {
		orders->pacing_bps = 2 * s->share_bps;
		orders->cwnd = pl_train_from(tcp->mss);
		return;
	}
	/* Each of several connections sends little: all but its first packet is its train. */
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
 * Called before each transmission. Decides whether a start begins, and sets pacing rate and
 * cwnd for the next packet.
 */
static __always_inline void pl_start_before_send(struct pl_start *s, struct pl_path *path,
						 const struct pl_policy *policy, const struct pl_tcp *tcp,
						 struct pl_orders *orders)
{
	/* Each segment of a spread message may be acknowledged before the next one leaves. */
	int within = (s->state == PL_START_PACED && s->sent0 == tcp->sent_segs) ||
		     ((s->spread_segs || s->waits || s->turn) && tcp->unsent);
	__u32 n;

	if (!pl_wants_send(s, tcp->packets_out, tcp->repairing)) {
		if (pl_wants_refill(s, tcp->app_limited, tcp->cwnd, tcp->in_flight, tcp->unsent, tcp->mss))
			pl_refill(s, path, policy, tcp, orders);
		return;
	}
	pl_see_first_rtt(path, tcp);
	if (s->state == PL_START_MEASURED && tcp->packets_out) {
		if (policy->target == PL_TARGET_DELIVERY_RATE)
			pl_repair(s, path, tcp, orders);
		return;
	}
	if (!tcp->packets_out && !within) {
		/* The pacing timer fires once more after the last packet. */
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
 * The cwnd of a transmission without pacing: where a queue is short, or the initial window nearly fills
 * the path, it limits the base's own growth, which does not regard the queue.
 */
static __always_inline __u32 pl_led_window(const struct pl_start *s, __u32 cwnd, __u32 ssthresh)
{
	/* Without a queue of its own the limit is too small: the path has become faster, or longer. */
	if (s->held_segs && cwnd > s->held_segs && s->queueing)
		return s->held_segs;
	return s->capped && s->rounds && s->state == PL_START_BASE && cwnd > ssthresh ? ssthresh : cwnd;
}

/* A connection without unsent data, or with a closed receive window, leaves its share. */
static __always_inline void pl_keep_share(struct pl_start *s, struct pl_path *path, const struct pl_tcp *tcp)
{
	if (s->learning)
		return;
	if (!tcp->unsent || !tcp->packets_out)
		pl_leave_path(s, path);
	else if (!pl_on_path(s, path))
		pl_join_path(s, path, tcp);
}

/* The first ACK of a paced start: pacing ends, and the train is measured. */
static __always_inline void pl_end_paced(struct pl_start *s, struct pl_path *path, const struct pl_policy *policy,
					 const struct pl_tcp *tcp, struct pl_orders *orders)
{
	__u32 shorter;

	s->state = PL_START_MEASURED;
	s->paced_segs = tcp->sent_segs - s->sent0;
	s->paced_end = tcp->nxt;
	/* The first segment of the first start had no other one of this path in front of it. */
	if (s->leading || s->together == 1)
		path->lead_rtt_us = tcp->rtt_us;
	if (policy->target == PL_TARGET_SSTHRESH) {
		orders->stop = 1;
		s->pacing = 0;
	} else if (!s->led && tcp->cwnd < s->base_cwnd) {
		/* A burst within its lead keeps the base's cwnd. */
		orders->cwnd = s->base_cwnd;
	}
	orders->settled |= s->led;
	/* Shorter packets are not paced: from here on the ACK clock paces. */
	shorter = pl_mask(s->packet_segs) & pl_mask(s->led);
	orders->cwnd |= pl_less(tcp->cwnd, s->paced_segs) & shorter;
	orders->ssthresh |= pl_less(tcp->ssthresh, s->paced_segs + pl_window_step(path, s->paced_segs)) & shorter;
	orders->stop |= shorter & 1;
	s->pacing &= ~shorter;
}

/* An ACK of a burst whose train is measured; `done` segments of it are delivered; `over`: all are. */
static __always_inline void pl_measure(struct pl_start *s, struct pl_path *path, const struct pl_policy *policy,
				       const struct pl_tcp *tcp, struct pl_orders *orders, __u32 done, int over)
{
	pl_judge_lead(s, path, tcp, done);
	pl_see_probe(s, path, tcp, done);
	if (s->first_us && !s->train_acked_us && done >= s->first_segs) {
		s->train_acked_us = tcp->now_us;
		s->train_acked_segs = tcp->delivered_segs;
	}
	pl_note_train(s, done, tcp->rtt_us, tcp->now_us);
	/* In recovery half of the train suffices: the rest may be lost. */
	if (done >= s->last_segs || (tcp->recovering && done >= s->last_segs / 2))
		pl_judge_rate(s, path, tcp);
	if ((__s32)(tcp->una - s->paced_end) < 0 && !over)
		return;
	pl_take_lead_sample(s, path, tcp);
	pl_judge_loss(s, path, policy, tcp);
	s->state = PL_START_BASE;
	if (s->drained && !tcp->recovering && path->rate_bps >= s->rate_bps)
		pl_lead_window(s, path, tcp, orders);
	s->rounds = path->wary ? PL_WARY_ROUNDS : s->rated ? PL_ROUNDS : 0;
	pl_begin_round(s, path, tcp);
}

/*
 * Ends pacing once the ACK clock paces: when cwnd is in flight and has reached ssthresh. While the
 * receive window still opens, each ACK releases more than the path takes; in slow start it releases
 * two TSO packets of 64 KB each. Until then the pacing rate is the kernel's, 1.2 cwnd/srtt.
 */
static __always_inline void pl_end_pacing(struct pl_start *s, const struct pl_tcp *tcp, struct pl_orders *orders)
{
	int growing = !s->slow && (orders->ssthresh || tcp->cwnd < tcp->ssthresh);

	if (s->pacing && s->state == PL_START_BASE && !(s->learning && s->rounds > PL_LED) &&
	    ((tcp->packets_out + pl_amount(PL_PROBE_SEGS, tcp->mss) >= tcp->cwnd && !growing) || !tcp->unsent ||
	     tcp->recovering || pl_is_refilled(s, tcp))) {
		orders->stop = 1;
		s->pacing = 0;
		s->refilling = 0;
	}
}

/* Called for each ACK, with the counters in `tcp` as of after it. */
static __always_inline void pl_start_on_ack(struct pl_start *s, struct pl_path *path,
					    const struct pl_policy *policy, const struct pl_tcp *tcp,
					    struct pl_orders *orders)
{
	__u32 done = tcp->delivered_segs - s->delivered0;
	int over = !tcp->packets_out && !tcp->unsent;

	pl_see_rtt(path, tcp->rtt_us, tcp->now_us);
	if (!s->learning && (over || pl_update_is_due(s, tcp->delivered_segs, tcp->una)))
		pl_see_arrivals(s, path, tcp, pl_updates_path(s), path->min_rtt_us / 2);
	if (tcp->rtt_us && (!s->min_rtt_us || tcp->rtt_us < s->min_rtt_us))
		s->min_rtt_us = tcp->rtt_us;
	if (tcp->rtt_us)
		s->queueing = 2 * tcp->rtt_us >= 3 * s->min_rtt_us;
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
		if (tcp->packets_out > s->flight_segs && !s->overflowed && !tcp->recovering)
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
		s->refilling = 0;
	}
}

#endif

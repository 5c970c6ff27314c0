/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT */
/*
 * The response to loss in a burst: how fast a start's losses are repaired, and ssthresh after a
 * loss in the round trips that follow.
 */
#ifndef PACELINE_LOSS_H
#define PACELINE_LOSS_H

#include "path.h"

#define PL_WARY_LOSS 50 /* a start that lost more than 1/50, the loss threshold of BBRv3, makes its path wary */
#define PL_RANDOM_SEGS 2 /* lost segments of a slow start that has just begun, and are no share of it */

/*
 * A start lost more than random loss explains: cross traffic shares the path. A start without spreading
 * probes later whether it is gone; if not, that start loses too and delays all by a round trip. So
 * the time until the next such probe grows with each failure.
 */
static __always_inline void pl_become_wary(struct pl_path *path)
{
	__u32 starts = PL_WARY_STARTS;

	if (!path->wary) {
		if (path->trusted < path->wary_for)
			starts = PL_WARY_BACKOFF * path->wary_for;
		path->wary_for = starts < PL_WARY_STARTS_MAX ? starts : PL_WARY_STARTS_MAX;
		path->trusted = 0;
	}
	path->wary = path->wary_for;
}

/* A start lost nothing, or no more than random loss explains. */
static __always_inline void pl_become_trusted(struct pl_path *path)
{
	if (path->wary)
		path->wary--;
	else if (path->trusted < PL_WARY_STARTS_MAX)
		path->trusted++;
}

/*
 * A burst has overflowed a queue: the longest queueing delay of the round trip shows its length. A third of it
 * is the path's room: the queue that is no sign of a full path, if that is shorter than for other paths, or
 * than the stack's packets. (That RTT contains the transmission time of a packet on the host's own link, and
 * half of the queue is too much for it.) A longer queue needs no limit of its own. A room that is a small part of
 * the BDP is as long as ACK jitter.
 */
static __always_inline void pl_see_overflow(const struct pl_start *s, struct pl_path *path, const struct pl_tcp *tcp)
{
	__u32 waited_us = pl_more(s->most_rtt_us, path->min_rtt_us) - path->min_rtt_us;
	__u32 queue = pl_bdp_segs(path->rate_bps, waited_us, tcp->mss), room = pl_more(queue / 3, PL_ROOM_LEAST_SEGS);

	/* What others left of a queue is not its length. */
	if (path->contended)
		return;
	if (PL_ROOM_SHARE * room < pl_bdp_segs(path->rate_bps, path->min_rtt_us, tcp->mss))
		room = 0;
	path->room_segs = room < PL_QUEUE_SEGS || 8 * room < 5 * pl_device_packet(path, tcp) ? room : 0;
	/* What the path and the queue hold is the first estimate of inflight_hi. */
	if (!path->inflight_hi && pl_is_short_alone(path) && queue > PL_LEAD_SEGS) {
		__u32 held = pl_bdp_segs(path->rate_bps, path->min_rtt_us + waited_us, tcp->mss);

		path->inflight_hi = held - held / 16;
	}
}

/* Whether a burst has lost more of `sent` segments than random loss explains: the loss threshold of BBRv3. */
static __always_inline int pl_lost_much(__u32 lost, __u32 sent)
{
	return lost * PL_WARY_LOSS > sent;
}

/*
 * A loss that no full queue explains: the last segment that arrived (`tcp->rtt_us`) hardly waited, and little
 * is lost. In a queue known to be short, nothing of this round trip waited for more than its room: packets of
 * TSO fill such a queue for moments. Not a mark by ECN, nor a timeout: nothing is marked lost then.
 */
static __always_inline int pl_is_random_loss(const struct pl_start *s, const struct pl_path *path,
					     const struct pl_tcp *tcp, __u32 lost_segs)
{
	__u32 waited_us = pl_more(tcp->rtt_us, path->min_rtt_us) - path->min_rtt_us;
	__u64 rate = s->learning ? pl_rate(tcp->carried_segs, tcp->mss, tcp->carried_us) : path->rate_bps;
	__u32 queued = pl_bdp_segs(rate, waited_us, tcp->mss);
	__u32 lost = lost_segs + tcp->retransmitted_segs - s->retransmitted0;

	if (!lost_segs || !tcp->rtt_us || !rate || !path->min_rtt_us)
		return 0;
	if (pl_lost_much(lost, tcp->sent_segs - s->sent0) && !(s->learning && lost <= PL_RANDOM_SEGS))
		return 0;
	if (path->room_segs && pl_queued(path, rate, tcp, s->most_rtt_us) > path->room_segs)
		return 0;
	return queued < PL_ROOM_LEAST_SEGS ||
	       (waited_us <= path->min_rtt_us / PL_MIN_RTT_NEAR && queued < pl_room(path, tcp->mss));
}

/*
 * ssthresh after a loss in the first round trips of a burst: the BDP by the delivery rate of the last
 * round trip, as in TCP Westwood. The base would take a part of cwnd (CUBIC 0.7), whatever cross
 * traffic left of the path. After a random loss nothing is full: it is cwnd, at most the share of the path, and
 * on an unknown path slow start goes on. `lost_segs` are marked lost (tp->lost_out).
 */
static __always_inline __u32 pl_ssthresh_after_loss(struct pl_start *s, struct pl_path *path,
						    const struct pl_tcp *tcp, __u32 lost_segs, __u32 base)
{
	__u32 arrived, segs = tcp->carried_segs;
	__u64 took_us = tcp->carried_us;
	int is_split = s->spread_segs || s->waits || (s->gapped && s->state == PL_START_PACED);

	if (!is_split && pl_is_random_loss(s, path, tcp, lost_segs)) {
		if (!s->learning)
			return pl_more(base, pl_less(tcp->cwnd, pl_share_window(path, tcp)));
		/* At the end of recovery cwnd becomes ssthresh, unless there is none (tcp_end_cwnd_reduction). */
		return tcp->ssthresh < PL_NO_SSTHRESH ? tcp->cwnd : PL_NO_SSTHRESH;
	}
	s->overflowed = 1;
	/* The cwnd of a spread message is not the base's. */
	if (is_split)
		return base > s->base_cwnd / 2 ? base : s->base_cwnd / 2;
	/*
	 * The initial window nearly fills the path, so the rest of cwnd only queues: the limit is the
	 * inflight at the overflow, which the last round trip delivered.
	 */
	if (s->learning && path->active <= 1 && took_us && path->rate_bps && path->min_rtt_us >= 2 * PL_LEAD_LEAST_US &&
	    pl_bdp_segs(path->rate_bps, path->min_rtt_us, tcp->mss) <= PL_LEAD_SEGS) {
		__u32 held = (__u32)((__u64)segs * (path->min_rtt_us + s->waited_us) / took_us);

		path->inflight_hi = held - held / 16;
	}
	if (s->learning || (s->state != PL_START_MEASURED && s->state != PL_START_BASE))
		return base;
	if (s->state == PL_START_BASE && !s->rounds) {
		/* The base's growth overflowed the queue: the next burst knows how long it is. */
		s->most_rtt_us = tcp->rtt_us;
		if (path->active <= 1)
			pl_see_overflow(s, path, tcp);
		return base;
	}
	pl_see_overflow(s, path, tcp);
	if (s->state == PL_START_MEASURED) {
		/*
		 * The kernel's rate sample may be of an earlier burst: the first flight of this one is
		 * app-limited (tcp_rate_check_app_limited), and such a sample does not replace a faster one.
		 */
		segs = tcp->delivered_segs - s->train_acked_segs;
		took_us = s->train_acked_us && segs >= pl_amount(PL_TRAIN_MIN_SEGS, tcp->mss) ?
				  tcp->now_us - s->train_acked_us : 0;
	}
	/*
	 * A connection alone at a short queue: the window that overflowed it bounds inflight_hi, as in
	 * BBRv3. A loss below 7/8 of inflight_hi is due to cross traffic, and the base responds.
	 */
	if (s->state == PL_START_BASE && s->capped && path->active <= 1) {
		if (tcp->cwnd < path->inflight_hi - path->inflight_hi / 8)
			return base;
		path->inflight_hi = tcp->cwnd - tcp->cwnd / 16 - 1;
		return path->inflight_hi;
	}
	if (!took_us || !path->min_rtt_us)
		return base;
	arrived = (__u32)((__u64)segs * path->min_rtt_us / took_us);
	if (arrived > tcp->cwnd)
		arrived = tcp->cwnd;
	if (arrived < base / 2)
		arrived = base / 2;
	return arrived > 2 ? arrived : 2;
}

/*
 * Repairs the losses of a start at the path's rate. The base sends one segment for each delivered one, so
 * that no burst leaves (PRR, RFC 6937): after a loss of a third, the repair takes three round trips.
 * Pacing makes that unnecessary. cwnd stays below the base's ssthresh.
 */
static __always_inline void pl_repair(struct pl_start *s, const struct pl_path *path, const struct pl_tcp *tcp,
				      struct pl_orders *orders)
{
	__u64 rate = path->rate_bps < s->rate_bps ? path->rate_bps : s->rate_bps;
	__u32 active = pl_active(path);
	__u32 window;

	if (!s->rated) {
		/* Too much was lost for a rate sample: the delivered segments took at least a round trip. */
		__u64 arrived = pl_rate(tcp->delivered_segs - s->delivered0, tcp->mss, path->min_rtt_us);

		rate = arrived < rate ? arrived : rate;
	}
	window = pl_start_window(rate, active, path->min_rtt_us, tcp);
	if (window > tcp->ssthresh)
		window = tcp->ssthresh;
	if (window <= tcp->cwnd)
		return;
	orders->cwnd = window;
	orders->pacing_bps = rate / active;
	s->pacing = 1;
}

#endif

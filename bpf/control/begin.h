/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT */
/*
 * The first transmission of a burst: the estimates of the burst before it, and the decision whether
 * this one is paced, and at which rate (startup.h).
 */
#ifndef PACELINE_BEGIN_H
#define PACELINE_BEGIN_H

#include "gaps.h"
#include "incast.h"
#include "judge.h"
#include "path.h"
#include "turns.h"

/* Pacing rate of a start: `rate_bps`, on a wary path at most a burst per half RTT. */
static __always_inline __u64 pl_spread(const struct pl_path *path, __u64 rate_bps, __u32 mss)
{
	__u32 segs = path->burst_segs > pl_train_from(mss) ? path->burst_segs : pl_train_from(mss);
	__u32 together = path->expected > path->active ? path->expected : path->active;
	__u64 spread = pl_rate(PL_SPREAD * segs, mss, path->min_rtt_us) * together;

	return path->wary && spread < rate_bps ? spread : rate_bps;
}

/* The path has expired, and so have the base's cwnd and ssthresh: as of a new connection. */
static __always_inline void pl_begin_anew(const struct pl_policy *policy, const struct pl_tcp *tcp,
					  struct pl_orders *orders)
{
	if (policy->base == PL_BASE_BBR)
		return;
	orders->ssthresh = PL_NO_SSTHRESH;
	if (tcp->cwnd > PL_LEAD_SEGS)
		orders->cwnd = PL_LEAD_SEGS;
}

/*
 * Messages of about an initial window are no rate samples: cwnd limits each round trip. An inflight that
 * was delivered once is allowed again, but not where starts have lost: the path may have become slower.
 */
static __always_inline __u64 pl_not_below_flight(const struct pl_path *path, __u64 rate_bps, __u32 mss)
{
	__u32 segs = pl_bdp_segs(rate_bps, path->min_rtt_us, mss);

	if (segs > PL_LEAD_SEGS || 2 * segs <= PL_LEAD_SEGS || path->flight_segs <= PL_LEAD_SEGS || path->wary ||
	    path->burst_segs > 3 * PL_LEAD_SEGS || path->min_rtt_us < 2 * PL_LEAD_LEAST_US || path->expected > 1)
		return rate_bps;
	return pl_rate(path->flight_segs, mss, path->min_rtt_us);
}

/* Resets the state of a burst. */
static __always_inline void pl_reset_burst(struct pl_start *s, const struct pl_path *path, const struct pl_tcp *tcp)
{
	s->sent0 = tcp->sent_segs;
	s->delivered0 = tcp->delivered_segs;
	s->retransmitted0 = tcp->retransmitted_segs;
	s->paced_segs = 0;
	s->rated = 0;
	s->overflowed = 0;
	s->refilling = 0;
	s->drained = 0;
	s->rounds = 0;
	s->led = 0;
	s->leading = 0;
	s->slow = 0;
	s->probing = 0;
	s->probe_bps = 0;
	s->lead_bps = 0;
	s->probe_acked_us = 0;
	s->train_acked_us = 0;
	s->train_rtt_us = 0;
	s->train_took_us = 0;
	s->waited_us = path->min_rtt_us;
	s->most_rtt_us = 0;
	s->min_rtt_us = 0;
	s->began_us = tcp->now_us;
	s->went_us = tcp->now_us;
	s->gap_us = 0;
	s->gapped = 0;
	s->others = 0;
	s->timeouts = 0;
	s->first_us = 0;
	s->first_segs = 0;
	s->last_segs = 0;
	s->flight_segs = 0;
	s->seen_segs = tcp->delivered_segs;
	s->state = PL_START_BASE;
	s->learning = 0;
}

/* Takes the estimates of the burst before, and joins the path. */
static __always_inline void pl_learn_burst(struct pl_start *s, struct pl_path *path, const struct pl_policy *policy,
					   const struct pl_tcp *tcp)
{
	__u32 burst;

	pl_judge_loss(s, path, policy, tcp);
	pl_incast_learn(s, path, tcp);
	pl_gap_learn(s, path, tcp);
	pl_turn_learn(s, path, tcp);
	s->turn_wants = 0;
	burst = tcp->delivered_segs - s->delivered0;
	s->burst_segs = burst;
	s->packet_segs = pl_packet_most(path, tcp);
	s->capped = s->packet_segs || pl_is_short_alone(path);
	s->held_segs = 0;
	s->queueing = 1;
	/* inflight_hi was in use without loss: a segment more, in one burst of several, drawn by their counter. */
	if (path->inflight_hi && s->round_cwnd >= path->inflight_hi && tcp->retransmitted_segs == s->retransmitted0 &&
	    ((tcp->sent_segs * PL_GOLDEN_RATIO) >> 16) % PL_SHORT_STARTS == 0)
		path->inflight_hi++;
	if (burst > PL_LEAD_SEGS) {
		path->burst_segs -= path->burst_segs / 8;
		if (burst > path->burst_segs)
			path->burst_segs = burst;
	}
	pl_join_path(s, path, tcp);
}

/* The target of matsuda-2005. Returns the pacing rate; 0: no start. */
static __always_inline __u64 pl_aim_at_ssthresh(struct pl_start *s, const struct pl_policy *policy,
						const struct pl_tcp *tcp, struct pl_orders *orders)
{
	__u32 window = tcp->ssthresh;

	if (tcp->ssthresh >= PL_NO_SSTHRESH) {
		/* "instead of infinity a predetermined value": 4.1 */
		window = pl_bdp_segs(policy->initial_rate_bps, tcp->srtt_us, tcp->mss);
		if (window)
			orders->ssthresh = window;
	}
	if (tcp->cwnd >= window || !tcp->srtt_us)
		return 0;
	s->base_cwnd = window;
	return pl_rate(window, tcp->mss, tcp->srtt_us);
}

/*
 * The path's delivery rate as target. Returns the rate; 0: no start, because the path is unknown or the
 * initial window fills it; then a law for such paths may apply (turns.h, gaps.h, incast.h).
 * `quiet_us`: time since a burst last began on the path; `idle_us`: since this connection's last one began.
 */
static __always_inline __u64 pl_aim_at_rate(struct pl_start *s, struct pl_path *path, const struct pl_policy *policy,
					    const struct pl_tcp *tcp, struct pl_orders *orders, __u64 quiet_us,
					    __u64 idle_us)
{
	__u64 rate = pl_rate_or_forget(path, policy, tcp->now_us);

	if (!rate && pl_is_old(idle_us, policy))
		pl_begin_anew(policy, tcp, orders);
	if (!rate && policy->initial_rate_bps) {
		rate = policy->initial_rate_bps;
		path->rate_bps = rate;
		path->flight_segs = 0;
	}
	rate = pl_not_below_flight(path, rate, tcp->mss);
	if (pl_bdp_segs(rate, path->min_rtt_us, tcp->mss) > PL_LEAD_SEGS) {
		s->base_cwnd = tcp->cwnd;
		return rate;
	}
	/* The initial window fills the path: no start, but many hosts may overflow a queue together. */
	s->learning = 1;
	if (rate && path->active <= 1 && path->expected <= 1)
		s->held_segs = pl_less(pl_more(path->inflight_hi, PL_LEAD_SEGS) & pl_mask(path->inflight_hi), 255);
	s->turn_wants = pl_turn_wants(s, path, policy, tcp);
	s->gap_us = s->turn_wants ? (__u32)pl_aged(path->gap_us, quiet_us, policy) : 0;
	if (!s->turn_wants && pl_incast_begin(s, path, policy, tcp, quiet_us))
		pl_incast_send(s, tcp, orders);
	else
		pl_incast_first(s, path, policy, tcp, orders);
	return 0;
}

/* A burst begins: nothing is in flight, and data is unsent. Returns 1 if it is paced at a rate. */
static __always_inline int pl_start_burst(struct pl_start *s, struct pl_path *path, const struct pl_policy *policy,
					  const struct pl_tcp *tcp, struct pl_orders *orders)
{
	__u64 quiet_us = tcp->now_us - path->started_us, idle_us = tcp->now_us - s->began_us;
	__u64 rate;

	pl_learn_burst(s, path, policy, tcp);
	pl_reset_burst(s, path, tcp);
	if (tcp->recovering || !tcp->mss)
		return 0;
	if (policy->target == PL_TARGET_SSTHRESH)
		rate = pl_aim_at_ssthresh(s, policy, tcp, orders);
	else
		rate = pl_aim_at_rate(s, path, policy, tcp, orders, quiet_us, idle_us);
	if (!rate || tcp->now_us < s->breaker_until_us)
		return 0;
	s->rate_bps = policy->target == PL_TARGET_SSTHRESH ? rate : pl_spread(path, rate, tcp->mss);
	s->state = PL_START_PACED;
	s->pacing = 1;
	return 1;
}

#endif

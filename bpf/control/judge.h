/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT */
/*
 * The rate samples of a start (startup.h): the stretch of its train, the queueing delay of its
 * lead, the spacing of its probe's ACKs, and its losses.
 */
#ifndef PACELINE_JUDGE_H
#define PACELINE_JUDGE_H

#include "loss.h"
#include "path.h"

#define PL_CONTENDED 16 /* a standing queue of others: 1/16 of the minimum RTT, half of what a longer path needs (PL_MIN_RTT_ROSE) */
#define PL_SHORT_STARTS 4 /* starts into a short queue for one segment more of rate or inflight_hi: one segment too many is a loss in each burst */

/*
 * The first segment of a burst on a quiet path has waited behind more than a start leaves queued: a
 * standing queue of other flows.
 */
static __always_inline int pl_others_queue(const struct pl_path *path, __u64 rate_bps, const struct pl_tcp *tcp)
{
	return path->lead_rtt_us &&
	       pl_queued(path, rate_bps, tcp, path->lead_rtt_us) > pl_amount(PL_QUEUE_SEGS, tcp->mss);
}

/*
 * All RTTs of a start exceed the path's minimum RTT, and yet no other flow fills the path: the train arrived as
 * it left, or at the path's rate, or without more of a queue than at its beginning. The path has become longer.
 */
static __always_inline void pl_see_longer_path(const struct pl_start *s, struct pl_path *path,
					       const struct pl_tcp *tcp, int has_room)
{
	if (!has_room || s->min_rtt_us <= path->min_rtt_us + path->min_rtt_us / PL_MIN_RTT_ROSE)
		return;
	path->min_rtt_us = s->min_rtt_us;
	path->min_rtt_at_us = tcp->now_us;
	path->lead_rtt_us = 0;
	path->contended = 0;
}

/*
 * The rate sample of a lead. The lead leaves at a multiple of the rate and queues behind itself: if its
 * last segment waits for less than half of the lead's duration at the rate, the path is faster. Short
 * messages have no other sample, and would keep a rate that is far too low. A train's sample takes
 * precedence: a token bucket lets a lead pass at any rate.
 */
static __always_inline void pl_judge_lead(struct pl_start *s, struct pl_path *path, const struct pl_tcp *tcp,
					  __u32 done)
{
	__u64 takes_us, waited_us, rate;

	if (!s->leading || s->paced_segs < PL_LEAD_SEGS || done < PL_LEAD_SEGS)
		return;
	s->leading = 0;
	if (!tcp->rtt_us || tcp->recovering || !s->rate_bps)
		return;
	takes_us = (__u64)(PL_LEAD_SEGS - 2) * tcp->mss * PL_USEC_PER_SEC / s->rate_bps;
	waited_us = tcp->rtt_us > path->min_rtt_us ? tcp->rtt_us - path->min_rtt_us : 0;
	/* Not on a wary path, nor for a spread start, nor into a short queue. */
	if (path->wary || path->room_segs || takes_us < PL_LEAD_LEAST_US || waited_us > takes_us / 2)
		return;
	rate = s->rate_bps * takes_us / (2 * waited_us + 1);
	/* At most half of the lead's pacing rate: its packets leave by a timer, and ACKs are delayed. */
	if (rate > s->rate_bps * PL_LEAD_SPEEDUP / 2)
		rate = s->rate_bps * PL_LEAD_SPEEDUP / 2;
	s->lead_bps = rate;
}

/* The end of a start without a train: the lead's sample counts. */
static __always_inline void pl_take_lead_sample(const struct pl_start *s, struct pl_path *path, const struct pl_tcp *tcp)
{
	if (!s->lead_bps || tcp->recovering)
		return;
	if (s->lead_bps > path->rate_bps)
		path->rate_bps = s->lead_bps;
	path->confirmed_us = tcp->now_us;
}

/*
 * The rate sample of a probe. If a busy host held up its first ACK and not the others, their spacing is
 * too small. Two lower bounds limit the sample: the rate since the first ACK's due time, and the rate of
 * the whole burst, whose lead may queue in front of the probe. The path exceeds these by a little at most.
 */
static __always_inline void pl_see_probe(struct pl_start *s, const struct pl_path *path, const struct pl_tcp *tcp,
					 __u32 done)
{
	__u32 probed = tcp->delivered_segs - s->probe_acked_segs;
	__u32 held_us = tcp->rtt_us > path->min_rtt_us ? tcp->rtt_us - path->min_rtt_us : 0;
	__u64 burst_us, burst, least;

	if (!s->probing || s->probe_bps)
		return;
	if (!s->probe_acked_us) {
		if (done < pl_probe_from(tcp->mss))
			return;
		s->probe_acked_us = tcp->now_us;
		s->probe_due_us = tcp->now_us - held_us;
		s->probe_acked_segs = tcp->delivered_segs;
		return;
	}
	if (done < pl_train_from(tcp->mss) || probed < pl_amount(PL_PROBE_SEGS, tcp->mss) / 2)
		return;
	s->probe_bps = pl_rate(probed, tcp->mss, tcp->now_us - s->probe_acked_us);
	burst_us = tcp->now_us - s->began_us - path->min_rtt_us;
	/* Too short beside the hosts' processing. */
	if (burst_us < PL_PROBE_LEAST_US)
		return;
	burst = pl_rate(done, tcp->mss, burst_us);
	least = pl_rate(probed, tcp->mss, tcp->now_us - s->probe_due_us);
	if (least < burst)
		least = burst;
	least += least / PL_PROBE_BEYOND;
	if (s->probe_bps > least)
		s->probe_bps = least;
}

/* A train at its sender and by its ACKs: segments, time from the first to the last, bytes per second. */
struct pl_train {
	__u32 sent, acked;
	__u64 sent_us, acked_us, arrived_bps;
};

/* The path did not stretch a measured train by more than jitter and a delayed ACK of two segments. */
static __always_inline int pl_arrived_as_sent(const struct pl_train *t)
{
	return t->acked_us <= t->sent_us + t->sent_us / 32 + 2 * t->sent_us / t->sent;
}

/* The path stretched a measured train by more than jitter, and by less than a half: its rate is below half of the path's. */
static __always_inline int pl_is_minor(const struct pl_train *t)
{
	return t->acked_us > t->sent_us + t->sent_us / 16 && 2 * t->acked_us < 3 * t->sent_us;
}

/*
 * Whether long flows of others fill the path: all segments of a burst have waited for a part of the minimum RTT, the
 * first one on a quiet path too, and the train was stretched. (Without a stretch it is the way back that is full.)
 */
static __always_inline void pl_see_others(const struct pl_start *s, struct pl_path *path, const struct pl_tcp *tcp,
					  const struct pl_train *t, int lossy)
{
	__u32 over_us;

	path->lead_rtt_us = pl_less(path->lead_rtt_us, s->min_rtt_us);
	over_us = pl_more(path->lead_rtt_us, path->min_rtt_us) - path->min_rtt_us;
	if (!lossy && pl_arrived_as_sent(t))
		path->contended = 0;
	else if (t->acked_us > t->sent_us + t->sent_us / 16 && over_us > pl_more(path->min_rtt_us / PL_CONTENDED, PL_LEAD_LEAST_US) &&
		 pl_bdp_segs(path->rate_bps, over_us, tcp->mss) > PL_ROOM_LEAST_SEGS)
		path->contended = 1;
}

/* The rate of a path that stretched the train, in bytes per second. */
static __always_inline __u64 pl_stretched(struct pl_start *s, const struct pl_path *path, const struct pl_tcp *tcp,
					  const struct pl_train *t, int lossy, __u64 last_bps)
{
	__u64 rate = s->rate_bps, given = rate * t->sent_us / t->acked_us;

	/*
	 * Beside a standing queue it left faster than at the rate. If it left with pauses, and its second half
	 * always waited, the path was busy, and it arrived at the path's rate, or less after a pause in the first half.
	 */
	if (given < t->arrived_bps)
		given = t->arrived_bps < 2 * rate ? t->arrived_bps : 2 * rate;
	else if (s->train_rtt_us > s->min_rtt_us + t->sent_us / 8)
		given = t->arrived_bps;
	/* By cross traffic that was there before: no sample of the path's rate. */
	if (!lossy && given < rate && (path->contended || pl_others_queue(path, path->rate_bps, tcp)))
		return path->contended && pl_is_minor(t) ? rate + rate / 4 : rate;
	/*
	 * Stretched although the rate is what the train before was stretched to: a train of rate r among the packets of
	 * a flow that keeps a queue takes 1 + r/C times as long, whatever r is, and a rate that followed it would fall without end.
	 */
	if (!lossy && s->together <= 1 && pl_is_minor(t) && rate <= last_bps + last_bps / 64) {
		s->stretched_bps = rate;
		return rate;
	}
	/* A small stretch without loss may be ACK jitter. */
	if (!lossy && t->acked_us < t->sent_us + t->sent_us / 8)
		given = (given + rate) / 2;
	s->stretched_bps = lossy ? 0 : given;
	/* The ACKs of a short train may wait for the repair of others' losses. */
	if ((s->together > 1 || t->sent < pl_amount(PL_LONG_TRAIN_SEGS, tcp->mss)) && given < rate / 2)
		given = rate / 2;
	return lossy ? given : pl_not_below_arrived(path, given, rate, tcp->mss);
}

/*
 * Growth of the rate where the queue of lead and probe has drained before the train's end. A train that arrived faster
 * than it left shows no more than that. But if nothing is queued, and the probe was slower than the train, then the
 * application held the probe up, and nothing shows how much faster the path is. The round trips of a longer burst find
 * out; if bursts fit into one, the growth is 1/32 and doubles with each such start in a row, of which `row`, at most two,
 * came before this one.
 */
static __always_inline __u64 pl_drained_growth(struct pl_start *s, const struct pl_path *path, const struct pl_tcp *tcp,
					       const struct pl_train *t, int empty, __u32 row)
{
	if (empty && s->probe_bps && s->probe_bps < s->rate_bps &&
	    path->burst_segs <= pl_bdp_segs(s->rate_bps, path->min_rtt_us, tcp->mss)) {
		s->found_empty = row + 1;
		return s->rate_bps >> (5 - row);
	}
	return t->acked_us < t->sent_us - t->sent_us / 128 ? s->rate_bps / 64 : 0;
}

/*
 * Growth of the rate on a cautious path after a train without loss and without a queue: a segment per RTT, because
 * all connections add at once. Not where the path stretched the train. A connection alone at a short queue finds a
 * faster path by its empty queue, and near the path's rate it grows slowly.
 */
static __always_inline __u64 pl_additive_growth(const struct pl_start *s, const struct pl_path *path,
						const struct pl_tcp *tcp, int stretched, int empty)
{
	__u64 segment = pl_rate(1, tcp->mss, path->min_rtt_us);

	if (stretched)
		return 0;
	if (!s->packet_segs)
		return segment;
	return empty ? s->rate_bps / 16 : segment / PL_SHORT_STARTS;
}

/* The rate sample of the train, once. */
static __always_inline void pl_judge_rate(struct pl_start *s, struct pl_path *path, const struct pl_tcp *tcp)
{
	struct pl_train t = {
		.acked = tcp->delivered_segs - s->train_acked_segs,
		.sent = s->last_segs - s->first_segs,
		.sent_us = s->last_us - s->first_us,
		.acked_us = tcp->now_us - s->train_acked_us,
	};
	__u64 rate = s->rate_bps, slack_us;
	__u32 room = pl_own_queue(path, rate, tcp);
	__u32 least_segs = pl_amount(PL_TRAIN_MIN_SEGS, tcp->mss);
	__u32 queued;
	__u32 row = pl_less(s->found_empty, 2);
	__u64 last_bps = s->stretched_bps;
	int measured, lossy = s->overflowed;

	if (s->rated || !s->train_acked_us || !path->rate_bps)
		return;
	/* Each of several connections sends little: there the queue suffices. */
	measured = t.sent >= least_segs && t.acked >= least_segs && t.sent_us && t.acked_us;
	if (!measured && pl_sharers(s) == 1 && !s->slow)
		return;
	s->rated = 1;
	s->found_empty = 0;
	s->stretched_bps = 0;
	/* An ACK of one segment may be a delayed one, 40 ms late. */
	if (t.acked - s->train_took_segs == 1 && s->train_took_us) {
		t.acked = s->train_took_segs;
		t.acked_us = s->train_took_us;
	}
	/* Merges the verifier's states of the paths to here: half of its instructions. */
	asm volatile("" : "+r"(t.acked));
	if (measured)
		s->lead_bps = 0;
	/* Under loss fewer segments arrive than were sent: compare the same number. */
	if (measured)
		t.sent_us = t.sent_us * t.acked / t.sent;
	t.arrived_bps = pl_rate(t.acked, tcp->mss, t.acked_us);
	if (measured && !lossy)
		pl_see_longer_path(s, path, tcp, pl_arrived_as_sent(&t) || t.arrived_bps >= rate - rate / 8 ||
				   (s->train_rtt_us && s->train_rtt_us <= s->min_rtt_us + t.sent_us / 16));
	if (measured)
		pl_see_others(s, path, tcp, &t, lossy);
	/* The queue of lead and probe has drained before the train's end. */
	queued = s->train_rtt_us ? pl_queued(path, path->rate_bps, tcp, s->train_rtt_us) : room + 1;
	s->drained = !lossy && queued <= room;
	/* A delayed ACK at either end, of two segments, is much of a short train. */
	slack_us = s->drained && t.sent ? t.sent_us / 8 + 2 * t.sent_us / t.sent : t.sent_us / 64;
	if (measured && t.acked_us > t.sent_us + slack_us && (lossy || !path->wary)) {
		rate = pl_stretched(s, path, tcp, &t, lossy, last_bps);
	} else if (!lossy && s->together > 1) {
		/* All connections see the same queue, and aim at a short one. */
		if (!s->drained)
			rate -= rate / 32;
		else
			rate += queued > room / 2 ? rate / 32 : rate / 16;
	} else if (!lossy) {
		__u64 probe = s->probe_bps - (s->probe_bps >> 4);
		int stretched = measured && !pl_arrived_as_sent(&t);

		/* A train is the longer sample. */
		if (probe > rate + (rate >> 4) && !stretched)
			rate = probe < 2 * rate ? probe : 2 * rate;
		else if (s->drained && stretched && !s->slow)
			/* The counterpart of the growth below: ACKs come too close or too far apart alike. */
			rate -= path->contended ? 0 : rate / 64;
		else if (s->drained && s->probing)
			rate += pl_drained_growth(s, path, tcp, &t, queued * PL_EMPTY <= room, row);
		else if (s->drained && pl_cautious(path, tcp->mss))
			rate += pl_additive_growth(s, path, tcp, stretched, queued <= room / 4);
		else if (s->slow && queued * PL_EMPTY <= room)
			/* Too slow for a probe: half the growth of slow start. */
			rate += rate / 2;
	}
	if (path->wary && path->wary + PL_WARY_STARTS / 2 > path->wary_for && path->burst_segs < pl_amount(PL_WARY_BURST_SEGS, tcp->mss) &&
	    rate > s->rate_bps + s->rate_bps / 4)
		rate = s->rate_bps + s->rate_bps / 4;
	path->confirmed_us = tcp->now_us;
	if (rate < s->rate_bps || rate > path->rate_bps)
		pl_take_sample(s, path, rate, tcp->mss, 1);
}

/* The losses of a start, when all of its train is acknowledged or given up. */
static __always_inline void pl_judge_loss(struct pl_start *s, struct pl_path *path, const struct pl_policy *policy,
					  const struct pl_tcp *tcp)
{
	__u32 lost = tcp->retransmitted_segs - s->retransmitted0;
	__u32 paced = s->paced_segs;
	int bad = lost > 1 && (__u64)lost * 1000 > (__u64)paced * policy->breaker_permille;
	/* Rated: the train arrived nearly as it was sent, and yet a queue overflowed. */
	__u32 back = !s->rated ? 2 : bad ? 8 : 16;
	__u64 rate = s->rate_bps - s->rate_bps / back;
	__u32 size = tcp->sent_segs - s->sent0 + (tcp->mss ? tcp->unsent / tcp->mss : 0);
	__u64 kept;

	if (!paced)
		return;
	if (pl_lost_much(lost, tcp->delivered_segs - s->delivered0))
		s->overflowed = 1;
	/* The path had no room for the lost segments. */
	kept = s->rate_bps * (lost < paced - paced / 8 ? paced - lost : paced / 8) / paced;
	if (kept < rate)
		rate = kept;
	if (lost && s->overflowed && (s->rated || bad) && path->rate_bps > rate) {
		pl_take_sample(s, path, rate, tcp->mss, 1);
		path->confirmed_us = tcp->now_us;
	}
	if (policy->target == PL_TARGET_DELIVERY_RATE) {
		if (lost > 1 && s->overflowed && lost * PL_WARY_LOSS > paced)
			pl_become_wary(path);
		else if (2 * size >= path->burst_segs)
			/* Shorter ones would hardly have lost. */
			pl_become_trusted(path);
	}
	if (bad) {
		s->bad_starts++;
		/* Beside a flow that keeps a queue, each overflow costs a share of everything that arrives, whatever the rate. */
		s->bad_row += !path->contended;
		if (policy->breaker_starts && s->bad_row >= policy->breaker_starts) {
			s->bad_row = 0;
			s->breaker_opened++;
			s->breaker_until_us = tcp->now_us + (__u64)policy->breaker_hold_ms * 1000;
		}
	} else {
		s->bad_row = 0;
		if (!(lost && s->overflowed) && paced > path->flight_segs)
			path->flight_segs = paced;
	}
	s->paced_segs = 0;
}

#endif

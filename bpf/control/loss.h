/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT */
/*
 * What a burst does about its losses: how fast it repairs those of its start, and where
 * the base's window goes on from in the round trips after it.
 */
#ifndef PACELINE_LOSS_H
#define PACELINE_LOSS_H

#include "path.h"

/*
 * A start has lost more than chance would. What the others on the path send is tried out
 * again by a start that is not spread, and where they are still there that one loses too,
 * and costs them a round trip as well as itself: each time it is tried later.
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

/* A start has lost nothing, or what chance would. */
static __always_inline void pl_become_trusted(struct pl_path *path)
{
	if (path->wary)
		path->wary--;
	else if (path->trusted < PL_WARY_STARTS_MAX)
		path->trusted++;
}

/*
 * A burst has overflowed a queue: what waited in it is all it holds. Half of that may wait
 * without a sign of a full path, where that is less than such a sign is anywhere, or than the
 * packets that the stack makes. A longer queue needs no limit of its own, and one that holds
 * little more than our packets none lower. The segment that tells of the loss may have come
 * when the queue was shorter again; the longest wait of the round trip has the time in it that
 * a packet takes on the host's own link, so a third of that is enough.
 */
static __always_inline void pl_see_overflow(const struct pl_start *s, struct pl_path *path, const struct pl_tcp *tcp)
{
	__u32 waited_us = pl_more(s->most_rtt_us, path->min_rtt_us) - path->min_rtt_us;
	__u32 most = pl_bdp_segs(path->rate_bps, waited_us, tcp->mss) / 3;
	__u32 room = s->packet_segs ? most : pl_bdp_segs(path->rate_bps, s->waited_us, tcp->mss) / 2;

	if (room < most)
		room = most;
	if (room < PL_ROOM_LEAST_SEGS)
		room = PL_ROOM_LEAST_SEGS;
	path->room_segs = room < PL_QUEUE_SEGS || 8 * room < 5 * pl_device_packet(path, tcp) ? room : 0;
}

/*
 * ssthresh after a loss in the first round trips of a burst. The base would take a part
 * of the window (CUBIC 0.7), which says nothing of what others left of the path: what
 * arrived over the last round trip does (as in TCP Westwood).
 */
static __always_inline __u32 pl_ssthresh_after_loss(const struct pl_start *s, struct pl_path *path,
						    const struct pl_tcp *tcp, __u32 base)
{
	__u32 arrived, segs = tcp->carried_segs;
	__u64 took_us = tcp->carried_us;

	/* Of a message that is spread the window is not the base's. */
	if (s->spread_segs || s->waits || (s->gapped && s->state == PL_START_PACED))
		return base > s->base_cwnd / 2 ? base : s->base_cwnd / 2;
	/*
	 * Where the initial window nearly fills the path the rest of a window only waits: no more of it
	 * than was in flight when the queue was full, which the last round trip delivered.
	 */
	if (s->learning && path->active <= 1 && took_us && path->rate_bps && path->min_rtt_us >= 2 * PL_LEAD_LEAST_US &&
	    pl_bdp_segs(path->rate_bps, path->min_rtt_us, tcp->mss) <= PL_LEAD_SEGS) {
		__u32 held = (__u32)((__u64)segs * (path->min_rtt_us + s->waited_us) / took_us);

		path->inflight_hi = held - held / 16;
	}
	if (s->learning || (s->state != PL_START_MEASURED && !(s->state == PL_START_BASE && s->rounds)))
		return base;
	pl_see_overflow(s, path, tcp);
	if (s->state == PL_START_MEASURED) {
		/*
		 * The kernel's sample may be of an earlier burst: what this one's first flight brings
		 * had waited for the application (tcp_rate_check_app_limited), and such a sample does
		 * not take the place of a faster one.
		 */
		segs = tcp->delivered_segs - s->train_acked_segs;
		took_us = s->train_acked_us && segs >= pl_amount(PL_TRAIN_MIN_SEGS, tcp->mss) ?
				  tcp->now_us - s->train_acked_us : 0;
	}
	/*
	 * Of one alone in a short queue a packet more was too much: as inflight_hi of BBRv3 it goes no
	 * further. Where it had gone no further, others have come, and the base gives way.
	 */
	if (s->state == PL_START_BASE && s->packet_segs && path->active <= 1) {
		if (tcp->cwnd <= path->inflight_hi)
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
 * Repairs what a start lost at the path's rate. The base lets one segment go for each
 * that arrived, lest a whole window leaves at once (RFC 6937): a start that lost a third
 * then takes three round trips to repair what is a fraction of its window. Where it is
 * paced it need not wait. The window stays what the base has decided on.
 */
static __always_inline void pl_repair(struct pl_start *s, const struct pl_path *path, const struct pl_tcp *tcp,
				      struct pl_orders *orders)
{
	__u64 rate = path->rate_bps < s->rate_bps ? path->rate_bps : s->rate_bps;
	__u32 active = pl_active(path);
	__u32 window;

	if (!s->rated) {
		/* Too much was lost to tell: what arrived took a round trip at least. */
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

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

#include "../paceline_abi.h"

#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif

#define PL_LEAD_SEGS 10 /* RFC 6928: what any TCP may send unpaced */
#define PL_LEAD_SPEEDUP 8 /* the lead leaves this much above the target */
#define PL_PROBE_FROM 16 /* segments: later than the application's own start */
#define PL_PROBE_SEGS 20 /* at twice the rate: adds 10 to a queue at most */
#define PL_TRAIN_FROM (PL_PROBE_FROM + PL_PROBE_SEGS) /* what follows is judged */
#define PL_TRAIN_MIN_SEGS 16 /* shortest train whose stretch is believed */
#define PL_QUEUE_SEGS 20 /* what lead and probe may leave queued: no sign of a full path */
#define PL_BLOCK_MIN_SEGS 16 /* ACK spacing is learned over blocks from this size */
#define PL_BLOCK_MAX_SEGS 512 /* to this: the longer, the less a late ACK matters */
#define PL_ROUNDS 16 /* round trips after a start in which the window is led to the path's */
#define PL_ROUND_VOICE 4 /* of one's voice: one round's ACKs jitter by a packet of 64 KB */
#define PL_FLIGHT_GROWTH 4 /* a start exceeds the largest proven flight by this at most */
#define PL_NO_SSTHRESH 0x7fffffffu /* TCP_INFINITE_SSTHRESH */
#define PL_RATE_MIN_BPS 12500 /* 100 kbit/s: below it a start is left to the base */
#define PL_USEC_PER_SEC 1000000ull
#define PL_MIN_RTT_AGE_US (300 * PL_USEC_PER_SEC) /* tcp_min_rtt_wlen: routes change */

/* What the law sees of a connection at one moment. Counters may wrap. */
struct pl_tcp {
	__u64 now_us;
	__u32 cwnd, ssthresh; /* segments */
	__u32 srtt_us, min_rtt_us;
	__u32 mss; /* bytes */
	__u32 packets_out; /* segments not cumulatively acknowledged */
	__u32 unsent; /* bytes: written and not yet sent */
	__u32 sent_segs; /* data segments sent, retransmissions too */
	__u32 delivered_segs; /* data segments known to have arrived */
	__u32 retransmitted_segs;
	__u32 una, nxt; /* snd_una, snd_nxt */
	__u32 rtt_us; /* of what this ACK acknowledged; 0: not known */
	__u32 gso_segs; /* most segments that the stack sends as one packet */
	__u8 recovering; /* in CWR, Recovery or Loss */
	__u8 timed; /* 1: the stack's own timer asks again for each paced packet */
};

/* What the law wants done. Zero: leave it. */
struct pl_orders {
	__u32 cwnd, ssthresh;
	__u64 pacing_bps;
	__u8 settled; /* 1: cwnd is what a start found: the base counts from here */
	__u8 stop; /* 1: pacing ends: give the socket's pacing back */
};

/* State of one connection. All zero is the right beginning. */
struct pl_start {
	__u64 breaker_until_us;
	__u64 rate_bps; /* the path's rate when this start began */
	__u64 first_us, last_us; /* first and last segment of the train sent */
	__u64 probe_acked_us; /* probe: its first ACK */
	__u64 train_acked_us; /* ACK of the train's first segment */
	__u64 probe_bps; /* spacing of the probe's ACKs; 0: not known */
	__u64 share_bps; /* rate of the last start, for status */
	__u64 round_us; /* when this round trip began */
	__u32 sent0, delivered0, retransmitted0; /* counters when the burst began */
	__u32 first_segs, last_segs; /* of the burst, sent before first_us, last_us */
	__u32 probe_acked_segs, train_acked_segs;
	__u32 seen_segs; /* learning: delivered counter at the last ACK */
	__u32 together; /* connections that shared it when the last paced packet left */
	__u32 paced_segs; /* sent under pacing when the first ACK came */
	__u32 paced_end; /* snd_nxt at that moment */
	__u32 flight_segs; /* largest flight of this burst */
	__u32 train_rtt_us; /* least RTT of the train's second half; 0: none yet */
	__u32 base_cwnd; /* the base's own window while lead and probe go out */
	__u32 round_end; /* snd_nxt when this round trip began */
	__u32 round_segs; /* delivered counter at that moment */
	__u32 round_cwnd; /* and the window */
	__u32 round_rtt_us; /* least RTT of this round trip; 0: none yet */
	__u32 epoch; /* of the path, when this connection was counted */
	__u32 bad_row; /* bad starts in a row */
	__u32 starts, bad_starts, breaker_opened;
	__u8 state; /* enum pl_start_state */
	__u8 counted; /* 1: in path->active */
	__u8 led; /* 1: this start went beyond the initial window */
	__u8 learning; /* 1: the path was not known when the burst began */
	__u8 probing; /* 1: this start has a probe */
	__u8 rated; /* 1: this train's stretch has been judged */
	__u8 drained; /* 1: and at its end next to nothing waited in the path */
	__u8 rounds; /* round trips in which the law still leads the window */
	__u8 waited; /* 1: in this one the sender had nothing more to send */
	__u8 pacing; /* 1: the socket's pacing was ordered by us */
};

static __always_inline __u64 pl_rate(__u32 segs, __u32 mss, __u64 span_us)
{
	return span_us ? (__u64)segs * mss * PL_USEC_PER_SEC / span_us : 0;
}

/* Segments that a rate keeps in flight over an RTT, rounded up. */
static __always_inline __u32 pl_bdp_segs(__u64 rate_bps, __u32 rtt_us, __u32 mss)
{
	__u64 bytes = rate_bps * rtt_us / PL_USEC_PER_SEC;

	return mss ? (__u32)((bytes + mss - 1) / mss) : 0;
}

/* What is still believed of a remembered rate: it halves every half-life. */
static __always_inline __u64 pl_remembered(const struct pl_path *path, const struct pl_policy *policy,
					   __u64 now_us)
{
	__u64 age_us = now_us - path->confirmed_us;
	__u64 halvings = policy->half_life_ms ? age_us / ((__u64)policy->half_life_ms * 1000) : 0;
	__u64 rate = halvings > 31 ? 0 : path->rate_bps >> halvings;

	return rate < PL_RATE_MIN_BPS ? 0 : rate;
}

static __always_inline int pl_on_path(const struct pl_start *s, const struct pl_path *path)
{
	return s->counted && s->epoch == path->epoch && path->active;
}

static __always_inline void pl_leave_path(struct pl_start *s, struct pl_path *path)
{
	if (pl_on_path(s, path))
		path->active--;
	s->counted = 0;
}

static __always_inline void pl_join_path(struct pl_start *s, struct pl_path *path, const struct pl_tcp *tcp)
{
	__u64 quiet_us = tcp->now_us - path->started_us;

	/* A connection that vanished without a word must not take a share for ever. */
	if (path->active && !pl_on_path(s, path) && quiet_us > 60 * PL_USEC_PER_SEC) {
		path->epoch++;
		path->active = 0;
	}
	path->started_us = tcp->now_us;
	/* Shorter than a round trip: the same burst, whose first ones are done. */
	if (!path->active && quiet_us > path->min_rtt_us) {
		path->expected = path->peak;
		path->peak = 0;
		path->block_us = 0;
		path->learned_bps = 0;
		path->learned_segs = 0;
		path->window_bps = 0;
	}
	if (!pl_on_path(s, path)) {
		s->counted = 1;
		s->epoch = path->epoch;
		path->active++;
		if (path->active > path->peak)
			path->peak = path->active;
	}
}

/* Segments of a paced packet: a millisecond of the rate, two at least (tcp_tso_autosize). */
static __always_inline __u32 pl_packet_segs(__u64 rate_bps, const struct pl_tcp *tcp)
{
	__u64 segs = tcp->mss ? (rate_bps >> 10) / tcp->mss : 0;

	if (segs > tcp->gso_segs)
		segs = tcp->gso_segs;
	return segs > 2 ? (__u32)segs : 2;
}

/*
 * Segments that our own start may leave queued on a path that is not full: of lead
 * and probe, and of a paced packet: before the next one comes, a quarter is a fair
 * part.
 */
static __always_inline __u32 pl_own_queue(__u64 rate_bps, const struct pl_tcp *tcp)
{
	return PL_QUEUE_SEGS + pl_packet_segs(rate_bps, tcp) / 4;
}

/* The window that a share of the path fills, and a little to keep it busy. */
static __always_inline __u32 pl_start_window(const struct pl_path *path, __u64 path_bps, __u32 active,
					     __u32 rtt_us, __u32 mss)
{
	return (pl_bdp_segs(path_bps, rtt_us, mss) + PL_LEAD_SEGS) / active + 1;
}

static __always_inline __u32 pl_share_window(const struct pl_path *path, const struct pl_tcp *tcp)
{
	__u64 rate = path->window_bps > path->rate_bps ? path->window_bps : path->rate_bps;

	return pl_start_window(path, rate, path->active ? path->active : 1, path->min_rtt_us, tcp->mss);
}

/* Segments that waited in the path at least, when the least RTT of a while was `rtt_us`. */
static __always_inline __u32 pl_queued(const struct pl_path *path, const struct pl_tcp *tcp, __u32 rtt_us)
{
	return rtt_us > path->min_rtt_us ? pl_bdp_segs(path->rate_bps, rtt_us - path->min_rtt_us, tcp->mss) : 0;
}

static __always_inline __u32 pl_voices(const struct pl_start *s)
{
	return s->together ? s->together : 1;
}

/* Each of those that started together has one voice, of which it gives one in `of`. */
static __always_inline void pl_vote(const struct pl_start *s, struct pl_path *path, __u64 rate, __u32 of)
{
	__u32 voices = pl_voices(s) * of;

	if (rate > path->rate_bps)
		path->rate_bps += (rate - path->rate_bps) / voices;
	else
		path->rate_bps -= (path->rate_bps - rate) / voices;
}

/* Judge the train by its stretch, once; `lossy` when the base entered recovery. */
static __always_inline void pl_judge_rate(struct pl_start *s, struct pl_path *path, const struct pl_tcp *tcp,
					  int lossy)
{
	__u32 acked = tcp->delivered_segs - s->train_acked_segs;
	__u32 sent = s->last_segs - s->first_segs;
	__u64 sent_us = s->last_us - s->first_us;
	__u64 acked_us = tcp->now_us - s->train_acked_us;
	__u64 rate = s->rate_bps;
	__u32 room = pl_own_queue(rate, tcp);
	__u32 queued;
	int measured;

	if (s->rated || !s->train_acked_us || !path->rate_bps)
		return;
	/* Of many that share a path each sends little: the queue tells enough. */
	measured = sent >= PL_TRAIN_MIN_SEGS && acked >= PL_TRAIN_MIN_SEGS && sent_us && acked_us;
	if (!measured && pl_voices(s) == 1)
		return;
	s->rated = 1;
	/* What lead and probe had queued was drained when the train's end came by. */
	queued = s->train_rtt_us ? pl_queued(path, tcp, s->train_rtt_us) : room + 1;
	s->drained = !lossy && queued <= room;
	/* Under loss fewer segments arrive than were sent: compare like with like. */
	if (measured)
		sent_us = sent_us * acked / sent;
	if (measured && acked_us > sent_us + sent_us / (s->drained ? 8 : 64)) {
		/* The path gave less than it was asked for. */
		__u64 given = rate * sent_us / acked_us;

		/* A little, without a loss: jitter of the ACKs looks alike. */
		if (!lossy && acked_us < sent_us + sent_us / 8)
			given = (given + rate) / 2;
		/* Of a short train the ACKs may have waited for what others lost. */
		if (s->together > 1 && given < rate / 2)
			given = rate / 2;
		rate = given;
	} else if (!lossy && s->together > 1) {
		/* All see the same queue: they aim at a short one, and at none lost. */
		if (!s->drained)
			rate -= rate / 32;
		else
			rate += queued > room / 2 ? rate / 32 : rate / 16;
	} else if (!lossy) {
		__u64 probe = s->probe_bps - (s->probe_bps >> 4);

		if (probe > rate + (rate >> 4))
			rate = probe < 2 * rate ? probe : 2 * rate;
		else if (s->drained && s->probing && acked_us < sent_us - sent_us / 128)
			rate += rate / 64;
		else if (s->drained && !tcp->timed && acked_us < sent_us + sent_us / 128)
			/* Where a qdisc paces there is no probe: only a larger step can tell. */
			rate += rate / 16;
	}
	path->confirmed_us = tcp->now_us;
	if (rate != s->rate_bps)
		pl_vote(s, path, rate, 1);
}

/* Judge the train by its losses, when all of it is acknowledged or given up. */
static __always_inline void pl_judge_loss(struct pl_start *s, struct pl_path *path, const struct pl_policy *policy,
					  const struct pl_tcp *tcp)
{
	__u32 lost = tcp->retransmitted_segs - s->retransmitted0;
	__u32 paced = s->paced_segs;
	int bad = lost > 1 && (__u64)lost * 1000 > (__u64)paced * policy->breaker_permille;
	/* Rated: it arrived nearly as it was sent, and yet a queue overflowed. */
	__u32 back = !s->rated ? 2 : bad ? 8 : 16;
	__u64 rate = s->rate_bps - s->rate_bps / back;

	if (!paced)
		return;
	if (lost && (s->rated || bad) && path->rate_bps > rate) {
		pl_vote(s, path, rate, 1);
		path->confirmed_us = tcp->now_us;
	}
	if (bad) {
		s->bad_starts++;
		s->bad_row++;
		if (policy->breaker_starts && s->bad_row >= policy->breaker_starts) {
			s->bad_row = 0;
			s->breaker_opened++;
			s->breaker_until_us = tcp->now_us + (__u64)policy->breaker_hold_ms * 1000;
		}
	} else {
		s->bad_row = 0;
		if (!lost && paced > path->flight_segs)
			path->flight_segs = paced;
	}
	s->paced_segs = 0;
}

/* The base goes on by its own slow start, to this connection's share of the path. */
static __always_inline void pl_lead_window(const struct pl_path *path, const struct pl_tcp *tcp,
					   struct pl_orders *orders)
{
	__u32 share = pl_share_window(path, tcp);

	if (share > tcp->cwnd)
		orders->ssthresh = share;
}

static __always_inline void pl_begin_round(struct pl_start *s, const struct pl_tcp *tcp)
{
	s->round_us = tcp->now_us;
	s->round_end = tcp->nxt;
	s->round_segs = tcp->delivered_segs;
	s->round_cwnd = tcp->cwnd;
	s->round_rtt_us = 0;
	s->waited = 0;
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
	__u32 segs = tcp->delivered_segs - s->round_segs;

	if (tcp->rtt_us && (!s->round_rtt_us || tcp->rtt_us < s->round_rtt_us))
		s->round_rtt_us = tcp->rtt_us;
	if (!tcp->unsent)
		s->waited = 1;
	if (tcp->recovering) {
		/* The path is full, and the base knows how to go on. */
		pl_vote(s, path, path->rate_bps - path->rate_bps / 32, 1);
		s->rounds = 0;
		return;
	}
	if ((__s32)(tcp->una - s->round_end) < 0)
		return;
	s->rounds--;
	if (!s->waited && s->round_rtt_us) {
		__u64 rate = pl_rate(segs, tcp->mss, tcp->now_us - s->round_us) *
			     (path->active ? path->active : 1);
		int full = pl_queued(path, tcp, s->round_rtt_us) >= pl_own_queue(path->rate_bps, tcp);
		/* With a window for more, and no receiver's window below it. */
		int filled = s->round_cwnd >= pl_start_window(path, path->rate_bps, path->active ? path->active : 1,
							      path->min_rtt_us, tcp->mss) &&
			     tcp->packets_out + PL_PROBE_SEGS >= s->round_cwnd;

		if (full || rate - (filled ? 0 : rate / 16) > path->rate_bps)
			pl_vote(s, path, rate < 2 * s->rate_bps ? rate : 2 * s->rate_bps, PL_ROUND_VOICE);
		path->confirmed_us = tcp->now_us;
		if (!full) {
			if (path->window_bps < path->rate_bps)
				path->window_bps = path->rate_bps;
			/* Only after a whole round with the window that is tried already. */
			if (s->round_cwnd >= pl_share_window(path, tcp) && path->window_bps < rate + rate / 16)
				path->window_bps += path->window_bps / 64 / pl_voices(s);
			pl_lead_window(path, tcp, orders);
		}
	}
	pl_begin_round(s, tcp);
}

/*
 * Called before each transmission, with what the connection looks like now.
 * Decides whether a start begins, and what pace and window the next packet has.
 */
static __always_inline void pl_start_before_send(struct pl_start *s, struct pl_path *path,
						 const struct pl_policy *policy, const struct pl_tcp *tcp,
						 struct pl_orders *orders)
{
	__u32 n, window, active, rtt_us;
	__u64 share;

	if (tcp->min_rtt_us && (!path->min_rtt_us || tcp->min_rtt_us <= path->min_rtt_us ||
				tcp->now_us - path->min_rtt_at_us > PL_MIN_RTT_AGE_US)) {
		path->min_rtt_us = tcp->min_rtt_us;
		path->min_rtt_at_us = tcp->now_us;
	}
	if (!tcp->packets_out && !(s->state == PL_START_PACED && s->sent0 == tcp->sent_segs)) {
		/* Nothing in flight: a burst begins. */
		__u64 rate = 0;

		pl_judge_loss(s, path, policy, tcp);
		pl_join_path(s, path, tcp);
		s->sent0 = tcp->sent_segs;
		s->delivered0 = tcp->delivered_segs;
		s->retransmitted0 = tcp->retransmitted_segs;
		s->paced_segs = 0;
		s->rated = 0;
		s->drained = 0;
		s->rounds = 0;
		s->led = 0;
		s->probing = 0;
		s->probe_bps = 0;
		s->probe_acked_us = 0;
		s->train_acked_us = 0;
		s->train_rtt_us = 0;
		s->first_us = 0;
		s->first_segs = 0;
		s->last_segs = 0;
		s->flight_segs = 0;
		s->seen_segs = tcp->delivered_segs;
		s->state = PL_START_BASE;
		s->learning = 0;
		if (tcp->recovering || !tcp->mss)
			return;
		if (policy->target == PL_TARGET_SSTHRESH) {
			if (tcp->ssthresh >= PL_NO_SSTHRESH) {
				/* "instead of infinity a predetermined value": 4.1 */
				window = pl_bdp_segs(policy->initial_rate_bps, tcp->srtt_us, tcp->mss);
				if (window)
					orders->ssthresh = window;
			} else {
				window = tcp->ssthresh;
			}
			if (tcp->cwnd >= window || !tcp->srtt_us)
				return;
			rate = pl_rate(window, tcp->mss, tcp->srtt_us);
			s->base_cwnd = window;
		} else {
			rate = pl_remembered(path, policy, tcp->now_us);
			if (!rate && policy->initial_rate_bps) {
				rate = policy->initial_rate_bps;
				path->flight_segs = 0;
			}
			path->rate_bps = rate;
			s->learning = !rate;
			if (!rate || !path->min_rtt_us)
				return;
			/* A path that the initial window fills needs no help. */
			if (pl_bdp_segs(rate, path->min_rtt_us, tcp->mss) <= PL_LEAD_SEGS)
				return;
			s->base_cwnd = tcp->cwnd;
		}
		if (tcp->now_us < s->breaker_until_us)
			return;
		s->rate_bps = rate;
		s->state = PL_START_PACED;
		s->pacing = 1;
	}
	if (s->state != PL_START_PACED)
		return;
	if (tcp->recovering) {
		s->state = PL_START_MEASURED;
		s->paced_segs = tcp->sent_segs - s->sent0;
		s->paced_end = tcp->nxt;
		return;
	}
	n = tcp->sent_segs - s->sent0;
	if (policy->target == PL_TARGET_SSTHRESH) {
		orders->pacing_bps = s->rate_bps;
		orders->cwnd = s->base_cwnd;
		s->share_bps = s->rate_bps;
		return;
	}
	if (!pl_on_path(s, path))
		pl_join_path(s, path, tcp);
	active = path->active;
	/* Those that started together last time are about to: leave them room. */
	if (!n && !s->probing && active < path->expected)
		active = path->expected;
	s->together = active;
	share = s->rate_bps / active;
	s->share_bps = share;
	/* With this packet all is sent, and the share is free for the others. */
	if (n >= PL_PROBE_FROM && tcp->unsent <= pl_packet_segs(share, tcp) * tcp->mss)
		pl_leave_path(s, path);
	if (!n && tcp->timed && tcp->now_us - path->lead_us > path->min_rtt_us) {
		/* Nobody else's lead and probe are on their way. */
		s->probing = 1;
		path->lead_us = tcp->now_us;
	}
	/*
	 * One TSO packet must not hold more than the lead, or than the probe: the
	 * window ends there, and the pacing timer asks again. Where a qdisc (fq)
	 * paces, nobody would: no lead and no probe then.
	 */
	if (s->probing && n < PL_LEAD_SEGS) {
		orders->pacing_bps = s->rate_bps * PL_LEAD_SPEEDUP;
		orders->cwnd = PL_LEAD_SEGS;
		return;
	}
	rtt_us = path->min_rtt_us;
	window = pl_start_window(path, s->rate_bps, active, rtt_us, tcp->mss);
	if (path->flight_segs && window > path->flight_segs * PL_FLIGHT_GROWTH)
		window = path->flight_segs * PL_FLIGHT_GROWTH;
	orders->pacing_bps = share;
	orders->cwnd = window > s->base_cwnd ? window : s->base_cwnd;
	orders->ssthresh = orders->cwnd;
	if (!s->led) {
		s->led = 1;
		s->starts++;
	}
	if (s->probing && active == 1 && n >= PL_PROBE_FROM && n < PL_TRAIN_FROM) {
		orders->pacing_bps = 2 * share;
		orders->cwnd = PL_TRAIN_FROM;
		return;
	}
	/* Of many each sends little: all but its first packet counts. */
	if (n < (s->probing ? PL_TRAIN_FROM : active > 1 ? 2 : PL_LEAD_SEGS))
		return;
	if (!s->first_us) {
		s->first_us = tcp->now_us;
		s->first_segs = n;
	}
	s->last_us = tcp->now_us;
	s->last_segs = n;
}

/*
 * Spacing of the ACKs on a path not yet known, of all connections on it together.
 * Blocks double while the ACKs come without a pause; only the largest size seen
 * counts, and of these the best.
 */
static __always_inline void pl_learn(struct pl_start *s, struct pl_path *path, const struct pl_tcp *tcp)
{
	int paused = !path->block_us || tcp->now_us - path->acked_us > path->min_rtt_us / 8;
	__u32 segs;

	path->acked_segs += tcp->delivered_segs - s->seen_segs;
	path->acked_us = tcp->now_us;
	s->seen_segs = tcp->delivered_segs;
	segs = path->acked_segs - path->block_from;
	if (!paused && segs < path->block_segs)
		return;
	if (paused) {
		path->block_segs = PL_BLOCK_MIN_SEGS;
	} else {
		__u64 rate = pl_rate(segs, tcp->mss, tcp->now_us - path->block_us);

		if (path->block_segs > path->learned_segs) {
			path->learned_segs = path->block_segs;
			path->learned_bps = rate;
		} else if (path->block_segs == path->learned_segs && rate > path->learned_bps) {
			path->learned_bps = rate;
		}
		if (path->block_segs < PL_BLOCK_MAX_SEGS)
			path->block_segs *= 2;
	}
	path->block_us = tcp->now_us;
	path->block_from = path->acked_segs;
}

/* Called for each ACK, after the counters in `tcp` were brought up to date. */
static __always_inline void pl_start_on_ack(struct pl_start *s, struct pl_path *path,
					    const struct pl_policy *policy, const struct pl_tcp *tcp,
					    struct pl_orders *orders)
{
	__u32 done = tcp->delivered_segs - s->delivered0;
	int over = !tcp->packets_out && !tcp->unsent;

	if (!s->learning) {
		/* Who has nothing to send needs no share. */
		if (!tcp->unsent)
			pl_leave_path(s, path);
		else if (!pl_on_path(s, path))
			pl_join_path(s, path, tcp);
	}
	if (s->state == PL_START_PACED && done) {
		s->state = PL_START_MEASURED;
		s->paced_segs = tcp->sent_segs - s->sent0;
		s->paced_end = tcp->nxt;
		if (policy->target == PL_TARGET_SSTHRESH) {
			orders->stop = 1;
			s->pacing = 0;
		} else if (!s->led && tcp->cwnd < s->base_cwnd) {
			/* A burst no longer than its lead leaves the base's window. */
			orders->cwnd = s->base_cwnd;
		}
		orders->settled = s->led;
	}
	if (s->state == PL_START_MEASURED) {
		__u32 probed = tcp->delivered_segs - s->probe_acked_segs;

		if (s->probing && !s->probe_acked_us && done >= PL_PROBE_FROM) {
			s->probe_acked_us = tcp->now_us;
			s->probe_acked_segs = tcp->delivered_segs;
		} else if (s->probing && !s->probe_bps && done >= PL_TRAIN_FROM && probed >= PL_PROBE_SEGS / 2) {
			s->probe_bps = pl_rate(probed, tcp->mss, tcp->now_us - s->probe_acked_us);
		}
		if (s->first_us && !s->train_acked_us && done >= s->first_segs) {
			s->train_acked_us = tcp->now_us;
			s->train_acked_segs = tcp->delivered_segs;
		}
		if (tcp->rtt_us && s->train_acked_us && done >= (s->first_segs + s->last_segs) / 2 &&
		    (!s->train_rtt_us || tcp->rtt_us < s->train_rtt_us))
			s->train_rtt_us = tcp->rtt_us;
		/* Under loss, half of the train is enough, and the rest may not come. */
		if (done >= s->last_segs || (tcp->recovering && done >= s->last_segs / 2))
			pl_judge_rate(s, path, tcp, tcp->recovering);
		if ((__s32)(tcp->una - s->paced_end) >= 0 || over) {
			pl_judge_loss(s, path, policy, tcp);
			s->state = PL_START_BASE;
			if (s->drained && !tcp->recovering && path->rate_bps >= s->rate_bps)
				pl_lead_window(path, tcp, orders);
			s->rounds = s->rated ? PL_ROUNDS : 0;
			pl_begin_round(s, tcp);
		}
	} else if (s->state == PL_START_BASE && s->rounds) {
		pl_follow_round(s, path, tcp, orders);
	} else if (s->state == PL_START_BASE && s->learning) {
		pl_learn(s, path, tcp);
		if (tcp->packets_out > s->flight_segs && tcp->retransmitted_segs == s->retransmitted0)
			s->flight_segs = tcp->packets_out;
	}
	/*
	 * From here the ACKs keep time, once they carry the whole window. Where the
	 * receiver's window is still opening they do not: what it releases at once
	 * is more than the path takes, so the pace (now the kernel's, 1.2 cwnd/srtt)
	 * stays until the window is full.
	 */
	if (s->pacing && s->state == PL_START_BASE &&
	    (tcp->packets_out + PL_PROBE_SEGS >= tcp->cwnd || !tcp->unsent || tcp->recovering)) {
		orders->stop = 1;
		s->pacing = 0;
	}
	if (over) {
		if (s->learning && path->learned_bps) {
			__u64 learned = path->learned_bps - (path->learned_bps >> 4);

			if (learned > path->rate_bps)
				path->rate_bps = learned;
			if (s->flight_segs > path->flight_segs)
				path->flight_segs = s->flight_segs;
			path->confirmed_us = tcp->now_us;
		}
		pl_leave_path(s, path);
		s->state = PL_START_IDLE;
		if (s->pacing)
			orders->stop = 1;
		s->pacing = 0;
	}
}

#endif

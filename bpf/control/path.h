/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT */
/*
 * What the start-up law (startup.h) sees, orders and keeps, and a path that the
 * connections of a job share: who is on it, what fits into it, what it is worth.
 */
#ifndef PACELINE_PATH_H
#define PACELINE_PATH_H

#include "../paceline_abi.h"

#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif

#define PL_LEAD_SEGS 10 /* RFC 6928: what any TCP may send unpaced */
#define PL_THIN_SEGS 3 /* in flight at most: a stream that the kernel takes for thin (tcp_stream_is_thin) */
#define PL_LEAD_LEAST_US 500 /* that it must last at a rate to say that it is too low: its packets leave by a timer, up to 50 us late each */
#define PL_LEAD_SPEEDUP 8 /* the lead leaves this much above the target */
#define PL_BESIDE_SPEEDUP 4 /* where others keep a long queue: a burst leaves in a fraction of its time on the link */
#define PL_PROBE_FROM 16 /* segments: later than the application's own start */
#define PL_PROBE_SEGS 20 /* at twice the rate: adds 10 to a queue at most */
#define PL_PROBE_BEYOND 8 /* a part in so many more than arrived since it was due, it may say: what hosts take is in that time */
#define PL_PROBE_LEAST_US 500 /* of a burst's lead and probe, for what hosts take to be a small part */
#define PL_TRAIN_FROM (PL_PROBE_FROM + PL_PROBE_SEGS) /* what follows is judged */
#define PL_TRAIN_MIN_SEGS 16 /* shortest train whose stretch is believed */
#define PL_LONG_TRAIN_SEGS 256 /* of which one is believed that says less than half */
#define PL_QUEUE_SEGS 20 /* what lead and probe may leave queued: no sign of a full path */
#define PL_ROOM_LEAST_SEGS 4 /* of a queue: what two packets of two segments are */
#define PL_PASSES 3 /* times what may wait in a short queue: most of a packet so long passes while its rest arrives */
#define PL_EMPTY 8 /* a queue of which no more than such a part is used has room for a faster rate */
#define PL_PACKET_SHIFT 10 /* sk_pacing_shift: a packet is a part of 2^10 of a second's worth */
#define PL_NEAR_SHIFT 9 /* net.ipv4.tcp_tso_rtt_log */
#define PL_SHORTENED_US 512 /* of RTT: below it TSO packets are 64 KB, whatever the pacing rate is (tcp_tso_autosize) */
#define PL_NEAR_US 2560 /* of RTT: below it TSO packets are longer than a millisecond, by 64 KB >> (RTT >> 9) (tcp_tso_autosize) */
#define PL_BLOCK_MIN_SEGS 16 /* ACK spacing is learned over blocks from this size */
#define PL_BLOCK_MIN_US 10 /* and over as long: what comes with one late ACK is no rate */
#define PL_BLOCK_MAX_SEGS 512 /* to this: the longer, the less a late ACK matters */
#define PL_ARRIVED_SEGS 64 /* blocks from this size say what arrived of all on a path together */
#define PL_SEEN_SEGS 4 /* of which a connection tells when it has as many: a look at the path for each ACK is dear */
#define PL_ROUNDS 16 /* round trips after a start in which the window is led to the path's */
#define PL_LED 1 /* what is left of them where they are over and must not begin again */
#define PL_ROUND_VOICE 4 /* of one's voice: one round's ACKs jitter by a packet of 64 KB */
#define PL_FLIGHT_GROWTH 4 /* a start exceeds the largest proven flight by this at most */
#define PL_WARY_LOSS 50 /* a start that lost more than a part of so many makes its path wary */
#define PL_WARY_STARTS 32 /* good starts in a row after which a path is no longer wary; */
#define PL_WARY_BACKOFF 4 /* times as many where it lost again before as many good ones more, */
#define PL_WARY_STARTS_MAX 512 /* and no more than these: a burst in so many may lose */
#define PL_WARY_ROUNDS 64 /* in place of PL_ROUNDS on such a path */
#define PL_STEP 8 /* by a part of so many a window grows in a round trip where little is known */
#define PL_WARY_GROWTH_SEGS 8 /* where a path is wary by no more than so many segments, all together */
#define PL_WARY_BURST_SEGS 2048 /* longer ones are transfers, and seldom those of many at once */
#define PL_SPREAD 2 /* of a wary path: a burst leaves within an RTT divided by this, at best */
#define PL_NO_SSTHRESH 0x7fffffffu /* TCP_INFINITE_SSTHRESH */
#define PL_GOLDEN_RATIO 2654435761u /* of 2^32: multiplied by it numbers that are near each other are not */
#define PL_CONFIDENCE 4 /* in what was just confirmed; it halves every half-life, and 1 is too little */
#define PL_RATE_MIN_BPS 12500 /* 100 kbit/s: below it a start is left to the base */
#define PL_USEC_PER_SEC 1000000ull
#define PL_MIN_RTT_AGE_US (300 * PL_USEC_PER_SEC) /* tcp_min_rtt_wlen: routes change */
#define PL_TIMESTAMP_US 1000 /* a tick of TCP's timestamps (TCP_TS_HZ in tcp.h) */
#define PL_MIN_RTT_NEAR 32 /* a sample above it by less than this part confirms the minimum RTT: timers jitter */
#define PL_MIN_RTT_ROSE 8 /* a start whose RTTs all stay above it by this part, on a path with room, says otherwise */
#define PL_USUAL_MSS 1448 /* bytes; MTU 1500 with timestamps: amounts of data are counted in segments of it */
#define PL_FEW_SEGS 4 /* of large ones: their ACKs have three gaps, or one where every second one is acknowledged */

/* What the law sees of a connection at one moment. Counters may wrap. */
struct pl_tcp {
	__u64 now_us;
	__u32 cwnd, ssthresh; /* segments */
	__u32 srtt_us, min_rtt_us;
	__u32 mss; /* bytes */
	__u32 packets_out; /* segments not cumulatively acknowledged, */
	__u32 in_flight; /* and those of them that neither arrived nor are lost, and what is sent again */
	__u32 unsent; /* bytes: written and not yet sent */
	__u32 sent_segs; /* data segments sent, retransmissions too */
	__u32 delivered_segs; /* data segments known to have arrived */
	__u32 retransmitted_segs;
	__u32 carried_segs; /* delivered over the last RTT or more (tcp_rate.c) */
	__u32 carried_us; /* and how long that took; 0: not known */
	__u32 una, nxt; /* snd_una, snd_nxt */
	__u32 rtt_us; /* of what this ACK acknowledged; 0: not known */
	__u32 gso_segs; /* most segments that the stack sends as one packet */
	__u8 app_limited; /* what is acknowledged now had waited for the application */
	__u8 recovering; /* in CWR, Recovery or Loss */
	__u8 device_segs; /* of a packet at most where no law keeps packets short; 255: or more */
	__u8 repairing; /* in Recovery, or in Loss and something arrived since the timeout */
};

/* What it sees of one ACK, to tell whether it wants to see more. As of struct pl_tcp. */
struct pl_ack {
	__u32 una, sent_segs, delivered_segs, rtt_us;
	__u32 unsent;
	__u8 recovering;
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
	__u64 probe_acked_us; /* probe: its first ACK, */
	__u64 probe_due_us; /* and when that came if nothing held it up */
	__u64 train_acked_us; /* ACK of the train's first segment */
	__u64 probe_bps; /* spacing of the probe's ACKs; 0: not known */
	__u64 lead_bps; /* what the wait of the lead's last segment says; 0: not known, or of no use */
	__u64 share_bps; /* rate of the last start, for status */
	__u64 round_us; /* when this round trip began */
	__u64 spread_until_us; /* of a message that is spread: when the others' are over */
	__u64 began_us; /* this burst */
	__u64 went_us; /* its last transmission under gaps (gaps.h), or ACK but the final one */
	__u32 sent0, delivered0, retransmitted0; /* counters when the burst began */
	__u32 first_segs, last_segs; /* of the burst, sent before first_us, last_us */
	__u32 probe_acked_segs, train_acked_segs;
	__u32 seen_segs; /* learning: delivered counter at the last ACK */
	__u32 together; /* connections that shared the path at most, while it was paced */
	__u32 paced_segs; /* sent under pacing when the first ACK came */
	__u32 paced_end; /* snd_nxt at that moment */
	__u32 flight_segs; /* largest flight of this burst */
	__u32 train_rtt_us; /* minimum RTT of the train's second half; 0: none yet */
	__u32 base_cwnd; /* the base's own window while lead and probe go out */
	__u32 round_end; /* snd_nxt when this round trip began */
	__u32 round_segs; /* the path's acked_segs at that moment */
	__u32 round_cwnd; /* and the window */
	__u32 round_rtt_us; /* minimum RTT of this round trip; 0: none yet */
	__u32 min_rtt_us; /* of this burst; 0: none yet */
	__u32 waited_us; /* what waited of the RTT of the last segment whose RTT is known; where packets are kept short, the most in this round trip */
	__u32 most_rtt_us; /* longest RTT that was noted in this round trip */
	__u32 epoch; /* of the path, when this connection was counted */
	__u32 burst_segs; /* that arrived of the last burst */
	__u32 turn_gap_us; /* between the segments of a host's messages that wait for a turn (turns.h) */
	__u32 gap_us; /* between those of one that has its turn; 0: its window decides (gaps.h) */
	__u32 queue_us; /* under gaps: the longest wait in a queue, of late */
	__u32 turn; /* number of the turns, of which its message has, or had, one; 0: none */
	__u32 turn_sent, turn_lost; /* segments of the last message that should have waited for one, until counted */
	__u32 turn_retransmitted, turn_delivered; /* counters when the turn's window was last set */
	__u32 timeouts; /* of this burst */
	__u32 bad_row; /* bad starts in a row */
	__u32 starts, bad_starts, breaker_opened;
	__u8 state; /* enum pl_start_state */
	__u8 counted; /* 1: in path->active */
	__u8 led; /* 1: this start went beyond the initial window */
	__u8 learning; /* 1: the path was not known when the burst began */
	__u8 leading; /* 1: this start has a lead, whose last ACK has not come */
	__u8 probing; /* 1: and a probe */
	__u8 slow; /* 1: and no probe, for there is no room for one in a round trip */
	__u8 rated; /* 1: this train's stretch has been judged */
	__u8 drained; /* 1: and at its end next to nothing waited in the path */
	__u8 rounds; /* round trips in which the law still leads the window */
	__u8 waited; /* 1: in this one the sender had nothing more to send */
	__u8 pacing; /* 1: the socket's pacing was ordered by us */
	__u8 held_segs; /* most in flight on a path that the initial window fills; 0: what the base likes */
	__u8 packet_segs; /* most segments of a packet that is not paced; 0: what the stack likes */
	__u8 turn_first; /* 1: it is a connection's first one, and its window was made small */
	__u8 turn_held; /* 1: its message has a turn */
	__u8 turn_wants; /* 1: one begins that waits where messages are lost */
	__u8 waits; /* 1: it waits for its turn */
	__u8 others; /* 1: it has waited, for the turn of another message of the host */
	__u8 alone; /* 1: nor has any of the host's for long */
	__u8 met; /* 1: it has sent a message that was not short */
	__u8 gapped; /* 1: gaps were between its segments */
	__u8 spread_segs; /* of a message that is being spread (incast.h); 0: none is */
};

/* The smaller and the larger of two, without a branch: the verifier follows each to the end. */
static __always_inline __u32 pl_less(__u32 a, __u32 b)
{
	__u64 over = (__u64)a - b;

	return b + ((__u32)over & (__u32)(0 - (over >> 63)));
}

static __always_inline __u32 pl_more(__u32 a, __u32 b)
{
	__u64 over = (__u64)a - b;

	return b + ((__u32)over & (__u32)((over >> 63) - 1));
}

/* All ones where `value` is not 0, to choose by. */
static __always_inline __u32 pl_mask(__u32 value)
{
	return (__u32)(0 - ((0 - (__u64)value) >> 63));
}

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

/* As much data as `segs` segments of the usual size are, in segments of this connection's; a few at least. */
static __always_inline __u32 pl_amount(__u32 segs, __u32 mss)
{
	__u32 large;

	if (mss <= PL_USUAL_MSS + PL_USUAL_MSS / 8)
		return segs;
	large = segs * PL_USUAL_MSS / mss;
	return large > PL_FEW_SEGS ? large : PL_FEW_SEGS;
}

/* What is left of a value that halves every half-life. */
static __always_inline __u64 pl_aged(__u64 value, __u64 age_us, const struct pl_policy *policy)
{
	__u64 halvings = policy->half_life_ms ? age_us / ((__u64)policy->half_life_ms * 1000) : 0;

	return halvings > 31 ? 0 : value >> halvings;
}

/* Whether what is so old is believed no more. */
static __always_inline int pl_is_old(__u64 age_us, const struct pl_policy *policy)
{
	return pl_aged(PL_CONFIDENCE, age_us, policy) <= 1;
}

/*
 * What is remembered of the path's rate, as long as it is believed. Age takes confidence
 * away, and not rate: a start that is too slow only because time has passed is slower for
 * many bursts than one on a path that nobody ever knew.
 */
static __always_inline __u64 pl_remembered(const struct pl_path *path, const struct pl_policy *policy,
					   __u64 now_us)
{
	if (pl_is_old(now_us - path->confirmed_us, policy) || path->rate_bps < PL_RATE_MIN_BPS)
		return 0;
	return path->rate_bps;
}

/* The same; what is not believed is forgotten, its wariness too: the path is learned as if it were new. */
static __always_inline __u64 pl_believed(struct pl_path *path, const struct pl_policy *policy, __u64 now_us)
{
	__u64 rate = pl_remembered(path, policy, now_us);

	path->rate_bps = rate;
	if (!rate && pl_is_old(now_us - path->confirmed_us, policy)) {
		path->flight_segs = 0;
		path->wary = 0;
		path->wary_for = 0;
		path->trusted = 0;
		path->room_segs = 0;
		path->inflight_hi = 0;
	}
	return rate;
}

/*
 * An RTT that can be a minimum; 0 where it cannot. The RTT of a segment that was sent again comes
 * from TCP's timestamps, in whole ticks (tcp_rtt_tsopt_us in tcp_input.c): on a path of 1.5 ms
 * it is 1 ms or 2. Of RTTs by the microsecond clock one in a thousand looks the same. Above the
 * burst's `least` a tick changes nothing, and where many senders share a queue such RTTs are most
 * that there are.
 */
static __always_inline __u32 pl_exact_rtt(__u32 rtt_us, __u32 least)
{
	return rtt_us % PL_TIMESTAMP_US || (least && rtt_us > least) ? rtt_us : 0;
}

/*
 * The path's minimum RTT, of all connections. Its date is that of the last sample that was
 * as small, or near: the kernel's own value is a minimum of up to 300 s, and has none.
 */
static __always_inline void pl_see_rtt(struct pl_path *path, __u32 rtt_us, __u64 now_us)
{
	__u32 least = path->min_rtt_us;

	if (!rtt_us)
		return;
	if (!least || rtt_us < least || now_us - path->min_rtt_at_us > PL_MIN_RTT_AGE_US)
		path->min_rtt_us = rtt_us;
	else if (rtt_us > least + least / PL_MIN_RTT_NEAR)
		return;
	path->min_rtt_at_us = now_us;
}

/* A connection that has sent nothing has the RTT of its handshake to tell; of a new path any RTT is welcome. */
static __always_inline void pl_see_first_rtt(struct pl_path *path, const struct pl_tcp *tcp)
{
	if (!path->min_rtt_us || !tcp->sent_segs)
		pl_see_rtt(path, tcp->min_rtt_us, tcp->now_us);
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
		path->carried_bps = 0;
		path->learned_segs = 0;
		path->filled = 0;
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

/* How many share the path: those who send, or the one who asks. */
static __always_inline __u32 pl_active(const struct pl_path *path)
{
	return path->active ? path->active : 1;
}

/* Where the probe of a start begins: later than its lead, and than the application's own start. */
static __always_inline __u32 pl_probe_from(__u32 mss)
{
	__u32 from = pl_amount(PL_PROBE_FROM, mss);

	return from > PL_LEAD_SEGS ? from : PL_LEAD_SEGS;
}

/* Where it ends, and the train that is judged begins. */
static __always_inline __u32 pl_train_from(__u32 mss)
{
	return pl_probe_from(mss) + pl_amount(PL_PROBE_SEGS, mss);
}

/* Lead, probe and a train that can be judged: what must fit into a round trip. */
static __always_inline __u32 pl_whole_start(__u32 mss)
{
	return pl_train_from(mss) + 2 * pl_amount(PL_TRAIN_MIN_SEGS, mss);
}

/*
 * Segments of a packet that is not paced, where a queue is short: half of what may wait in it.
 * 0: what the stack likes; on a shorter path nothing makes its packets shorter.
 */
static __always_inline __u32 pl_packet_most(const struct pl_path *path, const struct pl_tcp *tcp)
{
	return tcp->device_segs > 1 && path->min_rtt_us >= PL_SHORTENED_US ? path->room_segs / 2 : 0;
}

/* Most segments that the stack sends as one packet, where a law keeps packets short: a short RTT adds some (tcp_tso_autosize). */
static __always_inline __u32 pl_gso_segs(__u32 packet_segs, __u32 device_segs, __u32 min_rtt_us)
{
	__u32 shift = min_rtt_us >> PL_NEAR_SHIFT;
	__u32 most = packet_segs + (shift < 32 ? device_segs >> shift : 0);

	return packet_segs && most < device_segs ? most : device_segs;
}

/* Segments of a paced packet: a millisecond of the rate, two at least (tcp_tso_autosize). */
static __always_inline __u32 pl_packet_segs(__u64 rate_bps, const struct pl_tcp *tcp)
{
	__u64 segs = tcp->mss ? (rate_bps >> PL_PACKET_SHIFT) / tcp->mss : 0;

	return pl_more(pl_less((__u32)segs, tcp->gso_segs), 2);
}

/* The same, where no law keeps packets short; 0: nor could one. */
static __always_inline __u32 pl_device_packet(const struct pl_path *path, const struct pl_tcp *tcp)
{
	__u64 segs = tcp->mss ? (path->rate_bps >> PL_PACKET_SHIFT) / tcp->mss : 0;

	if (tcp->device_segs <= 1 || path->min_rtt_us < PL_SHORTENED_US)
		return 0;
	return segs < tcp->device_segs ? (__u32)segs : tcp->device_segs;
}

/* Segments that may wait in the path without a sign that it is full: fewer where its queue is short. */
static __always_inline __u32 pl_room(const struct pl_path *path, __u32 mss)
{
	__u32 room = pl_amount(PL_QUEUE_SEGS, mss);

	return path->room_segs && path->room_segs < room ? path->room_segs : room;
}

/*
 * Segments that our own start may leave queued on a path that is not full: of lead
 * and probe, and of a paced packet: before the next one comes, a quarter is a fair
 * part.
 */
static __always_inline __u32 pl_own_queue(const struct pl_path *path, __u64 rate_bps, const struct pl_tcp *tcp)
{
	return pl_room(path, tcp->mss) + pl_packet_segs(rate_bps, tcp) / 4;
}

/*
 * A paced packet, or `least` segments if it is smaller. With TSO up to that much of a
 * window is not in flight, because the stack waits until there is room for a whole
 * packet (tcp_tso_should_defer).
 */
static __always_inline __u32 pl_waiting_segs(__u64 rate_bps, const struct pl_tcp *tcp, __u32 least)
{
	__u32 segs = pl_packet_segs(rate_bps, tcp);

	return segs > least ? segs : least;
}

/*
 * The window that a share of the path fills, and a little to keep it busy. With TSO that is
 * a packet, which waits for room, of each share, and a quarter for what is acknowledged before
 * the stack sends for it. Without, a window delivers less than it is meant for, 5 % of one
 * alone and more of many, and the rate never rises; a short queue has no room for two.
 */
static __always_inline __u32 pl_start_window(__u64 path_bps, __u32 active, __u32 rtt_us, const struct pl_tcp *tcp)
{
	__u32 packet = tcp->gso_segs > 1 ? pl_packet_segs(path_bps / active, tcp) : 0;
	__u32 spare = packet * active + packet / 4;

	/* No spare is near the upper bound; with it the verifier has less to tell apart (stack and instructions). */
	spare = pl_more(pl_less(spare, 0xffff), PL_LEAD_SEGS);
	return (pl_bdp_segs(path_bps, rtt_us, tcp->mss) + spare) / active + 1;
}

/* The same, where it is not far beyond what was ever delivered without loss. */
static __always_inline __u32 pl_proven_window(const struct pl_path *path, __u64 path_bps, __u32 active,
						const struct pl_tcp *tcp)
{
	__u32 window = pl_start_window(path_bps, active, path->min_rtt_us, tcp);

	if (path->flight_segs && window > path->flight_segs * PL_FLIGHT_GROWTH)
		window = path->flight_segs * PL_FLIGHT_GROWTH;
	return window;
}

static __always_inline __u32 pl_share_window(const struct pl_path *path, const struct pl_tcp *tcp)
{
	__u64 rate = path->window_bps > path->rate_bps ? path->window_bps : path->rate_bps;

	return pl_start_window(rate, pl_active(path), path->min_rtt_us, tcp);
}

/*
 * A wary path with bursts too short for their ACKs to tell much of who else is there, or with
 * a queue that a lead and a probe overflow.
 */
static __always_inline int pl_cautious(const struct pl_path *path, __u32 mss)
{
	return (path->wary && path->burst_segs < pl_amount(PL_LONG_TRAIN_SEGS, mss)) ||
	       (path->room_segs && path->room_segs <= pl_amount(PL_LEAD_SEGS, mss));
}

/* Segments that waited in the path at least, when the minimum RTT of a while was `rtt_us`. */
static __always_inline __u32 pl_queued(const struct pl_path *path, __u64 rate_bps, const struct pl_tcp *tcp,
				       __u32 rtt_us)
{
	return rtt_us > path->min_rtt_us ? pl_bdp_segs(rate_bps, rtt_us - path->min_rtt_us, tcp->mss) : 0;
}

static __always_inline __u32 pl_voices(const struct pl_start *s)
{
	return s->together ? s->together : 1;
}

/* A block of ACKs was seen that is long enough to be believed. */
static __always_inline int pl_learned_long(const struct pl_path *path, __u32 mss)
{
	return path->learned_segs >= pl_amount(PL_ARRIVED_SEGS, mss);
}

/* What arrived of all that share a path together; 0: too little to say. Of one alone its own train says it. */
static __always_inline __u64 pl_arrived(const struct pl_path *path, __u32 mss)
{
	return path->peak > 1 && pl_learned_long(path, mss) ? path->learned_bps : 0;
}

/* A rate that those that share a path may raise it to: what arrived of them together, and a little. */
static __always_inline __u64 pl_shown(const struct pl_path *path, __u64 rate, __u32 mss)
{
	__u64 arrived = pl_arrived(path, mss), most = arrived + (arrived >> 4);

	if (path->peak <= 1 || rate <= path->rate_bps || rate <= most)
		return rate;
	return most > path->rate_bps ? most : path->rate_bps;
}

/* What one's train says the path gave of `rate`, where not more than that arrived of all together. */
static __always_inline __u64 pl_not_below_arrived(const struct pl_path *path, __u64 given, __u64 rate, __u32 mss)
{
	__u64 arrived = pl_arrived(path, mss), least = arrived - (arrived >> 4);

	if (given >= least)
		return given;
	return least < rate ? least : rate;
}

/* Each of those that started together has one voice, of which it gives one in `of`. */
static __always_inline void pl_vote(const struct pl_start *s, struct pl_path *path, __u64 rate, __u32 mss,
				    __u32 of)
{
	__u32 voices = pl_voices(s) * of;

	rate = pl_shown(path, rate, mss);
	if (rate > path->rate_bps)
		path->rate_bps += (rate - path->rate_bps) / voices;
	else
		path->rate_bps -= (path->rate_bps - rate) / voices;
}

/*
 * What arrived since the path was last told. `timely`: ACK by ACK, or nearly: a block of ACKs
 * counts no others (learning.h).
 */
static __always_inline void pl_tell(struct pl_start *s, struct pl_path *path, const struct pl_tcp *tcp, int timely)
{
	__u32 more = tcp->delivered_segs - s->seen_segs;

	path->acked_segs += more;
	if (!timely)
		path->block_from += more;
	s->seen_segs = tcp->delivered_segs;
}

/* A round trip begins: it ends when what was sent until now is acknowledged. */
static __always_inline void pl_begin_round(struct pl_start *s, struct pl_path *path, const struct pl_tcp *tcp)
{
	pl_tell(s, path, tcp, tcp->delivered_segs - s->seen_segs < PL_SEEN_SEGS);
	s->round_us = tcp->now_us;
	s->round_end = tcp->nxt;
	s->round_segs = path->acked_segs;
	s->round_cwnd = tcp->cwnd;
	s->round_rtt_us = 0;
	s->most_rtt_us = 0;
	s->waited = 0;
}

/* Whether a connection tells the path of what arrives all the time: while it shares it, and is measured. */
static __always_inline int pl_is_telling(const struct pl_start *s)
{
	return s->together > 1 && (s->state == PL_START_MEASURED || s->rounds);
}

/* Whether it has arrivals to tell of now: so many, or a round trip ends. */
static __always_inline int pl_tells(const struct pl_start *s, __u32 delivered_segs, __u32 una)
{
	return (pl_is_telling(s) && delivered_segs - s->seen_segs >= PL_SEEN_SEGS) ||
	       (s->rounds && (__s32)(una - s->round_end) >= 0);
}

static __always_inline void pl_note_rtt(struct pl_start *s, __u32 rtt_us)
{
	s->most_rtt_us = pl_more(s->most_rtt_us, rtt_us);
	if (rtt_us && (!s->round_rtt_us || rtt_us < s->round_rtt_us))
		s->round_rtt_us = rtt_us;
}

/* Of a train's second half, whose first `done` segments have arrived: lead and probe are past. */
static __always_inline void pl_note_train_rtt(struct pl_start *s, __u32 done, __u32 rtt_us)
{
	s->most_rtt_us = pl_more(s->most_rtt_us, rtt_us);
	if (rtt_us && s->train_acked_us && done >= (s->first_segs + s->last_segs) / 2 &&
	    (!s->train_rtt_us || rtt_us < s->train_rtt_us))
		s->train_rtt_us = rtt_us;
}

#endif

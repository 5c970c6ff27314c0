/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT */
/*
 * The start-up law's (startup.h) view of a connection, its orders and its state; and the path that
 * the connections of a job share: its active connections, its rate, minimum RTT and queue.
 */
#ifndef PACELINE_PATH_H
#define PACELINE_PATH_H

#include "../paceline_abi.h"

#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif

#define PL_LEAD_SEGS 10 /* the initial window of RFC 6928, which any TCP may send unpaced */
#define PL_THIN_SEGS 3 /* most segments in flight of a thin stream (tcp_stream_is_thin) */
#define PL_LEAD_LEAST_US 500 /* shortest duration of a lead at a rate for a judgement of that rate: each packet leaves by a timer, up to 50 us late */
#define PL_LEAD_SPEEDUP 8 /* pacing rate of the lead over the target rate */
#define PL_BESIDE_SPEEDUP 4 /* pacing rate over the share where other flows keep a standing queue */
#define PL_PROBE_FROM 16 /* segments before the probe: the application writes at full speed by then */
#define PL_PROBE_SEGS 20 /* at twice the rate: adds at most 10 segments to a queue */
#define PL_PROBE_BEYOND 8 /* the probe may exceed the rate since its due time by 1/8: that time contains the hosts' processing */
#define PL_PROBE_LEAST_US 500 /* shortest duration of lead and probe in which the hosts' processing is a small part */
#define PL_TRAIN_FROM (PL_PROBE_FROM + PL_PROBE_SEGS) /* the segments from here on are the train */
#define PL_TRAIN_MIN_SEGS 16 /* shortest train whose stretch is a rate sample */
#define PL_LONG_TRAIN_SEGS 256 /* shortest train that may halve the rate */
#define PL_QUEUE_SEGS 20 /* that lead and probe may leave queued on a path that is not full */
#define PL_ROOM_LEAST_SEGS 4 /* least room of a queue: two packets of two segments */
#define PL_ROOM_SHARE 64 /* least room of a queue: 1/64 of the BDP, half of the jitter by PL_MIN_RTT_NEAR */
#define PL_PASSES 3 /* longest packet over the room of a short queue: most of it passes while its end arrives */
#define PL_EMPTY 8 /* with less than 1/8 of the queue in use the path may carry a faster rate */
#define PL_PACKET_SHIFT 10 /* sk_pacing_shift: a TSO packet is 1/1024 s of the pacing rate */
#define PL_NEAR_SHIFT 9 /* net.ipv4.tcp_tso_rtt_log */
#define PL_SHORTENED_US 512 /* minimum RTT below which TSO packets are 64 KB at any pacing rate (tcp_tso_autosize) */
#define PL_NEAR_US 2560 /* minimum RTT below which TSO packets exceed a millisecond of the pacing rate, by 64 KB >> (RTT >> 9) (tcp_tso_autosize) */
#define PL_BLOCK_MIN_SEGS 16 /* shortest block of ACKs that is a rate sample; half of that on an unknown path: an initial window has one */
#define PL_BLOCK_MIN_US 10 /* shortest duration of such a block: one late ACK is no rate sample */
#define PL_BLOCK_MAX_SEGS 512 /* longest block: in a longer one a late ACK matters less */
#define PL_ARRIVED_SEGS 64 /* shortest block that is a rate sample of all connections of a path together */
#define PL_SEEN_SEGS 4 /* delivered segments per update of the path: an update per ACK costs too much CPU */
#define PL_ROUNDS 16 /* round trips after a start in which the law leads the base's cwnd to the path's */
#define PL_LED 1 /* rounds left when they are over and must not begin again */
#define PL_ROUND_WEIGHT 4 /* weight 1/4 of a round's rate sample: its ACKs jitter by a packet of 64 KB */
#define PL_FLIGHT_GROWTH 4 /* largest window of a start over the largest inflight delivered without loss */
#define PL_WARY_STARTS 32 /* good starts in a row after which a path is no longer wary; */
#define PL_WARY_BACKOFF 4 /* times as many if it lost again within as many good starts, */
#define PL_WARY_STARTS_MAX 512 /* and no more than these: one burst in so many may lose */
#define PL_WARY_ROUNDS 64 /* in place of PL_ROUNDS on such a path */
#define PL_STEP 8 /* growth per round trip, 1/8, where little is known */
#define PL_WARY_GROWTH_SEGS 8 /* growth per round trip on a wary path, of all connections together, at most */
#define PL_WARY_BURST_SEGS 2048 /* longer bursts are transfers, of which seldom many start at once */
#define PL_SPREAD 2 /* on a wary path a burst takes at least 1/2 RTT to leave */
#define PL_NO_SSTHRESH 0x7fffffffu /* TCP_INFINITE_SSTHRESH */
#define PL_GOLDEN_RATIO 2654435761u /* of 2^32: multiplication by it scatters numbers that are near each other */
#define PL_CONFIDENCE 4 /* in a rate just confirmed; it halves every half-life, and a rate with 1 is forgotten */
#define PL_RATE_MIN_BPS 12500 /* 100 kbit/s: below it a start is left to the base */
#define PL_USEC_PER_SEC 1000000ull
#define PL_MIN_RTT_NEAR 32 /* a sample within 1/32 confirms the minimum RTT: timers jitter */
#define PL_MIN_RTT_ROSE 8 /* the path is longer if all RTTs of a start exceed the minimum RTT by 1/8, with no queue */
#define PL_USUAL_MSS 1448 /* bytes; MTU 1500 with timestamps: the unit of the amounts of data above */
#define PL_FEW_SEGS 4 /* least amount in jumbo segments: their ACKs have three gaps, or one with delayed ACKs */

/* The law's view of a connection at one moment. Counters may wrap. */
struct pl_tcp {
	__u64 now_us;
	__u32 cwnd, ssthresh; /* segments */
	__u32 srtt_us, min_rtt_us;
	__u32 mss; /* bytes */
	__u32 packets_out; /* segments not cumulatively acknowledged, */
	__u32 in_flight; /* tcp_packets_in_flight */
	__u32 unsent; /* bytes written and not yet sent */
	__u32 sent_segs; /* data segments sent, with retransmissions */
	__u32 delivered_segs; /* data segments delivered (tp->delivered) */
	__u32 retransmitted_segs;
	__u32 carried_segs; /* the last rate sample (tcp_rate.c): segments delivered over an RTT or more, */
	__u32 carried_us; /* and its interval; 0: not known */
	__u32 una, nxt; /* snd_una, snd_nxt */
	__u32 rtt_us; /* RTT sample of this ACK; 0: none */
	__u32 gso_segs; /* longest TSO packet */
	__u8 app_limited; /* 1: the delivered data was app-limited (tcp_rate_check_app_limited) */
	__u8 recovering; /* in CWR, Recovery or Loss */
	__u8 device_segs; /* longest TSO packet of the device; 255: or more */
	__u8 repairing; /* in Recovery, or in Loss with data delivered since the timeout */
};

/* Its view of one ACK, by which it decides whether to be called. Members as in struct pl_tcp. */
struct pl_ack {
	__u64 now_us;
	__u32 una, sent_segs, delivered_segs, rtt_us;
	__u32 unsent;
	__u8 recovering;
};

/* The law's orders. 0: no change. */
struct pl_orders {
	__u32 cwnd, ssthresh;
	__u64 pacing_bps;
	__u8 settled; /* 1: a start found cwnd; the base counts from here */
	__u8 stop; /* 1: the law's pacing ends, and the socket's own is restored */
};

/* State of one connection. All zero at first. */
struct pl_start {
	__u64 breaker_until_us;
	__u64 rate_bps; /* the path's rate when this start began */
	__u64 first_us, last_us; /* transmission of the first and the last segment of the train */
	__u64 probe_acked_us; /* first ACK of the probe, */
	__u64 probe_due_us; /* and its due time without delay on the way */
	__u64 train_acked_us; /* ACK of the train's first segment */
	__u64 probe_bps; /* rate by the spacing of the probe's ACKs; 0: not known */
	__u64 lead_bps; /* rate by the queueing delay of the lead's last segment; 0: not known */
	__u64 share_bps; /* rate of the last start, for status */
	__u64 stretched_bps; /* rate that the stretch of the last measured train showed, without a loss; 0: none */
	__u64 round_us; /* when this round trip began */
	__u64 spread_until_us; /* of a spread message (incast.h): the end of the spread time */
	__u64 began_us; /* start of this burst */
	__u64 went_us; /* its last transmission under gaps (gaps.h), or its last ACK before the final one */
	__u32 sent0, delivered0, retransmitted0; /* counters when the burst began */
	__u32 first_segs, last_segs; /* segments of the burst sent before first_us, last_us */
	__u32 probe_acked_segs, train_acked_segs;
	__u32 seen_segs; /* learning: delivered counter at the last ACK */
	__u32 together; /* most connections on the path while this one was paced */
	__u32 paced_segs; /* sent under pacing when the first ACK came */
	__u32 paced_end; /* snd_nxt at that moment */
	__u32 flight_segs; /* largest inflight of this burst */
	__u32 train_took_us; /* from train_acked_us to the last ACK but one of the train, */
	__u32 train_took_segs; /* and the segments that it delivered */
	__u32 train_rtt_us; /* minimum RTT of the train's second half; 0: none yet */
	__u32 base_cwnd; /* the base's cwnd while lead and probe leave */
	__u32 round_end; /* snd_nxt when this round trip began */
	__u32 round_segs; /* the path's acked_segs at that moment */
	__u32 round_cwnd; /* and cwnd */
	__u32 round_rtt_us; /* minimum RTT of this round trip; 0: none yet */
	__u32 min_rtt_us; /* of this burst; 0: none yet */
	__u32 waited_us; /* queueing delay of the last RTT sample; where packets are kept short, the longest of this round trip */
	__u32 most_rtt_us; /* longest RTT of this round trip */
	__u32 epoch; /* of the path, when this connection was counted */
	__u32 burst_segs; /* delivered in the last burst */
	__u32 turn_gap_us; /* between the segments of messages that wait for a turn (turns.h) */
	__u32 gap_us; /* between the segments of a message that has its turn; 0: cwnd decides (gaps.h) */
	__u32 queue_us; /* under gaps: recent maximum of the queueing delay */
	__u32 turn; /* generation of turns of which its message has or had one; 0: none */
	__u32 turn_sent, turn_lost; /* segments of the last message that should have waited for a turn, not counted yet */
	__u32 turn_retransmitted, turn_delivered; /* counters at the last change of the turn's window */
	__u32 timeouts; /* of this burst */
	__u32 bad_row; /* bad starts in a row */
	__u32 starts, bad_starts, breaker_opened;
	__u8 state; /* enum pl_start_state */
	__u8 counted; /* 1: in path->active */
	__u8 led; /* 1: this start went beyond the initial window */
	__u8 learning; /* 1: the path was not known when the burst began */
	__u8 leading; /* 1: this start has a lead, whose last ACK has not come */
	__u8 probing, slow; /* 1: and a probe; 1: and none, because a round trip is too short for one */
	__u8 rated; /* 1: this train's stretch has been judged */
	__u8 drained; /* 1: and the queue was nearly empty at its end */
	__u8 rounds; /* round trips in which the law still leads cwnd */
	__u8 waited; /* 1: this round trip is app-limited */
	__u8 pacing; /* 1: the law paces the socket */
	__u8 queueing; /* 1: the last RTT sample is half as long again as the burst's minimum, or there is none yet */
	__u8 held_segs; /* largest cwnd on a path that the initial window fills; 0: no limit */
	__u8 packet_segs; /* longest TSO packet without pacing; 0: no limit */
	__u8 capped; /* 1: into a short queue, and so the law bounds the base's growth */
	__u8 turn_first; /* 1: the connection's first message, with a reduced initial window */
	__u8 turn_held; /* 1: its message has a turn */
	__u8 turn_wants; /* 1: its message waits for a turn on a path with losses */
	__u8 waits; /* 1: it waits for its turn */
	__u8 others; /* 1: it has waited for the turn of another message of the host */
	__u8 alone; /* 1: no message of the host has waited for long */
	__u8 met; /* 1: it has sent a long message */
	__u8 gapped; /* 1: its segments are spaced by gaps */
	__u8 spread_segs; /* of the message that is being spread (incast.h); 0: none */
	__u8 overflowed; /* 1: a loss of this burst was no random one */
	__u8 found_empty; /* starts in a row that found an empty queue and a rate that may be too low */
	__u8 refilling; /* 1: the data that follows a pause of the application in this burst is paced (refill.h) */
};

/* Minimum and maximum without a branch: the verifier follows each branch to the end. */
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

/* All ones if `value` is not 0, otherwise 0: a choice without a branch. */
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

/* The amount of data of `segs` segments of the usual size, in segments of this connection; at least a few. */
static __always_inline __u32 pl_amount(__u32 segs, __u32 mss)
{
	__u32 large;

	if (mss <= PL_USUAL_MSS + PL_USUAL_MSS / 8)
		return segs;
	large = segs * PL_USUAL_MSS / mss;
	return large > PL_FEW_SEGS ? large : PL_FEW_SEGS;
}

/* A value that halves every half-life. */
static __always_inline __u64 pl_aged(__u64 value, __u64 age_us, const struct pl_policy *policy)
{
	__u64 halvings = policy->half_life_ms ? age_us / ((__u64)policy->half_life_ms * 1000) : 0;

	return halvings > 31 ? 0 : value >> halvings;
}

/* Whether an estimate of this age has expired. */
static __always_inline int pl_is_old(__u64 age_us, const struct pl_policy *policy)
{
	return pl_aged(PL_CONFIDENCE, age_us, policy) <= 1;
}

/*
 * The path's remembered rate until it expires; 0 after that. Age reduces the confidence, not the
 * rate: starts at a rate reduced by age are slower, for many bursts, than those on an unknown path.
 */
static __always_inline __u64 pl_remembered(const struct pl_path *path, const struct pl_policy *policy,
					   __u64 now_us)
{
	if (pl_is_old(now_us - path->confirmed_us, policy) || path->rate_bps < PL_RATE_MIN_BPS)
		return 0;
	return path->rate_bps;
}

/* The same; an expired path is forgotten, with its wariness and its queue, and learned anew. */
static __always_inline __u64 pl_rate_or_forget(struct pl_path *path, const struct pl_policy *policy, __u64 now_us)
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
		path->contended = 0;
	}
	return rate;
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

	/* A connection that was not seen to end must not keep its share for ever. */
	if (path->active && !pl_on_path(s, path) && quiet_us > 60 * PL_USEC_PER_SEC) {
		path->epoch++;
		path->active = 0;
	}
	path->started_us = tcp->now_us;
	/* A shorter pause is inside of one burst, whose first connections have finished. */
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

/* Connections that share the path, the caller at least. */
static __always_inline __u32 pl_active(const struct pl_path *path)
{
	return path->active ? path->active : 1;
}

/* Segments before the probe of a start. */
static __always_inline __u32 pl_probe_from(__u32 mss)
{
	__u32 from = pl_amount(PL_PROBE_FROM, mss);

	return from > PL_LEAD_SEGS ? from : PL_LEAD_SEGS;
}

/* Segments before the train, which follows the probe. */
static __always_inline __u32 pl_train_from(__u32 mss)
{
	return pl_probe_from(mss) + pl_amount(PL_PROBE_SEGS, mss);
}

/* Segments of a start with lead, probe and the shortest train: they must fit into a round trip. */
static __always_inline __u32 pl_whole_start(__u32 mss)
{
	return pl_train_from(mss) + 2 * pl_amount(PL_TRAIN_MIN_SEGS, mss);
}

/*
 * Longest TSO packet without pacing where a queue is short: half of its room, in segments. 0: no limit;
 * at a shorter RTT the kernel's packets cannot be shortened.
 */
static __always_inline __u32 pl_packet_most(const struct pl_path *path, const struct pl_tcp *tcp)
{
	return tcp->device_segs > 1 && path->min_rtt_us >= PL_SHORTENED_US ? path->room_segs / 2 : 0;
}

/* A connection alone on a path with a short queue. 1 or 0. */
static __always_inline __u32 pl_is_short_alone(const struct pl_path *path)
{
	return pl_mask(path->room_segs) & ~pl_mask(path->active >> 1) & ~pl_mask(path->expected >> 1) & 1;
}

/* Longest TSO packet, segments, where the law keeps packets short: a short RTT adds to it (tcp_tso_autosize). */
static __always_inline __u32 pl_gso_segs(__u32 packet_segs, __u32 device_segs, __u32 min_rtt_us)
{
	__u32 shift = min_rtt_us >> PL_NEAR_SHIFT;
	__u32 most = packet_segs + (shift < 32 ? device_segs >> shift : 0);

	return packet_segs && most < device_segs ? most : device_segs;
}

/* Segments of a paced TSO packet: a millisecond of the rate, at least two (tcp_tso_autosize). */
static __always_inline __u32 pl_packet_segs(__u64 rate_bps, const struct pl_tcp *tcp)
{
	__u64 segs = tcp->mss ? (rate_bps >> PL_PACKET_SHIFT) / tcp->mss : 0;

	return pl_more(pl_less((__u32)segs, tcp->gso_segs), 2);
}

/* The same where the law does not keep packets short; 0: where it cannot. */
static __always_inline __u32 pl_device_packet(const struct pl_path *path, const struct pl_tcp *tcp)
{
	__u64 segs = tcp->mss ? (path->rate_bps >> PL_PACKET_SHIFT) / tcp->mss : 0;

	if (tcp->device_segs <= 1 || path->min_rtt_us < PL_SHORTENED_US)
		return 0;
	return segs < tcp->device_segs ? (__u32)segs : tcp->device_segs;
}

/*
 * Queued segments above which the path is full: fewer where its queue is short. Beside long flows of others its length
 * is not known: what they leave of it, at a share of the path's rate, looks short. A start that found more than two thirds
 * of what is believed to be the whole queue shows them.
 */
static __always_inline __u32 pl_room(const struct pl_path *path, __u32 mss)
{
	__u32 room = pl_amount(PL_QUEUE_SEGS, mss);
	__u32 waited_us = pl_more(path->lead_rtt_us, path->min_rtt_us) - path->min_rtt_us;

	if (path->contended || pl_bdp_segs(path->rate_bps, waited_us, mss) > 2 * path->room_segs)
		return room;
	return path->room_segs && path->room_segs < room ? path->room_segs : room;
}

/*
 * Segments that a start itself may leave queued on a path that is not full: those of lead and probe, and
 * a quarter of a paced packet, the mean until the next one.
 */
static __always_inline __u32 pl_own_queue(const struct pl_path *path, __u64 rate_bps, const struct pl_tcp *tcp)
{
	return pl_room(path, tcp->mss) + pl_packet_segs(rate_bps, tcp) / 4;
}

/*
 * A paced packet, at least `least` segments: up to that much of cwnd is not in flight under TSO, because
 * the stack waits for room for a whole packet (tcp_tso_should_defer).
 */
static __always_inline __u32 pl_waiting_segs(__u64 rate_bps, const struct pl_tcp *tcp, __u32 least)
{
	__u32 segs = pl_packet_segs(rate_bps, tcp);

	return segs > least ? segs : least;
}

/*
 * The window of a share of the path, with a spare that keeps it busy. Under TSO the spare is a packet for
 * each share, which the stack defers, and a quarter of one for data that is acknowledged before the
 * stack sends for it. Without it a window delivers 5 % less than its rate, with several connections more
 * than that, and the rate never rises; two packets would overflow a short queue.
 */
static __always_inline __u32 pl_start_window(__u64 path_bps, __u32 active, __u32 rtt_us, const struct pl_tcp *tcp)
{
	__u32 packet = tcp->gso_segs > 1 ? pl_packet_segs(path_bps / active, tcp) : 0;
	__u32 spare = packet * active + packet / 4;

	/* The upper bound is never reached; it saves the verifier states and the program stack. */
	spare = pl_more(pl_less(spare, 0xffff), PL_LEAD_SEGS);
	return (pl_bdp_segs(path_bps, rtt_us, tcp->mss) + spare) / active + 1;
}

/* The same, limited to a multiple of the largest inflight that was delivered without loss. */
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
 * A wary path whose bursts are too short to measure cross traffic, or a queue that lead and probe would
 * overflow: no probe.
 */
static __always_inline int pl_cautious(const struct pl_path *path, __u32 mss)
{
	return (path->wary && path->burst_segs < pl_amount(PL_LONG_TRAIN_SEGS, mss)) ||
	       (path->room_segs && path->room_segs <= pl_amount(PL_LEAD_SEGS, mss));
}

/* Least number of queued segments during a time with the minimum RTT `rtt_us`. */
static __always_inline __u32 pl_queued(const struct pl_path *path, __u64 rate_bps, const struct pl_tcp *tcp,
				       __u32 rtt_us)
{
	return rtt_us > path->min_rtt_us ? pl_bdp_segs(rate_bps, rtt_us - path->min_rtt_us, tcp->mss) : 0;
}

/*
 * Connections that start together into a short queue, where their first packets meet: these are a segment each,
 * without a lead. 1 or 0, without branches, which cost the verifier states.
 */
static __always_inline __u32 pl_is_volley(const struct pl_path *path, __u32 together)
{
	return pl_mask(path->room_segs) & pl_mask(together >> 1) & 1;
}

/* Connections that started together with this one, itself included. */
static __always_inline __u32 pl_sharers(const struct pl_start *s)
{
	return s->together ? s->together : 1;
}

/* A block of ACKs was long enough to be a rate sample of the path. */
static __always_inline int pl_learned_long(const struct pl_path *path, __u32 mss)
{
	return path->learned_segs >= pl_amount(PL_ARRIVED_SEGS, mss);
}

/* Delivery rate of all connections of the path together; 0: not known, or a single connection, which has its train. */
static __always_inline __u64 pl_arrived(const struct pl_path *path, __u32 mss)
{
	return path->peak > 1 && pl_learned_long(path, mss) ? path->learned_bps : 0;
}

/* `rate`, limited for a raise of a shared path: 1/16 above the delivery rate of all connections together. */
static __always_inline __u64 pl_shown(const struct pl_path *path, __u64 rate, __u32 mss)
{
	__u64 arrived = pl_arrived(path, mss), most = arrived + (arrived >> 4);

	if (path->peak <= 1 || rate <= path->rate_bps || rate <= most)
		return rate;
	return most > path->rate_bps ? most : path->rate_bps;
}

/* `given`, a train's rate sample below `rate`, but not below the delivery rate of all connections together. */
static __always_inline __u64 pl_not_below_arrived(const struct pl_path *path, __u64 given, __u64 rate, __u32 mss)
{
	__u64 arrived = pl_arrived(path, mss), least = arrived - (arrived >> 4);

	if (given >= least)
		return given;
	return least < rate ? least : rate;
}

/* A rate sample moves the path's rate with the weight 1/(N * of), N connections having started together. */
static __always_inline void pl_take_sample(const struct pl_start *s, struct pl_path *path, __u64 rate, __u32 mss,
				    __u32 of)
{
	__u32 divisor = pl_sharers(s) * of;

	rate = pl_shown(path, rate, mss);
	if (rate > path->rate_bps)
		path->rate_bps += (rate - path->rate_bps) / divisor;
	else
		path->rate_bps -= (path->rate_bps - rate) / divisor;
}

/*
 * Adds the segments delivered since the last update of the path. `timely`: the updates are ACK by ACK or
 * nearly; a block of ACKs (learning.h) counts no others.
 */
static __always_inline void pl_update_path(struct pl_start *s, struct pl_path *path, const struct pl_tcp *tcp,
					    int timely)
{
	__u32 more = tcp->delivered_segs - s->seen_segs;

	path->acked_segs += more;
	if (!timely)
		path->block_from += more;
	s->seen_segs = tcp->delivered_segs;
}

/* A round trip begins: it ends when snd_una reaches the present snd_nxt. */
static __always_inline void pl_begin_round(struct pl_start *s, struct pl_path *path, const struct pl_tcp *tcp)
{
	pl_update_path(s, path, tcp, tcp->delivered_segs - s->seen_segs < PL_SEEN_SEGS);
	s->round_us = tcp->now_us;
	s->round_end = tcp->nxt;
	s->round_segs = path->acked_segs;
	s->round_cwnd = tcp->cwnd;
	s->round_rtt_us = 0;
	s->most_rtt_us = 0;
	s->waited = 0;
}

/* Whether a connection updates the path with each few ACKs: while it shares the path, and is measured. */
static __always_inline int pl_updates_path(const struct pl_start *s)
{
	return s->together > 1 && (s->state == PL_START_MEASURED || s->rounds);
}

/* Whether an update of the path is due now: enough segments were delivered, or a round trip ends. */
static __always_inline int pl_update_is_due(const struct pl_start *s, __u32 delivered_segs, __u32 una)
{
	return (pl_updates_path(s) && delivered_segs - s->seen_segs >= PL_SEEN_SEGS) ||
	       (s->rounds && (__s32)(una - s->round_end) >= 0);
}

static __always_inline void pl_note_rtt(struct pl_start *s, __u32 rtt_us)
{
	s->most_rtt_us = pl_more(s->most_rtt_us, rtt_us);
	if (rtt_us && (!s->round_rtt_us || rtt_us < s->round_rtt_us))
		s->round_rtt_us = rtt_us;
}

#endif

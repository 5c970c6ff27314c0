/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Counters of a job's connections, per phase: added up at the end of a burst and of a
 * connection, so they outlive the socket and cost an ACK nothing.
 *
 * A burst begins when there is data to send and nothing in flight, and ends when all is
 * acknowledged and nothing is left to send. Only the wrapped algorithms see that; other
 * connections are counted at their end, without their bursts.
 *
 * A policy may hold out a random share of bursts: no law of Paceline touches these, so they
 * show the base algorithm alone, on the same paths at the same time.
 *
 * Entries are per CPU, but a program may be interrupted by another one on its CPU: all
 * additions are atomic.
 */
#ifndef PACELINE_COUNTERS_H
#define PACELINE_COUNTERS_H

#include "pacing.h"

#define PL_SIZE_FIRST_LOG2 12 /* 4 KiB: below is size class 0 */

static __always_inline void pl_add(u64 *to, u64 amount)
{
	if (amount)
		__sync_fetch_and_add(to, amount);
}

/* The counters of a connection's job in its phase; NULL if the job is gone. */
static __always_inline struct pl_counters *pl_counters_of(const struct pl_connection *conn)
{
	struct pl_counters_key key = { .job = conn->path.job, .class = conn->phases.phase & 0xff };
	struct pl_counters *at = bpf_map_lookup_elem(&pl_counters, &key);
	struct pl_counters none = {};

	if (at)
		return at;
	if (!bpf_map_lookup_elem(&pl_jobs, &key.job))
		return NULL;
	bpf_map_update_elem(&pl_counters, &key, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&pl_counters, &key);
}

static __always_inline struct pl_trial *pl_trial_of(u64 job, u32 size, u32 held)
{
	struct pl_trial_key key = { .job = job, .size = size, .held = held };
	struct pl_trial *at = bpf_map_lookup_elem(&pl_trials, &key);
	struct pl_trial none = {};

	if (at)
		return at;
	if (!bpf_map_lookup_elem(&pl_jobs, &key.job))
		return NULL;
	bpf_map_update_elem(&pl_trials, &key, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&pl_trials, &key);
}

/* 0: below 4 KiB; each class holds four times as much as the one before. */
static __always_inline u32 pl_size_class(u64 bytes)
{
	u32 class = 0;

	bytes >>= PL_SIZE_FIRST_LOG2;
	/* Without branches, each of which would double the verifier's paths from here. */
	for (int i = 0; i < PL_SIZES - 1; i++, bytes >>= 2)
		class += (bytes | -bytes) >> 63;
	return class;
}

/* Begins to count the connection; its earlier traffic was not its job's. */
static __always_inline void pl_begin_counting(struct pl_connection *conn, const struct tcp_sock *tp)
{
	conn->counted.bytes = tp->bytes_acked;
	conn->counted.segs = tp->data_segs_out;
	conn->counted.retransmitted_segs = tp->total_retrans;
}

/* Adds the new counts. The socket is locked, or the kernel's at its end. */
static __always_inline void pl_fold(struct pl_connection *conn, const struct tcp_sock *tp, struct pl_counters *to)
{
	struct pl_counted *at = &conn->counted;
	u64 bytes = tp->bytes_acked;
	u32 segs = tp->data_segs_out, retransmitted_segs = tp->total_retrans;

	/* After a disconnect the kernel counts from 0 again. */
	if (bytes < at->bytes) {
		at->bytes = 0;
		at->segs = 0;
		at->retransmitted_segs = 0;
	}
	pl_add(&to->bytes, bytes - at->bytes);
	pl_add(&to->segs, (u32)(segs - at->segs));
	pl_add(&to->retransmitted_segs, (u32)(retransmitted_segs - at->retransmitted_segs));
	pl_add(&to->starts, (u32)(conn->start.starts - at->starts));
	pl_add(&to->bad_starts, (u32)(conn->start.bad_starts - at->bad_starts));
	pl_add(&to->breaker_opened, (u32)(conn->start.breaker_opened - at->breaker_opened));
	at->bytes = bytes;
	at->segs = segs;
	at->retransmitted_segs = retransmitted_segs;
	at->starts = conn->start.starts;
	at->bad_starts = conn->start.bad_starts;
	at->breaker_opened = conn->start.breaker_opened;
}

/* At the end of a connection, or of its job. */
static __noinline int pl_fold_all(struct pl_connection *conn, const struct tcp_sock *tp)
{
	struct pl_counters *to;

	if (conn->reason != PL_REASON_NONE)
		return 0;
	to = pl_counters_of(conn);
	if (to)
		pl_fold(conn, tp, to);
	return 0;
}

static __noinline int pl_count_timeout(const struct pl_connection *conn)
{
	struct pl_counters *to = pl_counters_of(conn);

	if (to)
		pl_add(&to->timeouts, 1);
	return 0;
}

#define PL_USUAL_RTO_US 200000 /* TCP_RTO_MIN, include/net/tcp.h */
#define PL_HALVINGS 20 /* of a window of 2^20 segments */

/*
 * After idle the kernel halves a window once per RTO (tcp_cwnd_restart). Under a policy with
 * a shorter minimum RTO it does so sooner, down to the initial window within a few round
 * trips. A held-out burst, which measures the base without the policy, has the window that
 * the usual RTO leaves.
 */
static __always_inline void pl_restore_window(const struct pl_connection *conn, struct tcp_sock *tp)
{
	u32 rttvar_us = tp->rttvar_us, cwnd = conn->counted.ended_cwnd;
	u64 idle_us = tp->tcp_mstamp - conn->counted.ended_us;
	u64 rto_us = (tp->srtt_us >> 3) + (rttvar_us > PL_USUAL_RTO_US ? rttvar_us : PL_USUAL_RTO_US);
	u64 halvings = (idle_us - 1) / rto_us;

	if (!conn->rto_min_us || conn->slot || conn->policy.window_fixed_segs || !conn->counted.ended_us || !idle_us)
		return;
	cwnd >>= halvings < PL_HALVINGS ? halvings : PL_HALVINGS;
	if (cwnd > tp->snd_cwnd && cwnd <= tp->snd_cwnd_clamp)
		tp->snd_cwnd = cwnd;
}

static __noinline int pl_begin_burst(struct pl_connection *conn, struct tcp_sock *tp)
{
	struct pl_counted *at = &conn->counted;

	at->burst_us = tp->tcp_mstamp;
	at->burst_bytes = tp->bytes_acked;
	at->burst_sent = tp->data_segs_out;
	at->burst_retransmitted = tp->total_retrans;
	at->burst_delivered = tp->delivered;
	at->held = 0;
	if (!conn->policy.held_out_percent)
		return 0;
	at->held = bpf_get_prandom_u32() % 100 < conn->policy.held_out_percent;
	if (!at->held)
		return 0;
	if (conn->spaced) {
		conn->spaced = 0;
		conn->spacing_bps = 0;
		end_pace(conn);
	}
	pl_restore_window(conn, tp);
	return 0;
}

/*
 * A burst that ends, for the comparison with bursts that are held out. A function of its own, called before
 * pl_end_burst: one for both takes more stack than the laws after an ACK leave of 512 bytes.
 */
static __noinline int pl_end_trial(struct pl_connection *conn, const struct tcp_sock *tp)
{
	const struct pl_counted *at = &conn->counted;
	u64 bytes = tp->bytes_acked - at->burst_bytes, us = tp->tcp_mstamp - at->burst_us;
	u32 size = pl_size_class(bytes);
	struct pl_trial *trial;
	u64 square, low;

	if (size >= PL_SIZES)
		return 0;
	trial = pl_trial_of(conn->path.job, size, at->held);
	if (!trial)
		return 0;
	if (us > ~0U)
		us = ~0U;
	square = us * us;
	pl_add(&trial->bursts, 1);
	pl_add(&trial->bytes, bytes);
	pl_add(&trial->retransmitted_segs, tp->total_retrans - at->burst_retransmitted);
	pl_add(&trial->sum_us, us);
	low = __sync_fetch_and_add(&trial->squares_low, square);
	if (low + square < low)
		pl_add(&trial->squares_high, 1);
	return 0;
}

static __noinline int pl_end_burst(struct pl_connection *conn, const struct tcp_sock *tp)
{
	struct pl_counted *at = &conn->counted;
	u32 size = pl_size_class(tp->bytes_acked - at->burst_bytes), held = at->held;
	struct pl_counters *to = pl_counters_of(conn);

	at->burst_us = 0;
	at->held = 0;
	at->ended_us = tp->tcp_mstamp;
	at->ended_cwnd = tp->snd_cwnd;
	if (held) {
		/* The laws have not seen it: for them it was not there. */
		conn->start.sent0 += tp->data_segs_out - at->burst_sent;
		conn->start.delivered0 += tp->delivered - at->burst_delivered;
		conn->start.retransmitted0 += tp->total_retrans - at->burst_retransmitted;
	}
	if (!to || size >= PL_SIZES)
		return 0;
	pl_fold(conn, tp, to);
	pl_add(&to->bursts[size], 1);
	return 0;
}

/* Before a transmission. */
static __always_inline void pl_see_send(struct pl_connection *conn, struct tcp_sock *tp)
{
	u8 state = ((const struct sock *)tp)->__sk_common.skc_state;

	if (tp->packets_out || conn->counted.burst_us)
		return;
	/* The pacing timer asks once more after the last packet; and a FIN alone is no burst. */
	if (tp->write_seq != tp->snd_nxt && (state == BPF_TCP_ESTABLISHED || state == BPF_TCP_CLOSE_WAIT))
		pl_begin_burst(conn, tp);
}

/* After an ACK. The laws' counts at this burst's end are added at the end of the next one. */
static __always_inline void pl_see_ack(struct pl_connection *conn, const struct tcp_sock *tp)
{
	if (tp->packets_out || !conn->counted.burst_us || tp->write_seq != tp->snd_nxt)
		return;
	if (conn->policy.held_out_percent)
		pl_end_trial(conn, tp);
	pl_end_burst(conn, tp);
}

#endif

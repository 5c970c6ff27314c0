/* SPDX-License-Identifier: GPL-2.0 */
/* The control laws' view of a socket, and the execution of their orders on it. */
#ifndef PACELINE_SOCKET_H
#define PACELINE_SOCKET_H

#include "pacing.h"
#include "paths.h"

/*
 * pl_window_base_cwnd, as a function that the verifier checks once: its two outcomes would
 * double the paths through all that follows.
 */
__weak __noinline u32 pl_base_cwnd(u32 base_cwnd, u32 effective_cwnd, u32 binds, u32 cwnd)
{
	struct pl_window window = { .base_cwnd = base_cwnd, .effective_cwnd = effective_cwnd, .binds = binds };

	return pl_window_base_cwnd(&window, cwnd);
}

static __always_inline u32 base_cwnd_of(const struct pl_connection *conn, u32 cwnd)
{
	return pl_base_cwnd(conn->window.base_cwnd, conn->window.effective_cwnd, conn->window.binds, cwnd);
}

static __always_inline u8 ca_state(const struct tcp_sock *tp)
{
	return BPF_CORE_READ_BITFIELD(&tp->inet_conn, icsk_ca_state);
}

/* In Recovery, or in Loss and something arrived since the timeout. */
static __always_inline bool is_repairing(const struct tcp_sock *tp, const struct pl_connection *conn)
{
	u8 state = ca_state(tp);

	return state == TCP_CA_Recovery || (state == TCP_CA_Loss && tp->delivered != conn->loss_segs);
}

/*
 * Makes the verifier forget the bounds of these bytes, so that the states of all paths to
 * here become one; else it follows each path through the rest of the program. Without it
 * pl_cubic_acked took 777,000 of the verifier's million instructions, and two seconds; with
 * it 86,000.
 */
static __always_inline void forget_how(void *on_stack, u32 bytes)
{
	bpf_probe_read_kernel(on_stack, bytes, on_stack);
}

static __always_inline void see(const struct sock *sk, const struct pl_connection *conn, struct pl_tcp *tcp)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 device_segs;

	tcp->now_us = tp->tcp_mstamp;
	tcp->cwnd = base_cwnd_of(conn, tp->snd_cwnd);
	tcp->ssthresh = tp->snd_ssthresh;
	tcp->srtt_us = tp->srtt_us >> 3;
	/* Before the first sample it is all ones. */
	tcp->min_rtt_us = tp->rtt_min.s[0].v == ~0U ? 0 : pl_exact_rtt(tp->rtt_min.s[0].v, conn->start.min_rtt_us);
	tcp->mss = tp->mss_cache;
	tcp->packets_out = tp->packets_out;
	tcp->in_flight = in_flight(tp);
	tcp->unsent = tp->write_seq - tp->snd_nxt;
	tcp->sent_segs = tp->data_segs_out;
	tcp->delivered_segs = tp->delivered;
	tcp->retransmitted_segs = tp->total_retrans;
	tcp->carried_segs = tp->rate_delivered;
	tcp->carried_us = tp->rate_interval_us;
	tcp->una = tp->snd_una;
	tcp->nxt = tp->snd_nxt;
	tcp->rtt_us = 0;
	device_segs = tp->mss_cache ? sk->sk_gso_max_size / tp->mss_cache : 1;
	if (device_segs > sk->sk_gso_max_segs)
		device_segs = sk->sk_gso_max_segs;
	tcp->device_segs = device_segs < 255 ? device_segs : 255;
	tcp->gso_segs = pl_gso_segs(conn->start.packet_segs, device_segs, tp->rtt_min.s[0].v);
	tcp->app_limited = tp->app_limited != 0;
	tcp->recovering = ca_state(tp) >= TCP_CA_CWR;
	tcp->repairing = is_repairing(tp, conn);
}

static __always_inline void apply_orders(struct sock *sk, struct pl_connection *conn, const struct pl_orders *orders)
{
	struct tcp_sock *tp = tcp_sk(sk);

	if (orders->cwnd) {
		tp->snd_cwnd = orders->cwnd < tp->snd_cwnd_clamp ? orders->cwnd : tp->snd_cwnd_clamp;
		pl_window_set(&conn->window);
	}
	if (orders->ssthresh)
		tp->snd_ssthresh = orders->ssthresh;
	if (orders->pacing_bps)
		pace(sk, conn, orders->pacing_bps);
	if (orders->stop)
		end_pace(conn);
}

/* The connection of a socket that is under its policy, or NULL. */
static __always_inline struct pl_connection *governed(struct sock *sk)
{
	struct pl_connection *conn = bpf_sk_storage_get(&pl_connections, sk, 0, 0);

	return conn && conn->reason == PL_REASON_NONE ? conn : NULL;
}

static __always_inline bool has_start(const struct pl_connection *conn)
{
	return conn->policy.target != PL_TARGET_OFF;
}

#endif

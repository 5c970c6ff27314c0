/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Keys of a policy that the congestion control applies besides the laws: quick ACKs (ack.every
 * = 1), a fixed window (window.fixed), and the initial window wherever slow start begins again
 * (window.again). ligon-1999, Table 2: -d 1, beo_slow and beo_slow -t.
 *
 * The kernel has no lasting quick-ACK mode that a program may set: TCP_QUICKACK holds for
 * one ACK. But a connection of ECN that has once seen an ECN-capable segment acknowledges
 * each segment that is not ECN-capable at once (tcp_ecn_check_ce in net/ipv4/tcp_input.c; from
 * 6.18 on tcp_data_ecn_check): there it may be a retransmission. So the two flags stand while
 * segments are received. Before a transmission the first one is cleared, so that no data
 * leaves as ECN-capable, to which the peer has not agreed. A connection that did
 * negotiate ECN, or AccECN, needs its flags itself and gets no quick ACKs.
 */
#ifndef PACELINE_TUNED_H
#define PACELINE_TUNED_H

#include "maps.h"

#define TCP_ECN_OK 1 /* include/net/tcp.h; from 6.18 on include/linux/tcp.h, TCP_ECN_MODE_RFC3168 */
#define TCP_ECN_SEEN 8
#define TCP_ECN_MODE_ACCECN 16 /* from 6.18 on; before it is never set */
#define ICSK_ACK_NOW 16 /* enum inet_csk_ack_state_t, include/net/inet_connection_sock.h */

/* Segments that left without data, and SYN, FIN and RST: near enough to the ACKs. */
static __always_inline u32 segments_without_data(const struct tcp_sock *tp)
{
	return tp->segs_out - tp->data_segs_out;
}

static __always_inline void set_window(struct tcp_sock *tp, u32 segs)
{
	tp->snd_cwnd = segs < tp->snd_cwnd_clamp ? segs : tp->snd_cwnd_clamp;
}

/* A socket gets our congestion control. */
static __always_inline void tune_begin(struct sock *sk)
{
	struct pl_connection *conn = bpf_sk_storage_get(&pl_connections, sk, 0, 0);
	struct tcp_sock *tp = tcp_sk(sk);

	if (!conn || conn->reason != PL_REASON_NONE || conn->policy.ack_every != 1)
		return;
	if (tp->ecn_flags & (TCP_ECN_OK | TCP_ECN_MODE_ACCECN)) {
		conn->quick = PL_QUICK_ECN;
		return;
	}
	conn->quick = PL_QUICK_ON;
	conn->acks_before = segments_without_data(tp);
	tp->ecn_flags |= TCP_ECN_OK | TCP_ECN_SEEN;
}

/* And loses it. */
static __always_inline void tune_end(struct sock *sk, struct pl_connection *conn)
{
	if (conn->quick == PL_QUICK_ON)
		tcp_sk(sk)->ecn_flags &= ~(TCP_ECN_OK | TCP_ECN_SEEN);
	conn->quick = PL_QUICK_NONE;
}

/* Before a transmission, after the laws. */
static __noinline int tune_before_send(struct sock *sk, struct pl_connection *conn)
{
	const struct pl_policy *policy = &conn->policy;
	struct tcp_sock *tp = tcp_sk(sk);

	if (conn->quick == PL_QUICK_ON)
		tp->ecn_flags &= ~TCP_ECN_OK;
	if (policy->window_fixed_segs)
		set_window(tp, policy->window_fixed_segs);
	else if (policy->window_again && !tp->packets_out && tp->snd_cwnd < tp->snd_ssthresh &&
		 tp->snd_cwnd < policy->initial_window_segs)
		set_window(tp, policy->initial_window_segs);
	return 0;
}

/* After an ACK, before the base handles it. */
static __noinline int tune_after_ack(struct sock *sk, struct pl_connection *conn)
{
	struct tcp_sock *tp = tcp_sk(sk);

	if (conn->quick == PL_QUICK_ON) {
		tp->ecn_flags |= TCP_ECN_OK | TCP_ECN_SEEN;
		/* For data in this ACK's segment: the receive fast path handles it before the ACK. */
		tp->inet_conn.icsk_ack.pending |= ICSK_ACK_NOW;
	}
	if (conn->policy.window_fixed_segs)
		set_window(tp, conn->policy.window_fixed_segs);
	return 0;
}

/* A timeout, after which slow start begins again, with one segment (tcp_enter_loss). */
static __always_inline void tune_at_timeout(struct sock *sk, u8 new_state)
{
	struct pl_connection *conn;
	struct tcp_sock *tp = tcp_sk(sk);

	if (new_state != TCP_CA_Loss)
		return;
	conn = bpf_sk_storage_get(&pl_connections, sk, 0, 0);
	if (!conn || conn->reason != PL_REASON_NONE || !conn->policy.tuned)
		return;
	if (conn->policy.window_fixed_segs)
		set_window(tp, conn->policy.window_fixed_segs);
	else if (conn->policy.window_again && tp->snd_cwnd < conn->policy.initial_window_segs)
		set_window(tp, conn->policy.initial_window_segs);
}

#endif

/* SPDX-License-Identifier: GPL-2.0 */
/* Pacing of a socket: set by a law, and restored. */
#ifndef PACELINE_PACING_H
#define PACELINE_PACING_H

#include "maps.h"

/* Whether the time for the next packet has come, as far as pacing goes. */
static __always_inline bool is_due(const struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	return tp->tcp_wstamp_ns <= tp->tcp_clock_cache;
}

/* A rate that the program has set meanwhile (SO_MAX_PACING_RATE) keeps the socket paced. */
static __always_inline void give_pacing_back(struct sock *sk, struct pl_connection *conn)
{
	conn->own_pacing = 0;
	if (conn->fq_paced)
		sk->sk_pacing_status = SK_PACING_FQ;
	else if (sk->sk_max_pacing_rate == ~0UL)
		sk->sk_pacing_status = SK_PACING_NONE;
	conn->fq_paced = 0;
}

/*
 * Pacing ends once the time for the next packet has come. The kernel stamps each packet
 * with that time, later than now by up to a packet's length at the pacing rate. A packet
 * that is sent at once without pacing would give an RTT sample below the path's RTT, and
 * min_rtt would be wrong for minutes.
 */
static __always_inline void stop_pacing(struct sock *sk, struct pl_connection *conn)
{
	if (!is_due(sk))
		return;
	conn->stopping = 0;
	give_pacing_back(sk, conn);
}

/*
 * The kernel's internal pacing timer paces, also on a socket that fq paces: fq queues packets
 * that the stack has already sent, and the laws would not run before the next one leaves. fq
 * passes a packet at once when its time has come (sch_fq.c), and later gets the socket back.
 */
static __always_inline void pace(struct sock *sk, struct pl_connection *conn, u64 rate_bps)
{
	unsigned long rate = rate_bps;

	conn->stopping = 0;
	sk->sk_pacing_rate = rate < sk->sk_max_pacing_rate ? rate : sk->sk_max_pacing_rate;
	if (sk->sk_pacing_status != SK_PACING_NEEDED) {
		/* fq takes a socket that it has forgotten again, at its next packet. */
		if (sk->sk_pacing_status == SK_PACING_FQ)
			conn->fq_paced = 1;
		sk->sk_pacing_status = SK_PACING_NEEDED;
		conn->own_pacing = 1;
	}
}

/* One of the laws needs no pacing any more; the others may. */
static __always_inline void end_pace(struct pl_connection *conn)
{
	if (conn->own_pacing && !conn->start.pacing && !conn->spaced && !conn->window.pacing)
		conn->stopping = 1;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 */
/* Even streams on a socket: when control/even.h is called. */
#ifndef PACELINE_EVEN_STREAMS_H
#define PACELINE_EVEN_STREAMS_H

#include "socket.h"

/* Whether the window is a part of the path's now: neither led by a start nor bounded from outside. */
static __always_inline bool is_even(const struct pl_connection *conn)
{
	if (!conn->policy.even || conn->counted.held || conn->window.ceiling)
		return false;
	return !has_start(conn) || (conn->start.state == PL_START_BASE && conn->start.rounds <= PL_LED);
}

/* Gives the connection its part of the path's window. */
static __noinline int share_evenly(struct sock *sk, struct pl_connection *conn)
{
	struct pl_path_slot *slot = path_of(conn);
	struct pl_orders orders = {};
	struct pl_tcp tcp;

	if (!slot)
		return 0;
	see(sk, conn, &tcp);
	bpf_spin_lock(&slot->lock);
	pl_even_before_send(&conn->even, &slot->path, &tcp, &orders);
	bpf_spin_unlock(&slot->lock);
	apply_orders(sk, conn, &orders);
	return 0;
}

/* A stream has nothing more to send: the others share its part. */
static __noinline int leave_even(struct pl_connection *conn)
{
	struct pl_path_slot *slot = bpf_map_lookup_elem(&pl_paths, &conn->path);

	if (!slot)
		return 0;
	bpf_spin_lock(&slot->lock);
	pl_even_leave(&conn->even, &slot->path);
	bpf_spin_unlock(&slot->lock);
	return 0;
}

/* A loss reduces a stream's window to `ssthresh`; 0: the loss was spurious, and it does not. */
static __noinline int lose_evenly(struct sock *sk, struct pl_connection *conn, u32 ssthresh)
{
	struct pl_path_slot *slot = bpf_map_lookup_elem(&pl_paths, &conn->path);

	if (!slot)
		return 0;
	bpf_spin_lock(&slot->lock);
	if (ssthresh)
		pl_even_lost(&conn->even, &slot->path, tcp_sk(sk)->snd_cwnd, ssthresh);
	else
		pl_even_undo(&conn->even, &slot->path);
	bpf_spin_unlock(&slot->lock);
	return 0;
}

#endif

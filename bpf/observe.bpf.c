/* SPDX-License-Identifier: GPL-2.0 */
/* Iterator for `paceline status`: one record for each connection of any job. */
#include "groups.h"
#include "held.h"
#include "tuned.h"

/* With how many connections this one shares a window, itself included; 0: with none. */
static __noinline u32 streams_with(struct pl_connection *conn)
{
	struct pl_path_key key = conn->path; /* Linux 6.1 takes no key from an iterator's value */
	struct pl_path_slot *slot = bpf_map_lookup_elem(&pl_paths, &key);

	return slot && pl_even_is_in(&conn->even, &slot->path) ? slot->path.even_streams : 0;
}

/* IPv4 as ::ffff:a.b.c.d, network order. */
static __always_inline void local_address(struct sock *sk, u32 to[4])
{
	if (sk->__sk_common.skc_family == AF_INET6) {
		bpf_core_read(to, 4 * sizeof(u32), &sk->__sk_common.skc_v6_rcv_saddr.in6_u.u6_addr32);
		return;
	}
	to[2] = bpf_htonl(0xffff);
	to[3] = sk->__sk_common.skc_rcv_saddr;
}

SEC("iter/bpf_sk_storage_map")
int pl_status(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	struct pl_connection_record r = {};
	struct pl_connection *conn = ctx->value;
	struct sock *sk = ctx->sk;
	struct pl_held *acks;
	struct tcp_sock *tp;

	if (!sk || !conn)
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 0;
	r.job = conn->path.job;
	r.netns = conn->path.netns;
	r.cookie = bpf_get_socket_cookie(tp);
	__builtin_memcpy(r.remote, conn->path.address, sizeof(r.remote));
	local_address(sk, r.local);
	r.local_port = sk->__sk_common.skc_num;
	r.remote_port = bpf_ntohs(sk->__sk_common.skc_dport);
	r.tcp_state = sk->__sk_common.skc_state;
	r.start_state = conn->start.state;
	r.breaker_open = conn->start.breaker_until_us > bpf_ktime_get_ns() / 1000;
	r.reason = conn->reason;
	r.error = conn->error;
	r.cwnd_segs = pl_window_base_cwnd(&conn->window, tp->snd_cwnd);
	r.ssthresh_segs = tp->snd_ssthresh;
	r.inflight_segs = in_flight(tp);
	r.mss = tp->mss_cache;
	r.srtt_us = tp->srtt_us >> 3;
	r.rttvar_us = tp->rttvar_us >> 2;
	r.min_rtt_us = tp->rtt_min.s[0].v;
	r.rto_ticks = tp->inet_conn.icsk_rto;
	r.rto_min_ticks = tp->inet_conn.icsk_rto_min;
	r.retransmitted_segs = tp->total_retrans;
	r.starts = conn->start.starts;
	r.bad_starts = conn->start.bad_starts;
	r.breaker_opened = conn->start.breaker_opened;
	r.process = conn->process.process;
	r.phase = conn->phases.phase;
	r.phase_switches = conn->phases.switches;
	r.start_rate_bps = conn->start.share_bps;
	if (conn->slot)
		__builtin_memcpy(r.group, conn->group.name, sizeof(r.group));
	r.uwnd_segs = conn->window.base_cwnd ? conn->window.effective_cwnd : 0;
	r.generation = conn->generation;
	r.spacing_bps = conn->spaced ? conn->spacing_bps : 0;
	r.acked_bytes = tp->bytes_acked;
	acks = bpf_sk_storage_get(&pl_held_acks, tp, 0, 0);
	r.held_acks = acks ? acks->held : 0;
	r.quick = conn->quick;
	if (conn->quick == PL_QUICK_ON)
		r.quick_acks = segments_without_data(tp) - conn->acks_before;
	if (conn->reason == PL_REASON_NONE && tp->bytes_acked >= conn->counted.bytes) {
		r.new_bytes = tp->bytes_acked - conn->counted.bytes;
		r.new_segs = tp->data_segs_out - conn->counted.segs;
		r.new_retransmitted_segs = tp->total_retrans - conn->counted.retransmitted_segs;
	}
	r.even_streams = streams_with(conn);
	bpf_probe_read_kernel_str(r.congestion, sizeof(r.congestion),
				  (void *)tp->inet_conn.icsk_ca_ops +
					  bpf_core_field_offset(struct tcp_congestion_ops, name));
	bpf_seq_write(ctx->meta->seq, &r, sizeof(r));
	return 0;
}

/* Iterator for a group's coordinator: one record for each connection of any group. */
SEC("iter/bpf_sk_storage_map")
int pl_streams(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	struct pl_stream_record r = {};
	struct pl_connection *conn = ctx->value;
	struct sock *sk = ctx->sk;
	struct pl_pending_options *pending;
	struct pl_uwnd *own;
	struct tcp_sock *tp;

	if (!sk || !conn || !conn->slot)
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 0;
	r.group = conn->group;
	r.job = conn->path.job;
	r.netns = conn->path.netns;
	r.cookie = conn->cookie;
	r.acked_bytes = tp->bytes_acked;
	pending = bpf_sk_storage_get(&pl_pending, tp, 0, 0);
	r.total_bytes = pending ? pending->total_bytes : 0;
	__builtin_memcpy(r.remote, conn->path.address, sizeof(r.remote));
	local_address(sk, r.local);
	r.local_port = sk->__sk_common.skc_num;
	r.remote_port = bpf_ntohs(sk->__sk_common.skc_dport);
	r.tcp_state = sk->__sk_common.skc_state;
	r.mss = tp->mss_cache;
	r.inflight_segs = in_flight(tp);
	r.cwnd_segs = pl_window_base_cwnd(&conn->window, tp->snd_cwnd);
	r.ssthresh_segs = tp->snd_ssthresh;
	r.uwnd_segs = conn->window.base_cwnd ? conn->window.effective_cwnd : 0;
	/* By the copy: before 6.2 an iterator's argument may be no key. */
	own = bpf_map_lookup_elem(&pl_bounds, &r.cookie);
	if (own && bpf_ktime_get_ns() / 1000 < own->until_us) {
		r.uwnd_min_segs = own->min_segs;
		r.uwnd_max_segs = own->max_segs;
	}
	r.srtt_us = tp->srtt_us >> 3;
	r.min_rtt_us = tp->rtt_min.s[0].v;
	r.unsent_bytes = tp->write_seq - tp->snd_nxt;
	r.retransmitted_segs = tp->total_retrans;
	r.delivered_segs = tp->delivered;
	r.recovering = BPF_CORE_READ_BITFIELD_PROBED(&tp->inet_conn, icsk_ca_state) >= TCP_CA_Recovery;
	bpf_seq_write(ctx->meta->seq, &r, sizeof(r));
	return 0;
}

/*
 * Sockets of the subject job's processes that are not the job's: their cgroup is that in
 * which they were made, wherever the process was moved since. What such a listener accepts
 * is not the job's either.
 */
SEC("iter/task_file")
int pl_outside(struct bpf_iter__task_file *ctx)
{
	struct pl_outside_record r = {};
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct sock_common *skc;
	struct socket *socket;
	u64 job = subject();
	struct sock *sk;

	if (!task || !file || !job)
		return 0;
	socket = bpf_sock_from_file(file);
	if (!socket)
		return 0;
	sk = BPF_CORE_READ(socket, sk);
	if (!sk || BPF_CORE_READ(sk, sk_protocol) != IPPROTO_TCP)
		return 0;
	skc = (struct sock_common *)sk;
	r.tcp_state = BPF_CORE_READ(skc, skc_state);
	if (r.tcp_state != BPF_TCP_LISTEN && r.tcp_state != BPF_TCP_ESTABLISHED)
		return 0;
	address_of(r.local, skc, false);
	address_of(r.remote, skc, true);
	if (is_loopback(r.remote, r.local) || is_loopback_address(r.local))
		return 0;
	if (!is_within(BPF_CORE_READ(task, cgroups, dfl_cgrp), job) ||
	    is_within(BPF_CORE_READ(sk, sk_cgrp_data.cgroup), job))
		return 0;
	r.cgroup = BPF_CORE_READ(sk, sk_cgrp_data.cgroup, kn, id);
	r.process = BPF_CORE_READ(task, tgid);
	r.local_port = BPF_CORE_READ(skc, skc_num);
	r.remote_port = bpf_ntohs(BPF_CORE_READ(skc, skc_dport));
	bpf_seq_write(ctx->meta->seq, &r, sizeof(r));
	return 0;
}

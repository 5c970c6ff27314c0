/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The parts of the kernel's types that Paceline reads or writes, and no more.
 *
 * Every struct is marked preserve_access_index: libbpf finds the real offsets
 * in the running kernel's BTF when the programs are loaded, so one build serves
 * Linux 6.1 and later, and no generated vmlinux.h is needed to build it. Anonymous
 * unions of the kernel are flattened here, which CO-RE allows.
 */
#ifndef PACELINE_KERNEL_H
#define PACELINE_KERNEL_H

#include <linux/bpf.h>
#include <linux/types.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_endian.h>

typedef __u64 u64;
typedef __s64 s64;
typedef __u32 u32;
typedef __u16 u16;
typedef __u8 u8;

#define AF_INET 2
#define AF_INET6 10
#define IPPROTO_TCP 6
#define TCP_INFINITE_SSTHRESH 0x7fffffff /* include/net/tcp.h */

enum { TCP_CA_Open = 0, TCP_CA_Disorder, TCP_CA_CWR, TCP_CA_Recovery, TCP_CA_Loss };
enum { SK_PACING_NONE = 0, SK_PACING_NEEDED = 1, SK_PACING_FQ = 2 }; /* include/net/sock.h */

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct kernfs_node {
	u64 id;
};

struct cgroup {
	struct kernfs_node *kn;
	int level;
	struct cgroup *ancestors[];
};

struct sock_cgroup_data {
	struct cgroup *cgroup;
};

struct net {
	u64 net_cookie;
	struct {
		u8 sysctl_tcp_min_tso_segs;
	} ipv4;
};

typedef struct {
	struct net *net;
} possible_net_t;

typedef struct {
	u32 val;
} kuid_t;

struct in6_addr {
	union {
		u32 u6_addr32[4];
	} in6_u;
};

struct sock_common {
	u16 skc_family;
	u8 skc_state;
	u16 skc_num;
	u16 skc_dport;
	int skc_bound_dev_if;
	u32 skc_daddr;
	u32 skc_rcv_saddr;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
	possible_net_t skc_net;
};

struct sock {
	struct sock_common __sk_common;
	unsigned long sk_pacing_rate, sk_max_pacing_rate;
	u32 sk_pacing_status;
	u32 sk_gso_max_size;
	u16 sk_gso_max_segs;
	struct sock_cgroup_data sk_cgrp_data;
	kuid_t sk_uid; /* the user that made it, or its listener */
	u16 sk_type, sk_protocol;
};

struct socket {
	struct sock *sk;
};

struct css_set {
	struct cgroup *dfl_cgrp;
};

struct task_struct {
	int tgid;
	struct css_set *cgroups;
};

struct tcp_congestion_ops;

struct inet_connection_sock {
	u32 icsk_rto;
	u32 icsk_rto_min;
	const struct tcp_congestion_ops *icsk_ca_ops;
	u8 icsk_ca_state : 5;
	struct {
		u8 pending;
		u16 rcv_mss; /* the kernel's estimate of the segments that arrive, bytes */
	} icsk_ack;
};

struct minmax_sample {
	u32 t;
	u32 v;
};

struct minmax {
	struct minmax_sample s[3];
};

struct tcp_rack {
	u32 rtt_us; /* of the segment sent last of those that have arrived */
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	u32 snd_una, snd_nxt, write_seq;
	u32 snd_cwnd, snd_cwnd_clamp, snd_ssthresh;
	u32 srtt_us; /* eight times the smoothed RTT */
	u32 mdev_us;
	u32 rttvar_us;
	struct minmax rtt_min;
	u32 packets_out, sacked_out, lost_out, retrans_out;
	u32 mss_cache;
	u64 bytes_acked;
	u32 app_limited; /* deliveries up to here are app-limited; 0: none is */
	u32 rate_delivered, rate_interval_us;
	struct tcp_rack rack;
	u32 delivered, data_segs_out, total_retrans;
	u32 segs_in, segs_out;
	u32 rcv_wnd;
	u8 ecn_flags;
	u64 tcp_wstamp_ns; /* when the next packet may leave */
	u64 tcp_clock_cache; /* now, in ns, at the last read of the clock */
	u64 tcp_mstamp; /* microseconds */
	bool is_mptcp;
};

struct ack_sample {
	u32 pkts_acked;
	int rtt_us;
	u32 in_flight;
};

struct rate_sample {
	u32 prior_delivered;
};
union tcp_cc_info;
enum tcp_ca_event { CA_EVENT_TX_START = 0 };

struct tcp_congestion_ops {
	u32 (*ssthresh)(struct sock *sk);
	void (*cong_avoid)(struct sock *sk, u32 ack, u32 acked);
	void (*set_state)(struct sock *sk, u8 new_state);
	void (*cwnd_event)(struct sock *sk, enum tcp_ca_event ev);
	void (*cwnd_event_tx_start)(struct sock *sk); /* from Linux 7.1 on */
	void (*pkts_acked)(struct sock *sk, const struct ack_sample *sample);
	u32 (*min_tso_segs)(struct sock *sk);
	void (*cong_control)(struct sock *sk, u32 ack, int flag, const struct rate_sample *rs);
	u32 (*undo_cwnd)(struct sock *sk);
	u32 (*sndbuf_expand)(struct sock *sk);
	char name[16];
	u32 flags;
	void (*init)(struct sock *sk);
	void (*release)(struct sock *sk);
};

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__tcp {
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
};

struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	u32 fd;
	struct file *file;
};

struct bpf_iter__bpf_sk_storage_map {
	struct bpf_iter_meta *meta;
	struct bpf_map *map;
	struct sock *sk;
	void *value;
};

#pragma clang attribute pop

static __always_inline struct tcp_sock *tcp_sk(const struct sock *sk)
{
	return (struct tcp_sock *)sk;
}

/* Sent, and neither acknowledged, by SACK either, nor marked lost; segments. */
static __always_inline u32 in_flight(const struct tcp_sock *tp)
{
	return tp->packets_out - tp->sacked_out - tp->lost_out + tp->retrans_out;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Holds pure ACKs back until they cover ack.every segments: ligon-1999, Table 2, `-m`. For a
 * slow return path. Only the cgroups of jobs whose policy asks for it carry these programs.
 *
 * For the kernel an ACK that is dropped here is sent, and it stops the delayed-ACK timer. So
 * the ACK of a message's end must not wait for later segments: an ACK passes once PSH was
 * seen. The kernel would repeat it only at the peer's retransmission.
 *
 * A segment passes here before the socket is locked. So the end of a message may be known
 * here while the reading program still causes an ACK of earlier data: that ACK does not
 * cover the message. Each field is written by one of the two programs only.
 *
 * In nested jobs both cgroups' programs run for a segment; the second time they find the
 * socket's own counts of segments as they were, and do nothing.
 */
#include "held.h"

#define PL_PASS_SEGMENT 1
#define PL_DROP_SEGMENT 0
#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd

#define TCP_FLAG_FIN 0x01
#define TCP_FLAG_PSH 0x08
#define TCP_FLAG_ACK 0x10
#define TCP_FLAG_URG 0x20

#define PL_KERNELS_OWN 2 /* ack.every that needs no program */
/* Segments in order before ACKs are held: the sender's slow start may need each ACK until then. */
#define PL_IN_ORDER_SEGS 32
/*
 * An ACK that data causes leaves within microseconds of it. One that is later comes from
 * the timer of delayed ACKs, or from the program that read: nothing else would follow it.
 */
#define PL_LATE_NS 1000000
/* Windows of ack.every segments below which each ACK counts for the sender. */
#define PL_WINDOWS_LEFT 2

struct pl_tcp_header {
	u16 source, dest;
	u32 seq, ack;
	u8 offset, flags;
	u16 window, checksum, urgent;
	u8 options[4]; /* the first bytes of them; other bytes where there are none */
};

/* NOP, NOP, timestamps of 10 bytes: RFC 7323, appendix A, and what Linux sends. */
static __always_inline bool has_timestamps_alone(const struct pl_tcp_header *tcp)
{
	return (tcp->offset >> 4) == 8 && tcp->options[0] == 1 && tcp->options[1] == 1 && tcp->options[2] == 8 &&
	       tcp->options[3] == 10;
}

/* Reads the TCP header; a packet begins with that of IP. Returns the payload's length, or -1. */
static __always_inline int read_header(struct __sk_buff *skb, struct pl_tcp_header *tcp)
{
	u32 at, size;
	u8 first, protocol;

	if (bpf_skb_load_bytes(skb, 0, &first, 1))
		return -1;
	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		if (bpf_skb_load_bytes(skb, 9, &protocol, 1))
			return -1;
		at = (first & 15) * 4;
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		/* A packet with an extension header passes: Linux's TCP sends none. */
		if (bpf_skb_load_bytes(skb, 6, &protocol, 1))
			return -1;
		at = 40;
	} else {
		return -1;
	}
	if (protocol != IPPROTO_TCP || bpf_skb_load_bytes(skb, at, tcp, 20))
		return -1;
	__builtin_memset(tcp->options, 0, sizeof(tcp->options));
	size = (tcp->offset >> 4) * 4;
	if (size >= sizeof(*tcp) && bpf_skb_load_bytes(skb, at + 20, tcp->options, sizeof(tcp->options)))
		return -1;
	return (int)(skb->len - at - size);
}

/* How many segments an ACK is to cover; 0: the connection holds none back. */
static __always_inline u32 every_of(struct bpf_sock *sk)
{
	struct pl_connection *conn = bpf_sk_storage_get(&pl_connections, sk, 0, 0);

	if (!conn || conn->reason != PL_REASON_NONE || conn->policy.ack_every <= PL_KERNELS_OWN)
		return 0;
	return conn->policy.ack_every;
}

static __always_inline bool is_after(u32 a, u32 b)
{
	return (int)(a - b) > 0;
}

SEC("cgroup_skb/ingress")
int pl_arrivals(struct __sk_buff *skb)
{
	struct bpf_sock *sk = skb->sk;
	struct pl_tcp_header tcp;
	struct pl_held *acks;
	struct tcp_sock *tp;
	u32 seq, end, segs;
	int payload;

	sk = sk ? bpf_sk_fullsock(sk) : NULL;
	if (!sk || !every_of(sk))
		return PL_PASS_SEGMENT;
	payload = read_header(skb, &tcp);
	if (payload <= 0)
		return PL_PASS_SEGMENT;
	tp = bpf_skc_to_tcp_sock(sk);
	acks = bpf_sk_storage_get(&pl_held_acks, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!tp || !acks || (acks->known && acks->segs_in == tp->segs_in))
		return PL_PASS_SEGMENT;
	acks->segs_in = tp->segs_in;
	seq = bpf_ntohl(tcp.seq);
	end = seq + payload;
	segs = skb->gso_segs ? skb->gso_segs : 1;
	if (!acks->known)
		acks->high = acks->pushed = acks->acked = seq;
	acks->known = 1;
	if (seq != acks->high)
		acks->in_order = 0;
	else if (acks->in_order < PL_IN_ORDER_SEGS)
		acks->in_order += segs;
	if (is_after(end, acks->high))
		acks->high = end;
	if (tcp.flags & (TCP_FLAG_PSH | TCP_FLAG_FIN | TCP_FLAG_URG))
		acks->pushed = acks->high;
	acks->arrived_ns = bpf_ktime_get_ns();
	return PL_PASS_SEGMENT;
}

/* Whether this is an ACK with nothing but an acknowledgement number. */
static __always_inline bool is_pure(const struct pl_tcp_header *tcp, int payload)
{
	return payload == 0 && tcp->flags == TCP_FLAG_ACK && ((tcp->offset >> 4) == 5 || has_timestamps_alone(tcp));
}

/* Whether the sender does not need this ACK now. */
static __always_inline bool may_wait(const struct pl_held *acks, const struct tcp_sock *tp, u32 ack, u32 every)
{
	u32 covers = every * tp->inet_conn.icsk_ack.rcv_mss;

	/* Data came out of order, or no ACK that left covers the end of a message. */
	if (acks->in_order < PL_IN_ORDER_SEGS || is_after(acks->pushed, acks->acked))
		return false;
	/* A duplicate or a window update; data is missing, or has come meanwhile. */
	if (ack == acks->seen || ack != acks->high)
		return false;
	if (ack - acks->acked >= covers || tp->rcv_wnd < PL_WINDOWS_LEFT * covers)
		return false;
	return bpf_ktime_get_ns() - acks->arrived_ns < PL_LATE_NS;
}

SEC("cgroup_skb/egress")
int pl_hold_acks(struct __sk_buff *skb)
{
	struct bpf_sock *sk = skb->sk;
	struct pl_tcp_header tcp;
	struct pl_held *acks;
	struct tcp_sock *tp;
	u32 every, ack;
	int payload;

	sk = sk ? bpf_sk_fullsock(sk) : NULL;
	if (!sk)
		return PL_PASS_SEGMENT;
	acks = bpf_sk_storage_get(&pl_held_acks, sk, 0, 0);
	every = acks ? every_of(sk) : 0;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!acks || !every || !tp)
		return PL_PASS_SEGMENT;
	if (acks->segs_out == tp->segs_out)
		return acks->verdict ? PL_PASS_SEGMENT : PL_DROP_SEGMENT;
	payload = read_header(skb, &tcp);
	if (payload < 0)
		return PL_PASS_SEGMENT;
	ack = bpf_ntohl(tcp.ack);
	acks->segs_out = tp->segs_out;
	if (is_pure(&tcp, payload) && may_wait(acks, tp, ack, every)) {
		acks->seen = ack;
		acks->held++;
		acks->verdict = PL_DROP_SEGMENT;
		return PL_DROP_SEGMENT;
	}
	acks->seen = ack;
	acks->acked = ack;
	acks->verdict = PL_PASS_SEGMENT;
	return PL_PASS_SEGMENT;
}

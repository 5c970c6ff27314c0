/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Connections of a job without timestamps, window scaling or SACK: ligon-1999, Table 2, `-o`.
 * An object of its own, loaded once for each job that asks for it, at one interface.
 *
 * Both sides have an option only if both SYNs offer it (RFC 7323, 1.3 and 3.2; RFC 2018, 2).
 * So the excluded options become NOPs in each SYN that the job sends, and in each SYN for a
 * listener of it: its own kernel then answers without them. If they were removed from the
 * SYN-ACK itself, this side would still use them, and scale a window that the peer does not
 * scale.
 *
 * A retransmission is written anew by the stack, and comes by here again: nothing is kept.
 */
#include "kernel.h"
#include "paceline_abi.h"

#define NEXT (-1) /* TC_ACT_UNSPEC, and TCX_NEXT: on to the next program */
#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd

#define IPV6_BYTES 40
#define TCP_BYTES 20 /* without options */
#define TCP_FLAGS 13 /* where they are in the header */
#define TCP_CHECKSUM 16
#define FLAG_SYN 0x02
#define FLAG_ACK 0x10
#define IPV4_OFFSET 0x1fff /* of a fragment */

#define OPTION_END 0
#define OPTION_NOP 1
#define OPTION_SCALE 3
#define OPTION_SACK 4
#define OPTION_TIMESTAMPS 8
#define MOST_OPTION_BYTES 40

/* crates/bpf/src/options.rs has the same in Rust. */
struct pl_options_config {
	u64 job; /* id of its cgroup */
	u64 namespace_device, namespace_inode; /* of the network namespace, as stat(2) has it */
	u32 interface; /* its number there */
	u32 link_bytes; /* of the link's header: Ethernet, or none */
	u32 without; /* PL_NO_*, as in struct pl_policy */
	u32 reserved;
};

_Static_assert(sizeof(struct pl_options_config) == 40, "as options.rs has it");

const volatile struct pl_options_config pl_options_config = {};

/* The kernel side's own. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PL_MAX_JOBS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u64);
	__type(value, struct pl_job);
} pl_jobs SEC(".maps");

#include "job.h"

/* Where a packet's parts are, from its start. */
struct syn {
	u32 ip, tcp, end;
};

/* Whether the packet opens a connection: SYN without ACK. */
static __always_inline bool find_syn(struct __sk_buff *skb, struct syn *syn)
{
	u32 ip = pl_options_config.link_bytes;
	u8 first, protocol, tcp[2];
	u16 fragment;

	syn->ip = ip;
	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		if (bpf_skb_load_bytes(skb, ip + 9, &protocol, 1) || protocol != IPPROTO_TCP)
			return false;
		if (bpf_skb_load_bytes(skb, ip, &first, 1) || bpf_skb_load_bytes(skb, ip + 6, &fragment, 2) ||
		    (fragment & bpf_htons(IPV4_OFFSET)))
			return false;
		syn->tcp = ip + (first & 15) * 4;
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		/* A SYN with an extension header passes: Linux sends none. */
		if (bpf_skb_load_bytes(skb, ip + 6, &protocol, 1) || protocol != IPPROTO_TCP)
			return false;
		syn->tcp = ip + IPV6_BYTES;
	} else {
		return false;
	}
	/* Length of the header, and flags. */
	if (bpf_skb_load_bytes(skb, syn->tcp + TCP_FLAGS - 1, tcp, 2))
		return false;
	syn->end = syn->tcp + (tcp[0] >> 4) * 4;
	return (tcp[1] & (FLAG_SYN | FLAG_ACK)) == FLAG_SYN;
}

/* Whether an option of this kind and length is an excluded one. */
static __always_inline bool unwanted(u8 kind, u8 length)
{
	u32 without = pl_options_config.without;

	return (kind == OPTION_TIMESTAMPS && length == 10 && (without & PL_NO_TIMESTAMPS)) ||
	       (kind == OPTION_SCALE && length == 3 && (without & PL_NO_SCALING)) ||
	       (kind == OPTION_SACK && length == 2 && (without & PL_NO_SACK));
}

/* One byte becomes a NOP, with its weight in the checksum. */
static __always_inline void blank(struct __sk_buff *skb, u32 tcp, u32 at)
{
	u8 was, nop = OPTION_NOP;
	u16 from, to;

	if (bpf_skb_load_bytes(skb, at, &was, 1))
		return;
	from = (at - tcp) & 1 ? bpf_htons(was) : bpf_htons(was << 8);
	to = (at - tcp) & 1 ? bpf_htons(OPTION_NOP) : bpf_htons(OPTION_NOP << 8);
	if (!bpf_skb_store_bytes(skb, at, &nop, 1, 0))
		bpf_l4_csum_replace(skb, tcp + TCP_CHECKSUM, from, to, sizeof(u16));
}

/*
 * On its way through the options, byte by byte.
 *
 * Both places begin as ones that the verifier cannot compare with that of a byte. Linux 6.1
 * checks the first step of bpf_loop alone, and removes branches that its values rule out.
 */
struct walk {
	struct __sk_buff *skb;
	u32 tcp, end;
	u32 next; /* where the next option is */
	u32 blank_end; /* bytes before it become NOPs */
};

static long step(u32 number, void *context)
{
	struct walk *walk = context;
	u32 at = walk->tcp + TCP_BYTES + number;
	u8 option[2]; /* kind, and length */

	if (at >= walk->end)
		return 1;
	if (at >= walk->next) {
		if (bpf_skb_load_bytes(walk->skb, at, option, 1) || option[0] == OPTION_END)
			return 1;
		if (option[0] == OPTION_NOP)
			return 0;
		if (bpf_skb_load_bytes(walk->skb, at, option, 2) || option[1] < 2)
			return 1;
		walk->next = at + option[1];
		if (walk->next <= walk->end && unwanted(option[0], option[1]))
			walk->blank_end = walk->next;
	}
	if (at < walk->blank_end)
		blank(walk->skb, walk->tcp, at);
	return 0;
}

static __always_inline void strip(struct __sk_buff *skb, const struct syn *syn)
{
	u32 begin = syn->tcp + TCP_BYTES;
	struct walk walk = { .skb = skb, .tcp = syn->tcp, .end = syn->end, .next = begin, .blank_end = begin };

	bpf_loop(MOST_OPTION_BYTES, step, &walk, 0);
}

/* Whether the job of a socket, the innermost one of its cgroup, is the one of these programs. */
static __always_inline bool is_ours(struct bpf_sock *sk)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);

	return tp && job_of(tp) == pl_options_config.job;
}

SEC("tc")
int pl_options_out(struct __sk_buff *skb)
{
	struct bpf_sock *sk = skb->sk;
	struct syn syn;

	if (sk && find_syn(skb, &syn) && is_ours(sk))
		strip(skb, &syn);
	return NEXT;
}

static __always_inline struct bpf_sock *look_up(struct __sk_buff *skb, struct bpf_sock_tuple *tuple, bool ipv4)
{
	return bpf_skc_lookup_tcp(skb, tuple, ipv4 ? sizeof(tuple->ipv4) : sizeof(tuple->ipv6),
				  BPF_F_CURRENT_NETNS, 0);
}

/* The socket that gets a SYN, with a reference; NULL: none. */
static __always_inline struct bpf_sock *receiver(struct __sk_buff *skb, const struct syn *syn)
{
	bool ipv4 = skb->protocol == bpf_htons(ETH_P_IP);
	struct bpf_sock_tuple tuple = {};
	struct bpf_sock *sk;

	/* Source and destination, as the tuple has them. */
	if (ipv4) {
		if (bpf_skb_load_bytes(skb, syn->ip + 12, &tuple.ipv4.saddr, 8) ||
		    bpf_skb_load_bytes(skb, syn->tcp, &tuple.ipv4.sport, 4))
			return NULL;
	} else if (bpf_skb_load_bytes(skb, syn->ip + 8, tuple.ipv6.saddr, 32) ||
		   bpf_skb_load_bytes(skb, syn->tcp, &tuple.ipv6.sport, 4)) {
		return NULL;
	}
	sk = look_up(skb, &tuple, ipv4);
	if (!sk || (sk->state != BPF_TCP_TIME_WAIT && sk->state != BPF_TCP_NEW_SYN_RECV))
		return sk;
	/*
	 * Reused ports, or a retransmitted SYN: a lookup with source port 0, from which
	 * nothing is connected, finds the listener.
	 */
	bpf_sk_release(sk);
	if (ipv4)
		tuple.ipv4.sport = 0;
	else
		tuple.ipv6.sport = 0;
	return look_up(skb, &tuple, ipv4);
}

SEC("tc")
int pl_options_in(struct __sk_buff *skb)
{
	struct bpf_sock *sk;
	struct syn syn;
	bool ours;

	if (!find_syn(skb, &syn))
		return NEXT;
	sk = receiver(skb, &syn);
	if (!sk)
		return NEXT;
	ours = is_ours(sk);
	bpf_sk_release(sk);
	if (ours)
		strip(skb, &syn);
	return NEXT;
}

char LICENSE[] SEC("license") = "GPL";

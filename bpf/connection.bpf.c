/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A connection gets its policy when it is established, connected or accepted.
 *
 * The program is attached to each job's cgroup. A socket belongs to the cgroup
 * in which it was created; an accepted one to its listener's. In nested jobs
 * the innermost one decides.
 */
#include "counters.h"
#include "groups.h"
#include "job.h"
#include "paths.h"

#define TCP_NODELAY 1
#define TCP_CONGESTION 13
#define TCP_THIN_LINEAR_TIMEOUTS 16
#define TCP_RTO_MAX_MS 44 /* include/uapi/linux/tcp.h, from 6.15 on */
#define PL_USUAL_US 200000 /* TCP_RTO_MIN and TCP_DELACK_MAX, include/net/tcp.h */
#define PL_USUAL_MAX_MS 120000 /* TCP_RTO_MAX */

/* Whether a cgroup is this one or below it. */
static __always_inline bool is_within(struct cgroup *cgroup, u64 id)
{
	int level = cgroup ? BPF_CORE_READ(cgroup, level) : -1;

	for (int i = 0; i < PL_CGROUP_DEPTH && level >= 0; i++, level--)
		if (ancestor_of(cgroup, level) == id)
			return true;
	return false;
}

static __always_inline void address_of(u32 to[4], const struct sock_common *skc, bool remote)
{
	if (BPF_CORE_READ(skc, skc_family) == AF_INET6) {
		struct in6_addr address;

		if (remote)
			BPF_CORE_READ_INTO(&address, skc, skc_v6_daddr);
		else
			BPF_CORE_READ_INTO(&address, skc, skc_v6_rcv_saddr);
		__builtin_memcpy(to, &address, sizeof(address));
		return;
	}
	to[0] = to[1] = 0;
	to[2] = bpf_htonl(0xffff);
	to[3] = remote ? BPF_CORE_READ(skc, skc_daddr) : BPF_CORE_READ(skc, skc_rcv_saddr);
}

/* fe80::/10: the same address behind another interface is another host. */
static __always_inline u32 scope_of(const u32 address[4], const struct sock_common *skc)
{
	bool link_local = (bpf_ntohl(address[0]) & 0xffc00000) == 0xfe800000;

	return link_local ? BPF_CORE_READ(skc, skc_bound_dev_if) : 0;
}

/* 127/8, ::1. */
static __always_inline bool is_loopback_address(const u32 address[4])
{
	bool mapped = !address[0] && !address[1] && address[2] == bpf_htonl(0xffff);

	if (mapped && (bpf_ntohl(address[3]) >> 24) == 127)
		return true;
	return !address[0] && !address[1] && !address[2] && address[3] == bpf_htonl(1);
}

/* To itself: by a loopback address, or one address at both ends. */
static __always_inline bool is_loopback(const u32 remote[4], const u32 local[4])
{
	if (is_loopback_address(remote))
		return true;
	return remote[0] == local[0] && remote[1] == local[1] && remote[2] == local[2] && remote[3] == local[3];
}

static __always_inline bool is_mptcp(const struct tcp_sock *tp)
{
	return bpf_core_field_exists(tp->is_mptcp) && BPF_CORE_READ(tp, is_mptcp);
}

/* Whole ticks, because the kernel rounds up to them: anything finer would put nearly all on one. */
static __always_inline u32 jitter_ticks(const struct pl_policy *policy)
{
	return policy->tick_us ? policy->rto_jitter_us / policy->tick_us : 0;
}

/*
 * Spreads connections over the jitter: the same connection, the same value. Cookies count
 * up on a host and may be equal on hosts that do the same; their addresses are not. By
 * Fibonacci hashing such sequences fall evenly.
 */
static __always_inline u32 jittered(const struct pl_policy *policy, u64 cookie, const u32 local[4])
{
	u64 hash = (cookie + bpf_ntohl(local[3])) * 0x9e3779b97f4a7c15ull; /* 2^64 / golden ratio */

	return policy->rto_min_us + (u32)((hash >> 32) * (jitter_ticks(policy) + 1) >> 32) * policy->tick_us;
}

/* Every setting that the policy names; stops at the first that is refused. */
static __always_inline int apply(void *socket, struct pl_connection *conn, bool fresh)
{
	static const char names[2][4][PL_CC_NAME_LEN] = {
		{ "", "cubic", "reno", "bbr" }, /* in the order of enum pl_base */
		{ "", "paceline_cubic", "paceline_reno", "paceline_bbr" },
	};
	const struct pl_policy *policy = &conn->policy;
	char name[PL_CC_NAME_LEN];
	u32 base = policy->base;
	int value, error = 0;

	if (policy->rto_min_us) {
		value = conn->rto_min_us;
		error = bpf_setsockopt(socket, IPPROTO_TCP, TCP_BPF_RTO_MIN, &value, sizeof(value));
	}
	if (!error && policy->rto_linear) {
		value = 1;
		error = bpf_setsockopt(socket, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, &value, sizeof(value));
	}
	if (!error && policy->delayed_ack_us) {
		value = policy->delayed_ack_us;
		error = bpf_setsockopt(socket, IPPROTO_TCP, TCP_BPF_DELACK_MAX, &value, sizeof(value));
	}
	if (!error && policy->rto_max_ms) {
		value = policy->rto_max_ms;
		error = bpf_setsockopt(socket, IPPROTO_TCP, TCP_RTO_MAX_MS, &value, sizeof(value));
	}
	if (!error && policy->nodelay) {
		value = 0;
		bpf_getsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &value, sizeof(value));
		conn->own_nodelay = !value;
		value = 1;
		error = bpf_setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &value, sizeof(value));
	}
	if (!error && policy->initial_window_segs && fresh) {
		value = policy->initial_window_segs;
		error = bpf_setsockopt(socket, IPPROTO_TCP, TCP_BPF_IW, &value, sizeof(value));
	}
	if (!error && base) {
		barrier_var(base); /* or the compiler removes the mask, which the verifier needs */
		base &= 3;
		bpf_getsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, conn->former, sizeof(conn->former));
		__builtin_memcpy(name, names[policy->wrap != 0][base], sizeof(name));
		error = bpf_setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name, sizeof(name));
	}
	return error;
}

/* The policy that a job has now; *set is its entry of pl_policies, if it has one. */
static __always_inline const struct pl_policy *policy_of(u64 id, const struct pl_job *job,
							 const struct pl_job_policy **set)
{
	*set = bpf_map_lookup_elem(&pl_policies, &id);
	return *set ? &(*set)->policy : &job->policy;
}

/* The minimum RTO of a listener: that of all connections that it accepts, until they have their own. */
static __always_inline u32 listeners_rto_us(const struct pl_policy *policy)
{
	return policy->rto_min_us + jitter_ticks(policy) * policy->tick_us;
}

/*
 * Sets the minimum RTO before the handshake. The handshake's RTT sample sets rttvar to the
 * minimum RTO of that moment. Later, rttvar decays towards a smaller minimum, by a quarter
 * of the difference per round trip, and never rises to a larger one (tcp_rtt_estimator). So
 * a connecting socket gets its jitter here. A listener passes one value on to all that it
 * accepts, so it gets the maximum jitter. A connection without the policy must not get any.
 */
static __always_inline void set_rto_early(struct bpf_sock_ops *ops, struct tcp_sock *tp, bool listener)
{
	struct sock_common *skc = (struct sock_common *)tp;
	u32 remote[4], local[4];
	const struct pl_policy *policy;
	u64 id = job_of(tp);
	const struct pl_job_policy *set;
	struct pl_job *job;
	int value;

	job = bpf_map_lookup_elem(&pl_jobs, &id);
	if (!job || is_mptcp(tp))
		return;
	policy = policy_of(id, job, &set);
	if (!policy->rto_min_us)
		return;
	address_of(remote, skc, true);
	address_of(local, skc, false);
	if (listener ? is_loopback_address(local) : is_loopback(remote, local))
		return;
	if (listener)
		value = listeners_rto_us(policy);
	else
		value = jittered(policy, bpf_get_socket_cookie(ops), local);
	bpf_setsockopt(ops, IPPROTO_TCP, TCP_BPF_RTO_MIN, &value, sizeof(value));
}

/* The group that the program named for this socket, or else the job's. */
static __always_inline void enter_group(void *storage_of, struct tcp_sock *tp, struct pl_connection *conn,
					const struct pl_job *job)
{
	struct pl_pending_options *pending = bpf_sk_storage_get(&pl_pending, storage_of, 0, 0);

	conn->group.owner_uid = job->owner_uid;
	conn->group.user_uid = BPF_CORE_READ((struct sock *)tp, sk_uid.val);
	if (pending && pending->named)
		__builtin_memcpy(conn->group.name, pending->group, sizeof(conn->group.name));
	else
		__builtin_memcpy(conn->group.name, job->group, sizeof(conn->group.name));
	if (conn->group.name[0])
		pl_join_group(conn, pending ? pending->total_bytes : 0);
}

/* Puts one established socket under its job's policy. Returns 1 if it did. */
static __always_inline int govern(void *socket, void *storage_of, struct tcp_sock *tp, u64 job_id, u64 cookie,
				  bool fresh)
{
	struct sock_common *skc = (struct sock_common *)tp;
	int usual_us = PL_USUAL_US;
	const struct pl_policy *policy;
	struct pl_connection *conn;
	const struct pl_job_policy *set;
	struct pl_job *job;
	u32 local[4];
	u32 *maker;

	job = bpf_map_lookup_elem(&pl_jobs, &job_id);
	if (!job)
		return 0;
	conn = bpf_sk_storage_get(&pl_connections, storage_of, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!conn) {
		__sync_fetch_and_add(&job->full.storage, 1);
		return 0;
	}
	if (conn->path.job)
		return 0; /* an inner job was first */
	policy = policy_of(job_id, job, &set);
	conn->path.job = job_id;
	conn->path.netns = BPF_CORE_READ(skc, skc_net.net, net_cookie);
	address_of(conn->path.address, skc, true);
	conn->path.scope = scope_of(conn->path.address, skc);
	address_of(local, skc, false);
	if (is_loopback(conn->path.address, local)) {
		conn->reason = PL_REASON_LOOPBACK;
		__sync_fetch_and_add(&job->loopback, 1);
	} else if (is_mptcp(tp)) {
		conn->reason = PL_REASON_MPTCP;
		__sync_fetch_and_add(&job->mptcp, 1);
	}
	if (conn->reason) {
		/* Restores the values inherited from a listener of the job; rttvar stays. */
		if (fresh && (policy->rto_min_us || (set && set->had_rto_min)))
			bpf_setsockopt(socket, IPPROTO_TCP, TCP_BPF_RTO_MIN, &usual_us, sizeof(usual_us));
		return 0;
	}
	conn->policy = *policy;
	conn->generation = set ? set->generation : 0;
	conn->cookie = cookie;
	conn->account = job->account;
	maker = bpf_sk_storage_get(&pl_makers, storage_of, 0, 0);
	conn->process.job = job_id;
	conn->process.process = maker ? *maker : 0;
	if (policy->rto_min_us)
		conn->rto_min_us = jittered(policy, cookie, local);
	/* It began under an earlier policy, or its listener did. */
	else if (fresh && set && set->had_rto_min)
		bpf_setsockopt(socket, IPPROTO_TCP, TCP_BPF_RTO_MIN, &usual_us, sizeof(usual_us));
	if (policy->target != PL_TARGET_OFF || policy->even)
		path_of(conn);
	conn->error = apply(socket, conn, fresh);
	if (conn->error) {
		conn->reason = PL_REASON_REFUSED;
		__sync_fetch_and_add(&job->refused, 1);
		return 0;
	}
	/* No bound applies to a fixed window. */
	if (policy->wrap && !policy->window_fixed_segs)
		enter_group(storage_of, tp, conn, job);
	__sync_fetch_and_add(&job->connections, 1);
	pl_begin_counting(conn, tp);
	return 1;
}

/* From now on pl_connection sees this connection's timeouts and its states. */
static __always_inline void watch(struct bpf_sock_ops *ops, struct bpf_sock *sk)
{
	struct pl_connection *conn = bpf_sk_storage_get(&pl_connections, sk, 0, 0);
	int flags = ops->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_RTO_CB_FLAG | BPF_SOCK_OPS_STATE_CB_FLAG;

	if (conn && !bpf_sock_ops_cb_flags_set(ops, flags))
		conn->counted.watched = 1;
}

/* Counts a timeout, or, when one side has closed, the connection's traffic. */
static __always_inline void count(struct bpf_sock *sk, struct tcp_sock *tp, bool timeout)
{
	struct pl_connection *conn = bpf_sk_storage_get(&pl_connections, sk, 0, 0);

	if (!conn || conn->reason != PL_REASON_NONE)
		return;
	if (timeout)
		pl_count_timeout(conn);
	else
		pl_fold_all(conn, tp);
}

SEC("sockops")
int pl_connection(struct bpf_sock_ops *ops)
{
	struct tcp_sock *tp;
	struct bpf_sock *sk = ops->sk;

	if (!sk)
		return 1;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 1;
	switch (ops->op) {
	case BPF_SOCK_OPS_TCP_CONNECT_CB:
		set_rto_early(ops, tp, false);
		break;
	case BPF_SOCK_OPS_TCP_LISTEN_CB:
		set_rto_early(ops, tp, true);
		break;
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		if (govern(ops, sk, tp, job_of(tp), bpf_get_socket_cookie(ops), true))
			watch(ops, sk);
		break;
	case BPF_SOCK_OPS_RTO_CB:
		count(sk, tp, true);
		break;
	case BPF_SOCK_OPS_STATE_CB:
		count(sk, tp, false);
		break;
	}
	return 1;
}

/*
 * Stores the process that makes a socket: its phases are the connection's. Later, when
 * ACKs come in or a connection is accepted, no process is current.
 */
SEC("cgroup/sock_create")
int pl_maker(struct bpf_sock *sk)
{
	u32 process = bpf_get_current_pid_tgid() >> 32;

	if (sk->protocol == IPPROTO_TCP)
		bpf_sk_storage_get(&pl_makers, sk, &process, BPF_SK_STORAGE_GET_F_CREATE);
	return 1;
}

/* The job that the iterators below work on; written by the agent under its lock. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} pl_subject SEC(".maps");

static __always_inline u64 subject(void)
{
	u32 zero = 0;
	u64 *job = bpf_map_lookup_elem(&pl_subject, &zero);

	return job ? *job : 0;
}

/* Existing connections of the subject job come under its policy. One byte each. */
SEC("iter/tcp")
int pl_adopt(struct bpf_iter__tcp *ctx)
{
	struct sock_common *skc = ctx->sk_common;
	u8 adopted = 1;
	struct tcp_sock *tp;
	u64 job = subject();

	if (!skc)
		return 0;
	tp = bpf_skc_to_tcp_sock(skc);
	if (!tp || tp->snd_nxt == 0 || !job || job_of(tp) != job)
		return 0;
	if (BPF_CORE_READ(skc, skc_state) != BPF_TCP_ESTABLISHED)
		return 0;
	if (govern(tp, tp, tp, job, bpf_get_socket_cookie(tp), false))
		bpf_seq_write(ctx->meta->seq, &adopted, sizeof(adopted));
	return 0;
}

/* Restores the former settings of the subject job's connections. One byte each. */
SEC("iter/tcp")
int pl_release(struct bpf_iter__tcp *ctx)
{
	struct sock_common *skc = ctx->sk_common;
	struct pl_connection *conn;
	char name[PL_CC_NAME_LEN];
	struct tcp_sock *tp;
	int usual_us = PL_USUAL_US, usual_max_ms = PL_USUAL_MAX_MS, off = 0;
	u8 released = 1;

	if (!skc)
		return 0;
	tp = bpf_skc_to_tcp_sock(skc);
	if (!tp)
		return 0;
	conn = bpf_sk_storage_get(&pl_connections, tp, 0, 0);
	if (!conn || conn->path.job != subject())
		return 0;
	if (conn->reason == PL_REASON_NONE) {
		pl_fold_all(conn, tp);
		if (conn->policy.rto_min_us)
			bpf_setsockopt(tp, IPPROTO_TCP, TCP_BPF_RTO_MIN, &usual_us, sizeof(usual_us));
		if (conn->policy.rto_linear)
			bpf_setsockopt(tp, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, &off, sizeof(off));
		if (conn->policy.delayed_ack_us)
			bpf_setsockopt(tp, IPPROTO_TCP, TCP_BPF_DELACK_MAX, &usual_us, sizeof(usual_us));
		if (conn->policy.rto_max_ms)
			bpf_setsockopt(tp, IPPROTO_TCP, TCP_RTO_MAX_MS, &usual_max_ms, sizeof(usual_max_ms));
		if (conn->own_nodelay)
			bpf_setsockopt(tp, IPPROTO_TCP, TCP_NODELAY, &off, sizeof(off));
		__builtin_memcpy(name, conn->former, sizeof(name));
		if (name[0])
			bpf_setsockopt(tp, IPPROTO_TCP, TCP_CONGESTION, name, sizeof(name));
		bpf_seq_write(ctx->meta->seq, &released, sizeof(released));
	}
	bpf_sk_storage_delete(&pl_connections, tp);
	return 0;
}

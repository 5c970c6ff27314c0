/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Connections whose job has another policy since they got theirs: `paceline set`.
 *
 * The agent has written the new policy before this runs, so a connection that is made
 * meanwhile has it already. Each connection goes from the one to the other under its own
 * lock, and stores the generation: one that has it already is left alone.
 */
#include "groups.h"
#include "paths.h"

static __always_inline int set_option(struct tcp_sock *tp, int option, int value)
{
	return bpf_setsockopt(tp, IPPROTO_TCP, option, &value, sizeof(value));
}

/* Whether a law of the congestion control is another one, or begins, or ends. */
static __always_inline bool laws_differ(const struct pl_policy *was, const struct pl_policy *is)
{
	return was->base != is->base || was->wrap != is->wrap || was->target != is->target ||
	       was->clustered != is->clustered || was->gap_bytes != is->gap_bytes || was->tuned != is->tuned ||
	       was->ack_every != is->ack_every || was->window_fixed_segs != is->window_fixed_segs ||
	       was->window_again != is->window_again || was->even != is->even;
}

/* The kernel's own algorithm of a policy; without one, the socket's former algorithm. */
static __always_inline int set_base(struct tcp_sock *tp, const struct pl_connection *conn, u32 base, u32 wrap)
{
	static const char names[2][4][PL_CC_NAME_LEN] = {
		{ "", "cubic", "reno", "bbr" }, /* in the order of enum pl_base */
		{ "", "paceline_cubic", "paceline_reno", "paceline_bbr" },
	};
	char name[PL_CC_NAME_LEN];

	barrier_var(base); /* or the compiler removes the mask, which the verifier needs */
	base &= 3;
	if (base)
		__builtin_memcpy(name, names[wrap != 0][base], sizeof(name));
	else
		__builtin_memcpy(name, conn->former, sizeof(name));
	if (!name[0])
		return 0;
	return bpf_setsockopt(tp, IPPROTO_TCP, TCP_CONGESTION, name, sizeof(name));
}

/* Keeps only the counters of the start-up law: the inflight belongs to no start. */
static __always_inline void begin_again(struct pl_connection *conn)
{
	u32 starts = conn->start.starts, bad_starts = conn->start.bad_starts;
	u32 breaker_opened = conn->start.breaker_opened;

	__builtin_memset(&conn->start, 0, sizeof(conn->start));
	conn->start.starts = starts;
	conn->start.bad_starts = bad_starts;
	conn->start.breaker_opened = breaker_opened;
	conn->spaced = 0;
	conn->spacing_bps = 0;
	conn->stopping = 0;
	conn->pathless_us = 0;
}

/*
 * Leaves the wrapped algorithm and enters it again under the new policy: leave() in
 * transmission.h releases path, turn, group and pacing.
 */
static __noinline int change_laws(struct tcp_sock *tp, struct pl_connection *conn, struct pl_job *job,
				  const struct pl_policy *is)
{
	int error = 0;

	if (conn->policy.wrap)
		error = set_base(tp, conn, conn->policy.base, 0);
	if (error)
		return error;
	if (!conn->policy.base && is->base)
		bpf_getsockopt(tp, IPPROTO_TCP, TCP_CONGESTION, conn->former, sizeof(conn->former));
	begin_again(conn);
	conn->policy = *is;
	if (is->target != PL_TARGET_OFF || is->even)
		path_of(conn);
	error = set_base(tp, conn, is->base, is->wrap);
	if (!error && is->wrap && !is->window_fixed_segs)
		enter_group(tp, tp, conn, job);
	return error;
}

/*
 * One line for each option of the socket: where the policies differ it gets the new one's
 * value, or the kernel's own. All other keys the laws read as they go.
 */
static __noinline int change_options(struct tcp_sock *tp, const struct pl_policy *was, const struct pl_policy *is,
				     u32 rto_was_us, u32 rto_is_us)
{
	int error = 0;

	if (rto_was_us != rto_is_us)
		error = set_option(tp, TCP_BPF_RTO_MIN, rto_is_us ? rto_is_us : PL_USUAL_US);
	if (!error && was->rto_linear != is->rto_linear)
		error = set_option(tp, TCP_THIN_LINEAR_TIMEOUTS, is->rto_linear);
	if (!error && was->delayed_ack_us != is->delayed_ack_us)
		error = set_option(tp, TCP_BPF_DELACK_MAX, is->delayed_ack_us ? is->delayed_ack_us : PL_USUAL_US);
	if (!error && was->rto_max_ms != is->rto_max_ms)
		error = set_option(tp, TCP_RTO_MAX_MS, is->rto_max_ms ? is->rto_max_ms : PL_USUAL_MAX_MS);
	return error;
}

/* A setting of the program itself stays. */
static __always_inline int change_nodelay(struct tcp_sock *tp, struct pl_connection *conn, bool on)
{
	int value = 0;

	if (!on) {
		if (!conn->own_nodelay)
			return 0;
		conn->own_nodelay = 0;
		return set_option(tp, TCP_NODELAY, 0);
	}
	bpf_getsockopt(tp, IPPROTO_TCP, TCP_NODELAY, &value, sizeof(value));
	conn->own_nodelay = !value;
	return set_option(tp, TCP_NODELAY, 1);
}

/* All of the new policy, or, where the kernel refuses a part, all of the former one. */
static __always_inline int change(struct tcp_sock *tp, struct pl_connection *conn, struct pl_job *job,
				  const struct pl_policy *is)
{
	u32 local[4], rto_was_us = conn->rto_min_us, rto_is_us = 0;
	struct pl_policy was = conn->policy;
	int error;

	if (is->rto_min_us) {
		address_of(local, (struct sock_common *)tp, false);
		rto_is_us = jittered(is, conn->cookie, local);
	}
	error = change_options(tp, &was, is, rto_was_us, rto_is_us);
	if (!error && was.nodelay != is->nodelay)
		error = change_nodelay(tp, conn, is->nodelay);
	if (!error && laws_differ(&was, is))
		error = change_laws(tp, conn, job, is);
	if (error) {
		change_options(tp, is, &was, rto_is_us, rto_was_us);
		if (was.nodelay != is->nodelay)
			change_nodelay(tp, conn, was.nodelay);
		if (laws_differ(&was, is))
			change_laws(tp, conn, job, &was);
		conn->policy = was;
		return error;
	}
	conn->rto_min_us = rto_is_us;
	conn->policy = *is;
	return 0;
}

/* The settings that accepted connections inherit from a listener (set_rto_early). */
static __always_inline void change_listener(struct tcp_sock *tp, const struct pl_job_policy *now)
{
	const struct pl_policy *is = &now->policy;
	u32 local[4];

	if (!is->rto_min_us && !now->had_rto_min)
		return;
	address_of(local, (struct sock_common *)tp, false);
	if (!is_loopback_address(local) && !is_mptcp(tp))
		set_option(tp, TCP_BPF_RTO_MIN, is->rto_min_us ? listeners_rto_us(is) : PL_USUAL_US);
}

/* The subject job's connections come under the policy that it has now. */
SEC("iter/tcp")
int pl_change(struct bpf_iter__tcp *ctx)
{
	struct sock_common *skc = ctx->sk_common;
	struct pl_changed_record r = {};
	struct pl_job_policy *now;
	struct pl_connection *conn;
	struct pl_policy is;
	struct tcp_sock *tp;
	struct pl_job *job;
	u64 id = subject();

	if (!skc)
		return 0;
	tp = bpf_skc_to_tcp_sock(skc);
	if (!tp)
		return 0;
	job = bpf_map_lookup_elem(&pl_jobs, &id);
	now = bpf_map_lookup_elem(&pl_policies, &id);
	if (!job || !now)
		return 0;
	if (BPF_CORE_READ(skc, skc_state) == BPF_TCP_LISTEN) {
		if (job_of(tp) == id)
			change_listener(tp, now);
		return 0;
	}
	conn = bpf_sk_storage_get(&pl_connections, tp, 0, 0);
	if (!conn || conn->path.job != id || conn->reason != PL_REASON_NONE)
		return 0;
	if (conn->generation != now->generation) {
		is = now->policy;
		conn->error = change(tp, conn, job, &is);
		if (!conn->error)
			conn->generation = now->generation;
	}
	/* Where the buffer is full the kernel calls again for the same one. */
	r.generation = conn->generation;
	r.error = conn->error;
	bpf_seq_write(ctx->meta->seq, &r, sizeof(r));
	return 0;
}

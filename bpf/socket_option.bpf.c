/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Socket options of Paceline's own, for any program of a job: kamezawa-2004, 5.2.
 *
 * The programs are attached to each job's cgroup and see the options of its sockets. For
 * other options than Paceline's they return no data (optlen = 0), so that the kernel uses
 * the caller's buffer: without that, options of more than a page would fail before Linux
 * 6.5. include/paceline.h documents the options.
 */
#include "groups.h"

#define PL_EINVAL 22
#define PL_ENOSPC 28
#define PL_EOPNOTSUPP 95
#define PL_ENOTCONN 107
#define PL_PASS 1 /* return value of a program that refused nothing */

static __always_inline int refused(int error)
{
	bpf_set_retval(-error);
	return 0;
}

/* The options that the program has set on this socket so far. */
static __always_inline struct pl_pending_options *pending_options(struct bpf_sock *sk)
{
	return bpf_sk_storage_get(&pl_pending, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
}

/* Whether Paceline can see and bound the window of a connection. */
static __always_inline bool has_window(const struct pl_connection *conn)
{
	return conn->policy.wrap && !conn->policy.window_fixed_segs && conn->reason == PL_REASON_NONE;
}

/* State of a group's name that is read byte by byte. */
enum pl_name_state {
	PL_NAME_GOES_ON = 0,
	PL_NAME_ENDED = 1,
	PL_NAME_BAD = 2,
};

/* Adds one byte. A function that the verifier checks once, not once for each byte. */
__weak __noinline u32 pl_name_with(u32 state, u32 byte)
{
	if (!byte)
		return state == PL_NAME_BAD ? PL_NAME_BAD : PL_NAME_ENDED;
	if (state != PL_NAME_GOES_ON || byte < 0x20 || byte == 0x7f)
		return PL_NAME_BAD;
	return PL_NAME_GOES_ON;
}

/* Reads a group's name, at most 31 bytes without control characters; returns an errno. */
static __always_inline int read_name(struct bpf_sockopt *ctx, char name[PL_NAME_LEN])
{
	u32 state = PL_NAME_GOES_ON, length = ctx->optlen;

	if (length > PL_NAME_LEN)
		return PL_EINVAL;
	__builtin_memset(name, 0, PL_NAME_LEN);
	if (ctx->optval + length > ctx->optval_end || bpf_probe_read_kernel(name, length, ctx->optval))
		return PL_EINVAL;
	for (int i = 0; i < PL_NAME_LEN; i++)
		state = pl_name_with(state, (u8)name[i]);
	return state == PL_NAME_ENDED ? 0 : PL_EINVAL;
}

static __always_inline int attach_group(struct bpf_sockopt *ctx, struct bpf_sock *sk)
{
	struct pl_connection *conn = bpf_sk_storage_get(&pl_connections, sk, 0, 0);
	char name[PL_NAME_LEN] = {};
	struct pl_pending_options *pending;
	int error;

	error = read_name(ctx, name);
	if (error)
		return error;
	if (conn && !has_window(conn))
		return PL_EOPNOTSUPP;
	pending = pending_options(sk);
	if (!pending)
		return PL_ENOSPC;
	pending->named = 1;
	__builtin_memcpy(pending->group, name, sizeof(name));
	/* A connection that is not made yet joins its group with its policy. */
	if (!conn)
		return 0;
	pl_leave_group(conn);
	__builtin_memcpy(conn->group.name, name, sizeof(name));
	if (!name[0])
		return 0;
	return pl_join_group(conn, pending->total_bytes) ? 0 : PL_ENOSPC;
}

static __always_inline int set_limits(struct bpf_sockopt *ctx, struct bpf_sock *sk)
{
	struct pl_connection *conn = bpf_sk_storage_get(&pl_connections, sk, 0, 0);
	struct pl_limits *asked = ctx->optval;
	struct pl_group *group;
	struct pl_limits limits;
	struct pl_pending_options *pending;
	u64 until_us = 0;
	bool bounds;

	if (ctx->optlen != sizeof(limits) || (void *)(asked + 1) > ctx->optval_end)
		return PL_EINVAL;
	limits = *asked;
	if (!limits.set || limits.set & ~(PL_WININFO_PAGE | PL_WININFO_LIMITS) || limits.reserved)
		return PL_EINVAL;
	if (limits.page > PL_GROUP_STREAMS / PL_PAGE_STREAMS)
		return PL_EINVAL;
	if (limits.set & PL_WININFO_LIMITS) {
		bounds = limits.min_segs || limits.max_segs;
		if (limits.min_segs > PL_MOST_SEGS || (limits.max_segs && limits.min_segs > limits.max_segs))
			return PL_EINVAL;
		if (bounds && (!limits.lease_ms || limits.lease_ms > PL_LEASE_MAX_MS))
			return PL_EINVAL;
		if (conn && !has_window(conn))
			return PL_EOPNOTSUPP;
		if (!conn || !conn->slot)
			return PL_ENOTCONN;
		group = bpf_map_lookup_elem(&pl_groups, &conn->group);
		if (!group)
			return PL_ENOTCONN;
		if (bounds)
			until_us = bpf_ktime_get_ns() / 1000 + (u64)limits.lease_ms * 1000;
		bpf_spin_lock(&group->lock);
		group->uwnd.min_segs = limits.min_segs;
		group->uwnd.max_segs = limits.max_segs;
		group->uwnd.until_us = until_us;
		bpf_spin_unlock(&group->lock);
	}
	if (limits.set & PL_WININFO_PAGE) {
		pending = pending_options(sk);
		if (!pending)
			return PL_ENOSPC;
		pending->page = limits.page;
	}
	return 0;
}

static __always_inline int set_bytes(struct bpf_sockopt *ctx, struct bpf_sock *sk)
{
	struct pl_connection *conn = bpf_sk_storage_get(&pl_connections, sk, 0, 0);
	u64 *asked = ctx->optval;
	struct pl_member *member;
	struct pl_pending_options *pending;

	if (ctx->optlen != sizeof(*asked) || (void *)(asked + 1) > ctx->optval_end)
		return PL_EINVAL;
	pending = pending_options(sk);
	if (!pending)
		return PL_ENOSPC;
	pending->total_bytes = *asked;
	member = conn && conn->slot ? pl_member_of(conn) : NULL;
	if (member)
		member->total_bytes = *asked;
	return 0;
}

SEC("cgroup/setsockopt")
int pl_set_option(struct bpf_sockopt *ctx)
{
	struct bpf_sock *sk = ctx->sk;
	int error;

	/* In nested jobs the inner one's program was first, and it is the same. */
	if (ctx->optlen == -1)
		return PL_PASS;
	if (ctx->level != IPPROTO_TCP || !sk || sk->protocol != IPPROTO_TCP)
		goto foreign;
	switch (ctx->optname) {
	case PL_TCP_ATTACHGROUP:
		error = attach_group(ctx, sk);
		break;
	case PL_TCP_WININFO:
		error = set_limits(ctx, sk);
		break;
	case PL_TCP_STREAMBYTES:
		error = set_bytes(ctx, sk);
		break;
	default:
		goto foreign;
	}
	if (error)
		return refused(error);
	ctx->optlen = -1; /* the kernel's own handler is skipped */
	return PL_PASS;
foreign:
	ctx->optlen = 0;
	return PL_PASS;
}

/*
 * `count` plus one; the verifier knows only that it is below 128. Else it would check each
 * possible count of connections for each place.
 */
__weak __noinline u32 pl_one_more(u32 count)
{
	return count + 1;
}

/* A page of the group's connections. Returns an errno; *length is the number of bytes written. */
static __noinline int list_members(struct bpf_sockopt *ctx, struct pl_connection *conn, u32 page, u32 *length)
{
	struct pl_member_key key = {};
	struct pl_wininfo *info;
	struct pl_member *found;
	struct pl_group *group;
	u32 count = 0, slots;
	u64 now_us;

	info = ctx->optval;
	if ((void *)(info + 1) > ctx->optval_end)
		return PL_EINVAL;
	group = bpf_map_lookup_elem(&pl_groups, &conn->group);
	if (!group)
		return PL_ENOTCONN;
	slots = group->slots;
	now_us = bpf_ktime_get_ns() / 1000;
	info->page = page;
	info->pages = (slots + PL_PAGE_STREAMS - 1) / PL_PAGE_STREAMS;
	info->members = group->members;
	info->min_segs = 0;
	info->max_segs = 0;
	info->lease_ms = 0;
	info->reserved = 0;
	if (now_us < group->uwnd.until_us) {
		info->min_segs = group->uwnd.min_segs;
		info->max_segs = group->uwnd.max_segs;
		info->lease_ms = (group->uwnd.until_us - now_us + 999) / 1000;
	}
	key.group = conn->group;
	for (u32 i = 0; i < PL_PAGE_STREAMS; i++) {
		struct pl_member *to;

		key.slot = page * PL_PAGE_STREAMS + i;
		if (key.slot >= slots)
			break;
		found = bpf_map_lookup_elem(&pl_members, &key);
		if (!found)
			continue;
		to = ctx->optval + sizeof(*info) + count * sizeof(*to);
		if ((void *)(to + 1) > ctx->optval_end)
			break;
		*to = *found;
		count = pl_one_more(count) & 127;
	}
	info->count = count;
	*length = sizeof(*info) + count * sizeof(struct pl_member);
	return 0;
}

SEC("cgroup/getsockopt")
int pl_get_option(struct bpf_sockopt *ctx)
{
	struct bpf_sock *sk = ctx->sk;
	struct pl_connection *conn;
	struct pl_pending_options *pending;
	u32 length = 0;
	int error;

	if (ctx->level != IPPROTO_TCP || ctx->optname != PL_TCP_WININFO || !sk || sk->protocol != IPPROTO_TCP) {
		ctx->optlen = 0;
		return PL_PASS;
	}
	conn = bpf_sk_storage_get(&pl_connections, sk, 0, 0);
	if (conn && !has_window(conn))
		return refused(PL_EOPNOTSUPP);
	if (!conn || !conn->slot)
		return refused(PL_ENOTCONN);
	pending = bpf_sk_storage_get(&pl_pending, sk, 0, 0);
	error = list_members(ctx, conn, pending ? pending->page : 0, &length);
	if (error)
		return refused(error);
	ctx->optlen = length;
	ctx->retval = 0;
	return PL_PASS;
}

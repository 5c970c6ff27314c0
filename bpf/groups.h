/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Groups of connections, whose windows are listed and bounded together.
 *
 * A connection has a slot in its group, and under group and slot an entry of pl_members
 * that it keeps up to date itself: so a getsockopt program, which has one socket at hand,
 * can list all of them. pl_groups has their common state.
 */
#ifndef PACELINE_GROUPS_H
#define PACELINE_GROUPS_H

#include "accounts.h"

#define PL_SAMPLE_US 1000 /* a connection updates its entry no more often, unless nothing is in flight */
#define PL_E2BIG 7

/* Arguments of pl_try_slot. */
struct pl_search {
	struct pl_member_key key;
	struct pl_member member;
	u32 from;
	u32 found;
};

static long pl_try_slot(u32 index, void *context)
{
	struct pl_search *search = context;
	long error;

	search->key.slot = search->from + index;
	if (search->key.slot >= PL_GROUP_STREAMS)
		search->key.slot -= PL_GROUP_STREAMS;
	error = bpf_map_update_elem(&pl_members, &search->key, &search->member, BPF_NOEXIST);
	search->found = !error;
	return !error || error == -PL_E2BIG;
}

/* The group counts one more, in this slot. Returns its entry; NULL: there is none. */
static __always_inline struct pl_group *pl_count_in(const struct pl_group_key *key, u32 slot)
{
	struct pl_group *group = bpf_map_lookup_elem(&pl_groups, key);

	if (!group)
		return NULL;
	bpf_spin_lock(&group->lock);
	if (group->slots <= slot)
		group->slots = slot + 1;
	group->first_free = slot + 1;
	group->members++;
	bpf_spin_unlock(&group->lock);
	return group;
}

/* A group without a member is none. */
static __noinline void pl_forget_group(const struct pl_group_key *of, u32 account)
{
	struct pl_group_key key = *of;
	struct pl_group *group = bpf_map_lookup_elem(&pl_groups, &key);
	u64 job;

	if (!group || group->members)
		return;
	job = group->job;
	if (!bpf_map_delete_elem(&pl_groups, &key))
		pl_uncount_all(job, account, groups);
}

/* The group, made if there is none; NULL: there is none, and its job may make no other one. */
static __noinline struct pl_group *pl_group_of(struct pl_connection *conn, struct pl_job *job)
{
	struct pl_account *owner = pl_account_at(job->account), *host = pl_account_at(0);
	struct pl_group *group = bpf_map_lookup_elem(&pl_groups, &conn->group);
	struct pl_group empty = { .job = conn->path.job };

	if (group || !owner || !host)
		return group;
	struct pl_share share = pl_share_of(job, owner, host, groups, PL_MAX_GROUPS);

	if (!pl_has_room(&share))
		return NULL;
	if (!bpf_map_update_elem(&pl_groups, &conn->group, &empty, BPF_NOEXIST))
		pl_count(&share);
	return bpf_map_lookup_elem(&pl_groups, &conn->group);
}

/* A slot in the group conn->group, from the first that may be free. Returns 1 if there is one. */
static __noinline int pl_take_slot(struct pl_connection *conn, struct pl_job *job, u32 from, u64 total_bytes)
{
	struct pl_account *owner = pl_account_at(job->account), *host = pl_account_at(0);
	struct pl_search search = {};

	if (!owner || !host)
		return 0;
	struct pl_share share = pl_share_of(job, owner, host, members, PL_MAX_MEMBERS);

	if (!pl_has_room(&share))
		return 0;
	search.key.group = conn->group;
	search.member.cookie = conn->cookie;
	search.member.total_bytes = total_bytes;
	search.from = from;
	bpf_loop(PL_GROUP_STREAMS, pl_try_slot, &search, 0);
	if (!search.found)
		return 0;
	conn->slot = search.key.slot + 1;
	pl_count(&share);
	return 1;
}

/* The connection takes a place in the group conn->group. Returns 1 if it has one now. */
static __noinline int pl_join_group(struct pl_connection *conn, u64 total_bytes)
{
	u64 id = conn->path.job;
	struct pl_job *job = bpf_map_lookup_elem(&pl_jobs, &id);
	struct pl_group *group;
	u32 slot;

	if (!job)
		return 0;
	group = pl_group_of(conn, job);
	if (!group) {
		__sync_fetch_and_add(&job->full.groups, 1);
		return 0;
	}
	/* A full group is refused without a search of its slots. */
	if (group->members >= PL_GROUP_STREAMS || !pl_take_slot(conn, job, group->first_free, total_bytes)) {
		__sync_fetch_and_add(&job->full.members, 1);
		pl_forget_group(&conn->group, conn->account);
		return 0;
	}
	slot = conn->slot - 1;
	group = pl_count_in(&conn->group, slot);
	/* Its last member may have taken the group with it meanwhile. */
	if (group != bpf_map_lookup_elem(&pl_groups, &conn->group)) {
		pl_group_of(conn, job);
		pl_count_in(&conn->group, slot);
	}
	return 1;
}

/* And gives it back. */
static __noinline void pl_leave_group(struct pl_connection *conn)
{
	struct pl_member_key key = { .group = conn->group, .slot = conn->slot - 1 };
	struct pl_group *group;
	u32 left = 1;

	if (!conn->slot)
		return;
	conn->slot = 0;
	/* The base goes on from the effective cwnd; no bound applies to it any more. */
	pl_window_set(&conn->window);
	conn->window.ceiling = 0;
	conn->window.pacing = 0;
	if (conn->own_pacing && !conn->start.pacing && !conn->spaced)
		conn->stopping = 1;
	bpf_map_delete_elem(&pl_bounds, &conn->cookie);
	if (!bpf_map_delete_elem(&pl_members, &key))
		pl_uncount_all(conn->path.job, conn->account, members);
	group = bpf_map_lookup_elem(&pl_groups, &key.group);
	if (!group)
		return;
	bpf_spin_lock(&group->lock);
	if (group->members)
		group->members--;
	if (key.slot < group->first_free)
		group->first_free = key.slot;
	left = group->members;
	bpf_spin_unlock(&group->lock);
	if (!left)
		pl_forget_group(&key.group, conn->account);
}

/* The connection's entry of pl_members, or NULL. */
static __noinline struct pl_member *pl_member_of(struct pl_connection *conn)
{
	struct pl_member_key key = { .group = conn->group, .slot = conn->slot - 1 };

	return bpf_map_lookup_elem(&pl_members, &key);
}

/* The current bounds of a connection of a group. */
static __always_inline void pl_bounds_of(struct pl_connection *conn, u64 now_us, struct pl_uwnd *uwnd)
{
	struct pl_uwnd *own = bpf_map_lookup_elem(&pl_bounds, &conn->cookie);
	struct pl_group *group = bpf_map_lookup_elem(&pl_groups, &conn->group);

	/* Read without the lock: of two bounds set at once a packet may see parts of both. */
	if (own)
		pl_uwnd_add(uwnd, own, now_us);
	if (group)
		pl_uwnd_add(uwnd, &group->uwnd, now_us);
}

#endif

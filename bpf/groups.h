/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Groups of connections, whose windows are seen and bounded together.
 *
 * A connection has a slot in its group, and under group and slot an entry of pl_members
 * that it keeps up to date itself: so a getsockopt program, which has one socket at hand,
 * can list all of them. pl_groups has what is common to them.
 */
#ifndef PACELINE_GROUPS_H
#define PACELINE_GROUPS_H

#include "maps.h"

#define PL_SAMPLE_US 1000 /* a connection tells of itself no more often, unless nothing is in flight */
#define PL_E2BIG 7

/* What pl_try_slot works on. */
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

/* The connection takes a place in the group conn->group. Returns 1 if it has one now. */
static __noinline int pl_join_group(struct pl_connection *conn, u64 total_bytes)
{
	struct pl_search search = {};
	struct pl_group empty = {};
	struct pl_group *group;

	bpf_map_update_elem(&pl_groups, &conn->group, &empty, BPF_NOEXIST);
	group = bpf_map_lookup_elem(&pl_groups, &conn->group);
	if (!group)
		return 0;
	search.key.group = conn->group;
	search.member.cookie = conn->cookie;
	search.member.total_bytes = total_bytes;
	search.from = group->first_free;
	bpf_loop(PL_GROUP_STREAMS, pl_try_slot, &search, 0);
	if (!search.found)
		return 0;
	conn->slot = search.key.slot + 1;
	group = pl_count_in(&conn->group, search.key.slot);
	/* Its last member may have taken the group with it meanwhile. */
	if (group != bpf_map_lookup_elem(&pl_groups, &conn->group)) {
		bpf_map_update_elem(&pl_groups, &conn->group, &empty, BPF_NOEXIST);
		pl_count_in(&conn->group, search.key.slot);
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
	/* The base goes on from the window that is in force, which nobody bounds any more. */
	pl_window_set(&conn->window);
	conn->window.ceiling = 0;
	conn->window.pacing = 0;
	if (conn->own_pacing && !conn->start.pacing && !conn->spaced)
		conn->stopping = 1;
	bpf_map_delete_elem(&pl_bounds, &conn->cookie);
	bpf_map_delete_elem(&pl_members, &key);
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
		bpf_map_delete_elem(&pl_groups, &key.group);
}

/* The connection's entry of pl_members, or NULL. */
static __noinline struct pl_member *pl_member_of(struct pl_connection *conn)
{
	struct pl_member_key key = { .group = conn->group, .slot = conn->slot - 1 };

	return bpf_map_lookup_elem(&pl_members, &key);
}

/* What bounds a connection of a group at this moment. */
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

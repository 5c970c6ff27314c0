/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The state of a connection's path, and of the turns on its host.
 *
 * A job's paths have numbers, its places. A job at its limit (accounts.h) that needs another
 * path gives one up: it looks at a few, in the order of their numbers, and takes the one that
 * was quiet for the longest time. So the job of a program with many destinations remembers
 * those that it used last, at a cost that does not depend on their number. A connection
 * without a path starts as its base algorithm does.
 */
#ifndef PACELINE_PATHS_H
#define PACELINE_PATHS_H

#include "accounts.h"

#define PL_LOOKS 8 /* paths among which one to give up is searched */
#define PL_QUIET_US 1000000ull /* a path that was used since is not given up, */
#define PL_VANISHED_US (60 * 1000000ull) /* nor is one with bursts on it: as of pl_join_path */
#define PL_AGAIN_US 100000ull /* a connection without a path tries to get one no more often */

/* How long a path has been unused; 0: it is in use. */
static __always_inline u64 pl_idle_us(const struct pl_place_key *key, u64 now_us)
{
	struct pl_place *at = bpf_map_lookup_elem(&pl_places, key);
	struct pl_path_slot *slot;
	u64 used_us, idle_us;

	if (!at || at->taken || now_us - at->made_us < PL_QUIET_US)
		return 0;
	slot = bpf_map_lookup_elem(&pl_paths, &at->path);
	/* Its path is another's by now, or gone. */
	if (!slot || slot->place != key->place)
		return now_us;
	used_us = at->made_us;
	if (slot->path.started_us > used_us)
		used_us = slot->path.started_us;
	if (slot->path.acked_us > used_us)
		used_us = slot->path.acked_us;
	if (slot->path.confirmed_us > used_us)
		used_us = slot->path.confirmed_us;
	idle_us = now_us > used_us ? now_us - used_us : 0;
	return idle_us < (slot->path.active ? PL_VANISHED_US : PL_QUIET_US) ? 0 : idle_us;
}

/* Gives the job a place for one more path, or one that it gives up. 0: there is none. */
__weak __noinline u32 pl_take_place(u64 job_id)
{
	u64 now_us = bpf_ktime_get_ns() / 1000, longest_us = 0;
	struct pl_job *job = bpf_map_lookup_elem(&pl_jobs, &job_id);
	struct pl_place_key key = { .job = job_id };
	struct pl_account *owner, *host;
	struct pl_path_slot *slot;
	u32 count, first, best = 0;
	struct pl_place *at;

	if (!job)
		return 0;
	owner = pl_account_at(job->account);
	host = pl_account_at(0);
	if (!owner || !host)
		return 0;
	struct pl_share share = pl_share_of(job, owner, host, paths, PL_MAX_PATHS);

	if (pl_has_room(&share))
		return pl_count(&share);
	count = job->used.paths;
	if (!count)
		return 0;
	first = __sync_fetch_and_add(&job->hand, PL_LOOKS);
	for (u32 i = 0; i < PL_LOOKS; i++) {
		u64 idle_us;

		key.place = (first + i) % count + 1;
		idle_us = pl_idle_us(&key, now_us);
		if (idle_us > longest_us) {
			longest_us = idle_us;
			best = key.place;
		}
	}
	if (!best)
		return 0;
	key.place = best;
	at = bpf_map_lookup_elem(&pl_places, &key);
	if (!at || __sync_val_compare_and_swap(&at->taken, 0, 1))
		return 0;
	slot = bpf_map_lookup_elem(&pl_paths, &at->path);
	if (slot && slot->place == best)
		bpf_map_delete_elem(&pl_paths, &at->path);
	return best;
}

/*
 * Puts the connection's path into this place, unless another connection has put it elsewhere. The key is the
 * caller's: below the laws after an ACK 64 bytes of stack are left.
 */
static __noinline struct pl_path_slot *pl_path_in(struct pl_connection *conn, const struct pl_place_key *key)
{
	static const u8 empty[sizeof(struct pl_path_slot)];
	struct pl_place at = { .path = conn->path, .made_us = bpf_ktime_get_ns() / 1000 };
	struct pl_path_slot *slot;

	bpf_map_update_elem(&pl_places, key, &at, BPF_ANY);
	if (bpf_map_update_elem(&pl_paths, &conn->path, empty, BPF_NOEXIST))
		return bpf_map_lookup_elem(&pl_paths, &conn->path);
	slot = bpf_map_lookup_elem(&pl_paths, &conn->path);
	if (slot)
		slot->place = key->place;
	return slot;
}

/* Gives up a path that will not be used again. Returns its place; 0: it had none. */
static __always_inline u32 pl_give_up(struct pl_connection *conn)
{
	struct pl_path_slot *slot = bpf_map_lookup_elem(&pl_paths, &conn->path);
	u32 place = slot ? slot->place : 0;

	return place && !bpf_map_delete_elem(&pl_paths, &conn->path) ? place : 0;
}

/* A path for a connection that has none in its phase: in `place`, or if that is 0, in another. */
static __noinline struct pl_path_slot *pl_make_path(struct pl_connection *conn, u32 place)
{
	struct pl_place_key key = { .job = conn->path.job, .place = place };
	u64 now_us = bpf_ktime_get_ns() / 1000;
	struct pl_path_slot *slot = NULL;
	struct pl_job *job;

	if (!place) {
		if (now_us < conn->pathless_us)
			return NULL;
		key.place = pl_take_place(key.job);
	}
	if (key.place)
		slot = pl_path_in(conn, &key);
	if (slot) {
		conn->pathless_us = 0;
		return slot;
	}
	job = bpf_map_lookup_elem(&pl_jobs, &key.job);
	if (job && !conn->pathless_us)
		__sync_fetch_and_add(&job->full.paths, 1);
	conn->pathless_us = now_us + PL_AGAIN_US;
	return NULL;
}

/* The state of a connection's path in its phase; NULL: there is none, and no room for one. */
static __always_inline struct pl_path_slot *path_of(struct pl_connection *conn)
{
	struct pl_path_slot *slot = bpf_map_lookup_elem(&pl_paths, &conn->path);

	/* A new phase, or its path was given up. */
	return slot ? slot : pl_make_path(conn, 0);
}

/* A turn for the job in one more network namespace; NULL: there is none. */
static __noinline struct pl_turn_slot *pl_make_turn(const struct pl_turn_key *wanted)
{
	static const u8 empty[sizeof(struct pl_turn_slot)];
	struct pl_turn_key key = *wanted;
	struct pl_account *owner, *host;
	struct pl_job *job;

	job = bpf_map_lookup_elem(&pl_jobs, &key.job);
	if (!job)
		return NULL;
	owner = pl_account_at(job->account);
	host = pl_account_at(0);
	if (!owner || !host)
		return NULL;
	struct pl_share share = pl_share_of(job, owner, host, turns, PL_MAX_TURNS);

	if (!pl_has_room(&share)) {
		__sync_fetch_and_add(&job->full.turns, 1);
		return NULL;
	}
	if (!bpf_map_update_elem(&pl_turns, &key, empty, BPF_NOEXIST))
		pl_count(&share);
	return bpf_map_lookup_elem(&pl_turns, &key);
}

/* The turns of this connection's job on this host; or NULL. */
static __noinline struct pl_turn_slot *turn_of(struct pl_connection *conn)
{
	struct pl_turn_key key = { .job = conn->path.job, .netns = conn->path.netns };
	struct pl_turn_slot *slot = bpf_map_lookup_elem(&pl_turns, &key);

	return slot ? slot : pl_make_turn(&key);
}

#endif

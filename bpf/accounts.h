/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How jobs share the maps: a map that is full for one job is not full for the others.
 *
 * A job may make one more entry while the entries that it has, those that all jobs of its
 * owner have and those that all jobs of the host have are together fewer than the map
 * holds. So a single job gets a third of the map. Each of n greedy owners has one part in
 * n + 2, and as much is left to the next one: no map is ever full for an owner without
 * entries. (Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet
 * switches", IEEE/ACM Transactions on Networking 6(2), 1998: a limit by the free space.)
 *
 * An entry is counted for the job first, then for its owner, then for the host. The agent
 * reads them in reverse order: entries of an account beyond those of the owner's jobs belong
 * to jobs that are gone.
 */
#ifndef PACELINE_ACCOUNTS_H
#define PACELINE_ACCOUNTS_H

#include "maps.h"

/* The three counters of one kind of entry, and how many there may be. */
struct pl_share {
	u32 *job, *owner, *host;
	u32 most;
};

static __always_inline struct pl_account *pl_account_at(u32 number)
{
	return bpf_map_lookup_elem(&pl_accounts, &number);
}

static __always_inline bool pl_has_room(const struct pl_share *share)
{
	return (u64)*share->job + *share->owner + *share->host < share->most;
}

/* One more; returns the job's number of them, this one included. */
static __always_inline u32 pl_count(const struct pl_share *share)
{
	u32 number = __sync_fetch_and_add(share->job, 1) + 1;

	__sync_fetch_and_add(share->owner, 1);
	__sync_fetch_and_add(share->host, 1);
	return number;
}

/* One less, never below 0: an entry may be of an earlier job of the same cgroup. */
static __always_inline void pl_uncount(u32 *counter)
{
	if (*(volatile u32 *)counter)
		__sync_fetch_and_sub(counter, 1);
}

/* One less of a kind, of a job that may be gone: `count` is the counter in struct pl_usage. */
#define pl_uncount_all(job_id, account, count)                                          \
	do {                                                                            \
		struct pl_account *host_ = pl_account_at(0), *owner_ = pl_account_at(account); \
		u64 id_ = job_id;                                                       \
		struct pl_job *job_ = bpf_map_lookup_elem(&pl_jobs, &id_);              \
                                                                                        \
		if (host_)                                                              \
			pl_uncount(&host_->used.count);                                 \
		if (owner_)                                                             \
			pl_uncount(&owner_->used.count);                                \
		if (job_)                                                               \
			pl_uncount(&job_->used.count);                                  \
	} while (0)

#define pl_share_of(job_, owner_, host_, count, most_)                                  \
	{                                                                               \
		.job = &(job_)->used.count, .owner = &(owner_)->used.count,             \
		.host = &(host_)->used.count, .most = most_                             \
	}

#endif

/* SPDX-License-Identifier: GPL-2.0 */
/* The maps that the programs share, and how a connection finds its own. */
#ifndef PACELINE_MAPS_H
#define PACELINE_MAPS_H

#include "kernel.h"
#include "control/even.h"
#include "control/phases.h"
#include "control/spacing.h"
#include "control/window_cap.h"

/* A connection's part of its job's counters so far, and its burst (counters.h). */
struct pl_counted {
	u64 bytes; /* bytes_acked */
	u32 segs, retransmitted_segs;
	u32 starts, bad_starts, breaker_opened;
	u32 burst_sent, burst_retransmitted, burst_delivered; /* the socket's, when the burst began */
	u64 burst_us; /* when it began; 0: there is none */
	u64 burst_bytes; /* bytes_acked then */
	u64 ended_us; /* when the last one ended; 0: there was none */
	u32 ended_cwnd; /* the window then */
	u8 held; /* 1: it is left to the base */
	u8 watched; /* 1: pl_connection sees timeouts and states */
};

/* Paceline's storage of a socket. */
struct pl_connection {
	struct pl_path_key path; /* path.job is the job */
	struct pl_process_key process; /* that made the socket, or its listener */
	struct pl_policy policy;
	struct pl_start start;
	struct pl_phases phases;
	u64 look_us; /* its process has no page: the next lookup is not before */
	u64 pathless_us; /* there was no path for it: the next try is not before; 0: it has one */
	u32 rto_min_us; /* with this connection's jitter; 0: the kernel's */
	__s32 error; /* -errno of a setting that the kernel refused */
	u32 loss_segs; /* delivered, when the last retransmission timeout came */
	u8 reason; /* enum pl_reason */
	u8 own_pacing; /* 1: sk_pacing_status is ours */
	u8 fq_paced; /* 1: and it was SK_PACING_FQ */
	u8 stopping; /* 1: and is to be restored */
	u8 spaced; /* 1: its packets are spaced (control/spacing.h) */
	u8 quick; /* enum pl_quick */
	u8 own_nodelay; /* 1: Paceline set TCP_NODELAY */
	u32 acks_before; /* segments without data that it sent before its quick ACKs */
	u32 slot; /* one more than its place in the group; 0: it is in none */
	u32 account; /* of its job's owner, in pl_accounts */
	u32 generation; /* of its policy (struct pl_job_policy) */
	u64 cookie; /* the kernel's */
	u64 sampled_us; /* when its entry of pl_members was last updated */
	u64 spacing_bps; /* pacing rate of spaced packets */
	struct pl_group_key group;
	struct pl_window window;
	struct pl_even even;
	struct pl_counted counted;
	char former[PL_CC_NAME_LEN]; /* congestion control before ours */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} pl_meta SEC(".maps"); /* [0]: PL_ABI_VERSION of the loaded kernel side */

/* One pl_phase_page, which one process has mapped; it holds only that process's phases. */
struct pl_page_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	/* By size: clang describes the types of a map within a map only in part. */
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(struct pl_phase_page));
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
	__uint(max_entries, PL_MAX_PROCESSES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct pl_process_key);
	__array(values, struct pl_page_map);
} pl_pages SEC(".maps");

/*
 * The `paceline run`s of a job of PL_SEAT_SHARED, and their start (CLOCK_MONOTONIC,
 * microseconds). Process 0 stands for those whose number is not known: the job then ends
 * with its cgroup. No program reads it.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PL_MAX_RUNS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct pl_process_key);
	__type(value, u64);
} pl_runs SEC(".maps");

/* The process that made a socket. Accepted sockets inherit it from their listener. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	__type(key, int);
	__type(value, u32);
} pl_makers SEC(".maps");

/*
 * Socket options that a program set, pending until the connection has its policy. Accepted
 * sockets inherit them from their listener.
 */
struct pl_pending_options {
	u64 total_bytes; /* 0: not set */
	u32 page; /* the page of TCP_WININFO that it set last */
	u32 named; /* 1: `group` is set; an empty name means no group */
	char group[PL_NAME_LEN];
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	__type(key, int);
	__type(value, struct pl_pending_options);
} pl_pending SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PL_MAX_GROUPS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct pl_group_key);
	__type(value, struct pl_group);
} pl_groups SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PL_MAX_MEMBERS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct pl_member_key);
	__type(value, struct pl_member);
} pl_members SEC(".maps");

/* Bounds of single connections, by their cookie; the agent writes them, for their owner alone. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PL_MAX_MEMBERS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u64);
	__type(value, struct pl_uwnd);
} pl_bounds SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PL_MAX_JOBS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u64);
	__type(value, struct pl_job);
} pl_jobs SEC(".maps");

/* The policies that jobs have now, which may be others than those they started with. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PL_MAX_JOBS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u64);
	__type(value, struct pl_job_policy);
} pl_policies SEC(".maps");

/* Counters of each job's connections, by phase class: no job can have more than its part. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, PL_MAX_JOBS * PL_CLASSES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct pl_counters_key);
	__type(value, struct pl_counters);
} pl_counters SEC(".maps");

/* Bursts under the policy and held out, of jobs that hold some out. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, PL_MAX_JOBS * 2 * PL_SIZES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct pl_trial_key);
	__type(value, struct pl_trial);
} pl_trials SEC(".maps");

/* The use of the maps that jobs share; the agent has it mapped (accounts.h). */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PL_ACCOUNTS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, u32);
	__type(value, struct pl_account);
} pl_accounts SEC(".maps");

/* Not an LRU map: those may not hold a lock. Which one goes is decided in paths.h. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PL_MAX_PATHS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct pl_path_key);
	__type(value, struct pl_path_slot);
} pl_paths SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PL_MAX_PATHS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct pl_place_key);
	__type(value, struct pl_place);
} pl_places SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PL_MAX_TURNS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct pl_turn_key);
	__type(value, struct pl_turn_slot);
} pl_turns SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct pl_connection);
} pl_connections SEC(".maps");

#endif

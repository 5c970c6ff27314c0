/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT */
/*
 * The one contract between the kernel side and user space.
 *
 * Every struct and constant that two sides share is declared here and nowhere
 * else. The BPF programs include this file, crates/abi generates the Rust
 * bindings from it, and both sides assert the sizes below. A change of layout
 * or of meaning raises PL_ABI_VERSION: a loaded kernel side of another version
 * is never talked to (see ARCHITECTURE.md, "Upgrades").
 *
 * Units are in the names: _us microseconds, _ms milliseconds, _bps bytes of
 * TCP payload per second (not bits), _segs segments of one MSS, _permille
 * thousandths. Times are CLOCK_MONOTONIC.
 */
#ifndef PACELINE_ABI_H
#define PACELINE_ABI_H

#include <linux/types.h>
#ifdef __bpf__
#include <linux/bpf.h>
#endif

#define PL_ABI_VERSION 14
#define PL_NAME_LEN 32 /* policy and job names, NUL included */
#define PL_CC_NAME_LEN 16 /* the kernel's TCP_CA_NAME_MAX */
#define PL_MAX_JOBS 1024 /* jobs on one host at once */
#define PL_MAX_PATHS 65536 /* destinations and phases of all jobs; allocated as they come */
#define PL_MAX_TURNS 4096 /* jobs and the network namespaces that each is in */
#define PL_MAX_MEMBERS 65536 /* connections in groups; allocated as they come */
#define PL_MAX_PROCESSES 16384 /* with phases, on one host; allocated as they come */
#define PL_MAX_GROUPS 4096 /* groups of connections on one host; allocated as they come */
#define PL_MAX_RUNS 16384 /* `paceline run`s in cgroups that they share; allocated as they come */
#define PL_ACCOUNTS 1024 /* the host's, which is the first, and the owners' */
#define PL_GROUP_STREAMS 4096 /* connections of one group on one host */
#define PL_PAGE_STREAMS 20 /* of these in one page of TCP_WININFO: Python gets no more than 1024 bytes */
#define PL_LEASE_MAX_MS 3600000 /* an hour: longer than a coordinator should be away unnoticed */
#define PL_MOST_SEGS (1u << 20) /* in a window: more than the largest socket buffer holds, 2 GiB */
#define PL_POLICY_TEXT 4000 /* bytes of struct pl_job_policy that are user space's */
#define PL_CLASSES 64 /* phase classes of a process; include/paceline.h says the same */
#define PL_SIZES 8 /* classes of bursts by size: below 4 KiB, then four times as much each, the last from 16 MiB on */
#define PL_HELD_OUT_MOST 50 /* percent of bursts: more is no policy any more */

/* Which algorithm of the kernel carries the connection between bursts. */
enum pl_base {
	PL_BASE_KEEP = 0, /* the socket's own: do not wrap */
	PL_BASE_CUBIC = 1,
	PL_BASE_RENO = 2,
	PL_BASE_BBR = 3,
};

/* Where a start after idle gets its rate (bpf/control/startup.h). */
enum pl_target {
	PL_TARGET_OFF = 0, /* the base algorithm's own start */
	PL_TARGET_SSTHRESH = 1, /* ssthresh * MSS / RTT: matsuda-2005, 3.2 */
	PL_TARGET_DELIVERY_RATE = 2, /* the path's delivery rate */
};

#define PL_NO_TIMESTAMPS 1 /* RFC 7323, 3 */
#define PL_NO_SCALING 2 /* RFC 7323, 2 */
#define PL_NO_SACK 4 /* RFC 2018 */

/* A policy as the kernel side sees it. Zero always means "as the kernel does". */
struct pl_policy {
	__u8 base; /* enum pl_base */
	__u8 target; /* enum pl_target */
	__u16 initial_window_segs; /* TCP_BPF_IW; 0: the kernel's 10 */
	__u32 breaker_permille; /* a start that loses more is a bad one */
	__u32 breaker_starts; /* bad starts in a row that open the breaker */
	__u32 breaker_hold_ms; /* how long it stays open */
	__u64 initial_rate_bps; /* for a path not yet known; 0: slow start */
	__u32 half_life_ms; /* half-life of the confidence in a path's rate */
	__u32 rto_min_us; /* TCP_BPF_RTO_MIN; 0: the kernel's 200 ms */
	__u32 rto_jitter_us; /* spread added to it, per connection */
	__u32 delayed_ack_us; /* TCP_BPF_DELACK_MAX; 0: the kernel's 40-200 ms */
	__u32 tick_us; /* the kernel's 1/HZ: the jitter is drawn in whole ticks */
	__u8 phases; /* 1: connections follow their process's phases */
	__u8 even; /* 1: those to one destination share one window (control/even.h) */
	__u16 rto_linear; /* 1: TCP_THIN_LINEAR_TIMEOUTS */
	__u64 line_rate_bps; /* of the interface, framing included; 0: no gap */
	__u16 gap_bytes; /* between packets, in addition to the interface's own (control/spacing.h) */
	__u8 clustered; /* 1: slow start spreads a window over a round trip */
	__u8 wrap; /* 1: connections get Paceline's wrapper of `base` */
	__u32 rto_max_ms; /* TCP_RTO_MAX_MS; 0: the kernel's 120 s */
	__u16 window_fixed_segs; /* a constant window; 0: the base's */
	__u8 window_again; /* 1: initial_window_segs wherever slow start begins again */
	__u8 ack_every; /* an ACK for so many segments: 1 quick, from 3 on held back; 0: the kernel's */
	__u8 nodelay; /* 1: TCP_NODELAY */
	__u8 tuned; /* 1: the congestion control sets quick ACKs or a window (tuned.h) */
	__u8 without; /* PL_NO_*: options that no SYN of the job offers (options.bpf.c) */
	__u8 held_out_percent; /* of bursts that the laws leave to the base, at random (counters.h); 0: none */
};

/* Entries that are in use of the maps which jobs share (bpf/accounts.h). */
struct pl_usage {
	__u32 paths, turns, groups, members;
};

/*
 * Use of the maps by all jobs of an owner; by all of the host in the first one. The agent
 * maps them, and subtracts the use of a job that is gone.
 */
struct pl_account {
	struct pl_usage used;
	__u32 owner_uid;
	__u32 given; /* 1: to that owner */
	__u64 reserved;
};

/* Features that a job lacked, because its share of a map was full. */
struct pl_shortage {
	__u64 paths; /* connections, or phases of these: no start-up law */
	__u64 turns; /* messages that did not wait for others of their host */
	__u64 groups; /* connections: in no group, for there could be no other one */
	__u64 members; /* connections: in no group, for it could have no more */
	__u64 storage; /* connections: left alone, for the kernel had no memory for them */
};

/* Key of pl_counters. */
struct pl_counters_key {
	__u64 job; /* cgroup id */
	__u32 class; /* phase class; 0: point-to-point */
	__u32 reserved;
};

/*
 * Counters of a job's connections in a phase, added up when a burst or a connection ends,
 * per CPU: they outlive the sockets, until the job ends.
 */
struct pl_counters {
	__u64 bytes; /* payload that the peers have acknowledged */
	__u64 segs; /* segments with payload that were sent, retransmissions included */
	__u64 retransmitted_segs; /* of these, tail-loss probes included */
	__u64 timeouts; /* retransmission timeouts */
	__u64 starts; /* bursts that began paced, beyond the initial window */
	__u64 bad_starts; /* of these, with more loss than the policy allows */
	__u64 breaker_opened; /* times the breaker opened */
	__u64 bursts[PL_SIZES]; /* that have ended, by size; needs a wrapped algorithm */
};

/* Key of pl_trials: bursts of one size class, held out or not. */
struct pl_trial_key {
	__u64 job; /* cgroup id */
	__u32 size; /* 0 to PL_SIZES - 1 */
	__u32 held; /* 1: left to the base */
};

/* Completion of such bursts: from the first transmission until all is acknowledged; per CPU. */
struct pl_trial {
	__u64 bursts;
	__u64 bytes;
	__u64 retransmitted_segs;
	__u64 sum_us; /* of their durations */
	__u64 squares_low, squares_high; /* sum of the durations' squares, us^2, in 128 bits */
};

/* Origin of a job's cgroup, and the job's end. */
enum pl_seat {
	PL_SEAT_OWN = 0, /* paceline run made it: ends when no process is left in it */
	PL_SEAT_ATTACHED = 1, /* by paceline attach: ends by detach, or when it is removed */
	PL_SEAT_SHARED = 2, /* a scheduler's step or a container: ends with the last of pl_runs */
};

/* One job: a cgroup whose sockets get one policy. Key: the cgroup's id. */
struct pl_job {
	struct pl_policy policy;
	__u64 started_us; /* CLOCK_MONOTONIC when the job was made */
	__u32 owner_uid; /* the user that started it */
	__u32 seat; /* enum pl_seat */
	char policy_name[PL_NAME_LEN];
	char group[PL_NAME_LEN]; /* paceline run --group; empty if none */
	/* Counters, added up by the programs. */
	__u64 connections; /* that got the policy */
	__u64 refused; /* left alone because a setting was refused */
	__u64 loopback, mptcp; /* left alone because they are such */
	struct pl_shortage full;
	struct pl_usage used;
	__u32 account; /* of its owner, in pl_accounts */
	__u32 hand; /* where the search for a path to give up begins */
};

/*
 * The policy that a job has now: `paceline set` replaces the entry, in one update, so that
 * a reader finds the old one or the new one. Key: the cgroup's id. The policy at the job's
 * start stays in its struct pl_job.
 */
struct pl_job_policy {
	struct pl_policy policy;
	__u64 since_us; /* CLOCK_MONOTONIC when it became this one */
	__u32 generation; /* 0: the policy at the job's start; one more with each change */
	__u32 applied; /* the generation that was given to all connections in reach */
	__u32 text_bytes; /* of the text that are in use */
	__u32 had_rto_min; /* 1: an earlier one had a minimum RTO, which sockets may have inherited */
	char text[PL_POLICY_TEXT]; /* the same as JSON for users, with the source of each key; no program reads it */
};

/* One connection of a job whose policy has changed (bpf_iter over TCP sockets). */
struct pl_changed_record {
	__u32 generation; /* of the policy that it has now */
	__s32 error; /* -errno of a setting that the kernel refused: it has its former policy */
};

/*
 * A group of connections of one user on this host, whose windows are listed and bounded
 * together. Other users' groups of the same name are other groups, in a shared cgroup too.
 */
struct pl_group_key {
	__u32 owner_uid; /* of the job */
	__u32 user_uid; /* of the socket */
	char name[PL_NAME_LEN];
};

/*
 * Bounds of a connection's window, `uwnd` of kamezawa-2004, 5.1. They hold until their
 * lease ends, by themselves: their setter may be gone.
 */
struct pl_uwnd {
	__u32 min_segs; /* the window is lifted to so much; 0: it is not */
	__u32 max_segs; /* and never exceeds this; 0: no limit */
	__u64 until_us; /* CLOCK_MONOTONIC */
};

/* The limits that TCP_WININFO sets for a group; value of pl_groups. */
struct pl_group {
#ifdef __bpf__
	struct bpf_spin_lock lock; /* over slots, first_free and members */
#else
	__u32 lock;
#endif
	__u32 slots; /* one more than the highest slot that was given out */
	__u32 first_free; /* no slot below is free, as far as is known */
	__u32 members;
	__u64 job; /* that has it in its usage: the first member's */
	struct pl_uwnd uwnd;
};

/* The place of one connection in its group. */
struct pl_member_key {
	struct pl_group_key group;
	__u32 slot;
	__u32 reserved;
};

/* A connection as the members of its group see it; updated as it sends and gets ACKs. */
struct pl_member {
	__u64 cookie; /* the kernel's socket cookie */
	__u64 acked_bytes; /* that the peer has acknowledged */
	__u64 total_bytes; /* that it will carry, by TCP_STREAMBYTES; 0: not said */
	__u32 inflight_segs, cwnd_segs, uwnd_segs; /* uwnd: effective cwnd under a bound; else 0 */
	__u32 mss; /* bytes */
	__u32 srtt_us;
	__u32 retransmitted_segs;
};

/* Key of the start-up law's state of a path: job, host, destination and phase. */
struct pl_path_key {
	__u64 job; /* cgroup id */
	__u64 netns; /* cookie of the network namespace */
	__u32 address[4]; /* peer, network order; IPv4 as ::ffff:a.b.c.d */
	__u32 phase; /* class and generation; 0: point-to-point */
	__u32 scope; /* of a link-local address, the interface that it is behind; or 0 */
};

/* One process of a job: that has phases, or is a `paceline run`. */
struct pl_process_key {
	__u64 job; /* cgroup id */
	__u32 process; /* thread group id in the first PID namespace */
	__u32 reserved;
};

/*
 * The memory that such a process shares with the kernel side: a map of one entry,
 * mapped into it. A phase is its class in the low byte and above it the class's
 * generation, which changes when the class gets another meaning. One store of
 * `phase` is a switch. The kernel side reads nothing else.
 */
struct pl_phase_page {
	__u32 phase;
	__u32 programs; /* that have mapped it: a process may execute another one */
	__u64 entered[PL_CLASSES]; /* times each class was entered, for `status` */
};

/* A job's state of a path; kept by bpf/control/startup.h. */
struct pl_path {
	__u64 rate_bps; /* the path's delivery rate; 0: not yet known */
	__u64 confirmed_us; /* when a train last confirmed or changed it */
	__u64 started_us; /* the last start on this path */
	__u64 lead_us; /* when a start last sent its lead and probe */
	__u64 min_rtt_at_us; /* when min_rtt_us was last seen */
	__u64 window_bps; /* rate to which the windows of this burst are led; 0: rate_bps */
	/* Learning, while the rate is not known: ACKs of all connections together. */
	__u64 block_us; /* when the block of ACKs began; 0: no ACK yet */
	__u64 acked_us; /* the last ACK */
	__u64 learned_bps; /* best block of the largest size seen */
	__u64 carried_bps; /* and the most of one connection in a round trip */
	__u32 block_from; /* acked_segs when the block began */
	__u32 block_segs; /* size of this block */
	__u32 learned_segs; /* size of the blocks that learned_bps is from */
	__u32 acked_segs; /* delivered to all connections that update it (pl_update_path) */
	__u32 min_rtt_us; /* minimum RTT seen by any of the connections */
	__u32 active; /* connections in a burst now: they divide the rate */
	__u32 peak; /* most active at once since the path was last quiet */
	__u32 expected; /* the peak before that: so many may start again at once */
	__u32 epoch; /* raised when a stale count is thrown away */
	__u32 flight_segs; /* largest flight of one connection delivered without loss */
	__u16 wary; /* good starts until the path is trusted again; 0: it is */
	__u16 wary_for; /* of how many, when it last became wary; 0: it never was */
	__u32 block_rtt_us; /* RTT of the ACK with which the block began */
	__u32 burst_segs; /* of the last bursts that were longer than a lead */
	__u16 trusted; /* good starts since it was last trusted again (loss.h) */
	__u16 spread_us; /* over which messages that fit the initial window leave; 0: at once (incast.h) */
	__u32 gap_us; /* between the segments of longer ones; 0: as fast as the window allows (gaps.h) */
	__u32 lead_rtt_us; /* of the first segment of the last burst; 0: not known */
	__u32 losing; /* timeouts of these, without the messages that had none (gaps.h) */
	__u8 filled; /* 1: it was full while it was learned */
	__u8 room_segs; /* a third of the queue that a burst overflowed; 0: not known, or too long to matter (loss.h) */
	__u16 block_first; /* segments of the ACK with which a train, and its block, began; 0: within a train */
	/* Even streams (even.h). */
	__u64 even_since_us; /* when the first of them began; names them */
	__u64 even_progress; /* segments that they delivered, each since it is one */
	__u32 even_streams; /* that share the window */
	__u32 even_segs; /* of the window */
	__u16 even_full; /* 1: one of them has lost, or has left slow start */
	__u16 contended; /* 1: long flows of others fill the path (judge.h) */
	__u32 inflight_hi; /* segments: the largest window that a short queue is trusted with; 0: not known (loss.h) */
};

/* The turns of a job's connections in one network namespace (control/turns.h). */
struct pl_turn {
	__u64 until_us; /* all turns are over then */
	__u64 crowded_us; /* when a long message last lost; 0: never */
	__u64 cut_us; /* when the window was last made smaller */
	__u64 others_us; /* when one last had to wait; 0: never */
	__u64 first_us; /* when a connection's first message last began with a small window */
	__u32 number; /* generation of these turns; other numbers are of earlier ones */
	__u32 taken; /* turns at a time, now */
	__u32 window; /* of all turns together, in parts of a segment; 0: not known yet */
	__u32 waiting; /* connections */
	__u32 sent, lost; /* segments of long messages, of late */
};

struct pl_turn_key {
	__u64 job; /* cgroup id */
	__u64 netns; /* cookie of the network namespace */
};

/* Value of pl_turns: the lock comes first. */
struct pl_turn_slot {
#ifdef __bpf__
	struct bpf_spin_lock lock;
#else
	__u32 lock;
#endif
	__u32 reserved;
	struct pl_turn turn;
};

/* Value of pl_paths: the lock (a struct bpf_spin_lock) comes first. */
struct pl_path_slot {
#ifdef __bpf__
	struct bpf_spin_lock lock;
#else
	__u32 lock;
#endif
	__u32 place; /* the job's, in pl_places */
	struct pl_path path;
};

/* The paths of a job by number, 1 to the number in use: for its search for one to give up. */
struct pl_place_key {
	__u64 job; /* cgroup id */
	__u32 place;
	__u32 reserved;
};

struct pl_place {
	struct pl_path_key path;
	__u64 made_us; /* CLOCK_MONOTONIC */
	__u32 taken; /* 1: it is being given up */
	__u32 reserved;
};

/* Why a connection is not under its policy, shown by `status`. */
enum pl_reason {
	PL_REASON_NONE = 0,
	PL_REASON_LOOPBACK = 1,
	PL_REASON_MPTCP = 2,
	PL_REASON_REFUSED = 3, /* the kernel refused a setting: see error */
};

/* Whether a connection has its quick ACKs (ack.every = 1), shown by `status`. */
enum pl_quick {
	PL_QUICK_NONE = 0, /* not in the policy */
	PL_QUICK_ON = 1,
	PL_QUICK_ECN = 2, /* not possible: ECN was negotiated, and quick ACKs need its flags */
};

/* State of the start-up law, per connection. */
enum pl_start_state {
	PL_START_IDLE = 0, /* nothing in flight since the last burst */
	PL_START_PACED = 1, /* sending at the target, no ACK yet */
	PL_START_MEASURED = 2, /* ACKs of the paced part are coming in */
	PL_START_BASE = 3, /* the base algorithm alone, until the next idle */
};

/* One connection as `status` reads it (bpf_iter over the socket storage). */
struct pl_connection_record {
	__u64 job;
	__u64 netns; /* cookie of its network namespace, as in pl_path_key */
	__u64 cookie; /* the kernel's socket cookie */
	__u32 local[4], remote[4]; /* network order, IPv4 mapped */
	__u16 local_port, remote_port; /* host order */
	__u8 tcp_state; /* TCP_ESTABLISHED is 1 */
	__u8 start_state; /* enum pl_start_state */
	__u8 breaker_open; /* 1: plain base algorithm for now */
	__u8 reason; /* enum pl_reason */
	__s32 error; /* -errno of a refused setting, or 0 */
	__u32 cwnd_segs, ssthresh_segs, inflight_segs, mss;
	__u32 srtt_us, rttvar_us, min_rtt_us;
	__u32 rto_ticks, rto_min_ticks; /* kernel ticks (1/HZ): the agent knows HZ */
	__u32 retransmitted_segs;
	__u32 starts; /* paced starts so far */
	__u32 bad_starts; /* of these, with too much loss */
	__u32 breaker_opened; /* times the breaker opened */
	__u32 process; /* that made the socket or its listener; 0: not known */
	__u64 start_rate_bps; /* rate of the last paced start, this connection's share */
	char congestion[PL_CC_NAME_LEN]; /* the algorithm in use */
	__u32 phase; /* the phase that its parameters are of */
	__u32 phase_switches; /* so far */
	char group[PL_NAME_LEN]; /* whose windows it is seen and bounded with; empty if none */
	__u32 uwnd_segs; /* effective cwnd under a bound; 0: no bound */
	__u32 generation; /* of the policy that it has (struct pl_job_policy) */
	__u64 spacing_bps; /* rate at which its packets are spaced now; 0: they are not */
	__u64 acked_bytes; /* payload that the peer has acknowledged */
	__u64 held_acks; /* that this side held back (ack.every from 3 on) */
	__u32 quick_acks; /* without data, that it sent since ack.every = 1 is in force */
	__u32 quick; /* enum pl_quick */
	__u64 new_bytes; /* of struct pl_counters: counts not added up yet */
	__u32 new_segs, new_retransmitted_segs;
	__u32 even_streams; /* with which it shares one window, itself included; 0: it does not */
	__u32 reserved;
};

/* A socket of a job's process that is not the job's (bpf_iter over the tasks' files). */
struct pl_outside_record {
	__u64 cgroup; /* id of the socket's */
	__u32 process;
	__u32 tcp_state; /* TCP_ESTABLISHED is 1, TCP_LISTEN 10 */
	__u32 local[4], remote[4]; /* network order, IPv4 mapped */
	__u16 local_port, remote_port; /* host order */
	__u32 reserved;
};

/* One connection of a group, as the agent reads it (bpf_iter over the socket storage). */
struct pl_stream_record {
	struct pl_group_key group;
	__u64 job;
	__u64 netns; /* cookie of its network namespace */
	__u64 cookie; /* the kernel's socket cookie */
	__u64 acked_bytes, total_bytes; /* as in pl_member */
	__u32 local[4], remote[4]; /* network order, IPv4 mapped */
	__u16 local_port, remote_port; /* host order */
	__u32 mss; /* bytes */
	__u32 inflight_segs, cwnd_segs, ssthresh_segs; /* cwnd: the base's own */
	__u32 uwnd_min_segs, uwnd_max_segs; /* bounds whose lease has not ended; 0: none */
	__u32 uwnd_segs; /* as in pl_member */
	__u32 srtt_us, min_rtt_us;
	__u32 unsent_bytes; /* written by the program and not yet sent */
	__u32 retransmitted_segs;
	__u32 delivered_segs; /* known to have arrived, by SACK too; may wrap */
	__u32 recovering; /* 1: in Recovery or Loss */
	__u32 tcp_state; /* TCP_ESTABLISHED is 1 */
};

/* Socket options of level IPPROTO_TCP, far from the kernel's; include/paceline.h says the same. */
#define PL_TCP_ATTACHGROUP 0x504c01
#define PL_TCP_WININFO 0x504c02
#define PL_TCP_STREAMBYTES 0x504c03

/* How TCP_WININFO is set; include/paceline.h says the same. */
enum pl_wininfo_set {
	PL_WININFO_PAGE = 1, /* the next get returns `page` */
	PL_WININFO_LIMITS = 2, /* the rest are the group's bounds */
};

/* include/paceline.h: struct paceline_limits. */
struct pl_limits {
	__u32 set; /* enum pl_wininfo_set */
	__u32 page;
	__u32 min_segs, max_segs;
	__u32 lease_ms; /* 1 to PL_LEASE_MAX_MS where a bound is set */
	__u32 reserved;
};

/* include/paceline.h: struct paceline_wininfo, without its streams: struct pl_member each. */
struct pl_wininfo {
	__u32 page, pages; /* this one, and how many there are */
	__u32 members; /* connections of the group on this host */
	__u32 count; /* that follow here */
	__u32 min_segs, max_segs; /* bounds of the group; 0: none */
	__u32 lease_ms; /* remaining lease */
	__u32 reserved;
};

_Static_assert(sizeof(struct pl_policy) == 72, "pl_policy");
_Static_assert(sizeof(struct pl_usage) == 16, "pl_usage");
_Static_assert(sizeof(struct pl_account) == 32, "pl_account");
_Static_assert(sizeof(struct pl_shortage) == 40, "pl_shortage");
_Static_assert(sizeof(struct pl_job) == 248, "pl_job");
_Static_assert(sizeof(struct pl_job_policy) == 4096, "pl_job_policy");
_Static_assert(sizeof(struct pl_changed_record) == 8, "pl_changed_record");
_Static_assert(sizeof(struct pl_path_key) == 40, "pl_path_key");
_Static_assert(sizeof(struct pl_process_key) == 16, "pl_process_key");
_Static_assert(sizeof(struct pl_phase_page) == 520, "pl_phase_page");
_Static_assert(sizeof(struct pl_path) == 184, "pl_path");
_Static_assert(sizeof(struct pl_path_slot) == 192, "pl_path_slot");
_Static_assert(sizeof(struct pl_place_key) == 16, "pl_place_key");
_Static_assert(sizeof(struct pl_place) == 56, "pl_place");
_Static_assert(sizeof(struct pl_turn_key) == 16, "pl_turn_key");
_Static_assert(sizeof(struct pl_turn_slot) == 72, "pl_turn_slot");
_Static_assert(sizeof(struct pl_connection_record) == 256, "pl_connection_record");
_Static_assert(sizeof(struct pl_counters_key) == 16, "pl_counters_key");
_Static_assert(sizeof(struct pl_counters) == 120, "pl_counters");
_Static_assert(sizeof(struct pl_trial_key) == 16, "pl_trial_key");
_Static_assert(sizeof(struct pl_trial) == 48, "pl_trial");
_Static_assert(sizeof(struct pl_outside_record) == 56, "pl_outside_record");
_Static_assert(sizeof(struct pl_group_key) == 40, "pl_group_key");
_Static_assert(sizeof(struct pl_uwnd) == 16, "pl_uwnd");
_Static_assert(sizeof(struct pl_group) == 40, "pl_group");
_Static_assert(sizeof(struct pl_member_key) == 48, "pl_member_key");
_Static_assert(sizeof(struct pl_member) == 48, "pl_member");
_Static_assert(sizeof(struct pl_stream_record) == 176, "pl_stream_record");
_Static_assert(sizeof(struct pl_limits) == 24, "pl_limits");
_Static_assert(sizeof(struct pl_wininfo) == 32, "pl_wininfo");

#endif

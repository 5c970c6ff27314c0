/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The interface between a program and Paceline: phases, below, and groups of parallel
 * streams, at the end.
 *
 * Phases: a program tells Paceline when its communication pattern changes.
 *
 * TCP estimates the share of a path that a connection gets. When a program changes
 * from one pattern to another (say, from point-to-point messages to an all-to-all),
 * that share changes at once and the estimate is wrong. Under Paceline each
 * connection keeps one estimate per class of pattern, and switches with the program.
 *
 *     paceline_enter(1);
 *     exchange_with_all();
 *     paceline_leave();
 *
 * A program that has entered no class is in class 0: point-to-point. The program
 * defines the meaning of classes 1 to PACELINE_CLASSES - 1; the MPI shim takes its
 * classes from paceline_class_new().
 *
 * Every function may be called from any thread at any time, and costs almost
 * nothing where the program does not run under Paceline: a program linked with
 * -lpaceline works everywhere. A switch is a store to memory that the kernel side
 * reads when a connection next sends or gets an ACK: no system call.
 *
 * A process is in one class at a time: the class that any thread entered last and
 * has not left. Bytes of the former pattern in a socket's buffer are sent under the
 * new one.
 */
#ifndef PACELINE_H
#define PACELINE_H

#ifdef __cplusplus
extern "C" {
#endif

/* Classes are 0 to PACELINE_CLASSES - 1. A connection keeps the state of the 8 last used. */
#define PACELINE_CLASSES 64

/* Errors that the functions return; success is 0 or more. */
#define PACELINE_ERANGE -1 /* no such class: nothing is switched */
#define PACELINE_EUNBALANCED -2 /* a leave without an enter: nothing is switched */
#define PACELINE_EFULL -3 /* too many are active at once, or no class is free */

/*
 * The calling thread enters a class; calls nest. Returns 0, or PACELINE_ERANGE or
 * PACELINE_EFULL: then the class does not change, but the enter still counts and
 * needs its leave.
 */
int paceline_enter(unsigned int class_id);

/*
 * Leaves the class that the calling thread entered last. Returns 0, or
 * PACELINE_EUNBALANCED.
 */
int paceline_leave(void);

/*
 * As paceline_enter, for an operation that may end in another thread, or beside
 * others of the same thread: a nonblocking collective. Returns a token of 0 or
 * more for paceline_end, or PACELINE_ERANGE or PACELINE_EFULL: then there is
 * nothing to end.
 */
int paceline_begin(unsigned int class_id);

/* Ends the operation of a token of paceline_begin. Returns 0, or PACELINE_EUNBALANCED. */
int paceline_end(int token);

/*
 * Returns a new class, never 0, without state from an earlier use, or PACELINE_EFULL.
 * For libraries, whose classes must not collide with the program's own numbers: new
 * classes are assigned from PACELINE_CLASSES - 1 downwards.
 */
int paceline_class_new(void);

/*
 * Frees such a class and deletes its state. A thread that is in it stays in it, and
 * its connections start new estimates. Returns 0, or PACELINE_ERANGE for a class that
 * is not from paceline_class_new.
 */
int paceline_class_free(unsigned int class_id);

/*
 * 1 if this process's phases reach a Paceline job, else 0. The first call of any
 * function decides, for the life of the process; a forked child decides anew.
 */
int paceline_active(void);

/*
 * Parallel streams: socket options of level IPPROTO_TCP, after kamezawa-2004, 5.2. They
 * need no library. Outside of a Paceline job they fail with ENOPROTOOPT.
 *
 * Paceline lists and bounds the connections of one user on one host that name the same
 * group together. Without a name a connection belongs to the group of `paceline run
 * --group`, if that is given. Groups of different users are different, even with one name.
 *
 *     setsockopt(s, IPPROTO_TCP, TCP_ATTACHGROUP, "bulk", 4);
 *     struct paceline_limits cap = { .set = PACELINE_SET_LIMITS, .max_segs = 100, .lease_ms = 2000 };
 *     setsockopt(s, IPPROTO_TCP, TCP_WININFO, &cap, sizeof(cap));
 *     getsockopt(s, IPPROTO_TCP, TCP_WININFO, &info, &length);
 *
 * Errors beside those of any option: EOPNOTSUPP if Paceline does not control this
 * connection's window (its policy keeps the kernel's own algorithm, or both ends are on
 * this host); ENOTCONN if it is not connected, or in no group; EINVAL for values out of
 * range; ENOSPC if the group or the host has reached its limit.
 */

/*
 * Set only: the group's name, 1 to 31 bytes without control characters, with or without a
 * NUL; an empty one leaves the group. Before or after connect. Connections inherit it from
 * their listener.
 */
#define TCP_ATTACHGROUP 0x504c01

/*
 * Set: struct paceline_limits. Get: a page of the group's connections on this host, struct
 * paceline_wininfo, or as much of it as there is room for.
 */
#define TCP_WININFO 0x504c02

/*
 * Set only: uint64_t, total bytes that this side will send over the connection. A
 * coordinator needs it to make connections finish together. 0: unknown.
 */
#define TCP_STREAMBYTES 0x504c03

#define PACELINE_PAGE_STREAMS 20

/* Flags of struct paceline_limits; both may be set. */
#define PACELINE_SET_PAGE 1 /* the next get on this socket returns `page` */
#define PACELINE_SET_LIMITS 2 /* the limits bound the windows of all connections of the group */

struct paceline_limits {
	unsigned int set;
	unsigned int page; /* from 0 */
	/*
	 * Segments; 0: no limit. The effective cwnd is lifted to min_segs, except during loss
	 * recovery, and never exceeds max_segs.
	 */
	unsigned int min_segs, max_segs;
	unsigned int lease_ms; /* 1 to 3600000: the limits expire after this time. 0 if no limit is set */
	unsigned int reserved; /* 0 */
};

struct paceline_stream {
	unsigned long long cookie; /* the kernel's socket cookie: SO_COOKIE */
	unsigned long long acked_bytes; /* that the peer has acknowledged */
	unsigned long long total_bytes; /* by TCP_STREAMBYTES */
	unsigned int inflight_segs; /* sent, and neither acknowledged nor marked lost */
	unsigned int cwnd_segs; /* the base algorithm's cwnd */
	unsigned int uwnd_segs; /* the effective cwnd if a limit makes it differ; else 0 */
	unsigned int mss; /* bytes */
	unsigned int srtt_us; /* smoothed round trip */
	unsigned int retransmitted_segs;
};

/*
 * The values of a connection are at most a millisecond old, or as old as the last packet
 * that it sent or got an ACK for.
 */
struct paceline_wininfo {
	unsigned int page, pages; /* this one, and how many there are: some may be empty */
	unsigned int members; /* connections of the group */
	unsigned int count; /* streams that follow */
	unsigned int min_segs, max_segs; /* limits of the group */
	unsigned int lease_ms; /* remaining lease of the limits */
	unsigned int reserved;
	struct paceline_stream streams[PACELINE_PAGE_STREAMS];
};

#ifdef __cplusplus
}
#endif

#endif

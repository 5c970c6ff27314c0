/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What a program can tell Paceline, and ask it: phases, below, and groups of parallel
 * streams, at the end.
 *
 * Phases: a program tells Paceline when its communication pattern changes.
 *
 * TCP learns what share of a path a connection gets. When a program goes from
 * one pattern to another (say, from point-to-point messages to an all-to-all),
 * that share changes at once and what was learned is wrong. Under Paceline each
 * connection keeps what it learned per class of pattern, and switches with the
 * program.
 *
 *     paceline_enter(1);
 *     exchange_with_all();
 *     paceline_leave();
 *
 * Class 0 is what a program is in when it entered nothing: point-to-point. The
 * meaning of classes 1 to PACELINE_CLASSES - 1 is the program's own; the MPI
 * shim takes its classes from paceline_class_new().
 *
 * Every function may be called from any thread at any time, and costs next to
 * nothing where the program does not run under Paceline: link with -lpaceline,
 * and it works everywhere. A switch is a store to memory that the kernel side
 * reads when a connection next sends or gets an ACK: no system call.
 *
 * A process is in one class at a time: the one that was entered last and has not
 * been left, whichever thread entered it. Bytes that the former pattern left in
 * a socket's buffer are sent under the new one.
 */
#ifndef PACELINE_H
#define PACELINE_H

#ifdef __cplusplus
extern "C" {
#endif

/* Classes are 0 to PACELINE_CLASSES - 1. A connection remembers the 8 last used. */
#define PACELINE_CLASSES 64

/* What the functions return when they do not return 0 or more. */
#define PACELINE_ERANGE -1 /* no such class: nothing is switched */
#define PACELINE_EUNBALANCED -2 /* a leave without an enter: nothing is switched */
#define PACELINE_EFULL -3 /* too many are active at once, or no class is free */

/*
 * The calling thread enters a class; nests. Returns 0, or PACELINE_ERANGE or
 * PACELINE_EFULL: then the class stays what it was, and the enter still counts,
 * so that it is to be left all the same.
 */
int paceline_enter(unsigned int class_id);

/*
 * Leaves what the calling thread entered last. Returns 0, or
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

/* Ends what paceline_begin began. Returns 0, or PACELINE_EUNBALANCED. */
int paceline_end(int token);

/*
 * A class of one's own, never 0, with nothing remembered from whoever had it before,
 * or PACELINE_EFULL. For libraries that must not collide with the program's own
 * numbers: they are given out from PACELINE_CLASSES - 1 downwards.
 */
int paceline_class_new(void);

/*
 * Gives it back: what was learned in it is forgotten. Who is in it stays in it, and
 * learns anew. Returns 0, or PACELINE_ERANGE for a class that paceline_class_new did
 * not give out.
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
 * Connections of one user on one host that name the same group are seen and bounded
 * together; without a name a connection belongs to the group of `paceline run --group`,
 * if that is given. Nobody else's connections are in a group, whatever it is called.
 *
 *     setsockopt(s, IPPROTO_TCP, TCP_ATTACHGROUP, "bulk", 4);
 *     struct paceline_limits cap = { .set = PACELINE_SET_LIMITS, .max_segs = 100, .lease_ms = 2000 };
 *     setsockopt(s, IPPROTO_TCP, TCP_WININFO, &cap, sizeof(cap));
 *     getsockopt(s, IPPROTO_TCP, TCP_WININFO, &info, &length);
 *
 * Errors beside those of any option: EOPNOTSUPP where Paceline does not have this
 * connection's window (its policy keeps the kernel's own algorithm, or both ends are on
 * this host); ENOTCONN where it is not connected, or in no group; EINVAL for values out of
 * range; ENOSPC where a group, or the host, has no place left.
 */

/*
 * Set only: the group's name, 1 to 31 bytes without control characters, with or without a
 * NUL; an empty one leaves the group. Before or after connect; a listener's is that of
 * all connections that it accepts.
 */
#define TCP_ATTACHGROUP 0x504c01

/*
 * Set: struct paceline_limits. Get: a page of the group's connections on this host, struct
 * paceline_wininfo, or as much of it as there is room for.
 */
#define TCP_WININFO 0x504c02

/*
 * Set only: uint64_t, how many bytes this side will send over the connection in all. A
 * coordinator can then have connections end together. 0: not known.
 */
#define TCP_STREAMBYTES 0x504c03

#define PACELINE_PAGE_STREAMS 20

/* What struct paceline_limits sets: both together, too. */
#define PACELINE_SET_PAGE 1 /* `page` is what the next get on this socket returns */
#define PACELINE_SET_LIMITS 2 /* the windows of all connections of the group are bounded */

struct paceline_limits {
	unsigned int set;
	unsigned int page; /* from 0 */
	/*
	 * Segments; 0: no limit. The window in force is lifted to the least, except while a
	 * loss is repaired, and never exceeds the most.
	 */
	unsigned int min_segs, max_segs;
	unsigned int lease_ms; /* 1 to 3600000: after so long there is no limit. 0 where none is set */
	unsigned int reserved; /* 0 */
};

struct paceline_stream {
	unsigned long long cookie; /* the kernel's socket cookie: SO_COOKIE */
	unsigned long long acked_bytes; /* that the peer has acknowledged */
	unsigned long long total_bytes; /* by TCP_STREAMBYTES */
	unsigned int inflight_segs; /* sent, and neither acknowledged nor taken for lost */
	unsigned int cwnd_segs; /* the algorithm's own window */
	unsigned int uwnd_segs; /* the effective cwnd where a limit makes it differ; else 0 */
	unsigned int mss; /* bytes */
	unsigned int srtt_us; /* smoothed round trip */
	unsigned int retransmitted_segs;
};

/*
 * What a connection says of itself is as old as a millisecond, or as the last packet that
 * it sent or got an ACK for.
 */
struct paceline_wininfo {
	unsigned int page, pages; /* this one, and how many there are: some may be empty */
	unsigned int members; /* connections of the group */
	unsigned int count; /* streams that follow */
	unsigned int min_segs, max_segs; /* limits of the group */
	unsigned int lease_ms; /* that is left of them */
	unsigned int reserved;
	struct paceline_stream streams[PACELINE_PAGE_STREAMS];
};

#ifdef __cplusplus
}
#endif

#endif

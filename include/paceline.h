/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
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

#ifdef __cplusplus
}
#endif

#endif

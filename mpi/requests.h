/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Requests of collectives, from where they are made to where they complete.
 *
 * Requests of point-to-point messages are never in here. While no collective runs,
 * a program that waits for those pays one relaxed load: a thread that can complete
 * a request got its handle from the one that made it, and with it the count.
 */
#ifndef REQUESTS_H
#define REQUESTS_H

#include "phase.h"

extern atomic_uint requests_tracked; /* nonblocking ones, and persistent ones idle or not */
extern atomic_uint requests_running; /* requests that are in a class now */

static inline bool requests_any(void)
{
	return atomic_load_explicit(&requests_tracked, memory_order_relaxed) != 0;
}

static inline bool requests_any_running(void)
{
	return atomic_load_explicit(&requests_running, memory_order_relaxed) != 0;
}

/* Around the call that makes a nonblocking collective: from here on it is in its class. */
struct running requests_begin(word comm, enum kind kind);
void requests_begun(const struct running *running, int result, struct handles made);

/* Around the call that makes a persistent one, which only a start puts in its class. */
void requests_make(void);
void requests_made(word comm, enum kind kind, int result, struct handles made);

/* Around the call that starts `count` requests. */
void requests_start(struct handles handles, int count);
void requests_started(struct handles handles, int count, int result);

/*
 * Around the call that completes requests: the requests that it may complete, and those that it did complete.
 * Both by address: the copy that passing them by value makes reads in wider pieces
 * than were just written, and waits for the writes.
 */
struct claims {
	struct request *first;
	struct handles handles;
	int count;
};

/* False: no request of a collective among them, and nothing to settle. */
bool requests_claim(struct claims *claims, struct handles handles, int count);

struct outcome {
	bool all;
	int listed; /* length of the list; if not 0 to `count`, then there is none */
	const int *list; /* positions, from `base` up */
	int base;
};

static inline struct outcome outcome_all(bool complete)
{
	return (struct outcome){ .all = complete };
}

static inline struct outcome outcome_listed(int base, int listed, word list)
{
	return (struct outcome){ .listed = listed, .list = (const int *)list, .base = base };
}

void requests_settle(const struct claims *claims, const struct outcome *outcome);

/* Before MPI_Request_free. */
void requests_forget(struct handles request);

/* Before a communicator is freed: its persistent requests lose their class. */
void requests_forget_comm(word comm);

void requests_end_all(void);

#endif

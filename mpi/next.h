/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What a wrapper passes its call on to: the function of the same name that the
 * program would have reached without the shim.
 *
 * That is MPI_X and not PMPI_X, so that a profiler between the program and its MPI
 * library (mpiP, Darshan, Score-P) still sees every call.
 */
#ifndef NEXT_H
#define NEXT_H

#include <stdatomic.h>

#include "words.h"

struct next {
	const char *name;
	_Atomic(void *) function; /* NULL until first used */
};

/* The next definition of `name` after the shim's own, or NULL. */
void *next_symbol(const char *name);

/* Finds the function and keeps it in `next`. NULL if there is none. */
void *next_find(struct next *next);

/* Relaxed: threads that race find the same address, and code needs no publishing. */
static inline void *next_function(struct next *next)
{
	void *function = atomic_load_explicit(&next->function, memory_order_relaxed);

	return function ? function : next_find(next);
}

/*
 * No library of this process has the function, and still the program has called it:
 * it asked whether there is one, and found the shim's. MPI's rule for unsupported
 * functions: the communicator's error handler decides, and without one the error's code
 * is returned.
 */
#define NO_COMM 0
int next_missing(word comm);

/* The same for Fortran, whose entry points return it in ierror. */
void next_missing_fortran(word ierror);

/* At file scope, before the wrapper of `symbol`. */
#define NEXT_OF(symbol) static struct next symbol##_next = { .name = #symbol };

/* Declares `next`, of the wrapper's own type, in the wrapper; returns `missing` without it. */
#define NEXT(symbol, missing) \
	__typeof__(&symbol) next = (__typeof__(&symbol))next_function(&symbol##_next); \
\
	if (!next) \
		return missing

#endif

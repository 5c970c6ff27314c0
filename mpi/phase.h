/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The brackets that wrappers put around operations: enter and leave for blocking
 * operations, begin and end for operations that continue after the call.
 */
#ifndef PHASE_H
#define PHASE_H

#include "classes.h"
#include "library.h"

/*
 * The thread is inside a wrapper that has taken charge of the operation. MPI
 * libraries reach one entry point through another (MPICH's mpi_bcast_ calls
 * MPI_Bcast, Open MPI's calls PMPI_Bcast): the outermost counts.
 */
extern _Thread_local bool phase_nested;

/* Whether the wrapper that asks is to bracket. */
static inline bool phase_wanted(void)
{
	enum library_state state = library_now();

	if (state == LIBRARY_ON)
		return !phase_nested;
	return state == LIBRARY_UNKNOWN && !phase_nested && library_in_session();
}

/* Returns the argument of phase_leave(). If no class is free, the operation has no phase. */
int phase_enter(word comm, enum kind kind);
void phase_leave(int place);

/* An operation that is in its class beyond one call. */
struct running {
	int place;
	int token; /* below 0: it is in no class */
};

struct running phase_begin(class_key key);
void phase_end(const struct running *running);

#endif

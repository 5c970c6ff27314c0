/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The Fortran entry points, as gfortran, flang and ifx call them: lower case and
 * one underscore.
 *
 *     mpif.h, use mpi     mpi_x_          both libraries
 *     use mpi_f08         mpi_x_f08_      Open MPI: all; MPICH: without choice buffers
 *                         mpi_x_f08ts_    MPICH: with them
 *
 * All arguments are addresses: handles are INTEGERs, or derived types of one INTEGER
 * in mpi_f08; buffers are data or, in MPICH's mpi_f08, descriptors, which are only
 * passed on. So the three differ by name alone. Some of the libraries' entry points
 * reach C's MPI_X, others PMPI_X, which the C wrappers would miss: all are wrapped,
 * and phase_nested keeps those of the first sort from counting twice.
 *
 * No program tests at run time which of these exist, so all are exported but persistent
 * collectives, which are bound as in C (bind.h).
 *
 * INTEGERs are of 4 bytes: programs and libraries built with -fdefault-integer-8 are
 * not served. Of MPICH's mpi_f08, large counts (mpi_x_f08ts_large_) have no wrappers
 * here: they reach C's MPI_X_c, which is bound.
 */
#include "bind.h"
#include "collectives.h"
#include "next.h"
#include "requests.h"

#define COUNT(argument) INT_AT(argument)
#define INDEX_BASE 1

/* In mpi_f08 ierror may be absent, which is a null address; the error is needed here. */
#define OWN_IERROR_IF_ABSENT \
	int own_ierror = 0; \
\
	if (!ierror) \
		ierror = (word)&own_ierror

static word comm_of(word address)
{
	return handle_at(library_fortran_comms(address), 0);
}

#define BLOCKING(symbol, kind, arguments) \
	NEXT_OF(symbol) \
	EXPORT void symbol(PARAMETERS_##arguments, word ierror) \
	{ \
		NEXT(symbol, next_missing_fortran(ierror)); \
		int place; \
\
		if (!phase_wanted()) { \
			next(ARGUMENTS_##arguments, ierror); \
			return; \
		} \
		place = phase_enter(comm_of(a##arguments), kind); \
		next(ARGUMENTS_##arguments, ierror); \
		phase_leave(place); \
	}

#define NONBLOCKING(symbol, kind, arguments) \
	NEXT_OF(symbol) \
	EXPORT void symbol(PARAMETERS_##arguments, word request, word ierror) \
	{ \
		NEXT(symbol, next_missing_fortran(ierror)); \
		struct running running; \
		OWN_IERROR_IF_ABSENT; \
\
		if (!phase_wanted()) { \
			next(ARGUMENTS_##arguments, request, ierror); \
			return; \
		} \
		running = requests_begin(comm_of(a##arguments), kind); \
		next(ARGUMENTS_##arguments, request, ierror); \
		requests_begun(&running, INT_AT(ierror), library_fortran_requests(request)); \
	}

#define PERSISTENT(symbol, kind, arguments) \
	NEXT_OF(symbol) \
	static void symbol(PARAMETERS_##arguments, word info, word request, word ierror) \
	{ \
		NEXT(symbol, next_missing_fortran(ierror)); \
		OWN_IERROR_IF_ABSENT; \
\
		if (!phase_wanted()) { \
			next(ARGUMENTS_##arguments, info, request, ierror); \
			return; \
		} \
		requests_make(); \
		next(ARGUMENTS_##arguments, info, request, ierror); \
		requests_made(comm_of(a##arguments), kind, INT_AT(ierror), \
			      library_fortran_requests(request)); \
	}

#define COLLECTIVE(Name, name, kind, arguments) \
	BLOCKING(mpi_##name##_, kind, arguments) \
	BLOCKING(mpi_##name##_f08_, kind, arguments) \
	BLOCKING(mpi_##name##_f08ts_, kind, arguments) \
	NONBLOCKING(mpi_i##name##_, kind, arguments) \
	NONBLOCKING(mpi_i##name##_f08_, kind, arguments) \
	NONBLOCKING(mpi_i##name##_f08ts_, kind, arguments) \
	PERSISTENT(mpi_##name##_init_, kind, arguments) \
	PERSISTENT(mpi_##name##_init_f08_, kind, arguments) \
	PERSISTENT(mpi_##name##_init_f08ts_, kind, arguments) \
	PERSISTENT(mpix_##name##_init_, kind, arguments) \
	PERSISTENT(mpix_##name##_init_f08_, kind, arguments)

COLLECTIVES(COLLECTIVE)

#define BOUND_FORMS(Name, name, kind, arguments) \
	BOUND(mpi_##name##_init_) \
	BOUND(mpi_##name##_init_f08_) \
	BOUND(mpi_##name##_init_f08ts_) \
	BOUND(mpix_##name##_init_) \
	BOUND(mpix_##name##_init_f08_)

struct bound fortran_bound[] = { COLLECTIVES(BOUND_FORMS) };
const unsigned int fortran_bound_length = sizeof(fortran_bound) / sizeof(*fortran_bound);

#define COMPLETION_AS(symbol, arguments, count, requests, completed) \
	NEXT_OF(symbol) \
	EXPORT void symbol(PARAMETERS_##arguments, word ierror) \
	{ \
		NEXT(symbol, next_missing_fortran(ierror)); \
		struct outcome outcome; \
		struct claims claims; \
		bool claimed; \
		int result; \
		OWN_IERROR_IF_ABSENT; \
\
		if (!requests_any_running()) { \
			next(ARGUMENTS_##arguments, ierror); \
			return; \
		} \
		claimed = requests_claim(&claims, library_fortran_requests(requests), count); \
		next(ARGUMENTS_##arguments, ierror); \
		result = INT_AT(ierror); \
		(void)result; /* not every outcome depends on it */ \
		if (claimed) { \
			outcome = completed; \
			requests_settle(&claims, &outcome); \
		} \
	}

#define COMPLETION(Name, name, arguments, count, requests, completed) \
	COMPLETION_AS(mpi_##name##_, arguments, count, requests, completed) \
	COMPLETION_AS(mpi_##name##_f08_, arguments, count, requests, completed)

COMPLETIONS(COMPLETION)

#define START_AS(symbol, arguments, count, requests) \
	NEXT_OF(symbol) \
	EXPORT void symbol(PARAMETERS_##arguments, word ierror) \
	{ \
		NEXT(symbol, next_missing_fortran(ierror)); \
		OWN_IERROR_IF_ABSENT; \
\
		if (!requests_any() || phase_nested) { \
			next(ARGUMENTS_##arguments, ierror); \
			return; \
		} \
		requests_start(library_fortran_requests(requests), count); \
		next(ARGUMENTS_##arguments, ierror); \
		requests_started(library_fortran_requests(requests), count, INT_AT(ierror)); \
	}

#define START(Name, name, arguments, count, requests) \
	START_AS(mpi_##name##_, arguments, count, requests) \
	START_AS(mpi_##name##_f08_, arguments, count, requests)

STARTS(START)

#define REQUEST_FREE(symbol) \
	NEXT_OF(symbol) \
	EXPORT void symbol(word request, word ierror) \
	{ \
		NEXT(symbol, next_missing_fortran(ierror)); \
\
		if (requests_any()) \
			requests_forget(library_fortran_requests(request)); \
		next(request, ierror); \
	}

REQUEST_FREE(mpi_request_free_)
REQUEST_FREE(mpi_request_free_f08_)

#define COMM_END_AS(symbol) \
	NEXT_OF(symbol) \
	EXPORT void symbol(word comm, word ierror) \
	{ \
		NEXT(symbol, next_missing_fortran(ierror)); \
\
		if (library_now() == LIBRARY_ON) \
			library_comm_ends(library_fortran_comms(comm)); \
		next(comm, ierror); \
	}

#define COMM_END(Name, name) \
	COMM_END_AS(mpi_##name##_) \
	COMM_END_AS(mpi_##name##_f08_)

COMM_ENDS(COMM_END)

/* `arguments` counts ierror here, for MPI_Init has no other. */
#define USE_AS(symbol, arguments, afterwards) \
	NEXT_OF(symbol) \
	EXPORT void symbol(PARAMETERS_##arguments) \
	{ \
		NEXT(symbol, next_missing_fortran(a##arguments)); \
		int own_ierror = 0; \
\
		if (phase_nested) { \
			next(ARGUMENTS_##arguments); \
			return; \
		} \
		if (!a##arguments) \
			a##arguments = (word)&own_ierror; \
		phase_nested = true; \
		next(ARGUMENTS_##arguments); \
		phase_nested = false; \
		afterwards; \
	}

#define USE(name, arguments, afterwards) \
	USE_AS(mpi_##name##_, arguments, afterwards) \
	USE_AS(mpi_##name##_f08_, arguments, afterwards)

USE(init, 1, if (INT_AT(a1) == 0) library_opened())
USE(init_thread, 3, if (INT_AT(a3) == 0) library_opened())
USE(finalize, 1, library_closed())

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The C entry points. Functions of MPI-3 are exported; later ones are
 * bound (bind.h).
 */
#include "bind.h"
#include "collectives.h"
#include "next.h"
#include "requests.h"

#define COUNT(argument) ((int)(argument))
#define INDEX_BASE 0

/* MPI_X, and MPI-4's MPI_X_c with counts of type MPI_Count, differ by name alone. */
#define BLOCKING(scope, symbol, kind, arguments) \
	NEXT_OF(symbol) \
	scope int symbol(PARAMETERS_##arguments) \
	{ \
		NEXT(symbol, next_missing(a##arguments)); \
		int place, result; \
\
		if (!phase_wanted()) \
			return next(ARGUMENTS_##arguments); \
		place = phase_enter(library_handle(a##arguments), kind); \
		result = next(ARGUMENTS_##arguments); \
		phase_leave(place); \
		return result; \
	}

/* In its class before the call, as that sends already. */
#define NONBLOCKING(scope, symbol, kind, arguments) \
	NEXT_OF(symbol) \
	scope int symbol(PARAMETERS_##arguments, word request) \
	{ \
		NEXT(symbol, next_missing(a##arguments)); \
		struct running running; \
		int result; \
\
		if (!phase_wanted()) \
			return next(ARGUMENTS_##arguments, request); \
		running = requests_begin(library_handle(a##arguments), kind); \
		result = next(ARGUMENTS_##arguments, request); \
		requests_begun(&running, result, library_handles(request)); \
		return result; \
	}

#define PERSISTENT(scope, symbol, kind, arguments) \
	NEXT_OF(symbol) \
	scope int symbol(PARAMETERS_##arguments, word info, word request) \
	{ \
		NEXT(symbol, next_missing(a##arguments)); \
		int result; \
\
		if (!phase_wanted()) \
			return next(ARGUMENTS_##arguments, info, request); \
		requests_make(); \
		result = next(ARGUMENTS_##arguments, info, request); \
		requests_made(library_handle(a##arguments), kind, result, library_handles(request)); \
		return result; \
	}

#define COLLECTIVE(Name, name, kind, arguments) \
	BLOCKING(EXPORT, MPI_##Name, kind, arguments) \
	BLOCKING(static, MPI_##Name##_c, kind, arguments) \
	NONBLOCKING(EXPORT, MPI_I##name, kind, arguments) \
	NONBLOCKING(static, MPI_I##name##_c, kind, arguments) \
	PERSISTENT(static, MPI_##Name##_init, kind, arguments) \
	PERSISTENT(static, MPI_##Name##_init_c, kind, arguments) \
	PERSISTENT(static, MPIX_##Name##_init, kind, arguments) /* Open MPI 4's extension */

COLLECTIVES(COLLECTIVE)

#define BOUND_FORMS(Name, name, kind, arguments) \
	BOUND(MPI_##Name##_c) \
	BOUND(MPI_I##name##_c) \
	BOUND(MPI_##Name##_init) \
	BOUND(MPI_##Name##_init_c) \
	BOUND(MPIX_##Name##_init)

struct bound c_bound[] = { COLLECTIVES(BOUND_FORMS) };
const unsigned int c_bound_length = sizeof(c_bound) / sizeof(*c_bound);

#define COMPLETION(Name, name, arguments, count, requests, completed) \
	NEXT_OF(MPI_##Name) \
	EXPORT int MPI_##Name(PARAMETERS_##arguments) \
	{ \
		NEXT(MPI_##Name, next_missing(NO_COMM)); \
		struct outcome outcome; \
		struct claims claims; \
		bool claimed; \
		int result; \
\
		if (!requests_any_running()) \
			return next(ARGUMENTS_##arguments); \
		claimed = requests_claim(&claims, library_handles(requests), count); \
		result = next(ARGUMENTS_##arguments); \
		if (claimed) { \
			outcome = completed; \
			requests_settle(&claims, &outcome); \
		} \
		return result; \
	}

COMPLETIONS(COMPLETION)

#define START(Name, name, arguments, count, requests) \
	NEXT_OF(MPI_##Name) \
	EXPORT int MPI_##Name(PARAMETERS_##arguments) \
	{ \
		NEXT(MPI_##Name, next_missing(NO_COMM)); \
		int result; \
\
		if (!requests_any() || phase_nested) \
			return next(ARGUMENTS_##arguments); \
		requests_start(library_handles(requests), count); \
		result = next(ARGUMENTS_##arguments); \
		requests_started(library_handles(requests), count, result); \
		return result; \
	}

STARTS(START)

NEXT_OF(MPI_Request_free)
EXPORT int MPI_Request_free(word request)
{
	NEXT(MPI_Request_free, next_missing(NO_COMM));

	if (requests_any())
		requests_forget(library_handles(request));
	return next(request);
}

#define COMM_END(Name, name) \
	NEXT_OF(MPI_##Name) \
	EXPORT int MPI_##Name(word comm) \
	{ \
		NEXT(MPI_##Name, next_missing(NO_COMM)); \
\
		if (library_now() == LIBRARY_ON) \
			library_comm_ends(library_handles(comm)); \
		return next(comm); \
	}

COMM_ENDS(COMM_END)

/* Nested, so that MPI is opened or closed once if Fortran's entry point calls C's. */
#define INIT(symbol, arguments) \
	NEXT_OF(symbol) \
	EXPORT int symbol(PARAMETERS_##arguments) \
	{ \
		NEXT(symbol, next_missing(NO_COMM)); \
		int result; \
\
		if (phase_nested) \
			return next(ARGUMENTS_##arguments); \
		phase_nested = true; \
		result = next(ARGUMENTS_##arguments); \
		phase_nested = false; \
		if (result == 0) \
			library_opened(); \
		return result; \
	}

INIT(MPI_Init, 2)
INIT(MPI_Init_thread, 4)

NEXT_OF(MPI_Finalize)
EXPORT int MPI_Finalize(void)
{
	NEXT(MPI_Finalize, next_missing(NO_COMM));
	int result;

	if (phase_nested)
		return next();
	phase_nested = true;
	result = next();
	phase_nested = false;
	library_closed();
	return result;
}

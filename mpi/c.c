/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The C entry points. */
#include "collectives.h"
#include "next.h"
#include "requests.h"

#define COUNT(argument) ((int)(argument))
#define INDEX_BASE 0

/* Blocking: MPI_X, and MPI-4's MPI_X_c with counts of type MPI_Count. */
#define BLOCKING(symbol, kind, arguments) \
	EXPORT int symbol(PARAMETERS_##arguments) \
	{ \
		NEXT(symbol); \
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
#define NONBLOCKING(symbol, kind, arguments) \
	EXPORT int symbol(PARAMETERS_##arguments, word request) \
	{ \
		NEXT(symbol); \
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

#define PERSISTENT(symbol, kind, arguments) \
	EXPORT int symbol(PARAMETERS_##arguments, word info, word request) \
	{ \
		NEXT(symbol); \
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
	BLOCKING(MPI_##Name, kind, arguments) \
	BLOCKING(MPI_##Name##_c, kind, arguments) \
	NONBLOCKING(MPI_I##name, kind, arguments) \
	NONBLOCKING(MPI_I##name##_c, kind, arguments) \
	PERSISTENT(MPI_##Name##_init, kind, arguments) \
	PERSISTENT(MPI_##Name##_init_c, kind, arguments) \
	PERSISTENT(MPIX_##Name##_init, kind, arguments) /* Open MPI 4's extension */

COLLECTIVES(COLLECTIVE)

#define COMPLETION(Name, name, arguments, count, requests, completed) \
	EXPORT int MPI_##Name(PARAMETERS_##arguments) \
	{ \
		NEXT(MPI_##Name); \
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
	EXPORT int MPI_##Name(PARAMETERS_##arguments) \
	{ \
		NEXT(MPI_##Name); \
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

EXPORT int MPI_Request_free(word request)
{
	NEXT(MPI_Request_free);

	if (requests_any())
		requests_forget(library_handles(request));
	return next(request);
}

#define COMM_END(Name, name) \
	EXPORT int MPI_##Name(word comm) \
	{ \
		NEXT(MPI_##Name); \
\
		if (library_on()) \
			library_comm_ends(library_handles(comm)); \
		return next(comm); \
	}

COMM_ENDS(COMM_END)

/* Nested, so that MPI is opened or closed once if Fortran's entry point calls C's. */
#define USE(symbol, arguments, afterwards) \
	EXPORT int symbol(PARAMETERS_##arguments) \
	{ \
		NEXT(symbol); \
		int result; \
\
		if (phase_nested) \
			return next(ARGUMENTS_##arguments); \
		phase_nested = true; \
		result = next(ARGUMENTS_##arguments); \
		phase_nested = false; \
		afterwards; \
		return result; \
	}

USE(MPI_Init, 2, if (result == 0) library_opened())
USE(MPI_Init_thread, 4, if (result == 0) library_opened())
USE(MPI_Session_init, 3, if (result == 0) library_opened())
USE(MPI_Session_finalize, 1, library_closed())

EXPORT int MPI_Finalize(void)
{
	NEXT(MPI_Finalize);
	int result;

	if (phase_nested)
		return next();
	phase_nested = true;
	result = next();
	phase_nested = false;
	library_closed();
	return result;
}

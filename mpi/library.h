/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The MPI library of this process: its state, and the form of its handles.
 *
 * Environment: PACELINE_MPI=off disables the shim in all cases. It is read when MPI has
 * been initialised.
 */
#ifndef LIBRARY_H
#define LIBRARY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "words.h"

enum library_state { LIBRARY_UNKNOWN, LIBRARY_OFF, LIBRARY_ON };

extern atomic_int library_state;

/* ON from a successful MPI_Init to MPI_Finalize, in a process that has phases. */
static inline enum library_state library_now(void)
{
	return (enum library_state)atomic_load_explicit(&library_state, memory_order_relaxed);
}

/* MPI_Init has succeeded. */
void library_opened(void);

/*
 * A collective is called without MPI_Init: true if that is right, as in a program that
 * has opened a session, and the library is on now.
 */
bool library_in_session(void);

/* MPI_Finalize is over. */
void library_closed(void);

struct handle_type {
	unsigned int bytes; /* of one */
	word (*from_fortran)(int handle); /* NULL if Fortran's value is C's */
};

/*
 * Handles as an array of the program's. All of them are turned into C's, as a word.
 * Two words, as calling conventions pass that much in registers.
 */
struct handles {
	const char *first;
	const struct handle_type *type;
};

/* An MPI_Comm or an MPI_Request that was passed by value. */
word library_handle(word argument);

/* Arrays of them, also of one element; the second and third of Fortran's INTEGERs. */
struct handles library_handles(word address);
struct handles library_fortran_comms(word address);
struct handles library_fortran_requests(word address);

static inline word handle_at(struct handles handles, int i)
{
	uint32_t narrow;
	word handle;

	if (handles.type->bytes == sizeof(handle)) {
		memcpy(&handle, handles.first + (size_t)i * sizeof(handle), sizeof(handle));
		return handle;
	}
	memcpy(&narrow, handles.first + (size_t)i * sizeof(narrow), sizeof(narrow));
	return handles.type->from_fortran ? handles.type->from_fortran((int)narrow) : narrow;
}

/*
 * A communicator is about to be freed: its handle may come back as another's, which
 * must find nothing remembered.
 */
void library_comm_ends(struct handles comm);

#endif

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Wrappers of functions that some MPI libraries have and others lack: those of MPI-4,
 * and extensions.
 *
 * The shim does not export them. A program may ask at run time whether a function
 * exists (a weak reference, as mpi4py's wheels have; dlsym), and would be told that a
 * library of MPI-3 had all of MPI-4. Instead, once MPI is initialised, whoever refers to
 * such a function and has found one is given the wrapper in its place.
 */
#ifndef BIND_H
#define BIND_H

#include <stdbool.h>

#include "next.h"

struct bound {
	struct next *next;
	void *wrapper;
	bool referred; /* some object of the process refers to it */
};

#define BOUND(symbol) { .next = &symbol##_next, .wrapper = (void *)symbol },

extern struct bound c_bound[], fortran_bound[];
extern const unsigned int c_bound_length, fortran_bound_length;

/*
 * Puts the wrappers in place in all objects that are loaded. What is loaded later keeps
 * the library's own functions.
 */
void bind_all(void);

#endif

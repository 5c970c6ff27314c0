/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Wrappers of functions that only some MPI libraries have: the functions of MPI-4, and
 * extensions.
 *
 * The shim does not export them. A program may ask at run time whether a function
 * exists (a weak reference, as mpi4py's wheels have; dlsym). An exported wrapper would make
 * a library of MPI-3 appear to have all of MPI-4. Instead, once MPI is initialised, each
 * reference to such a function that was resolved is redirected to the wrapper.
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

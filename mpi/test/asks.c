/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A program that asks at run time whether its library has a function gets the right answer:
 * by a weak reference, and by dlsym. With PMPI_X a library has MPI_X.
 */
#include <mpi.h>

#include "../collectives.h"
#include "check.h"

#define WEAK(symbol) extern void symbol##_weak(void) __asm__(#symbol) __attribute__((weak));

#define DECLARE(Name, name, kind, arguments) \
	WEAK(MPI_##Name) WEAK(MPI_I##name) \
	WEAK(MPI_##Name##_c) WEAK(MPI_I##name##_c) \
	WEAK(MPI_##Name##_init) WEAK(MPI_##Name##_init_c) WEAK(MPIX_##Name##_init)

COLLECTIVES(DECLARE)
WEAK(MPI_Session_init)
WEAK(MPI_Session_finalize)

/* Kept from being folded: to the compiler no function is at address 0. */
static void *volatile asked;

static int asked_for, found;

static void ask(const char *name, void *by_reference)
{
	char profiled[64];
	void *truth;

	snprintf(profiled, sizeof(profiled), "P%s", name);
	truth = dlsym(RTLD_DEFAULT, profiled);
	asked_for++;
	found += truth != NULL;
	if ((by_reference != NULL) == (truth != NULL) &&
	    (dlsym(RTLD_DEFAULT, name) != NULL) == (truth != NULL))
		return;
	fprintf(stderr, "%s: the library has %s\n", name, truth ? "it" : "none");
	check_failures++;
}

#define ASK(symbol) \
	asked = (void *)symbol##_weak; \
	ask(#symbol, asked);

#define ASK_ALL(Name, name, kind, arguments) \
	ASK(MPI_##Name) ASK(MPI_I##name) \
	ASK(MPI_##Name##_c) ASK(MPI_I##name##_c) \
	ASK(MPI_##Name##_init) ASK(MPI_##Name##_init_c) ASK(MPIX_##Name##_init)

static void ask_all(void)
{
	COLLECTIVES(ASK_ALL)
	ASK(MPI_Session_init)
	ASK(MPI_Session_finalize)
}

int main(int argc, char **argv)
{
	check_begin();
	ask_all();
	MPI_Init(&argc, &argv);
	ask_all();
	MPI_Finalize();
	/* No library of these days has all of it: Open MPI 4's extension, and MPI-4. */
	CHECK(found > 0 && found < asked_for);
	return check_end();
}

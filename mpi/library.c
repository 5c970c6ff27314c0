/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "library.h"

#include <stdlib.h>

#include "classes.h"
#include "next.h"
#include "paceline.h"
#include "requests.h"

atomic_bool library_is_on;

static atomic_int users; /* MPI_Init, and each session */

/* Written before library_is_on is set, and then only read. */
static struct handle_type c_type;
static struct handle_type fortran_comm = { .bytes = sizeof(int) };
static struct handle_type fortran_request = { .bytes = sizeof(int) };

/*
 * Each library is known by a symbol that its mpi.h expands to, which is therefore
 * part of its ABI. MPICH's holds for Intel MPI, MVAPICH and Cray MPICH too.
 */
static bool learn_handles(void)
{
	if (next_symbol("ompi_mpi_comm_world")) {
		c_type.bytes = sizeof(void *);
		fortran_comm.from_fortran = (word (*)(int))next_symbol("PMPI_Comm_f2c");
		fortran_request.from_fortran = (word (*)(int))next_symbol("PMPI_Request_f2c");
		return fortran_comm.from_fortran && fortran_request.from_fortran;
	}
	if (next_symbol("MPIR_Dup_fn")) {
		c_type.bytes = sizeof(int);
		return true;
	}
	return false;
}

static bool switched_off(void)
{
	const char *value = getenv("PACELINE_MPI");

	return value && strcmp(value, "off") == 0;
}

void library_opened(void)
{
	if (atomic_fetch_add(&users, 1) == 0)
		atomic_store(&library_is_on,
			     !switched_off() && paceline_active() && learn_handles());
}

void library_closed(void)
{
	if (atomic_fetch_sub(&users, 1) != 1 || !atomic_exchange(&library_is_on, false))
		return;
	requests_end_all();
	classes_forget_all();
}

word library_handle(word argument)
{
	return c_type.bytes == sizeof(int) ? (uint32_t)argument : argument;
}

struct handles library_handles(word address)
{
	return (struct handles){ (const char *)address, &c_type };
}

struct handles library_fortran_comms(word address)
{
	return (struct handles){ (const char *)address, &fortran_comm };
}

struct handles library_fortran_requests(word address)
{
	return (struct handles){ (const char *)address, &fortran_request };
}

void library_comm_ends(struct handles comm)
{
	word handle = handle_at(comm, 0);

	requests_forget_comm(handle);
	classes_forget(handle);
}

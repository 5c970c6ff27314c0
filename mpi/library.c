/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "library.h"

#include <pthread.h>
#include <stdlib.h>

#include "bind.h"
#include "classes.h"
#include "client.h"
#include "next.h"
#include "requests.h"

atomic_int library_state;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Written before the library is on, and then only read. */
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

/* Under the lock. */
static void open_library(void)
{
	bool on = !switched_off() && client_load() && client.active() && learn_handles();

	if (on)
		bind_all();
	atomic_store(&library_state, on ? LIBRARY_ON : LIBRARY_OFF);
}

void library_opened(void)
{
	pthread_mutex_lock(&lock);
	if (library_now() != LIBRARY_ON)
		open_library();
	pthread_mutex_unlock(&lock);
}

bool library_in_session(void)
{
	pthread_mutex_lock(&lock);
	if (library_now() == LIBRARY_UNKNOWN) {
		if (next_symbol("PMPI_Session_init"))
			open_library();
		else
			atomic_store(&library_state, LIBRARY_OFF);
	}
	pthread_mutex_unlock(&lock);
	return library_now() == LIBRARY_ON;
}

void library_closed(void)
{
	if (atomic_exchange(&library_state, LIBRARY_OFF) != LIBRARY_ON)
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

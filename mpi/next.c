/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#define _GNU_SOURCE
#include "next.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdbool.h>
#include <string.h>

static void *base_of(const void *address)
{
	Dl_info info;

	return dladdr(address, &info) ? info.dli_fbase : NULL;
}

struct object_search {
	unsigned int skip; /* objects still to pass over */
	bool found;
	char path[PATH_MAX]; /* empty: the program itself, or a path too long to be one */
};

static int copy_path(struct dl_phdr_info *info, size_t size, void *data)
{
	struct object_search *search = data;
	size_t length = strlen(info->dlpi_name);

	(void)size;
	if (search->skip--)
		return 0;
	search->found = true;
	if (length >= sizeof(search->path))
		length = 0;
	memcpy(search->path, info->dlpi_name, length);
	search->path[length] = '\0';
	return 1;
}

/*
 * Looks through every loaded object. RTLD_NEXT sees only the global scope, and a
 * plugin that was opened with RTLD_LOCAL, as Python does with mpi4py, keeps its MPI
 * library out of that.
 *
 * Objects are numbered anew for each step because dl_iterate_phdr() holds a lock of
 * the loader, and a dlopen() inside its callback can deadlock with another thread's.
 */
static void *find_in_loaded_objects(const char *name)
{
	void *own = base_of(&copy_path);
	struct object_search search;
	unsigned int number;

	for (number = 0;; number++) {
		void *object, *symbol;

		search.skip = number;
		search.found = false;
		dl_iterate_phdr(copy_path, &search);
		if (!search.found)
			return NULL;
		if (!search.path[0]) /* the program's scope is the global one */
			continue;
		object = dlopen(search.path, RTLD_LAZY | RTLD_NOLOAD);
		if (!object)
			continue;
		symbol = dlsym(object, name);
		dlclose(object);
		if (symbol && base_of(symbol) != own)
			return symbol;
	}
}

void *next_symbol(const char *name)
{
	void *symbol = dlsym(RTLD_NEXT, name);

	return symbol ? symbol : find_in_loaded_objects(name);
}

/* The address is kept forever, so its object must not be unloaded. */
static void keep_loaded(const void *address)
{
	Dl_info info;

	if (dladdr(address, &info) && info.dli_fname)
		(void)dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

void *next_find(struct next *next)
{
	void *function = next_symbol(next->name);

	if (!function)
		return NULL;
	keep_loaded(function);
	atomic_store_explicit(&next->function, function, memory_order_relaxed);
	return function;
}

/* MPI_ERR_UNSUPPORTED_OPERATION is part of each library's ABI. */
#define UNSUPPORTED_OPEN_MPI 52
#define UNSUPPORTED_MPICH 44

static int unsupported(void)
{
	return next_symbol("ompi_mpi_comm_world") ? UNSUPPORTED_OPEN_MPI : UNSUPPORTED_MPICH;
}

int next_missing(word comm)
{
	int (*handler)(word comm, int error) = NULL;
	int error = unsupported();

	if (comm != NO_COMM)
		handler = (int (*)(word, int))next_symbol("MPI_Comm_call_errhandler");
	if (handler)
		handler(comm, error);
	return error;
}

void next_missing_fortran(word ierror)
{
	if (ierror)
		*(int *)ierror = unsupported();
}

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "fake_mpi.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

/* Handles are pointers, as in Open MPI, whose symbols this library has. */
#define ENTRY_POINT(result, name, ...) \
	result P##name(__VA_ARGS__); \
	result name(__VA_ARGS__) __attribute__((weak, alias("P" #name))); \
	result P##name(__VA_ARGS__)

#define REQUESTS 64

char ompi_mpi_comm_world[64];
char ompi_request_null[64];

_Thread_local int fake_calls;

/* The handle that was freed last is given out next. */
static char requests[REQUESTS];
static void *free_requests[REQUESTS];
static int taken;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *take_request(void)
{
	void *request;

	pthread_mutex_lock(&lock);
	if (taken == REQUESTS)
		abort();
	request = free_requests[taken] ? free_requests[taken] : &requests[taken];
	taken++;
	pthread_mutex_unlock(&lock);
	return request;
}

/* Lets another thread have the handle before the one that freed it goes on. */
static void give_back(void *request)
{
	int others;

	pthread_mutex_lock(&lock);
	free_requests[--taken] = request;
	others = taken;
	pthread_mutex_unlock(&lock);
	if (others)
		sched_yield();
}

ENTRY_POINT(int, MPI_Init, int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	return getenv("FAKE_INIT_FAILS") ? 1 : 0;
}

ENTRY_POINT(int, MPI_Finalize, void)
{
	return 0;
}

ENTRY_POINT(void *, MPI_Comm_f2c, int comm)
{
	(void)comm;
	return ompi_mpi_comm_world;
}

ENTRY_POINT(void *, MPI_Request_f2c, int request)
{
	(void)request;
	return ompi_request_null;
}

ENTRY_POINT(int, MPI_Bcast, void *data, int count, void *type, int root, void *comm)
{
	(void)data;
	(void)count;
	(void)type;
	(void)comm;
	fake_calls++;
	return root < 0;
}

ENTRY_POINT(int, MPI_Ibcast, void *data, int count, void *type, int root, void *comm,
	    void **request)
{
	(void)data;
	(void)count;
	(void)type;
	(void)comm;
	fake_calls++;
	if (root < 0)
		return 1;
	*request = take_request();
	return 0;
}

ENTRY_POINT(int, MPI_Wait, void **request, void *status)
{
	(void)status;
	fake_calls++;
	if (*request >= (void *)requests && *request < (void *)(requests + REQUESTS))
		give_back(*request);
	*request = ompi_request_null;
	return 0;
}

ENTRY_POINT(int, MPI_Comm_free, void **comm)
{
	*comm = 0;
	return 0;
}

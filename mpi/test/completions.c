/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Each way to complete requests, with collectives, messages and null requests mixed:
 * after each call exactly the collectives have ended that the call reported as complete.
 */
#include <mpi.h>
#ifdef OPEN_MPI
#include <mpi-ext.h>
#endif

#include "check.h"

#define REQUESTS 6

#if MPI_VERSION >= 4
#define BCAST_INIT MPI_Bcast_init
#define ALLREDUCE_INIT MPI_Allreduce_init
#else
#define BCAST_INIT MPIX_Bcast_init
#define ALLREDUCE_INIT MPIX_Allreduce_init
#endif

static MPI_Request requests[REQUESTS];
static const int is_collective[REQUESTS] = { 0, 1, 0, 1, 0, 1 };
static int buffer[REQUESTS], result[REQUESTS];
static int rank, ranks;

/* A null request, then collectives and messages in turn. */
static void make(int persistent)
{
	int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
	MPI_Comm comm = MPI_COMM_WORLD;

	requests[0] = MPI_REQUEST_NULL;
	if (!persistent) {
		MPI_Ibcast(&buffer[1], 1, MPI_INT, 0, comm, &requests[1]);
		MPI_Irecv(&buffer[2], 1, MPI_INT, previous, 0, comm, &requests[2]);
		MPI_Iallreduce(&buffer[3], &result[3], 1, MPI_INT, MPI_SUM, comm, &requests[3]);
		MPI_Isend(&buffer[4], 1, MPI_INT, next, 0, comm, &requests[4]);
		MPI_Ibcast(&buffer[5], 1, MPI_INT, 1, comm, &requests[5]);
	} else {
		BCAST_INIT(&buffer[1], 1, MPI_INT, 0, comm, MPI_INFO_NULL, &requests[1]);
		MPI_Recv_init(&buffer[2], 1, MPI_INT, previous, 0, comm, &requests[2]);
		ALLREDUCE_INIT(&buffer[3], &result[3], 1, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL,
			       &requests[3]);
		MPI_Send_init(&buffer[4], 1, MPI_INT, next, 0, comm, &requests[4]);
		BCAST_INIT(&buffer[5], 1, MPI_INT, 1, comm, MPI_INFO_NULL, &requests[5]);
	}
}

static int collectives_in(int count, const int *indices)
{
	int i, collectives = 0;

	for (i = 0; i < count; i++)
		collectives += is_collective[indices[i]];
	return collectives;
}

#define ENDED(what, ends) COUNTS(what, 0, 0, ends, 0, 0)

static void by_wait(void)
{
	int i;

	for (i = REQUESTS - 1; i >= 0; i--) {
		MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
		ENDED("MPI_Wait", is_collective[i]);
	}
}

static void by_waitall(void)
{
	MPI_Waitall(REQUESTS, requests, MPI_STATUSES_IGNORE);
	ENDED("MPI_Waitall", 3);
}

static void by_waitany(void)
{
	int index;

	for (;;) {
		MPI_Waitany(REQUESTS, requests, &index, MPI_STATUS_IGNORE);
		if (index == MPI_UNDEFINED)
			break;
		ENDED("MPI_Waitany", is_collective[index]);
	}
	ENDED("MPI_Waitany of none", 0);
}

static void by_waitsome(void)
{
	int count, indices[REQUESTS];

	for (;;) {
		MPI_Waitsome(REQUESTS, requests, &count, indices, MPI_STATUSES_IGNORE);
		if (count == MPI_UNDEFINED)
			break;
		ENDED("MPI_Waitsome", collectives_in(count, indices));
	}
	ENDED("MPI_Waitsome of none", 0);
}

static void by_test(void)
{
	int i, complete;

	for (i = 0; i < REQUESTS; i++)
		do {
			MPI_Test(&requests[i], &complete, MPI_STATUS_IGNORE);
			ENDED("MPI_Test", complete && is_collective[i]);
		} while (!complete);
}

static void by_testall(void)
{
	int complete;

	do {
		MPI_Testall(REQUESTS, requests, &complete, MPI_STATUSES_IGNORE);
		ENDED("MPI_Testall", complete ? 3 : 0);
	} while (!complete);
}

static void by_testany(void)
{
	int index, complete;

	do {
		MPI_Testany(REQUESTS, requests, &index, &complete, MPI_STATUS_IGNORE);
		ENDED("MPI_Testany",
		      complete && index != MPI_UNDEFINED ? is_collective[index] : 0);
	} while (!complete || index != MPI_UNDEFINED);
}

static void by_testsome(void)
{
	int count, indices[REQUESTS];

	do {
		MPI_Testsome(REQUESTS, requests, &count, indices, MPI_STATUSES_IGNORE);
		ENDED("MPI_Testsome", count > 0 ? collectives_in(count, indices) : 0);
	} while (count != MPI_UNDEFINED);
}

static void (*const ways[])(void) = { by_wait,	   by_waitall, by_waitany, by_waitsome,
				      by_test,	   by_testall, by_testany, by_testsome };

#define WAYS ((int)(sizeof(ways) / sizeof(ways[0])))

/*
 * In MPICH 4.0, calls for any or some return inactive persistent collectives for ever,
 * and MPI_Testall fails on them.
 */
static int works_with_persistent(int way)
{
#if defined(MPICH_NUMVERSION) && MPICH_NUMVERSION < 40100000
	return ways[way] == by_wait || ways[way] == by_waitall || ways[way] == by_test;
#else
	(void)way;
	return 1;
#endif
}

int main(int argc, char **argv)
{
	struct stub_counts since;
	int way, i;

	check_begin();
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (ranks < 2)
		return 2;
	for (way = 0; way < WAYS; way++) {
		make(0);
		since = check_since();
		CHECK(since.begins == 3 && since.ends == 0 && since.inside == 3);
		ways[way]();
	}

	make(1);
	COUNTS("persistent requests", 0, 0, 0, 0, 0);
	for (way = 0; way < WAYS; way++) {
		if (!works_with_persistent(way))
			continue;
		MPI_Startall(REQUESTS - 1, requests + 1);
		COUNTS("MPI_Startall", 0, 3, 0, 0, 0);
		ways[way]();
		CHECK(requests[1] != MPI_REQUEST_NULL);
	}
	for (i = 1; i < REQUESTS; i++)
		MPI_Request_free(&requests[i]);
	COUNTS("MPI_Request_free", 0, 0, 0, 0, 0);

	/* What was freed is not known any more, even if its handle comes again. */
	make(0);
	since = check_since();
	CHECK(since.begins == 3 && since.ends == 0);
	by_waitall();
	MPI_Finalize();
	return check_end();
}

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Classes come and go with communicators, and are shared out when they run out. */
#include <mpi.h>
#ifdef OPEN_MPI
#include <mpi-ext.h>
#endif

#include "../../include/paceline.h"
#include "check.h"

#define ROUNDS 20
#define CLASSES (PACELINE_CLASSES - 1)
#define MANY (CLASSES + 17)

static int one = 1, sum;
static MPI_Comm comms[MANY];
static MPI_Request requests[MANY];

static void allreduce(MPI_Comm comm)
{
	MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
}

static void iallreduce(MPI_Comm comm, MPI_Request *request)
{
	static int sums[MANY];
	static int i;

	MPI_Iallreduce(&one, &sums[i++ % MANY], 1, MPI_INT, MPI_SUM, comm, request);
}

/* Duplicating may use wrapped functions inside of the library: not counted here. */
static MPI_Comm duplicate(void)
{
	MPI_Comm comm;

	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	check_since();
	return comm;
}

static void handle_that_comes_again(void)
{
	MPI_Comm seen[ROUNDS];
	int reused = 0;
	int i, j;

	for (i = 0; i < ROUNDS; i++) {
		MPI_Comm comm = duplicate();

		for (j = 0; j < i; j++)
			reused |= seen[j] == comm;
		seen[i] = comm;
		allreduce(comm);
		COUNTS("a new communicator", 1, 0, 0, 1, 0);
		allreduce(comm);
		COUNTS("the same again", 1, 0, 0, 0, 0);
		if (i % 2)
			MPI_Comm_free(&comm);
		else
			MPI_Comm_disconnect(&comm);
		CHECK(comm == MPI_COMM_NULL);
		COUNTS("freed", 0, 0, 0, 0, 1);
	}
	CHECK(reused); /* or the test shows nothing */
}

/*
 * Until the library is done with it, which the shim cannot see. Open MPI 4 crashes
 * if a communicator is freed under a collective that has work left.
 */
static void let_it_finish(MPI_Request request)
{
	int complete = 0;

	while (!complete)
		MPI_Request_get_status(request, &complete, MPI_STATUS_IGNORE);
}

static void freed_while_running(void)
{
	MPI_Comm comm = duplicate();
	MPI_Request request[2];

	iallreduce(comm, &request[0]);
	iallreduce(comm, &request[1]);
	let_it_finish(request[0]);
	let_it_finish(request[1]);
	COUNTS("two that run", 0, 2, 0, 1, 0);
	MPI_Comm_free(&comm);
	COUNTS("freed under them", 0, 0, 0, 0, 0);
	MPI_Wait(&request[1], MPI_STATUS_IGNORE);
	COUNTS("one is complete", 0, 0, 1, 0, 0);
	MPI_Wait(&request[0], MPI_STATUS_IGNORE);
	COUNTS("both are", 0, 0, 1, 0, 1);
}

static void persistent_outlives_communicator(void)
{
	MPI_Comm comm = duplicate();
	MPI_Request request;

#if MPI_VERSION >= 4
	MPI_Allreduce_init(&one, &sum, 1, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &request);
#else
	MPIX_Allreduce_init(&one, &sum, 1, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &request);
#endif
	MPI_Start(&request);
	let_it_finish(request);
	COUNTS("started", 0, 1, 0, 1, 0);
	MPI_Comm_free(&comm);
	COUNTS("communicator freed", 0, 0, 0, 0, 0);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	COUNTS("complete", 0, 0, 1, 0, 1);
#ifndef OPEN_MPI /* see above */
	MPI_Start(&request);
	COUNTS("without a communicator", 0, 0, 0, 0, 0);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
#endif
	MPI_Request_free(&request);
	COUNTS("gone", 0, 0, 0, 0, 0);
}

static void more_than_there_are_classes(void)
{
	int i;

	for (i = 0; i < MANY; i++)
		comms[i] = duplicate();
	for (i = 0; i < CLASSES; i++)
		allreduce(comms[i]);
	COUNTS("as many as there are classes", CLASSES, 0, 0, CLASSES, 0);

	allreduce(comms[0]);
	iallreduce(comms[1], &requests[0]);
	COUNTS("0 is used again, 1 is in use", 1, 1, 0, 0, 0);
	for (i = CLASSES; i < MANY; i++)
		allreduce(comms[i]);
	COUNTS("the rest push out others", MANY - CLASSES, 0, 0, MANY - CLASSES, MANY - CLASSES);
	allreduce(comms[0]);
	allreduce(comms[1]);
	COUNTS("not these two", 2, 0, 0, 0, 0);
	allreduce(comms[2]);
	COUNTS("this one", 1, 0, 0, 1, 1);
	MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
	COUNTS("end of 1", 0, 0, 1, 0, 0);

	/* All classes in use: later operations run without a phase. */
	for (i = 0; i < MANY; i++)
		iallreduce(comms[i], &requests[i]);
	CHECK(check_since().begins == CLASSES);
	MPI_Bcast(&one, 1, MPI_INT, 0, comms[MANY - 1]);
	COUNTS("none left", 0, 0, 0, 0, 0);
	MPI_Waitall(MANY, requests, MPI_STATUSES_IGNORE);
	COUNTS("all complete", 0, 0, CLASSES, 0, 0);
	for (i = 0; i < MANY; i++)
		MPI_Comm_free(&comms[i]);
	COUNTS("all freed", 0, 0, 0, 0, CLASSES);
}

int main(int argc, char **argv)
{
	check_begin();
	MPI_Init(&argc, &argv);
	handle_that_comes_again();
	freed_while_running();
	persistent_outlives_communicator();
	more_than_there_are_classes();
	MPI_Finalize();
	return check_end();
}

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* MPI_THREAD_MULTIPLE: each thread with its own communicator. */
#include <mpi.h>
#include <pthread.h>

#include "check.h"

#define THREADS 3
#define ROUNDS 25

static MPI_Comm comms[THREADS];

static void *run(void *argument)
{
	MPI_Comm *comm = argument;
	int one = 1, sum, ranks, i;
	MPI_Request request;

	MPI_Comm_size(*comm, &ranks);
	for (i = 0; i < ROUNDS; i++) {
		MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, *comm);
		if (sum != ranks)
			return argument;
		MPI_Ibcast(&one, 1, MPI_INT, 0, *comm, &request);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS];
	int provided, i;

	check_begin();
	MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
	CHECK(provided == MPI_THREAD_MULTIPLE);
	for (i = 0; i < THREADS; i++)
		MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
	check_since();
	for (i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, run, &comms[i]);
	for (i = 0; i < THREADS; i++) {
		void *failed;

		pthread_join(threads[i], &failed);
		CHECK(!failed);
	}
	COUNTS("all threads", THREADS * ROUNDS, THREADS * ROUNDS, THREADS * ROUNDS, 2 * THREADS,
	       0);
	for (i = 0; i < THREADS; i++)
		MPI_Comm_free(&comms[i]);
	COUNTS("MPI_Comm_free", 0, 0, 0, 0, 2 * THREADS);
	MPI_Finalize();
	return check_end();
}

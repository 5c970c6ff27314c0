/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Threads that take classes from each other, and request handles that come back in
 * another thread as soon as they are free. The stub notices a class that is freed or
 * given away in use, and what is ended twice.
 */
#include <pthread.h>

#include "check.h"
#include "fake_mpi.h"

#define THREADS 4
#define ROUNDS 8000
#define COMMS 80 /* more than there are classes */
#define IN_FLIGHT 3

static char comms[COMMS][64];

static void *run(void *argument)
{
	unsigned int seed = *(unsigned int *)argument;
	void *requests[IN_FLIGHT];
	int i, j;

	for (i = 0; i < ROUNDS; i++) {
		void *comm;

		for (j = 0; j < IN_FLIGHT; j++) {
			seed = seed * 1103515245u + 12345u;
			MPI_Ibcast(NULL, 1, NULL, 0, comms[(seed >> 16) % COMMS], &requests[j]);
		}
		seed = seed * 1103515245u + 12345u;
		comm = comms[(seed >> 16) % COMMS];
		MPI_Bcast(NULL, 1, NULL, 0, comm);
		if (i % 16 == 0)
			MPI_Comm_free(&comm);
		for (j = 0; j < IN_FLIGHT; j++)
			MPI_Wait(&requests[j], NULL);
	}
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];
	unsigned int seeds[THREADS];
	struct stub_counts since;
	int i;

	check_begin();
	MPI_Init(NULL, NULL);
	for (i = 0; i < THREADS; i++) {
		seeds[i] = (unsigned int)i + 1;
		pthread_create(&threads[i], NULL, run, &seeds[i]);
	}
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	since = check_since();
	CHECK(since.inside == 0);
	CHECK(since.enters == since.leaves && since.begins == since.ends);
	CHECK(since.enters > THREADS * ROUNDS / 2 && since.begins > THREADS * ROUNDS);
	CHECK(since.frees > COMMS); /* or nobody raced */
	MPI_Finalize();
	since = check_since();
	CHECK(since.ends == 0);
	return check_end();
}

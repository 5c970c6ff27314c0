/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * An MPI program in phases: all-to-alls, then all-reduces, and after each of them a
 * message between every two ranks. Each rank prints its calls, for comparison with
 * the output of `paceline status` for its process. phases.f90 is the same in Fortran.
 *
 *     phases ALLTOALLS BYTES ALLREDUCES [FILE]
 *
 * An all-to-all and a message carry BYTES from rank to rank. With FILE the ranks wait
 * before MPI_Finalize until it exists, so that their connections can be looked at.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank, ranks;
static int bytes; /* from rank to rank */
static char *send, *receive; /* BYTES for each rank */

static void check(int right, const char *what)
{
	if (right)
		return;
	fprintf(stderr, "rank %d: wrong data after %s\n", rank, what);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Received blocks contain the sender's rank. */
static int is_from(int from)
{
	const char *block = receive + (size_t)from * bytes;

	return block[0] == (char)from && block[bytes - 1] == (char)from;
}

static void exchange_with_all(void)
{
	int i;

	MPI_Alltoall(send, bytes, MPI_CHAR, receive, bytes, MPI_CHAR, MPI_COMM_WORLD);
	for (i = 0; i < ranks; i++)
		check(is_from(i), "an all-to-all");
}

static void sum_over_all(void)
{
	int mine = rank + 1, sum;

	MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	check(sum == ranks * (ranks + 1) / 2, "an all-reduce");
}

/*
 * One message to each other rank and one from it. They are synchronous, so that each
 * has arrived before the next collective begins: it was sent in no phase.
 */
static int messages_between_ranks(void)
{
	int step;

	for (step = 1; step < ranks; step++) {
		int to = (rank + step) % ranks;
		int from = (rank - step + ranks) % ranks;
		MPI_Request request;

		MPI_Irecv(receive + (size_t)from * bytes, bytes, MPI_CHAR, from, 0, MPI_COMM_WORLD,
			  &request);
		MPI_Ssend(send, bytes, MPI_CHAR, to, 0, MPI_COMM_WORLD);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		check(is_from(from), "a message");
	}
	return ranks - 1;
}

/* MPI libraries move data in calls only: other ranks may still need this one. */
static void wait_for(const char *file)
{
	int flag;

	while (access(file, F_OK) != 0) {
		MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
		usleep(1000);
	}
}

static int number(const char *text, int least)
{
	int value = text ? atoi(text) : -1;

	if (value < least) {
		fprintf(stderr, "usage: phases ALLTOALLS BYTES ALLREDUCES [FILE]\n");
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	return value;
}

int main(int argc, char **argv)
{
	int alltoalls, allreduces, messages = 0, i;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	alltoalls = number(argc > 1 ? argv[1] : NULL, 0);
	bytes = number(argc > 2 ? argv[2] : NULL, 1);
	allreduces = number(argc > 3 ? argv[3] : NULL, 0);
	send = malloc((size_t)ranks * bytes);
	receive = malloc((size_t)ranks * bytes);
	if (!send || !receive) {
		fprintf(stderr, "rank %d: no memory\n", rank);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	memset(send, rank, (size_t)ranks * bytes);

	for (i = 0; i < alltoalls; i++) {
		exchange_with_all();
		messages += messages_between_ranks();
	}
	for (i = 0; i < allreduces; i++) {
		sum_over_all();
		messages += messages_between_ranks();
	}

	printf("rank %d of %d, process %d: %d all-to-alls, %d all-reduces, %d messages\n", rank,
	       ranks, (int)getpid(), alltoalls, allreduces, messages);
	fflush(stdout);
	if (argc > 4)
		wait_for(argv[4]);
	MPI_Finalize();
	return 0;
}

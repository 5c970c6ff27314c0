/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What the shim costs per call, in nanoseconds, over an MPI library that does
 * nothing. Run it with the shim preloaded and without: the difference is the shim.
 * The least of several rounds is taken, as all that disturbs one makes it longer.
 *
 * The phase functions are the program's own and empty: libpaceline has its own cost.
 */
#include <stdio.h>
#include <time.h>

#include "../../include/paceline.h"
#include "fake_mpi.h"

#define CALLS 200000
#define ROUNDS 25

int paceline_enter(unsigned int class_id)
{
	(void)class_id;
	return 0;
}

int paceline_leave(void)
{
	return 0;
}

int paceline_begin(unsigned int class_id)
{
	return (int)class_id;
}

int paceline_end(int token)
{
	(void)token;
	return 0;
}

int paceline_class_new(void)
{
	static int next = PACELINE_CLASSES;

	return next > 1 ? --next : PACELINE_EFULL;
}

int paceline_class_free(unsigned int class_id)
{
	(void)class_id;
	return 0;
}

int paceline_active(void)
{
	return 1;
}

static char comms[64][64];
static int comms_used;

static void bcast(void)
{
	static unsigned int call;

	MPI_Bcast(NULL, 1, NULL, 0, comms[call++ % (unsigned int)comms_used]);
}

static void ibcast_and_wait(void)
{
	void *request;

	MPI_Ibcast(NULL, 1, NULL, 0, comms[0], &request);
	MPI_Wait(&request, NULL);
}

static void wait_for_a_message(void)
{
	void *request = comms[1];

	MPI_Wait(&request, NULL);
}

static double now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void measure(const char *name, int communicators, void (*call)(void))
{
	double least = 1e18;
	int round, i;

	comms_used = communicators;
	for (round = 0; round < ROUNDS; round++) {
		double start = now_ns();

		for (i = 0; i < CALLS; i++)
			call();
		double each = (now_ns() - start) / CALLS;

		if (each < least)
			least = each;
	}
	printf("%-40s %7.1f ns\n", name, least);
}

int main(void)
{
	if (MPI_Init(NULL, NULL) != 0)
		return 1;
	measure("blocking, one communicator", 1, bcast);
	measure("blocking, 4 communicators in turn", 4, bcast);
	measure("blocking, 60 communicators in turn", 60, bcast);
	measure("nonblocking and its wait", 1, ibcast_and_wait);
	measure("wait for a message", 1, wait_for_a_message);
	return MPI_Finalize();
}

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Every wrapped collective in its blocking, nonblocking and persistent form: its
 * phase, and that it does the same as the library's own function.
 */
#include <mpi.h>
#ifdef OPEN_MPI
#include <mpi-ext.h>
#endif

#include "../classes.h"
#include "../collectives.h"
#include "check.h"

#define KINDS 5 /* enum kind, from 1 up */

#define RANKS 4 /* at most; and more than the 2 neighbours in a ring */
#define ITEMS (2 * RANKS)

static MPI_Comm comm; /* a ring, so that it has neighbours too */
static int rank, ranks;
static int send[ITEMS];
static int shim_result[ITEMS], library_result[ITEMS];
static int *recv;
static int ones[RANKS], places[RANKS];
static int bytes_away[RANKS];
static MPI_Aint aint_away[RANKS];
static MPI_Datatype types[RANKS];
static int class_of[KINDS + 1];

#define ARGS_Bcast recv, 2, MPI_INT, 0, comm
#define ARGS_Scatter send, 1, MPI_INT, recv, 1, MPI_INT, 0, comm
#define ARGS_Scatterv send, ones, places, MPI_INT, recv, 1, MPI_INT, 0, comm
#define ARGS_Gather send, 1, MPI_INT, recv, 1, MPI_INT, 0, comm
#define ARGS_Gatherv send, 1, MPI_INT, recv, ones, places, MPI_INT, 0, comm
#define ARGS_Reduce send, recv, 2, MPI_INT, MPI_SUM, 0, comm
#define ARGS_Allgather send, 1, MPI_INT, recv, 1, MPI_INT, comm
#define ARGS_Allgatherv send, 1, MPI_INT, recv, ones, places, MPI_INT, comm
#define ARGS_Alltoall send, 1, MPI_INT, recv, 1, MPI_INT, comm
#define ARGS_Alltoallv send, ones, places, MPI_INT, recv, ones, places, MPI_INT, comm
#define ARGS_Alltoallw send, ones, bytes_away, types, recv, ones, bytes_away, types, comm
#define ARGS_Reduce_scatter send, recv, ones, MPI_INT, MPI_SUM, comm
#define ARGS_Reduce_scatter_block send, recv, 1, MPI_INT, MPI_SUM, comm
#define ARGS_Allreduce send, recv, 2, MPI_INT, MPI_SUM, comm
#define ARGS_Scan send, recv, 2, MPI_INT, MPI_SUM, comm
#define ARGS_Exscan send, recv, 2, MPI_INT, MPI_SUM, comm
#define ARGS_Neighbor_allgather send, 1, MPI_INT, recv, 1, MPI_INT, comm
#define ARGS_Neighbor_allgatherv send, 1, MPI_INT, recv, ones, places, MPI_INT, comm
#define ARGS_Neighbor_alltoall send, 1, MPI_INT, recv, 1, MPI_INT, comm
#define ARGS_Neighbor_alltoallv send, ones, places, MPI_INT, recv, ones, places, MPI_INT, comm
#define ARGS_Neighbor_alltoallw send, ones, aint_away, types, recv, ones, aint_away, types, comm

#if MPI_VERSION >= 4
#define INIT(Name) MPI_##Name##_init
#else
#define INIT(Name) MPIX_##Name##_init
#endif

/* MPICH 4.0 fails when it starts some of its persistent collectives a second time. */
#if defined(MPICH_NUMVERSION) && MPICH_NUMVERSION < 40100000
#define STARTS_OF_EACH 1
#else
#define STARTS_OF_EACH 2
#endif

static void prepare(int *result)
{
	int i;

	recv = result;
	for (i = 0; i < ITEMS; i++) {
		send[i] = 100 * rank + i;
		recv[i] = rank == 0 ? 7 + i : -1;
	}
}

static void check_result(const char *what)
{
	if (memcmp(shim_result, library_result, sizeof(library_result)) == 0)
		return;
	fprintf(stderr, "%s: the result is not the library's\n", what);
	check_failures++;
}

/* The first use of a kind makes its class; later ones are in the same. */
static int first_use(enum kind kind)
{
	return class_of[kind] == 0;
}

static void check_class(const char *what, enum kind kind)
{
	struct stub_counts now;

	stub_read(&now);
	if (first_use(kind))
		class_of[kind] = now.last_class;
	if (class_of[kind] == now.last_class)
		return;
	fprintf(stderr, "%s: class %d, expected %d\n", what, now.last_class, class_of[kind]);
	check_failures++;
}

#define TRY(Name, name, kind, arguments) \
	static void try_##Name(void) \
	{ \
		int first = first_use(kind); \
		int repeat; \
		MPI_Request request; \
\
		prepare(library_result); \
		PMPI_##Name(ARGS_##Name); \
		COUNTS("PMPI_" #Name, 0, 0, 0, 0, 0); \
\
		prepare(shim_result); \
		CHECK(MPI_##Name(ARGS_##Name) == MPI_SUCCESS); \
		COUNTS("MPI_" #Name, 1, 0, 0, first, 0); \
		check_class("MPI_" #Name, kind); \
		check_result("MPI_" #Name); \
\
		prepare(shim_result); \
		MPI_I##name(ARGS_##Name, &request); \
		COUNTS("MPI_I" #name, 0, 1, 0, 0, 0); \
		check_class("MPI_I" #name, kind); \
		MPI_Wait(&request, MPI_STATUS_IGNORE); \
		COUNTS("its MPI_Wait", 0, 0, 1, 0, 0); \
		check_result("MPI_I" #name); \
\
		prepare(shim_result); \
		INIT(Name)(ARGS_##Name, MPI_INFO_NULL, &request); \
		COUNTS(#Name "_init", 0, 0, 0, 0, 0); \
		for (repeat = 0; repeat < STARTS_OF_EACH; repeat++) { \
			MPI_Start(&request); \
			COUNTS("start of " #Name "_init", 0, 1, 0, 0, 0); \
			check_class(#Name "_init", kind); \
			MPI_Wait(&request, MPI_STATUS_IGNORE); \
			COUNTS("wait of " #Name "_init", 0, 0, 1, 0, 0); \
		} \
		check_result(#Name "_init"); \
		MPI_Request_free(&request); \
		COUNTS("MPI_Request_free", 0, 0, 0, 0, 0); \
	}

COLLECTIVES(TRY)

#if MPI_VERSION >= 4
static void try_large_counts(void)
{
	MPI_Count large_ones[RANKS];
	MPI_Request request;
	int i;

	for (i = 0; i < RANKS; i++)
		large_ones[i] = 1;
	prepare(library_result);
	PMPI_Alltoallv(ARGS_Alltoallv);
	prepare(shim_result);
	MPI_Alltoallv_c(send, large_ones, aint_away, MPI_BYTE, recv, large_ones, aint_away,
			MPI_BYTE, comm);
	COUNTS("MPI_Alltoallv_c", 1, 0, 0, 0, 0);
	prepare(library_result);
	PMPI_Bcast(ARGS_Bcast);
	prepare(shim_result);
	MPI_Ibcast_c(ARGS_Bcast, &request);
	COUNTS("MPI_Ibcast_c", 0, 1, 0, 0, 0);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	COUNTS("its MPI_Wait", 0, 0, 1, 0, 0);
	check_result("MPI_Ibcast_c");
}
#endif

static void try_what_is_no_phase(void)
{
	int in = 0, out = 1;
	MPI_Request request[2];

	MPI_Barrier(comm);
	MPI_Ibarrier(comm, request);
	MPI_Wait(request, MPI_STATUS_IGNORE);
	MPI_Irecv(&in, 1, MPI_INT, (rank + 1) % ranks, 0, comm, request);
	MPI_Isend(&out, 1, MPI_INT, (rank + ranks - 1) % ranks, 0, comm, request + 1);
	MPI_Waitall(2, request, MPI_STATUSES_IGNORE);
	CHECK(in == 1);
	COUNTS("barriers and messages", 0, 0, 0, 0, 0);
}

int main(int argc, char **argv)
{
	int periodic = 1;
	int i;

	check_begin();
	MPI_Init(&argc, &argv);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (ranks < 3 || ranks > RANKS)
		return 2;
	MPI_Cart_create(MPI_COMM_WORLD, 1, &ranks, &periodic, 0, &comm);
	MPI_Comm_rank(comm, &rank);
	for (i = 0; i < RANKS; i++) {
		ones[i] = 1;
		places[i] = i;
		bytes_away[i] = i * (int)sizeof(int);
		aint_away[i] = bytes_away[i];
		types[i] = MPI_INT;
	}
	check_since(); /* creating a communicator may have used wrapped functions */
#define CALL(Name, name, kind, arguments) try_##Name();
	COLLECTIVES(CALL)
#if MPI_VERSION >= 4
	try_large_counts();
#endif
	try_what_is_no_phase();
	CHECK(class_of[ALL_TO_ALL] != class_of[ALL_REDUCE]);
	MPI_Comm_free(&comm);
	COUNTS("MPI_Comm_free", 0, 0, 0, 0, KINDS);
	MPI_Finalize();
	check_since();
	return check_end();
}

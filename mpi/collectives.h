/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The only list of wrapped functions. c.c and fortran.c expand it, each into its
 * language's entry points.
 */
#ifndef COLLECTIVES_H
#define COLLECTIVES_H

/*
 * X(Name, name, kind, arguments): `arguments` counts up to the communicator, which
 * is the last one of a blocking collective in C. The other forms only add to its
 * right: a request; an info and a request; Fortran's ierror. So the communicator
 * is argument number `arguments` in all of them.
 *
 * MPI_Barrier is missing because it shares out no bandwidth.
 */
#define COLLECTIVES(X) \
	X(Bcast, bcast, ONE_TO_MANY, 5) \
	X(Scatter, scatter, ONE_TO_MANY, 8) \
	X(Scatterv, scatterv, ONE_TO_MANY, 9) \
	X(Gather, gather, MANY_TO_ONE, 8) \
	X(Gatherv, gatherv, MANY_TO_ONE, 9) \
	X(Reduce, reduce, MANY_TO_ONE, 7) \
	X(Allgather, allgather, ALL_TO_ALL, 7) \
	X(Allgatherv, allgatherv, ALL_TO_ALL, 8) \
	X(Alltoall, alltoall, ALL_TO_ALL, 7) \
	X(Alltoallv, alltoallv, ALL_TO_ALL, 9) \
	X(Alltoallw, alltoallw, ALL_TO_ALL, 9) \
	X(Reduce_scatter, reduce_scatter, ALL_TO_ALL, 6) \
	X(Reduce_scatter_block, reduce_scatter_block, ALL_TO_ALL, 6) \
	X(Allreduce, allreduce, ALL_REDUCE, 6) \
	X(Scan, scan, ALL_REDUCE, 6) \
	X(Exscan, exscan, ALL_REDUCE, 6) \
	X(Neighbor_allgather, neighbor_allgather, NEIGHBOURHOOD, 7) \
	X(Neighbor_allgatherv, neighbor_allgatherv, NEIGHBOURHOOD, 8) \
	X(Neighbor_alltoall, neighbor_alltoall, NEIGHBOURHOOD, 7) \
	X(Neighbor_alltoallv, neighbor_alltoallv, NEIGHBOURHOOD, 9) \
	X(Neighbor_alltoallw, neighbor_alltoallw, NEIGHBOURHOOD, 9)

/*
 * X(Name, name, arguments, count, requests, outcome): functions that complete requests. The
 * last three are expressions over the arguments a1, a2, ..., and over `result`, the
 * error code. COUNT() and INDEX_BASE are the includer's: Fortran passes a count by
 * reference and numbers from 1. An error completes what the call would have
 * completed: leaving a class too early is harmless, staying in it forever is not.
 *
 * MPI_UNDEFINED, as an index or a count, is negative in every MPI library: it
 * matches no request.
 */
#define COMPLETIONS(X) \
	X(Wait, wait, 2, 1, a1, outcome_all(1)) \
	X(Waitall, waitall, 3, COUNT(a1), a2, outcome_all(1)) \
	X(Waitany, waitany, 4, COUNT(a1), a2, outcome_listed(INDEX_BASE, 1, a3)) \
	X(Waitsome, waitsome, 5, COUNT(a1), a2, outcome_listed(INDEX_BASE, INT_AT(a3), a4)) \
	X(Test, test, 3, 1, a1, outcome_all(result || INT_AT(a2))) \
	X(Testall, testall, 4, COUNT(a1), a2, outcome_all(result || INT_AT(a3))) \
	X(Testany, testany, 5, COUNT(a1), a2, outcome_listed(INDEX_BASE, INT_AT(a4) != 0, a3)) \
	X(Testsome, testsome, 5, COUNT(a1), a2, outcome_listed(INDEX_BASE, INT_AT(a3), a4))

/* X(Name, name, arguments, count, requests): functions that start persistent requests. */
#define STARTS(X) \
	X(Start, start, 1, 1, a1) \
	X(Startall, startall, 2, COUNT(a1), a2)

/* X(Name, name): after which the communicator's handle may come back as another's. */
#define COMM_ENDS(X) \
	X(Comm_free, comm_free) \
	X(Comm_disconnect, comm_disconnect)

#endif

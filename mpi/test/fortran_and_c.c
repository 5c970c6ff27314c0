/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* A library in C that a Fortran program hands its communicator to. */
#include <mpi.h>

void allreduce_in_c(MPI_Fint comm);

void allreduce_in_c(MPI_Fint comm)
{
	int one = 1, sum;

	MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_Comm_f2c(comm));
}

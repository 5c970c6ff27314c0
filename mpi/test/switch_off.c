/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Runs with the shim disabled: calls are only passed on. */
#include "check.h"
#include "fake_mpi.h"

int main(void)
{
	void *request, *comm = ompi_mpi_comm_world;

	check_begin();
	MPI_Init(NULL, NULL);
	MPI_Bcast(NULL, 1, NULL, 0, comm);
	MPI_Ibcast(NULL, 1, NULL, 0, comm, &request);
	MPI_Wait(&request, NULL);
	CHECK(request == ompi_request_null);
	CHECK(fake_calls == 3);
	MPI_Comm_free(&comm);
	CHECK(!comm);
	MPI_Finalize();
	COUNTS("everything", 0, 0, 0, 0, 0);
	return check_end();
}

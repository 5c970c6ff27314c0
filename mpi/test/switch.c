/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* When the shim is on, and the phases of calls that fail. */
#include <stdlib.h>

#include "check.h"
#include "fake_mpi.h"

static void bcast(int root)
{
	int calls = fake_calls;

	CHECK(MPI_Bcast(NULL, 1, NULL, root, ompi_mpi_comm_world) == (root < 0));
	CHECK(fake_calls == calls + 1); /* passed on, once */
}

int run(void);

int run(void)
{
	void *request;

	check_begin();
	bcast(0);
	COUNTS("before MPI_Init", 0, 0, 0, 0, 0);
	setenv("FAKE_INIT_FAILS", "1", 1);
	CHECK(MPI_Init(NULL, NULL) == 1);
	bcast(0);
	COUNTS("after an MPI_Init that failed", 0, 0, 0, 0, 0);
	unsetenv("FAKE_INIT_FAILS");
	CHECK(MPI_Init(NULL, NULL) == 0);
	bcast(0);
	COUNTS("after MPI_Init", 1, 0, 0, 1, 0);
	bcast(-1);
	COUNTS("MPI_Bcast that failed", 1, 0, 0, 0, 0);
	CHECK(MPI_Ibcast(NULL, 1, NULL, -1, ompi_mpi_comm_world, &request) == 1);
	COUNTS("MPI_Ibcast that failed", 0, 1, 1, 0, 0);
	CHECK(MPI_Ibcast(NULL, 1, NULL, 0, ompi_mpi_comm_world, &request) == 0);
	COUNTS("MPI_Ibcast", 0, 1, 0, 0, 0);
	MPI_Finalize();
	COUNTS("MPI_Finalize with a request left", 0, 0, 1, 0, 1);
	bcast(0);
	COUNTS("after MPI_Finalize", 0, 0, 0, 0, 0);
	return check_end();
}

#ifndef PLUGIN
int main(void)
{
	return run();
}
#endif

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * An MPI library that does nothing: for cases that a real one cannot produce (fail
 * in MPI_Init, give a handle out again at once), and for the cost of the shim alone.
 */
#ifndef FAKE_MPI_H
#define FAKE_MPI_H

extern char ompi_mpi_comm_world[64]; /* its address is the handle */
extern char ompi_request_null[64];

extern _Thread_local int fake_calls;

int MPI_Init(int *argc, char ***argv); /* fails if FAKE_INIT_FAILS is set */
int MPI_Finalize(void);
int MPI_Bcast(void *data, int count, void *type, int root, void *comm); /* root < 0: fails */
int MPI_Ibcast(void *data, int count, void *type, int root, void *comm, void **request);
int MPI_Wait(void **request, void *status);
int MPI_Comm_free(void **comm);

#endif

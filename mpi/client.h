/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * libpaceline, which is loaded when MPI has been initialised and not before: the shim
 * is in programs that have nothing to do with MPI, and with another C library.
 */
#ifndef CLIENT_H
#define CLIENT_H

#include <stdbool.h>

/* The functions of include/paceline.h; to be called after client_load() only. */
struct client {
	int (*enter)(unsigned int class_id);
	int (*leave)(void);
	int (*begin)(unsigned int class_id);
	int (*end)(int token);
	int (*class_new)(void);
	int (*class_free)(unsigned int class_id);
	int (*active)(void);
};

extern struct client client;

/* False: no usable library was found. */
bool client_load(void);

#endif

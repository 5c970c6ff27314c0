/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Each test program: check_begin(), CHECK()s, and check_end() as its exit status. */
#ifndef CHECK_H
#define CHECK_H

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "stub.h"

static int check_failures;
static struct stub_counts check_before;

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
			check_failures++; \
		} \
	} while (0)

/* Without the shim a test that expects nothing to happen would pass. */
static inline void check_begin(void)
{
	void *first = dlsym(RTLD_DEFAULT, "MPI_Bcast");
	Dl_info info = { 0 };

	CHECK(first && dladdr(first, &info) && strstr(info.dli_fname, "libpaceline-mpi.so"));
	stub_read(&check_before);
}

/* What has been counted since it was last asked; `inside` and `last_class` as they are. */
static inline struct stub_counts check_since(void)
{
	struct stub_counts now, since;

	stub_read(&now);
	since = now;
	since.enters -= check_before.enters;
	since.leaves -= check_before.leaves;
	since.begins -= check_before.begins;
	since.ends -= check_before.ends;
	since.news -= check_before.news;
	since.frees -= check_before.frees;
	check_before = now;
	return since;
}

/* Prints the place and the counts if they differ, and counts a failure. */
static inline void check_counts(const char *file, int line, const char *what, int enters,
				int begins, int ends, int news, int frees)
{
	struct stub_counts since = check_since();

	if (since.enters == enters && since.leaves == enters && since.begins == begins &&
	    since.ends == ends && since.news == news && since.frees == frees)
		return;
	fprintf(stderr,
		"%s:%d: %s: enters %d leaves %d begins %d ends %d news %d frees %d, "
		"expected %d %d %d %d %d %d\n",
		file, line, what, since.enters, since.leaves, since.begins, since.ends, since.news,
		since.frees, enters, enters, begins, ends, news, frees);
	check_failures++;
}

#define COUNTS(what, enters, begins, ends, news, frees) \
	check_counts(__FILE__, __LINE__, what, enters, begins, ends, news, frees)

static inline int check_end(void)
{
	struct stub_counts now;

	stub_read(&now);
	CHECK(now.errors == 0);
	CHECK(now.inside == 0);
	return check_failures != 0;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A libpaceline that only counts. Tests look at the shim through it. It notices what
 * a caller must not do: leave or end what is not running, use a class that was not
 * given out, free one that is in use.
 */
#ifndef STUB_H
#define STUB_H

#include <stdbool.h>

struct stub_counts {
	int enters, leaves;
	int begins, ends;
	int news, frees; /* of classes */
	int inside; /* entered or begun, and not over */
	int last_class;
	int errors;
};

void stub_read(struct stub_counts *now);

#endif

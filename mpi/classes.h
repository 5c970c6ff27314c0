/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Which phase class a collective is in: one per communicator and kind of
 * collective, made when it is first needed.
 *
 * Classes are few. When they run out, the one that was used longest ago and is in
 * no operation now is freed and taken.
 */
#ifndef CLASSES_H
#define CLASSES_H

#include "words.h"

/* Kinds of collectives that share a path's bandwidth in the same way, and so its state. */
enum kind { ALL_TO_ALL = 1, ONE_TO_MANY, MANY_TO_ONE, ALL_REDUCE, NEIGHBOURHOOD };

#define KIND_BITS 3

/*
 * A communicator and a kind; never 0. The three bits that are shifted out of a
 * pointer are 0, or a hardware tag that does not distinguish objects.
 */
typedef uint64_t class_key;

static inline class_key class_key_of(word comm, enum kind kind)
{
	return (uint64_t)comm << KIND_BITS | kind;
}

static inline int class_key_is_of(class_key key, word comm)
{
	return key >> KIND_BITS == (uint64_t)comm << KIND_BITS >> KIND_BITS;
}

#define NO_PLACE -1

/*
 * The place of the key's class, which stays its own until it is released, or
 * NO_PLACE if all are in use.
 */
int classes_acquire(class_key key);
void classes_release(int place);

/* The number to give to paceline_enter(); only between acquire and release. */
unsigned int classes_number(int place);

/* Frees a communicator's classes; classes in use are freed at their last release. */
void classes_forget(word comm);
void classes_forget_all(void);

#endif

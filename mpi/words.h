/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Arguments of functions whose types are not known.
 *
 * One shim serves MPI libraries whose handles differ: pointers in Open MPI, ints
 * in MPICH. So it includes no mpi.h, and a wrapper takes each argument as one word
 * and passes the same words on. None of the wrapped functions has a variable
 * number of arguments, or takes or returns floating point or a structure by value.
 * For the rest that is right wherever an argument takes a whole register or a whole
 * 8-byte stack slot, be it an int, a pointer or an MPI_Count, as on Linux:
 *
 * - x86-64 psABI, 3.2.3: integers and pointers are of class INTEGER, and the size
 *   of each argument on the stack is rounded up to 8 bytes;
 * - AAPCS64, 6.8.2, rules C.9 to C.17: the same, with x0 to x7 and slots of 8 bytes.
 *   (Apple's variant packs the stack: it is not supported.)
 *
 * Both leave the upper half of an int's word undefined. Passing the word on
 * preserves all bits that the callee may use; readers of an int must narrow it first.
 */
#ifndef WORDS_H
#define WORDS_H

#include <stdint.h>

#if !defined(__linux__) || !defined(__LP64__) || !(defined(__x86_64__) || defined(__aarch64__)) || \
	__BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "words.h: the calling convention is known for Linux on LP64 x86-64 and aarch64 only"
#endif

typedef uintptr_t word;

_Static_assert(sizeof(word) == 8 && sizeof(int) == 4, "see above");

/* An entry point; all else is hidden (-fvisibility=hidden). */
#define EXPORT __attribute__((visibility("default")))

#define INT_AT(address) (*(const int *)(address))

#define PARAMETERS_1 word a1
#define PARAMETERS_2 PARAMETERS_1, word a2
#define PARAMETERS_3 PARAMETERS_2, word a3
#define PARAMETERS_4 PARAMETERS_3, word a4
#define PARAMETERS_5 PARAMETERS_4, word a5
#define PARAMETERS_6 PARAMETERS_5, word a6
#define PARAMETERS_7 PARAMETERS_6, word a7
#define PARAMETERS_8 PARAMETERS_7, word a8
#define PARAMETERS_9 PARAMETERS_8, word a9

#define ARGUMENTS_1 a1
#define ARGUMENTS_2 ARGUMENTS_1, a2
#define ARGUMENTS_3 ARGUMENTS_2, a3
#define ARGUMENTS_4 ARGUMENTS_3, a4
#define ARGUMENTS_5 ARGUMENTS_4, a5
#define ARGUMENTS_6 ARGUMENTS_5, a6
#define ARGUMENTS_7 ARGUMENTS_6, a7
#define ARGUMENTS_8 ARGUMENTS_7, a8
#define ARGUMENTS_9 ARGUMENTS_8, a9

#endif

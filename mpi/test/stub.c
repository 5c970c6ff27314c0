/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "stub.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "paceline.h"

#define TOKENS 4096
#define NESTED 64

static struct stub_counts counts;
static struct { bool given; int inside; } classes[PACELINE_CLASSES];
static int tokens[TOKENS]; /* class, 0: free */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local unsigned int entered[NESTED];
static _Thread_local int depth;

static void into(unsigned int class_id)
{
	if (class_id == 0 || class_id >= PACELINE_CLASSES || !classes[class_id].given)
		counts.errors++;
	else
		classes[class_id].inside++;
	counts.last_class = (int)class_id;
	counts.inside++;
}

static void out_of(unsigned int class_id)
{
	if (class_id >= PACELINE_CLASSES || classes[class_id].inside-- <= 0)
		counts.errors++;
	counts.inside--;
}

int paceline_enter(unsigned int class_id)
{
	pthread_mutex_lock(&lock);
	counts.enters++;
	into(class_id);
	entered[depth++] = class_id;
	pthread_mutex_unlock(&lock);
	return 0;
}

int paceline_leave(void)
{
	pthread_mutex_lock(&lock);
	counts.leaves++;
	if (depth == 0)
		counts.errors++;
	else
		out_of(entered[--depth]);
	pthread_mutex_unlock(&lock);
	return 0;
}

int paceline_begin(unsigned int class_id)
{
	int token;

	pthread_mutex_lock(&lock);
	counts.begins++;
	into(class_id);
	for (token = 0; token < TOKENS && tokens[token]; token++)
		;
	if (token == TOKENS)
		abort();
	tokens[token] = (int)class_id;
	pthread_mutex_unlock(&lock);
	return token;
}

int paceline_end(int token)
{
	pthread_mutex_lock(&lock);
	counts.ends++;
	if (token < 0 || token >= TOKENS || !tokens[token]) {
		counts.errors++;
	} else {
		out_of((unsigned int)tokens[token]);
		tokens[token] = 0;
	}
	pthread_mutex_unlock(&lock);
	return 0;
}

int paceline_class_new(void)
{
	int class_id;

	pthread_mutex_lock(&lock);
	for (class_id = PACELINE_CLASSES - 1; class_id > 0; class_id--)
		if (!classes[class_id].given)
			break;
	if (class_id > 0) {
		classes[class_id].given = true;
		counts.news++;
	} else {
		class_id = PACELINE_EFULL;
	}
	pthread_mutex_unlock(&lock);
	return class_id;
}

int paceline_class_free(unsigned int class_id)
{
	pthread_mutex_lock(&lock);
	counts.frees++;
	if (class_id == 0 || class_id >= PACELINE_CLASSES || !classes[class_id].given ||
	    classes[class_id].inside)
		counts.errors++;
	else
		classes[class_id].given = false;
	pthread_mutex_unlock(&lock);
	return 0;
}

int paceline_active(void)
{
	const char *value = getenv("STUB_INACTIVE");

	return !value;
}

void stub_read(struct stub_counts *now)
{
	pthread_mutex_lock(&lock);
	*now = counts;
	pthread_mutex_unlock(&lock);
}

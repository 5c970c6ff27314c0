/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A hash table of requests by handle, under one lock.
 *
 * A handle is looked up before the library completes it, not after: another thread may
 * get the same value for its next request as soon as it is free. The calling thread
 * claims the request, until it is settled. If a new request has a handle that is in the
 * table, then the old one is complete in some other way, and is removed.
 *
 *                 track            start
 *     nonblocking ----> running    idle ----> running     persistent
 *                       | settle     <--------   |
 *                       v                settle  | forget
 *                      gone                      v gone
 */
#include "requests.h"

#include <pthread.h>
#include <stdlib.h>

#define BUCKETS 1024 /* 8 KiB; programs that have this many collectives in flight are rare */

struct request {
	struct request *next; /* in the bucket */
	struct request *next_claimed;
	word handle;
	class_key key; /* of a persistent one; 0 after its communicator was freed */
	struct running running;
	int position; /* in the array of the call that has claimed it */
	bool persistent;
	bool claimed;
	bool in_table;
};

atomic_uint requests_tracked;
atomic_uint requests_running;

static struct request *buckets[BUCKETS];
static struct request *spare; /* linked by `next`; never given back */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Written under the lock only: a load and a store are enough, without a locked addition. */
static void count(atomic_uint *counter, unsigned int change)
{
	atomic_store_explicit(counter,
			      atomic_load_explicit(counter, memory_order_relaxed) + change,
			      memory_order_relaxed);
}

/* Fibonacci hashing: handles are aligned pointers, or small numbers below a tag. */
static struct request **bucket_of(word handle)
{
	return &buckets[((uint64_t)handle * 0x9e3779b97f4a7c15u) >> 32 & (BUCKETS - 1)];
}

static struct request *find(word handle)
{
	struct request *request = *bucket_of(handle);

	while (request && request->handle != handle)
		request = request->next;
	return request;
}

static void take_out(struct request *request)
{
	struct request **link = bucket_of(request->handle);

	while (*link != request)
		link = &(*link)->next;
	*link = request->next;
	request->in_table = false;
	count(&requests_tracked, -1u);
}

static void set_running(struct request *request, const struct running *running)
{
	request->running = *running;
	if (running->token >= 0)
		count(&requests_running, 1);
}

static void end(struct request *request)
{
	if (request->running.token < 0)
		return;
	phase_end(&request->running);
	request->running.token = -1;
	count(&requests_running, -1u);
}

static void put_aside(struct request *request)
{
	request->next = spare;
	spare = request;
}

/* The claiming thread ends a request and puts it aside. */
static void drop(struct request *request)
{
	take_out(request);
	if (request->claimed)
		return;
	end(request);
	put_aside(request);
}

static struct request *add(word handle)
{
	struct request **bucket = bucket_of(handle);
	struct request *request = find(handle);

	if (request)
		drop(request);
	request = spare ? spare : malloc(sizeof(*request));
	if (!request)
		return NULL;
	if (request == spare)
		spare = request->next;
	*request = (struct request){
		.next = *bucket, .handle = handle, .running.token = -1, .in_table = true,
	};
	*bucket = request;
	count(&requests_tracked, 1);
	return request;
}

struct running requests_begin(word comm, enum kind kind)
{
	phase_nested = true;
	return phase_begin(class_key_of(comm, kind));
}

void requests_begun(const struct running *running, int result, struct handles made)
{
	struct request *request = NULL;

	phase_nested = false;
	if (running->token < 0)
		return;
	if (result == 0) {
		pthread_mutex_lock(&lock);
		request = add(handle_at(made, 0));
		if (request)
			set_running(request, running);
		pthread_mutex_unlock(&lock);
	}
	if (!request)
		phase_end(running);
}

void requests_make(void)
{
	phase_nested = true;
}

void requests_made(word comm, enum kind kind, int result, struct handles made)
{
	struct request *request;

	phase_nested = false;
	if (result != 0)
		return;
	pthread_mutex_lock(&lock);
	request = add(handle_at(made, 0));
	if (request) {
		request->persistent = true;
		request->key = class_key_of(comm, kind);
	}
	pthread_mutex_unlock(&lock);
}

/* One that is claimed is being waited for: to start it now is the program's error. */
static struct request *find_startable(struct handles handles, int i)
{
	struct request *request = find(handle_at(handles, i));

	return request && request->persistent && !request->claimed ? request : NULL;
}

void requests_start(struct handles handles, int count)
{
	int i;

	phase_nested = true;
	pthread_mutex_lock(&lock);
	for (i = 0; i < count; i++) {
		struct request *request = find_startable(handles, i);
		struct running running;

		if (!request)
			continue;
		end(request); /* if its completion was not seen */
		if (!request->key)
			continue;
		running = phase_begin(request->key);
		set_running(request, &running);
	}
	pthread_mutex_unlock(&lock);
}

void requests_started(struct handles handles, int count, int result)
{
	int i;

	phase_nested = false;
	if (result == 0)
		return;
	pthread_mutex_lock(&lock);
	for (i = 0; i < count; i++) {
		struct request *request = find_startable(handles, i);

		if (request)
			end(request);
	}
	pthread_mutex_unlock(&lock);
}

bool requests_claim(struct claims *claims, struct handles handles, int count)
{
	struct request *first = NULL;
	int i;

	pthread_mutex_lock(&lock);
	for (i = 0; i < count; i++) {
		struct request *request = find(handle_at(handles, i));

		if (!request || request->claimed || request->running.token < 0)
			continue;
		request->claimed = true;
		request->position = i;
		request->next_claimed = first;
		first = request;
	}
	pthread_mutex_unlock(&lock);
	*claims = (struct claims){ first, handles, count };
	return first != NULL;
}

/*
 * The library replaces the handle of a freed request by a null handle. Only where a
 * handle stays, as of a persistent request, the rest of the outcome decides: so little
 * depends on positions, which MPICH 4.0 counts from 0 in mpi_f08.
 */
static bool is_complete(const struct request *request, const struct claims *claims,
			const struct outcome *outcome)
{
	int i;

	if (!request->in_table || handle_at(claims->handles, request->position) != request->handle)
		return true;
	if (!request->persistent)
		return false;
	for (i = 0; i < outcome->listed && outcome->listed <= claims->count; i++)
		if (outcome->list[i] - outcome->base == request->position)
			return true;
	return outcome->all;
}

void requests_settle(const struct claims *claims, const struct outcome *outcome)
{
	struct request *request, *next;

	pthread_mutex_lock(&lock);
	for (request = claims->first; request; request = next) {
		next = request->next_claimed;
		request->claimed = false;
		if (!is_complete(request, claims, outcome))
			continue;
		end(request);
		if (request->persistent && request->in_table)
			continue;
		if (request->in_table)
			take_out(request);
		put_aside(request);
	}
	pthread_mutex_unlock(&lock);
}

void requests_forget(struct handles handle)
{
	struct request *request;

	pthread_mutex_lock(&lock);
	request = find(handle_at(handle, 0));
	if (request)
		drop(request);
	pthread_mutex_unlock(&lock);
}

void requests_forget_comm(word comm)
{
	struct request *request;
	int i;

	pthread_mutex_lock(&lock);
	for (i = 0; i < BUCKETS; i++)
		for (request = buckets[i]; request; request = request->next)
			if (class_key_is_of(request->key, comm))
				request->key = 0;
	pthread_mutex_unlock(&lock);
}

void requests_end_all(void)
{
	int i;

	pthread_mutex_lock(&lock);
	for (i = 0; i < BUCKETS; i++)
		while (buckets[i])
			drop(buckets[i]);
	pthread_mutex_unlock(&lock);
}

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Places are found without a lock. `keys` is dense and at most 63 long, and a
 * process uses its first few: walking it costs less than a hash table that must
 * allow deletion, and a thread's last place is tried first.
 *
 * A reader pins a place and then checks its key again; an eviction clears the key and then
 * checks the pins. Both are sequentially consistent, so at least one of the two sees the
 * other, and a pinned place with the right key keeps its class. Everything but pinning is
 * done under the lock.
 *
 *     key != 0               in the table; has a class
 *     key == 0, class != 0   forgotten while in use: freed when released last
 *     key == 0, class == 0   empty; no place has Paceline's class 0
 */
#include "classes.h"

#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "client.h"
#include "paceline.h"

#define PLACES (PACELINE_CLASSES - 1)
#define CACHE_LINE 64

static _Atomic class_key keys[PLACES];

static struct place {
	alignas(CACHE_LINE) atomic_uint pins; /* alone in its line: written at each use */
	atomic_ulong last_used; /* by `now` */
	int class; /* written under the lock, read there or while pinned */
} places[PLACES];

static atomic_int in_table; /* places from here on were never used */
static atomic_ulong now; /* counts uses */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local int last_place;

static void free_class(struct place *place)
{
	client.class_free((unsigned int)place->class);
	place->class = 0;
}

static void pin(struct place *place)
{
	unsigned long use = atomic_load_explicit(&now, memory_order_relaxed) + 1;

	/* Threads that race lose a count: the order of use need only be about right. */
	atomic_store_explicit(&now, use, memory_order_relaxed);
	atomic_store_explicit(&place->last_used, use, memory_order_relaxed);
	atomic_fetch_add(&place->pins, 1);
}

void classes_release(int i)
{
	struct place *place = &places[i];

	if (atomic_fetch_sub(&place->pins, 1) != 1 || atomic_load(&keys[i]) != 0)
		return;
	pthread_mutex_lock(&lock);
	if (atomic_load(&keys[i]) == 0 && atomic_load(&place->pins) == 0 && place->class)
		free_class(place);
	pthread_mutex_unlock(&lock);
}

static bool pin_if(int i, class_key key)
{
	if (atomic_load_explicit(&keys[i], memory_order_relaxed) != key)
		return false;
	pin(&places[i]);
	if (atomic_load(&keys[i]) == key)
		return true;
	classes_release(i);
	return false;
}

/*
 * Begins after the thread's last place: places are filled in the order of first use,
 * and a program goes through its communicators in much the same order again.
 *
 * Under the lock no key changes, so pin_if() does not come to release there.
 */
static int find(class_key key)
{
	int end = atomic_load_explicit(&in_table, memory_order_acquire);
	int i;

	for (i = last_place + 1; i < end; i++)
		if (pin_if(i, key))
			return i;
	for (i = 0; i < end && i <= last_place; i++)
		if (pin_if(i, key))
			return i;
	return NO_PLACE;
}

/* False if the place turns out to be in use after all. */
static bool evict(int i)
{
	class_key key = atomic_load(&keys[i]);

	atomic_store(&keys[i], 0);
	if (atomic_load(&places[i].pins) != 0) {
		atomic_store(&keys[i], key);
		return false;
	}
	free_class(&places[i]);
	return true;
}

static bool evict_least_recently_used(void)
{
	bool tried[PLACES] = { false };

	for (;;) {
		unsigned long oldest = 0;
		int victim = NO_PLACE;
		int i;

		for (i = 0; i < PLACES; i++) {
			unsigned long used = atomic_load(&places[i].last_used);

			if (tried[i] || !atomic_load(&keys[i]) || atomic_load(&places[i].pins))
				continue;
			if (victim == NO_PLACE || used < oldest) {
				victim = i;
				oldest = used;
			}
		}
		if (victim == NO_PLACE)
			return false;
		if (evict(victim))
			return true;
		tried[victim] = true;
	}
}

static int empty_place(void)
{
	int i;

	for (i = 0; i < PLACES; i++)
		if (!atomic_load(&keys[i]) && !places[i].class)
			return i;
	return NO_PLACE;
}

static int create(class_key key)
{
	int class = client.class_new();
	int i;

	if (class < 0 && evict_least_recently_used())
		class = client.class_new();
	if (class <= 0)
		return NO_PLACE;
	i = empty_place();
	if (i == NO_PLACE) { /* a library with more classes than its header declares */
		client.class_free((unsigned int)class);
		return NO_PLACE;
	}
	places[i].class = class;
	pin(&places[i]);
	atomic_store(&keys[i], key);
	if (i >= atomic_load(&in_table))
		atomic_store_explicit(&in_table, i + 1, memory_order_release);
	return i;
}

int classes_acquire(class_key key)
{
	int i = last_place;

	if (pin_if(i, key))
		return i;
	i = find(key);
	if (i == NO_PLACE) {
		pthread_mutex_lock(&lock);
		i = find(key); /* another thread may have made it */
		if (i == NO_PLACE)
			i = create(key);
		pthread_mutex_unlock(&lock);
	}
	if (i != NO_PLACE)
		last_place = i;
	return i;
}

unsigned int classes_number(int i)
{
	return (unsigned int)places[i].class;
}

static void forget_place(int i)
{
	atomic_store(&keys[i], 0);
	if (atomic_load(&places[i].pins) == 0 && places[i].class)
		free_class(&places[i]);
}

void classes_forget(word comm)
{
	int i;

	pthread_mutex_lock(&lock);
	for (i = 0; i < PLACES; i++) {
		class_key key = atomic_load(&keys[i]);

		if (key && class_key_is_of(key, comm))
			forget_place(i);
	}
	pthread_mutex_unlock(&lock);
}

void classes_forget_all(void)
{
	int i;

	pthread_mutex_lock(&lock);
	for (i = 0; i < PLACES; i++)
		forget_place(i);
	pthread_mutex_unlock(&lock);
}

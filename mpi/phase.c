/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "phase.h"

#include "client.h"

_Thread_local bool phase_nested;

int phase_enter(word comm, enum kind kind)
{
	int place = classes_acquire(class_key_of(comm, kind));

	phase_nested = true;
	if (place != NO_PLACE)
		client.enter(classes_number(place));
	return place;
}

void phase_leave(int place)
{
	phase_nested = false;
	if (place == NO_PLACE)
		return;
	client.leave(); /* also for an enter that counted but did not switch */
	classes_release(place);
}

struct running phase_begin(class_key key)
{
	struct running running = { .place = classes_acquire(key), .token = -1 };

	if (running.place == NO_PLACE)
		return running;
	running.token = client.begin(classes_number(running.place));
	if (running.token < 0)
		classes_release(running.place);
	return running;
}

void phase_end(const struct running *running)
{
	if (running->token < 0)
		return;
	client.end(running->token);
	classes_release(running->place);
}

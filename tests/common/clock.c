// SPDX-License-Identifier: Apache-2.0 OR MIT
// A wall clock that a test steps: the seconds in the file that CLOCK names are added to it. The
// file with .seen behind its name is made when somebody was told a time that was stepped.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long long stepped(void)
{
	const char *name = getenv("CLOCK");
	char text[32] = "", seen[4096];
	int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;

	if (file < 0)
		return 0;
	if (read(file, text, sizeof(text) - 1) < 0)
		text[0] = 0;
	close(file);
	long long by = atoll(text);
	if (by && snprintf(seen, sizeof(seen), "%s.seen", name) < (int)sizeof(seen))
		close(open(seen, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	return by;
}

int clock_gettime(clockid_t clock, struct timespec *at)
{
	int (*next)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
	int result = next(clock, at);

	if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
		at->tv_sec += stepped();
	return result;
}

int gettimeofday(struct timeval *at, void *zone)
{
	int (*next)(struct timeval *, void *) = dlsym(RTLD_NEXT, "gettimeofday");
	int result = next(at, zone);

	if (result == 0)
		at->tv_sec += stepped();
	return result;
}

time_t time(time_t *to)
{
	struct timespec at;

	if (clock_gettime(CLOCK_REALTIME, &at))
		return -1;
	if (to)
		*to = at.tv_sec;
	return at.tv_sec;
}

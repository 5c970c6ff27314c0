/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * sched_yield() that sleeps. A rank that waits for a message calls it again and again
 * (Open MPI: mpi_yield_when_idle), and where many hosts share few CPUs, as in a lab, such
 * ranks leave no idle time, and it would not show whether the CPU or the network limits.
 * Only the lab's programs load this.
 */
#include <sched.h>
#include <time.h>

/* Far below the round trip of a long link, far above the cost of a wake-up. */
#define SLEEP_NS 50000

__attribute__((visibility("default"))) int sched_yield(void)
{
	const struct timespec time = { .tv_nsec = SLEEP_NS };

	nanosleep(&time, NULL);
	return 0;
}

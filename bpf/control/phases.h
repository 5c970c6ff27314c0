/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT */
/*
 * Phases: parameters switched when a program changes its communication pattern,
 * after matsuda-2005, 3.1.
 *
 * A process is in one phase class at a time: 0 while it sends point to point, others
 * in its collectives. The share of a path that a connection gets differs from class
 * to class, and changes at once with the class. So the estimates are kept per class,
 * and a connection whose process has changed the class goes on with that class's.
 *
 * How it differs from the paper:
 * - The paper keeps ssthresh, per connection and for two classes, and forces slow
 *   start at each switch, which starts pacing at the restored ssthresh. Target
 *   `ssthresh` does that, for PL_PHASE_SLOTS classes per connection.
 * - Target `delivery-rate` keeps a whole path per class besides: rate, minimum RTT,
 *   active connections. With nothing in flight the next burst starts at the class's
 *   own rate; with data in flight the window becomes the class's at once, and the
 *   increase is sent paced.
 * - The breaker is the class's own: lossy starts in a collective, where all send at
 *   once, are no sign for starts that are alone on the path.
 * - A class seen for the first time begins as a new connection does, and so does one
 *   whose estimate has expired.
 * - While the base repairs a loss the switch waits: its window then depends on the
 *   loss and on no phase.
 *
 * Bytes of the old phase in the socket's buffer are sent under the new one.
 */
#ifndef PACELINE_PHASES_H
#define PACELINE_PHASES_H

#include "startup.h"

#define PL_PHASE_SLOTS 8 /* classes that one connection remembers: the last ones used */
#define PL_PHASE_CLASS_BITS 8 /* of a phase; above them the generation */

/* A connection's state of a class that it is not in. */
struct pl_phase_slot {
	__u64 left_us; /* when it was left; 0: the slot is free */
	__u64 breaker_until_us; /* the start-up law's, as is the next */
	__u32 bad_row;
	__u32 phase;
	__u32 ssthresh; /* segments; 0: none was set */
};

/* State of one connection. All zero at first: class 0. */
struct pl_phases {
	__u32 phase; /* the phase that the connection is in */
	__u32 switches;
	struct pl_phase_slot slot[PL_PHASE_SLOTS];
};

/* A class out of range is class 0: the page is the program's to write. */
static __always_inline __u32 pl_phase_class(__u32 phase)
{
	__u32 number = phase & ((1u << PL_PHASE_CLASS_BITS) - 1);

	return number < PL_CLASSES ? number : 0;
}

/* A slot for the class that is left: its own, or the one left longest ago. */
static __always_inline __u32 pl_phase_slot_for(const struct pl_phases *phases)
{
	__u32 to = 0;

	for (__u32 i = 0; i < PL_PHASE_SLOTS; i++) {
		if (phases->slot[i].left_us &&
		    pl_phase_class(phases->slot[i].phase) == pl_phase_class(phases->phase))
			return i;
		if (phases->slot[i].left_us < phases->slot[to & (PL_PHASE_SLOTS - 1)].left_us)
			to = i;
	}
	return to & (PL_PHASE_SLOTS - 1);
}

/*
 * The phase of the class before the class got another meaning, if this connection has
 * state of it, which is of no use any more. 0: none.
 */
static __always_inline __u32 pl_phase_stale(const struct pl_phases *phases, __u32 phase)
{
	__u32 stale = 0;

	for (__u32 i = 0; i < PL_PHASE_SLOTS; i++)
		if (phases->slot[i].phase != phase && phases->slot[i].left_us &&
		    pl_phase_class(phases->slot[i].phase) == pl_phase_class(phase))
			stale = phases->slot[i].phase;
	return stale;
}

/*
 * Restores the phase's breaker for the start-up law. Returns the phase's ssthresh, reduced
 * by its age; 0 when it is not known.
 */
static __always_inline __u32 pl_phase_restore(const struct pl_phases *phases, __u32 phase, struct pl_start *s,
					      const struct pl_policy *policy, __u64 now_us)
{
	__u32 ssthresh = 0;

	s->breaker_until_us = 0;
	s->bad_row = 0;
	for (__u32 i = 0; i < PL_PHASE_SLOTS; i++) {
		const struct pl_phase_slot *slot = &phases->slot[i];

		if (!slot->left_us || slot->phase != phase)
			continue;
		ssthresh = (__u32)pl_aged(slot->ssthresh, now_us - slot->left_us, policy);
		s->breaker_until_us = slot->breaker_until_us;
		s->bad_row = slot->bad_row;
	}
	return ssthresh > PL_LEAD_SEGS ? ssthresh : 0;
}

/*
 * A connection leaves its class. `path` is the old class's. To be followed by
 * pl_phase_enter, with the new one's.
 */
static __always_inline void pl_phase_leave(struct pl_phases *phases, struct pl_start *s, struct pl_path *path,
					   const struct pl_tcp *tcp, struct pl_orders *orders)
{
	struct pl_phase_slot *slot = &phases->slot[pl_phase_slot_for(phases)];

	slot->left_us = tcp->now_us;
	slot->phase = phases->phase;
	slot->breaker_until_us = s->breaker_until_us;
	slot->bad_row = s->bad_row;
	slot->ssthresh = tcp->ssthresh < PL_NO_SSTHRESH ? tcp->ssthresh : 0;
	pl_keep_learned(s, path, tcp);
	if (!tcp->packets_out)
		pl_incast_learn(s, path, tcp);
	if (s->spread_segs)
		pl_incast_end(s, tcp, orders);
	pl_leave_path(s, path);
	/* The counters that follow are no samples of the old class's messages. */
	s->sent0 = tcp->sent_segs;
	s->retransmitted0 = tcp->retransmitted_segs;
	s->state = tcp->packets_out ? PL_START_BASE : PL_START_IDLE;
	s->learning = 0;
	s->rounds = 0;
	s->paced_segs = 0;
	orders->stop |= s->pacing;
	s->pacing = 0;
	s->refilling = 0;
}

/* And goes on in another one, whose path is `path`. */
static __always_inline void pl_phase_enter(struct pl_phases *phases, __u32 phase, struct pl_start *s,
					   struct pl_path *path, const struct pl_policy *policy,
					   const struct pl_tcp *tcp, struct pl_orders *orders)
{
	__u32 ssthresh = pl_phase_restore(phases, phase, s, policy, tcp->now_us);
	__u64 rate;

	phases->phase = phase;
	phases->switches++;
	if (policy->target == PL_TARGET_SSTHRESH) {
		/* tcp_cwnd_restart() after setting ssthresh: 3.1 */
		orders->ssthresh = ssthresh ? ssthresh : PL_NO_SSTHRESH;
		if (tcp->cwnd > PL_LEAD_SEGS)
			orders->cwnd = PL_LEAD_SEGS;
		return;
	}
	pl_see_first_rtt(path, tcp);
	rate = path->min_rtt_us ? pl_rate_or_forget(path, policy, tcp->now_us) : 0;
	if (!tcp->packets_out) {
		/* The start-up law begins the next burst, and learns an unknown rate. */
		if (!rate) {
			orders->ssthresh = ssthresh ? ssthresh : PL_NO_SSTHRESH;
			if (tcp->cwnd > PL_LEAD_SEGS)
				orders->cwnd = PL_LEAD_SEGS;
		}
		return;
	}
	if (!rate) {
		/* Its windows are the other phase's; the path's rate can be learned. */
		s->learning = 1;
		s->seen_segs = tcp->delivered_segs;
		s->retransmitted0 = tcp->retransmitted_segs;
		s->flight_segs = 0;
		path->block_us = 0;
		return;
	}
	if (tcp->now_us < s->breaker_until_us)
		return;
	pl_join_path(s, path, tcp);
	s->rate_bps = rate;
	s->together = path->active;
	s->share_bps = rate / path->active;
	orders->cwnd = pl_proven_window(path, rate, path->active, tcp);
	orders->ssthresh = orders->cwnd;
	orders->pacing_bps = s->share_bps;
	orders->settled = 1;
	orders->stop = 0;
	s->pacing = 1;
	s->rounds = PL_ROUNDS;
	pl_begin_round(s, path, tcp);
}

#endif

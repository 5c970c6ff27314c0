/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT */
/*
 * When the start-up law (startup.h) is called. It uses the path that a job's connections share,
 * under a lock; most transmissions and ACKs do not need it.
 */
#ifndef PACELINE_WANTED_H
#define PACELINE_WANTED_H

#include "path.h"

/*
 * Whether the law is called for a transmission: at the beginning of a burst, while it is paced,
 * and during the repair of its losses.
 */
static __always_inline int pl_wants_send(const struct pl_start *s, __u32 packets_out, int repairing)
{
	return !packets_out || s->state == PL_START_PACED || (s->state == PL_START_MEASURED && repairing);
}

/*
 * An ACK of a train, `done` segments after the burst's first: the minimum RTT of the train's second half, which
 * lead and probe no longer delay, and when all but the train's last segments had arrived.
 */
static __always_inline void pl_note_train(struct pl_start *s, __u32 done, __u32 rtt_us, __u64 now_us)
{
	if (s->train_acked_us && done < s->last_segs) {
		s->train_took_us = (__u32)(now_us - s->train_acked_us);
		s->train_took_segs = s->delivered0 + done - s->train_acked_segs;
	}
	s->most_rtt_us = pl_more(s->most_rtt_us, rtt_us);
	if (rtt_us && s->train_acked_us && done >= (s->first_segs + s->last_segs) / 2 &&
	    (!s->train_rtt_us || rtt_us < s->train_rtt_us))
		s->train_rtt_us = rtt_us;
}

/*
 * Once lead and probe are measured, an ACK of a train is only noted here (pl_note_train), until
 * its last one. A burst without a train (the paper's target has none) needs the last ACK only.
 */
static __always_inline int pl_wants_of_train(struct pl_start *s, const struct pl_ack *ack)
{
	__u32 done = ack->delivered_segs - s->delivered0;

	if ((s->leading && s->paced_segs >= PL_LEAD_SEGS) || (s->first_us && !s->train_acked_us) || (s->probing && !s->probe_bps) || ack->recovering)
		return 1;
	if (s->rated || !s->first_us ? (__s32)(ack->una - s->paced_end) >= 0 : done >= s->last_segs)
		return 1;
	pl_note_train(s, done, ack->rtt_us, ack->now_us);
	return 0;
}

/*
 * Whether the law is called for an ACK with more in flight. It is not in a bulk transfer under the base
 * algorithm (but for its share of the path), nor once cwnd has been led to an unknown path's rate. A message
 * within the initial window needs the last ACK only. Within a train, and within a round trip that the law
 * follows, an ACK is an RTT sample, noted here without a look at the path.
 */
static __always_inline int pl_wants_ack(struct pl_start *s, const struct pl_ack *ack)
{
	/* A connection without unsent data leaves the path, once. */
	int known = ack->unsent ? s->counted : !s->counted;

	if (s->turn || (!s->learning && pl_update_is_due(s, ack->delivered_segs, ack->una)))
		return 1;
	if (s->state == PL_START_MEASURED)
		return !known || pl_wants_of_train(s, ack);
	if (s->state != PL_START_BASE || s->pacing)
		return 1;
	if (s->learning)
		return s->rounds != PL_LED && (ack->unsent || ack->sent_segs - s->sent0 > PL_LEAD_SEGS);
	if (!s->rounds)
		return !known;
	/* An app-limited round trip is no sample. */
	if (!known || (!ack->unsent && !s->waited))
		return 1;
	pl_note_rtt(s, ack->rtt_us);
	return 0;
}

#endif

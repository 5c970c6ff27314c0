/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT */
/*
 * When the start-up law (startup.h) is to be asked. It looks at what the connections of a
 * job share, behind a lock: for most transmissions and ACKs it has no need to.
 */
#ifndef PACELINE_WANTED_H
#define PACELINE_WANTED_H

#include "path.h"

/*
 * Whether a transmission is of any use to the law: at the beginning of a burst, while it
 * is paced, and where what it lost is sent again.
 */
static __always_inline int pl_wants_send(const struct pl_start *s, __u32 packets_out, int repairing)
{
	return !packets_out || s->state == PL_START_PACED || (s->state == PL_START_MEASURED && repairing);
}

/*
 * Once lead and probe have been measured an ACK of a paced train has its RTT to tell until
 * the train's last one comes, and that only in its second half. It is noted here. Of one
 * without a train (the paper's target has none) the last ACK tells all.
 */
static __always_inline int pl_wants_of_train(struct pl_start *s, const struct pl_ack *ack)
{
	__u32 done = ack->delivered_segs - s->delivered0;

	if ((s->leading && s->paced_segs >= PL_LEAD_SEGS) || (s->first_us && !s->train_acked_us) || (s->probing && !s->probe_bps) || ack->recovering)
		return 1;
	if (s->rated || !s->first_us ? (__s32)(ack->una - s->paced_end) >= 0 : done >= s->last_segs)
		return 1;
	pl_note_train_rtt(s, done, ack->rtt_us);
	return 0;
}

/*
 * Whether an ACK is of any use to the law while more is in flight: in a bulk transfer
 * under the base algorithm there is nothing to measure, nor once a path that is being
 * learned has been led to where it goes. Of a message that left whole in the initial
 * window the last ACK tells all. Within a train, and within a round trip that is followed,
 * an ACK has its RTT to tell, which is noted here, and no more: that spares a look at the
 * path for each.
 */
static __always_inline int pl_wants_ack(struct pl_start *s, const struct pl_ack *ack)
{
	/* Who has sent everything leaves the path, once. */
	int known = ack->unsent ? s->counted : !s->counted;

	if (s->turn || (!s->learning && pl_tells(s, ack->delivered_segs, ack->una)))
		return 1;
	if (s->state == PL_START_MEASURED)
		return !known || pl_wants_of_train(s, ack);
	if (s->state != PL_START_BASE || s->pacing)
		return 1;
	if (s->learning)
		return s->rounds != PL_LED && (ack->unsent || ack->sent_segs - s->sent0 > PL_LEAD_SEGS);
	if (!s->rounds)
		return 0;
	/* A round trip in which there was nothing to send tells nothing. */
	if (!known || (!ack->unsent && !s->waited))
		return 1;
	pl_note_rtt(s, ack->rtt_us);
	return 0;
}

#endif

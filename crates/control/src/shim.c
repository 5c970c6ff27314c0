/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "shim.h"

void paceline_start_before_send(struct pl_start *start, struct pl_path *path, const struct pl_policy *policy,
				const struct pl_tcp *tcp, struct pl_orders *orders)
{
	pl_start_before_send(start, path, policy, tcp, orders);
}

void paceline_start_on_ack(struct pl_start *start, struct pl_path *path, const struct pl_policy *policy,
			   const struct pl_tcp *tcp, struct pl_orders *orders)
{
	pl_start_on_ack(start, path, policy, tcp, orders);
}

void paceline_leave_path(struct pl_start *start, struct pl_path *path)
{
	pl_leave_path(start, path);
}

__u64 paceline_remembered(const struct pl_path *path, const struct pl_policy *policy, __u64 now_us)
{
	return pl_remembered(path, policy, now_us);
}

/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The functions of the control laws, which are inline, as ones to link with. */
#ifndef PACELINE_CONTROL_SHIM_H
#define PACELINE_CONTROL_SHIM_H

#include "control/even.h"
#include "control/phases.h"
#include "control/spacing.h"
#include "control/window_cap.h"

void paceline_start_before_send(struct pl_start *start, struct pl_path *path, const struct pl_policy *policy,
				const struct pl_tcp *tcp, struct pl_orders *orders);
void paceline_start_on_ack(struct pl_start *start, struct pl_path *path, const struct pl_policy *policy,
			   const struct pl_tcp *tcp, struct pl_orders *orders);
void paceline_turn_before_send(struct pl_start *start, struct pl_turn *turn, const struct pl_policy *policy,
			       const struct pl_tcp *tcp, int due, struct pl_orders *orders);
void paceline_turn_on_ack(struct pl_start *start, struct pl_turn *turn, const struct pl_tcp *tcp,
			  struct pl_orders *orders);
void paceline_turn_leave(struct pl_start *start, struct pl_turn *turn, const struct pl_tcp *tcp,
			 struct pl_orders *orders);
__u32 paceline_ssthresh_after_loss(struct pl_start *start, struct pl_path *path,
				   const struct pl_tcp *tcp, __u32 lost_segs, __u32 base);
__u32 paceline_exact_rtt(__u32 rtt_us, __u32 least);
__u32 paceline_led_window(const struct pl_start *start, __u32 cwnd, __u32 ssthresh);
int paceline_wants_ack(struct pl_start *start, const struct pl_tcp *tcp);
int paceline_wants_refill(const struct pl_start *start, const struct pl_tcp *tcp);
void paceline_leave_path(struct pl_start *start, struct pl_path *path);
void paceline_phase_leave(struct pl_phases *phases, struct pl_start *start, struct pl_path *path,
			  const struct pl_tcp *tcp, struct pl_orders *orders);
void paceline_phase_enter(struct pl_phases *phases, __u32 phase, struct pl_start *start, struct pl_path *path,
			  const struct pl_policy *policy, const struct pl_tcp *tcp, struct pl_orders *orders);
__u32 paceline_phase_stale(const struct pl_phases *phases, __u32 phase);
__u32 paceline_phase_class(__u32 phase);
__u64 paceline_remembered(const struct pl_path *path, const struct pl_policy *policy, __u64 now_us);
void paceline_uwnd_add(struct pl_uwnd *to, const struct pl_uwnd *other, __u64 now_us);
__u32 paceline_window_base_cwnd(const struct pl_window *window, __u32 cwnd);
__u32 paceline_window_before_growth(struct pl_window *window, __u32 cwnd);
void paceline_window_before_send(struct pl_window *window, const struct pl_uwnd *uwnd, const struct pl_tcp *tcp,
				 struct pl_orders *orders);
__u32 paceline_window_lost(struct pl_window *window, __u32 cwnd, __u32 packets_out);
__u32 paceline_window_before_ack(const struct pl_window *window, __u32 cwnd);
__u32 paceline_window_after_ack(const struct pl_window *window, __u32 cwnd);
__u32 paceline_window_undo(struct pl_window *window, __u32 cwnd);
void paceline_window_set(struct pl_window *window);
__u64 paceline_spacing_rate(const struct pl_policy *policy, const struct pl_tcp *tcp, int started);
void paceline_even_before_send(struct pl_even *even, struct pl_path *path, const struct pl_tcp *tcp,
			       struct pl_orders *orders);
void paceline_even_lost(struct pl_even *even, struct pl_path *path, __u32 cwnd, __u32 ssthresh);
void paceline_even_undo(struct pl_even *even, struct pl_path *path);
void paceline_even_leave(struct pl_even *even, struct pl_path *path);

#endif

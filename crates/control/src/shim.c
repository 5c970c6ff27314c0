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

void paceline_turn_before_send(struct pl_start *start, struct pl_turn *turn, const struct pl_policy *policy,
			       const struct pl_tcp *tcp, int due, struct pl_orders *orders)
{
	pl_turn_before_send(start, turn, policy, tcp, due, orders);
}

void paceline_turn_on_ack(struct pl_start *start, struct pl_turn *turn, const struct pl_tcp *tcp,
			  struct pl_orders *orders)
{
	pl_turn_on_ack(start, turn, tcp, orders);
}

void paceline_turn_leave(struct pl_start *start, struct pl_turn *turn, const struct pl_tcp *tcp,
			 struct pl_orders *orders)
{
	pl_turn_leave(start, turn, tcp, orders);
}

__u32 paceline_ssthresh_after_loss(struct pl_start *start, struct pl_path *path,
				   const struct pl_tcp *tcp, __u32 lost_segs, __u32 base)
{
	return pl_ssthresh_after_loss(start, path, tcp, lost_segs, base);
}

__u32 paceline_exact_rtt(__u32 rtt_us, __u32 least)
{
	return pl_exact_rtt(rtt_us, least);
}

__u32 paceline_led_window(const struct pl_start *start, __u32 cwnd, __u32 ssthresh)
{
	return pl_led_window(start, cwnd, ssthresh);
}

int paceline_wants_ack(struct pl_start *start, const struct pl_tcp *tcp)
{
	struct pl_ack ack = {
		.now_us = tcp->now_us,
		.una = tcp->una,
		.sent_segs = tcp->sent_segs,
		.delivered_segs = tcp->delivered_segs,
		.rtt_us = tcp->rtt_us,
		.unsent = tcp->unsent,
		.recovering = tcp->recovering,
	};

	return pl_wants_ack(start, &ack);
}

int paceline_wants_refill(const struct pl_start *start, const struct pl_tcp *tcp)
{
	return pl_wants_refill(start, tcp->app_limited, tcp->cwnd, tcp->in_flight, tcp->unsent, tcp->mss);
}

void paceline_leave_path(struct pl_start *start, struct pl_path *path)
{
	pl_leave_path(start, path);
}

void paceline_phase_leave(struct pl_phases *phases, struct pl_start *start, struct pl_path *path,
			  const struct pl_tcp *tcp, struct pl_orders *orders)
{
	pl_phase_leave(phases, start, path, tcp, orders);
}

void paceline_phase_enter(struct pl_phases *phases, __u32 phase, struct pl_start *start, struct pl_path *path,
			  const struct pl_policy *policy, const struct pl_tcp *tcp, struct pl_orders *orders)
{
	pl_phase_enter(phases, phase, start, path, policy, tcp, orders);
}

__u32 paceline_phase_stale(const struct pl_phases *phases, __u32 phase)
{
	return pl_phase_stale(phases, phase);
}

__u32 paceline_phase_class(__u32 phase)
{
	return pl_phase_class(phase);
}

__u64 paceline_remembered(const struct pl_path *path, const struct pl_policy *policy, __u64 now_us)
{
	return pl_remembered(path, policy, now_us);
}

void paceline_uwnd_add(struct pl_uwnd *to, const struct pl_uwnd *other, __u64 now_us)
{
	pl_uwnd_add(to, other, now_us);
}

__u32 paceline_window_base_cwnd(const struct pl_window *window, __u32 cwnd)
{
	return pl_window_base_cwnd(window, cwnd);
}

__u32 paceline_window_before_growth(struct pl_window *window, __u32 cwnd)
{
	return pl_window_before_growth(window, cwnd);
}

void paceline_window_before_send(struct pl_window *window, const struct pl_uwnd *uwnd, const struct pl_tcp *tcp,
				 struct pl_orders *orders)
{
	pl_window_before_send(window, uwnd, tcp, orders);
}

__u32 paceline_window_lost(struct pl_window *window, __u32 cwnd, __u32 packets_out)
{
	return pl_window_lost(window, cwnd, packets_out);
}

__u32 paceline_window_before_ack(const struct pl_window *window, __u32 cwnd)
{
	return pl_window_before_ack(window, cwnd);
}

__u32 paceline_window_after_ack(const struct pl_window *window, __u32 cwnd)
{
	return pl_window_after_ack(window, cwnd);
}

__u32 paceline_window_undo(struct pl_window *window, __u32 cwnd)
{
	return pl_window_undo(window, cwnd);
}

void paceline_window_set(struct pl_window *window)
{
	pl_window_set(window);
}

__u64 paceline_spacing_rate(const struct pl_policy *policy, const struct pl_tcp *tcp, int started)
{
	return pl_spacing_rate(policy, tcp, started);
}

void paceline_even_before_send(struct pl_even *even, struct pl_path *path, const struct pl_tcp *tcp,
			       struct pl_orders *orders)
{
	pl_even_before_send(even, path, tcp, orders);
}

void paceline_even_lost(struct pl_even *even, struct pl_path *path, __u32 cwnd, __u32 ssthresh)
{
	pl_even_lost(even, path, cwnd, ssthresh);
}

void paceline_even_undo(struct pl_even *even, struct pl_path *path)
{
	pl_even_undo(even, path);
}

void paceline_even_leave(struct pl_even *even, struct pl_path *path)
{
	pl_even_leave(even, path);
}

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The control laws on a socket, before a transmission, after an ACK and at a loss.
 *
 * Several laws write cwnd and pacing rate before a transmission. Each overrides those before
 * it:
 *
 *     phases      the parameters of the class that the program is in
 *     start-up    cwnd and pacing rate of a burst that begins; incast and turns with it
 *     even        its part of the path's window, where no start leads it
 *     spacing     the smaller pacing rate of its own and of the start
 *     window cap  the smaller window of its own and of all others; where it lifts, the
 *                 larger one; and the pacing rate of its growth
 *     tuned       a fixed window, or the initial one again; neither goes with the others
 *
 * Phases, start-up, even and spacing leave bursts alone that are held out (counters.h).
 */
#ifndef PACELINE_TRANSMISSION_H
#define PACELINE_TRANSMISSION_H

#include "counters.h"
#include "even_streams.h"
#include "groups.h"
#include "tuned.h"

/*
 * A process gets its page once, when it first enters a class: until then most have
 * none for ever, and looking at each packet costs 1 % of a bulk transfer's CPU time.
 */
#define PL_LOOK_AGAIN_US 1000

static __always_inline int may_have_phases(const struct sock *sk, const struct pl_connection *conn)
{
	return conn->policy.phases && conn->process.process && tcp_sk(sk)->tcp_mstamp >= conn->look_us;
}

/* The phase that the process of a connection is in; 0 where it has none. */
static __always_inline u32 phase_of(struct pl_connection *conn, u64 now_us)
{
	struct pl_phase_page *page;
	u32 zero = 0, phase;
	void *map;

	map = bpf_map_lookup_elem(&pl_pages, &conn->process);
	if (!map)
		conn->look_us = now_us + PL_LOOK_AGAIN_US;
	page = map ? bpf_map_lookup_elem(map, &zero) : NULL;
	/* A class out of range, in memory that is the program's to write, is class 0. */
	phase = page ? *(volatile u32 *)&page->phase : 0;
	return pl_phase_class(phase) ? phase : 0;
}

static __always_inline void leave_turn(struct pl_connection *conn, const struct pl_tcp *tcp, struct pl_orders *orders)
{
	struct pl_turn_slot *slot;

	if (!conn->start.waits && !conn->start.turn)
		return;
	slot = turn_of(conn);
	if (!slot)
		return;
	bpf_spin_lock(&slot->lock);
	pl_turn_leave(&conn->start, &slot->turn, tcp, orders);
	bpf_spin_unlock(&slot->lock);
}

/*
 * Switches to the parameters of the phase that the process is in. Not inlined: its
 * stack is free again when the start-up law runs. Returns 1 when the phase's state
 * set the window.
 */
static __noinline int follow_phase(struct sock *sk, struct pl_connection *conn)
{
	struct pl_orders orders = {};
	struct pl_path_slot *slot;
	u32 phase, stale, place = 0;
	struct pl_tcp tcp;

	phase = phase_of(conn, tcp_sk(sk)->tcp_mstamp);
	if (phase == conn->phases.phase)
		return 0;
	see(sk, conn, &tcp);
	forget_how(&tcp, sizeof(tcp));
	if (tcp.recovering)
		return 0;
	slot = path_of(conn);
	if (!slot)
		return 0;
	leave_turn(conn, &tcp, &orders);
	bpf_spin_lock(&slot->lock);
	pl_phase_leave(&conn->phases, &conn->start, &slot->path, &tcp, &orders);
	pl_even_leave(&conn->even, &slot->path);
	bpf_spin_unlock(&slot->lock);
	stale = pl_phase_stale(&conn->phases, phase);
	if (stale) {
		conn->path.phase = stale;
		place = pl_give_up(conn);
	}
	conn->path.phase = phase;
	slot = place ? pl_make_path(conn, place) : path_of(conn);
	if (slot) {
		bpf_spin_lock(&slot->lock);
		pl_phase_enter(&conn->phases, phase, &conn->start, &slot->path, &conn->policy, &tcp, &orders);
		bpf_spin_unlock(&slot->lock);
	}
	forget_how(&orders, sizeof(orders));
	apply_orders(sk, conn, &orders);
	return orders.settled;
}

/* Returns 1 when a phase's state set the window. `repairs`: as of before_send. */
static __always_inline int start_before_send(struct sock *sk, struct pl_connection *conn, bool repairs)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	struct pl_orders orders = {};
	struct pl_path_slot *slot;
	struct pl_tcp tcp;
	int settled = 0;

	if (may_have_phases(sk, conn))
		settled = follow_phase(sk, conn);
	repairs = repairs && is_repairing(tcp_sk(sk), conn);
	if (!pl_wants_send(&conn->start, tp->packets_out, repairs) &&
	    !pl_wants_refill(&conn->start, tp->app_limited != 0, tp->snd_cwnd, in_flight(tp),
			     tp->write_seq - tp->snd_nxt, tp->mss_cache))
		return settled;
	slot = path_of(conn);
	if (!slot)
		return settled;
	see(sk, conn, &tcp);
	tcp.repairing = repairs;
	forget_how(&tcp, sizeof(tcp));
	bpf_spin_lock(&slot->lock);
	pl_start_before_send(&conn->start, &slot->path, &conn->policy, &tcp, &orders);
	bpf_spin_unlock(&slot->lock);
	forget_how(&orders, sizeof(orders));
	if (conn->start.turn_sent || conn->start.turn_first || conn->start.turn_wants || conn->start.waits) {
		struct pl_turn_slot *turn = turn_of(conn);

		if (turn) {
			bpf_spin_lock(&turn->lock);
			pl_turn_before_send(&conn->start, &turn->turn, &conn->policy, &tcp, is_due(sk), &orders);
			bpf_spin_unlock(&turn->lock);
		}
	}
	apply_orders(sk, conn, &orders);
	/* A message whose turn has come is not paced any more. */
	if (conn->stopping)
		stop_pacing(sk, conn);
	return settled;
}

/* Spaces the packets that follow, as the policy asks. */
static __noinline int space(struct sock *sk, struct pl_connection *conn)
{
	bool paced = conn->start.pacing || conn->policy.base == PL_BASE_BBR;
	struct pl_tcp tcp;
	u64 rate;

	see(sk, conn, &tcp);
	rate = pl_spacing_rate(&conn->policy, &tcp, paced);
	if (!rate) {
		if (conn->spaced) {
			conn->spaced = 0;
			conn->spacing_bps = 0;
			end_pace(conn);
		}
		return 0;
	}
	if (paced && sk->sk_pacing_rate < rate)
		rate = sk->sk_pacing_rate;
	conn->spaced = 1;
	conn->spacing_bps = rate;
	pace(sk, conn, rate);
	return 0;
}

/* Updates this connection's entry in its group. */
static __always_inline void sample(const struct sock *sk, struct pl_connection *conn)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	struct pl_member *member;

	if (tp->packets_out && tp->tcp_mstamp - conn->sampled_us < PL_SAMPLE_US)
		return;
	conn->sampled_us = tp->tcp_mstamp;
	member = pl_member_of(conn);
	if (!member)
		return;
	member->acked_bytes = tp->bytes_acked;
	member->inflight_segs = in_flight(tp);
	member->cwnd_segs = pl_window_base_cwnd(&conn->window, tp->snd_cwnd);
	member->uwnd_segs = conn->window.base_cwnd ? conn->window.effective_cwnd : 0;
	member->mss = tp->mss_cache;
	member->srtt_us = tp->srtt_us >> 3;
	member->retransmitted_segs = tp->total_retrans;
}

/* Applies the group's bounds to the window. Returns 1 when the base may grow again. */
static __noinline int bound(struct sock *sk, struct pl_connection *conn)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct pl_orders orders = {};
	struct pl_uwnd uwnd = {};
	struct pl_tcp tcp;

	pl_bounds_of(conn, tp->tcp_mstamp, &uwnd);
	if (uwnd.min_segs || uwnd.max_segs || conn->window.ceiling) {
		see(sk, conn, &tcp);
		pl_window_before_send(&conn->window, &uwnd, &tcp, &orders);
		tp->snd_cwnd = orders.cwnd < tp->snd_cwnd_clamp ? orders.cwnd : tp->snd_cwnd_clamp;
		/* BBR sets its own pacing rate, and would measure any other as the path's. */
		if (orders.pacing_bps && conn->policy.base != PL_BASE_BBR)
			pace(sk, conn, orders.pacing_bps);
		if (orders.stop)
			end_pace(conn);
	}
	sample(sk, conn);
	return orders.settled;
}

/* After an ACK, before the base handles it. */
static __noinline int after_ack_in_group(struct sock *sk, struct pl_connection *conn)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u32 base_cwnd = pl_window_before_ack(&conn->window, tp->snd_cwnd);

	sample(sk, conn);
	if (base_cwnd != tp->snd_cwnd)
		tp->snd_cwnd = base_cwnd;
	return 0;
}

/*
 * After the base has handled an ACK of a connection in a group. A loss that it reports is a
 * loss of the effective cwnd.
 */
static __always_inline void end_ack(struct sock *sk, struct pl_connection *conn)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u32 effective_cwnd = pl_window_after_ack(&conn->window, tp->snd_cwnd);

	if (effective_cwnd != tp->snd_cwnd)
		tp->snd_cwnd = effective_cwnd;
}

/* The base is about to grow. Returns false where it may not. */
static __always_inline bool before_growth(struct sock *sk)
{
	struct pl_connection *conn = governed(sk);
	struct tcp_sock *tp = tcp_sk(sk);
	u32 base_cwnd;

	if (conn && conn->even.since_us && !tp->packets_out && tp->write_seq == tp->snd_nxt)
		leave_even(conn);
	/* A connection with a fixed window is in no group. */
	if (!conn || !conn->slot)
		return !conn || !conn->policy.window_fixed_segs;
	base_cwnd = pl_window_before_growth(&conn->window, tp->snd_cwnd);
	if (base_cwnd != tp->snd_cwnd)
		tp->snd_cwnd = base_cwnd;
	return true;
}

/*
 * Where a queue is shorter than the packets that the stack makes: their length is a part of the
 * socket's pacing rate, whether it paces or not (tcp_tso_autosize). The kernel sets that rate
 * again with the next ACK.
 */
static __always_inline void shorten_packets(struct sock *sk, const struct pl_connection *conn)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u64 rate = (u64)conn->start.packet_segs * tp->mss_cache << PL_PACKET_SHIFT;
	u32 window = pl_led_window(&conn->start, tp->snd_cwnd, tp->snd_ssthresh);

	if (window != tp->snd_cwnd && !conn->slot && !is_even(conn))
		tp->snd_cwnd = window;
	if (rate && sk->sk_pacing_status == SK_PACING_NONE && rate < sk->sk_pacing_rate)
		sk->sk_pacing_rate = rate;
}

/*
 * Returns 1 when the base is to count from its window: a phase's state set it, or it may
 * grow again. `repairs`: the base repairs losses by PRR, which the start-up law may hasten;
 * BBR does not.
 */
static __always_inline int before_send(struct sock *sk, bool repairs)
{
	struct pl_connection *conn = governed(sk);
	int settled = 0;

	if (!conn)
		return 0;
	if (conn->stopping)
		stop_pacing(sk, conn);
	pl_see_send(conn, tcp_sk(sk));
	if (has_start(conn) && !conn->counted.held)
		settled = start_before_send(sk, conn, repairs);
	if (is_even(conn))
		share_evenly(sk, conn);
	if ((conn->policy.clustered || conn->policy.gap_bytes) && !conn->counted.held)
		space(sk, conn);
	if (conn->slot)
		settled |= bound(sk, conn);
	if (conn->policy.tuned)
		tune_before_send(sk, conn);
	if (has_start(conn) && !conn->counted.held)
		shorten_packets(sk, conn);
	return settled;
}

/* RTT of the acknowledged segment; 0 where it is not known. */
static __always_inline u32 rtt_of(const struct pl_connection *conn, const struct ack_sample *sample)
{
	return sample->rtt_us > 0 ? pl_exact_rtt(sample->rtt_us, conn->start.min_rtt_us) : 0;
}

static __always_inline struct pl_ack see_ack(const struct tcp_sock *tp, const struct pl_connection *conn,
					     const struct ack_sample *sample)
{
	return (struct pl_ack){
		.now_us = tp->tcp_mstamp,
		.una = tp->snd_una,
		.sent_segs = tp->data_segs_out,
		.delivered_segs = tp->delivered,
		.rtt_us = rtt_of(conn, sample),
		.unsent = tp->write_seq - tp->snd_nxt,
		.recovering = ca_state(tp) >= TCP_CA_CWR,
	};
}

/* Returns 1 when a paced start, or a state of a phase, set the window. */
static __always_inline int start_after_ack(struct sock *sk, struct pl_connection *conn,
					   const struct ack_sample *sample)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	struct pl_orders orders = {};
	struct pl_path_slot *slot;
	struct pl_tcp tcp;

	if (may_have_phases(sk, conn))
		orders.settled = follow_phase(sk, conn);
	if (tp->packets_out) {
		struct pl_ack ack = see_ack(tp, conn, sample);

		if (!pl_wants_ack(&conn->start, &ack))
			return orders.settled;
	}
	slot = bpf_map_lookup_elem(&pl_paths, &conn->path);
	if (!slot)
		return orders.settled;
	see(sk, conn, &tcp);
	tcp.rtt_us = rtt_of(conn, sample);
	forget_how(&tcp, sizeof(tcp));
	bpf_spin_lock(&slot->lock);
	pl_start_on_ack(&conn->start, &slot->path, &conn->policy, &tcp, &orders);
	bpf_spin_unlock(&slot->lock);
	forget_how(&orders, sizeof(orders));
	if (conn->start.waits || conn->start.turn) {
		struct pl_turn_slot *turn = turn_of(conn);

		if (turn) {
			bpf_spin_lock(&turn->lock);
			pl_turn_on_ack(&conn->start, &turn->turn, &tcp, &orders);
			bpf_spin_unlock(&turn->lock);
			forget_how(&orders, sizeof(orders));
		}
	}
	apply_orders(sk, conn, &orders);
	return orders.settled;
}

/* Returns 1 when a paced start, or a state of a phase, set the window. */
static __always_inline int after_ack(struct sock *sk, struct pl_connection *conn, const struct ack_sample *sample)
{
	int settled = 0;

	/* The burst's end comes first: else the verifier follows it once for each path through the laws. */
	if (conn->counted.held) {
		pl_see_ack(conn, tcp_sk(sk));
	} else {
		pl_see_ack(conn, tcp_sk(sk));
		if (has_start(conn))
			settled = start_after_ack(sk, conn, sample);
	}
	if (conn->slot)
		after_ack_in_group(sk, conn);
	if (conn->policy.tuned)
		tune_after_ack(sk, conn);
	return settled;
}

/* An ACK that the base does not see. */
static __always_inline void ack_alone(struct sock *sk, const struct ack_sample *sample)
{
	struct pl_connection *conn = governed(sk);

	if (!conn)
		return;
	after_ack(sk, conn, sample);
	if (conn->slot)
		end_ack(sk, conn);
}

/* A loss, before the base reduces its window. */
static __always_inline void before_loss(struct sock *sk)
{
	struct pl_connection *conn = governed(sk);
	struct tcp_sock *tp = tcp_sk(sk);

	if (conn && (conn->slot || conn->window.base_cwnd))
		tp->snd_cwnd = pl_window_lost(&conn->window, tp->snd_cwnd, tp->packets_out);
}

/* ssthresh after a loss, where the base would set it to `base`. */
static __always_inline u32 after_loss(struct sock *sk, u32 base)
{
	struct pl_connection *conn = governed(sk);
	struct pl_path_slot *slot;
	u32 ssthresh = base;
	struct pl_tcp tcp;

	if (!conn)
		return base;
	slot = bpf_map_lookup_elem(&pl_paths, &conn->path);
	if (slot && conn->policy.target == PL_TARGET_DELIVERY_RATE && !conn->counted.held) {
		see(sk, conn, &tcp);
		tcp.rtt_us = tcp_sk(sk)->rack.rtt_us;
		/* Reads words of the path and writes two, each by itself: no lock. */
		ssthresh = pl_ssthresh_after_loss(&conn->start, &slot->path, &tcp, tcp_sk(sk)->lost_out, base);
	}
	if (conn->even.since_us)
		lose_evenly(sk, conn, ssthresh);
	return ssthresh;
}

/* The window that an undo restores, where the base restores `base`. */
static __always_inline u32 after_undo(struct sock *sk, u32 base)
{
	struct pl_connection *conn = governed(sk);

	if (conn && conn->even.since_us)
		lose_evenly(sk, conn, 0);
	return conn && conn->slot ? pl_window_undo(&conn->window, base) : base;
}

/* Notes tp->delivered at a timeout: only later deliveries show that the path works. */
static __always_inline void note_state(struct sock *sk, u8 new_state)
{
	struct pl_connection *conn;

	if (new_state != TCP_CA_Loss)
		return;
	conn = governed(sk);
	if (!conn)
		return;
	/* A connection that came under the policy later has no other count of timeouts. */
	if (!conn->counted.watched)
		pl_count_timeout(conn);
	if (!has_start(conn) || conn->counted.held)
		return;
	conn->loss_segs = tcp_sk(sk)->delivered;
	conn->start.timeouts++;
}

static __always_inline void leave(struct sock *sk)
{
	struct pl_connection *conn = governed(sk);
	struct pl_orders unheeded = {};
	struct pl_path_slot *slot;
	struct pl_tcp tcp;

	if (!conn)
		return;
	pl_fold_all(conn, tcp_sk(sk));
	conn->counted.burst_us = 0;
	conn->counted.held = 0;
	if (conn->slot)
		pl_leave_group(conn);
	see(sk, conn, &tcp);
	leave_turn(conn, &tcp, &unheeded);
	slot = bpf_map_lookup_elem(&pl_paths, &conn->path);
	if (slot) {
		bpf_spin_lock(&slot->lock);
		pl_leave_path(&conn->start, &slot->path);
		pl_even_leave(&conn->even, &slot->path);
		bpf_spin_unlock(&slot->lock);
	}
	if (conn->own_pacing)
		give_pacing_back(sk, conn);
	tune_end(sk, conn);
}

#endif

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Congestion controls that wrap the kernel's own CUBIC, Reno and BBR.
 *
 * Congestion avoidance, recovery and slow start are unchanged: each callback
 * goes straight to the kernel's function. Paceline adds two hooks:
 * before a transmission (min_tso_segs, called ahead of each transmit loop) the
 * start-up law may set window and pace; after an ACK (pkts_acked, called for
 * each ACK, SACKs too) it measures. A socket without a Paceline job behaves as
 * under the wrapped algorithm alone.
 */
#include "transmission.h"

/*
 * Weak: a kernel may lack some, BBR may be a module that is not loaded. The kernel refuses a
 * program that calls a missing one, and only the congestion control with it.
 */
extern void cubictcp_init(struct sock *sk) __ksym __weak;
extern u32 cubictcp_recalc_ssthresh(struct sock *sk) __ksym __weak;
extern void cubictcp_cong_avoid(struct sock *sk, u32 ack, u32 acked) __ksym __weak;
extern void cubictcp_state(struct sock *sk, u8 new_state) __ksym __weak;
extern void cubictcp_acked(struct sock *sk, const struct ack_sample *sample) __ksym __weak;
extern u32 tcp_reno_ssthresh(struct sock *sk) __ksym __weak;
extern void tcp_reno_cong_avoid(struct sock *sk, u32 ack, u32 acked) __ksym __weak;
extern u32 tcp_reno_undo_cwnd(struct sock *sk) __ksym __weak;
extern void bbr_init(struct sock *sk) __ksym __weak;
extern u32 bbr_ssthresh(struct sock *sk) __ksym __weak;
extern void bbr_set_state(struct sock *sk, u8 new_state) __ksym __weak;
extern u32 bbr_undo_cwnd(struct sock *sk) __ksym __weak;
extern u32 bbr_sndbuf_expand(struct sock *sk) __ksym __weak;
extern u32 bbr_min_tso_segs(struct sock *sk) __ksym __weak;
/*
 * That a transmission starts with nothing in flight is an event of cwnd_event up to
 * Linux 7.0 and an operation of its own from 7.1 on; no algorithm wrapped here heeds
 * another event. A congestion control below names both operations; before it is loaded
 * the one is taken out that is not the kernel's form (kernel_side/btf.rs).
 */
extern void cubictcp_cwnd_event(struct sock *sk, enum tcp_ca_event event) __ksym __weak;
extern void cubictcp_cwnd_event_tx_start(struct sock *sk) __ksym __weak;
extern void bbr_cwnd_event(struct sock *sk, enum tcp_ca_event event) __ksym __weak;
extern void bbr_cwnd_event_tx_start(struct sock *sk) __ksym __weak;
/* Two arguments up to 6.9, four from 6.10: each is found on its own kernel only. */
extern void bbr_main___v1(struct sock *sk, const struct rate_sample *rs) __ksym __weak;
extern void bbr_main___v2(struct sock *sk, u32 ack, int flag, const struct rate_sample *rs) __ksym __weak;

/* The value of tcp_tso_segs() for an algorithm without min_tso_segs. */
static __always_inline u32 usual_tso_segs(struct sock *sk)
{
	return sk->__sk_common.skc_net.net->ipv4.sysctl_tcp_min_tso_segs;
}

SEC("struct_ops")
u32 BPF_PROG(pl_undo_cwnd, struct sock *sk)
{
	return after_undo(sk, tcp_reno_undo_cwnd(sk));
}

SEC("struct_ops")
void BPF_PROG(pl_leave, struct sock *sk)
{
	leave(sk);
}

/* ---- CUBIC */

SEC("struct_ops")
void BPF_PROG(pl_cubic_init, struct sock *sk)
{
	cubictcp_init(sk);
	tune_begin(sk);
}

SEC("struct_ops")
u32 BPF_PROG(pl_cubic_ssthresh, struct sock *sk)
{
	before_loss(sk);
	return after_loss(sk, cubictcp_recalc_ssthresh(sk));
}

SEC("struct_ops")
void BPF_PROG(pl_cubic_cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	if (before_growth(sk))
		cubictcp_cong_avoid(sk, ack, acked);
}

SEC("struct_ops")
void BPF_PROG(pl_cubic_set_state, struct sock *sk, u8 new_state)
{
	note_state(sk, new_state);
	cubictcp_state(sk, new_state);
	tune_at_timeout(sk, new_state);
}

SEC("struct_ops")
void BPF_PROG(pl_cubic_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	cubictcp_cwnd_event(sk, event);
}

SEC("struct_ops")
void BPF_PROG(pl_cubic_tx_start, struct sock *sk)
{
	cubictcp_cwnd_event_tx_start(sk);
}

SEC("struct_ops")
void BPF_PROG(pl_cubic_acked, struct sock *sk, const struct ack_sample *sample)
{
	struct pl_connection *conn = governed(sk);

	/*
	 * CUBIC counts from the window of a start as from one at which the path was
	 * full, as after a loss: it then probes from there with care. Without a
	 * maximum it grows by 5 % per RTT (tcp_cubic.c, cnt = 20).
	 */
	if (conn && after_ack(sk, conn, sample))
		cubictcp_recalc_ssthresh(sk);
	cubictcp_acked(sk, sample);
	if (conn && conn->slot)
		end_ack(sk, conn);
}

SEC("struct_ops")
u32 BPF_PROG(pl_cubic_min_tso_segs, struct sock *sk)
{
	if (before_send(sk, true))
		cubictcp_recalc_ssthresh(sk);
	return usual_tso_segs(sk);
}

SEC(".struct_ops")
struct tcp_congestion_ops paceline_cubic = {
	.init = (void *)pl_cubic_init,
	.ssthresh = (void *)pl_cubic_ssthresh,
	.cong_avoid = (void *)pl_cubic_cong_avoid,
	.set_state = (void *)pl_cubic_set_state,
	.cwnd_event = (void *)pl_cubic_cwnd_event,
	.cwnd_event_tx_start = (void *)pl_cubic_tx_start,
	.pkts_acked = (void *)pl_cubic_acked,
	.min_tso_segs = (void *)pl_cubic_min_tso_segs,
	.undo_cwnd = (void *)pl_undo_cwnd,
	.release = (void *)pl_leave,
	.name = "paceline_cubic",
};

/* ---- Reno */

SEC("struct_ops")
void BPF_PROG(pl_reno_init, struct sock *sk)
{
	tune_begin(sk);
}

SEC("struct_ops")
u32 BPF_PROG(pl_reno_ssthresh, struct sock *sk)
{
	before_loss(sk);
	return after_loss(sk, tcp_reno_ssthresh(sk));
}

SEC("struct_ops")
void BPF_PROG(pl_reno_cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	if (before_growth(sk))
		tcp_reno_cong_avoid(sk, ack, acked);
}

SEC("struct_ops")
void BPF_PROG(pl_reno_set_state, struct sock *sk, u8 new_state)
{
	note_state(sk, new_state);
	tune_at_timeout(sk, new_state);
}

SEC("struct_ops")
void BPF_PROG(pl_reno_acked, struct sock *sk, const struct ack_sample *sample)
{
	ack_alone(sk, sample);
}

SEC("struct_ops")
u32 BPF_PROG(pl_reno_min_tso_segs, struct sock *sk)
{
	before_send(sk, true);
	return usual_tso_segs(sk);
}

SEC(".struct_ops")
struct tcp_congestion_ops paceline_reno = {
	.init = (void *)pl_reno_init,
	.ssthresh = (void *)pl_reno_ssthresh,
	.cong_avoid = (void *)pl_reno_cong_avoid,
	.set_state = (void *)pl_reno_set_state,
	.pkts_acked = (void *)pl_reno_acked,
	.min_tso_segs = (void *)pl_reno_min_tso_segs,
	.undo_cwnd = (void *)pl_undo_cwnd,
	.release = (void *)pl_leave,
	.name = "paceline_reno",
};

/* ---- BBR: it paces and sets its window itself from the first ACK on, so only
 * the time before that is ours. */

SEC("struct_ops")
void BPF_PROG(pl_bbr_init, struct sock *sk)
{
	bbr_init(sk);
	tune_begin(sk);
}

SEC("struct_ops")
u32 BPF_PROG(pl_bbr_ssthresh, struct sock *sk)
{
	before_loss(sk);
	return bbr_ssthresh(sk);
}

SEC("struct_ops")
void BPF_PROG(pl_bbr_set_state, struct sock *sk, u8 new_state)
{
	note_state(sk, new_state);
	bbr_set_state(sk, new_state);
}

SEC("struct_ops")
void BPF_PROG(pl_bbr_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	bbr_cwnd_event(sk, event);
}

SEC("struct_ops")
void BPF_PROG(pl_bbr_tx_start, struct sock *sk)
{
	bbr_cwnd_event_tx_start(sk);
}

SEC("struct_ops")
u32 BPF_PROG(pl_bbr_undo_cwnd, struct sock *sk)
{
	return bbr_undo_cwnd(sk);
}

SEC("struct_ops")
u32 BPF_PROG(pl_bbr_sndbuf_expand, struct sock *sk)
{
	return bbr_sndbuf_expand(sk);
}

SEC("struct_ops")
void BPF_PROG(pl_bbr_acked, struct sock *sk, const struct ack_sample *sample)
{
	ack_alone(sk, sample);
}

SEC("struct_ops")
u32 BPF_PROG(pl_bbr_min_tso_segs, struct sock *sk)
{
	before_send(sk, false);
	return bbr_min_tso_segs(sk);
}

SEC("struct_ops")
void BPF_PROG(pl_bbr_main_v1, struct sock *sk, const struct rate_sample *rs)
{
	before_growth(sk);
	bbr_main___v1(sk, rs);
}

SEC("struct_ops")
void BPF_PROG(pl_bbr_main_v2, struct sock *sk, u32 ack, int flag, const struct rate_sample *rs)
{
	before_growth(sk);
	bbr_main___v2(sk, ack, flag, rs);
}

#define PACELINE_BBR(main)                                                     \
	{                                                                      \
		.init = (void *)pl_bbr_init, .ssthresh = (void *)pl_bbr_ssthresh, \
		.set_state = (void *)pl_bbr_set_state,                         \
		.cwnd_event = (void *)pl_bbr_cwnd_event,                       \
		.cwnd_event_tx_start = (void *)pl_bbr_tx_start,                \
		.pkts_acked = (void *)pl_bbr_acked,                            \
		.min_tso_segs = (void *)pl_bbr_min_tso_segs,                   \
		.cong_control = (void *)main,                                  \
		.undo_cwnd = (void *)pl_bbr_undo_cwnd,                         \
		.sndbuf_expand = (void *)pl_bbr_sndbuf_expand,                 \
		.release = (void *)pl_leave, .name = "paceline_bbr",           \
	}

SEC(".struct_ops")
struct tcp_congestion_ops paceline_bbr_v1 = PACELINE_BBR(pl_bbr_main_v1);

SEC(".struct_ops")
struct tcp_congestion_ops paceline_bbr_v2 = PACELINE_BBR(pl_bbr_main_v2);

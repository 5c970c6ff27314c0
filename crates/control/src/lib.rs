// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Paceline's control laws on the host.
//!
//! The laws are C (`bpf/control/*.h`), and the kernel side includes the same
//! source: tests and simulations with this crate run the code of the kernel.
//! `docs/startup-law.md` explains the law.
//!
//! A law reads no clock and holds no lock. The caller passes in its view of the
//! connection ([`pl_tcp`]) and carries out the [`pl_orders`] that come back.
//!
//! ```
//! use paceline_abi::{pl_path, pl_policy, pl_target};
//! use paceline_control::{pl_tcp, Startup, State};
//!
//! let policy = pl_policy {
//!     target: pl_target::PL_TARGET_DELIVERY_RATE as u8,
//!     initial_rate_bps: 31_250_000, // 250 Mbit/s
//!     half_life_ms: 60_000,
//!     ..Default::default()
//! };
//! let (mut path, mut startup) = (pl_path::default(), Startup::default());
//! let tcp = pl_tcp {
//!     now_us: 1,
//!     cwnd: 10,
//!     ssthresh: 0x7fff_ffff,
//!     srtt_us: 20_000,
//!     min_rtt_us: 20_000,
//!     mss: 1448,
//!     unsent: 1 << 20,
//!     ..Default::default()
//! };
//! let orders = startup.before_send(&mut path, &policy, &tcp);
//! assert_eq!(startup.state(), State::Paced);
//! assert!(orders.pacing_bps >= policy.initial_rate_bps);
//! ```

mod bindings;
mod even;
mod window;

pub use even::Even;
pub use window::{uwnd_add, Window};

pub use bindings::{
    pl_orders, pl_phases, pl_start, pl_tcp, pl_window, PL_FRAME_BYTES, PL_GAP_LOSING,
    PL_GAP_SEGS_MAX, PL_LEAD_SEGS, PL_LEAD_SPEEDUP, PL_LED, PL_NO_SSTHRESH, PL_PHASE_CLASS_BITS,
    PL_PHASE_SLOTS, PL_RATE_MIN_BPS, PL_SPREAD_MAX_US, PL_THIN_SEGS, PL_TRAIN_FROM,
    PL_TURN_GAP_MAX_US, PL_TURN_GAP_MIN_US, PL_TURN_GAP_SEGS, PL_TURN_LEASE_US, PL_TURN_PLACES,
    PL_TURN_SEGS, PL_TURN_TOGETHER_US, PL_TURN_WINDOW_LEAST, PL_TURN_WINDOW_MOST,
    PL_TURN_WINDOW_UNIT, PL_WARY_STARTS,
};
use paceline_abi::{pl_path, pl_policy, pl_start_state, pl_turn};

/// Where a connection is between two idle moments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Nothing in flight since the last burst.
    Idle,
    /// Sending at the target, no ACK yet.
    Paced,
    /// The ACKs of the paced segments are coming in.
    Measured,
    /// The base algorithm alone, until the next idle moment.
    Base,
}

/// The start-up law of one connection. [`Default`] is a connection that has
/// not sent yet.
#[derive(Debug, Clone, Default)]
pub struct Startup {
    start: pl_start,
}

impl Startup {
    /// Called before a transmission. Returns its pacing rate and window; zero means
    /// no change.
    ///
    /// `path` belongs to all connections of one job to one destination.
    pub fn before_send(
        &mut self,
        path: &mut pl_path,
        policy: &pl_policy,
        tcp: &pl_tcp,
    ) -> pl_orders {
        let mut orders = pl_orders::default();
        // SAFETY: valid references to plain structs; the C function keeps none.
        unsafe {
            bindings::paceline_start_before_send(&mut self.start, path, policy, tcp, &mut orders)
        };
        orders
    }

    /// Called for an ACK; the counters in `tcp` are those after it.
    pub fn on_ack(&mut self, path: &mut pl_path, policy: &pl_policy, tcp: &pl_tcp) -> pl_orders {
        let mut orders = pl_orders::default();
        // SAFETY: as above.
        unsafe { bindings::paceline_start_on_ack(&mut self.start, path, policy, tcp, &mut orders) };
        orders
    }

    /// To be called after [`Startup::before_send`], with its orders: a long message may
    /// have to wait for its host's turn. `turn` belongs to all connections of one job on
    /// one host; `due`: pacing does not hold the transmission back.
    pub fn before_send_in_turn(
        &mut self,
        turn: &mut pl_turn,
        policy: &pl_policy,
        tcp: &pl_tcp,
        due: bool,
        orders: &mut pl_orders,
    ) {
        let due = i32::from(due);
        // SAFETY: as above.
        unsafe {
            bindings::paceline_turn_before_send(&mut self.start, turn, policy, tcp, due, orders)
        };
    }

    /// To be called after [`Startup::on_ack`], with its orders, while [`Startup::has_turn`]
    /// or [`Startup::waits`].
    pub fn on_ack_in_turn(&mut self, turn: &mut pl_turn, tcp: &pl_tcp, orders: &mut pl_orders) {
        // SAFETY: as above.
        unsafe { bindings::paceline_turn_on_ack(&mut self.start, turn, tcp, orders) };
    }

    /// The connection ends, or goes over to another phase: its turn is over.
    pub fn leave_turn(&mut self, turn: &mut pl_turn, tcp: &pl_tcp) -> pl_orders {
        let mut orders = pl_orders::default();
        // SAFETY: as above.
        unsafe { bindings::paceline_turn_leave(&mut self.start, turn, tcp, &mut orders) };
        orders
    }

    /// A retransmission timeout.
    pub fn note_timeout(&mut self) {
        self.start.timeouts += 1;
    }

    /// Whether a message waits for its host's turn.
    pub fn waits(&self) -> bool {
        self.start.waits != 0
    }

    /// Whether a message in flight has, or had, its host's turn.
    pub fn has_turn(&self) -> bool {
        self.start.turn != 0
    }

    /// ssthresh after a loss, in segments, where the base would set it to `base`, and `lost`
    /// segments are marked lost.
    pub fn ssthresh_after_loss(
        &mut self,
        path: &mut pl_path,
        tcp: &pl_tcp,
        lost: u32,
        base: u32,
    ) -> u32 {
        // SAFETY: as above.
        unsafe { bindings::paceline_ssthresh_after_loss(&mut self.start, path, tcp, lost, base) }
    }

    /// Congestion window for a transmission that is not paced, where the base's is `cwnd`.
    pub fn led_window(&self, cwnd: u32, ssthresh: u32) -> u32 {
        // SAFETY: as above.
        unsafe { bindings::paceline_led_window(&self.start, cwnd, ssthresh) }
    }

    /// The connection ends: its share of the path goes to the others.
    pub fn leave(&mut self, path: &mut pl_path) {
        // SAFETY: as above.
        unsafe { bindings::paceline_leave_path(&mut self.start, path) }
    }

    /// State of the law.
    pub fn state(&self) -> State {
        const IDLE: u8 = pl_start_state::PL_START_IDLE as u8;
        const PACED: u8 = pl_start_state::PL_START_PACED as u8;
        const MEASURED: u8 = pl_start_state::PL_START_MEASURED as u8;
        match self.start.state {
            IDLE => State::Idle,
            PACED => State::Paced,
            MEASURED => State::Measured,
            _ => State::Base,
        }
    }

    /// Whether the law needs a call for this ACK. The kernel side skips the call in a bulk
    /// transfer under the base algorithm, and while a message that fits the initial window
    /// is in flight. Within a round trip that the law follows, only the RTT is noted here.
    pub fn wants_ack(&mut self, tcp: &pl_tcp) -> bool {
        // SAFETY: as above.
        unsafe { bindings::paceline_wants_ack(&mut self.start, tcp) != 0 }
    }

    /// Whether a transmission within a burst is the law's, because the window has emptied; at its
    /// beginning, and while it is paced, each one is.
    pub fn wants_refill(&self, tcp: &pl_tcp) -> bool {
        // SAFETY: as above.
        unsafe { bindings::paceline_wants_refill(&self.start, tcp) != 0 }
    }

    /// Whether the breaker holds the connection to the base algorithm.
    pub fn breaker_open(&self, now_us: u64) -> bool {
        now_us < self.start.breaker_until_us
    }

    /// The law's state of the connection.
    pub fn raw(&self) -> &pl_start {
        &self.start
    }
}

/// The phases of one connection. [`Default`] is in class 0, without state of another.
#[derive(Debug, Clone, Default)]
pub struct Phases {
    phases: pl_phases,
}

impl Phases {
    /// Goes over from the phase whose path is `old` to `phase`, whose path is `new`.
    pub fn switch(
        &mut self,
        phase: u32,
        startup: &mut Startup,
        old: &mut pl_path,
        new: &mut pl_path,
        policy: &pl_policy,
        tcp: &pl_tcp,
    ) -> pl_orders {
        let mut orders = pl_orders::default();
        // SAFETY: valid references to plain structs; the C functions keep none.
        unsafe {
            let start = &mut startup.start;
            bindings::paceline_phase_leave(&mut self.phases, start, old, tcp, &mut orders);
            bindings::paceline_phase_enter(
                &mut self.phases,
                phase,
                start,
                new,
                policy,
                tcp,
                &mut orders,
            );
        }
        orders
    }

    /// The phase of which this connection has state, and whose class has got another
    /// meaning since.
    pub fn stale(&self, phase: u32) -> Option<u32> {
        // SAFETY: as above.
        let stale = unsafe { bindings::paceline_phase_stale(&self.phases, phase) };
        (stale != 0).then_some(stale)
    }

    /// The law's state of the connection.
    pub fn raw(&self) -> &pl_phases {
        &self.phases
    }
}

/// The class of a phase; 0 for one out of range.
pub fn phase_class(phase: u32) -> u32 {
    // SAFETY: takes and gives an integer.
    unsafe { bindings::paceline_phase_class(phase) }
}

/// A path's remembered rate, bytes of payload per second; 0 when it is not known or has
/// expired.
pub fn remembered(path: &pl_path, policy: &pl_policy, now_us: u64) -> u64 {
    // SAFETY: valid references to plain structs; the C function keeps none.
    unsafe { bindings::paceline_remembered(path, policy, now_us) }
}

/// The RTT of an ACK, microseconds; 0 where it could be a minimum below the burst's `least` (0:
/// none yet) that the kernel knows only by TCP's timestamps, in whole milliseconds (tcp_input.c,
/// `tcp_rtt_tsopt_us`).
pub fn exact_rtt(rtt_us: u32, least: u32) -> u32 {
    // SAFETY: takes and returns numbers.
    unsafe { bindings::paceline_exact_rtt(rtt_us, least) }
}

/// Pacing rate of the next packet under the spacing law, bytes of payload per second;
/// `None`: no pacing. `started`: the start-up law paces the connection at this moment.
pub fn spacing_rate(policy: &pl_policy, tcp: &pl_tcp, started: bool) -> Option<u64> {
    // SAFETY: as above.
    let rate = unsafe { bindings::paceline_spacing_rate(policy, tcp, i32::from(started)) };
    (rate != 0).then_some(rate)
}

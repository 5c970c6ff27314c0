// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The thread that moves packets between two ports.
//!
//! It reads both rings, gives each packet with its own arrival time to the
//! [`Link`] of its direction, sends what is due and sleeps until the next
//! packet is. As arrival times come from the kernel and departures are
//! computed, rings may be read late: only sending late is lateness. So while
//! packets are on their way the thread does not wake for arrivals but for
//! deliveries, and looks at the rings at least every half delay.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::port::{Received, SEND_BATCH};
use crate::queue::{Delivered, Link};
use crate::statistics::{Bins, DirectionReport, Histogram};
use crate::{EmulatorError, LinkConfig, Port, Report};

/// Longest time between two looks at the rings while packets are on their
/// way, nanoseconds. The rings hold much more than arrives in that time.
const READ_INTERVAL_NS: u64 = 500_000;
/// With less slack than this, arrivals wake the thread, nanoseconds.
const LEAST_SLACK_NS: u64 = 50_000;
/// A packet due sooner than this is waited for without sleeping, nanoseconds:
/// about what going to sleep and waking costs.
const SPIN_NS: u64 = 5_000;
/// Most packets taken from one ring before due ones are sent.
const READ_BATCH: usize = 64;
/// Window over which the thread watches its own CPU time, nanoseconds.
const WATCH_NS: u64 = 20_000_000;
/// CPU time in one such window after which the thread rests for the remainder,
/// nanoseconds: 90 %, where the kernel throttles real-time threads at 95 %,
/// and then for 50 ms at a time.
const BUSY_NS: u64 = WATCH_NS / 10 * 9;
/// Real-time priority of the thread: above all ordinary threads, below the
/// kernel's own.
const PRIORITY: libc::c_int = 10;
/// Frames allocated before the start, at most.
const MOST_PREALLOCATED: usize = 1 << 15;

/// Which way across the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the first port to the second.
    Forward,
    /// From the second port to the first.
    Reverse,
}

/// Another rate or delay for a running link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// Which way.
    pub direction: Direction,
    /// New rate, bits per second; `None` keeps it.
    pub rate_bits: Option<u64>,
    /// New one-way delay, nanoseconds; `None` keeps it.
    pub delay_ns: Option<u64>,
}

/// What an emulator runs with.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// From the first port to the second.
    pub forward: LinkConfig,
    /// From the second port to the first.
    pub reverse: LinkConfig,
    /// How long the run may be for its bins, nanoseconds. Traffic after it is
    /// carried, but only counted in [`Bins::beyond`].
    pub longest_ns: u64,
}

enum Order {
    Change(Change),
    Report(Sender<Report>),
    Stop,
}

/// Steers a running link; may be cloned and sent to other threads.
#[derive(Debug, Clone)]
pub struct Control {
    orders: Sender<Order>,
    wake: Arc<OwnedFd>,
}

impl Control {
    /// Changes rate or delay from now on. A rate of zero is refused. After
    /// the link has stopped this does nothing.
    pub fn change(&self, change: Change) -> Result<(), EmulatorError> {
        if change.rate_bits == Some(0) {
            return Err(EmulatorError::NoRate);
        }
        self.order(Order::Change(change));
        Ok(())
    }

    fn order(&self, order: Order) {
        if self.orders.send(order).is_ok() {
            let one = 1u64.to_ne_bytes();
            // SAFETY: writes eight live bytes to an owned eventfd.
            unsafe { libc::write(self.wake.as_raw_fd(), one.as_ptr().cast(), one.len()) };
        }
    }
}

/// A running link. Dropping it stops the link.
#[derive(Debug)]
pub struct Emulator {
    control: Control,
    thread: Option<JoinHandle<Result<Report, EmulatorError>>>,
}

impl Emulator {
    /// Joins two ports and starts forwarding.
    pub fn start(first: Port, second: Port, settings: Settings) -> Result<Emulator, EmulatorError> {
        settings.forward.check(first.frame_limit())?;
        settings.reverse.check(second.frame_limit())?;
        let thread_error = |step| move |source| EmulatorError::Thread { step, source };
        // SAFETY: plain system call; the descriptor is owned from here on.
        let wake = unsafe {
            let fd = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
            if fd < 0 {
                return Err(thread_error("be woken")(io::Error::last_os_error()));
            }
            Arc::new(OwnedFd::from_raw_fd(fd))
        };
        let (orders, inbox) = mpsc::channel();
        let forwarder = Forwarder {
            ports: [first, second],
            paths: [
                Path::new(settings.forward, settings.longest_ns),
                Path::new(settings.reverse, settings.longest_ns),
            ],
            inbox,
            wake: Arc::clone(&wake),
            realtime: false,
            started_ns: 0,
            cpu_at_start: 0,
        };
        let thread = std::thread::Builder::new()
            .name("link".to_owned())
            .spawn(move || forwarder.run())
            .map_err(thread_error("start"))?;
        Ok(Emulator {
            control: Control { orders, wake },
            thread: Some(thread),
        })
    }

    /// What steers this link.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// What the link did so far; it goes on.
    pub fn report(&self) -> Result<Report, EmulatorError> {
        let (reply, answer) = mpsc::channel();
        self.control.order(Order::Report(reply));
        answer.recv().map_err(|_| EmulatorError::Ended)
    }

    /// Stops the link and says what it did. Packets on their way are counted,
    /// not delivered.
    pub fn stop(mut self) -> Result<Report, EmulatorError> {
        self.control.order(Order::Stop);
        match self.thread.take() {
            Some(thread) => thread.join().map_err(|_| EmulatorError::Panicked)?,
            None => Err(EmulatorError::Panicked),
        }
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.control.order(Order::Stop);
            // The report is not wanted, and a panic was printed already.
            let _ = thread.join();
        }
    }
}

struct Frame {
    slot: Box<[u8]>,
    length: usize,
}

struct Path {
    link: Link<Frame>,
    free: Vec<Box<[u8]>>,
    /// Being sent; kept for its allocation.
    due: VecDeque<Delivered<Frame>>,
    lateness: Histogram,
    report: DirectionReport,
}

impl Path {
    fn new(config: LinkConfig, longest_ns: u64) -> Path {
        let report = DirectionReport {
            offered_bins: Bins::new(longest_ns),
            carried_bins: Bins::new(longest_ns),
            ..DirectionReport::default()
        };
        Path {
            link: Link::new(config),
            free: Vec::new(),
            due: VecDeque::with_capacity(SEND_BATCH),
            lateness: Histogram::new(),
            report,
        }
    }

    /// Allocates and touches what a full link needs.
    fn preallocate(&mut self, frame_limit: u32) {
        let config = self.link.config();
        let on_the_way = u128::from(config.rate_bits) * u128::from(config.delay_ns) / 8_000_000_000;
        let frames = (on_the_way as u64 + config.buffer_bytes) / u64::from(frame_limit) + 1;
        for _ in 0..(frames as usize).min(MOST_PREALLOCATED) {
            let mut slot = vec![0; frame_limit as usize].into_boxed_slice();
            slot.fill(1);
            self.free.push(slot);
        }
    }

    fn arrive(&mut self, packet: &Received<'_>, arrival: u64, started_ns: u64, frame_limit: u32) {
        if packet.length > frame_limit {
            self.report.oversize += 1;
            return;
        }
        if packet.without_checksum {
            self.report.without_checksum += 1;
            return;
        }
        let since_start = arrival.saturating_sub(started_ns);
        self.report.offered.add(packet.length);
        self.report.offered_bins.add(since_start, packet.length);
        let mut slot = self
            .free
            .pop()
            .unwrap_or_else(|| vec![0; frame_limit as usize].into_boxed_slice());
        let length = packet.data.len();
        slot[..length].copy_from_slice(packet.data);
        match self
            .link
            .arrive(arrival, packet.length, Frame { slot, length })
        {
            Ok(_) => {}
            Err(frame) => {
                self.report.dropped.add(packet.length);
                self.free.push(frame.slot);
            }
        }
    }

    /// Sends everything that is due through `port`.
    fn send_due(&mut self, port: &Port, started_ns: u64) {
        loop {
            let now = clock(libc::CLOCK_MONOTONIC);
            while self.due.len() < SEND_BATCH {
                match self.link.deliver(now) {
                    Some(delivered) => self.due.push_back(delivered),
                    None => break,
                }
            }
            if self.due.is_empty() {
                return;
            }
            let frames = self
                .due
                .iter()
                .map(|due| &due.packet.slot[..due.packet.length]);
            let Ok(sent) = port.send(frames) else {
                self.report.refused += 1;
                self.free
                    .extend(self.due.pop_front().map(|refused| refused.packet.slot));
                continue;
            };
            let now = clock(libc::CLOCK_MONOTONIC);
            for delivered in self.due.drain(..sent) {
                let departure = delivered.departure.saturating_sub(started_ns);
                self.report.carried.add(delivered.size);
                self.report.carried_bins.add(departure, delivered.size);
                self.lateness.add(now.saturating_sub(delivered.due));
                self.free.push(delivered.packet.slot);
            }
        }
    }

    fn report(&mut self, port: &Port) -> DirectionReport {
        self.report.missed += port.take_missed();
        DirectionReport {
            lateness: self.lateness.summary(),
            peak_backlog: self.link.peak_backlog(),
            in_flight: self.link.inside(),
            ..self.report.clone()
        }
    }
}

struct Forwarder {
    ports: [Port; 2],
    paths: [Path; 2],
    inbox: Receiver<Order>,
    wake: Arc<OwnedFd>,
    realtime: bool,
    started_ns: u64,
    /// The thread's CPU time at the start, nanoseconds.
    cpu_at_start: u64,
}

impl Forwarder {
    fn run(mut self) -> Result<Report, EmulatorError> {
        for (path, port) in self.paths.iter_mut().zip(&self.ports) {
            path.preallocate(port.frame_limit());
        }
        self.realtime = become_realtime();
        self.started_ns = clock(libc::CLOCK_MONOTONIC);
        self.cpu_at_start = clock(libc::CLOCK_THREAD_CPUTIME_ID);
        let mut watch = Watch {
            since: self.started_ns,
            cpu_since: self.cpu_at_start,
            rests: 0,
        };
        loop {
            self.read_rings();
            if !self.obey(watch.rests) {
                return Ok(self.report(watch.rests));
            }
            let [first, second] = &self.ports;
            let [forward, reverse] = &mut self.paths;
            forward.send_due(second, self.started_ns);
            reverse.send_due(first, self.started_ns);
            watch.rest_if_busy();
            self.wait()?;
        }
    }

    fn report(&mut self, rests: u64) -> Report {
        let [first, second] = &self.ports;
        let [forward, reverse] = &mut self.paths;
        Report {
            started_ns: self.started_ns,
            duration_ns: clock(libc::CLOCK_MONOTONIC) - self.started_ns,
            cpu_ns: clock(libc::CLOCK_THREAD_CPUTIME_ID) - self.cpu_at_start,
            realtime: self.realtime,
            rests,
            forward: forward.report(first),
            reverse: reverse.report(second),
        }
    }

    fn read_rings(&mut self) {
        // The ring speaks CLOCK_REALTIME. Read anew each time, a step of that
        // clock moves only the packets of one round, and never before the
        // packet ahead of them or beyond now.
        let now = clock(libc::CLOCK_MONOTONIC);
        let ahead = clock(libc::CLOCK_REALTIME).saturating_sub(now);
        for (port, path) in self.ports.iter_mut().zip(&mut self.paths) {
            let frame_limit = port.frame_limit();
            let started_ns = self.started_ns;
            for _ in 0..READ_BATCH {
                let more = port.receive(|packet| {
                    let arrival = packet.realtime_ns.saturating_sub(ahead).min(now);
                    path.arrive(&packet, arrival, started_ns, frame_limit);
                });
                if !more {
                    break;
                }
            }
        }
    }

    /// Carries out what [`Control`] asked for; false when that was to stop.
    fn obey(&mut self, rests: u64) -> bool {
        loop {
            match self.inbox.try_recv() {
                Ok(Order::Change(change)) => {
                    let at = match change.direction {
                        Direction::Forward => 0,
                        Direction::Reverse => 1,
                    };
                    let now = clock(libc::CLOCK_MONOTONIC);
                    self.paths[at]
                        .link
                        .change(now, change.rate_bits, change.delay_ns);
                }
                Ok(Order::Report(reply)) => {
                    // Whoever asked may have gone.
                    let _ = reply.send(self.report(rests));
                }
                Err(TryRecvError::Empty) => return true,
                Ok(Order::Stop) | Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    /// Sleeps until a packet is due, the rings want a look or there are orders.
    fn wait(&mut self) -> Result<(), EmulatorError> {
        let due = self
            .paths
            .iter()
            .filter_map(|path| path.link.next_delivery())
            .min();
        let slack = self
            .paths
            .iter()
            .map(|path| path.link.config().delay_ns / 2)
            .min();
        let slack = slack.unwrap_or(0).min(READ_INTERVAL_NS);
        let timeout = match due {
            None => None,
            Some(due) => {
                let left = due.saturating_sub(clock(libc::CLOCK_MONOTONIC));
                if left < SPIN_NS {
                    return Ok(());
                }
                Some(if slack < LEAST_SLACK_NS {
                    left
                } else {
                    left.min(slack)
                })
            }
        };
        let wake_on_arrival = timeout.is_none() || slack < LEAST_SLACK_NS;
        let events = if wake_on_arrival { libc::POLLIN } else { 0 };
        let watched = |fd, events| libc::pollfd {
            fd,
            events,
            revents: 0,
        };
        let mut watched = [
            watched(self.ports[0].fd(), events),
            watched(self.ports[1].fd(), events),
            watched(self.wake.as_raw_fd(), libc::POLLIN),
        ];
        let timeout = timeout.map(|nanos| libc::timespec {
            tv_sec: (nanos / 1_000_000_000) as libc::time_t,
            tv_nsec: (nanos % 1_000_000_000) as libc::c_long,
        });
        // SAFETY: the array and the timeout live across the call.
        let ready = unsafe {
            libc::ppoll(
                watched.as_mut_ptr(),
                watched.len() as libc::nfds_t,
                timeout.as_ref().map_or(ptr::null(), ptr::from_ref),
                ptr::null(),
            )
        };
        if ready < 0 {
            let source = io::Error::last_os_error();
            return match source.kind() {
                io::ErrorKind::Interrupted => Ok(()),
                _ => Err(EmulatorError::Thread {
                    step: "wait for packets",
                    source,
                }),
            };
        }
        for (port, seen) in self.ports.iter().zip(&watched) {
            if seen.revents & (libc::POLLERR | libc::POLLNVAL) != 0 {
                return Err(EmulatorError::InterfaceLost {
                    interface: port.name().to_owned(),
                });
            }
        }
        if watched[2].revents != 0 {
            let mut count = [0u8; 8];
            // SAFETY: reads eight bytes of an owned eventfd into a live array.
            unsafe {
                libc::read(
                    self.wake.as_raw_fd(),
                    count.as_mut_ptr().cast(),
                    count.len(),
                )
            };
        }
        Ok(())
    }
}

/// Watches the thread's own CPU time. A real-time thread that never sleeps is
/// stopped by the kernel for 50 ms of each second; one that yields a little
/// and often keeps the lateness small.
struct Watch {
    since: u64,
    cpu_since: u64,
    rests: u64,
}

impl Watch {
    fn rest_if_busy(&mut self) {
        let now = clock(libc::CLOCK_MONOTONIC);
        let elapsed = now - self.since;
        if elapsed < WATCH_NS {
            let used = clock(libc::CLOCK_THREAD_CPUTIME_ID) - self.cpu_since;
            if used < BUSY_NS {
                return;
            }
            self.rests += 1;
            std::thread::sleep(Duration::from_nanos(WATCH_NS - elapsed));
        }
        self.since = clock(libc::CLOCK_MONOTONIC);
        self.cpu_since = clock(libc::CLOCK_THREAD_CPUTIME_ID);
    }
}

/// Real-time priority and exact timers, as far as allowed; true if allowed.
fn become_realtime() -> bool {
    let parameters = libc::sched_param {
        sched_priority: PRIORITY,
    };
    // SAFETY: plain system calls about the calling thread.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong);
        libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &parameters) == 0
    }
}

/// A clock of this machine, nanoseconds.
fn clock(which: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: time is live; the clocks used here exist on every Linux.
    unsafe { libc::clock_gettime(which, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

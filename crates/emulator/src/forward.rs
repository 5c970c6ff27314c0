// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The thread that moves packets between two ports.
//!
//! It reads both rings, gives each packet with its own arrival time to the [`Link`] of its
//! direction, sends due packets and sleeps until the next one is due. As arrival times come
//! from the kernel and departures are computed, rings may be read late: only late sending is
//! lateness. So while packets are in flight the thread does not wake for arrivals but for
//! deliveries, and reads the rings at least every half delay.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::sync::Arc;
use std::thread::JoinHandle;

use serde::{Deserialize, Serialize};

use crate::capture::Capture;
use crate::observe::Observe;
use crate::path::Path;
use crate::realtime::{become_realtime, clock, clocks, Oversleep, Watch};
use crate::{Change, EmulatorError, LinkConfig, Port, Report};

/// Longest time between two reads of the rings while packets are in flight,
/// nanoseconds. The rings hold much more than the arrivals of that time.
const READ_INTERVAL_NS: u64 = 500_000;
/// With less slack than this, arrivals wake the thread, nanoseconds.
const LEAST_SLACK_NS: u64 = 50_000;
/// Most packets taken from one ring before due ones are sent.
const READ_BATCH: usize = 64;
/// Which way across the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// From the first port to the second.
    Forward,
    /// From the second port to the first.
    Reverse,
}

/// Options of an emulator.
#[derive(Debug, Clone)]
pub struct Settings {
    /// From the first port to the second.
    pub forward: LinkConfig,
    /// From the second port to the first.
    pub reverse: LinkConfig,
    /// The recording options.
    pub observe: Observe,
}

enum Order {
    Change(Direction, Change),
    Report(Sender<Report>),
    Stop,
}

/// Steers a running link; may be cloned and sent to other threads.
#[derive(Debug, Clone)]
pub struct Control {
    orders: Sender<Order>,
    wake: Arc<OwnedFd>,
    /// As it was started, and its largest frame; by direction.
    links: Arc<[(LinkConfig, u32); 2]>,
}

impl Control {
    /// Changes a direction from now on. After the link has stopped this does nothing.
    ///
    /// # Errors
    /// When the direction cannot be like that; then nothing is changed.
    pub fn change(&self, direction: Direction, change: Change) -> Result<(), EmulatorError> {
        self.check(direction, &change)?;
        self.order(Order::Change(direction, change));
        Ok(())
    }

    /// The link's report so far; the link continues.
    ///
    /// # Errors
    /// When the link has ended.
    pub fn report(&self) -> Result<Report, EmulatorError> {
        let (reply, answer) = mpsc::channel();
        self.order(Order::Report(reply));
        answer.recv().map_err(|_| EmulatorError::Ended)
    }

    /// Refuses the same changes as [`Control::change`].
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self, direction: Direction, change: &Change) -> Result<(), EmulatorError> {
        let (config, frame_bytes) = &self.links[direction as usize];
        config.check_change(change, *frame_bytes)
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
    ///
    /// # Errors
    /// When a direction is not possible, or no thread can be started.
    pub fn start(first: Port, second: Port, settings: Settings) -> Result<Emulator, EmulatorError> {
        Emulator::start_captured(first, second, settings, None)
    }

    /// As [`Emulator::start`], with a capture of arrivals and departures.
    ///
    /// # Errors
    /// As [`Emulator::start`].
    pub fn start_captured(
        first: Port,
        second: Port,
        settings: Settings,
        capture: Option<&Capture>,
    ) -> Result<Emulator, EmulatorError> {
        let Settings {
            forward,
            reverse,
            observe,
        } = settings;
        forward.check(first.frame_limit())?;
        reverse.check(second.frame_limit())?;
        if observe.bin_ns == 0 {
            return Err(EmulatorError::Range {
                what: "the width of a bin",
                range: "above 0",
            });
        }
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
        let links = Arc::new([
            (forward.clone(), first.frame_limit()),
            (reverse.clone(), second.frame_limit()),
        ]);
        let forwarder = Forwarder {
            paths: [
                Path::new(
                    forward,
                    first.frame_limit(),
                    observe,
                    capture.map(|capture| capture.tap(0)),
                ),
                Path::new(
                    reverse,
                    second.frame_limit(),
                    observe,
                    capture.map(|capture| capture.tap(1)),
                ),
            ],
            ports: [first, second],
            inbox,
            wake: Arc::clone(&wake),
            oversleep: Oversleep::default(),
            realtime: false,
            started_ns: 0,
            cpu_at_start: 0,
        };
        let thread = std::thread::Builder::new()
            .name("link".to_owned())
            .spawn(move || forwarder.run())
            .map_err(thread_error("start"))?;
        Ok(Emulator {
            control: Control {
                orders,
                wake,
                links,
            },
            thread: Some(thread),
        })
    }

    /// The control of this link.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// The link's report so far; the link continues.
    ///
    /// # Errors
    /// When the link has ended.
    pub fn report(&self) -> Result<Report, EmulatorError> {
        self.control.report()
    }

    /// Stops the link and returns its report. Packets on their way are counted, not delivered.
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

struct Forwarder {
    ports: [Port; 2],
    paths: [Path; 2],
    inbox: Receiver<Order>,
    wake: Arc<OwnedFd>,
    oversleep: Oversleep,
    realtime: bool,
    started_ns: u64,
    /// The thread's CPU time at the start, nanoseconds.
    cpu_at_start: u64,
}

impl Forwarder {
    fn run(mut self) -> Result<Report, EmulatorError> {
        self.realtime = become_realtime();
        self.started_ns = clock(libc::CLOCK_MONOTONIC);
        for path in &mut self.paths {
            path.start(self.started_ns);
        }
        self.cpu_at_start = clock(libc::CLOCK_THREAD_CPUTIME_ID);
        let mut watch = Watch::new();
        loop {
            let (seen, ahead) = self.read_rings();
            if !self.take_orders(watch.rests) {
                return Ok(self.report(watch.rests));
            }
            let [first, second] = &self.ports;
            let [forward, reverse] = &mut self.paths;
            forward.send_due(second, seen[0], ahead);
            reverse.send_due(first, seen[1], ahead);
            watch.rest_if_busy(&mut self.oversleep);
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

    /// Reads the arrived packets. Returns, by direction, the time until which all arrivals are
    /// known: later departures must wait, or a packet still in the ring would find another
    /// backlog. Also how far CLOCK_REALTIME is ahead of the link's clock.
    fn read_rings(&mut self) -> ([u64; 2], u64) {
        let mut seen = [0; 2];
        let mut last_ahead = 0;
        for ((port, path), seen) in self.ports.iter_mut().zip(&mut self.paths).zip(&mut seen) {
            // The ring's times are CLOCK_REALTIME. As the offset is read each time, a
            // step of that clock moves only the packets of one round, and never before
            // the packet ahead of them or beyond now.
            let (now, ahead) = clocks();
            (*seen, last_ahead) = (now, ahead);
            for count in 1.. {
                let more = port.receive(|packet| {
                    let arrival = packet.realtime_ns.saturating_sub(ahead);
                    path.arrive(&packet, arrival);
                    if count == READ_BATCH {
                        *seen = arrival.min(now);
                    }
                });
                if !more || count == READ_BATCH {
                    break;
                }
            }
        }
        (seen, last_ahead)
    }

    /// Carries out the orders of [`Control`]; false after an order to stop.
    fn take_orders(&mut self, rests: u64) -> bool {
        loop {
            match self.inbox.try_recv() {
                Ok(Order::Change(direction, change)) => {
                    let now = clock(libc::CLOCK_MONOTONIC);
                    self.paths[direction as usize].change(now, &change);
                }
                Ok(Order::Report(reply)) => {
                    // The requester may have gone.
                    let _ = reply.send(self.report(rests));
                }
                Err(TryRecvError::Empty) => return true,
                Ok(Order::Stop) | Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    /// Sleeps until a packet is due, the rings are to be read or there are orders.
    fn wait(&mut self) -> Result<(), EmulatorError> {
        let due = self.paths.iter().filter_map(Path::next_event).min();
        let slack = self.paths.iter().map(|path| path.delay_ns() / 2).min();
        let slack = slack.unwrap_or(0).min(READ_INTERVAL_NS);
        let timeout = match due {
            None => None,
            Some(due) => {
                let left = due.saturating_sub(clock(libc::CLOCK_MONOTONIC));
                let margin = self.oversleep.margin();
                if left <= margin {
                    return Ok(());
                }
                let left = left - margin;
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
        let wake_at = timeout.map(|nanos| clock(libc::CLOCK_MONOTONIC) + nanos);
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
        if let Some(wake_at) = wake_at.filter(|_| ready == 0) {
            self.oversleep.see(clock(libc::CLOCK_MONOTONIC), wake_at);
        }
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

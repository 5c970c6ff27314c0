// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets that a gateway sends to the link: counted at its interface, before its queue.

use std::collections::VecDeque;
use std::sync::mpsc::{channel, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sched::{setns, CloneFlags};
use paceline_burst::{Attach, Counts, Direction, Filter, Interface, Meter, Options};
use paceline_net::ethernet::FRAMING_BYTES;
use paceline_net::{clock, Namespace};

use crate::CaseError;

/// Any 10 ms, wherever they begin, lie within so many windows of 0.1 ms together.
const WINDOW_NS: u64 = 100_000;
const TOGETHER: usize = 101;
/// From one look at the counters to the next: they hold far more.
const LOOK: Duration = Duration::from_millis(500);

/// A count that is running, in a thread of its own: the meter must be taken away in the
/// interface's namespace.
pub struct WanMeter {
    /// Ends the thread when it is dropped.
    stop: Sender<()>,
    counting: JoinHandle<Result<u64, String>>,
}

impl WanMeter {
    /// Begins, at the interface `wan` of `router`.
    pub fn start(router: &Namespace) -> Result<Self, CaseError> {
        let namespace = router.duplicate()?;
        let (stop, stopped) = channel::<()>();
        let counting = std::thread::spawn(move || {
            let text = |error: &dyn std::error::Error| error.to_string();
            setns(&namespace, CloneFlags::CLONE_NEWNET).map_err(|error| text(&error))?;
            let mut meter = meter()?;
            let mut most = Most::default();
            let mut is_over = false;
            while !is_over {
                is_over = stopped.recv_timeout(LOOK) != Err(RecvTimeoutError::Timeout);
                for window in meter.take().map_err(|error| text(&error))? {
                    let counts = window.counts.ok_or("packets were counted too late")?;
                    most.add(counts);
                }
            }
            Ok(most.most_bytes)
        });
        Ok(WanMeter { stop, counting })
    }

    /// Ends: most bytes in any 10.1 ms, with framing.
    pub fn stop(self) -> Result<u64, CaseError> {
        drop(self.stop);
        let counted = self.counting.join();
        let counted = counted.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        counted.map_err(|problem| CaseError::Gateway(format!("the packets on the link: {problem}")))
    }
}

fn meter() -> Result<Meter, String> {
    let interface = Interface::find("wan").map_err(|error| error.to_string())?;
    let options = Options {
        interface,
        direction: Direction::Out,
        filter: Filter::default(),
        window_ns: WINDOW_NS,
        origin_ns: clock::now_ns(),
        whole_packets: false,
        attach: Attach::Auto,
    };
    Meter::start(&options).map_err(|error| error.to_string())
}

/// The largest sum of windows that follow each other.
#[derive(Default)]
struct Most {
    last: VecDeque<u64>,
    most_bytes: u64,
}

impl Most {
    fn add(&mut self, counts: Counts) {
        let framing = counts.packets * u64::from(FRAMING_BYTES);
        self.last.push_back(counts.bytes + framing);
        if self.last.len() > TOGETHER {
            self.last.pop_front();
        }
        self.most_bytes = self.most_bytes.max(self.last.iter().sum());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_ten_milliseconds_count_with_framing() {
        let mut most = Most::default();
        for window in 0..300 {
            let packets = u64::from((50..160).contains(&window));
            most.add(Counts {
                packets,
                bytes: packets * 1000,
            });
        }
        // 11 ms of them, and 10 that begin within a window touch 101.
        assert_eq!(most.most_bytes, 101 * (1000 + u64::from(FRAMING_BYTES)));
    }
}

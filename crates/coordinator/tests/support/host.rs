// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A host whose streams are made up, and a coordinator to talk to.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use paceline_coordinator::local::{Cap, LocalError, LocalStreams, StreamSample};

pub fn sample(cookie: u64, inflight_segs: u32) -> StreamSample {
    StreamSample {
        cookie,
        destination: None,
        inflight_segs,
        cwnd_segs: inflight_segs,
        ssthresh_segs: i32::MAX as u32,
        mss_bytes: 1448,
        srtt_us: 20_000,
        min_rtt_us: 20_000,
        acked_bytes: cookie.wrapping_mul(1000),
        delivered_segs: 0,
        unsent_bytes: 1_000_000,
        total_bytes: 0,
        retransmitted_segs: 0,
        recovering: false,
    }
}

#[derive(Default)]
pub struct Seen {
    pub caps: BTreeMap<u64, Cap>,
    pub lease: Duration,
    pub applied: u64,
}

#[derive(Clone, Default)]
pub struct Host {
    pub streams: Arc<Mutex<Vec<StreamSample>>>,
    pub seen: Arc<Mutex<Seen>>,
}

impl Host {
    pub fn with(streams: Vec<StreamSample>) -> Self {
        Self {
            streams: Arc::new(Mutex::new(streams)),
            seen: Arc::default(),
        }
    }

    pub fn max_of(&self, cookie: u64) -> Option<u32> {
        let seen = self.seen.lock().expect("no panic");
        seen.caps.get(&cookie).map(|cap| cap.max_segs)
    }

    pub fn applied(&self) -> u64 {
        self.seen.lock().expect("no panic").applied
    }
}

impl LocalStreams for Host {
    fn streams(&mut self) -> Result<Vec<StreamSample>, LocalError> {
        Ok(self.streams.lock().expect("no panic").clone())
    }

    fn apply(&mut self, caps: &[Cap], lease: Duration) -> Result<(), LocalError> {
        let mut seen = self.seen.lock().expect("no panic");
        seen.caps = caps.iter().map(|cap| (cap.cookie, *cap)).collect();
        seen.lease = lease;
        seen.applied += 1;
        Ok(())
    }
}

/// Waits for a condition; panics with `what` if it does not come.
pub async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it never came: {what}");
}

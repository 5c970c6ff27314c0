// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The streams of a group on this host, for `paceline coordinate join`.

use std::path::Path;
use std::time::Duration;

use paceline_agent::group::{Bounds, Group, Stream};
use paceline_coordinator::local::{Cap, LocalError, LocalStreams, StreamSample};

/// include/net/tcp_states.h
const TCP_ESTABLISHED: u32 = 1;

/// The calling user's group, from this host's kernel side; without root from the agent
/// whose sockets are in `agent`.
pub fn streams(group: &str, agent: &Path) -> anyhow::Result<Box<dyn LocalStreams>> {
    let mut group = Group::open(group, agent)?;
    // An impossible request fails at once; a later failure may be an agent that restarts.
    group.streams()?;
    Ok(Box::new(Local(group)))
}

struct Local(Group);

impl LocalStreams for Local {
    fn streams(&mut self) -> Result<Vec<StreamSample>, LocalError> {
        let streams = self.0.streams()?;
        // A closing stream has no data to hold back for the others.
        let open = |stream: &&Stream| stream.state == TCP_ESTABLISHED;
        Ok(streams.iter().filter(open).map(sample).collect())
    }

    fn apply(&mut self, caps: &[Cap], lease: Duration) -> Result<(), LocalError> {
        let bounds: Vec<Bounds> = caps
            .iter()
            .map(|cap| Bounds {
                cookie: cap.cookie,
                min_segs: cap.min_segs,
                max_segs: cap.max_segs,
            })
            .collect();
        self.0.apply(&bounds, lease)?;
        Ok(())
    }
}

fn sample(stream: &Stream) -> StreamSample {
    StreamSample {
        cookie: stream.cookie,
        destination: Some(stream.remote.ip()),
        inflight_segs: stream.inflight_segs,
        cwnd_segs: stream.cwnd_segs,
        ssthresh_segs: stream.ssthresh_segs,
        mss_bytes: stream.mss,
        srtt_us: stream.srtt_us,
        min_rtt_us: stream.min_rtt_us,
        acked_bytes: stream.acked_bytes,
        delivered_segs: stream.delivered_segs,
        unsent_bytes: stream.unsent_bytes.into(),
        total_bytes: stream.total_bytes,
        retransmitted_segs: stream.retransmitted_segs.into(),
        recovering: stream.recovering,
    }
}

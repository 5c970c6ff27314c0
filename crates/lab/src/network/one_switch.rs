// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One cluster: all hosts at one switch, the router. A packet passes the link of its host, at
//! the ports' rate, waits for the propagation, and then for the port towards its receiver:
//!
//! ```text
//! host0 eth0 --- edge0 router edge1 --- eth0 host1
//! ```

use paceline_experiment::plan::Topology;
use paceline_net::shaper::{shaper, shaper_at};

use super::kernel_link::{delay, DELAY_HANDLE};

/// Which host is the receiver where there is one: the first one sends.
pub(super) const RECEIVER: usize = 1;

/// Lines of `tc` for the port towards a host. netem is outside: its drops are those of the
/// port's own queue within it, and that one holds only packets that wait for the rate.
pub(super) fn port(device: &str, wanted: &Topology) -> String {
    let (rate_bps, buffer, mtu) = (wanted.rate_bps, wanted.buffer_bytes, wanted.mtu);
    match wanted.one_way_delay_ns {
        0 => shaper("add", device, rate_bps, buffer, mtu),
        delay_ns => {
            let within = format!("parent {DELAY_HANDLE}1");
            delay(device, delay_ns) + &shaper_at(&within, "add", device, rate_bps, buffer, mtu)
        }
    }
}

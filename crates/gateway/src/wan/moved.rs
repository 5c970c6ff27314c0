// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Detects that a silent peer has another address. QUIC moves a client to another address, never a
//! server (RFC 9000, 9): the session with it can only begin anew.

use std::net::SocketAddr;
use std::time::Duration;

use crate::hub::Hub;

/// Interval of look-ups of the name, and silence before the first.
const LOOK: Duration = Duration::from_secs(5);

/// Returns when the peer is silent and its name resolves to other addresses alone.
pub async fn moved(hub: &Hub, name: &str, connected: SocketAddr) {
    loop {
        tokio::time::sleep(LOOK).await;
        if u128::from(hub.seen().silent_ms) < LOOK.as_millis() {
            continue;
        }
        // A failed look-up, as in an outage, proves nothing.
        let Ok(found) = tokio::net::lookup_host(name).await else {
            continue;
        };
        let found: Vec<SocketAddr> = found.collect();
        if !found.is_empty() && !found.contains(&connected) {
            return;
        }
    }
}

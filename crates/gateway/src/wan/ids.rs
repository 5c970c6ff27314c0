// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connection IDs. quinn's own generator recognizes its IDs by a key that a restart loses, and so
//! it answers nothing to peers of the earlier process.

use std::time::Duration;

use quinn::{ConnectionId, ConnectionIdGenerator};
use ring::rand::{SecureRandom, SystemRandom};

/// Bytes of an ID.
const BYTES: usize = 8;

/// Random ones.
pub struct RandomIds;

impl ConnectionIdGenerator for RandomIds {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut bytes = [0; BYTES];
        // Without random numbers there is no TLS either: the handshake fails.
        let _ = SystemRandom::new().fill(&mut bytes);
        ConnectionId::new(&bytes)
    }

    fn cid_len(&self) -> usize {
        BYTES
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

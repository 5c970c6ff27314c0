// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The peers that are connected.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::hub::Hub;
use crate::weights::Weights;

/// Each peer's session and weights, by the peer's name.
#[derive(Default)]
pub struct Peers {
    sessions: Mutex<BTreeMap<String, Arc<Hub>>>,
    weights: BTreeMap<String, Weights>,
}

impl Peers {
    /// None is connected yet.
    pub fn new(weights: BTreeMap<String, Weights>) -> Self {
        Self {
            sessions: Mutex::default(),
            weights,
        }
    }

    /// Of a connection to an address at a peer's site.
    pub fn weight(&self, peer: &str, to: IpAddr) -> u8 {
        self.weights.get(peer).map_or(1, |weights| weights.of(to))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Hub>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A peer's session.
    pub fn hub(&self, peer: &str) -> Option<Arc<Hub>> {
        self.lock().get(peer).cloned()
    }

    /// A peer has a new session: one that it had before is over.
    pub fn join(&self, peer: &str, hub: &Arc<Hub>) {
        let before = self.lock().insert(peer.to_owned(), Arc::clone(hub));
        if let Some(before) = before {
            before.end();
        }
    }

    /// All sessions are over.
    pub fn end(&self) {
        for (_, hub) in std::mem::take(&mut *self.lock()) {
            hub.end();
        }
    }

    /// A session is over.
    pub fn leave(&self, peer: &str, hub: &Arc<Hub>) {
        hub.end();
        let mut peers = self.lock();
        if peers.get(peer).is_some_and(|own| Arc::ptr_eq(own, hub)) {
            peers.remove(peer);
        }
    }
}

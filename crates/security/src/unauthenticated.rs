// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Unauthenticated TCP connections: those before their proof.
//!
//! They have separate slots, so that they take none from members and `status`. With all slots
//! taken a new connection displaces the oldest one of the address with the most: an honest
//! client needs its slot for the round trips of a handshake, and a silent one is soon the
//! oldest.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{timeout_at, Instant};

use crate::error::{Error, FrameError};

/// Slots of all addresses together. Each costs a descriptor and some KB of memory.
pub const MOST: usize = 256;
/// Slots of one address: more than a cluster behind one address translator opens at once.
const MOST_OF_ONE: usize = 64;
/// Time limit of the whole handshake, TLS included.
const PATIENCE: Duration = Duration::from_secs(10);

/// The slots of unauthenticated connections.
#[derive(Default)]
pub struct Slots(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    next: u64,
    /// Oldest first.
    waiting: VecDeque<Waiting>,
}

struct Waiting {
    number: u64,
    from: IpAddr,
    /// Dropped when another connection takes the slot.
    _place: oneshot::Sender<()>,
}

/// The slot of a connection before its proof. It is free again when this is dropped.
pub struct Slot {
    all: Arc<Slots>,
    number: u64,
    displaced: oneshot::Receiver<()>,
    until: Instant,
}

impl Slots {
    /// A slot for a connection from this address. There always is one.
    pub fn admit(self: &Arc<Self>, from: IpAddr) -> Slot {
        let from = site(from);
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.make_room(from);
        let number = inner.next;
        inner.next += 1;
        let (place, displaced) = oneshot::channel();
        inner.waiting.push_back(Waiting {
            number,
            from,
            _place: place,
        });
        Slot {
            all: Arc::clone(self),
            number,
            displaced,
            until: Instant::now() + PATIENCE,
        }
    }
}

impl Inner {
    fn make_room(&mut self, from: IpAddr) {
        let of_one = |site| self.waiting.iter().filter(|w| w.from == site).count();
        let crowded = if of_one(from) >= MOST_OF_ONE {
            Some(from)
        } else if self.waiting.len() >= MOST {
            self.most_crowded()
        } else {
            None
        };
        let oldest = crowded.and_then(|site| self.waiting.iter().position(|w| w.from == site));
        if let Some(oldest) = oldest {
            self.waiting.remove(oldest);
        }
    }

    fn most_crowded(&self) -> Option<IpAddr> {
        let mut counts = HashMap::new();
        for waiting in &self.waiting {
            *counts.entry(waiting.from).or_insert(0) += 1;
        }
        let most = counts.into_iter().max_by_key(|(_, count)| *count);
        most.map(|(site, _)| site)
    }
}

impl Slot {
    /// A part of the handshake, as long as it may last and the place is kept.
    ///
    /// # Errors
    /// [`Error::Displaced`], [`FrameError::Slow`], and the part's own. After one of the first
    /// two it is not to be called again.
    pub async fn within<T, E: From<Error>>(
        &mut self,
        part: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        tokio::select! {
            done = timeout_at(self.until, part) => match done {
                Ok(done) => done,
                Err(_) => Err(Error::from(FrameError::Slow(PATIENCE)).into()),
            },
            _ = &mut self.displaced => Err(Error::Displaced.into()),
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut inner = self.all.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner
            .waiting
            .retain(|waiting| waiting.number != self.number);
    }
}

/// One host counts once: an IPv6 host by its network of 64 bits.
fn site(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << 64))),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn has_place(place: &Slot) -> bool {
        let inner = place.all.0.lock().unwrap();
        inner.waiting.iter().any(|w| w.number == place.number)
    }

    #[tokio::test]
    async fn the_user_with_most_connections_makes_room() {
        let unauthenticated = Arc::new(Slots::default());
        let honest = unauthenticated.admit(address("10.0.0.1"));
        let mut many: Vec<Slot> = (0..MOST_OF_ONE)
            .map(|_| unauthenticated.admit(address("10.0.0.2")))
            .collect();
        assert!(has_place(&many[0]));
        let _one_more = unauthenticated.admit(address("10.0.0.2"));
        assert!(!has_place(&many[0]));
        assert!(has_place(&many[1]));
        let error = many[0]
            .within(std::future::pending::<Result<(), Error>>())
            .await;
        assert!(matches!(error, Err(Error::Displaced)));
        // From everywhere: whoever has most, not who came first.
        let _others: Vec<Slot> = (0..MOST)
            .map(|n| unauthenticated.admit(address(&format!("10.1.{}.{}", n / 200, n % 200))))
            .collect();
        assert!(!has_place(&many[MOST_OF_ONE - 1]));
        assert!(has_place(&honest));
        assert!(unauthenticated.0.lock().unwrap().waiting.len() <= MOST);
    }

    #[tokio::test]
    async fn an_ipv6_network_is_one_and_places_are_given_back() {
        let unauthenticated = Arc::new(Slots::default());
        let first = unauthenticated.admit(address("fd00::1"));
        let more: Vec<Slot> = (0..MOST_OF_ONE)
            .map(|n| unauthenticated.admit(address(&format!("fd00::{n:x}:1"))))
            .collect();
        assert!(!has_place(&first));
        drop((first, more));
        assert!(unauthenticated.0.lock().unwrap().waiting.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_handshake_does_not_last_for_ever() {
        let unauthenticated = Arc::new(Slots::default());
        let mut place = unauthenticated.admit(address("10.0.0.1"));
        let ended = place
            .within(std::future::pending::<Result<(), Error>>())
            .await;
        assert!(matches!(ended, Err(Error::Frame(FrameError::Slow(_)))));
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A pair of gateways in front of hosts that cannot be touched: TCP ends at each, and the data
//! crosses the WAN in one session at a reserved or learned rate. It is Comet-TCP
//! (kamezawa-2004, 3) without the card.
//!
//! - [`session`]: all connections of a pair as streams of one session, without clock or socket;
//! - [`wan`]: the session in QUIC datagrams, and the thread that paces it;
//! - [`local`]: connections of programs at this site;
//! - [`rules`]: rules that lead packets of other hosts to a transparent gateway;
//! - [`probe`]: checks of this host and the paths for a gateway's needs;
//! - [`config`]: the configuration file; [`service`]: the running gateway.

#![deny(unsafe_code)]

pub mod config;
mod hub;
pub mod local;
mod peers;
pub mod probe;
pub mod rules;
pub mod service;
pub mod session;
pub mod wan;
mod weights;
pub use weights::Weights;

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The configuration file.

mod check;
mod keys;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use indexmap::IndexMap;
use ipnet::IpNet;
use paceline_input::{Document, Problems, Reader};
use serde_json::Value;

use self::check::checked;
use self::keys::File;
pub use self::keys::{Connect, Leg};
use crate::local::Allow;
use crate::session::Rate;
use crate::weights::Weights;

/// Credentials for peers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The token.
    pub token: Option<PathBuf>,
    /// Certificate and key.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Authorities.
    pub authorities: Option<PathBuf>,
}

/// A peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Its name.
    pub name: String,
    /// Its address; `None`: the peer connects.
    pub address: Option<String>,
    /// Transport; `None`: UDP, or TCP where UDP gets no answer.
    pub leg: Option<Leg>,
    /// Of its certificate.
    pub fingerprint: Option<[u8; 32]>,
    /// Send rate of this side.
    pub rate: Rate,
    /// Bytes.
    pub memory: u64,
    /// UDP payload, bytes.
    pub mtu: u16,
    /// In each direction.
    pub connections: u64,
    /// Of connections that this side makes, by their destination.
    pub weights: Weights,
    /// Nanoseconds.
    pub patience: u64,
}

/// A proxy for programs here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proxy {
    /// Listen address.
    pub listen: SocketAddr,
    /// Name of the peer.
    pub peer: String,
}

/// Connections that are taken on their way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transparent {
    /// Interface by which the hosts' packets come in; `None`: programs of this host alone.
    pub interface: Option<String>,
    /// Name of the peer.
    pub peer: String,
    /// Destinations.
    pub to: Allow,
    /// `None`: honest where the kernel can, else fast.
    pub connect: Option<Connect>,
    /// Own port.
    pub port: u16,
}

/// A gateway's configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Own name.
    pub name: String,
    /// Listen address for peers.
    pub listen: Option<SocketAddr>,
    /// Credentials of this side.
    pub identity: Identity,
    /// For `status`; `None`: the default path.
    pub control: Option<PathBuf>,
    /// By name.
    pub peers: IndexMap<String, Peer>,
    /// SOCKS5.
    pub socks: Option<Proxy>,
    /// HTTP CONNECT.
    pub http: Option<Proxy>,
    /// Of hosts that are routed through this gateway.
    pub transparent: Option<Transparent>,
    /// Destinations that peers may connect to.
    pub allow: Allow,
    /// Destinations see the address of the connecting host.
    pub is_source_kept: bool,
}

/// A configuration file with an error.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("cannot read {file}: {source}")]
    Read {
        /// Its path.
        file: String,
        /// The I/O error.
        source: std::io::Error,
    },
    /// Its errors.
    #[error(transparent)]
    Invalid(#[from] Problems),
}

/// The schema of the file, for editors.
pub fn schema() -> Value {
    paceline_input::schema::<File>()
}

impl Config {
    /// Reads a file. Paths in it are relative to its directory.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
            file: file.clone(),
            source,
        })?;
        let directory = path.parent().unwrap_or(Path::new(""));
        Ok(Self::parse(&text, &file, directory)?)
    }

    /// Networks of the hosts whose addresses a peer's connections keep here; `None`: they use this
    /// gateway's. A peer may use only addresses of the site that it serves.
    pub fn sources(&self, peer: &str) -> Option<Vec<IpNet>> {
        let site = self.transparent.as_ref().filter(|to| to.peer == peer);
        let networks = site.map_or_else(Vec::new, |to| to.to.networks.clone());
        self.is_source_kept.then_some(networks)
    }

    /// Parses a text. `file` is its name in messages.
    ///
    /// # Errors
    /// All errors of the text.
    pub fn parse(text: &str, file: &str, directory: &Path) -> Result<Self, Problems> {
        let document = Document::new(file, text);
        let read: File = Reader::default().read(&document, &[])?;
        document.check(|place| Ok(checked(&read, place, directory)))
    }
}

/// For the fuzzer.
pub fn fuzz(text: &str) -> Option<Problems> {
    Config::parse(text, "file.toml", Path::new("")).err()
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why there is no session with a peer.

use crate::session::SessionError;

/// See the module's text.
#[derive(Debug, thiserror::Error)]
pub enum WanError {
    /// Keys, certificates, tokens.
    #[error(transparent)]
    Security(#[from] paceline_security::Error),
    /// The socket.
    #[error("cannot open UDP {address}: {source}")]
    Socket {
        /// The address.
        address: String,
        /// The I/O error.
        source: std::io::Error,
    },
    /// The socket of the TCP leg.
    #[error("cannot listen at TCP {address}: {source}")]
    Listen {
        /// The address.
        address: String,
        /// The I/O error.
        source: std::io::Error,
    },
    /// The TCP leg.
    #[error("the TCP connection to the peer: {0}")]
    Tcp(std::io::Error),
    /// The private key.
    #[error("cannot read {path}: {source}")]
    Key {
        /// Its file.
        path: String,
        /// The I/O error.
        source: std::io::Error,
    },
    /// The name of a peer has no address.
    #[error("cannot find {0}")]
    NoAddress(String),
    /// QUIC refuses a setting.
    #[error("QUIC: {0}")]
    Quic(String),
    /// The connection ended.
    #[error("the connection to the peer: {0}")]
    Connection(#[from] quinn::ConnectionError),
    /// The path carries no datagrams of the configured size.
    #[error("the peer takes no QUIC datagrams")]
    NoDatagrams,
    /// A peer that is in no table.
    #[error("there is no table [peer.{0}], or its fingerprint is another one")]
    Stranger(String),
    /// A malformed first message.
    #[error("the peer's first message is malformed")]
    Malformed,
    /// The peer broke the session's rules.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// It was silent for too long.
    #[error("the session is over: the peer was silent for too long, or began a new one")]
    Over,
    /// No host answers, or no gateway.
    #[error("no answer from {0}")]
    Unanswered(String),
    /// It is silent, and its name resolves to another address.
    #[error("the peer is silent, and {0} is another address now")]
    Moved(String),
    /// The thread could not start.
    #[error("cannot start the thread of the WAN: {0}")]
    Thread(std::io::Error),
}

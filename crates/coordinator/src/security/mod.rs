// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who may take part. On one host the kernel says whose process it is (a Unix socket);
//! over loopback's TCP a token is proven, and every frame is sealed with it; between
//! hosts there is TLS, with certificates on both sides or a token inside.

mod local_socket;
mod tls;
mod token;

pub(crate) use local_socket::check_peer;
pub use local_socket::{bind, connect, default_socket};
pub use tls::{binding, client_tls, fingerprint_of, server_tls, ServerTrust};
pub(crate) use token::same;
pub use token::{Handshake, Seal, Token, TAG_BYTES};

/// What is wrong with keys, certificates, sockets, or with who uses them.
#[derive(Debug, thiserror::Error)]
pub enum SecurityError {
    /// A file that cannot be used.
    #[error("{path}: {what}")]
    File {
        /// Which.
        path: String,
        /// Why not, and what would be right.
        what: String,
    },
    /// TLS does not take what was given.
    #[error("TLS: {0}")]
    Tls(#[source] rustls::Error),
    /// A certificate that does not convince, or no TLS at all.
    #[error("TLS handshake: {0}")]
    Handshake(#[source] std::io::Error),
    /// Settings that leave a door open.
    #[error("{0}")]
    Open(String),
    /// A process of somebody else's.
    #[error("the process at the other end belongs to user {user}, which may not take part")]
    Stranger {
        /// Its user's number.
        user: u32,
    },
    /// The token was not proven.
    #[error("the token is not the same on both sides")]
    Proof,
    /// One side wants a token, the other has none.
    #[error("{0}")]
    TokenMissing(&'static str),
}

fn file_error(path: &std::path::Path, what: impl Into<String>) -> SecurityError {
    SecurityError::File {
        path: path.display().to_string(),
        what: what.into(),
    }
}

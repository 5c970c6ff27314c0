// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who may take part. On one host the kernel says whose process it is (a Unix socket);
//! over loopback's TCP a token is proven, and every frame is sealed with it; between
//! hosts there is TLS, with certificates on both sides or a token inside.

#![forbid(unsafe_code)]

mod error;
mod frame;
mod local_socket;
mod strangers;
mod tls;
mod token;

pub use error::{Error, FrameError, Result};
pub use frame::{Reader, Writer, MOST_GREETING};
pub use local_socket::{bind, check_peer, connect, default_socket};
pub use strangers::{Stranger, Strangers, MOST as MOST_STRANGERS};
pub use tls::{binding, client_tls, fingerprint_of, server_tls, ServerTrust};
pub use token::{same, Handshake, Nonce, Proof, Seal, Token, TAG_BYTES};

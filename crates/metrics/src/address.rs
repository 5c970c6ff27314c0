// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where metrics are served: on this host alone.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// A Unix socket or a loopback address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A Unix socket at a path, for its owner and group.
    Unix(PathBuf),
    /// TCP on this host.
    Loopback(SocketAddr),
}

/// Why a text is no [`Address`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Neither form.
    #[error("{0:?} is no address: expected a socket's path such as /run/paceline/metrics.sock, or a loopback address with its port such as 127.0.0.1:9842")]
    Malformed(String),
    /// Other hosts could read it.
    #[error("{0} is not a loopback address: metrics are served without encryption, so only on this host, such as at 127.0.0.1:{port}. Put a proxy with TLS in front for other hosts", port = .0.port())]
    NotLoopback(SocketAddr),
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if text.starts_with('/') && !text.ends_with('/') {
            return Ok(Self::Unix(PathBuf::from(text)));
        }
        let address: SocketAddr = text
            .parse()
            .map_err(|_| AddressError::Malformed(text.to_owned()))?;
        match address.ip().is_loopback() {
            true => Ok(Self::Loopback(address)),
            false => Err(AddressError::NotLoopback(address)),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => path.display().fmt(f),
            Self::Loopback(address) => write!(f, "http://{address}/metrics"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_and_a_loopback_address_are_taken() {
        assert_eq!(
            "/run/x.sock".parse(),
            Ok(Address::Unix(PathBuf::from("/run/x.sock")))
        );
        for text in ["127.0.0.1:9842", "[::1]:0", "127.9.9.9:1"] {
            let address = text.parse().expect("loopback");
            assert!(matches!(address, Address::Loopback(_)), "{address:?}");
        }
    }

    #[test]
    fn others_are_refused_with_the_right_form() {
        for text in ["", "9842", "localhost:9842", "run/x.sock", "/run/"] {
            let error = text.parse::<Address>().expect_err(text).to_string();
            assert!(error.contains("127.0.0.1:9842"), "{error}");
        }
        for text in ["0.0.0.0:9842", "10.0.0.1:9842", "[::]:9842"] {
            let error = text.parse::<Address>().expect_err(text).to_string();
            assert!(error.contains("such as at 127.0.0.1:9842"), "{error}");
        }
    }
}

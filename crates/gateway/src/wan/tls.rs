// SPDX-License-Identifier: Apache-2.0 OR MIT
//! TLS of both legs, which authenticates peers.

use std::sync::Arc;

use paceline_security as security;
use paceline_security::ServerTrust;

use super::error::WanError;
use crate::config::{Config, Peer};

/// Protocol inside TLS.
const ALPN: &[u8] = b"paceline-gateway/1";

/// Of the side that listens.
///
/// # Errors
/// [`WanError::Quic`], [`WanError::Security`].
pub fn server(config: &Config) -> Result<rustls::ServerConfig, WanError> {
    let Some((certificate, key)) = &config.identity.certificate else {
        return Err(WanError::Quic("no certificate".to_owned()));
    };
    let tls = match &config.identity.authorities {
        Some(path) => security::server_tls(certificate, key, Some(path))?,
        None => {
            let known = config.peers.values().filter_map(|peer| peer.fingerprint);
            security::server_tls_pinned(certificate, key, known.collect())?
        }
    };
    let mut tls = Arc::unwrap_or_clone(tls);
    tls.alpn_protocols = vec![ALPN.to_vec()];
    tls.max_early_data_size = 0;
    Ok(tls)
}

/// Of the side that connects.
///
/// # Errors
/// [`WanError::Stranger`], [`WanError::Security`].
pub fn client(config: &Config, peer: &Peer) -> Result<rustls::ClientConfig, WanError> {
    let trust = match (peer.fingerprint, &config.identity.authorities) {
        (Some(fingerprint), _) => ServerTrust::Pinned(fingerprint),
        (None, Some(path)) => ServerTrust::Authorities(path.clone()),
        (None, None) => return Err(WanError::Stranger(peer.name.clone())),
    };
    let own = config.identity.certificate.as_ref();
    let own = own.map(|(certificate, key)| (certificate.as_path(), key.as_path()));
    let mut tls = Arc::unwrap_or_clone(security::client_tls(&trust, own)?);
    tls.alpn_protocols = vec![ALPN.to_vec()];
    tls.enable_early_data = false;
    Ok(tls)
}

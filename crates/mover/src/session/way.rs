// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The way to a session's own port.

use paceline_security::{client_tls, ServerTrust, Token};
use paceline_transfer::wire::Access;

use super::pool::Way;
use paceline_conduit::connect::{with_port, Credentials};
use paceline_conduit::data_port::NAME;
use paceline_conduit::{Error, Result};

/// The way to the other side's data connections. `host`: if the address in `access` is missing or
/// leads nowhere.
pub(super) fn port_way(
    access: Access,
    host: &str,
    is_plain: bool,
    (session, secret): ([u8; 16], [u8; 32]),
) -> Result<Way> {
    let Access::Port {
        port,
        fingerprint,
        address,
    } = access
    else {
        return Err(Error::Unexpected("there is no port for data connections"));
    };
    if fingerprint.is_none() && !is_plain {
        return Err(Error::Unexpected("data connections without encryption"));
    }
    let tls = fingerprint.map(|print| client_tls(&ServerTrust::Pinned(print), None));
    let hosts = address.into_iter().chain([host.to_owned()]);
    Ok(Way {
        addresses: hosts.map(|host| with_port(&host, port)).collect(),
        credentials: Credentials {
            token: Some(Token::new(&secret)),
            tls: tls.transpose()?,
            server_name: Some(NAME.to_owned()),
        },
        session,
        is_plain,
    })
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a connection begins, on either side.

use std::time::Duration;

use paceline_security::{same, Error as SecurityError, Handshake, Nonce, Token};
use ring::rand::{SecureRandom, SystemRandom};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::protocol::{Message, Reader, Role, WireError, Writer};
use crate::Error;

/// How long the other side may take for each message of the handshake.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
const NO_PROOF: [u8; 32] = [0; 32];

/// What protects a connection, apart from a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Protection {
    /// A Unix socket whose peer the kernel has named: no token is needed.
    Kernel,
    /// TLS, with what is the same on both ends only. `known`: its certificate said who
    /// the client is.
    Tls { binding: Vec<u8>, known: bool },
    /// None: frames are sealed with the token.
    None,
}

impl Protection {
    fn binding(&self) -> &[u8] {
        match self {
            Self::Tls { binding, .. } => binding,
            _ => &[],
        }
    }
}

/// Who has joined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Joined {
    pub role: Role,
    pub group: String,
    pub host: String,
}

fn nonce() -> Result<Nonce, Error> {
    let mut nonce = [0; 32];
    let filled = SystemRandom::new().fill(&mut nonce);
    filled.map_err(|_| Error::NoRandomness)?;
    Ok(nonce)
}

/// The server's side. Who is refused is told why, in general terms.
pub(crate) async fn accept<R, W>(
    reader: &mut Reader<R>,
    writer: &mut Writer<W>,
    token: Option<&Token>,
    protection: &Protection,
) -> Result<Joined, Error>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let token = match protection {
        Protection::Kernel => None,
        _ => token,
    };
    if token.is_none()
        && matches!(
            protection,
            Protection::None | Protection::Tls { known: false, .. }
        )
    {
        return Err(
            SecurityError::TokenMissing("the server has no token for this connection").into(),
        );
    }
    let server = nonce()?;
    let hello = Message::Hello {
        nonce: server,
        token: token.is_some(),
    };
    writer.send(&hello, PATIENCE).await?;
    let (role, group, host, client, proof) = match reader.next(PATIENCE).await? {
        Message::Join {
            role,
            group,
            host,
            nonce,
            proof,
        } => (role, group, host, nonce, proof),
        _ => return Err(Error::Unexpected("a handshake begins with Join")),
    };
    let about = Handshake {
        server: &server,
        client: &client,
        role: role.name(),
        group: &group,
        host: &host,
        binding: protection.binding(),
    };
    let mut answer = NO_PROOF;
    if let Some(token) = token {
        if !same(&token.client_proof(&about), &proof) {
            return Err(SecurityError::Proof.into());
        }
        answer = token.server_proof(&about);
    }
    writer
        .send(&Message::Welcome { proof: answer }, PATIENCE)
        .await?;
    let seals = token
        .filter(|_| *protection == Protection::None)
        .map(|token| token.seals(&about));
    let (incoming, outgoing) = seals.unzip();
    reader.trust(incoming);
    writer.trust(outgoing);
    Ok(Joined { role, group, host })
}

/// The client's side.
pub(crate) async fn join<R, W>(
    reader: &mut Reader<R>,
    writer: &mut Writer<W>,
    token: Option<&Token>,
    protection: &Protection,
    joined: &Joined,
) -> Result<(), Error>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let (server, wanted) = match reader.next(PATIENCE).await? {
        Message::Hello { nonce, token } => (nonce, token),
        Message::Refused { for_good, text } => return Err(Error::Refused { for_good, text }),
        _ => return Err(Error::Unexpected("a handshake begins with Hello")),
    };
    let token = match (wanted, token) {
        (true, None) => {
            return Err(
                SecurityError::TokenMissing("the server wants a token: give --token-file").into(),
            )
        }
        // Else anybody on this host could play the server.
        (false, _) if *protection == Protection::None => {
            return Err(SecurityError::TokenMissing("the server does not prove a token").into())
        }
        (true, token) => token,
        (false, _) => None,
    };
    let client = nonce()?;
    let about = Handshake {
        server: &server,
        client: &client,
        role: joined.role.name(),
        group: &joined.group,
        host: &joined.host,
        binding: protection.binding(),
    };
    let proof = token.map_or(NO_PROOF, |token| token.client_proof(&about));
    let message = Message::Join {
        role: joined.role,
        group: joined.group.clone(),
        host: joined.host.clone(),
        nonce: client,
        proof,
    };
    writer.send(&message, PATIENCE).await?;
    let proof = match reader.next(PATIENCE).await? {
        Message::Welcome { proof } => proof,
        Message::Refused { for_good, text } => return Err(Error::Refused { for_good, text }),
        _ => {
            return Err(Error::Unexpected(
                "Join is answered with Welcome or Refused",
            ))
        }
    };
    if token.is_some_and(|token| !same(&token.server_proof(&about), &proof)) {
        return Err(SecurityError::Proof.into());
    }
    let seals = token
        .filter(|_| *protection == Protection::None)
        .map(|token| token.seals(&about));
    let (outgoing, incoming) = seals.unzip();
    reader.trust(incoming);
    writer.trust(outgoing);
    Ok(())
}

/// An error as the other side is told: nothing about files or keys.
pub(crate) fn refusal(error: &Error) -> Message {
    let (for_good, text) = match error {
        Error::Security(SecurityError::Proof) => {
            (true, "the token is not the right one".to_owned())
        }
        Error::Security(error @ SecurityError::Stranger { .. }) => (true, error.to_string()),
        Error::Security(_) => (true, "not allowed".to_owned()),
        Error::Wire(error @ WireError::Version { .. }) => (true, error.to_string()),
        Error::Full { .. } => (false, error.to_string()),
        Error::NoSuchGroup { .. } => (true, error.to_string()),
        _ => (false, error.to_string()),
    };
    Message::Refused { for_good, text }
}

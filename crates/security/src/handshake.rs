// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The handshake.
//!
//! ```text
//! server                                    client
//! Greeting: purpose, version, nonce,
//!           proof required or not
//!                                           Join: purpose, version, and the intent,
//!                                                 inside a proof if one is required
//! Welcome: the server's proof     or Refused
//! ```
//!
//! The service's own messages follow: in clear where the kernel or TLS protects the
//! connection, else encrypted with the keys of the proof. Until then frames are limited to
//! [`crate::MOST_GREETING`].

use std::time::Duration;

use ring::rand::{SecureRandom, SystemRandom};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::error::{Error, FrameError, Result};
use crate::frame::{Reader, Writer};
use crate::greeting::{FromServer, Greeting, Join, Word};
use crate::proof::{verify, About, Keys, Prover};
use crate::service::Service;
use crate::token::Token;

/// Longest wait for one message of the handshake.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Error of a server without a token.
const NO_TOKEN: &str = "the server has no token for this connection";

/// Protection of a connection below the handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Protection {
    /// A Unix socket with a peer that the kernel has named, or a pipe to a process of ours:
    /// no token is needed.
    Kernel,
    /// TLS.
    Tls {
        /// See [`crate::binding`].
        binding: Vec<u8>,
        /// The peer has shown a certificate.
        known: bool,
    },
    /// Nothing: a token must be proven, and all frames after it are encrypted.
    None,
}

impl Protection {
    fn binding(&self) -> &[u8] {
        match self {
            Self::Tls { binding, .. } => binding,
            Self::Kernel | Self::None => &[],
        }
    }

    /// Without a token the peer is not authenticated.
    fn needs_token(&self) -> bool {
        matches!(self, Self::None | Self::Tls { known: false, .. })
    }

    /// Encryption is needed where nothing else protects the connection.
    fn keys(&self, keys: Keys) -> Option<Keys> {
        (*self == Self::None).then_some(keys)
    }
}

/// The server's side. Returns the client's intent, which only the service can decode. After
/// an error the caller answers the client with [`refuse`].
///
/// # Errors
/// [`Error::TokenMissing`] if a token is required and one side has none, [`Error::Version`]
/// and [`Error::Purpose`] for another service's client, [`Error::Proof`], [`Error::Left`],
/// [`Error::Malformed`], [`Error::Unexpected`], [`Error::Frame`]; [`Error::Random`] and
/// [`Error::Noise`] if the kernel gives no random numbers.
pub async fn accept<R, W>(
    reader: &mut Reader<R>,
    writer: &mut Writer<W>,
    service: &Service,
    token: Option<&Token>,
    protection: &Protection,
) -> Result<Vec<u8>>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    if token.is_none() && protection.needs_token() {
        return Err(Error::TokenMissing(NO_TOKEN));
    }
    let greeted = Greeted::new(service, token, protection == &Protection::Kernel)?;
    writer.send(&greeted.body, PATIENCE).await?;
    accept_greeted(reader, writer, service, token, protection, &greeted).await
}

/// A server's first message. It says nothing of the connection, so a server may send it before
/// TLS is up: with its own part of TLS's handshake, which saves a round trip (RFC 8446, 2: a
/// server's data may follow its Finished).
#[derive(Debug)]
pub struct Greeted {
    body: Vec<u8>,
    proof: bool,
}

impl Greeted {
    /// For one connection. The kernel's word, if `is_kernel`, needs no token.
    ///
    /// # Errors
    /// [`Error::Random`] if the kernel gives no random numbers.
    pub fn new(service: &Service, token: Option<&Token>, is_kernel: bool) -> Result<Self> {
        let proof = token.is_some() && !is_kernel;
        let greeting = Greeting {
            purpose: service.purpose,
            version: service.version,
            nonce: nonce()?,
            proof,
        };
        let body = FromServer::Greeting(greeting).encode();
        Ok(Self { body, proof })
    }

    /// As it goes over the connection.
    pub fn frame(&self) -> Vec<u8> {
        let mut frame = (self.body.len() as u32).to_le_bytes().to_vec();
        frame.extend_from_slice(&self.body);
        frame
    }
}

/// As [`accept`], of a client that was greeted.
///
/// # Errors
/// As of [`accept`].
pub async fn accept_greeted<R, W>(
    reader: &mut Reader<R>,
    writer: &mut Writer<W>,
    service: &Service,
    token: Option<&Token>,
    protection: &Protection,
    greeted: &Greeted,
) -> Result<Vec<u8>>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    if token.is_none() && protection.needs_token() {
        return Err(Error::TokenMissing(NO_TOKEN));
    }
    let token = token.filter(|_| greeted.proof);
    let join = match reader.next(PATIENCE).await {
        Err(FrameError::Closed) => return Err(Error::Left),
        frame => Join::decode(frame?)?,
    };
    service.check(join.purpose, join.version)?;
    let about = About {
        service,
        greeting: &greeted.body,
        binding: protection.binding(),
    };
    let (intent, proof, keys) = match (join.word, token) {
        (Word::Open(intent), None) => (intent, Vec::new(), None),
        (Word::Proven(proof), Some(token)) => {
            let verified = verify(token, &about, &proof)?;
            let keys = protection.keys(verified.keys);
            (verified.intent, verified.answer, keys)
        }
        (Word::Open(_), Some(_)) => return Err(Error::Proof),
        (Word::Proven(_), None) => {
            return Err(Error::Unexpected("a proof where none was required"))
        }
        (Word::Leave, _) => {
            let what = "the client has no token";
            return Err(Error::TokenMissing(what));
        }
    };
    let welcome = FromServer::Welcome { proof }.encode();
    writer.send(&welcome, PATIENCE).await?;
    reader.trust(keys.clone(), service.most_frame);
    writer.trust(keys);
    Ok(intent)
}

/// The client's side. `intent` is for the service to decode. It has at most 900 bytes, so
/// that the message fits a frame of [`crate::MOST_GREETING`].
///
/// # Errors
/// [`Error::Refused`] with the server's reason; [`Error::Version`] and [`Error::Purpose`]
/// for another service's server, [`Error::TokenMissing`] if a token is required and one
/// side has none: the server is notified of these; [`Error::Proof`] if the server's token is
/// another one; [`Error::Malformed`], [`Error::Unexpected`], [`Error::Frame`], and
/// [`Error::Noise`] if the kernel gives no random numbers.
pub async fn join<R, W>(
    reader: &mut Reader<R>,
    writer: &mut Writer<W>,
    service: &Service,
    token: Option<&Token>,
    protection: &Protection,
    intent: &[u8],
) -> Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let joining = begin(reader, writer, service, token, protection, intent).await?;
    let keys = joining.answered(reader).await?;
    writer.trust(keys);
    Ok(())
}

/// A client that has sent its message and has no answer yet.
pub struct Joining {
    service: Service,
    protection: Protection,
    is_greeted: bool,
    prover: Option<Prover>,
}

/// The first half of [`join`]. Where the kernel or TLS protects the connection, the server is known
/// by then, and the service's own messages may follow at once: they reach the server with the
/// client's message, a round trip earlier than after its answer. In a pipe to a process of ours the
/// greeting, too, is not awaited: nothing in it is needed.
///
/// # Errors
/// As of [`join`], but for those of the server's answer.
pub async fn begin<R, W>(
    reader: &mut Reader<R>,
    writer: &mut Writer<W>,
    service: &Service,
    token: Option<&Token>,
    protection: &Protection,
    intent: &[u8],
) -> Result<Joining>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let word_of = |word| {
        Join {
            purpose: service.purpose,
            version: service.version,
            word,
        }
        .encode()
    };
    let mut joining = Joining {
        service: *service,
        protection: protection.clone(),
        is_greeted: false,
        prover: None,
    };
    let word = if *protection == Protection::Kernel {
        Word::Open(intent.to_vec())
    } else {
        let first = reader.next(PATIENCE).await?.to_vec();
        joining.is_greeted = true;
        let token = match greeted(&first, service, token, protection) {
            Err(
                error @ (Error::Version { .. } | Error::Purpose { .. } | Error::TokenMissing(_)),
            ) => {
                // So that the server can report it as well. It may be gone already.
                let _ = writer.send(&word_of(Word::Leave), PATIENCE).await;
                return Err(error);
            }
            token => token?,
        };
        let about = About {
            service,
            greeting: &first,
            binding: protection.binding(),
        };
        match token {
            None => Word::Open(intent.to_vec()),
            Some(token) => {
                let (prover, proof) = Prover::new(token, &about, intent)?;
                joining.prover = Some(prover);
                Word::Proven(proof)
            }
        }
    };
    match writer.send(&word_of(word), PATIENCE).await {
        // A process that has reported its error may have closed the pipe.
        Err(_) if !joining.is_greeted => {}
        sent => sent?,
    }
    Ok(joining)
}

impl Joining {
    /// The second half of [`join`]: the server's answer. Keys for the writer, where neither the
    /// kernel nor TLS protects the connection.
    ///
    /// # Errors
    /// As of [`join`].
    pub async fn answered<R: AsyncRead + Unpin>(
        self,
        reader: &mut Reader<R>,
    ) -> Result<Option<Keys>> {
        if !self.is_greeted {
            let first = reader.next(PATIENCE).await?;
            greeted(first, &self.service, None, &self.protection)?;
        }
        let answer = match FromServer::decode(reader.next(PATIENCE).await?)? {
            FromServer::Welcome { proof } => proof,
            FromServer::Refused { for_good, text } => {
                return Err(Error::Refused { for_good, text })
            }
            FromServer::Greeting(_) => {
                return Err(Error::Unexpected(
                    "Join is answered with Welcome or Refused",
                ))
            }
        };
        let keys = match self.prover {
            Some(prover) => self.protection.keys(prover.finish(&answer)?),
            None => None,
        };
        reader.trust(keys.clone(), self.service.most_frame);
        Ok(keys)
    }
}

/// Sends a client the reason of its refusal, without details of files and keys. Must not be called
/// after [`accept`] has succeeded.
pub async fn refuse<W: AsyncWrite + Unpin>(writer: &mut Writer<W>, error: &Error) {
    let (for_good, text) = match error {
        Error::Proof => (true, "wrong token".to_owned()),
        Error::NotAuthorized { .. } | Error::Version { .. } | Error::Purpose { .. } => {
            (true, error.to_string())
        }
        Error::Displaced | Error::Malformed | Error::Unexpected(_) | Error::Frame(_) => {
            (false, error.to_string())
        }
        _ => (true, "not allowed".to_owned()),
    };
    let refused = FromServer::refused(for_good, &text).encode();
    // Best effort: the connection may be broken.
    let _ = writer.send(&refused, REFUSAL_PATIENCE).await;
}

/// Longest wait for a refused client to take the reason.
const REFUSAL_PATIENCE: Duration = Duration::from_secs(2);

/// Checks the greeting. Returns the token to prove, if one is required.
fn greeted<'t>(
    first: &[u8],
    service: &Service,
    token: Option<&'t Token>,
    protection: &Protection,
) -> Result<Option<&'t Token>> {
    let greeting = match FromServer::decode(first)? {
        FromServer::Greeting(greeting) => greeting,
        FromServer::Refused { for_good, text } => return Err(Error::Refused { for_good, text }),
        FromServer::Welcome { .. } => {
            return Err(Error::Unexpected("a handshake begins with a greeting"))
        }
    };
    service.check(greeting.purpose, greeting.version)?;
    match (greeting.proof, token) {
        (true, None) => {
            let what = "the server requires a token: give --token-file";
            Err(Error::TokenMissing(what))
        }
        // Without a proof, any process on this host could be the server.
        (false, _) if *protection == Protection::None => {
            let what = "the server did not prove a token";
            Err(Error::TokenMissing(what))
        }
        (true, token) => Ok(token),
        (false, _) => Ok(None),
    }
}

fn nonce() -> Result<[u8; 32]> {
    let mut nonce = [0; 32];
    let filled = SystemRandom::new().fill(&mut nonce);
    filled.map_err(|_| Error::Random)?;
    Ok(nonce)
}

#[cfg(test)]
mod tests;

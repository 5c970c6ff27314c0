// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Both sides prove that they have the token. Neither sends it.
//!
//! The proof is a Noise handshake (<https://noiseprotocol.org/noise.html>, revision 34) with
//! the pattern NNpsk0 (9.4): no static keys, one pre-shared key.
//!
//! ```text
//! client -> server   psk, e        payload: the client's intent
//! server -> client   e, ee
//! ```
//!
//! The first message alone proves the client's token, so a server computes no key pair for
//! a client without it. The second message proves the server's.
//!
//! A proof is valid for one purpose and one connection:
//!
//! - its pre-shared key is derived from token and purpose (HKDF, RFC 5869);
//! - its prologue (Noise, 6) has this protocol's name and version, the purpose, the
//!   service's version, the server's greeting with a fresh nonce, and inside TLS the channel
//!   binding (RFC 9266). A recorded or relayed proof has another prologue and fails.
//!
//! Without TLS, the keys of the handshake encrypt all frames after it ([`Keys`]). They have
//! forward secrecy (Noise, 7.7): a token that leaks later does not decrypt recorded frames.
//! The client's intent lacks it. An attacker who records the first message can test guesses
//! of the token against it, so a token must be random ([`Token::make`]), not a password.

use std::sync::Arc;

use snow::{Builder, HandshakeState, StatelessTransportState};

use crate::error::{Error, Result};
use crate::purpose::{Purpose, VERSION};
use crate::service::Service;
use crate::token::Token;

/// Noise, 8: pattern, curve, cipher and hash.
const PROTOCOL: &str = "Noise_NNpsk0_25519_ChaChaPoly_SHA256";
/// Position of the key in `psk0`.
const PSK: u8 = 0;
/// Bytes of a handshake message beside its payload: a Curve25519 public key and a tag.
const OVERHEAD: usize = 32 + 16;

/// Values that a proof is bound to. It is invalid for any others.
#[derive(Debug, Clone, Copy)]
pub struct About<'a> {
    /// The service.
    pub service: &'a Service,
    /// The server's first message. It must contain a fresh nonce.
    pub greeting: &'a [u8],
    /// Channel binding of the TLS or QUIC connection (RFC 9266); empty without one.
    pub binding: &'a [u8],
}

impl About<'_> {
    fn prologue(&self) -> Vec<u8> {
        let Self {
            service,
            greeting,
            binding,
        } = self;
        // postcard prefixes lengths, so different values have different bytes.
        let parts = (
            "paceline",
            VERSION,
            service.purpose.name(),
            service.version,
            greeting,
            binding,
        );
        postcard::to_stdvec(&parts).expect("memory takes it")
    }
}

/// The keys of one connection, for both directions (Noise, 5.2: Split).
pub type Keys = Arc<StatelessTransportState>;

/// A client between its own proof and the server's.
pub struct Prover(HandshakeState);

/// A client whose proof is valid.
pub struct Verified {
    /// The payload of its proof.
    pub intent: Vec<u8>,
    /// The server's proof, to be sent to the client.
    pub answer: Vec<u8>,
    /// Keys for the frames that follow. Inside TLS they are not needed.
    pub keys: Keys,
}

enum Side {
    Client,
    Server,
}

fn handshake(token: &Token, about: &About, side: Side) -> Result<HandshakeState> {
    let psk = token.key(about.service.purpose);
    let prologue = about.prologue();
    let params = PROTOCOL.parse().map_err(Error::Noise)?;
    let builder = Builder::new(params)
        .prologue(&prologue)
        .and_then(|builder| builder.psk(PSK, &psk))
        .map_err(Error::Noise)?;
    let built = match side {
        Side::Client => builder.build_initiator(),
        Side::Server => builder.build_responder(),
    };
    built.map_err(Error::Noise)
}

fn write(state: &mut HandshakeState, payload: &[u8]) -> Result<Vec<u8>> {
    let mut message = vec![0; payload.len() + OVERHEAD];
    let length = state.write_message(payload, &mut message);
    message.truncate(length.map_err(Error::Noise)?);
    Ok(message)
}

fn read(state: &mut HandshakeState, message: &[u8]) -> Result<Vec<u8>> {
    let mut payload = vec![0; message.len()];
    // Wrong length or wrong key: both prove nothing.
    let length = state.read_message(message, &mut payload);
    payload.truncate(length.map_err(|_| Error::Proof)?);
    Ok(payload)
}

fn keys(state: HandshakeState) -> Result<Keys> {
    let keys = state.into_stateless_transport_mode();
    Ok(Arc::new(keys.map_err(Error::Noise)?))
}

impl Prover {
    /// Makes the client's proof, with an intent of up to 65,487 bytes as its payload.
    ///
    /// # Errors
    /// [`Error::Noise`] if the intent is longer, or the kernel gives no random numbers.
    pub fn new(token: &Token, about: &About, intent: &[u8]) -> Result<(Self, Vec<u8>)> {
        let mut state = handshake(token, about, Side::Client)?;
        let message = write(&mut state, intent)?;
        Ok((Self(state), message))
    }

    /// Verifies the server's proof.
    ///
    /// # Errors
    /// [`Error::Proof`] if it is invalid.
    pub fn finish(mut self, answer: &[u8]) -> Result<Keys> {
        read(&mut self.0, answer)?;
        keys(self.0)
    }
}

/// Verifies a client's proof.
///
/// # Errors
/// [`Error::Proof`] if it was made with another token, for another purpose or connection,
/// or is not a proof at all. [`Error::Noise`] if the kernel gives no random numbers.
pub fn verify(token: &Token, about: &About, proof: &[u8]) -> Result<Verified> {
    let mut state = handshake(token, about, Side::Server)?;
    let intent = read(&mut state, proof)?;
    let answer = write(&mut state, &[])?;
    let keys = keys(state)?;
    Ok(Verified {
        intent,
        answer,
        keys,
    })
}

/// A client's and a server's keys of one connection, for the fuzzer and for tests.
pub(crate) fn keys_of_a_connection(token: &[u8]) -> (Keys, Keys) {
    let token = Token::new(token);
    let about = About {
        service: &Service {
            purpose: Purpose::Coordinate,
            version: 0,
            most_frame: 0,
        },
        greeting: b"",
        binding: b"",
    };
    let (prover, proof) = Prover::new(&token, &about, b"").expect("a proof");
    let verified = verify(&token, &about, &proof).expect("its own");
    let client = prover.finish(&verified.answer).expect("its own");
    (client, verified.keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVICE: Service = Service {
        purpose: Purpose::Move,
        version: 3,
        most_frame: 100,
    };

    fn about<'a>(service: &'a Service, binding: &'a [u8]) -> About<'a> {
        About {
            service,
            greeting: b"a greeting",
            binding,
        }
    }

    #[test]
    fn both_sides_know_each_other_then() {
        let token = Token::new(b"0123456789abcdef");
        let about = about(&SERVICE, b"");
        let (prover, proof) = Prover::new(&token, &about, b"this").expect("a proof");
        assert_eq!(proof.len(), 4 + OVERHEAD);
        let verified = verify(&token, &about, &proof).expect("the same token");
        assert_eq!(verified.intent, b"this");
        prover.finish(&verified.answer).expect("the same token");
    }

    #[test]
    fn a_proof_is_about_all_of_it() {
        let token = Token::new(b"0123456789abcdef");
        let right = about(&SERVICE, b"connection");
        let (_, proof) = Prover::new(&token, &right, b"").expect("a proof");
        let other = |purpose, version| Service {
            purpose,
            version,
            ..SERVICE
        };
        let (gateway, newer) = (other(Purpose::Gateway, 3), other(Purpose::Move, 4));
        let wrong = [
            about(&gateway, b"connection"),
            about(&newer, b"connection"),
            about(&SERVICE, b"another"),
            about(&SERVICE, b""),
            About {
                greeting: b"another greeting",
                ..right
            },
            // The same bytes, but not in the same places.
            About {
                greeting: b"a greetingc",
                binding: b"onnection",
                ..right
            },
        ];
        for wrong in wrong {
            let refused = verify(&token, &wrong, &proof);
            assert!(matches!(refused, Err(Error::Proof)), "{wrong:?}");
        }
        let other = Token::new(b"0123456789abcdeX");
        assert!(matches!(verify(&other, &right, &proof), Err(Error::Proof)));
        verify(&token, &right, &proof).expect("the right one");
    }

    #[test]
    fn a_server_without_the_token_is_found_out() {
        let (token, other) = (
            Token::new(b"0123456789abcdef"),
            Token::new(b"0123456789abcdeX"),
        );
        let about = about(&SERVICE, b"");
        let (prover, _) = Prover::new(&token, &about, b"").expect("a proof");
        let (_, theirs) = Prover::new(&other, &about, b"").expect("a proof");
        let answer = verify(&other, &about, &theirs).expect("its own").answer;
        assert!(matches!(prover.finish(&answer), Err(Error::Proof)));
        let (prover, _) = Prover::new(&token, &about, b"").expect("a proof");
        assert!(matches!(prover.finish(b"short"), Err(Error::Proof)));
    }
}

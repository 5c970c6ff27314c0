// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The messages of the handshake.
//!
//! A frame has one byte with the version of the handshake, then a message in postcard's
//! encoding. All versions begin with that byte, so each side can report the other's.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::purpose::{Purpose, VERSION};

/// Longest reason of a refusal, characters: with four bytes each it fits a greeting's frame.
const MOST_TEXT: usize = 200;

/// Messages of the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FromServer {
    /// The first message.
    Greeting(Greeting),
    /// The client is accepted.
    Welcome {
        /// The server's proof; empty if none is required.
        proof: Vec<u8>,
    },
    /// The last message: the connection ends.
    Refused {
        /// Trying again is of no use.
        for_good: bool,
        /// Why.
        text: String,
    },
}

/// The service at this address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Greeting {
    pub purpose: Purpose,
    /// Version of the service's messages.
    pub version: u8,
    /// Random for each connection, so that a proof is valid once.
    pub nonce: [u8; 32],
    /// The client must prove the token.
    pub proof: bool,
}

/// The client's only message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Join {
    pub purpose: Purpose,
    /// Version of the service's messages.
    pub version: u8,
    pub word: Word,
}

/// A client's intent: bytes for the service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Word {
    /// In clear: the kernel or TLS authenticates the client.
    Open(Vec<u8>),
    /// As the payload of a proof.
    Proven(Vec<u8>),
    /// None: the client leaves, because the server is another one or requires a token
    /// that the client lacks.
    Leave,
}

fn encode(message: &impl Serialize) -> Vec<u8> {
    postcard::to_extend(message, vec![VERSION]).expect("memory takes it")
}

fn decode<M: DeserializeOwned>(frame: &[u8]) -> Result<M> {
    let (version, body) = frame.split_first().ok_or(Error::Malformed)?;
    if *version != VERSION {
        return Err(Error::Version {
            of: "the handshake",
            theirs: *version,
            ours: VERSION,
        });
    }
    match postcard::take_from_bytes(body) {
        Ok((message, [])) => Ok(message),
        _ => Err(Error::Malformed),
    }
}

impl FromServer {
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// # Errors
    /// [`Error::Version`], [`Error::Malformed`].
    pub fn decode(frame: &[u8]) -> Result<Self> {
        let message = decode(frame)?;
        match &message {
            // The sender is not authenticated yet, and the text reaches logs and terminals.
            Self::Refused { text, .. }
                if text.chars().count() > MOST_TEXT || text.chars().any(char::is_control) =>
            {
                Err(Error::Malformed)
            }
            _ => Ok(message),
        }
    }

    /// A refusal with a text that [`decode`](Self::decode) accepts.
    pub fn refused(for_good: bool, text: &str) -> Self {
        let plain = |c: char| if c.is_control() { ' ' } else { c };
        let text = text.chars().map(plain).take(MOST_TEXT).collect();
        Self::Refused { for_good, text }
    }
}

impl Join {
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// # Errors
    /// [`Error::Version`], [`Error::Malformed`].
    pub fn decode(frame: &[u8]) -> Result<Self> {
        decode(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_controls_no_terminal_and_fits() {
        let long = "\x1b[2J\n".to_owned() + &"\u{1f6ab}".repeat(1000);
        let frame = FromServer::refused(true, &long).encode();
        assert!(frame.len() <= crate::frame::MOST_GREETING);
        FromServer::decode(&frame).expect("what is sent is taken");
        for text in ["\x1b[2J".to_owned(), "x".repeat(MOST_TEXT + 1)] {
            let for_good = true;
            let frame = FromServer::Refused { for_good, text }.encode();
            assert!(matches!(FromServer::decode(&frame), Err(Error::Malformed)));
        }
    }

    #[test]
    fn a_part_of_a_message_more_than_one_or_another_version_is_none() {
        let frame = Join {
            purpose: Purpose::Coordinate,
            version: 1,
            word: Word::Open(b"this".to_vec()),
        }
        .encode();
        Join::decode(&frame).expect("all of it");
        for end in 0..frame.len() {
            Join::decode(&frame[..end]).expect_err("a part");
        }
        let mut more = frame.clone();
        more.push(0);
        assert!(matches!(Join::decode(&more), Err(Error::Malformed)));
        let mut older = frame;
        older[0] = 1;
        let error = Join::decode(&older).expect_err("another version");
        let text = error.to_string();
        assert!(text.contains("speaks version 1 of the handshake"), "{text}");
    }

    fn examples() -> Vec<(String, Vec<u8>)> {
        let mut all = Vec::new();
        for purpose in Purpose::ALL {
            for proof in [true, false] {
                let greeting = FromServer::Greeting(Greeting {
                    purpose,
                    version: 2,
                    nonce: [1; 32],
                    proof,
                });
                let name = format!("greeting-{purpose}-{proof}");
                all.push((name, greeting.encode()));
            }
            for (name, word) in [
                ("open", Word::Open(b"this".to_vec())),
                ("proven", Word::Proven(vec![7; 52])),
                ("short", Word::Proven(vec![7; 20])),
                ("leave", Word::Leave),
            ] {
                let join = Join {
                    purpose,
                    version: 2,
                    word,
                };
                all.push((format!("join-{purpose}-{name}"), join.encode()));
            }
        }
        for (name, proof) in [("welcome", vec![]), ("welcome-proof", vec![4; 48])] {
            let welcome = FromServer::Welcome { proof };
            all.push((name.to_owned(), welcome.encode()));
        }
        let refused = FromServer::refused(true, "no");
        all.push(("refused".to_owned(), refused.encode()));
        all
    }

    /// The fuzzer begins with these.
    #[test]
    fn the_fuzzers_corpus_is_of_this_version() {
        let corpus =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/handshake");
        for (name, frame) in examples() {
            let path = corpus.join(&name);
            if std::env::var_os("PACELINE_WRITE_CORPUS").is_some() {
                std::fs::create_dir_all(&corpus).expect("a directory");
                std::fs::write(&path, &frame).expect("written");
            }
            let bytes =
                std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            assert_eq!(bytes, frame, "{name}");
            let join = Join::decode(&bytes).is_ok();
            assert!(join || FromServer::decode(&bytes).is_ok(), "{name}");
        }
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The shared token: proven by a challenge, never sent.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};

use crate::error::{file_error, Error};

/// Bytes of a tag: half of HMAC-SHA256, as RFC 2104 (5) allows.
pub const TAG_BYTES: usize = 16;
/// Least and largest length of a token, bytes. 16 random bytes cannot be guessed.
const LENGTHS: std::ops::RangeInclusive<usize> = 16..=4096;
/// Random bytes of a token that is made here.
const MADE_BYTES: usize = 32;

/// Drawn anew for each connection by either side: no proof is good twice.
pub type Nonce = [u8; 32];
/// HMAC-SHA256.
pub type Proof = [u8; 32];

/// A secret that both sides know.
#[derive(Debug, Clone)]
pub struct Token(hmac::Key);

/// All that a proof is about: one for another connection, group or role is none.
#[derive(Debug, Clone)]
pub struct Handshake<'a> {
    /// The server's.
    pub server: &'a Nonce,
    /// The client's.
    pub client: &'a Nonce,
    /// The client's role.
    pub role: &'a str,
    /// The client's group.
    pub group: &'a str,
    /// The client's host.
    pub host: &'a str,
    /// Of the TLS connection (RFC 9266); empty without TLS.
    pub binding: &'a [u8],
}

impl Token {
    /// From a file that only its owner can read; white space around it does not count.
    ///
    /// # Errors
    /// [`Error::File`] if others may read it, if it is too short, or cannot be
    /// read.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let error = |error: std::io::Error| file_error(path, error.to_string());
        let file = File::open(path).map_err(error)?;
        let metadata = file.metadata().map_err(error)?;
        if !metadata.is_file() {
            return Err(file_error(path, "a token is kept in a regular file"));
        }
        if metadata.mode() & 0o077 != 0 {
            let mode = metadata.mode() & 0o777;
            return Err(file_error(
                path,
                format!("others may use this token (mode {mode:o}): chmod 600 it"),
            ));
        }
        let mut bytes = Vec::new();
        let most = *LENGTHS.end() as u64 + 1;
        file.take(most).read_to_end(&mut bytes).map_err(error)?;
        let token = bytes.trim_ascii();
        if !LENGTHS.contains(&token.len()) {
            return Err(file_error(
                path,
                format!(
                    "a token has {} to {} bytes, not {}: paceline coordinate token makes one",
                    LENGTHS.start(),
                    LENGTHS.end(),
                    token.len()
                ),
            ));
        }
        Ok(Self::new(token))
    }

    /// From bytes.
    pub fn new(bytes: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, bytes))
    }

    /// Writes a new random token to a file that does not exist yet.
    ///
    /// # Errors
    /// [`Error::File`] if it does, or cannot be made.
    pub fn make(path: &Path) -> Result<(), Error> {
        let mut bytes = [0; MADE_BYTES];
        SystemRandom::new()
            .fill(&mut bytes)
            .map_err(|_| file_error(path, "the kernel gives no random numbers"))?;
        let mut text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        text.push('\n');
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let mut file = options
            .open(path)
            .map_err(|error| file_error(path, error.to_string()))?;
        file.write_all(text.as_bytes()).map_err(|error| {
            let _ = fs::remove_file(path);
            file_error(path, error.to_string())
        })
    }

    fn mac(&self, label: &str, about: &Handshake) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&self.0);
        // Lengths first: no two handshakes give the same bytes.
        for part in [
            label.as_bytes(),
            about.role.as_bytes(),
            about.server,
            about.client,
            about.group.as_bytes(),
            about.host.as_bytes(),
            about.binding,
        ] {
            context.update(&(part.len() as u64).to_le_bytes());
            context.update(part);
        }
        context.sign()
    }

    fn proof(&self, label: &str, about: &Handshake) -> Proof {
        let tag = self.mac(label, about);
        tag.as_ref().try_into().expect("SHA-256 has 32 bytes")
    }

    /// What a client shows.
    pub fn client_proof(&self, about: &Handshake) -> Proof {
        self.proof("paceline coordinate 1 client", about)
    }

    /// What a server shows.
    pub fn server_proof(&self, about: &Handshake) -> Proof {
        self.proof("paceline coordinate 1 server", about)
    }

    /// For frames from client to server, and for those from server to client.
    pub fn seals(&self, about: &Handshake) -> (Seal, Seal) {
        let seal = |label| Seal::new(self.mac(label, about).as_ref());
        (
            seal("paceline coordinate 1 frames to server"),
            seal("paceline coordinate 1 frames to client"),
        )
    }
}

/// Whether two proofs are the same, in a time that does not tell where they differ.
pub fn same(one: &Proof, other: &Proof) -> bool {
    let differ = one.iter().zip(other).fold(0, |d, (a, b)| d | (a ^ b));
    std::hint::black_box(differ) == 0
}

/// Tags for the frames of one direction. A frame's number is part of its tag, so none
/// can be left out, repeated or moved.
#[derive(Debug)]
pub struct Seal {
    key: hmac::Key,
    next: u64,
}

impl Seal {
    fn new(key: &[u8]) -> Self {
        Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, key),
            next: 0,
        }
    }

    fn tag(&mut self, body: &[u8]) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(&self.next.to_le_bytes());
        context.update(body);
        self.next += 1;
        context.sign()
    }

    /// Adds the tag.
    pub fn close(&mut self, body: &mut Vec<u8>) {
        let tag = self.tag(body);
        body.extend_from_slice(&tag.as_ref()[..TAG_BYTES]);
    }

    /// Without the tag; `None` if it is wrong.
    pub fn open<'b>(&mut self, sealed: &'b [u8]) -> Option<&'b [u8]> {
        let (body, tag) = sealed.split_at_checked(sealed.len().checked_sub(TAG_BYTES)?)?;
        let right = self.tag(body);
        let differ = tag
            .iter()
            .zip(right.as_ref())
            .fold(0, |d, (a, b)| d | (a ^ b));
        (std::hint::black_box(differ) == 0).then_some(body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn about(client: &Nonce) -> Handshake<'_> {
        Handshake {
            server: &[1; 32],
            client,
            role: "member",
            group: "g",
            host: "h",
            binding: b"",
        }
    }

    #[test]
    fn a_proof_is_about_all_of_the_handshake() {
        let token = Token::new(b"0123456789abcdef");
        let first = token.client_proof(&about(&[2; 32]));
        assert_eq!(first, token.client_proof(&about(&[2; 32])));
        let nonce = [2; 32];
        let others = [
            token.client_proof(&about(&[3; 32])),
            token.server_proof(&about(&nonce)),
            Token::new(b"0123456789abcdeX").client_proof(&about(&nonce)),
            token.client_proof(&Handshake {
                role: "control",
                ..about(&nonce)
            }),
            token.client_proof(&Handshake {
                group: "gh",
                host: "",
                ..about(&nonce)
            }),
            token.client_proof(&Handshake {
                binding: b"other",
                ..about(&nonce)
            }),
        ];
        for other in others {
            assert!(!same(&first, &other));
        }
    }

    #[test]
    fn a_frame_that_was_repeated_or_changed_is_not_opened() {
        let nonce = [2; 32];
        let token = Token::new(b"0123456789abcdef");
        let (mut close, _) = token.seals(&about(&nonce));
        let (mut open, _) = token.seals(&about(&nonce));
        let mut frame = b"hello".to_vec();
        close.close(&mut frame);
        assert_eq!(open.open(&frame), Some(&b"hello"[..]));
        assert_eq!(open.open(&frame), None);
        let (mut open, mut other_way) = token.seals(&about(&nonce));
        assert_eq!(other_way.open(&frame), None);
        frame[0] ^= 1;
        assert_eq!(open.open(&frame), None);
        assert_eq!(open.open(b"short"), None);
    }

    #[test]
    fn token_files() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("token");
        Token::make(&path).expect("made");
        Token::load(&path).expect("its own");
        assert!(Token::make(&path).is_err(), "never overwritten");
        let mode = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode));
        mode(0o640).expect("ours");
        let error = Token::load(&path).expect_err("others may read it");
        assert!(error.to_string().contains("chmod 600"), "{error}");
        mode(0o600).expect("ours");
        fs::write(&path, "  short\n").expect("ours");
        let error = Token::load(&path).expect_err("too short");
        assert!(error.to_string().contains("16 to 4096"), "{error}");
    }
}

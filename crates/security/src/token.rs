// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The shared token. [`crate::proof`] proves it; it is never sent.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use ring::hkdf::{KeyType, Salt, HKDF_SHA256};
use ring::rand::{SecureRandom, SystemRandom};
use zeroize::Zeroizing;

use crate::error::{file_error, Error};
use crate::purpose::Purpose;

/// Least and largest length of a token, bytes. 16 random bytes cannot be guessed.
const LENGTHS: std::ops::RangeInclusive<usize> = 16..=4096;
/// Random bytes of a token that is made here.
const MADE_BYTES: usize = 32;
/// Noise's pre-shared keys have so many bytes (Noise, 9).
const KEY_BYTES: usize = 32;
/// Separates this use of HKDF from others (RFC 5869, 3.1: a salt need not be secret).
const SALT: &[u8] = b"paceline token";

/// A secret that both sides have. Its memory is wiped when the last clone is dropped.
/// snow's copy of a derived key lives as long as a handshake and is not wiped.
#[derive(Clone)]
pub struct Token(Arc<Zeroizing<Vec<u8>>>);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
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
            return Err(file_error(path, "a token must be in a regular file"));
        }
        if metadata.mode() & 0o077 != 0 {
            let mode = metadata.mode() & 0o777;
            return Err(file_error(
                path,
                format!("other users can read this token (mode {mode:o}): chmod 600 it"),
            ));
        }
        let most = *LENGTHS.end() + 1;
        // A vector that grows leaves copies behind.
        let mut bytes = Zeroizing::new(Vec::with_capacity(most + 1));
        file.take(most as u64)
            .read_to_end(&mut bytes)
            .map_err(error)?;
        let token = bytes.trim_ascii();
        if !LENGTHS.contains(&token.len()) {
            return Err(file_error(
                path,
                format!(
                    "a token has {} to {} bytes, not {}: create one with paceline coordinate token",
                    LENGTHS.start(),
                    LENGTHS.end(),
                    token.len()
                ),
            ));
        }
        Ok(Self::new(token))
    }

    /// From bytes, which must be random: see [`crate::proof`].
    pub fn new(bytes: &[u8]) -> Self {
        Self(Arc::new(Zeroizing::new(bytes.to_vec())))
    }

    /// Writes a new random token to a file that does not exist yet.
    ///
    /// # Errors
    /// [`Error::File`] if it does, or cannot be made.
    pub fn make(path: &Path) -> Result<(), Error> {
        let mut bytes = Zeroizing::new([0; MADE_BYTES]);
        SystemRandom::new()
            .fill(bytes.as_mut())
            .map_err(|_| file_error(path, Error::Random.to_string()))?;
        let mut text = Zeroizing::new(String::with_capacity(2 * MADE_BYTES + 1));
        for byte in bytes.iter() {
            write!(text, "{byte:02x}").expect("memory takes it");
        }
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

    /// The pre-shared key for one purpose: HKDF-SHA256 (RFC 5869) with the purpose in its
    /// info. The keys of two purposes are independent.
    pub(crate) fn key(&self, purpose: Purpose) -> Zeroizing<[u8; KEY_BYTES]> {
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        let info = [b"noise psk ", purpose.name().as_bytes()];
        Salt::new(HKDF_SHA256, SALT)
            .extract(&self.0)
            .expand(&info, Bytes(KEY_BYTES))
            .and_then(|expanded| expanded.fill(key.as_mut()))
            .expect("HKDF-SHA256 gives up to 8,160 bytes");
        key
    }
}

/// A length, for ring.
struct Bytes(usize);

impl KeyType for Bytes {
    fn len(&self) -> usize {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_purpose_and_each_token_has_a_key_of_its_own() {
        let (one, other) = (
            Token::new(b"0123456789abcdef"),
            Token::new(b"0123456789abcdeX"),
        );
        let keys: std::collections::HashSet<_> = Purpose::ALL
            .into_iter()
            .flat_map(|purpose| [*one.key(purpose), *other.key(purpose)])
            .collect();
        assert_eq!(keys.len(), 2 * Purpose::ALL.len());
        assert_eq!(one.key(Purpose::Move), one.clone().key(Purpose::Move));
    }

    #[test]
    fn nothing_of_it_is_shown() {
        assert_eq!(
            format!("{:?}", Token::new(b"0123456789abcdef")),
            "Token(..)"
        );
    }

    #[test]
    fn token_files() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("token");
        Token::make(&path).expect("made");
        let text = fs::read_to_string(&path).expect("ours");
        assert_eq!(text.trim_end().len(), 2 * MADE_BYTES);
        let loaded = Token::load(&path).expect("its own");
        assert_eq!(loaded.0.as_slice(), text.trim_end().as_bytes());
        assert!(Token::make(&path).is_err(), "never overwritten");
        let mode = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode));
        mode(0o640).expect("ours");
        let error = Token::load(&path).expect_err("others may read it");
        assert!(error.to_string().contains("chmod 600"), "{error}");
        mode(0o600).expect("ours");
        for wrong in ["  short\n".to_owned(), "x".repeat(5000)] {
            fs::write(&path, wrong).expect("ours");
            let error = Token::load(&path).expect_err("its length");
            assert!(error.to_string().contains("16 to 4096"), "{error}");
        }
    }
}

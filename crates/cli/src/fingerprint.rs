// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fingerprints of certificates on the command line.

use std::path::Path;

use anyhow::{Context, Result};
use paceline_security::fingerprint_of;

/// From its digits, or of a certificate in a file.
pub fn fingerprint(text: &str) -> Result<[u8; 32]> {
    let digits = text
        .strip_prefix("sha256:")
        .unwrap_or(text)
        .replace(':', "");
    let bytes: Option<Vec<u8>> = (digits.len() == 64 && digits.is_ascii())
        .then(|| {
            (0..32)
                .map(|n| u8::from_str_radix(&digits[2 * n..2 * n + 2], 16).ok())
                .collect()
        })
        .flatten();
    match bytes.and_then(|bytes| bytes.try_into().ok()) {
        Some(print) => Ok(print),
        None => fingerprint_of(Path::new(text))
            .context("--pin: expected 64 hexadecimal digits (SHA-256) or a certificate's file"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints() {
        let digits = "ab".repeat(32);
        assert_eq!(fingerprint(&digits).expect("digits"), [0xab; 32]);
        let colons = vec!["ab"; 32].join(":");
        let spelled = fingerprint(&format!("sha256:{colons}"));
        assert_eq!(spelled.expect("colons"), [0xab; 32]);
        let error = fingerprint("abab").expect_err("too short");
        assert!(format!("{error:#}").contains("64 hexadecimal digits"));
        fingerprint(&"é".repeat(32)).expect_err("no digits");
    }
}

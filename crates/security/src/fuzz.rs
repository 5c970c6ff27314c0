// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Entry points for the fuzzer: bytes that any peer may send. A panic is a bug.

use std::sync::OnceLock;

use crate::error::{Error, FrameError};
use crate::frame::{Reader, Writer};
use crate::greeting::{FromServer, Join, Word};
use crate::handshake::{accept, join, Protection, PATIENCE};
use crate::proof::{keys_of_a_connection, verify, About, Keys};
use crate::purpose::Purpose;
use crate::service::Service;
use crate::token::Token;

const SERVICE: Service = Service {
    purpose: Purpose::Coordinate,
    version: 2,
    most_frame: 100_000,
};
const TOKEN: &[u8] = b"of the fuzzer alone";

fn wait<T>(future: impl std::future::Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime")
        .block_on(future)
}

/// The bytes of a connection as frames: before the handshake, after it, and encrypted.
/// No encrypted frame can be made without its keys.
pub fn frames(bytes: &[u8]) {
    static KEYS: OnceLock<Keys> = OnceLock::new();
    let keys = KEYS.get_or_init(|| keys_of_a_connection(TOKEN).1);
    wait(async {
        let mut stranger = Reader::new(bytes);
        while stranger.next(PATIENCE).await.is_ok() {}
        let mut known = Reader::new(bytes);
        known.trust(None, SERVICE.most_frame);
        while known.next(PATIENCE).await.is_ok() {}
        let mut sealed = Reader::new(bytes);
        sealed.trust(Some(keys.clone()), SERVICE.most_frame);
        match sealed.next(PATIENCE).await {
            Err(FrameError::Closed | FrameError::Length { .. } | FrameError::Seal) => {}
            other => panic!("made without the keys: {other:?}"),
        }
    });
}

/// The first message of either side. A message that decodes must survive encoding, and no
/// peer without the token may be accepted.
pub fn first_message(body: &[u8]) {
    if let Ok(message) = FromServer::decode(body) {
        let again = FromServer::decode(&message.encode());
        assert_eq!(again.expect("its own bytes"), message);
    }
    if let Ok(message) = Join::decode(body) {
        let again = Join::decode(&message.encode());
        assert_eq!(again.expect("its own bytes"), message);
        if let Word::Proven(proof) = &message.word {
            let about = About {
                service: &SERVICE,
                greeting: b"",
                binding: b"",
            };
            let verified = verify(&Token::new(TOKEN), &about, proof);
            assert!(matches!(verified, Err(Error::Proof)), "without the token");
        }
    }
    let mut frame = (body.len() as u32).to_le_bytes().to_vec();
    frame.extend_from_slice(body);
    let token = Token::new(TOKEN);
    let none = Protection::None;
    wait(async {
        let (mut reader, mut writer) = (Reader::new(&frame[..]), Writer::new(tokio::io::sink()));
        let accepted = accept(&mut reader, &mut writer, &SERVICE, Some(&token), &none).await;
        accepted.expect_err("without the token");
        let mut reader = Reader::new(&frame[..]);
        let joined = join(&mut reader, &mut writer, &SERVICE, Some(&token), &none, b"").await;
        joined.expect_err("a server without the token");
    });
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_an_error_or_a_message(
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
            start in proptest::collection::vec(0u8..4, 0..6),
        ) {
            super::frames(&bytes);
            let body = [&[crate::VERSION][..], &start, &bytes].concat();
            super::first_message(&body);
            super::frames(&[&(body.len() as u32).to_le_bytes()[..], &body].concat());
        }
    }
}

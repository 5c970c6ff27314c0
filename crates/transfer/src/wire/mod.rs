// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages of the two sides: messages on the control connection, frames of data on the others.
//! Pure, and fuzzed.

mod data;
mod entry;
mod limits;
mod message;
mod path;
#[cfg(test)]
mod tests;

pub use data::{
    pack_sparse, Ack, Bite, Frame, Header, Kind, PackItem, Packed, TagKey, Tags, ACK, HEADER,
    MOST_BODY, TRAILER,
};
pub use entry::{is_acl, is_of_user, Attribute, Entry, EntryKind, Owner, Special, Stamp};
pub use limits::*;
pub use message::{
    Access, Direction, Intent, Message, Options, Ready, Reason, Start, Summary, Update, Verify,
    Want, Wanted,
};
pub use path::{check_name, check_path, is_temporary, JOURNALS, MOST_DEPTH};

/// A message that the other side must not send.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// Bytes that are no message.
    #[error("cannot decode a message: {0}")]
    Malformed(#[source] postcard::Error),
    /// A message, and more.
    #[error("{0} bytes follow a message in its frame")]
    Trailing(usize),
    /// Readable, but beyond a limit.
    #[error("{what} beyond the limit of {limit}")]
    Beyond {
        /// The item.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// A frame of data that contradicts itself.
    #[error("a frame of data is malformed: {0}")]
    Frame(&'static str),
    /// A frame's header or hash was changed, or it is not the next one.
    #[error("a frame of data is not authentic: it was changed, or is not the next one")]
    Tag,
    /// A path that could lead out of the destination.
    #[error("the path {path:?} is refused: {what}")]
    Path {
        /// As it came.
        path: String,
        /// Why.
        what: &'static str,
    },
}

/// Holds a length against its limit.
fn most(length: usize, what: &'static str, limit: usize) -> Result<(), WireError> {
    match length <= limit {
        true => Ok(()),
        false => Err(WireError::Beyond {
            what,
            limit: limit as u64,
        }),
    }
}

/// Entry point for the fuzzer: bytes on the control connection, or in its handshake.
pub fn fuzz_message(body: &[u8]) {
    if let Ok(message) = Message::decode(body) {
        let again = message.encode().expect("no larger than it was");
        assert_eq!(Message::decode(&again).expect("its own bytes"), message);
    }
    if let Ok(intent) = Intent::decode(body) {
        assert_eq!(
            Intent::decode(&intent.encode()).expect("its own bytes"),
            intent
        );
    }
}

/// Entry point for the fuzzer: bytes on a data connection. The tag is right, as of a frame that the
/// peer made; all the rest may be wrong.
pub fn fuzz_frame(bytes: &[u8]) {
    let tags = || Tags::new(TagKey::new(&[0; 32], 0, false));
    assert!(
        Frame::open(bytes, &mut tags()).is_err(),
        "made without the key"
    );
    assert!(tags().open_ack(bytes).is_err(), "made without the key");
    let Some((head, payload)) = bytes.split_first_chunk::<HEADER>() else {
        return;
    };
    let Ok(mut header) = Header::decode(head) else {
        return;
    };
    assert_eq!(&header.encode(), head);
    header.payload = payload.len() as u32;
    let mut body = vec![0; HEADER];
    body.extend_from_slice(payload);
    let cv = *blake3::hash(payload).as_bytes();
    Frame::seal(&mut body, &header, &cv, &mut tags());
    if let Ok(frame) = Frame::open(&body, &mut tags()) {
        // The fuzzer looks for panics.
        let _ = match header.kind {
            Kind::Pack => frame.pack().map(drop),
            _ => frame.bite(&mut Vec::new()).map(drop),
        };
    }
}

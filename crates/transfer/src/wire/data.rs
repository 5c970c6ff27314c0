// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames of data: a header, a payload, its hash, a tag.
//!
//! The tag is a keyed hash over the frame's number, the header and the payload's hash, with a
//! key of the session and stream. So a frame is authentic without encryption, too: the payload
//! is bound by its hash, and that by the tag. A frame cannot be altered, moved to another file
//! or stream, left out or replayed.

use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;

use super::{Stamp, WireError, MOST_SIZE, MOST_SMALL};
use crate::chunk::{hash_bite, CV, LEAST_BITE, MOST_CHUNK};

/// Bytes of a header, and of the trailer after the payload.
pub const HEADER: usize = 40;
/// See [`HEADER`].
pub const TRAILER: usize = 32 + 16;
/// Longest payload: a chunk, and the list of its parts that are no holes; or a pack.
const MOST_PAYLOAD: usize = MOST_CHUNK as usize + (64 << 10);
/// Longest frame, bytes.
pub const MOST_BODY: usize = HEADER + MOST_PAYLOAD + TRAILER;
/// Bytes of an extent in a sparse bite.
const EXTENT: usize = 8;
/// Small files of one pack.
const MOST_ITEMS: usize = 4096;

/// Content of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A bite, all of it.
    Chunk,
    /// A bite without its holes: number of extents, their offsets and lengths (four bytes
    /// each, from the bite's beginning), and their bytes. None at all is one hole.
    Sparse,
    /// Small files.
    Pack,
    /// The last frame of a stream.
    End,
}

/// A frame's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Kind of the payload.
    pub kind: Kind,
    /// How often the file was begun anew.
    pub attempt: u16,
    /// Bytes of payload.
    pub payload: u32,
    /// The entry's number.
    pub file: u64,
    /// Where the bite begins, bytes.
    pub offset: u64,
    /// The file's size as it is now, bytes.
    pub size: u64,
    /// Bytes of the bite.
    pub length: u64,
}

/// A small file in a pack. Its bytes follow the list, in its order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackItem {
    /// The entry's number.
    pub n: u64,
    /// Its state when it was read.
    pub stamp: Stamp,
    /// Permission bits.
    pub mode: u32,
    /// BLAKE3 of its bytes.
    pub root: CV,
}

/// A small file, and its bytes.
pub type Packed<'a> = (PackItem, &'a [u8]);

/// A sink's answer to a frame, on the same connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ack {
    /// It is verified and written.
    Have(u64),
    /// Its payload does not match its hash.
    Again(u64),
}

/// The key of a stream's tags, one for each direction.
#[derive(Clone)]
pub struct TagKey([u8; 32]);

impl TagKey {
    /// Of one stream of a session, from the session's secret.
    pub fn new(secret: &[u8; 32], stream: u16, is_ack: bool) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("paceline move 1 tag");
        hasher.update(secret).update(&stream.to_le_bytes());
        hasher.update(&[u8::from(is_ack)]);
        Self(*hasher.finalize().as_bytes())
    }
}

/// The tags of one direction of a stream. Both sides count.
pub struct Tags {
    key: TagKey,
    next: u64,
}

impl Tags {
    /// From the first frame on.
    pub fn new(key: TagKey) -> Self {
        Self { key, next: 0 }
    }

    /// The tag of the next frame, and its number.
    fn next(&mut self, head: &[u8], cv: &[u8]) -> (u64, [u8; 16]) {
        let number = self.next;
        self.next += 1;
        let mut hasher = blake3::Hasher::new_keyed(&self.key.0);
        hasher.update(&number.to_le_bytes()).update(head).update(cv);
        let mut tag = [0; 16];
        hasher.finalize_xof().fill(&mut tag);
        (number, tag)
    }

    /// Compares in constant time.
    fn check(&mut self, head: &[u8], cv: &[u8], tag: &[u8]) -> Result<u64, WireError> {
        let (number, right) = self.next(head, cv);
        match bool::from(right.as_slice().ct_eq(tag)) {
            true => Ok(number),
            false => Err(WireError::Tag),
        }
    }

    /// An acknowledgement's bytes.
    pub fn seal_ack(&mut self, ack: Ack) -> Vec<u8> {
        let mut bytes = vec![0; 1 + 8];
        let (kind, number) = match ack {
            Ack::Have(number) => (0, number),
            Ack::Again(number) => (1, number),
        };
        bytes[0] = kind;
        bytes[1..].copy_from_slice(&number.to_le_bytes());
        let (_, tag) = self.next(&bytes, &[]);
        bytes.extend_from_slice(&tag);
        bytes
    }

    /// Reads the output of [`seal_ack`](Self::seal_ack).
    ///
    /// # Errors
    /// [`WireError::Tag`], [`WireError::Frame`].
    pub fn open_ack(&mut self, bytes: &[u8]) -> Result<Ack, WireError> {
        let Some((body, tag)) = bytes.split_at_checked(1 + 8) else {
            return Err(WireError::Frame("an acknowledgement is short"));
        };
        self.check(body, &[], tag)?;
        let number = u64::from_le_bytes(body[1..].try_into().expect("eight bytes"));
        match body[0] {
            0 => Ok(Ack::Have(number)),
            1 => Ok(Ack::Again(number)),
            _ => Err(WireError::Frame("an acknowledgement of no kind")),
        }
    }
}

/// Bytes of a sealed acknowledgement.
pub const ACK: usize = 1 + 8 + 16;

impl Header {
    /// Of a pack or of a stream's end: fields for one file are zero.
    #[must_use]
    pub fn without_file(kind: Kind, payload: u32) -> Self {
        Header {
            kind,
            attempt: 0,
            payload,
            file: 0,
            offset: 0,
            size: 0,
            length: 0,
        }
    }

    /// Its bytes, little-endian.
    pub fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[0] = match self.kind {
            Kind::Chunk => 0,
            Kind::Sparse => 1,
            Kind::Pack => 2,
            Kind::End => 3,
        };
        bytes[2..4].copy_from_slice(&self.attempt.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.payload.to_le_bytes());
        for (place, field) in [self.file, self.offset, self.size, self.length]
            .iter()
            .enumerate()
        {
            let at = 8 + 8 * place;
            bytes[at..at + 8].copy_from_slice(&field.to_le_bytes());
        }
        bytes
    }

    /// Reads and checks the output of [`encode`](Self::encode). It is not authentic before the tag
    /// was checked, but memory may be taken for its payload.
    ///
    /// # Errors
    /// [`WireError::Frame`].
    pub fn decode(bytes: &[u8; HEADER]) -> Result<Self, WireError> {
        let kind = match bytes[0] {
            0 => Kind::Chunk,
            1 => Kind::Sparse,
            2 => Kind::Pack,
            3 => Kind::End,
            _ => return Err(WireError::Frame("of no kind")),
        };
        let field = |place: usize| {
            let at = 8 + 8 * place;
            u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
        };
        let header = Self {
            kind,
            attempt: u16::from_le_bytes([bytes[2], bytes[3]]),
            payload: u32::from_le_bytes(bytes[4..8].try_into().expect("four bytes")),
            file: field(0),
            offset: field(1),
            size: field(2),
            length: field(3),
        };
        match bytes[1] == 0 {
            true => header.check().map(|()| header),
            false => Err(WireError::Frame("its flags are unknown")),
        }
    }

    fn check(&self) -> Result<(), WireError> {
        let payload = u64::from(self.payload);
        let is_bite = self.length > 0
            && self.length <= MOST_CHUNK
            && self.size <= MOST_SIZE
            && self.offset.is_multiple_of(LEAST_BITE)
            && self.offset.is_multiple_of(self.length.next_power_of_two())
            && self.offset <= self.size
            && self.length <= self.size - self.offset
            && (self.length.is_power_of_two() && self.length >= LEAST_BITE
                || self.offset + self.length == self.size);
        let good = match self.kind {
            Kind::Chunk => is_bite && payload == self.length,
            Kind::Sparse => is_bite && payload <= self.length + (64 << 10),
            Kind::Pack => self.payload as usize <= MOST_PAYLOAD && self.fields_are_zero(),
            Kind::End => self.payload == 0 && self.fields_are_zero(),
        };
        match good {
            true => Ok(()),
            false => Err(WireError::Frame(
                "its lengths and offsets contradict each other",
            )),
        }
    }

    fn fields_are_zero(&self) -> bool {
        [self.file, self.offset, self.size, self.length] == [0; 4] && self.attempt == 0
    }
}

/// A frame that came, and its number.
#[derive(Debug)]
pub struct Frame<'a> {
    /// For the acknowledgement.
    pub number: u64,
    /// Checked, and authentic.
    pub header: Header,
    /// As it came.
    pub payload: &'a [u8],
    /// Of the payload as it was sent, authentic.
    pub cv: CV,
}

impl<'a> Frame<'a> {
    /// Completes a frame's bytes: `body` has room for a header, then the payload.
    pub fn seal(body: &mut Vec<u8>, header: &Header, cv: &CV, tags: &mut Tags) -> u64 {
        let head = header.encode();
        body[..HEADER].copy_from_slice(&head);
        let (number, tag) = tags.next(&head, cv);
        body.extend_from_slice(cv);
        body.extend_from_slice(&tag);
        number
    }

    /// Reads the output of [`seal`](Self::seal). The payload is not compared with its hash yet.
    ///
    /// # Errors
    /// [`WireError::Frame`], [`WireError::Tag`].
    pub fn open(body: &'a [u8], tags: &mut Tags) -> Result<Self, WireError> {
        let short = WireError::Frame("it is short");
        let Some((head, rest)) = body.split_first_chunk::<HEADER>() else {
            return Err(short);
        };
        let header = Header::decode(head)?;
        let Some(length) = rest.len().checked_sub(TRAILER) else {
            return Err(short);
        };
        if length != header.payload as usize {
            return Err(WireError::Frame("its length is not the payload's"));
        }
        let (payload, trailer) = rest.split_at(length);
        let (cv, tag) = trailer.split_at(32);
        let number = tags.check(head, cv, tag)?;
        Ok(Self {
            number,
            header,
            payload,
            cv: cv.try_into().expect("32 bytes"),
        })
    }

    /// A bite's bytes, holes filled with zeros in `buffer`, and its extents; `None` if its hash is
    /// another one. A bite that is one hole is not hashed: the tag authenticates its hash, and
    /// nothing is written.
    ///
    /// # Errors
    /// [`WireError::Frame`] for extents that are none.
    pub fn bite<'b>(&'b self, buffer: &'b mut Vec<u8>) -> Result<Option<Bite<'b>>, WireError> {
        let Header {
            offset,
            size,
            length,
            ..
        } = self.header;
        let (bytes, extents) = match self.header.kind {
            Kind::Sparse => {
                let Some(extents) = unpack_sparse(self.payload, length as usize, buffer) else {
                    return Ok(None);
                };
                if extents.is_empty() {
                    return Ok(Some(Bite {
                        bytes: &[],
                        extents,
                    }));
                }
                (&buffer[..], extents)
            }
            _ => (self.payload, vec![(0, length as usize)]),
        };
        let right = hash_bite(bytes, offset, size) == self.cv;
        Ok(right.then_some(Bite { bytes, extents }))
    }

    /// The files of a pack; `None` if its hash is another one.
    ///
    /// # Errors
    /// [`WireError`] for a list that does not fit its bytes.
    pub fn pack(&self) -> Result<Option<Vec<Packed<'a>>>, WireError> {
        if *blake3::hash(self.payload).as_bytes() != self.cv {
            return Ok(None);
        }
        let (items, mut bytes): (Vec<PackItem>, _) =
            postcard::take_from_bytes(self.payload).map_err(WireError::Malformed)?;
        if items.len() > MOST_ITEMS {
            return Err(WireError::Beyond {
                what: "files in a pack",
                limit: MOST_ITEMS as u64,
            });
        }
        let mut files = Vec::with_capacity(items.len());
        for item in items {
            if item.stamp.size > MOST_SMALL || item.stamp.mtime.1 > 999_999_999 {
                return Err(WireError::Frame("a file in a pack is too large"));
            }
            let Some((own, rest)) = bytes.split_at_checked(item.stamp.size as usize) else {
                return Err(WireError::Frame("a pack is short"));
            };
            files.push((item, own));
            bytes = rest;
        }
        match bytes.is_empty() {
            true => Ok(Some(files)),
            false => Err(WireError::Trailing(bytes.len())),
        }
    }
}

/// A bite as it is to be written.
#[derive(Debug, PartialEq, Eq)]
pub struct Bite<'a> {
    /// All bytes of it; none if it is one hole.
    pub bytes: &'a [u8],
    /// Offset in the bite and length of each part that is not a hole.
    pub extents: Vec<(usize, usize)>,
}

/// Appends a sparse bite's payload to a frame's body.
pub fn pack_sparse(body: &mut Vec<u8>, bytes: &[u8], extents: &[(usize, usize)]) {
    body.extend_from_slice(&(extents.len() as u32).to_le_bytes());
    for (at, length) in extents {
        body.extend_from_slice(&(*at as u32).to_le_bytes());
        body.extend_from_slice(&(*length as u32).to_le_bytes());
    }
    for (at, length) in extents {
        body.extend_from_slice(&bytes[*at..at + length]);
    }
}

/// `None` if the payload is not a sparse bite of `length` bytes: it was damaged.
fn unpack_sparse(
    payload: &[u8],
    length: usize,
    buffer: &mut Vec<u8>,
) -> Option<Vec<(usize, usize)>> {
    let number = |at: usize| -> Option<usize> {
        let bytes = payload.get(at..at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?) as usize)
    };
    let count = number(0)?;
    let mut from = count.checked_mul(EXTENT)?.checked_add(4)?;
    if from > payload.len() {
        return None;
    }
    let mut extents = Vec::with_capacity(count);
    buffer.clear();
    if count > 0 {
        buffer.resize(length, 0);
    }
    let mut last = 0;
    for n in 0..count {
        let (at, own) = (number(4 + n * EXTENT)?, number(8 + n * EXTENT)?);
        if at < last || own == 0 || own > length.checked_sub(at)? {
            return None;
        }
        let bytes = payload.get(from..from.checked_add(own)?)?;
        buffer[at..at + own].copy_from_slice(bytes);
        extents.push((at, own));
        from += own;
        last = at + own;
    }
    (from == payload.len()).then_some(extents)
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The protocol between a group's client and the agent.
//!
//! A frame is a length of four bytes and that many bytes, in this machine's byte order. The
//! client begins with the ABI's version and the group's name; then each question has one
//! answer. Records go as the kernel side writes them: there are thousands, many times a second.

use std::io::{self, Read, Write};

use paceline_abi::{as_bytes, from_bytes, pl_stream_record, PL_ABI_VERSION};

use super::{Bounds, Stream};

/// Of a frame: more than PL_MAX_MEMBERS records.
const LONGEST: usize = 16 << 20;
/// Of a question: as many bounds as there may be streams.
pub(super) const LONGEST_QUESTION: usize = 2 << 20;

const LIST: u8 = b'l';
const APPLY: u8 = b'a';
const DONE: u8 = b'd';
const FAILED: u8 = b'f';
/// Cookie, least and most.
const BOUND_BYTES: usize = 16;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Question {
    List,
    Apply { lease_us: u64, bounds: Vec<Bounds> },
}

pub(super) fn write_frame(to: &mut impl Write, frame: &[u8]) -> io::Result<()> {
    let mut whole = Vec::with_capacity(4 + frame.len());
    whole.extend_from_slice(&(frame.len() as u32).to_ne_bytes());
    whole.extend_from_slice(frame);
    to.write_all(&whole)
}

/// `None` where the other end has hung up between frames.
pub(super) fn read_frame(from: &mut impl Read, longest: usize) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    match from.read(&mut length)? {
        0 => return Ok(None),
        read => from.read_exact(&mut length[read..])?,
    }
    let length = u32::from_ne_bytes(length) as usize;
    if length > longest {
        let what = format!("a frame of {length} bytes exceeds the limit of {longest}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    let mut frame = vec![0; length];
    from.read_exact(&mut frame)?;
    Ok(Some(frame))
}

pub(super) fn hello(name: &str) -> Vec<u8> {
    let mut frame = PL_ABI_VERSION.to_ne_bytes().to_vec();
    frame.extend_from_slice(name.as_bytes());
    frame
}

/// The group's name; `None` where the client is of another version.
pub(super) fn read_hello(frame: &[u8]) -> Option<String> {
    let name = frame.strip_prefix(&PL_ABI_VERSION.to_ne_bytes())?;
    String::from_utf8(name.to_vec()).ok()
}

impl Question {
    pub fn to_frame(&self) -> Vec<u8> {
        match self {
            Self::List => vec![LIST],
            Self::Apply { lease_us, bounds } => {
                let mut frame = vec![APPLY];
                frame.extend_from_slice(&lease_us.to_ne_bytes());
                for bound in bounds {
                    frame.extend_from_slice(&bound.cookie.to_ne_bytes());
                    frame.extend_from_slice(&bound.min_segs.to_ne_bytes());
                    frame.extend_from_slice(&bound.max_segs.to_ne_bytes());
                }
                frame
            }
        }
    }

    /// `None`: not a valid request.
    pub fn read(frame: &[u8]) -> Option<Self> {
        match frame.split_first()? {
            (&LIST, []) => Some(Self::List),
            (&APPLY, rest) => {
                let (lease, bounds) = rest.split_first_chunk::<8>()?;
                if bounds.len() % BOUND_BYTES != 0 {
                    return None;
                }
                let bounds = bounds.chunks_exact(BOUND_BYTES).map(bound_of);
                Some(Self::Apply {
                    lease_us: u64::from_ne_bytes(*lease),
                    bounds: bounds.collect(),
                })
            }
            _ => None,
        }
    }
}

fn bound_of(bytes: &[u8]) -> Bounds {
    let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    Bounds {
        cookie: u64::from_ne_bytes(bytes[..8].try_into().expect("eight bytes")),
        min_segs: word(8),
        max_segs: word(12),
    }
}

pub(super) fn list_frame(records: &[pl_stream_record]) -> Vec<u8> {
    let mut frame = vec![DONE];
    for record in records {
        frame.extend_from_slice(as_bytes(record));
    }
    frame
}

pub(super) fn applied_frame(count: usize) -> Vec<u8> {
    let mut frame = vec![DONE];
    frame.extend_from_slice(&(count as u64).to_ne_bytes());
    frame
}

pub(super) fn failed_frame(message: &str) -> Vec<u8> {
    let mut frame = vec![FAILED];
    frame.extend_from_slice(message.as_bytes());
    frame
}

/// An answer: its content, or the agent's error message.
pub(super) fn read_answer(from: &mut impl Read) -> io::Result<Result<Vec<u8>, String>> {
    let frame = read_frame(from, LONGEST)?;
    let frame = frame.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
    match frame.split_first() {
        Some((&DONE, rest)) => Ok(Ok(rest.to_vec())),
        Some((&FAILED, rest)) => Ok(Err(String::from_utf8_lossy(rest).into_owned())),
        _ => Err(no_answer()),
    }
}

pub(super) fn read_list(answer: &[u8]) -> io::Result<Vec<pl_stream_record>> {
    answer
        .chunks(size_of::<pl_stream_record>())
        .map(|record| from_bytes(record).map_err(|_| no_answer()))
        .collect()
}

pub(super) fn read_applied(answer: &[u8]) -> io::Result<usize> {
    let count = answer.try_into().map_err(|_| no_answer())?;
    Ok(u64::from_ne_bytes(count) as usize)
}

/// For the fuzzer: bytes at groups.sock, read as a client's frames and as an agent's.
pub fn fuzz(bytes: &[u8]) {
    let mut frames = bytes;
    while let Ok(Some(frame)) = read_frame(&mut frames, LONGEST_QUESTION) {
        read_hello(&frame);
        if let Some(question) = Question::read(&frame) {
            assert_eq!(Question::read(&question.to_frame()), Some(question));
        }
    }
    let mut answers = bytes;
    while let Ok(answer) = read_answer(&mut answers) {
        if let Ok(answer) = answer {
            let _ = read_list(&answer).map(|records| records.iter().map(Stream::of).count());
            let _ = read_applied(&answer);
        }
    }
}

fn no_answer() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "the answer is not from an agent",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_and_answers_survive_the_way() {
        let asked = Question::Apply {
            lease_us: 2_000_000,
            bounds: vec![
                Bounds {
                    cookie: u64::MAX,
                    min_segs: 0,
                    max_segs: 7,
                };
                3
            ],
        };
        for question in [Question::List, asked] {
            assert_eq!(Question::read(&question.to_frame()), Some(question));
        }
        assert_eq!(read_hello(&hello("bulk")), Some("bulk".to_owned()));
        let record = pl_stream_record {
            cookie: 5,
            ..Default::default()
        };
        let mut wire = Vec::new();
        write_frame(&mut wire, &list_frame(&[record; 2])).unwrap();
        write_frame(&mut wire, &failed_frame("no")).unwrap();
        write_frame(&mut wire, &applied_frame(9)).unwrap();
        let mut wire = &wire[..];
        let list = read_answer(&mut wire).unwrap().unwrap();
        assert_eq!(read_list(&list).unwrap(), [record; 2]);
        assert_eq!(read_answer(&mut wire).unwrap(), Err("no".to_owned()));
        let applied = read_answer(&mut wire).unwrap().unwrap();
        assert_eq!(read_applied(&applied).unwrap(), 9);
        assert!(read_answer(&mut wire).is_err());
    }

    #[test]
    fn malformed_frames_are_no_question() {
        for frame in [&b""[..], b"x", b"lx", b"a1234567", b"a12345678x"] {
            assert_eq!(Question::read(frame), None, "{frame:?}");
        }
        assert_eq!(read_hello(b"x"), None);
        let mut other = hello("bulk");
        other[0] ^= 0x40;
        assert_eq!(read_hello(&other), None);
        // A length alone allocates no memory.
        let mut long = &u32::MAX.to_ne_bytes()[..];
        assert!(read_frame(&mut long, LONGEST_QUESTION).is_err());
    }
}

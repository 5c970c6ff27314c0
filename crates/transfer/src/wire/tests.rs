// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages and frames: what was sealed is opened, and nothing else.

use proptest::prelude::*;

use super::*;
use crate::chunk::{bite_length, hash_bite};

const SECRET: [u8; 32] = [5; 32];

fn tags(stream: u16) -> Tags {
    Tags::new(TagKey::new(&SECRET, stream, false))
}

/// A frame of a bite, as a source makes it.
fn frame(bytes: &[u8], (offset, size): (u64, u64), tags: &mut Tags) -> Vec<u8> {
    let mut body = vec![0; HEADER];
    body.extend_from_slice(bytes);
    let header = Header {
        kind: Kind::Chunk,
        attempt: 0,
        payload: bytes.len() as u32,
        file: 7,
        offset,
        size,
        length: bytes.len() as u64,
    };
    Frame::seal(&mut body, &header, &hash_bite(bytes, offset, size), tags);
    body
}

fn is_whole(body: &[u8], tags: &mut Tags) -> bool {
    let Ok(frame) = Frame::open(body, tags) else {
        return false;
    };
    matches!(frame.bite(&mut Vec::new()), Ok(Some(_)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any changed bit is found: by the tag, or by the payload's hash.
    #[test]
    fn a_changed_bit_is_found(
        length in 1usize..3000,
        place in any::<prop::sample::Index>(),
        bit in 0u8..8,
    ) {
        let bytes = vec![9; length];
        let mut body = frame(&bytes, (0, length as u64), &mut tags(1));
        prop_assert!(is_whole(&body, &mut tags(1)));
        let place = place.index(body.len());
        body[place] ^= 1 << bit;
        prop_assert!(!is_whole(&body, &mut tags(1)), "byte {}", place);
    }

    /// A frame is good once, in its turn, on its stream, in its session.
    #[test]
    fn a_frame_is_good_in_its_turn_alone(other in 0u16..9, before in 0usize..4) {
        let mut sealing = tags(3);
        let bodies: Vec<_> = (0..5).map(|n| frame(&[n; 10], (0, 10), &mut sealing)).collect();
        let mut opening = tags(3);
        for body in &bodies[..before] {
            prop_assert!(is_whole(body, &mut opening));
        }
        let other_session = TagKey::new(&[6; 32], 3, false);
        let as_ack = TagKey::new(&SECRET, 3, true);
        for mut wrong in [tags(if other == 3 { 99 } else { other }), Tags::new(other_session), Tags::new(as_ack)] {
            prop_assert!(!is_whole(&bodies[0], &mut wrong));
        }
        // Replayed, or with one left out.
        if before > 0 {
            prop_assert!(!is_whole(&bodies[before - 1], &mut opening));
        } else {
            prop_assert!(!is_whole(&bodies[1], &mut opening));
        }
    }

    /// Extents come out as they went in, zeros between them.
    #[test]
    fn sparse_bites_come_out_as_they_went_in(
        parts in prop::collection::vec((0usize..5000, 1usize..5000), 0..10),
    ) {
        let (mut bytes, mut extents) = (Vec::new(), Vec::new());
        for (n, (gap, own)) in parts.into_iter().enumerate() {
            bytes.resize(bytes.len() + gap, 0);
            extents.push((bytes.len(), own));
            bytes.resize(bytes.len() + own, n as u8 + 1);
        }
        bytes.resize(64 << 10, 0);
        let size = bytes.len() as u64;
        let mut body = vec![0; HEADER];
        pack_sparse(&mut body, &bytes, &extents);
        let header = Header {
            kind: Kind::Sparse,
            attempt: 2,
            payload: (body.len() - HEADER) as u32,
            file: 1,
            offset: 0,
            size,
            length: size,
        };
        Frame::seal(&mut body, &header, &hash_bite(&bytes, 0, size), &mut tags(0));
        let opened = Frame::open(&body, &mut tags(0)).expect("its own");
        prop_assert_eq!(opened.header, header);
        let mut buffer = Vec::new();
        let bite = opened.bite(&mut buffer).expect("well formed").expect("its hash");
        prop_assert_eq!(&bite.extents, &extents);
        if !extents.is_empty() {
            prop_assert_eq!(bite.bytes, &bytes[..]);
        }
    }

    /// All bites that a queue cuts have headers that are taken.
    #[test]
    fn headers_of_all_bites_are_taken(size in 1u64..1 << 40, at in any::<u64>(), limit in 0u64..1 << 25) {
        let at = at % size / LEAST * LEAST;
        let length = bite_length(at, size, size, limit);
        let header = Header {
            kind: Kind::Chunk,
            attempt: 1,
            payload: length as u32,
            file: u64::MAX,
            offset: at,
            size,
            length,
        };
        prop_assert_eq!(Header::decode(&header.encode()).expect("a bite"), header);
    }

    #[test]
    fn any_bytes_are_a_message_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        super::fuzz_message(&bytes);
        super::fuzz_frame(&bytes);
    }
}

const LEAST: u64 = crate::chunk::LEAST_BITE;

#[test]
fn acknowledgements_are_authentic() {
    let key = || TagKey::new(&SECRET, 2, true);
    let mut sealing = Tags::new(key());
    let have = sealing.seal_ack(Ack::Have(5));
    let again = sealing.seal_ack(Ack::Again(6));
    assert_eq!(have.len(), ACK);
    let mut opening = Tags::new(key());
    assert_eq!(opening.open_ack(&have).expect("its own"), Ack::Have(5));
    assert!(opening.open_ack(&have).is_err(), "replayed");
    let mut opening = Tags::new(key());
    assert!(opening.open_ack(&again).is_err(), "out of turn");
    for place in 0..ACK {
        let mut changed = have.clone();
        changed[place] ^= 1;
        assert!(Tags::new(key()).open_ack(&changed).is_err(), "{place}");
    }
}

#[test]
fn limits_are_held() {
    let entry = |path: &[u8]| Entry {
        n: 0,
        path: path.to_vec(),
        kind: EntryKind::Directory,
        mode: 0,
        stamp: Stamp::default(),
        root: None,
        attributes: Vec::new(),
        owner: None,
    };
    let taken = |message: &Message| Message::decode(&message.encode().expect("small")).is_ok();
    assert!(taken(&Message::Entries(vec![entry(b"a"); MOST_ENTRIES])));
    assert!(!taken(&Message::Entries(vec![
        entry(b"a");
        MOST_ENTRIES + 1
    ])));
    assert!(!taken(&Message::Entries(vec![entry(b"../a")])));
    let with = |name: &[u8], bytes| {
        let mut own = entry(b"a");
        own.attributes = vec![(name.to_vec(), vec![0; bytes])];
        Message::Entries(vec![own])
    };
    assert!(taken(&with(b"user.a", MOST_ATTRIBUTES - 6)));
    assert!(taken(&with(b"system.posix_acl_access", 1)));
    for (name, bytes) in [
        (&b"user.a"[..], MOST_ATTRIBUTES - 5),
        (b"user.", 1),
        (b"user.a\0b", 1),
        (b"security.capability", 1),
        (b"trusted.overlay.opaque", 1),
        (b"", 1),
    ] {
        assert!(!taken(&with(name, bytes)), "{name:?} {bytes}");
    }
    let ranges = |count| {
        Message::Wants(vec![Want {
            n: 0,
            wanted: Wanted::Ranges(vec![(0, 1); count]),
        }])
    };
    assert!(taken(&ranges(MOST_RANGES)));
    assert!(!taken(&ranges(MOST_RANGES + 1)));
    let stop = |length| Message::Stop {
        reason: Reason::Full,
        text: "x".repeat(length),
    };
    assert!(taken(&stop(MOST_TEXT)));
    assert!(!taken(&stop(MOST_TEXT + 1)));
    let start = |streams, chunk| {
        Message::Start(Box::new(Start {
            direction: Direction::Push,
            id: [0; 32],
            secret: [0; 32],
            paths: vec![b"x".to_vec()],
            options: Options {
                streams,
                chunk,
                ..Options::default()
            },
        }))
    };
    assert!(taken(&start(256, Some(1 << 20))));
    for (streams, chunk) in [
        (0, None),
        (257, None),
        (1, Some(3 << 20)),
        (1, Some(1 << 30)),
    ] {
        assert!(!taken(&start(streams, chunk)), "{streams} {chunk:?}");
    }
    assert!(stop(MOST_MESSAGE).encode().is_err());
}

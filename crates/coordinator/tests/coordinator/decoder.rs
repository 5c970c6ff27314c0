// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The decoder: whatever arrives, it is a message or an error.

use crate::support::host::sample;
use paceline_coordinator::local::Cap;
use paceline_coordinator::protocol::{
    Join, Message, Request, Role, WireError, MOST_FRAME, MOST_STREAMS,
};
use proptest::prelude::*;

fn examples() -> Vec<(&'static str, Message)> {
    let status = Request::Status {
        group: Some("g".to_owned()),
    };
    let set = Request::Set {
        group: None,
        algorithm: "scoreboard:block=30".to_owned(),
    };
    let cap = |cookie| Cap {
        cookie,
        min_segs: 3,
        max_segs: u32::MAX,
    };
    let mut stream = sample(u64::MAX, u32::MAX);
    stream.destination = Some([10, 1, 2, 3].into());
    let mut other = sample(0, 0);
    other.destination = Some([0u16; 8].into());
    other.recovering = true;
    vec![
        (
            "refused",
            Message::Refused {
                for_good: true,
                text: "no".to_owned(),
            },
        ),
        ("poll", Message::Poll { round: 300 }),
        (
            "report",
            Message::Report {
                round: 300,
                taken_us: 1,
                streams: vec![stream, other],
            },
        ),
        (
            "report-empty",
            Message::Report {
                round: 1,
                taken_us: 0,
                streams: vec![],
            },
        ),
        (
            "caps",
            Message::Caps {
                round: 300,
                lease_ms: 500,
                caps: vec![cap(1), cap(2)],
            },
        ),
        (
            "caps-none",
            Message::Caps {
                round: 1,
                lease_ms: 500,
                caps: vec![],
            },
        ),
        (
            "request-status-of-all",
            Message::Request {
                number: 3,
                request: Request::Status { group: None },
            },
        ),
        (
            "request-status",
            Message::Request {
                number: 1,
                request: status,
            },
        ),
        (
            "request-set",
            Message::Request {
                number: 2,
                request: set,
            },
        ),
        (
            "answer",
            Message::Answer {
                number: 1,
                result: Ok("{}".to_owned()),
            },
        ),
        (
            "answer-error",
            Message::Answer {
                number: 1,
                result: Err("no".to_owned()),
            },
        ),
        ("leave", Message::Leave),
    ]
}

fn joins() -> [(&'static str, Join); 2] {
    let join = |role, group: &str| Join {
        role,
        group: group.to_owned(),
        host: "host-1.example".to_owned(),
    };
    [
        ("join-member", join(Role::Member, "transfer")),
        ("join-control", join(Role::Control, "")),
    ]
}

fn encoded(message: &Message) -> Vec<u8> {
    let mut body = Vec::new();
    message.encode(&mut body).expect("short");
    body
}

#[test]
fn encoded_messages_decode_to_the_same_message() {
    for (name, message) in examples() {
        assert_eq!(Message::decode(&encoded(&message)).expect(name), message);
    }
    for (name, join) in joins() {
        let intent = join.encode().expect(name);
        assert_eq!(Join::decode(&intent).expect(name), join);
    }
}

/// The fuzzer begins with these.
#[test]
fn the_fuzzers_corpus_is_of_this_version() {
    let corpus =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/coordinator");
    let file = |name: &str, body: &[u8]| {
        let path = corpus.join(name);
        if std::env::var_os("PACELINE_WRITE_CORPUS").is_some() {
            std::fs::create_dir_all(&corpus).expect("a directory");
            std::fs::write(&path, body).expect("written");
        }
        std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    for (name, message) in examples() {
        let bytes = file(name, &encoded(&message));
        assert_eq!(Message::decode(&bytes).expect(name), message);
    }
    for (name, join) in joins() {
        let bytes = file(name, &join.encode().expect(name));
        assert_eq!(Join::decode(&bytes).expect(name), join);
    }
}

#[test]
fn a_part_of_a_message_or_more_than_one_is_none() {
    for (name, message) in examples() {
        let body = encoded(&message);
        for end in 0..body.len() {
            assert!(
                Message::decode(&body[..end]).is_err(),
                "{name} cut at {end}"
            );
        }
        let mut more = body;
        more.push(0);
        let error = Message::decode(&more).expect_err(name).to_string();
        assert!(error.contains("1 bytes follow"), "{error}");
    }
    for (name, join) in joins() {
        let mut intent = join.encode().expect(name);
        for end in 0..intent.len() {
            Join::decode(&intent[..end]).expect_err(name);
        }
        intent.push(0);
        let error = Join::decode(&intent).expect_err(name);
        assert!(matches!(error, WireError::Trailing(1)), "{error}");
    }
}

#[test]
fn limits() {
    let many = |count| Message::Report {
        round: 1,
        taken_us: 1,
        streams: vec![sample(1, 1); count],
    };
    Message::decode(&encoded(&many(MOST_STREAMS))).expect("as many as may be");
    let error = Message::decode(&encoded(&many(MOST_STREAMS + 1))).expect_err("too many");
    assert!(error.to_string().contains("limit of 4096"), "{error}");
    let text = Message::Refused {
        for_good: true,
        text: "x".repeat(MOST_FRAME),
    };
    text.encode(&mut Vec::new()).expect_err("too long");
    // A length that is announced and not there takes no memory.
    let mut body = encoded(&many(0));
    body.pop();
    body.extend([0xff, 0xff, 0xff, 0xff, 0x7f]);
    Message::decode(&body).expect_err("4 billion streams");
}

#[test]
fn names_that_would_mark_a_log_or_a_terminal_are_refused() {
    let join = |group: &str| Join {
        role: Role::Member,
        group: group.to_owned(),
        host: "h".to_owned(),
    };
    let good = join("0123456789").encode().expect("a name");
    for group in ["a b", "a\nb", "\x1b[2J", "ü"] {
        join(group).encode().expect_err(group);
        // As somebody would send it who does not look.
        let mut intent = good.clone();
        let at = good.len() - "0123456789".len() - 2;
        intent[at..at + group.len()].copy_from_slice(group.as_bytes());
        let error = Join::decode(&intent).expect_err(group);
        assert!(matches!(error, WireError::Name(_)), "{error}");
    }
    for group in ["", &"x".repeat(65)] {
        join(group).encode().expect_err(group);
    }
}

proptest! {
    #[test]
    fn any_bytes_are_a_message_or_an_error(body in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Message::decode(&body);
        let _ = Join::decode(&body);
    }

    #[test]
    fn messages_with_a_changed_byte_are_a_message_or_an_error(number in 0usize..100, place in 0usize..200, value in any::<u8>()) {
        let examples = examples();
        let mut body = encoded(&examples[number % examples.len()].1);
        let place = place % body.len();
        body[place] = value;
        if let Ok(message) = Message::decode(&body) {
            prop_assert_eq!(Message::decode(&encoded(&message)).ok(), Some(message));
        }
    }
}

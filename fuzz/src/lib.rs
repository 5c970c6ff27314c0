// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is done with a file that a user may have written, or with what somebody says at a
//! socket, up to the point where root or a clock would be needed. Each function panics
//! where Paceline would.
//!
//! `cargo fuzz run --features libfuzzer TARGET` looks for such files; those in
//! `corpus/TARGET` are tried by `make test`.

#![forbid(unsafe_code)]

use std::path::Path;
use std::sync::Arc;

use paceline_agent::{group, service};
use paceline_coordinator::algorithm::Choice;
use paceline_coordinator::protocol::{Join, Message, Request};
use paceline_emulator::file::{FileError, LinkFile};
use paceline_emulator::socket;
use paceline_emulator::trace::Trace;
use paceline_emulator::{Buffer, Line, Link, LinkConfig};
use paceline_experiment::{Experiment, ExperimentError};
use paceline_gateway::{config, session};
use paceline_policy::{Policy, PolicyError};
use paceline_report::html::comparison::{comparison, Run};
use paceline_report::results::Results;
use paceline_report::table;
use paceline_security as security;
use paceline_simulator::measures;
use paceline_simulator::scenario::{Scenario, ScenarioError};
use paceline_testbed::mark::Mark;
use paceline_testbed::{address, Topology, TopologyError};
use paceline_transfer::wire;

/// Frames that are sent over each link that a file gives.
const PACKETS: u32 = 400;
/// Between two of them, nanoseconds. A prime: not in step with anything.
const SPACING_NS: u64 = 1_000_003;
/// Largest frame, bytes, as the interfaces of a link may carry.
const FRAME_BYTES: u32 = 1514;

/// What is done with a file's text.
pub type Target = fn(&str);

/// A name and a function for each kind of file.
pub const TARGETS: [(&str, Target); 10] = [
    ("topology", topology),
    ("experiment", experiment),
    ("trace", trace),
    ("link", link),
    ("policy", policy),
    ("scenario", scenario),
    ("agent-config", agent_config),
    ("gateway-config", gateway_config),
    ("mounts", mounts),
    ("results", results),
];

/// What is done with bytes that came by a socket.
pub type Said = fn(&[u8]);

/// A name and a function for each socket, and for the mover's journal. That of phase pages takes a number and no more.
pub const SOCKETS: [(&str, Said); 11] = [
    ("coordinator", coordinator),
    ("frames", security::fuzz::frames),
    ("handshake", security::fuzz::first_message),
    ("jobs", service::fuzz_request),
    ("groups", group::fuzz),
    ("emulate-control", emulate_control),
    ("lab-keeper", paceline_testbed::socket::fuzz),
    ("move-message", wire::fuzz_message),
    ("move-frame", wire::fuzz_frame),
    ("gateway-datagram", session::fuzz_datagram),
    ("move-journal", paceline_transfer::store::fuzz_journal),
];

/// Every reader of TOML: a value, or problems, each at a place that is in the text.
///
/// # Panics
/// If a reader refuses a text without a problem, or with one beyond it.
pub fn inputs(text: &str) {
    let path = Path::new("file.toml");
    let load = |_: &str| Ok(Trace::parse("1\n3\n", "trace").expect("a good trace"));
    let refused = [
        match Policy::parse(text, "file.toml") {
            Err(PolicyError::Invalid(problems)) => Some(problems),
            _ => None,
        },
        match LinkFile::parse(text, "file.toml", FRAME_BYTES, &load) {
            Err(FileError::Invalid(problems)) => Some(problems),
            _ => None,
        },
        match Scenario::parse(text, path) {
            Err(ScenarioError::Invalid(problems)) => Some(problems),
            _ => None,
        },
        match Experiment::parse(text, path) {
            Err(ExperimentError::Invalid(problems)) => Some(problems),
            _ => None,
        },
        match Topology::parse(text, path) {
            Err(TopologyError::Invalid(problems)) => Some(problems),
            _ => None,
        },
        service::fuzz_config(text),
        config::fuzz(text),
    ];
    let lines: Vec<usize> = text.split('\n').map(|line| line.chars().count()).collect();
    for problems in refused.iter().flatten() {
        assert!(!problems.list.is_empty(), "refused without a problem");
        for problem in &problems.list {
            let length = lines.get(problem.line - 1);
            let is_inside = length.is_some_and(|length| (1..=length + 1).contains(&problem.column));
            assert!(is_inside && !problem.what.is_empty(), "{problem}");
        }
    }
}

/// `lab up FILE`, until the network would be built.
pub fn topology(text: &str) {
    if let Ok(topology) = Topology::parse(text, Path::new("lab.toml")) {
        address::hosts_file(&topology, true);
        for (_, cluster, number) in topology.hosts() {
            address::host(cluster, number);
        }
    }
}

/// `lab run FILE`, until machines would start.
pub fn experiment(text: &str) {
    if let Ok(experiment) = Experiment::parse(text, Path::new("experiment.toml")) {
        for quick in [false, true] {
            let plans = experiment.shards(quick, None, &[]);
            plans.expect("no variant was named");
        }
        for paper in &experiment.file.paper {
            paper.for_results();
        }
    }
}

/// /proc/PID/mountinfo: where cgroups are, and in which labs a process is. Any user can
/// give a mount any source.
pub fn mounts(text: &str) {
    paceline_agent::cgroup::fuzz(text);
    for mark in paceline_testbed::mark::marks_of_mounts(text) {
        assert_eq!(Mark::parse(&mark.to_string()), Some(mark));
    }
}

/// `lab report DIR`: table, page and CSV of a results.json.
pub fn results(text: &str) {
    if let Ok(results) = Results::from_json(text, Path::new("results.json")) {
        let _ = table::render(
            &results,
            table::Options {
                color: true,
                width: 80,
            },
        );
        let results = &results;
        let _ = comparison(&[Run {
            results,
            page: "report.html".into(),
        }]);
    }
}

/// A request line to a running link, and the answer of a link.
pub fn emulate_control(bytes: &[u8]) {
    if let Ok(socket::Request::Change(change)) = serde_json::from_slice(bytes) {
        let (change, config) = (
            change.change(),
            LinkConfig::new(1_000_000, 0, Buffer::Packets(10)),
        );
        if config.check_change(&change, FRAME_BYTES).is_ok() {
            let mut link = Link::new(config, 0);
            link.change(0, &change);
            carry(link);
        }
    }
    let _ = serde_json::from_slice::<socket::Answer>(bytes);
}

/// A mahimahi trace, and a line that follows it.
pub fn trace(text: &str) {
    if let Ok(trace) = Trace::parse(text, "trace") {
        let mut config = LinkConfig::new(1, 0, Buffer::Packets(100));
        config.line = Line::Trace(Arc::new(trace));
        carry(Link::new(config, 0));
    }
}

/// `emulate run --file FILE`, and packets on what it describes.
pub fn link(text: &str) {
    let load = |_: &str| Ok(Trace::parse("1\n3\n3\n9", "trace").expect("a good trace"));
    if let Ok(file) = LinkFile::parse(text, "link.toml", FRAME_BYTES, &load) {
        carry(Link::new(file.forward, 0));
        carry(Link::new(file.reverse, 0));
    }
}

/// `run --policy FILE`, until the kernel would get it.
pub fn policy(text: &str) {
    if let Ok(policy) = Policy::parse(text, "policy.toml") {
        for tick_us in [1_000, 4_000, 10_000] {
            policy.to_abi(tick_us);
        }
        let again = Policy::parse(&policy.to_toml(), "policy.toml");
        assert_eq!(again.expect("its own text is good"), policy);
    }
}

/// `agent serve`, until it would listen.
pub fn agent_config(text: &str) {
    // Panics are what is looked for.
    let _ = service::fuzz_config(text);
}

/// `gateway serve`, until it would listen.
pub fn gateway_config(text: &str) {
    // Panics are what is looked for.
    let _ = config::fuzz(text);
}

/// A frame's body that a coordinator or a client may be sent once it is in, and what a
/// client says to get in. What can be read is written again, and read as the same.
pub fn coordinator(body: &[u8]) {
    if let Ok(join) = Join::decode(body) {
        let again = join.encode().expect("it was taken");
        assert_eq!(Join::decode(&again).expect("its own bytes"), join);
    }
    let Ok(message) = Message::decode(body) else {
        return;
    };
    if let Message::Request {
        request: Request::Set { algorithm, .. },
        ..
    } = &message
    {
        if let Ok(choice) = algorithm.parse::<Choice>() {
            choice.start();
        }
    }
    let mut again = Vec::new();
    message.encode(&mut again).expect("no larger than it was");
    assert_eq!(Message::decode(&again).expect("its own bytes"), message);
}

/// Flows of a scenario that is run here, and simulated time of it, at most.
const FLOWS: usize = 200;
const SIMULATED_NS: u64 = 50_000_000;

/// `sim sweep FILE`: all points are planned, and small worlds run for a moment.
pub fn scenario(text: &str) {
    let Ok(scenario) = Scenario::parse(text, Path::new("scenario.toml")) else {
        return;
    };
    for point in scenario.points().iter().take(20) {
        let Ok(plan) = scenario.plan(point) else {
            continue;
        };
        if plan.flows() <= FLOWS as u64 && plan.offers_little() {
            plan.world(1).run(plan.duration_ns.min(SIMULATED_NS));
            if plan.duration_ns <= SIMULATED_NS {
                measures::run(&plan, 1, true, &|| false);
            }
        }
    }
}

/// Sends packets over a link; what it takes in is inside until it comes out.
fn carry(mut link: Link<u32>) {
    let mut inside = 0;
    for number in 0..PACKETS {
        let now = u64::from(number) * SPACING_NS;
        let size = FRAME_BYTES - number % 1_400;
        inside += u64::from(link.arrive(now, size, number).is_ok());
        while link.deliver(now).is_some() {
            inside -= 1;
        }
        link.backlog(now);
        assert!(link.next_event().is_none_or(|event| event > now));
        assert_eq!(link.inside().packets, inside);
    }
}

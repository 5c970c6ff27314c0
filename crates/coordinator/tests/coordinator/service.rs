// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Coordinator and clients, over real sockets: they come, go and come back.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support::host::{sample, until, Host};
use paceline_coordinator::client::{self, Access, ClientConfig, Control, Target};
use paceline_coordinator::protocol::{enter, Join, Message, Reader, Request, Role, Writer};
use paceline_coordinator::server::{Endpoint, Server, ServerConfig};
use paceline_coordinator::status::Status;
use paceline_security::Protection;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Running {
    async fn start(config: ServerConfig) -> Self {
        let server = Server::bind(config).await.expect("listening");
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            let stopped = async {
                let _ = stopped.await;
            };
            server.run(stopped).await.expect("served");
        });
        Self { stop, task }
    }

    async fn stop(self) {
        let _ = self.stop.send(());
        self.task.await.expect("ended");
    }
}

fn config(socket: &Path, algorithm: &str) -> ServerConfig {
    let listen = vec![Endpoint::Local(socket.to_owned())];
    let mut config = ServerConfig::new(listen, algorithm.parse().expect("an algorithm"));
    config.period = Some(Duration::from_millis(20));
    // No member is dropped for what a busy machine delays.
    config.timeout = Duration::from_secs(60);
    config
}

fn member(socket: &Path, name: &str, host: &Host) -> JoinHandle<()> {
    let config = ClientConfig {
        access: Access::new(Target::Local(socket.to_owned())),
        group: "transfer".to_owned(),
        host: name.to_owned(),
        patience: None,
    };
    let mut host = host.clone();
    tokio::spawn(async move {
        let joined = client::join(&config, &mut host, std::future::pending());
        joined.await.expect("joined");
    })
}

async fn status(socket: &Path) -> Status {
    let access = Access::new(Target::Local(socket.to_owned()));
    let mut control = Control::connect(&access, "test").await.expect("in");
    let request = Request::Status { group: None };
    let answer = control.ask(request).await.expect("a status");
    serde_json::from_str(&answer).expect("JSON")
}

/// Waits until more than `before` have been refused or dismissed.
async fn until_refused(socket: &Path, before: u64) {
    for _ in 0..3000 {
        if status(socket).await.refused > before {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("nobody was refused");
}

fn place() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("s.sock");
    (directory, socket)
}

#[tokio::test]
async fn two_hosts_get_one_window_and_another_algorithm_in_the_middle() {
    let (directory, socket) = place();
    let mut config = config(&socket, "average");
    config.log = Some(directory.path().join("rounds.csv"));
    let server = Running::start(config).await;
    let (one, two) = (
        Host::with(vec![sample(1, 10), sample(2, 20)]),
        Host::with(vec![sample(1, 90)]),
    );
    let members = [member(&socket, "one", &one), member(&socket, "two", &two)];
    until("the average", || {
        [one.max_of(1), one.max_of(2), two.max_of(1)] == [Some(40); 3]
    })
    .await;
    let lease = one.seen.lock().expect("no panic").lease;
    assert_eq!(lease, Duration::from_millis(500));

    let seen = status(&socket).await;
    let group = &seen.groups[0];
    let last = group.last.as_ref().expect("rounds");
    assert_eq!((group.group.as_str(), last.clients), ("transfer", 2));
    assert_eq!((last.inflight_min, last.inflight_max), (10, 90));
    assert_eq!((last.inflight_total, last.inflight_spread), (120, 2.0));
    let slowest = last.slowest.as_ref().expect("streams");
    assert_eq!(slowest.acked_bytes, 1000);

    let access = Access::new(Target::Local(socket.clone()));
    let mut control = Control::connect(&access, "test").await.expect("in");
    let set = |algorithm: &str| Request::Set {
        group: Some("transfer".to_owned()),
        algorithm: algorithm.to_owned(),
    };
    let error = control.ask(set("lagrest")).await.expect_err("no such");
    assert!(error.to_string().contains("use one of even"), "{error}");
    control.ask(set("largest")).await.expect("set");
    until("the largest", || one.max_of(1) == Some(90)).await;
    control.ask(set("none")).await.expect("set");
    until("no limits", || one.max_of(1) == Some(0)).await;

    members.iter().for_each(JoinHandle::abort);
    server.stop().await;
    assert!(!socket.exists(), "nothing is left behind");
    let log = std::fs::read_to_string(directory.path().join("rounds.csv")).expect("a log");
    assert!(log.starts_with("group,round,"), "{log}");
    assert!(log.contains(",average,2,2,3,10,90,40.0,120,2.0,"), "{log}");
}

#[tokio::test]
async fn a_coordinator_may_come_late_and_come_back() {
    let (_directory, socket) = place();
    let host = Host::with(vec![sample(7, 30)]);
    let member = member(&socket, "one", &host);
    // The client is there first.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let server = Running::start(config(&socket, "average")).await;
    until("windows", || host.max_of(7) == Some(30)).await;
    server.stop().await;
    let before = host.applied();
    let server = Running::start(config(&socket, "average")).await;
    until("windows again", || host.applied() > before).await;
    // Streams come and go.
    host.streams.lock().expect("no panic").push(sample(8, 50));
    until("the new one", || host.max_of(8) == Some(40)).await;
    host.streams.lock().expect("no panic").remove(0);
    until("the old one's end", || host.max_of(7).is_none()).await;
    assert_eq!(host.max_of(8), Some(50));
    member.abort();
    server.stop().await;
}

/// A member by hand, up to its place in the group.
async fn by_hand(
    socket: &Path,
) -> (
    Reader<tokio::net::unix::OwnedReadHalf>,
    Writer<tokio::net::unix::OwnedWriteHalf>,
) {
    let stream = tokio::net::UnixStream::connect(socket)
        .await
        .expect("there");
    let join = Join {
        role: Role::Member,
        group: "transfer".to_owned(),
        host: "hand".to_owned(),
    };
    let entered = enter(stream.into_split(), None, &Protection::Kernel, &join).await;
    entered.expect("let in")
}

#[tokio::test]
async fn a_vanished_client_leaves_the_group_and_delays_no_other() {
    let (_directory, socket) = place();
    let mut config = config(&socket, "average");
    // Long enough for its window to be seen, on any machine.
    config.timeout = Duration::from_secs(5);
    let server = Running::start(config).await;
    let host = Host::with(vec![sample(1, 10)]);
    let member = member(&socket, "one", &host);
    until("windows", || host.max_of(1) == Some(10)).await;
    // One report, then silence on an open connection, as from a host that lost power.
    let (mut reader, mut writer) = by_hand(&socket).await;
    let patience = Duration::from_secs(60);
    loop {
        if let Message::Poll { round } = reader.next(patience).await.expect("a poll") {
            let report = Message::Report {
                round,
                taken_us: 1,
                streams: vec![sample(1, 30)],
            };
            writer.send(&report, patience).await.expect("sent");
            break;
        }
    }
    // It reads on, and so is dropped for its silence alone.
    let watcher = tokio::spawn(async move {
        loop {
            match reader.next(patience).await {
                Ok(Message::Refused { for_good, text }) => break (for_good, text),
                Ok(_) => {}
                Err(error) => panic!("it is told before the end: {error}"),
            }
        }
    });
    until("its window counts", || host.max_of(1) == Some(20)).await;
    until("it is forgotten", || host.max_of(1) == Some(10)).await;
    let end = watcher.await.expect("told");
    assert_eq!(end, (false, "no report for too long".to_owned()));
    member.abort();
    server.stop().await;
}

#[tokio::test]
async fn a_report_counts_once_and_in_its_turn() {
    let (_directory, socket) = place();
    let server = Running::start(config(&socket, "average")).await;
    let patience = Duration::from_secs(60);
    for wrong in ["again", "ahead"] {
        let (mut reader, mut writer) = by_hand(&socket).await;
        let round = loop {
            if let Message::Poll { round } = reader.next(patience).await.expect("a poll") {
                break round;
            }
        };
        let report = |round, cookies: &[u64]| Message::Report {
            round,
            taken_us: 1,
            streams: cookies.iter().map(|c| sample(*c, 30)).collect(),
        };
        let reports = match wrong {
            "again" => vec![report(round, &[1]), report(round, &[1])],
            _ => vec![report(round + 1000, &[1])],
        };
        for report in reports {
            writer.send(&report, patience).await.expect("sent");
        }
        let text = loop {
            match reader.next(patience).await {
                Ok(Message::Refused { for_good, text }) => {
                    assert!(!for_good, "it may come again");
                    break text;
                }
                Ok(_) => {}
                Err(error) => panic!("{wrong}: {error}"),
            }
        };
        assert!(!text.is_empty(), "{wrong}");
    }
    let seen = status(&socket).await;
    assert_eq!(seen.refused, 2);
    let [refusal] = &seen.refusals[..] else {
        panic!("{:?}", seen.refusals);
    };
    assert_eq!(
        (refusal.reason.as_str(), refusal.count),
        ("protocol error", 2)
    );
    let last = "hand of group transfer: a report for a round that has not begun";
    assert_eq!(refusal.last, last);
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_does_not_read_is_dropped() {
    let (_directory, socket) = place();
    let mut config = config(&socket, "average");
    // Silence alone is not what it is dropped for.
    config.timeout = Duration::from_secs(600);
    let server = Running::start(config).await;
    let (mut reader, mut writer) = by_hand(&socket).await;
    let patience = Duration::from_secs(60);
    let round = loop {
        if let Message::Poll { round } = reader.next(patience).await.expect("a poll") {
            break round;
        }
    };
    // Each round it is sent 4,000 windows now, which fill the socket, then the queue.
    let report = Message::Report {
        round,
        taken_us: 1,
        streams: (0..4000).map(|cookie| sample(cookie, 10)).collect(),
    };
    writer.send(&report, patience).await.expect("sent");
    for waited in 0.. {
        let groups = status(&socket).await.groups;
        let group = &groups[0];
        if waited > 0 && group.clients.is_empty() {
            break;
        }
        assert!(waited < 1000, "it is never dropped");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    drop((reader, writer));
    server.stop().await;
}

#[tokio::test]
async fn limits_of_clients_groups_and_streams() {
    let (_directory, socket) = place();
    let mut config = config(&socket, "average");
    config.groups = vec!["transfer".to_owned()];
    config.limits.clients = 1;
    config.limits.streams = 2;
    let server = Running::start(config).await;
    let access = Access::new(Target::Local(socket.clone()));
    let other = ClientConfig {
        access: access.clone(),
        group: "other".to_owned(),
        host: "one".to_owned(),
        patience: None,
    };
    let mut host = Host::with(vec![sample(1, 10)]);
    let error = client::join(&other, &mut host, std::future::pending()).await;
    let error = error.expect_err("not served").to_string();
    assert!(
        error.contains("this coordinator does not serve group \"other\""),
        "{error}"
    );
    let first = member(&socket, "one", &host);
    until("windows", || host.max_of(1) == Some(10)).await;
    // A second one is told, and tries again when there is room.
    let second_host = Host::with(vec![sample(1, 30), sample(2, 30)]);
    let before = status(&socket).await.refused;
    let second = member(&socket, "two", &second_host);
    until_refused(&socket, before).await;
    assert_eq!(second_host.applied(), 0);
    first.abort();
    until("room", || second_host.max_of(1) == Some(30)).await;
    // A third stream is too much: it is dismissed, and comes back without it.
    let before = status(&socket).await.refused;
    second_host
        .streams
        .lock()
        .expect("no panic")
        .push(sample(3, 30));
    until_refused(&socket, before).await;
    assert_eq!(second_host.max_of(3), None);
    second_host.streams.lock().expect("no panic").pop();
    let before = second_host.applied();
    until("it is back", || second_host.applied() > before).await;
    second.abort();
    server.stop().await;
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Faults that were found by use and by attack, each with its test.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support::host::{sample, until, Host};
use paceline_coordinator::client::{self, Access, ClientConfig, Control, Target};
use paceline_coordinator::local::{Cap, StreamSample};
use paceline_coordinator::protocol::{enter, Join, Message, Reader, Request, Role, Writer};
use paceline_coordinator::server::{Endpoint, Server, ServerConfig};
use paceline_coordinator::status::Status;
use paceline_coordinator::Error;
use paceline_security::{Protection, Token};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

const PATIENCE: Duration = Duration::from_secs(60);

/// A coordinator at these places, whose rounds are short.
async fn start(listen: Vec<Endpoint>, algorithm: &str, token: bool) -> Option<SocketAddr> {
    let mut config = ServerConfig::new(listen, algorithm.parse().expect("an algorithm"));
    config.period = Some(Duration::from_millis(20));
    config.groups = vec!["transfer".to_owned()];
    config.token = token.then(|| Token::new(b"sixteen or more bytes"));
    let server = Server::bind(config).await.expect("listening");
    let address = server.addresses().first().copied();
    tokio::spawn(server.run(std::future::pending()));
    address
}

fn place() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("s.sock");
    (directory, socket)
}

fn config(socket: &Path, group: &str, patience: Option<Duration>) -> ClientConfig {
    ClientConfig {
        access: Access::new(Target::Local(socket.to_owned())),
        group: group.to_owned(),
        host: "one".to_owned(),
        patience,
    }
}

fn member(socket: &Path, host: &Host) -> JoinHandle<()> {
    let (config, mut host) = (config(socket, "transfer", None), host.clone());
    tokio::spawn(async move {
        let joined = client::join(&config, &mut host, std::future::pending()).await;
        joined.expect("it takes part until it is stopped");
    })
}

async fn status(access: &Access) -> Status {
    let mut control = Control::connect(access, "test").await.expect("let in");
    let request = Request::Status { group: None };
    serde_json::from_str(&control.ask(request).await.expect("a status")).expect("JSON")
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

/// Answers polls with these streams until windows come: which.
async fn windows_for(
    reader: &mut Reader<tokio::net::unix::OwnedReadHalf>,
    writer: &mut Writer<tokio::net::unix::OwnedWriteHalf>,
    streams: &[StreamSample],
) -> Vec<Cap> {
    let mut reported = 0;
    loop {
        match reader.next(PATIENCE).await.expect("rounds") {
            Message::Poll { round } => {
                reported = round;
                let report = Message::Report {
                    round,
                    taken_us: round * 20_000,
                    streams: streams.to_vec(),
                };
                writer.send(&report, PATIENCE).await.expect("sent");
            }
            Message::Caps { round, caps, .. } if round == reported => return caps,
            Message::Caps { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

/// `a cookie is in a report twice` ended `coordinate join` for good.
#[tokio::test]
async fn a_stream_that_is_listed_twice_ends_nothing() {
    let (_directory, socket) = place();
    start(vec![Endpoint::Local(socket.clone())], "average", false).await;
    // By a client that does not look: the server takes one of the two.
    let (mut reader, mut writer) = by_hand(&socket).await;
    let twice = [sample(7, 10), sample(8, 30), sample(7, 10)];
    for _ in 0..2 {
        let caps = windows_for(&mut reader, &mut writer, &twice).await;
        let cookies: Vec<u64> = caps.iter().map(|cap| cap.cookie).collect();
        assert_eq!(cookies, [7, 8]);
    }
    drop((reader, writer));
    // By this release's client: it reports each once.
    let host = Host::with(twice.to_vec());
    let member = member(&socket, &host);
    until("windows", || host.max_of(7) == Some(20)).await;
    let seen = status(&Access::new(Target::Local(socket))).await;
    assert_eq!(seen.groups[0].clients[0].streams, 2);
    assert_eq!(seen.refused, 0);
    member.abort();
}

/// `join` waited for ever for a coordinator that never came, and for a group that was not
/// served it did not say which are.
#[tokio::test]
async fn join_gives_up_after_its_time_and_names_the_groups() {
    let (_directory, socket) = place();
    let patience = Some(Duration::from_millis(50));
    let mut host = Host::default();
    let waited = config(&socket, "transfer", patience);
    let error = client::join(&waited, &mut host, std::future::pending()).await;
    let error = error.expect_err("there is none");
    assert!(matches!(error, Error::GivenUp { .. }), "{error}");
    assert!(error
        .to_string()
        .starts_with("no coordinator was reachable within 50ms: "));

    start(vec![Endpoint::Local(socket.clone())], "average", false).await;
    let other = config(&socket, "other", None);
    let error = client::join(&other, &mut host, std::future::pending()).await;
    let error = error.expect_err("not served").to_string();
    assert!(
        error.contains("this coordinator does not serve group \"other\": it serves transfer"),
        "{error}"
    );
}

/// Thousands of connections that said nothing held all places, and `status` waited.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_connections_do_not_keep_others_out() {
    let (_directory, socket) = place();
    let tcp = Endpoint::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let listen = vec![tcp, Endpoint::Local(socket.clone())];
    let address = start(listen, "average", true).await.expect("TCP");
    // More than there were places, and fewer than a usual limit of open files allows.
    let mut silent = Vec::new();
    let mut access = Access::new(Target::Tcp(address.to_string()));
    access.token = Some(Token::new(b"sixteen or more bytes"));
    for _ in 0..10 {
        for _ in 0..200 {
            silent.push(TcpStream::connect(address).await.expect("a connection"));
        }
        // Who proves a token is let in meanwhile, and so is who is on this host.
        status(&access).await;
        status(&Access::new(Target::Local(socket.clone()))).await;
        // Those that were displaced are closed on the other side.
        if silent.len() > 400 {
            silent.drain(..200);
        }
    }
    let seen = status(&access).await;
    let crowded = seen.refusals.iter().find(|r| r.reason == "no proof");
    let crowded = crowded.expect("it is said that some had to go");
    assert!(crowded.count >= 1000, "{crowded:?}");
    assert!(crowded.last.starts_with("127.0.0.1:"), "{crowded:?}");
}

/// One member's report had all others lift their windows to 594,687,780 segments.
#[tokio::test]
async fn a_false_report_lifts_no_window_beyond_the_capacity_of_the_path() {
    let (_directory, socket) = place();
    start(vec![Endpoint::Local(socket.clone())], "largest", false).await;
    let host = Host::with(vec![sample(1, 10)]);
    let member = member(&socket, &host);
    let (mut attacker, mut attacker_receiver) = by_hand(&socket).await;
    let (mut honest, mut honest_receiver) = by_hand(&socket).await;
    let false_report = [sample(2, 594_687_780)];
    let mut most = 0;
    for round in 0..10u64 {
        // 20 KB in each 20 ms: 1 MB/s, and in a round trip of 20 ms 14 segments.
        let true_report = [StreamSample {
            acked_bytes: round * 20_000,
            ..sample(3, 5)
        }];
        let (_, caps) = tokio::join!(
            windows_for(&mut attacker, &mut attacker_receiver, &false_report),
            windows_for(&mut honest, &mut honest_receiver, &true_report),
        );
        most = most.max(caps[0].min_segs);
    }
    assert!((10..=100).contains(&most), "{most}");
    let seen = host.seen.lock().expect("no panic").caps.clone();
    assert_eq!(seen[&1].min_segs, 10, "a host that delivers nothing");
    member.abort();
}

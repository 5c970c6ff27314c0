// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections whose readers stopped, and ones that were never asked for anything, beside others.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::site::{within, Pair, LOOPBACK};

/// Stopped ones of `make test`, and as many half-open ones. More by PACELINE_STOPPED: up to
/// 1,000 are within what a peer may have.
const STOPPED: usize = 40;
/// Of the session's 64 MiB half is for sending.
const FOR_SENDING: u64 = 32 << 20;

fn pattern(offset: usize) -> u8 {
    (offset * 31 / 7 % 251) as u8
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_readers_and_half_open_ones_hold_up_nobody() {
    let asked = std::env::var("PACELINE_STOPPED").ok();
    let count = asked.map_or(STOPPED, |asked| asked.parse().expect("a number"));
    let pair = Pair::new(LOOPBACK).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    // The kernels in between keep little.
    socket2::SockRef::from(&listener)
        .set_recv_buffer_size(16 << 10)
        .expect("set");
    let to = listener.local_addr().expect("bound");
    let once: Vec<u8> = (0..251 * 7 * 64).map(pattern).collect();

    let mut half_open = Vec::new();
    for _ in 0..count {
        let mut socket = TcpStream::connect(pair.near.socks.expect("one"))
            .await
            .expect("it listens");
        socket.write_all(&[5]).await.expect("sent");
        half_open.push(socket);
    }
    let mut stopped = Vec::new();
    let mut writers = JoinSet::new();
    for _ in 0..count {
        let mut client = pair.socks(to).await.expect("allowed");
        let (server, _) = within(listener.accept()).await.expect("it came");
        stopped.push(server);
        let once = once.clone();
        writers.spawn(async move {
            for _ in 0..1_000 {
                client.write_all(&once).await.expect("no reset");
            }
        });
    }
    // What all of them may have sent passes at some time, and others do not wait for it.
    for _ in 0..4 {
        let mut client = pair.socks(to).await.expect("allowed");
        let (mut server, _) = within(listener.accept()).await.expect("it came");
        let sent: Vec<u8> = (0..2_000_000).map(pattern).collect();
        let mut got = Vec::new();
        let send = async {
            client.write_all(&sent).await.expect("taken");
            client.shutdown().await.expect("its end");
        };
        let receive = server.read_to_end(&mut got);
        within(async { tokio::join!(send, receive).1 })
            .await
            .expect("all of it");
        assert!(got == sent, "other bytes");
    }
    let seen = pair.status().await;
    assert!(seen["held_bytes"].as_u64().expect("a number") <= FOR_SENDING);
    assert!(seen["connections"].as_u64().expect("a number") >= count as u64);
    assert_eq!(writers.len(), count, "none ended, none was reset");
    assert!(writers.try_join_next().is_none());

    // One that reads again has what was sent, from its beginning.
    let mut server = stopped.swap_remove(count / 2);
    let mut got = vec![0; 4_000_000];
    within(server.read_exact(&mut got)).await.expect("so much");
    let is_right = got
        .chunks(once.len())
        .all(|piece| piece == &once[..piece.len()]);
    assert!(is_right, "other bytes");
    writers.shutdown().await;
    drop((half_open, stopped, server));
    pair.stop().await;
}

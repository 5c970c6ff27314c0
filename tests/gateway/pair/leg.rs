// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The TCP leg: asked for, and where the path drops UDP.

use std::io::ErrorKind;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

use crate::site::{within, Pair, LOOPBACK};

/// Bytes that differ by their place.
fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|n| (n * 31 / 7 % 251) as u8).collect()
}

/// A connection through both gateways, and its far end.
async fn connection(pair: &Pair) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let to = listener.local_addr().expect("bound");
    let client = pair.socks(to).await.expect("allowed");
    let (server, _) = within(listener.accept()).await.expect("it came");
    (client, server)
}

/// There and back, each end by itself; then a reset.
async fn crosses(pair: &Pair) {
    let (mut client, mut server) = connection(pair).await;
    let (asked, answer) = (bytes(3_000_000), bytes(2_000_000));
    let there = async {
        client.write_all(&asked).await.expect("taken");
        client.shutdown().await.expect("its end");
    };
    let mut got = Vec::new();
    let both = async { tokio::join!(there, server.read_to_end(&mut got)).1 };
    within(both).await.expect("all of it");
    assert!(got == asked);
    let back = async {
        server.write_all(&answer).await.expect("taken");
        server.shutdown().await.expect("its end");
    };
    let mut got = Vec::new();
    let both = async { tokio::join!(back, client.read_to_end(&mut got)).1 };
    within(both).await.expect("all of it");
    assert!(got == answer);
    let (client, mut server) = connection(pair).await;
    let socket = socket2::SockRef::from(&client);
    socket
        .set_linger(Some(std::time::Duration::ZERO))
        .expect("set");
    drop(client);
    let error = within(server.read(&mut [0; 10]))
        .await
        .expect_err("no clean end");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

/// A path that carries TCP and drops UDP. Gives its address, and how many datagrams it dropped.
async fn without_udp(far: SocketAddr) -> (SocketAddr, tokio::sync::watch::Receiver<u64>) {
    let (listener, udp) = loop {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        // Both at one port; another test may have that of UDP.
        if let Ok(udp) = UdpSocket::bind(address).await {
            break (listener, udp);
        }
    };
    let address = listener.local_addr().expect("bound");
    let (count, dropped) = tokio::sync::watch::channel(0);
    tokio::spawn(async move {
        while udp.recv_from(&mut [0; 2_000]).await.is_ok() {
            count.send_modify(|count| *count += 1);
        }
    });
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut far = TcpStream::connect(far).await.expect("it listens");
                // The connection's end is all that is told.
                let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
            });
        }
    });
    (address, dropped)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tcp_leg_that_is_asked_for_carries_the_session() {
    let keys = "leg = \"tcp\"\nrate = { reserve = \"200mbit\" }";
    let pair = Pair::with(LOOPBACK, keys).await;
    assert_eq!(pair.status().await["leg"], "tcp");
    crosses(&pair).await;
    let status = pair.status().await;
    assert_eq!(
        (&status["lost"], &status["again_bytes"]),
        (&0.into(), &0.into())
    );
    // The far side ends: all connections are reset, and no end of file is clean.
    let (mut client, _server) = connection(&pair).await;
    pair.far.stop().await;
    let error = within(client.read(&mut [0; 10]))
        .await
        .expect_err("no clean end");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    pair.near.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_session_uses_tcp_if_udp_is_dropped() {
    let (report, dropped) = tokio::sync::oneshot::channel();
    let pair = Pair::by(
        LOOPBACK,
        "rate = { reserve = \"200mbit\" }",
        |far| async move {
            let (address, dropped) = without_udp(far).await;
            report.send(dropped).expect("it waits");
            address
        },
    )
    .await;
    assert_eq!(pair.status().await["leg"], "tcp");
    assert!(
        *dropped.await.expect("it was told").borrow() > 0,
        "UDP was tried first"
    );
    crosses(&pair).await;
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn udp_carries_the_session_where_it_can() {
    let pair = Pair::new(LOOPBACK).await;
    assert_eq!(pair.status().await["leg"], "udp");
    pair.stop().await;
}

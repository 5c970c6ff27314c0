// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every end of a connection, on the other side.

use std::io::ErrorKind;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::site::{within, Pair, LOOPBACK};

async fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.expect("a port")
}

/// A connection through both gateways, and its far end.
async fn connection(pair: &Pair) -> (TcpStream, TcpStream) {
    let listener = listener().await;
    let client = pair
        .socks(listener.local_addr().expect("bound"))
        .await
        .expect("allowed");
    let (server, _) = within(listener.accept()).await.expect("it came");
    (client, server)
}

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|n| (n * 31 / 7 % 251) as u8).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_cross_both_ways_and_each_end_is_its_own() {
    let pair = Pair::new(LOOPBACK).await;
    let (mut client, mut server) = connection(&pair).await;
    let asked = bytes(3_000_000);
    let sent = asked.clone();
    let (mut read, mut write) = client.split();
    let send = async {
        write.write_all(&sent).await.expect("taken");
        write.shutdown().await.expect("its end");
    };
    let mut got = Vec::new();
    within(async { tokio::join!(send, server.read_to_end(&mut got)).1 })
        .await
        .expect("all of it");
    assert!(got == asked);
    // The client has ended; the server has not (half-close).
    let answer = bytes(1_000_000);
    let answering = async {
        server.write_all(&answer).await.expect("taken");
        server.shutdown().await.expect("its end");
    };
    let mut got = Vec::new();
    within(async { tokio::join!(answering, read.read_to_end(&mut got)).1 })
        .await
        .expect("an answer");
    assert!(got == answer);
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_is_a_reset_on_the_other_side() {
    let pair = Pair::new(LOOPBACK).await;
    for is_client in [true, false] {
        let (client, server) = connection(&pair).await;
        let (gone, mut other) = if is_client {
            (client, server)
        } else {
            (server, client)
        };
        socket2::SockRef::from(&gone)
            .set_linger(Some(Duration::ZERO))
            .expect("set");
        drop(gone);
        let error = within(other.read(&mut [0; 10]))
            .await
            .expect_err("no clean end");
        assert_eq!(
            error.kind(),
            ErrorKind::ConnectionReset,
            "client: {is_client}"
        );
    }
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_ends_resets_its_connections() {
    for is_near in [true, false] {
        let pair = Pair::new(LOOPBACK).await;
        let (mut client, mut server) = connection(&pair).await;
        client.write_all(b"half of it").await.expect("taken");
        let mut got = [0; 10];
        within(server.read_exact(&mut got)).await.expect("arrived");
        let Pair {
            near,
            far,
            directory,
        } = pair;
        let (ended, other) = if is_near { (near, far) } else { (far, near) };
        ended.stop().await;
        for socket in [&mut client, &mut server] {
            let error = within(socket.read(&mut got))
                .await
                .expect_err("no clean end");
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        }
        other.stop().await;
        drop(directory);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_port_is_refused() {
    let pair = Pair::new(LOOPBACK).await;
    let closed = listener().await.local_addr().expect("bound");
    assert_eq!(pair.socks(closed).await.expect_err("nobody listens"), 5);
    let mut http = TcpStream::connect(pair.near.http.expect("one"))
        .await
        .expect("it listens");
    let request = format!("CONNECT {closed} HTTP/1.1\r\n\r\n");
    http.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    within(http.read_to_string(&mut answer))
        .await
        .expect("an orderly end");
    assert!(
        answer.starts_with("HTTP/1.1 502 Connection refused\r\n"),
        "{answer}"
    );
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forbidden_destinations_are_not_dialled() {
    // All of IPv4 is allowed, and loopback is not meant by that.
    for accept in [
        "",
        "[accept]\nto = [\"0.0.0.0/0\"]\n",
        "[accept]\nto = [\"127.0.0.0/8\"]\nports = [\"1\"]\n",
    ] {
        let pair = Pair::new(accept).await;
        let listener = listener().await;
        let to = listener.local_addr().expect("bound");
        assert_eq!(
            pair.socks(to).await.expect_err("not allowed"),
            2,
            "{accept}"
        );
        let none = tokio::time::timeout(Duration::from_millis(50), listener.accept()).await;
        assert!(none.is_err(), "it was dialled all the same");
        pair.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_connect_carries_bytes() {
    let pair = Pair::new(LOOPBACK).await;
    let listener = listener().await;
    let to = listener.local_addr().expect("bound");
    let mut client = TcpStream::connect(pair.near.http.expect("one"))
        .await
        .expect("it listens");
    let request = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\nearly");
    client.write_all(request.as_bytes()).await.expect("sent");
    let (mut server, _) = within(listener.accept()).await.expect("it came");
    let mut got = [0; 5];
    within(server.read_exact(&mut got)).await.expect("arrived");
    assert_eq!(&got, b"early");
    let answer = b"HTTP/1.1 200 Connected\r\n\r\n";
    let mut got = vec![0; answer.len()];
    within(client.read_exact(&mut got))
        .await
        .expect("an answer");
    assert_eq!(got, answer);
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_connections_at_once_get_their_own_bytes() {
    let pair = Pair::new(LOOPBACK).await;
    let listener = listener().await;
    let to = listener.local_addr().expect("bound");
    let echo = tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.expect("one more");
            tokio::spawn(async move {
                let (mut read, mut write) = socket.split();
                let _ = tokio::io::copy(&mut read, &mut write).await;
                let _ = write.shutdown().await;
            });
        }
    });
    let mut clients = Vec::new();
    for number in 0..50u8 {
        let mut socket = pair.socks(to).await.expect("allowed");
        clients.push(tokio::spawn(async move {
            let sent = vec![number; 20_000];
            socket.write_all(&sent).await.expect("taken");
            socket.shutdown().await.expect("its end");
            let mut got = Vec::new();
            within(socket.read_to_end(&mut got)).await.expect("an echo");
            assert!(got == sent);
        }));
    }
    for client in clients {
        client.await.expect("its bytes");
    }
    echo.abort();
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_destination_of_more_weight_gets_more() {
    // Far more than all buffers on the way.
    const COUNTED: u64 = 8_000_000;
    let keys =
        "rate = { reserve = \"20mbit\" }\nweights = [{ to = \"127.0.0.2/32\", weight = 32 }]";
    let pair = Pair::with(LOOPBACK, keys).await;
    let mut received = Vec::new();
    let mut tasks = tokio::task::JoinSet::new();
    for host in ["127.0.0.2:0", "127.0.0.3:0"] {
        let listener = TcpListener::bind(host).await.expect("a port");
        let to = listener.local_addr().expect("bound");
        let mut client = pair.socks(to).await.expect("allowed");
        let (mut server, _) = within(listener.accept()).await.expect("it came");
        tasks.spawn(async move { while client.write_all(&[1; 65_536]).await.is_ok() {} });
        let count = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
        received.push(std::sync::Arc::clone(&count));
        tasks.spawn(async move {
            let mut some = vec![0; 65_536];
            while let Ok(got @ 1..) = server.read(&mut some).await {
                count.fetch_add(got as u64, std::sync::atomic::Ordering::Relaxed);
            }
        });
    }
    let read = |which: usize| received[which].load(std::sync::atomic::Ordering::Relaxed);
    within(async {
        while read(0) < COUNTED {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    // The shares themselves are held in virtual time (session.rs). On a busy machine the one of
    // more weight has nothing to send now and then, and the other one goes on.
    let ratio = read(0) as f64 / read(1) as f64;
    assert!(ratio > 2.0, "{ratio}");
    tasks.shutdown().await;
    pair.stop().await;
}

/// The near side's counts of the far side's receipts, once they are these.
async fn receipts(pair: &Pair, delivered: u64, unconfirmed: u64) {
    let expected = serde_json::json!({"delivered": delivered, "unconfirmed": unconfirmed});
    within(async {
        loop {
            let seen = pair.status().await;
            if seen["peer_receipts"] == expected && seen["connections"] == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receipts_count_what_the_far_host_acknowledged() {
    let pair = Pair::new(LOOPBACK).await;
    for delivered in 1..=3 {
        let (mut client, mut server) = connection(&pair).await;
        client.write_all(&bytes(100_000)).await.expect("taken");
        client.shutdown().await.expect("its end");
        let mut got = Vec::new();
        within(server.read_to_end(&mut got))
            .await
            .expect("all of it");
        server.shutdown().await.expect("its end");
        within(client.read_to_end(&mut got)).await.expect("its end");
        receipts(&pair, delivered, 0).await;
    }
    // One that ends its own direction and never reads: the far kernel has the rest, and then
    // the connection breaks.
    let listener = listener().await;
    socket2::SockRef::from(&listener)
        .set_recv_buffer_size(2_304)
        .expect("set");
    let to = listener.local_addr().expect("bound");
    let mut client = pair.socks(to).await.expect("allowed");
    let (mut server, _) = within(listener.accept()).await.expect("it came");
    server.shutdown().await.expect("its end");
    let mut got = Vec::new();
    within(client.read_to_end(&mut got)).await.expect("its end");
    client.write_all(&bytes(30_000)).await.expect("taken");
    client.shutdown().await.expect("its end");
    within(async {
        while pair.status().await["connections"] != 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    socket2::SockRef::from(&server)
        .set_linger(Some(Duration::ZERO))
        .expect("set");
    drop(server);
    receipts(&pair, 3, 1).await;
    pair.stop().await;
}

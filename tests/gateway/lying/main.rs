// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A path that repeats, invents and damages datagrams: beside it no other test measures rates.

#[path = "../pair/site.rs"]
#[allow(dead_code, reason = "each test uses its own part")]
mod site;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use rand::{Rng, RngExt, SeedableRng};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};

use site::{within, Pair, LOOPBACK};

/// One that forwards between the gateways. Each tenth datagram it repeats, at once and long
/// after, sends it damaged, and some of its own.
async fn tampering_path(far: SocketAddr, injected: Arc<AtomicU64>) -> SocketAddr {
    let near_side = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
    let far_side = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
    far_side.connect(far).await.expect("set");
    let address = near_side.local_addr().expect("bound");
    tokio::spawn(async move {
        let mut random = rand_pcg::Pcg64::seed_from_u64(3);
        let mut near: Option<SocketAddr> = None;
        let mut kept: [Vec<Vec<u8>>; 2] = Default::default();
        let mut buffers = [vec![0; 10_000], vec![0; 10_000]];
        loop {
            let [one, two] = &mut buffers;
            let (is_to_far, length) = tokio::select! {
                Ok((length, from)) = near_side.recv_from(one) => {
                    near = Some(from);
                    (true, length)
                }
                Ok(length) = far_side.recv(two) => (false, length),
            };
            let datagram = buffers[usize::from(!is_to_far)][..length].to_vec();
            let mut leaving = vec![datagram.clone()];
            if random.random_range(0..10) == 0 {
                let mut damaged = datagram.clone();
                let at = random.random_range(0..length);
                damaged[at] ^= 1 << random.random_range(0..8);
                let mut invented = vec![0; length];
                random.fill_bytes(&mut invented);
                // As if it belonged to the connection: its first bytes are right.
                let head = length.min(9);
                invented[..head].copy_from_slice(&datagram[..head]);
                let kept = &mut kept[usize::from(is_to_far)];
                kept.push(datagram.clone());
                let old = kept[random.random_range(0..kept.len())].clone();
                leaving.extend([datagram, damaged, invented, old]);
                injected.fetch_add(4, Ordering::Relaxed);
            }
            for one in leaving {
                let sent = match (is_to_far, near) {
                    (true, _) => far_side.send(&one).await,
                    (false, Some(near)) => near_side.send_to(&one, near).await,
                    (false, None) => Ok(0),
                };
                // A full buffer loses, as a path may.
                let _ = sent;
            }
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_and_forged_datagrams_have_no_effect() {
    let injected = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&injected);
    let pair = Pair::by(LOOPBACK, "rate = { reserve = \"50mbit\" }", |far| {
        tampering_path(far, count)
    })
    .await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let to = listener.local_addr().expect("bound");
    let mut client = pair.socks(to).await.expect("allowed");
    let (mut server, _) = within(listener.accept()).await.expect("it came");
    let mut asked = vec![0; 3_000_000];
    rand_pcg::Pcg64::seed_from_u64(4).fill_bytes(&mut asked);
    let sent = asked.clone();
    let send = async {
        client.write_all(&sent).await.expect("taken");
        client.shutdown().await.expect("its end");
    };
    let mut got = Vec::new();
    let received = within(async { tokio::join!(send, server.read_to_end(&mut got)).1 }).await;
    received.expect("all of it");
    assert!(got == asked, "other bytes");
    assert!(injected.load(Ordering::Relaxed) > 100);
    // QUIC drops repetitions before the session sees them.
    assert_eq!(pair.status().await["duplicates"], 0);
    assert_eq!(pair.status().await["breaker"], false);
    pair.stop().await;
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `paceline doctor --gateway` says of the path to a peer.

use std::net::SocketAddr;
use std::sync::Arc;

use paceline_gateway::config::Config;
use paceline_gateway::probe::{probes, Probe};
use tokio::net::UdpSocket;

use crate::site::{certificate, near, Running};

/// A path for one client that drops its datagrams of more bytes than this.
async fn narrow(far: SocketAddr, most: usize) -> SocketAddr {
    let outside = Arc::new(UdpSocket::bind("127.0.0.1:0").await.expect("a port"));
    let inside = Arc::new(UdpSocket::bind("127.0.0.1:0").await.expect("a port"));
    inside.connect(far).await.expect("loopback");
    let address = outside.local_addr().expect("bound");
    let (sender, client) = tokio::sync::watch::channel(None);
    let (to, from) = (Arc::clone(&inside), Arc::clone(&outside));
    tokio::spawn(async move {
        let mut bytes = [0; 9_000];
        while let Ok((count, client)) = from.recv_from(&mut bytes).await {
            sender.send_replace(Some(client));
            if count <= most {
                let _ = to.send(&bytes[..count]).await;
            }
        }
    });
    tokio::spawn(async move {
        let mut bytes = [0; 9_000];
        while let Ok(count) = inside.recv(&mut bytes).await {
            let client: Option<SocketAddr> = *client.borrow();
            if let Some(client) = client {
                let _ = outside.send_to(&bytes[..count], client).await;
            }
        }
    });
    address
}

async fn path(far: SocketAddr, fingerprint: &str, directory: &std::path::Path) -> Probe {
    let text = near(far, fingerprint, "token = \"token\"");
    let config = Config::parse(&text, "near.toml", directory).expect("a configuration");
    let all = probes(&config).await;
    let path = all.into_iter().find(|probe| probe.name == "gateway path");
    path.expect("there is a peer")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_that_drops_large_datagrams_is_found() {
    let directory = tempfile::tempdir().expect("a directory");
    let fingerprint = certificate(directory.path(), "far");
    paceline_security::Token::make(&directory.path().join("token")).expect("made");
    let far = Running::start(
        directory.path(),
        "name = \"far\"\nlisten = \"127.0.0.1:0\"\ncertificate = \"far.pem\"\nkey = \"far.key\"\n\
         token = \"token\"\ncontrol = \"far.sock\"\n[peer.near]\n",
    )
    .await;
    let address = far.address.expect("it listens");
    let wide = path(address, &fingerprint, directory.path()).await;
    assert!(wide.is_right, "{wide:?}");
    let narrow = narrow(address, 1_300).await;
    let narrow = path(narrow, &fingerprint, directory.path()).await;
    assert!(!narrow.is_right, "{narrow:?}");
    let words: Vec<&str> = narrow.found.split(' ').collect();
    let bytes: usize = words[1].parse().expect("a number");
    assert!((1_200..=1_300).contains(&bytes), "{narrow:?}");
    far.stop().await;
}

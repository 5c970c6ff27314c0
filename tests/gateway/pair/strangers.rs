// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who is no peer gets no session.

use std::time::Duration;

use paceline_gateway::service::status;

use crate::site::{certificate, near, within, Running};

async fn is_connected(directory: &std::path::Path) -> bool {
    let status = status(&directory.join("near.sock"))
        .await
        .expect("a status");
    status.peers["far"].is_some()
}

/// The far side knows its peer by this; the near side shows that. True if they meet.
async fn meet(known: &str, shown: &str, is_pin_right: bool) -> bool {
    by_leg(known, shown, is_pin_right, "udp").await
}

async fn by_leg(known: &str, shown: &str, is_pin_right: bool, leg: &str) -> bool {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    let right = certificate(path, "far");
    let own = certificate(path, "near");
    let other = certificate(path, "other");
    for name in ["token", "wrong"] {
        paceline_security::Token::make(&path.join(name)).expect("made");
    }
    let far = format!(
        "name = \"far\"\nlisten = \"127.0.0.1:0\"\ncertificate = \"far.pem\"\nkey = \"far.key\"\n\
         control = \"far.sock\"\n{}",
        known.replace("OWN", &own)
    );
    let far = Running::start(path, &far).await;
    let pin = if is_pin_right { right } else { other };
    let text = near(far.address.expect("it listens"), &pin, shown);
    let text = text.replace("[peer.far]\n", &format!("[peer.far]\nleg = \"{leg}\"\n"));
    let near = Running::start(path, &text).await;
    // Who is let in is in soon; who is not has tried at least twice then.
    let mut tries = 0;
    let is_in = within(async {
        loop {
            if is_connected(path).await {
                return true;
            }
            tries += 1;
            if tries == 60 {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(40)).await;
        }
    })
    .await;
    near.stop().await;
    far.stop().await;
    is_in
}

const BY_TOKEN: &str = "token = \"token\"\n[peer.near]\n";
const BY_CERTIFICATE: &str = "[peer.near]\nfingerprint = \"OWN\"\n";
const NEAR: &str = "certificate = \"near.pem\"\nkey = \"near.key\"\n";
const OTHER: &str = "certificate = \"other.pem\"\nkey = \"other.key\"\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peers_are_known_by_token_or_certificate() {
    assert!(meet(BY_TOKEN, "token = \"token\"", true).await);
    assert!(meet(BY_CERTIFICATE, NEAR, true).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_get_no_session() {
    for (known, shown, is_pin_right) in [
        (BY_TOKEN, "token = \"wrong\"", true),
        (BY_TOKEN, "", true),
        (BY_TOKEN, "token = \"token\"", false),
        (BY_CERTIFICATE, OTHER, true),
        (BY_CERTIFICATE, "", true),
        (
            "token = \"token\"\n[peer.somebody]\n",
            "token = \"token\"",
            true,
        ),
    ] {
        assert!(
            !meet(known, shown, is_pin_right).await,
            "{known} {shown} {is_pin_right}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tcp_leg_asks_for_the_same() {
    assert!(by_leg(BY_TOKEN, "token = \"token\"", true, "tcp").await);
    assert!(by_leg(BY_CERTIFICATE, NEAR, true, "tcp").await);
    for (known, shown, is_pin_right) in [
        (BY_TOKEN, "token = \"wrong\"", true),
        (BY_TOKEN, "token = \"token\"", false),
        (BY_CERTIFICATE, OTHER, true),
        (BY_CERTIFICATE, "", true),
    ] {
        assert!(
            !by_leg(known, shown, is_pin_right, "tcp").await,
            "{known} {shown} {is_pin_right}"
        );
    }
}

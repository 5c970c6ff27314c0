// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A transfer that runs takes changes: at a socket beside its record, from its own user alone.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{anyhow, bail, Context, Result};
use paceline_input::units::Rate;
use paceline_mover::session::{Streams, Tuning};
use paceline_transfer::wire::MOST_STREAMS;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;

use super::record::directory;

/// Time limit of a client: changes are taken one after the other.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest change, bytes.
const MOST: u64 = 1024;

/// A change of a transfer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// As `--streams` takes it.
    pub streams: Option<String>,
    /// As `--rate` takes it, or `none`.
    pub rate: Option<String>,
    /// The transfer ends; its command continues it.
    #[serde(default)]
    pub stop: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    error: Option<String>,
}

/// Reads `--streams`.
pub fn streams(text: &str) -> Result<Streams, String> {
    match (text, text.parse::<u16>()) {
        ("auto", _) => Ok(Streams::Auto),
        (_, Ok(count)) if (1..=MOST_STREAMS).contains(&usize::from(count)) => {
            Ok(Streams::Fixed(count))
        }
        _ => Err(format!("expected auto, or 1 to {MOST_STREAMS}")),
    }
}

impl Change {
    fn apply(&self, tuning: &Tuning) -> Result<(), String> {
        let streams = match &self.streams {
            None => None,
            Some(text) => {
                Some(streams(text).map_err(|error| format!("--streams {text}: {error}"))?)
            }
        };
        let rate = match self.rate.as_deref() {
            None => None,
            Some("none") => Some(None),
            Some(text) => {
                let rate: Rate = text.parse().map_err(|error| format!("--rate {error}"))?;
                Some(Some(rate.bits_per_second()))
            }
        };
        if let Some(streams) = streams {
            tuning.set_streams(streams);
        }
        if let Some(rate) = rate {
            tuning.set_rate(rate);
        }
        Ok(())
    }
}

fn socket_of(id: &str) -> Option<PathBuf> {
    Some(directory()?.join(format!("{id}.sock")))
}

/// Removes the socket.
struct Bound(PathBuf);

impl Drop for Bound {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Takes changes of a transfer until one of them stops it. Without a socket it takes none, and
/// the transfer goes on.
pub async fn serve(id: &str, tuning: &Tuning) {
    let bound = socket_of(id).context("HOME is not set").and_then(|path| {
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
        let listener = paceline_security::bind(&path, false)?;
        Ok((listener, Bound(path)))
    });
    let (listener, _bound) = match bound {
        Ok(bound) => bound,
        Err(error) => {
            tracing::info!("paceline transfers set cannot reach this transfer: {error:#}");
            return std::future::pending().await;
        }
    };
    let own = nix::unistd::geteuid().as_raw();
    let stop = Notify::new();
    let taking = async {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(PATIENCE).await;
                continue;
            };
            if let Err(error) = paceline_security::check_peer(&stream, &[own, 0]) {
                tracing::warn!("{error}");
                continue;
            }
            let served = tokio::time::timeout(PATIENCE, take(stream, tuning, &stop)).await;
            if !matches!(served, Ok(Ok(()))) {
                tracing::info!("a request to change this transfer was not completed");
            }
        }
    };
    tokio::select! {
        never = taking => never,
        () = stop.notified() => {}
    }
}

async fn take(
    mut stream: tokio::net::UnixStream,
    tuning: &Tuning,
    stop: &Notify,
) -> std::io::Result<()> {
    let (read, mut write) = stream.split();
    let mut line = String::new();
    tokio::io::BufReader::new(read.take(MOST))
        .read_line(&mut line)
        .await?;
    let change = serde_json::from_str::<Change>(&line).map_err(|error| error.to_string());
    let applied = change.and_then(|change| change.apply(tuning).map(|()| change.stop));
    let answer = Answer {
        error: applied.as_ref().err().cloned(),
    };
    let mut text = serde_json::to_vec(&answer)?;
    text.push(b'\n');
    write.write_all(&text).await?;
    if applied == Ok(true) {
        stop.notify_one();
    }
    Ok(())
}

/// Sends a change to a transfer of this user that runs on this host.
///
/// # Errors
/// It cannot be reached, or refuses.
pub fn send_change(id: &str, change: &Change) -> Result<()> {
    let path = socket_of(id).context("no directory for sockets: HOME is not set")?;
    let mut stream = UnixStream::connect(&path)
        .with_context(|| format!("transfer {id} takes no changes at {}", path.display()))?;
    let reply = (|| {
        stream.set_read_timeout(Some(2 * PATIENCE))?;
        stream.set_write_timeout(Some(2 * PATIENCE))?;
        let mut text = serde_json::to_vec(change)?;
        text.push(b'\n');
        stream.write_all(&text)?;
        let mut line = String::new();
        BufReader::new(stream.take(MOST)).read_line(&mut line)?;
        Ok::<_, anyhow::Error>(serde_json::from_str::<Answer>(&line)?)
    })();
    match reply
        .with_context(|| format!("transfer {id} did not answer"))?
        .error
    {
        None => Ok(()),
        Some(error) => bail!(anyhow!(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_streams() {
        assert_eq!(streams("auto"), Ok(Streams::Auto));
        assert_eq!(streams("256"), Ok(Streams::Fixed(256)));
        for wrong in ["0", "257", "-1", "many", "", "70000"] {
            assert!(streams(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_change_is_made_whole_or_not_at_all() {
        let tuning = Tuning::new(Streams::Auto, None);
        let change = |streams: &str, rate: &str| Change {
            streams: Some(streams.to_owned()),
            rate: Some(rate.to_owned()),
            stop: false,
        };
        let error = change("4", "fast").apply(&tuning).expect_err("no rate");
        assert!(error.contains("--rate"), "{error}");
        assert_eq!(tuning.now(), (Streams::Auto, None));
        change("4", "8mbit").apply(&tuning).expect("good");
        assert_eq!(tuning.now(), (Streams::Fixed(4), Some(8_000_000)));
        change("auto", "none").apply(&tuning).expect("good");
        assert_eq!(tuning.now(), (Streams::Auto, None));
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paceline run --gateway`: has the gateway of this host lead a job's connections.
//!
//! The command waits in its job, before it is executed, until the gateway's rules know the job's
//! cgroup. The gateway leads the job as long as this process keeps its connection; if the
//! gateway ends, this process asks the next one.

use std::fs;
use std::io::{pipe, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{bail, Context, Result};
use paceline_gateway::service::{control_socket, lead_programs, status, ServiceError};
use tokio::io::AsyncReadExt;

use crate::transfer;

/// Between two attempts to find the gateway again.
const AGAIN: Duration = Duration::from_millis(500);

/// A job whose connections are led.
pub struct Through {
    /// Kept open for the command.
    pipes: (PipeWriter, PipeReader),
    refused: Arc<Mutex<Option<ServiceError>>>,
}

impl Through {
    /// Asks the gateway whether it leads to `peer`, and waits for the job's command.
    ///
    /// # Errors
    /// If there is no gateway at this socket, or it takes no connections for this peer.
    pub fn start(socket: Option<&PathBuf>, peer: &str) -> Result<Self> {
        let socket = control_socket(socket);
        let name = socket.display();
        let seen = transfer::block_on(status(&socket))?
            .with_context(|| format!("--gateway {peer}: no gateway at {name}"))?;
        match seen.transparent {
            None => bail!(
                "--gateway {peer}: the gateway takes no connections: its file has no [transparent]"
            ),
            Some(to) if to.peer != peer => {
                bail!("--gateway {peer}: the gateway leads to {}", to.peer)
            }
            Some(_) => {}
        }
        let (inside, ready) = pipe().context("a pipe")?;
        let (go, permit) = pipe().context("a pipe")?;
        let refused = Arc::default();
        let (peer, error) = (peer.to_owned(), Arc::clone(&refused));
        std::thread::Builder::new()
            .name("through-gateway".to_owned())
            .spawn(move || {
                let _ = transfer::block_on(lead(socket, peer, inside, permit, error));
            })
            .context("a thread")?;
        Ok(Self {
            pipes: (ready, go),
            refused,
        })
    }

    /// For the job's options.
    pub fn wait(&self) -> (RawFd, RawFd) {
        (self.pipes.0.as_raw_fd(), self.pipes.1.as_raw_fd())
    }

    /// The gateway's reason for a refusal.
    pub fn refused(&self) -> Option<ServiceError> {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.take()
    }
}

async fn lead(
    socket: PathBuf,
    peer: String,
    mut inside: PipeReader,
    mut permit: PipeWriter,
    refused: Arc<Mutex<Option<ServiceError>>>,
) {
    let mut number = [0; 4];
    if inside.read_exact(&mut number).is_err() {
        return;
    }
    let cgroup = cgroup(i32::from_ne_bytes(number));
    let mut led = match lead_programs(&socket, &peer, &cgroup).await {
        Ok(led) => led,
        Err(error) => {
            *refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            let _ = permit.write_all(&[0]);
            return;
        }
    };
    let _ = permit.write_all(&[1]);
    loop {
        // The gateway sends nothing more until it ends.
        let _ = led.read_to_end(&mut Vec::new()).await;
        tracing::warn!("the gateway ended: connections of this job are refused until it is back");
        led = loop {
            tokio::time::sleep(AGAIN).await;
            match lead_programs(&socket, &peer, &cgroup).await {
                Ok(led) => break led,
                Err(error) => tracing::debug!("{error}"),
            }
        };
    }
}

/// The cgroup of a process, below the root of cgroup v2.
fn cgroup(process: i32) -> String {
    let file = Path::new("/proc").join(process.to_string()).join("cgroup");
    let text = fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("0::"));
    line.unwrap_or_default().to_owned()
}

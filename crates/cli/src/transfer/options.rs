// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Options of both commands.

use std::path::PathBuf;

use anyhow::{bail, Result};
use clap::{Args, ValueEnum};
use paceline_input::units::{Rate, Size};
use paceline_mover::session::{Credentials, Ports, Remote, Ssh, Standing, Streams, Tuning};
use paceline_security::{client_tls, ServerTrust, Token};
use paceline_transfer::wire;

use super::address::Address;
use super::control::streams;
use crate::fingerprint::fingerprint;

/// Another ssh than the system's.
const SSH: &str = "PACELINE_SSH";

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Data {
    /// TLS 1.3, or Noise where only a token is shared
    Tls,
    /// Not encrypted, but authentic: nothing can be altered, moved or replayed
    Plain,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Update {
    /// Files whose size or modification time differs
    #[value(name = "size,mtime")]
    SizeMtime,
    /// Files whose content differs: both sides read files of the same size
    Hash,
    /// All files
    Always,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Verify {
    /// Trust what an earlier run has synced to the disk
    None,
    /// Hash data of an earlier run again
    Resume,
    /// Also read back each file before it is renamed
    All,
}

#[derive(Args, Debug)]
pub struct Options {
    /// Parallel data connections: 1 to 256, or auto: 12, and up to 16 while each adds 5 %
    #[arg(long, value_name = "auto|N", default_value = "auto", value_parser = streams)]
    streams: Streams,
    /// Send no faster than this, all connections together
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,
    /// Protection of the data connections
    #[arg(long, value_enum, default_value = "tls")]
    data: Data,
    /// Largest piece of a file on one connection: a power of two, 64KiB to 16MiB
    /// [default: 1MiB, more for files above 64 GiB]
    #[arg(long, value_name = "SIZE")]
    chunk: Option<Size>,
    /// Which files are sent
    #[arg(long, value_enum, default_value = "size,mtime")]
    update: Update,
    /// Which data are read back from the destination's disk and hashed
    #[arg(long, value_enum, default_value = "resume")]
    verify: Verify,
    /// Keep extended attributes (user.*) of files and directories
    #[arg(long)]
    xattrs: bool,
    /// Keep owners by number, and setuid and setgid; needs root at the destination
    #[arg(long)]
    owner: bool,
    /// Keep hard links between files of the transfer
    #[arg(long)]
    hard_links: bool,
    /// Keep devices (root writes the destination), FIFOs and sockets
    #[arg(long)]
    specials: bool,
    /// Copy the content of a block device; the destination may be one, too
    #[arg(long, conflicts_with_all = ["delete", "specials"])]
    device: bool,
    /// Keep access control lists, by the numbers of users and groups
    #[arg(long)]
    acls: bool,
    /// Write the hashes of all files at the destination to FILE, in the format of b3sum
    #[arg(long, value_name = "FILE", conflicts_with = "dry_run")]
    pub hash_file: Option<PathBuf>,
    /// Discard the data of an earlier, incomplete run
    #[arg(long)]
    fresh: bool,
    /// If the destination is full, wait for free space
    #[arg(long)]
    wait_space: bool,
    /// Delete entries at the destination that the source does not have
    #[arg(long)]
    delete: bool,
    /// Delete nothing if more entries than this would be deleted
    #[arg(long, value_name = "N", requires = "delete")]
    max_delete: Option<u64>,
    /// Exclude entries that match this pattern: *.o, build/, /docs/**/old
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<String>,
    /// Include entries that match this pattern, even if an --exclude matches them
    #[arg(long, value_name = "GLOB")]
    include: Vec<String>,
    /// Only show what would be done
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// No progress, only errors
    #[arg(short, long, conflicts_with_all = ["progress", "json"])]
    pub quiet: bool,
    /// Show progress even if stderr is not a terminal
    #[arg(long, conflicts_with = "json")]
    pub progress: bool,
    /// Events as JSON lines on stdout
    #[arg(long)]
    pub json: bool,
    /// The ssh command, with its options [default: $PACELINE_SSH, or ssh]
    #[arg(long, value_name = "COMMAND")]
    ssh: Option<String>,
    /// Command that runs paceline at the other side of ssh, for its shell
    #[arg(long, value_name = "COMMAND", default_value = "paceline")]
    remote_command: String,
    /// Ports for data connections at the other side of ssh [default: any]
    #[arg(long, value_name = "FIRST-LAST", value_parser = ports)]
    pub ports: Option<(u16, u16)>,
}

/// How a standing receiver is reached.
#[derive(Args, Debug)]
pub struct AccessArgs {
    /// Standing receiver: file with the token that it requires
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// TLS: certificate (PEM) of the CA that issued the receiver's certificate
    #[arg(long, value_name = "FILE", conflicts_with = "pin")]
    ca: Option<PathBuf>,
    /// TLS: the receiver's certificate (PEM), or its SHA-256 fingerprint
    #[arg(long, value_name = "FILE|FINGERPRINT")]
    pin: Option<String>,
    /// TLS: the name in the receiver's certificate [default: the host]
    #[arg(long, value_name = "NAME", requires = "ca")]
    server_name: Option<String>,
    /// TLS: this client's certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// TLS: its key (PEM)
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
}

/// First and last port.
pub fn ports(text: &str) -> Result<(u16, u16), String> {
    let wrong = || format!("{text:?} is not a range of ports: expected 50000-50100");
    let (first, last) = text.split_once('-').ok_or_else(wrong)?;
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if 0 < first && first <= last => Ok((first, last)),
        _ => Err(wrong()),
    }
}

impl Options {
    /// As both sides receive them.
    pub fn wire(&self) -> Result<wire::Options> {
        let chunk = match self.chunk {
            None => None,
            Some(chunk) => {
                let bytes = chunk.bytes();
                if !bytes.is_power_of_two() || !(64 << 10..=16 << 20).contains(&bytes) {
                    bail!("--chunk {bytes}: expected a power of two, 64KiB to 16MiB");
                }
                Some(bytes)
            }
        };
        let rules = |includes: bool, patterns: &[String]| {
            let pairs = patterns.iter().map(|pattern| (includes, pattern.clone()));
            pairs.collect::<Vec<_>>()
        };
        Ok(wire::Options {
            streams: self.streams.first(),
            chunk,
            rate_bps: self.rate.map(Rate::bits_per_second),
            plain: matches!(self.data, Data::Plain),
            update: match self.update {
                // The times of a device say nothing about its content.
                Update::SizeMtime if self.device => wire::Update::Always,
                Update::SizeMtime => wire::Update::SizeMtime,
                Update::Hash => wire::Update::Hash,
                Update::Always => wire::Update::Always,
            },
            verify: match self.verify {
                Verify::None => wire::Verify::None,
                Verify::Resume => wire::Verify::Resume,
                Verify::All => wire::Verify::All,
            },
            fresh: self.fresh,
            dry_run: self.dry_run,
            delete: self.delete.then(|| self.max_delete.unwrap_or(u64::MAX)),
            filters: [rules(true, &self.include), rules(false, &self.exclude)].concat(),
            wait_space: self.wait_space,
            xattrs: self.xattrs,
            acls: self.acls,
            owner: self.owner,
            hard_links: self.hard_links,
            specials: self.specials,
            device: self.device,
            part: None,
            pairs: 1,
            report_hashes: self.hash_file.is_some(),
        })
    }

    /// The settings that may change during the run.
    pub fn tuning(&self) -> Tuning {
        Tuning::new(self.streams, self.rate.map(Rate::bits_per_second))
    }

    /// How ssh is called.
    pub fn ssh(&self, verbose: u8) -> Ssh {
        let command = self.ssh.clone().or_else(|| std::env::var(SSH).ok());
        let command = command.unwrap_or_else(|| "ssh".to_owned());
        let ports: Ports = self.ports;
        Ssh {
            command: command.split_whitespace().map(str::to_owned).collect(),
            remote: self.remote_command.clone(),
            ports: ports.map(|(first, last)| format!("{first}-{last}")),
            sending: None,
            verbose,
        }
    }
}

impl AccessArgs {
    fn is_empty(&self) -> bool {
        self.token_file.is_none() && self.ca.is_none() && self.pin.is_none() && self.cert.is_none()
    }

    /// Refuses these options for a path by ssh.
    pub fn refuse(&self) -> Result<()> {
        match self.is_empty() {
            true => Ok(()),
            false => bail!("tokens and certificates are for paceline://HOST/PATH: ssh has its own"),
        }
    }

    fn credentials(&self) -> Result<Credentials> {
        let trust = match (&self.ca, &self.pin) {
            (Some(path), _) => Some(ServerTrust::Authorities(path.clone())),
            (None, Some(pin)) => Some(ServerTrust::Pinned(fingerprint(pin)?)),
            (None, None) => None,
        };
        let own = self.cert.as_deref().zip(self.key.as_deref());
        let tls = match trust {
            Some(trust) => Some(client_tls(&trust, own)?),
            None if own.is_some() => {
                bail!("--cert: the receiver must be verified, too: add --ca or --pin")
            }
            None => None,
        };
        Ok(Credentials {
            token: self.token_file.as_deref().map(Token::load).transpose()?,
            tls,
            server_name: self.server_name.clone(),
        })
    }
}

/// The other side of a transfer, and the path there.
pub fn remote(
    address: Address,
    options: &Options,
    access: &AccessArgs,
    verbose: u8,
) -> Result<(Remote, Vec<u8>)> {
    match address {
        Address::Standing(address, path) => {
            let credentials = access.credentials()?;
            Ok((
                Remote::Standing(Standing {
                    address,
                    credentials,
                }),
                path,
            ))
        }
        Address::Ssh(host, path) => {
            access.refuse()?;
            Ok((Remote::Ssh(options.ssh(verbose), host), path))
        }
        Address::Local(path) => bail!("{:?} is on this host", path.display()),
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paceline send`: files of this host to another one.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{bail, Result};
use clap::Args as ClapArgs;
use paceline_mover::session::{
    across, helper, send, short_identity, together, Across, Role, SshHost, Together, Transfer,
};

use crate::transfer::{
    self, hosts, remote, route, shared_paths, About, AccessArgs, AdaptArgs, Address, Options,
    Route, EXIT_CODES,
};

const USAGE: &str = "\
paceline send [OPTIONS] SRC... [USER@]HOST:DST
       paceline send [OPTIONS] --token-file FILE SRC... paceline://HOST[:PORT]/DST
       paceline send [OPTIONS] [USER@]FROM:SRC... [USER@]TO:DST
       paceline send [OPTIONS] --from HOST,... --to HOST,... SRC... DST";

/// Sends files to another host over parallel streams. The same command resumes a transfer.
///
/// The other side is started by ssh, or is a standing receiver (paceline receive --listen).
/// Files of another host go from there to a third one, not through this one. Several hosts that
/// see the same files (--from) share the work, and so do several that see the destination (--to).
/// SRC/ with a slash at its end stands for what is in the directory.
#[derive(ClapArgs, Debug)]
#[command(after_help = EXIT_CODES, override_usage = USAGE)]
pub struct Args {
    /// SRC... and the destination
    #[arg(value_name = "PATH")]
    paths: Vec<OsString>,
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    access: AccessArgs,
    #[command(flatten)]
    adapt: AdaptArgs,
    /// Hosts with SRC on a shared file system, as [USER@]HOST: each sends a part of it
    #[arg(long, value_name = "HOST,...", value_delimiter = ',', requires = "to")]
    from: Vec<String>,
    /// Hosts with DST on a shared file system: each writes a part
    #[arg(
        long,
        value_name = "HOST,...",
        value_delimiter = ',',
        requires = "from"
    )]
    to: Vec<String>,
    /// The other side of ssh: serve one session over stdin and stdout
    #[arg(long, hide = true)]
    stdio: bool,
}

pub fn run(args: Args, verbose: u8) -> Result<ExitCode> {
    let Args {
        paths,
        options,
        access,
        adapt,
        from,
        to,
        stdio,
    } = args;
    if stdio {
        // Of the command at the other end of ssh, which also gives the group.
        let _adapted = match adapt.begin("helper") {
            Ok(adapted) => adapted,
            Err(error) => return Ok(transfer::usage(&error)),
        };
        return transfer::helper_ended(transfer::block_on(helper(Role::Send, options.ports))?);
    }
    let asked = if !from.is_empty() {
        together_of((&from, &to), &paths, &options, &access, verbose)
    } else {
        match route(&paths) {
            Ok(Route::Here(here, to)) => from_here(here, to, &options, &access, verbose),
            Ok(Route::Across(from, to)) => across_of(from, to, &options, &access, verbose),
            Err(error) => Err(error),
        }
    };
    let mut asked = match asked {
        Ok(asked) => asked,
        Err(error) => return Ok(transfer::usage(&error)),
    };
    let shown = |path: &OsString| path.to_string_lossy().into_owned();
    let (to, from) = paths
        .split_last()
        .map_or((String::new(), Vec::new()), |(to, from)| {
            (shown(to), from.iter().map(shown).collect())
        });
    let id = short_identity(&match &asked {
        Asked::FromHere(transfer) => transfer.sending_identity(),
        Asked::Across(transfer) => transfer.identity(),
        Asked::Together(transfer) => transfer.identity(),
    });
    let elsewhere = match &mut asked {
        Asked::FromHere(_) => None,
        Asked::Across(Across { ssh, .. }) | Asked::Together(Together { ssh, .. }) => Some(ssh),
    };
    let adapt = match elsewhere {
        None => Some(&adapt),
        Some(ssh) => match adapt.elsewhere(&id) {
            Ok(sending) => {
                ssh.sending = sending.filter(|_| !options.dry_run);
                None
            }
            Err(error) => return Ok(transfer::usage(&error)),
        },
    };
    let about = match &asked {
        Asked::Together(transfer) => About {
            id,
            from: from
                .iter()
                .map(|path| format!("{}:{path}", names(&transfer.from.0)))
                .collect(),
            to: format!("{}:{to}", names(&transfer.to.0)),
        },
        _ => About { id, from, to },
    };
    transfer::run(
        about,
        &options,
        adapt,
        verbose,
        |tuning, progress| async move {
            match asked {
                Asked::FromHere(transfer) => send(transfer, &tuning, progress).await,
                Asked::Across(transfer) => across(transfer, &tuning, progress).await,
                Asked::Together(transfer) => together(transfer, &tuning, progress).await,
            }
        },
    )
}

enum Asked {
    FromHere(Transfer),
    Across(Across),
    Together(Together),
}

fn names(hosts: &[SshHost]) -> String {
    let names: Vec<_> = hosts.iter().map(SshHost::host).collect();
    names.join(",")
}

fn from_here(
    here: Vec<PathBuf>,
    to: Address,
    options: &Options,
    access: &AccessArgs,
    verbose: u8,
) -> Result<Asked> {
    let (remote, there) = remote(to, options, access, verbose)?;
    Ok(Asked::FromHere(Transfer {
        remote,
        here,
        there: vec![there],
        options: options.wire()?,
    }))
}

fn across_of(
    from: (SshHost, Vec<Vec<u8>>),
    to: (SshHost, Vec<u8>),
    options: &Options,
    access: &AccessArgs,
    verbose: u8,
) -> Result<Asked> {
    access.refuse()?;
    Ok(Asked::Across(Across {
        ssh: options.ssh(verbose),
        from,
        to,
        options: options.wire()?,
    }))
}

/// Between several hosts, at each of which the paths are the same.
fn together_of(
    (from, to): (&[String], &[String]),
    paths: &[OsString],
    options: &Options,
    access: &AccessArgs,
    verbose: u8,
) -> Result<Asked> {
    access.refuse()?;
    let (sources, destination) = shared_paths(paths)?;
    let options_of_wire = options.wire()?;
    if options_of_wire.fresh {
        bail!("--fresh: not with --from and --to: remove .paceline in the destination instead");
    }
    Ok(Asked::Together(Together {
        ssh: options.ssh(verbose),
        from: (hosts("--from", from)?, sources),
        to: (hosts("--to", to)?, destination),
        options: options_of_wire,
    }))
}

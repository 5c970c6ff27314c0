// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paceline receive`: files of another host to this one, or a standing receiver.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use clap::Args as ClapArgs;
use paceline_input::units::Size;
use paceline_metrics::Address;
use paceline_mover::session::{
    confine, helper, receive, short_identity, Bounds, Counts, Receiver, ReceiverConfig, Remote,
    Role, Sandbox, Transfer,
};
use paceline_mover::Error;
use paceline_security::{server_tls, Token};

use crate::metrics;
use crate::transfer::{self, sources, About, AdaptArgs, Options, EXIT_CODES};

const USAGE: &str = "\
paceline receive [OPTIONS] [USER@]HOST:SRC... DST
       paceline receive --listen ADDRESS:PORT --root DIR --token-file FILE [--cert FILE --key FILE]";

/// Receives files from another host, or runs a standing receiver. The same command resumes a
/// transfer.
#[derive(ClapArgs, Debug)]
#[command(after_help = EXIT_CODES, override_usage = USAGE)]
pub struct Args {
    /// [USER@]HOST:SRC... and the destination
    #[arg(value_name = "PATH")]
    paths: Vec<OsString>,
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    adapt: AdaptArgs,
    /// Standing receiver: where it listens
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        requires = "root",
        conflicts_with = "paths"
    )]
    listen: Option<String>,
    /// Standing receiver: directory below which all files are written
    #[arg(long, value_name = "DIR", requires = "listen")]
    root: Option<PathBuf>,
    /// Standing receiver: file with the token that clients must prove
    #[arg(long, value_name = "FILE", requires = "listen")]
    token_file: Option<PathBuf>,
    /// Standing receiver: its certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// Standing receiver: its key (PEM)
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Standing receiver: clients must present a certificate that this CA (PEM) issued
    #[arg(long, value_name = "FILE", requires = "cert")]
    ca: Option<PathBuf>,
    /// Standing receiver: limit of the bytes of a transfer, holes included [default: none]
    #[arg(long, value_name = "SIZE", requires = "listen")]
    quota: Option<Size>,
    /// Standing receiver: limit of the entries of a transfer [default: 10 million]
    #[arg(long, value_name = "N", requires = "listen")]
    max_entries: Option<u64>,
    /// Standing receiver: serve metrics for Prometheus: at a Unix socket's path, or a loopback
    /// address and port (docs/metrics.md)
    #[arg(long, value_name = "PATH|ADDRESS:PORT", requires = "listen")]
    metrics: Option<Address>,
    /// The other side of ssh: serve one session over stdin and stdout
    #[arg(long, hide = true)]
    stdio: bool,
}

pub fn run(args: Args, verbose: u8) -> Result<ExitCode> {
    if args.stdio {
        let ports = args.options.ports;
        return transfer::helper_ended(transfer::block_on(helper(Role::Receive, ports))?);
    }
    if args.listen.is_some() {
        return match args.adapt.refuse() {
            Ok(()) => stand_counted(args),
            Err(error) => Ok(transfer::usage(&error)),
        };
    }
    let Args {
        paths,
        options,
        adapt,
        ..
    } = args;
    let asked = sources(&paths).and_then(|(host, there, here)| {
        Ok(Transfer {
            remote: Remote::Ssh(options.ssh(verbose), host),
            here: vec![here],
            there,
            options: options.wire()?,
        })
    });
    let asked = asked.and_then(|mut asked| {
        let id = short_identity(&asked.receiving_identity());
        let sending = adapt.elsewhere(&id)?;
        if let Remote::Ssh(ssh, _) = &mut asked.remote {
            ssh.sending = sending.filter(|_| !options.dry_run);
        }
        Ok(asked)
    });
    let asked = match asked {
        Ok(asked) => asked,
        Err(error) => return Ok(transfer::usage(&error)),
    };
    let shown = |path: &OsString| path.to_string_lossy().into_owned();
    let (to, from) = paths
        .split_last()
        .map_or((String::new(), Vec::new()), |(to, from)| {
            (shown(to), from.iter().map(shown).collect())
        });
    let about = About {
        id: short_identity(&asked.receiving_identity()),
        from,
        to,
    };
    transfer::run(
        about,
        &options,
        None,
        verbose,
        |tuning, progress| async move { receive(asked, &tuning, progress).await },
    )
}

/// With metrics, if requested: on a thread that is not confined, because their socket may lie
/// outside of the root.
fn stand_counted(args: Args) -> Result<ExitCode> {
    let counts = Arc::<Counts>::default();
    let Some(address) = &args.metrics else {
        return stand(args, counts);
    };
    let _metrics = {
        let counts = Arc::clone(&counts);
        metrics::serve(address, move || metrics::receiver(&counts.now()))?
    };
    let standing = std::thread::spawn(move || stand(args, counts));
    match standing.join() {
        Ok(ended) => ended,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

fn stand(args: Args, counts: Arc<Counts>) -> Result<ExitCode> {
    let token = args.token_file.as_deref().map(Token::load).transpose();
    let tls = match (&args.cert, &args.key) {
        (Some(certificate), Some(key)) => {
            server_tls(certificate, key, args.ca.as_deref()).map(Some)
        }
        _ => Ok(None),
    };
    let (token, tls) = match (token, tls) {
        (Ok(token), Ok(tls)) => (token, tls),
        (Err(error), _) | (_, Err(error)) => return Ok(transfer::refuse(&error.into())),
    };
    let root = args.root.unwrap_or_default();
    // Before there are other threads.
    let sandbox = match confine(&root) {
        Ok(sandbox) => sandbox,
        Err(error) => {
            let path = root.display().to_string();
            let source = error;
            return Ok(transfer::refuse(&Error::Io { path, source }));
        }
    };
    let any = Bounds::default();
    let config = ReceiverConfig {
        listen: args.listen.unwrap_or_default(),
        root,
        bounds: Bounds {
            bytes: args.quota.map_or(any.bytes, Size::bytes),
            entries: args.max_entries.unwrap_or(any.entries),
            ..any
        },
        token,
        tls,
        client_certificates: args.ca.is_some(),
        counts,
    };
    transfer::block_on(async {
        let receiver = match Receiver::bind(config).await {
            Ok(receiver) => receiver,
            Err(error) => return Ok(transfer::refuse(&error)),
        };
        if let Some(address) = receiver.address() {
            eprintln!("receiver at {address}");
        }
        if let Some(text) = lacks(sandbox) {
            eprintln!("{text}");
        }
        receiver.run(transfer::stopped()).await;
        Ok(ExitCode::SUCCESS)
    })?
}

/// The part of the sandbox that the kernel lacks.
fn lacks(sandbox: Sandbox) -> Option<&'static str> {
    match sandbox {
        Sandbox::Whole => None,
        Sandbox::Partial => Some(
            "no whole sandbox: before Linux 6.2 Landlock does not stop truncation outside of --root",
        ),
        Sandbox::None => Some(
            "no sandbox: this kernel has no Landlock (CONFIG_SECURITY_LANDLOCK, and landlock in \
             its list lsm=); run the receiver as a user of its own",
        ),
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paceline coordinate`: parallel streams that finish together.

mod local;
mod text;

use std::future::Future;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{anyhow, bail, Context, Result};
use clap::{Args as ClapArgs, Subcommand};
use nix::sys::resource::{getrlimit, setrlimit, Resource};
use nix::unistd::{geteuid, gethostname, User};
use paceline_agent::service;
use paceline_coordinator::algorithm::{Choice, CHOICES};
use paceline_coordinator::client::{self, Access, ClientConfig, Control, Target};
use paceline_coordinator::protocol::{check_name, Request};
use paceline_coordinator::server::{Endpoint, Server, ServerConfig};
use paceline_coordinator::status::Status;
use paceline_input::units::Time;
use paceline_metrics::Address;
use paceline_security::{
    client_tls, default_socket, fingerprint_of, server_tls, Purpose, ServerTrust, Token,
};

use crate::fingerprint::fingerprint;
use crate::{metrics, output, trusted_path};

/// Bounds of a round. Below, hosts' own jitter exceeds the correction of a round; above, a
/// client assumes that the coordinator is dead.
const ROUNDS: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(60));
/// How often the live view is drawn.
const WATCH: Duration = Duration::from_secs(1);

/// Coordinates the windows of many hosts' streams so that all finish together.
#[derive(ClapArgs, Debug)]
pub struct Args {
    #[command(subcommand)]
    command: CoordinateCommand,
}

#[derive(Subcommand, Debug)]
enum CoordinateCommand {
    /// Run the coordinator of a transfer or cluster until Ctrl-C
    #[command(after_help = algorithms())]
    Serve(Box<ServeArgs>),
    /// Join with this host's streams of a group until Ctrl-C
    Join(Box<JoinArgs>),
    /// Show groups, windows and the progress of streams
    Status(Box<StatusArgs>),
    /// Change the algorithm during a transfer
    #[command(after_help = algorithms())]
    Set(Box<SetArgs>),
    /// Create a token: a new file that only its owner can read
    Token {
        /// The file
        file: PathBuf,
    },
    /// Show a certificate's fingerprint, for --pin
    Fingerprint {
        /// A certificate (PEM)
        certificate: PathBuf,
    },
}

#[derive(ClapArgs, Debug)]
struct ServeArgs {
    /// Listening address: a Unix socket's path, or ADDRESS:PORT [default: the user's own socket]
    #[arg(long, value_name = "PATH|ADDRESS:PORT")]
    listen: Vec<Endpoint>,
    /// Serve only these groups [default: all]
    #[arg(long, value_name = "NAME")]
    group: Vec<String>,
    /// Algorithm that sets the windows, with its parameters: see below
    #[arg(long, value_name = "NAME[:KEY=VALUE,...]", default_value = "even")]
    algorithm: Choice,
    /// Length of a round, 20ms to 60s [default: the algorithm's own]
    #[arg(long, value_name = "TIME")]
    round: Option<Time>,
    /// File with the token that clients over TCP must prove
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// TLS: the coordinator's certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// TLS: its key (PEM)
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// TLS: CA certificate (PEM); clients must present a certificate that this CA issued
    #[arg(long, value_name = "FILE", requires = "cert")]
    ca: Option<PathBuf>,
    /// Another user whose processes may use the Unix socket
    #[arg(long, value_name = "NAME")]
    user: Vec<String>,
    /// Drop a client without a report for this time (or for five rounds, if they are longer)
    #[arg(long, value_name = "TIME", default_value = "3s")]
    timeout: Time,
    /// Log each round to this file: CSV if its name ends in .csv, else JSON lines
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Show the live view in this terminal
    #[arg(long)]
    status: bool,
    /// Serve metrics for Prometheus: at a Unix socket's path, or a loopback address and port
    /// (docs/metrics.md)
    #[arg(long, value_name = "PATH|ADDRESS:PORT")]
    metrics: Option<Address>,
}

/// The address of a coordinator, and the proofs that both sides give.
#[derive(ClapArgs, Debug)]
struct AccessArgs {
    /// The coordinator: a Unix socket's path, or HOST:PORT [default: the user's own socket]
    #[arg(long, value_name = "PATH|HOST:PORT")]
    to: Option<Target>,
    /// File with the token that the coordinator requires over TCP
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// TLS: certificate (PEM) of the CA that issued the coordinator's certificate
    #[arg(long, value_name = "FILE", conflicts_with = "pin")]
    ca: Option<PathBuf>,
    /// TLS: the coordinator's certificate (PEM), or its SHA-256 fingerprint
    #[arg(long, value_name = "FILE|FINGERPRINT")]
    pin: Option<String>,
    /// TLS: the name in the coordinator's certificate [default: the host of --to]
    #[arg(long, value_name = "NAME", requires = "ca")]
    server_name: Option<String>,
    /// TLS: this client's certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// TLS: its key (PEM)
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// User that runs the coordinator at the Unix socket
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
}

#[derive(ClapArgs, Debug)]
struct JoinArgs {
    /// Group whose streams join
    #[arg(long, value_name = "NAME")]
    group: String,
    /// This host's name in status [default: its hostname]
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Give up when no coordinator was reachable for this time [default: never]
    #[arg(long, value_name = "TIME")]
    timeout: Option<Time>,
    /// Without root: directory of the agent's sockets
    #[arg(long, value_name = "DIR", default_value = service::DIRECTORY)]
    agent: PathBuf,
    #[command(flatten)]
    access: AccessArgs,
}

#[derive(ClapArgs, Debug)]
struct StatusArgs {
    /// Show only this group [default: all]
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// Machine-readable output; with --watch one line per second
    #[arg(long)]
    json: bool,
    /// Repeat every second until Ctrl-C
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    access: AccessArgs,
}

#[derive(ClapArgs, Debug)]
struct SetArgs {
    /// The algorithm from the next round on
    #[arg(long, value_name = "NAME[:KEY=VALUE,...]")]
    algorithm: Choice,
    /// Only for this group [default: for all, new ones included]
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    #[command(flatten)]
    access: AccessArgs,
}

pub fn run(args: Args) -> Result<ExitCode> {
    match args.command {
        CoordinateCommand::Serve(args) => block_on(serve(*args))?,
        CoordinateCommand::Join(args) => block_on(join(*args))?,
        CoordinateCommand::Status(args) => block_on(status(*args))?,
        CoordinateCommand::Set(args) => block_on(set(*args))?,
        CoordinateCommand::Token { file } => Token::make(&file)?,
        CoordinateCommand::Fingerprint { certificate } => {
            let print = fingerprint_of(&certificate)?;
            let hex: String = print.iter().map(|byte| format!("{byte:02x}")).collect();
            output::print(&(hex + "\n"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn algorithms() -> String {
    let rows: Vec<Vec<String>> = CHOICES
        .iter()
        .flat_map(|(name, parameters, what)| {
            let parameters = vec![String::new(), parameters.to_string()];
            [vec![name.to_string(), what.to_string()], parameters]
        })
        .collect();
    format!(
        "Algorithms, and their parameters:\n{}",
        output::table("  ", &rows)
    )
}

fn block_on(work: impl Future<Output = Result<()>>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start")?;
    runtime.block_on(work)
}

/// Ends with the first SIGINT or SIGTERM.
async fn stopped() {
    let (stop, mut stops) = tokio::sync::watch::channel(false);
    let set = ctrlc::set_handler(move || {
        let _ = stop.send(true);
    });
    if let Err(error) = set {
        tracing::warn!("cannot catch Ctrl-C, which will end it uncleanly: {error}");
        std::future::pending::<()>().await;
    }
    let _ = stops.changed().await;
}

fn user_number(name: &str) -> Result<u32> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let user = User::from_name(name).with_context(|| format!("cannot look up user {name}"))?;
    let user = user.ok_or_else(|| anyhow!("there is no user {name:?}"))?;
    Ok(user.uid.as_raw())
}

/// The default socket of `user`'s coordinator.
fn socket_of(user: Option<u32>) -> PathBuf {
    let own = geteuid().as_raw();
    let user = user.unwrap_or(own);
    let directory = match user == own {
        true => std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from),
        false => {
            let usual = PathBuf::from(format!("/run/user/{user}"));
            Some(usual).filter(|directory| directory.is_dir())
        }
    };
    default_socket(Purpose::Coordinate, user, directory.as_deref())
}

/// A usual limit is 1,024 descriptors, and a server with all its clients needs more.
fn allow_files(needed: usize) {
    let needed = needed as u64;
    let raised = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(soft, hard)| {
        if soft < needed {
            setrlimit(Resource::RLIMIT_NOFILE, needed.min(hard), hard)?;
        }
        Ok(hard)
    });
    match raised {
        Ok(most) if most < needed => tracing::warn!(
            "this process may open {most} files and needs {needed} for all clients: raise the limit (ulimit -Hn)"
        ),
        Ok(_) => {}
        Err(errno) => tracing::warn!("cannot raise the limit of open files: {errno}"),
    }
}

async fn serve(args: ServeArgs) -> Result<()> {
    for group in &args.group {
        check_name(group).context("--group")?;
    }
    let period = args.round.map(Time::duration);
    if let Some(round) = period.filter(|round| !(ROUNDS.0..=ROUNDS.1).contains(round)) {
        bail!("--round {round:?}: expected 20ms to 60s");
    }
    let listen = match args.listen.is_empty() {
        true => vec![Endpoint::Local(socket_of(None))],
        false => args.listen,
    };
    let mut config = ServerConfig::new(listen.clone(), args.algorithm);
    config.period = period;
    config.groups = args.group;
    config.token = args.token_file.as_deref().map(Token::load).transpose()?;
    if let (Some(certificate), Some(key)) = (&args.cert, &args.key) {
        config.tls = Some(server_tls(certificate, key, args.ca.as_deref())?);
        config.client_certificates = args.ca.is_some();
    }
    config.users = args
        .user
        .iter()
        .map(|name| user_number(name))
        .collect::<Result<_>>()?;
    config.timeout = args.timeout.duration();
    if let Some(log) = &args.log {
        trusted_path::check(log)?;
    }
    config.log = args.log;
    allow_files(config.limits.descriptors());
    let server = Server::bind(config).await?;
    let mut addresses = server.addresses().into_iter();
    for endpoint in &listen {
        let place = match endpoint {
            Endpoint::Local(path) => path.display().to_string(),
            Endpoint::Tcp(_) => addresses.next().map(|a| a.to_string()).unwrap_or_default(),
        };
        eprintln!("coordinator at {place}");
    }
    let local = listen.iter().find_map(|endpoint| match endpoint {
        Endpoint::Local(path) => Some(path.clone()),
        Endpoint::Tcp(_) => None,
    });
    let _metrics = match (&args.metrics, &local) {
        (Some(address), Some(socket)) => Some(serve_metrics(address, socket.clone())?),
        (Some(_), None) => bail!("--metrics reads from the Unix socket: add --listen PATH"),
        (None, _) => None,
    };
    if !args.status {
        return Ok(server.run(stopped()).await?);
    }
    let Some(socket) = local else {
        bail!("--status reads from the Unix socket: add --listen PATH");
    };
    let access = Access::new(Target::Local(socket));
    // A failed view does not end the coordinator; Ctrl-C does.
    let view = async {
        if let Err(error) = watch(&access, None, false).await {
            tracing::warn!("no live view: {error:#}");
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        served = server.run(stopped()) => Ok(served?),
        () = view => Ok(()),
    }
}

fn serve_metrics(address: &Address, socket: PathBuf) -> Result<paceline_metrics::Server> {
    let access = Access::new(Target::Local(socket));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    metrics::serve(address, move || {
        metrics::coordinator(runtime.block_on(status_now(&access, None)))
    })
}

async fn status_now(access: &Access, group: Option<String>) -> Result<Status> {
    let mut control = Control::connect(access, &host_name()).await?;
    let answer = control.ask(Request::Status { group }).await?;
    Ok(serde_json::from_str(&answer)?)
}

fn host_name() -> String {
    let name = gethostname().ok().and_then(|name| name.into_string().ok());
    name.filter(|name| check_name(name).is_ok())
        .unwrap_or_else(|| "unnamed".to_owned())
}

impl AccessArgs {
    fn access(&self) -> Result<Access> {
        let user = self.user.as_deref().map(user_number).transpose()?;
        let target = self
            .to
            .clone()
            .unwrap_or_else(|| Target::Local(socket_of(user)));
        let mut access = Access::new(target);
        access.token = self.token_file.as_deref().map(Token::load).transpose()?;
        access.server_name.clone_from(&self.server_name);
        access.users = user.into_iter().collect();
        let trust = match (&self.ca, &self.pin) {
            (Some(path), _) => Some(ServerTrust::Authorities(path.clone())),
            (None, Some(pin)) => Some(ServerTrust::Pinned(fingerprint(pin)?)),
            (None, None) => None,
        };
        let own = self.cert.as_deref().zip(self.key.as_deref());
        access.tls = match trust {
            Some(trust) => Some(client_tls(&trust, own)?),
            None if own.is_some() => {
                bail!("--cert: the client must verify the coordinator, too: add --ca or --pin")
            }
            None => None,
        };
        if access.tls.is_some() && matches!(access.target, Target::Local(_)) {
            bail!("TLS is for TCP: give --to HOST:PORT");
        }
        Ok(access)
    }
}

async fn join(args: JoinArgs) -> Result<()> {
    let host = args.host.unwrap_or_else(host_name);
    check_name(&host).context("--host")?;
    check_name(&args.group).context("--group")?;
    let access = args.access.access()?;
    let mut local = local::streams(&args.group, &args.agent)?;
    let config = ClientConfig {
        access,
        group: args.group,
        host,
        patience: args.timeout.map(Time::duration),
    };
    Ok(client::join(&config, local.as_mut(), stopped()).await?)
}

async fn status(args: StatusArgs) -> Result<()> {
    let access = args.access.access()?;
    if args.watch {
        return tokio::select! {
            watched = watch(&access, args.group, args.json) => watched,
            () = stopped() => Ok(()),
        };
    }
    let status = status_now(&access, args.group).await?;
    match args.json {
        true => output::print_json(&status),
        false => output::print(&text::readable(&status)),
    }
}

async fn watch(access: &Access, group: Option<String>, json: bool) -> Result<()> {
    let mut control = Control::connect(access, &host_name()).await?;
    let mut next = tokio::time::interval(WATCH);
    loop {
        next.tick().await;
        let request = Request::Status {
            group: group.clone(),
        };
        let answer = control.ask(request).await?;
        if json {
            output::print_json_text(&answer)?;
        } else {
            let status = serde_json::from_str(&answer)?;
            output::clear()?;
            output::print(&text::readable(&status))?;
        }
    }
}

async fn set(args: SetArgs) -> Result<()> {
    let access = args.access.access()?;
    let mut control = Control::connect(&access, &host_name()).await?;
    let request = Request::Set {
        group: args.group,
        algorithm: args.algorithm.to_string(),
    };
    control.ask(request).await?;
    Ok(())
}

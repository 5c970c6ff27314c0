// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paceline gateway`: connections of other hosts over a WAN, in one session.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Subcommand;
use paceline_gateway::config::{Config, Connect};
use paceline_gateway::local::Protocol;
use paceline_gateway::service::{control_socket, status, Gateway, Status};
use paceline_metrics::Address;
use serde_json::Value;

use crate::{metrics, output, transfer};

/// Arguments of `paceline gateway`.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run a gateway until SIGTERM or Ctrl-C
    Serve {
        /// Configuration file
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// Serve metrics for Prometheus: at a Unix socket's path, or a loopback address and port
        /// (docs/metrics.md)
        #[arg(long, value_name = "PATH|ADDRESS:PORT")]
        metrics: Option<Address>,
    },
    /// Show the peers of the gateway that runs on this host
    Status {
        /// Its control socket, if the configuration has another
        #[arg(long, value_name = "PATH")]
        socket: Option<PathBuf>,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Check a configuration file
    Check {
        /// Configuration file
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
}

/// Runs the command.
///
/// # Errors
/// If the file is wrong, the gateway cannot start, or none runs.
pub fn run(args: Args) -> Result<ExitCode> {
    match args.command {
        Command::Serve { config, metrics } => serve(Config::load(&config)?, metrics.as_ref())?,
        Command::Check { config } => {
            let read = Config::load(&config)?;
            let peers: Vec<&str> = read.peers.keys().map(String::as_str).collect();
            output::print(&format!(
                "{}: gateway {} with {}\n",
                config.display(),
                read.name,
                peers.join(", ")
            ))?;
            if let Some(transparent) = &read.transparent {
                return transparent_check(transparent.connect);
            }
        }
        Command::Status { socket, json } => {
            let socket = control_socket(socket.as_ref());
            let status = transfer::block_on(status(&socket))?.context("no gateway")?;
            match json {
                true => output::print_json(&status)?,
                false => output::print(&text(&status))?,
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn serve(config: Config, address: Option<&Address>) -> Result<()> {
    let control = control_socket(config.control.as_ref());
    transfer::block_on(async {
        let gateway = Gateway::open(config).await?;
        if let Some(address) = gateway.address() {
            eprintln!("gateway at {address} (UDP, and TCP where that is blocked)");
        }
        for (protocol, address) in gateway.proxies() {
            let name = match protocol {
                Protocol::Socks => "SOCKS5",
                Protocol::Http => "HTTP CONNECT",
            };
            eprintln!("{name} at {address}");
        }
        if let Some(to) = gateway.transparent() {
            if let Some(lacks) = gateway.lacks_honest() {
                eprintln!(
                    "connects succeed at once: to wait for their destination's answer needs \
                     features that are missing here: {lacks}"
                );
            }
            let port = to.port;
            match &to.interface {
                Some(name) => eprintln!("connections of hosts behind {name} at port {port}"),
                None => eprintln!("connections of hosts: none but this one's, at port {port}"),
            }
        }
        if !gateway.is_realtime() {
            eprintln!(
                "no real-time priority (CAP_SYS_NICE): on a busy machine the rate is not kept"
            );
        }
        let make = move || {
            let status = transfer::block_on(status(&control));
            metrics::gateway(status.and_then(|status| Ok(status?)))
        };
        let serving = address
            .map(|address| metrics::serve(address, make))
            .transpose()?;
        gateway.run(transfer::stopped()).await;
        drop(serving);
        Ok(())
    })?
}

/// Whether this kernel can do what a file with [transparent] needs.
fn transparent_check(connect: Option<Connect>) -> Result<ExitCode> {
    if !nix::unistd::geteuid().is_root() {
        output::print("transparent: the kernel was not checked: that needs root\n")?;
        return Ok(ExitCode::SUCCESS);
    }
    let missing = paceline_net::nft::missing_for_transparent()
        .context("[transparent] needs nft (package nftables) and a kernel with nf_tables")?;
    if !missing.is_empty() {
        anyhow::bail!("[transparent]: this kernel lacks {}", missing.join(", "));
    }
    let lacks = paceline_net::nft::missing_for_honest()?.join(", ");
    let honest = match (connect, lacks.is_empty()) {
        (Some(Connect::Fast), _) => "connects succeed at once, before their destination answers",
        (_, true) => "connects wait for their destination's answer",
        (None, false) => {
            "connects succeed at once: to wait for their destination's answer needs features that \
             this kernel lacks: "
        }
        (Some(Connect::Honest), false) => anyhow::bail!(
            "[transparent]: connect = \"honest\": this kernel lacks {lacks}; connect = \"fast\" \
             does without"
        ),
    };
    let lacks = if honest.ends_with(' ') { &lacks } else { "" };
    output::print(&format!(
        "transparent: this kernel has what it needs; {honest}{lacks}\n"
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn text(status: &Status) -> String {
    let mut text = format!("gateway {}\n", status.name);
    for (name, seen) in &status.peers {
        let Some(seen) = seen else {
            text += &format!("  {name}: not connected\n");
            continue;
        };
        let number = |key: &str| seen.get(key).and_then(Value::as_u64).unwrap_or_default();
        let mode = match seen.get("breaker").and_then(Value::as_bool) {
            Some(true) => ", reservation ended: less than 80 % arrived",
            _ => "",
        };
        let leg = match seen.get("leg").and_then(Value::as_str) {
            Some("tcp") => " by TCP",
            _ => "",
        };
        text += &format!(
            "  {name}: {} connections{leg}, {:.1} Mbit/s{mode}, round trip {:.1} ms, heard {} ms ago\n    \
             sent {} bytes and {} again; {} of {} datagrams lost, {} of them by mistake\n",
            number("connections"),
            number("rate") as f64 / 1e6,
            number("round_trip_us") as f64 / 1e3,
            number("silent_ms"),
            number("new_bytes"),
            number("again_bytes"),
            number("lost"),
            number("sent"),
            number("spurious"),
        );
        let receipts = |of: &str, key: &str| seen[of][key].as_u64().unwrap_or_default();
        text += &format!(
            "    ended in order: {} delivered to hosts there, {} unconfirmed; {} and {} here\n",
            receipts("peer_receipts", "delivered"),
            receipts("peer_receipts", "unconfirmed"),
            receipts("receipts", "delivered"),
            receipts("receipts", "unconfirmed"),
        );
    }
    if let Some(routed) = &status.transparent {
        let counts = routed.counts;
        text += &format!(
            "  transparent: {} connections taken, {} refused, {} failed, {} loops; {} connects; \
             jobs led: {}\n",
            counts.taken,
            counts.refused,
            counts.failed,
            counts.loops,
            routed.connect,
            routed.programs
        );
        if let Some(lacks) = &routed.lacks {
            text += &format!("    honest connects need features that are missing here: {lacks}\n");
        }
    }
    text
}

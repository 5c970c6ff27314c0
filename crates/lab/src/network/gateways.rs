// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A pair of gateways at the ends of the link, and their traffic on it:
//!
//! ```text
//! sender0 eth0 --- edge0
//!                        lan router wan === wan far router edge0 --- eth0 receiver
//! sender1 eth0 --- edge1
//! ```
//!
//! Both routers run `paceline gateway serve`, this very program. The hosts do not see it.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use paceline_experiment::plan::Gateway;
use paceline_experiment::record::GatewayRecord;
use paceline_net::{Doing, Namespace};
use paceline_security::{fingerprint, Token};
use rcgen::CertifiedKey;
use serde_json::Value;

use super::clusters::WAN_LINK;
use super::topology::{host_address, router_address, Network, LAN, RECEIVER_LINK};
use crate::CaseError;

/// Where the far one listens (UDP).
const PORT: u16 = 7420;
/// Within which they must have a session: some round trips, and the start of two programs on a
/// busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// From one look at the session to the next.
const POLL: Duration = Duration::from_millis(200);
/// Outage that connections survive, a gateway's maximum setting: longer than any here.
const SURVIVED: &str = "100s";

/// The gateways, running. They end when this is dropped.
pub struct Gateways {
    near: Child,
    far: Child,
    directory: tempfile::TempDir,
    /// The near one's counters at the last look.
    before: GatewayRecord,
}

impl Gateways {
    /// Starts both on the network's routers, and waits for their session.
    pub fn start(network: &Network, gateway: &Gateway) -> Result<Self, CaseError> {
        let Some(far) = &network.far else {
            return Err(CaseError::Unexpected("a link has no hosts for gateways"));
        };
        let directory = tempfile::tempdir().doing("making a directory for gateways")?;
        let (place, ip) = (directory.path(), network.wanted.ip);
        let fingerprint = certify(place)?;
        Token::make(&place.join("token")).map_err(|error| CaseError::Gateway(error.to_string()))?;
        let bits = if ip == 6 { 64 } else { 24 };
        let receivers = format!("{}/{bits}", host_address(RECEIVER_LINK, ip));
        let address = std::net::SocketAddr::new(host_address(WAN_LINK, ip), PORT);
        let peer = peer(gateway);
        write(
            place,
            "far.toml",
            &format!(
                "name = \"far\"\nlisten = \"{address}\"\ncertificate = \"far.pem\"\n\
                 key = \"far.key\"\ntoken = \"token\"\ncontrol = \"far.sock\"\n\
                 [peer.near]\n{peer}[accept]\nto = [\"{receivers}\"]\n"
            ),
        )?;
        write(
            place,
            "near.toml",
            &format!(
                "name = \"near\"\ntoken = \"token\"\ncontrol = \"near.sock\"\n\
                 [peer.far]\naddress = \"{address}\"\nfingerprint = \"{fingerprint}\"\n{peer}\
                 [transparent]\ninterface = \"{LAN}\"\npeer = \"far\"\nto = [\"{receivers}\"]\n"
            ),
        )?;
        let far = serve(place, "far", &far.router)?;
        let near = match serve(place, "near", &network.router) {
            Ok(near) => near,
            Err(error) => {
                end(far);
                return Err(error);
            }
        };
        let mut gateways = Gateways {
            near,
            far,
            directory,
            before: GatewayRecord::default(),
        };
        gateways.await_session()?;
        Ok(gateways)
    }

    fn await_session(&mut self) -> Result<(), CaseError> {
        let started = Instant::now();
        while self.look()?.is_none() {
            for ended in [&mut self.near, &mut self.far].map(Child::try_wait) {
                if let Some(status) = ended.doing("looking at a gateway")? {
                    return Err(self.failed(&format!("one ended, {status}")));
                }
            }
            if started.elapsed() > PATIENCE {
                return Err(self.failed("they have no session"));
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    fn failed(&self, problem: &str) -> CaseError {
        let mut text = problem.to_owned();
        for name in ["near", "far"] {
            let log = fs::read_to_string(self.directory.path().join(format!("{name}.log")));
            let _ = write!(text, "; {name}: {}", log.unwrap_or_default().trim());
        }
        CaseError::Gateway(text)
    }

    /// The near one's counters since its session began; `None` without a session.
    fn look(&self) -> Result<Option<GatewayRecord>, CaseError> {
        let output = program()
            .args(["gateway", "status", "--json", "--socket"])
            .arg(self.directory.path().join("near.sock"))
            .output()
            .doing("asking a gateway")?;
        let status: Value = match serde_json::from_slice(&output.stdout) {
            Ok(status) if output.status.success() => status,
            _ => return Ok(None),
        };
        let seen = &status["peers"]["far"];
        let number = |key: &str| seen[key].as_u64();
        Ok(number("sent").map(|sent| GatewayRecord {
            sent,
            lost: number("lost").unwrap_or(0),
            spurious: number("spurious").unwrap_or(0),
            ..GatewayRecord::default()
        }))
    }

    /// Counters of the near one since the last call.
    pub fn counted(&mut self) -> Result<GatewayRecord, CaseError> {
        let Some(now) = self.look()? else {
            return Err(self.failed("their session ended"));
        };
        let before = std::mem::replace(&mut self.before, now);
        Ok(GatewayRecord {
            sent: now.sent.saturating_sub(before.sent),
            lost: now.lost.saturating_sub(before.lost),
            spurious: now.spurious.saturating_sub(before.spurious),
            ..now
        })
    }
}

impl Drop for Gateways {
    fn drop(&mut self) {
        for child in [&mut self.near, &mut self.far] {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

fn end(mut child: Child) {
    drop(child.kill());
    drop(child.wait());
}

/// Keys of a peer, the same on both sides.
fn peer(gateway: &Gateway) -> String {
    let kind = if gateway.is_learned {
        "learned"
    } else {
        "reserve"
    };
    format!(
        "rate = {{ {kind} = \"{}bit\" }}\nmemory = \"{}B\"\nmtu = {}\npatience = \"{SURVIVED}\"\n",
        gateway.rate_bps, gateway.memory_bytes, gateway.mtu
    )
}

/// This very program, as a user's command.
fn program() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("paceline").stdin(Stdio::null());
    command
}

fn serve(place: &Path, name: &str, host: &Namespace) -> Result<Child, CaseError> {
    let log = File::create(place.join(format!("{name}.log"))).doing("making a gateway's log")?;
    let mut command = program();
    command
        .args(["gateway", "serve", "--config"])
        .arg(place.join(format!("{name}.toml")))
        .stdout(Stdio::null())
        .stderr(log);
    // However the lab ends, they do.
    Ok(host.spawn(&mut command)?)
}

/// The far one's certificate and key: its fingerprint.
fn certify(place: &Path) -> Result<String, CaseError> {
    let made = rcgen::generate_simple_self_signed(vec!["far".to_owned()])
        .map_err(|error| CaseError::Gateway(format!("its certificate: {error}")))?;
    let CertifiedKey { cert, signing_key } = made;
    write(place, "far.pem", &cert.pem())?;
    write(place, "far.key", &signing_key.serialize_pem())?;
    Ok(fingerprint(cert.der())
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect())
}

/// Joins the near hosts' links, each with the router's address in it, to one interface: a
/// gateway takes connections at one. A bridge has the lowest Ethernet address of its links: the
/// first one's, where packets are captured, so there they are seen as the router's.
pub(super) fn join_lan(router: &Namespace, senders: &[u8], ip: u8) -> Result<(), CaseError> {
    let mut lines = format!("link add {LAN} type bridge\nlink set {LAN} up\n");
    let (bits, option) = if ip == 6 { (64, " nodad") } else { (24, "") };
    for (index, &link) in senders.iter().enumerate() {
        let address = router_address(link, ip);
        let _ = write!(
            lines,
            "addr del {address}/{bits} dev edge{index}\n\
             link set edge{index} address 02:00:00:00:00:{index:02x}\n\
             link set edge{index} master {LAN}\naddr add {address}/{bits} dev {LAN}{option}\n"
        );
    }
    router.ip(&lines)?;
    // Where bridges ask netfilter, TPROXY would see packets at the bridge, and lose the socket
    // that it gave them on the way up. Absent where bridges do not.
    for family in ["ip", "ip6"] {
        drop(router.sysctl(&format!("net.bridge.bridge-nf-call-{family}tables"), "0"));
    }
    Ok(())
}

fn write(place: &Path, name: &str, text: &str) -> Result<(), CaseError> {
    let path = place.join(name);
    let mut options = File::options();
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    Ok(written.doing(format!("writing {name} for a gateway"))?)
}

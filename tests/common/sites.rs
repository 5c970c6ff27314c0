// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two sites whose hosts know nothing of gateways: host - gateway - WAN - gateway - host, each a
//! network namespace. Nothing forwards packets, so all that crosses went through both gateways.

#![allow(dead_code)] // each test file uses its own part

use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sched::{setns, CloneFlags};
use nix::sys::socket::{setsockopt, sockopt};
use rand_pcg::rand_core::{Rng, SeedableRng};

use super::is_root;
use super::packets::Packet;

/// Far longer than anything takes here: a test that waits for so long has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Hosts and gateways, in the order of the path.
const NAMES: [&str; 4] = ["near-host", "near-gw", "far-gw", "far-host"];

pub fn run(program: &str, arguments: &str) -> Output {
    let output = Command::new(program)
        .args(arguments.split_whitespace())
        .output();
    output.unwrap_or_else(|error| panic!("{program}: {error}"))
}

pub fn ip(arguments: &str) {
    let output = run("ip", arguments);
    assert!(output.status.success(), "ip {arguments}: {output:?}");
}

/// What the tests need beside root.
pub fn is_able() -> bool {
    if !is_root() {
        return false;
    }
    match paceline_net::nft::missing_for_transparent() {
        Ok(missing) if missing.is_empty() => return true,
        Ok(missing) => println!("skipped: this kernel lacks {}", missing.join(", ")),
        Err(paceline_net::Error::System { .. }) => println!("skipped: nft is not installed"),
        Err(error) => panic!("{error}"),
    }
    false
}

pub struct Sites {
    tag: String,
    directory: tempfile::TempDir,
    pub gateways: [Option<Child>; 2],
}

impl Sites {
    pub fn new(test: &str) -> Self {
        let sites = Self {
            tag: format!("pl{}{test}", std::process::id()),
            directory: tempfile::tempdir().expect("a directory"),
            gateways: [None, None],
        };
        let names: Vec<String> = (0..4).map(|host| sites.name(host)).collect();
        for name in &names {
            ip(&format!("netns add {name}"));
            ip(&format!("-n {name} link set lo up"));
        }
        // Host, its gateway, its network.
        for (host, gateway, network) in [(0, 1, 1), (3, 2, 2)] {
            let (host, gateway) = (&names[host], &names[gateway]);
            ip(&format!(
                "-n {host} link add lan type veth peer name lan netns {gateway}"
            ));
            for (name, number) in [(host, 1), (gateway, 254)] {
                ip(&format!(
                    "-n {name} addr add 10.97.{network}.{number}/24 dev lan"
                ));
                ip(&format!(
                    "-n {name} addr add fd97:{network}::{number}/64 dev lan nodad"
                ));
                ip(&format!("-n {name} link set lan up"));
            }
            ip(&format!(
                "-n {host} route add default via 10.97.{network}.254"
            ));
            ip(&format!(
                "-n {host} -6 route add default via fd97:{network}::254"
            ));
        }
        let (near, far) = (&names[1], &names[2]);
        ip(&format!(
            "-n {near} link add wan type veth peer name wan netns {far}"
        ));
        for (name, number) in [(near, 1), (far, 2)] {
            ip(&format!("-n {name} addr add 10.97.9.{number}/24 dev wan"));
            ip(&format!("-n {name} link set wan up"));
        }
        sites.configure();
        sites
    }

    pub fn name(&self, host: usize) -> String {
        format!("{}-{}", self.tag, NAMES[host])
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    pub fn configure(&self) {
        use std::os::unix::fs::PermissionsExt;
        let path = self.path();
        let made = rcgen::generate_simple_self_signed(vec!["paceline".to_owned()]).expect("made");
        let key = path.join("far.key");
        fs::write(path.join("far.pem"), made.cert.pem()).expect("ours");
        fs::write(&key, made.signing_key.serialize_pem()).expect("ours");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("ours");
        let fingerprint = paceline_security::fingerprint_of(&path.join("far.pem"));
        let fingerprint: String = fingerprint
            .expect("a certificate")
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let made = self.paceline(&["coordinate", "token", "token"]);
        assert!(made.status.success(), "{made:?}");
        let site = |own: u8, other: u8, peer: &str| {
            format!(
                "[transparent]\ninterface = \"lan\"\npeer = \"{peer}\"\n\
                 to = [\"10.97.{other}.0/24\", \"fd97:{other}::/64\"]\n\
                 [accept]\nto = [\"10.97.{own}.0/24\", \"fd97:{own}::/64\"]\n"
            )
        };
        let near = format!(
            "name = \"near\"\ntoken = \"token\"\ncontrol = \"near.sock\"\n[peer.far]\n\
             address = \"10.97.9.2:7420\"\nfingerprint = \"{fingerprint}\"\n{}",
            site(1, 2, "far")
        );
        let far = format!(
            "name = \"far\"\nlisten = \"10.97.9.2:7420\"\ncertificate = \"far.pem\"\n\
             key = \"far.key\"\ntoken = \"token\"\ncontrol = \"far.sock\"\n[peer.near]\n{}",
            site(2, 1, "near")
        );
        fs::write(path.join("near.toml"), near).expect("ours");
        fs::write(path.join("far.toml"), far).expect("ours");
    }

    pub fn paceline(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_paceline"))
            .args(arguments)
            .current_dir(self.path())
            .output()
            .expect("paceline")
    }

    /// Changes a gateway's file.
    pub fn edit(&self, gateway: usize, from: &str, to: &str) {
        let file = self.path().join(["near.toml", "far.toml"][gateway]);
        let text = fs::read_to_string(&file).expect("ours");
        let changed = text.replacen(from, to, 1);
        assert_ne!(text, changed);
        fs::write(&file, changed).expect("ours");
    }

    /// A command in a host's namespace that has cgroup v2 where nft looks for it.
    pub fn with_cgroups(&self, host: usize) -> Command {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.name(host), "sh", "-c"])
            .arg("mount -t cgroup2 none /sys/fs/cgroup && exec \"$0\" \"$@\"")
            .current_dir(self.path());
        command
    }

    /// What the near gateway takes for the address of the name `far.test`. The file is the same
    /// one for all that started before.
    pub fn name_far(&self, address: &str) {
        let directory = Path::new("/etc/netns").join(self.name(1));
        fs::create_dir_all(&directory).expect("root");
        let hosts = format!("127.0.0.1 localhost\n{address} far.test\n");
        fs::write(directory.join("hosts"), hosts).expect("ours");
    }

    /// Starts the near (0) or the far (1) gateway.
    pub fn start(&mut self, gateway: usize) {
        let file = ["near.toml", "far.toml"][gateway];
        // `ip netns exec` becomes the shell, and that the program: its number is the gateway's.
        let mut child = self
            .with_cgroups(1 + gateway)
            .arg(env!("CARGO_BIN_EXE_paceline"))
            .args(["gateway", "serve", "--config", file])
            .current_dir(self.path())
            .stderr(Stdio::piped())
            .spawn()
            .expect("ip");
        let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        loop {
            let line = lines.next().expect("it runs").expect("text");
            if line.starts_with("connections of hosts") {
                break;
            }
        }
        // It must not fill its pipe.
        std::thread::spawn(move || lines.for_each(drop));
        self.gateways[gateway] = Some(child);
    }

    pub fn kill(&mut self, gateway: usize) {
        let mut child = self.gateways[gateway].take().expect("it runs");
        child.kill().expect("ours");
        child.wait().expect("ours");
    }

    pub fn started(test: &str) -> Self {
        let mut sites = Self::new(test);
        sites.start(1);
        sites.start(0);
        sites.connected();
        sites
    }

    pub fn status(&self, gateway: usize) -> serde_json::Value {
        let socket = ["near.sock", "far.sock"][gateway];
        let shown = self.paceline(&["gateway", "status", "--socket", socket, "--json"]);
        assert!(shown.status.success(), "{shown:?}");
        serde_json::from_slice(&shown.stdout).expect("JSON")
    }

    pub fn connected(&self) {
        for (gateway, peer) in [(0, "far"), (1, "near")] {
            let begun = Instant::now();
            while self.status(gateway)["peers"][peer].is_null() {
                assert!(begun.elapsed() < PATIENCE, "no session");
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }

    /// Does something in the namespace of a host; sockets stay there.
    pub fn at<T: Send>(&self, host: usize, act: impl FnOnce() -> T + Send) -> T {
        let namespace = File::open(format!("/run/netns/{}", self.name(host))).expect("ours");
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                setns(namespace, CloneFlags::CLONE_NEWNET).expect("root");
                act()
            });
            thread.join().expect("it ends")
        })
    }

    /// A connection from one site's host to the other's, at that one's own address: both ends,
    /// and the port of the listening one.
    pub fn connection(&self, is_from_near: bool, is_v6: bool) -> (TcpStream, TcpStream, u16) {
        let (from, to, site) = if is_from_near { (0, 3, 2) } else { (3, 0, 1) };
        let address: SocketAddr = match is_v6 {
            false => format!("10.97.{site}.1:0"),
            true => format!("[fd97:{site}::1]:0"),
        }
        .parse()
        .expect("an address");
        let listener = self.at(to, || TcpListener::bind(address).expect("its own"));
        let address = listener.local_addr().expect("bound");
        let client = self.at(from, || TcpStream::connect(address).expect("a gateway"));
        assert_eq!(client.peer_addr().expect("connected"), address);
        let (server, _) = listener.accept().expect("it came");
        for socket in [&client, &server] {
            socket.set_read_timeout(Some(PATIENCE)).expect("set");
            socket.set_write_timeout(Some(PATIENCE)).expect("set");
        }
        (client, server, address.port())
    }

    /// What of a gateway's is in its namespace: chains of the table, and routing rules.
    pub fn rules(&self, gateway: usize) -> (usize, usize) {
        let name = self.name(1 + gateway);
        let count = |output: Output, what: &str| {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            text.lines().filter(|line| line.contains(what)).count()
        };
        let tables = run("ip", &format!("netns exec {name} nft list ruleset"));
        let four = run("ip", &format!("-n {name} -4 rule"));
        let six = run("ip", &format!("-n {name} -6 rule"));
        let routing = count(four, "lookup 28780") + count(six, "lookup 28780");
        (count(tables, "table inet paceline_gateway"), routing)
    }
}

impl Drop for Sites {
    fn drop(&mut self) {
        for child in self.gateways.iter_mut().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
        for host in 0..4 {
            run("ip", &format!("netns del {}", self.name(host)));
        }
        let _ = fs::remove_dir_all(Path::new("/etc/netns").join(self.name(1)));
    }
}

pub fn ended_by(mut child: Child, signal: nix::sys::signal::Signal) {
    let process = nix::unistd::Pid::from_raw(child.id() as i32);
    nix::sys::signal::kill(process, signal).expect("ours");
    child.wait().expect("ours");
}

pub fn bytes(length: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; length];
    rand_pcg::Pcg64::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes
}

/// Sends all of it and ends this direction.
pub fn send(mut to: &TcpStream, bytes: &[u8]) {
    to.write_all(bytes).expect("taken");
    to.shutdown(Shutdown::Write).expect("ended");
}

pub fn received(mut from: &TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    from.read_to_end(&mut bytes).expect("a clean end");
    bytes
}

/// All that is still there, and then a reset: never a clean end.
pub fn is_reset(mut socket: &TcpStream) {
    let mut rest = [0; 4_096];
    loop {
        match socket.read(&mut rest) {
            Ok(0) => panic!("a clean end of file"),
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
                return;
            }
        }
    }
}

pub fn reset(socket: TcpStream) {
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    setsockopt(&socket, sockopt::Linger, &linger).expect("set");
}

/// Packets with this flag that reached a host, of connections with this port.
pub fn arrived(packets: &[Packet], port: u16, flag: u8) -> usize {
    let of_port = |packet: &&Packet| packet.source == port || packet.target == port;
    packets
        .iter()
        .filter(of_port)
        .filter(|packet| !packet.leaves && packet.flags & flag != 0)
        .count()
}

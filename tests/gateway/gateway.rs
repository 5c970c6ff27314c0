// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paceline gateway` as a user runs it, and what becomes of connections when one is killed.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Far longer than anything takes here: a test that waits for so long has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// A gateway that runs.
struct Running {
    child: Child,
    /// What it said of its sockets: the words before the address, and the address.
    sockets: Vec<(String, SocketAddr)>,
}

impl Running {
    fn start(directory: &Path, file: &str, sockets: usize) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_paceline"));
        let clock = directory.join("clock.so");
        if clock.exists() {
            command.env("LD_PRELOAD", clock);
            command.env("CLOCK", directory.join("clock"));
        }
        let mut child = command
            .args(["gateway", "serve", "--config", file])
            .current_dir(directory)
            .stderr(Stdio::piped())
            .spawn()
            .expect("paceline");
        let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let mut found = Vec::new();
        while found.len() < sockets {
            let line = lines.next().expect("a line").expect("text");
            if let Some((name, rest)) = line.split_once(" at ") {
                let address = rest.split(' ').next().expect("an address");
                found.push((name.to_owned(), address.parse().expect("an address")));
            }
        }
        // It must not fill its pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Self {
            child,
            sockets: found,
        }
    }

    fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("ours");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn paceline(directory: &Path, arguments: &[&str]) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_paceline"))
        .args(arguments)
        .current_dir(directory)
        .output()
        .expect("paceline")
}

fn certificate(directory: &Path) -> String {
    use std::os::unix::fs::PermissionsExt;
    let made = rcgen::generate_simple_self_signed(vec!["paceline".to_owned()]).expect("made");
    let key = directory.join("far.key");
    fs::write(directory.join("far.pem"), made.cert.pem()).expect("ours");
    fs::write(&key, made.signing_key.serialize_pem()).expect("ours");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("ours");
    let fingerprint = paceline_security::fingerprint_of(&directory.join("far.pem"));
    let fingerprint = fingerprint.expect("a certificate");
    fingerprint
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// The far side's file, at this address.
fn write_far(directory: &Path, listen: &str) {
    let text = format!(
        "name = \"far\"\nlisten = \"{listen}\"\ncertificate = \"far.pem\"\nkey = \"far.key\"\n\
         token = \"token\"\ncontrol = \"far.sock\"\n[peer.near]\n\
         [accept]\nto = [\"127.0.0.0/8\"]\n"
    );
    fs::write(directory.join("far.toml"), text).expect("ours");
}

struct Pair {
    directory: tempfile::TempDir,
    near: Option<Running>,
    far: Option<Running>,
}

impl Pair {
    fn new() -> Self {
        Self::inside(tempfile::tempdir().expect("a directory"))
    }

    fn inside(directory: tempfile::TempDir) -> Self {
        let path = directory.path();
        let fingerprint = certificate(path);
        let made = paceline(path, &["coordinate", "token", "token"]);
        assert!(made.status.success(), "{made:?}");
        write_far(path, "127.0.0.1:0");
        let far = Running::start(path, "far.toml", 1);
        let address = far.sockets[0].1;
        // So that it comes back where it was.
        write_far(path, &address.to_string());
        let text = format!(
            "name = \"near\"\ntoken = \"token\"\ncontrol = \"near.sock\"\n[peer.far]\n\
             address = \"{address}\"\nfingerprint = \"{fingerprint}\"\n\
             [socks]\nlisten = \"127.0.0.1:0\"\npeer = \"far\"\n"
        );
        fs::write(path.join("near.toml"), text).expect("ours");
        let mut pair = Self {
            directory,
            near: None,
            far: Some(far),
        };
        pair.start_near();
        pair
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn start_near(&mut self) {
        self.near = Some(Running::start(self.path(), "near.toml", 1));
        self.connected();
    }

    fn status(&self) -> serde_json::Value {
        let shown = paceline(
            self.path(),
            &["gateway", "status", "--socket", "near.sock", "--json"],
        );
        assert!(shown.status.success(), "{shown:?}");
        serde_json::from_slice(&shown.stdout).expect("JSON")
    }

    fn connected(&self) {
        let begun = Instant::now();
        while self.status()["peers"]["far"].is_null() {
            assert!(begun.elapsed() < PATIENCE, "no session");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// A connection through both gateways: its two ends.
    fn connection(&self) -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let to = listener.local_addr().expect("bound");
        let socks = self.near.as_ref().expect("it runs").sockets[0].1;
        let mut client = TcpStream::connect(socks).expect("it listens");
        client.set_read_timeout(Some(PATIENCE)).expect("set");
        let mut request = vec![5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1];
        request.extend(to.port().to_be_bytes());
        client.write_all(&request).expect("sent");
        let mut answer = [0; 12];
        client.read_exact(&mut answer).expect("an answer");
        assert_eq!(answer[..6], [5, 0, 5, 0, 0, 1]);
        let (server, _) = listener.accept().expect("it came");
        server.set_read_timeout(Some(PATIENCE)).expect("set");
        (client, server)
    }
}

/// Half of something is under way, and then the end comes.
fn send_half(from: &mut TcpStream, to: &mut TcpStream) {
    from.write_all(&[7; 100_000]).expect("taken");
    to.read_exact(&mut [0; 50_000]).expect("some of it");
}

/// All that is still there, and then a reset: never a clean end.
fn is_reset(socket: &mut TcpStream) {
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

#[test]
fn a_killed_gateway_is_a_reset_and_never_a_clean_end() {
    let mut pair = Pair::new();
    // The near one: its client at once, the far end when it is back.
    let (mut client, mut server) = pair.connection();
    send_half(&mut client, &mut server);
    pair.near.take().expect("it runs").kill();
    is_reset(&mut client);
    pair.start_near();
    is_reset(&mut server);
    // The far one: the server at once, the client when it is back.
    let (mut client, mut server) = pair.connection();
    send_half(&mut server, &mut client);
    pair.far.take().expect("it runs").kill();
    is_reset(&mut server);
    pair.far = Some(Running::start(pair.path(), "far.toml", 1));
    is_reset(&mut client);
    // And then all is well again.
    pair.connected();
    let (mut client, mut server) = pair.connection();
    send_half(&mut client, &mut server);
}

#[test]
fn status_and_check_show_the_connections() {
    let pair = Pair::new();
    let (mut client, mut server) = pair.connection();
    send_half(&mut client, &mut server);
    server.read_exact(&mut [0; 50_000]).expect("the rest");
    let far = &pair.status()["peers"]["far"];
    assert_eq!(
        (&far["connections"], &far["new_bytes"]),
        (&1.into(), &100_000.into())
    );
    let shown = paceline(pair.path(), &["gateway", "status", "--socket", "near.sock"]);
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(
        text.starts_with("gateway near\n  far: 1 connections, "),
        "{text}"
    );
    let checked = paceline(pair.path(), &["gateway", "check", "--config", "near.toml"]);
    assert_eq!(
        String::from_utf8_lossy(&checked.stdout),
        "near.toml: gateway near with far\n"
    );
    fs::write(
        pair.path().join("bad.toml"),
        "name = \"x\"\n[peer.y]\nmemory = 5\n",
    )
    .expect("ours");
    let refused = paceline(pair.path(), &["gateway", "check", "--config", "bad.toml"]);
    let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("bad.toml:3:10: peer.y.memory"), "{stderr}");
    let none = paceline(pair.path(), &["gateway", "status", "--socket", "none.sock"]);
    assert_eq!(none.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&none.stderr).into_owned();
    assert!(
        stderr.contains("no process listens on this socket"),
        "{stderr}"
    );
}

/// Both gateways are told another time of day, as if somebody had set their hosts' clocks.
#[test]
fn a_wall_clock_that_is_stepped_changes_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let clock = directory.path().join("clock");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/common/clock.c");
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"])
        .args([&directory.path().join("clock.so"), Path::new(source)])
        .arg("-ldl")
        .status();
    assert!(built.expect("a C compiler").success());
    let mut pair = Pair::inside(directory);
    let sent = |pair: &Pair| pair.status()["peers"]["far"]["new_bytes"].as_u64();
    let (mut client, mut server) = pair.connection();
    send_half(&mut client, &mut server);
    let mut before = 0;
    for by in ["3600", "-3600", "86400"] {
        fs::write(&clock, by).expect("ours");
        // What was under way arrives, and both directions go on in the same session.
        server.read_exact(&mut [0; 50_000]).expect("the rest");
        let (mut another, mut end) = pair.connection();
        for (from, to) in [(&mut server, &mut client), (&mut another, &mut end)] {
            send_half(from, to);
            to.read_exact(&mut [0; 50_000]).expect("the rest");
        }
        let now = sent(&pair).expect("the same session");
        assert!(now >= before + 200_000, "{now} after {before}");
        before = now;
        send_half(&mut client, &mut server);
    }
    // A session begins under a clock of tomorrow as under any other.
    pair.near.take().expect("it runs").kill();
    pair.start_near();
    is_reset(&mut server);
    let (mut client, mut server) = pair.connection();
    send_half(&mut client, &mut server);
    let seen = pair.path().join("clock.seen");
    assert!(seen.exists(), "nobody was told a time that was stepped");
}

#[test]
fn doctor_looks_at_what_a_gateway_uses_and_at_the_path() {
    let mut pair = Pair::new();
    let near = fs::read_to_string(pair.path().join("near.toml")).expect("ours");
    // The nearest network for hosts that are routed through it: nothing is taken by a look.
    let routed = "[transparent]\npeer = \"far\"\nto = [\"10.2.0.0/16\"]\n";
    fs::write(pair.path().join("routed.toml"), format!("{near}{routed}")).expect("ours");
    let checks = |pair: &Pair| {
        let shown = paceline(
            pair.path(),
            &["doctor", "--json", "--gateway", "routed.toml"],
        );
        let report: serde_json::Value = serde_json::from_slice(&shown.stdout).expect("JSON");
        let checks = report["checks"].as_array().expect("checks").clone();
        move |name: &str| {
            let found = checks.iter().find(|check| check["name"] == name);
            let found = found.unwrap_or_else(|| panic!("no {name} in {checks:?}"));
            let text = |key: &str| found[key].as_str().expect("text").to_owned();
            (text("level"), text("found"))
        }
    };
    let seen = checks(&pair);
    let (level, found) = seen("gateway path");
    assert_eq!(level, "ok", "{found}");
    assert_eq!(
        found,
        "far: 1452 bytes of UDP payload arrive, mtu = 1452 is configured"
    );
    let (_, found) = seen("gateway udp");
    assert!(found.contains("datagrams a call are sent"), "{found}");
    // It says of the kernel what the gateway's own check says.
    let checked = paceline(
        pair.path(),
        &["gateway", "check", "--config", "routed.toml"],
    );
    let is_root = nix::unistd::geteuid().is_root();
    let (level, found) = seen("gateway tproxy");
    assert_eq!(
        level == "ok",
        is_root && checked.status.success(),
        "{found} {checked:?}"
    );
    let stdout = String::from_utf8_lossy(&checked.stdout).into_owned();
    let waits = stdout.contains("connects wait for their destination");
    let (level, found) = seen("gateway connect");
    assert_eq!(level == "ok", waits, "{found} {stdout}");
    pair.far.take().expect("it runs").kill();
    let (level, found) = checks(&pair)("gateway path");
    assert_eq!(
        (level.as_str(), found.contains("no answer")),
        ("warn", true),
        "{found}"
    );
}

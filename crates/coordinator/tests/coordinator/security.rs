// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who must not take part, and what they can do about it: nothing.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::support::host::Host;
use paceline_coordinator::client::{self, Access, ClientConfig, Control, Target};
use paceline_coordinator::protocol::{Request, SERVICE};
use paceline_coordinator::server::{Endpoint, Server, ServerConfig};
use paceline_coordinator::status::{Refusal, Status};
use paceline_security::{
    accept, client_tls, fingerprint_of, join, refuse, server_tls, Protection, Purpose, Reader,
    ServerTrust, Service, Token, Writer, VERSION,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

const SECRET: &[u8] = b"sixteen or more bytes";
const PATIENCE: Duration = Duration::from_secs(60);

fn config(listen: Vec<Endpoint>) -> ServerConfig {
    let mut config = ServerConfig::new(listen, "average".parse().expect("an algorithm"));
    config.period = Some(Duration::from_millis(20));
    config
}

fn loopback() -> Vec<Endpoint> {
    vec![Endpoint::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))]
}

async fn start(config: ServerConfig) -> Option<SocketAddr> {
    let server = Server::bind(config).await.expect("listening");
    let address = server.addresses().first().copied();
    tokio::spawn(server.run(std::future::pending()));
    address
}

async fn with_token() -> SocketAddr {
    let mut config = config(loopback());
    config.token = Some(Token::new(SECRET));
    start(config).await.expect("TCP")
}

fn access(address: SocketAddr, token: Option<&[u8]>) -> Access {
    let mut access = Access::new(Target::Tcp(address.to_string()));
    access.token = token.map(Token::new);
    access
}

async fn ask(access: &Access) -> Result<String, String> {
    let text = |error: paceline_coordinator::Error| error.to_string();
    let mut control = Control::connect(access, "test").await.map_err(text)?;
    control
        .ask(Request::Status { group: None })
        .await
        .map_err(text)
}

#[tokio::test]
async fn settings_that_leave_it_open_are_refused() {
    let everywhere = Endpoint::Tcp(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
    let mut open = config(vec![everywhere]);
    open.token = Some(Token::new(SECRET));
    let error = Server::bind(open).await.err().expect("refused").to_string();
    assert!(error.contains("needs TLS"), "{error}");
    let error = Server::bind(config(loopback()))
        .await
        .err()
        .expect("refused");
    assert!(
        error.to_string().contains("any user can connect"),
        "{error}"
    );
}

#[tokio::test]
async fn only_the_right_token_opens() {
    let address = with_token().await;
    ask(&access(address, Some(SECRET)))
        .await
        .expect("the right one");
    let error = ask(&access(address, Some(b"another token of mine"))).await;
    assert!(error.expect_err("wrong").contains("wrong token"));
    let error = ask(&access(address, None)).await.expect_err("none");
    assert!(error.contains("--token-file"), "{error}");
}

/// What the coordinator counted for this reason, once it did.
async fn refusal(address: SocketAddr, reason: &str) -> Refusal {
    for _ in 0..3000 {
        let answer = ask(&access(address, Some(SECRET))).await.expect("in");
        let status: Status = serde_json::from_str(&answer).expect("JSON");
        let mut refusals = status.refusals.into_iter();
        if let Some(refusal) = refusals.find(|refusal| refusal.reason == reason) {
            return refusal;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it was never refused: {reason}");
}

/// A server for something else, or with another token, at a port of its own: what its
/// next client was refused for.
async fn other_server(service: Service, secret: &[u8]) -> (SocketAddr, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let token = Token::new(secret);
    let serving = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.expect("a client");
        let (read, write) = stream.into_split();
        let (mut reader, mut writer) = (Reader::new(read), Writer::new(write));
        let none = Protection::None;
        let accepted = accept(&mut reader, &mut writer, &service, Some(&token), &none).await;
        let error = accepted.expect_err("refused");
        refuse(&mut writer, &error).await;
        error.to_string()
    });
    (address, serving)
}

/// A server that does not know the token learns nothing and is not believed.
#[tokio::test]
async fn a_coordinator_without_the_token_is_refused() {
    let (address, serving) = other_server(SERVICE, b"another token of mine").await;
    let error = ask(&access(address, Some(SECRET))).await;
    let error = error.expect_err("not believed");
    assert!(error.contains("wrong token"), "{error}");
    let theirs = serving.await.expect("no panic");
    assert_eq!(theirs, "the tokens of the two sides differ");
}

/// One token for all services is still one for each alone.
#[tokio::test]
async fn a_service_for_something_else_is_named_on_both_sides() {
    let purpose = Purpose::Move;
    let mover = Service { purpose, ..SERVICE };
    let (address, serving) = other_server(mover, SECRET).await;
    let error = ask(&access(address, Some(SECRET))).await;
    let error = error.expect_err("another service");
    let message = "the other side uses service move, this side coordinate: ";
    assert!(error.starts_with(message), "{error}");
    let theirs = serving.await.expect("no panic");
    let message = "the other side uses service coordinate, this side move: ";
    assert!(theirs.starts_with(message), "{theirs}");

    // A mover's client at a coordinator.
    let address = with_token().await;
    let stream = TcpStream::connect(address).await.expect("there");
    let (read, write) = stream.into_split();
    let (mut reader, mut writer) = (Reader::new(read), Writer::new(write));
    let (token, none) = (Token::new(SECRET), Protection::None);
    let joined = join(&mut reader, &mut writer, &mover, Some(&token), &none, b"").await;
    let error = joined.expect_err("another service").to_string();
    assert!(error.contains("uses service coordinate"), "{error}");
    let counted = refusal(address, "another service").await;
    assert!(counted.last.contains("uses service move"), "{counted:?}");
}

/// The version before this one, from its bytes: the server spoke first there, too, and a
/// frame's body began with the version.
#[tokio::test]
async fn peers_of_the_previous_version_are_refused_with_a_message() {
    let address = with_token().await;
    let mut old = TcpStream::connect(address).await.expect("there");
    let length = old.read_u32_le().await.expect("a frame");
    let mut body = vec![0; length as usize];
    old.read_exact(&mut body).await.expect("a frame");
    // "the other side speaks version 2 of the protocol, this one 1", it says then, and ends.
    assert_eq!(body[0], VERSION);
    drop(old);
    let counted = refusal(address, "left at the greeting").await;
    assert!(counted.last.contains("version 2"), "{counted:?}");

    // An old client that goes on all the same, as one of no release does.
    let mut old = TcpStream::connect(address).await.expect("there");
    old.write_all(&[2, 0, 0, 0, 1, 9]).await.expect("sent");
    let counted = refusal(address, "another version").await;
    let message = "speaks version 1 of the handshake, this one version 2";
    assert!(counted.last.contains(message), "{counted:?}");

    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let old_server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a client");
        let mut hello = vec![35, 0, 0, 0, 1, 0];
        hello.extend([7; 32]);
        hello.push(1);
        stream.write_all(&hello).await.expect("sent");
        let length = stream.read_u32_le().await.expect("a frame");
        let mut body = vec![0; length as usize];
        stream.read_exact(&mut body).await.expect("a frame");
        body[0]
    });
    // Trying again is of no use, and is not done.
    let config = ClientConfig {
        access: access(address, Some(SECRET)),
        group: "transfer".to_owned(),
        host: "one".to_owned(),
        patience: None,
    };
    let joined = client::join(&config, &mut Host::default(), std::future::pending()).await;
    let error = joined.expect_err("another version").to_string();
    assert!(error.contains(message), "{error}");
    // "the other side speaks version 2", the old server counts and logs.
    assert_eq!(old_server.await.expect("no panic"), VERSION);
}

/// A place between one client and a server; each of the client's frames becomes those
/// that `change` makes of it and its number.
async fn middle(
    server: SocketAddr,
    change: impl Fn(usize, Vec<u8>) -> Vec<Vec<u8>> + Send + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        let (client, _) = listener.accept().await.expect("a client");
        let server = TcpStream::connect(server).await.expect("there");
        let (mut from_client, mut to_client) = client.into_split();
        let (mut from_server, mut to_server) = server.into_split();
        tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
        for number in 0.. {
            let Ok(length) = from_client.read_u32_le().await else {
                break;
            };
            let mut body = vec![0; length as usize];
            from_client.read_exact(&mut body).await.expect("a frame");
            for body in change(number, body) {
                let mut frame = (body.len() as u32).to_le_bytes().to_vec();
                frame.extend(body);
                to_server.write_all(&frame).await.expect("sent");
            }
        }
    });
    address
}

/// What one client sent is worth nothing on another connection, and nothing a second
/// time on its own.
#[tokio::test]
async fn recorded_frames_cannot_be_replayed() {
    let address = with_token().await;
    let (record, recorded) = std::sync::mpsc::channel();
    let recorder = middle(address, move |_, frame| {
        record.send(frame.clone()).expect("kept");
        vec![frame]
    });
    ask(&access(recorder.await, Some(SECRET)))
        .await
        .expect("passed on");
    let frames: Vec<Vec<u8>> = recorded.try_iter().collect();
    assert!(frames.len() >= 2, "Join and a request");
    // Its host is called "test".
    assert!(!frames.concat().windows(4).any(|part| part == b"test"));

    let mut stream = TcpStream::connect(address).await.expect("there");
    for body in &frames {
        let length = (body.len() as u32).to_le_bytes();
        stream.write_all(&length).await.expect("sent");
        stream.write_all(body).await.expect("sent");
    }
    let mut all = Vec::new();
    let _ = stream.read_to_end(&mut all).await;
    let text = String::from_utf8_lossy(&all);
    assert!(text.contains("wrong token"), "{text}");

    let twice = middle(address, |number, frame| match number {
        1 => vec![frame.clone(), frame],
        _ => vec![frame],
    });
    ask(&access(twice.await, Some(SECRET)))
        .await
        .expect("the first time");
    let counted = refusal(address, "frame not authentic").await;
    assert!(counted.last.contains("is not authentic"), "{counted:?}");
}

#[tokio::test]
async fn bytes_that_are_no_message_end_their_own_connection_only() {
    let address = with_token().await;
    let oversized = [0xff, 0xff, 0xff, 0x7f, 1, 2, 3];
    // Larger than a greeting may be, though not than a report.
    let mut long = 2000u32.to_le_bytes().to_vec();
    long.extend([1; 2000]);
    let mut garbage = 40u32.to_le_bytes().to_vec();
    garbage.extend([1; 40]);
    let other_version = [2, 0, 0, 0, 99, 0];
    for bytes in [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".as_slice(),
        &oversized,
        &long,
        &garbage,
        &other_version,
        &[0, 0, 0, 0],
    ] {
        let mut stream = TcpStream::connect(address).await.expect("there");
        stream.write_all(bytes).await.expect("sent");
        let mut all = Vec::new();
        // A reset, if it closed with our bytes unread, is an end, too.
        let end = stream.read_to_end(&mut all);
        let end = tokio::time::timeout(PATIENCE, end).await;
        end.expect("closed").ok();
    }
    ask(&access(address, Some(SECRET)))
        .await
        .expect("as before");
}

#[tokio::test]
async fn silent_peers_are_not_waited_for() {
    let address = with_token().await;
    let mut silent = TcpStream::connect(address).await.expect("there");
    // Half a frame, then nothing.
    silent.write_all(&[200, 0]).await.expect("sent");
    ask(&access(address, Some(SECRET)))
        .await
        .expect("served besides");
    let mut all = Vec::new();
    let end = silent.read_to_end(&mut all);
    let end = tokio::time::timeout(Duration::from_secs(60), end).await;
    end.expect("closed by the server").ok();
}

struct Pki {
    _directory: tempfile::TempDir,
    authority: PathBuf,
    server: (PathBuf, PathBuf),
    client: (PathBuf, PathBuf),
}

fn pki() -> Pki {
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
    let directory = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: String| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).expect("ours");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("ours");
        path
    };
    let mut params = CertificateParams::new(vec![]).expect("good");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let issuer = CertifiedIssuer::self_signed(params, key).expect("signed");
    let issue = |name: &str, file: &str| {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![name.to_owned()]).expect("good");
        let certificate = params.signed_by(&key, &issuer).expect("signed");
        (
            write(&format!("{file}.pem"), certificate.pem()),
            write(&format!("{file}.key"), key.serialize_pem()),
        )
    };
    let server = issue("localhost", "server");
    let client = issue("client", "client");
    let authority = write("ca.pem", issuer.as_ref().pem());
    Pki {
        authority,
        server,
        client,
        _directory: directory,
    }
}

fn pair(paths: &(PathBuf, PathBuf)) -> (&Path, &Path) {
    (&paths.0, &paths.1)
}

#[tokio::test]
async fn tls_with_certificates_on_both_sides() {
    let pki = pki();
    let mut config = config(loopback());
    let (certificate, key) = pair(&pki.server);
    let tls = server_tls(certificate, key, Some(&pki.authority)).expect("good files");
    config.tls = Some(tls);
    config.client_certificates = true;
    let address = start(config).await.expect("TCP");
    let trust = ServerTrust::Authorities(pki.authority.clone());
    let tls = |own| Some(client_tls(&trust, own).expect("good files"));
    let mut access = access(address, None);
    access.server_name = Some("localhost".to_owned());
    access.tls = tls(Some(pair(&pki.client)));
    ask(&access).await.expect("mutual");
    // The right authority, the wrong name.
    access.server_name = Some("elsewhere".to_owned());
    ask(&access).await.expect_err("another name");
    access.server_name = Some("localhost".to_owned());
    access.tls = tls(None);
    ask(&access)
        .await
        .expect_err("a client without certificate");
    let stranger = self::pki();
    access.tls = tls(Some(pair(&stranger.client)));
    ask(&access).await.expect_err("another authority's client");
    access.tls = None;
    access.token = Some(Token::new(SECRET));
    ask(&access).await.expect_err("no TLS");
}

#[tokio::test]
async fn tls_with_a_pinned_certificate_and_a_token() {
    let pki = pki();
    let mut config = config(loopback());
    let (certificate, key) = pair(&pki.server);
    config.tls = Some(server_tls(certificate, key, None).expect("good files"));
    let open = Server::bind(config.clone()).await.err().expect("refused");
    assert!(open.to_string().contains("any user can connect"), "{open}");
    config.token = Some(Token::new(SECRET));
    let address = start(config).await.expect("TCP");
    let pinned = |path: &Path| {
        let trust = ServerTrust::Pinned(fingerprint_of(path).expect("a certificate"));
        Some(client_tls(&trust, None).expect("good files"))
    };
    let mut access = access(address, Some(SECRET));
    access.tls = pinned(certificate);
    ask(&access).await.expect("pinned, with the token");
    access.tls = pinned(&pki.client.0);
    ask(&access)
        .await
        .expect_err("another certificate is pinned");
    access.tls = pinned(certificate);
    access.token = Some(Token::new(b"another token of mine"));
    let error = ask(&access).await.expect_err("the wrong token");
    assert!(error.contains("wrong token"), "{error}");
}

/// Somebody in the middle with a certificate that the client takes, who passes the
/// token's messages on: the proof is about the connection that it was made for.
#[tokio::test]
async fn a_proof_cannot_be_passed_on_to_another_connection() {
    let pki = pki();
    let (certificate, key) = pair(&pki.server);
    let tls = server_tls(certificate, key, None).expect("good files");
    let mut config = config(loopback());
    config.tls = Some(Arc::clone(&tls));
    config.token = Some(Token::new(SECRET));
    let address = start(config).await.expect("TCP");
    let trust = ServerTrust::Pinned(fingerprint_of(certificate).expect("a certificate"));
    let client = client_tls(&trust, None).expect("good files");

    let middle = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let middle_address = middle.local_addr().expect("bound");
    let outward = Arc::clone(&client);
    tokio::spawn(async move {
        let (stream, _) = middle.accept().await.expect("a client");
        let acceptor = tokio_rustls::TlsAcceptor::from(tls);
        let mut inner = acceptor.accept(stream).await.expect("it has the key");
        let stream = TcpStream::connect(address).await.expect("the server");
        let name = "localhost".try_into().expect("a name");
        let connector = tokio_rustls::TlsConnector::from(outward);
        let mut outer = connector.connect(name, stream).await.expect("TLS");
        let _ = tokio::io::copy_bidirectional(&mut inner, &mut outer).await;
    });
    let mut access = access(middle_address, Some(SECRET));
    access.tls = Some(client);
    let error = ask(&access).await.expect_err("passed on");
    assert!(error.contains("wrong token"), "{error}");
}

const SOCKET: &str = "PACELINE_TEST_SOCKET";

/// Not a test: what another user's process does in the one below.
#[tokio::test]
async fn another_users_process() {
    if let Some(socket) = std::env::var_os(SOCKET) {
        let access = Access::new(Target::Local(socket.into()));
        println!("ANSWER {:?}", ask(&access).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_users_process_is_turned_away() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: needs root to become another user");
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755))
        .expect("ours");
    let program = directory.path().join("program");
    std::fs::copy(std::env::current_exe().expect("itself"), &program).expect("copied");
    let run = |socket: &Path, user: u32| {
        let mut command = std::process::Command::new(&program);
        command.args(["--exact", "security::another_users_process", "--nocapture"]);
        command.env(SOCKET, socket).uid(user).gid(user);
        let output = command.output().expect("started");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    // Shared with user 1234: the file system lets anybody in.
    let socket = directory.path().join("shared.sock");
    let mut config = config(vec![Endpoint::Local(socket.clone())]);
    config.users = vec![1234];
    start(config.clone()).await;
    let stranger = tokio::task::block_in_place(|| run(&socket, 65534));
    assert!(
        stranger.contains("belongs to user 65534, which is not authorized"),
        "{stranger}"
    );
    let output = tokio::task::block_in_place(|| run(&socket, 1234));
    assert!(output.contains("ANSWER Ok"), "{output}");
    // Not shared: nobody gets as far.
    let socket = directory.path().join("own.sock");
    config.listen = vec![Endpoint::Local(socket.clone())];
    config.users.clear();
    start(config).await;
    let stranger = tokio::task::block_in_place(|| run(&socket, 65534));
    assert!(stranger.contains("Permission denied"), "{stranger}");
}

/// And a coordinator of somebody else's is not believed.
#[tokio::test]
async fn another_users_coordinator_is_not_joined() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: needs root to become another user");
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("s.sock");
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o777))
        .expect("ours");
    let mut child = std::process::Command::new("python3")
        .args([
            "-c",
            "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.bind(sys.argv[1])\ns.listen()\nprint(flush=True)\ns.accept()",
        ])
        .arg(&socket)
        .stdout(std::process::Stdio::piped())
        .uid(65534)
        .spawn()
        .expect("python3");
    let mut line = String::new();
    let stdout = child.stdout.take().expect("piped");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).expect("a line");
    let error = ask(&Access::new(Target::Local(socket))).await;
    let error = error.expect_err("not believed");
    let _ = child.kill();
    let _ = child.wait();
    assert!(error.contains("belongs to user 65534"), "{error}");
}

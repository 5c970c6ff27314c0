// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two gateways of this process, and connections through them.

use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use paceline_gateway::config::Config;
use paceline_gateway::local::Protocol;
use paceline_gateway::service::{status, Gateway};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Far longer than anything takes here: a test that waits for so long has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// A certificate in `directory/NAME.pem`, its key, and its fingerprint.
pub fn certificate(directory: &Path, name: &str) -> String {
    use std::os::unix::fs::PermissionsExt;
    let made = rcgen::generate_simple_self_signed(vec!["paceline".to_owned()]).expect("made");
    let (pem, key) = (
        directory.join(format!("{name}.pem")),
        directory.join(format!("{name}.key")),
    );
    std::fs::write(&pem, made.cert.pem()).expect("ours");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("ours");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).expect("ours");
    let fingerprint = paceline_security::fingerprint_of(&pem).expect("a certificate");
    fingerprint
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

pub struct Running {
    pub address: Option<SocketAddr>,
    pub socks: Option<SocketAddr>,
    pub http: Option<SocketAddr>,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Running {
    pub async fn start(directory: &Path, text: &str) -> Self {
        let config = Config::parse(text, "gateway.toml", directory).expect("a configuration");
        let gateway = Gateway::open(config).await.expect("opened");
        let proxy = |wanted| {
            let proxies = gateway.proxies().into_iter();
            proxies
                .filter(|(protocol, _)| *protocol == wanted)
                .map(|(_, at)| at)
                .next()
        };
        let (socks, http) = (proxy(Protocol::Socks), proxy(Protocol::Http));
        let address = gateway.address();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(gateway.run(async move {
            let _ = stopped.await;
        }));
        Self {
            address,
            socks,
            http,
            stop: Some(stop),
            task,
        }
    }

    pub async fn stop(mut self) {
        drop(self.stop.take());
        self.task.await.expect("no panic");
    }
}

/// Both, in a directory of their own.
pub struct Pair {
    pub directory: tempfile::TempDir,
    pub near: Running,
    pub far: Running,
}

/// What the far side allows, unless a test says otherwise.
pub const LOOPBACK: &str = "[accept]\nto = [\"127.0.0.0/8\"]\n";

impl Pair {
    /// Known to each other by a token, and the server by its fingerprint.
    pub async fn new(accept: &str) -> Self {
        Self::with(accept, "rate = { reserve = \"200mbit\" }").await
    }

    /// The near side's keys of the far one.
    pub async fn with(accept: &str, keys: &str) -> Self {
        Self::by(accept, keys, |far| async move { far }).await
    }

    /// The same; the near side connects to another address than the far side's.
    pub async fn by<F: Future<Output = SocketAddr>>(
        accept: &str,
        keys: &str,
        way: impl FnOnce(SocketAddr) -> F,
    ) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let fingerprint = certificate(directory.path(), "far");
        paceline_security::Token::make(&directory.path().join("token")).expect("made");
        let far = format!(
            "name = \"far\"\nlisten = \"127.0.0.1:0\"\ncertificate = \"far.pem\"\nkey = \"far.key\"\n\
             token = \"token\"\ncontrol = \"far.sock\"\n[peer.near]\nrate = {{ reserve = \"200mbit\" }}\n{accept}"
        );
        let far = Running::start(directory.path(), &far).await;
        let near = near(
            way(far.address.expect("it listens")).await,
            &fingerprint,
            "token = \"token\"",
        );
        let near = near.replace("rate = { reserve = \"200mbit\" }", keys);
        let near = Running::start(directory.path(), &near).await;
        let pair = Self {
            directory,
            near,
            far,
        };
        pair.connected().await;
        pair
    }

    /// Until the near side has a session.
    pub async fn connected(&self) {
        let socket = self.directory.path().join("near.sock");
        within(async {
            while status(&socket).await.expect("a status").peers["far"].is_none() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
    }

    /// The near side's session.
    pub async fn status(&self) -> serde_json::Value {
        let socket = self.directory.path().join("near.sock");
        let status = status(&socket).await.expect("a status");
        status.peers["far"].clone().expect("a session")
    }

    /// A program's connection by SOCKS; or the code of the refusal.
    pub async fn socks(&self, to: SocketAddr) -> Result<TcpStream, u8> {
        let SocketAddr::V4(to) = to else {
            panic!("{to}")
        };
        let mut socket = TcpStream::connect(self.near.socks.expect("one"))
            .await
            .expect("it listens");
        let mut request = vec![5, 1, 0, 5, 1, 0, 1];
        request.extend(to.ip().octets());
        request.extend(to.port().to_be_bytes());
        socket.write_all(&request).await.expect("sent");
        let mut answer = [0; 12];
        within(socket.read_exact(&mut answer))
            .await
            .expect("an answer");
        assert_eq!(answer[..3], [5, 0, 5]);
        match answer[3] {
            0 => Ok(socket),
            code => Err(code),
        }
    }

    pub async fn stop(self) {
        self.near.stop().await;
        self.far.stop().await;
    }
}

/// The near side's file.
pub fn near(far: SocketAddr, fingerprint: &str, identity: &str) -> String {
    format!(
        "name = \"near\"\ncontrol = \"near.sock\"\n{identity}\n[peer.far]\naddress = \"{far}\"\n\
         fingerprint = \"{fingerprint}\"\nrate = {{ reserve = \"200mbit\" }}\n\
         [socks]\nlisten = \"127.0.0.1:0\"\npeer = \"far\"\n\
         [http]\nlisten = \"127.0.0.1:0\"\npeer = \"far\"\n"
    )
}

pub async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future)
        .await
        .expect("in time")
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Both sides of a handshake, over a pipe as it is and within TLS.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;

use tokio::io::{duplex, split, AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::*;
use crate::purpose::{Purpose, VERSION};
use crate::tls::{binding, client_tls, fingerprint_of, server_tls, ServerTrust};

const SECRET: &[u8] = b"sixteen or more bytes";
/// More than any frame of these tests, bytes.
const PIPE: usize = 1 << 20;

type BoxedReader = Reader<Box<dyn AsyncRead + Unpin + Send>>;
type BoxedWriter = Writer<Box<dyn AsyncWrite + Unpin + Send>>;

struct End {
    reader: BoxedReader,
    writer: BoxedWriter,
    protection: Protection,
}

impl End {
    fn new<S: AsyncRead + AsyncWrite + Send + 'static>(stream: S, protection: Protection) -> Self {
        let (read, write) = split(stream);
        Self {
            reader: Reader::new(Box::new(read)),
            writer: Writer::new(Box::new(write)),
            protection,
        }
    }

    async fn accept(&mut self, service: &Service, token: Option<&Token>) -> Result<Vec<u8>> {
        let Self {
            reader,
            writer,
            protection,
        } = self;
        let accepted = accept(reader, writer, service, token, protection).await;
        if let Err(error) = &accepted {
            refuse(writer, error).await;
        }
        accepted
    }

    async fn join(&mut self, service: &Service, token: Option<&Token>) -> Result<()> {
        let Self {
            reader,
            writer,
            protection,
        } = self;
        join(reader, writer, service, token, protection, b"this").await
    }
}

fn service(purpose: Purpose) -> Service {
    Service {
        purpose,
        version: 7,
        most_frame: 200_000,
    }
}

/// TLS of a server with a certificate of its own, and of a client that has it pinned.
struct Tls(TlsAcceptor, TlsConnector);

impl Tls {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let names = vec!["localhost".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
        let file = |name: &str, text: String| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).expect("ours");
            let mode = std::fs::Permissions::from_mode(0o600);
            std::fs::set_permissions(&path, mode).expect("ours");
            path
        };
        let certificate = file("pem", made.cert.pem());
        let key = file("key", made.signing_key.serialize_pem());
        let server = server_tls(&certificate, &key, None).expect("good files");
        let trust = ServerTrust::Pinned(fingerprint_of(&certificate).expect("it"));
        let client = client_tls(&trust, None).expect("good files");
        Self(server.into(), client.into())
    }

    /// A client's end, and a server's.
    async fn ends(&self) -> (End, End) {
        let (one, other) = duplex(PIPE);
        let name = "localhost".try_into().expect("a name");
        let (client, server) = tokio::join!(self.1.connect(name, one), self.0.accept(other));
        let (client, server) = (client.expect("TLS"), server.expect("TLS"));
        let tls = |binding: Result<_>, known| Protection::Tls {
            binding: binding.expect("the handshake is over"),
            known,
        };
        let client_protection = tls(binding(client.get_ref().1), true);
        let server_protection = tls(binding(server.get_ref().1), false);
        (
            End::new(client, client_protection),
            End::new(server, server_protection),
        )
    }
}

/// A client's end and a server's, without TLS or within.
async fn ends(tls: Option<&Tls>) -> (End, End) {
    match tls {
        Some(tls) => tls.ends().await,
        None => {
            let (one, other) = duplex(PIPE);
            (
                End::new(one, Protection::None),
                End::new(other, Protection::None),
            )
        }
    }
}

/// One end as bytes, and a server's without TLS.
fn by_hand() -> (DuplexStream, End) {
    let (one, other) = duplex(PIPE);
    (one, End::new(other, Protection::None))
}

#[tokio::test]
async fn a_client_is_taken_by_its_own_service_and_by_no_other() {
    let (tls, token) = (Tls::new(), Token::new(SECRET));
    for mode in [None, Some(&tls)] {
        for wanted in Purpose::ALL {
            for served in Purpose::ALL {
                let (mut client, mut server) = ends(mode).await;
                let (wanted, served) = (service(wanted), service(served));
                let (joined, accepted) = tokio::join!(
                    client.join(&wanted, Some(&token)),
                    server.accept(&served, Some(&token))
                );
                if wanted == served {
                    joined.expect("its own");
                    assert_eq!(accepted.expect("its own"), b"this");
                    continue;
                }
                let (joined, accepted) = (joined.unwrap_err(), accepted.unwrap_err());
                let text = |theirs: Service, ours: Service| {
                    format!(
                        "the other side uses service {}, this side {}: check the address",
                        theirs.purpose, ours.purpose
                    )
                };
                assert_eq!(joined.to_string(), text(served, wanted));
                assert_eq!(accepted.to_string(), text(wanted, served));
            }
        }
    }
}

/// A client that says the right purpose, and shows a proof that was made for another one
/// with the same token, about this very connection.
#[tokio::test]
async fn a_proof_for_one_purpose_is_none_for_another() {
    let (tls, token) = (Tls::new(), Token::new(SECRET));
    for mode in [None, Some(&tls)] {
        for made_for in Purpose::ALL {
            for served in Purpose::ALL {
                let (mut client, mut server) = ends(mode).await;
                let served = service(served);
                let shown = async {
                    let greeting = client.reader.next(PATIENCE).await.expect("it").to_vec();
                    let about = About {
                        service: &service(made_for),
                        greeting: &greeting,
                        binding: client.protection.binding(),
                    };
                    let (_, proof) = Prover::new(&token, &about, b"this").expect("a proof");
                    let join = Join {
                        purpose: served.purpose,
                        version: served.version,
                        word: Word::Proven(proof),
                    };
                    let sent = client.writer.send(&join.encode(), PATIENCE).await;
                    sent.expect("sent");
                    let answer = client.reader.next(PATIENCE).await.expect("an answer");
                    FromServer::decode(answer).expect("an answer")
                };
                let (answer, accepted) = tokio::join!(shown, server.accept(&served, Some(&token)));
                if made_for == served.purpose {
                    accepted.expect("the right one");
                    assert!(matches!(answer, FromServer::Welcome { .. }));
                    continue;
                }
                assert!(matches!(accepted, Err(Error::Proof)), "{accepted:?}");
                let refused = FromServer::refused(true, "wrong token");
                assert_eq!(answer, refused);
            }
        }
    }
}

/// Somebody in the middle, with a certificate that the client takes, passes a good proof
/// on to the server.
#[tokio::test]
async fn a_proof_is_none_within_another_tls_connection() {
    let (tls, token) = (Tls::new(), Token::new(SECRET));
    let service = service(Purpose::Move);
    let ((mut client, mut middle), (mut out, mut server)) = (tls.ends().await, tls.ends().await);
    let pass = async {
        let greeting = out.reader.next(PATIENCE).await.expect("it");
        middle.writer.send(greeting, PATIENCE).await.expect("sent");
        let proof = middle.reader.next(PATIENCE).await.expect("it");
        out.writer.send(proof, PATIENCE).await.expect("sent");
        let refused = out.reader.next(PATIENCE).await.expect("it");
        middle.writer.send(refused, PATIENCE).await.expect("sent");
    };
    let (joined, accepted, ()) = tokio::join!(
        client.join(&service, Some(&token)),
        server.accept(&service, Some(&token)),
        pass
    );
    assert!(matches!(accepted, Err(Error::Proof)), "{accepted:?}");
    let refused = joined.expect_err("passed on").to_string();
    assert!(refused.contains("wrong token"), "{refused}");
}

#[tokio::test]
async fn a_wrong_or_missing_token_is_reported_on_both_sides() {
    let tls = Tls::new();
    let (right, wrong) = (Token::new(SECRET), Token::new(b"another token of mine"));
    let service = service(Purpose::Gateway);
    for mode in [None, Some(&tls)] {
        let (mut client, mut server) = ends(mode).await;
        let (joined, accepted) = tokio::join!(
            client.join(&service, Some(&wrong)),
            server.accept(&service, Some(&right))
        );
        assert!(matches!(accepted, Err(Error::Proof)), "{accepted:?}");
        let text = joined.expect_err("wrong").to_string();
        assert_eq!(text, "the other side refused: wrong token");

        let (mut client, mut server) = ends(mode).await;
        let (joined, accepted) = tokio::join!(
            client.join(&service, None),
            server.accept(&service, Some(&right))
        );
        let text = joined.expect_err("none").to_string();
        assert_eq!(text, "the server requires a token: give --token-file");
        let text = accepted.expect_err("none").to_string();
        assert_eq!(text, "the client has no token");

        let (mut client, mut server) = ends(mode).await;
        let without = server.accept(&service, None);
        let (joined, accepted) = tokio::join!(client.join(&service, Some(&right)), without);
        assert!(matches!(accepted, Err(Error::TokenMissing(_))));
        let text = joined.expect_err("refused").to_string();
        assert_eq!(text, "the other side refused: not allowed");
    }
}

/// A server that has no token must not get a client to talk, whatever it says.
#[tokio::test]
async fn a_false_server_is_found_out() {
    let (token, service) = (Token::new(SECRET), service(Purpose::Coordinate));
    let greeting = |proof| {
        FromServer::Greeting(Greeting {
            purpose: service.purpose,
            version: service.version,
            nonce: [7; 32],
            proof,
        })
        .encode()
    };
    let (mut client, mut server) = ends(None).await;
    let sent = server.writer.send(&greeting(false), PATIENCE).await;
    sent.expect("sent");
    let joined = client.join(&service, Some(&token)).await;
    assert!(matches!(joined, Err(Error::TokenMissing(_))), "{joined:?}");

    for proof in [vec![], vec![0; 48]] {
        let (mut client, mut server) = ends(None).await;
        let answers = async {
            let sent = server.writer.send(&greeting(true), PATIENCE).await;
            sent.expect("sent");
            server.reader.next(PATIENCE).await.expect("Join");
            let welcome = FromServer::Welcome { proof }.encode();
            let sent = server.writer.send(&welcome, PATIENCE).await;
            sent.expect("sent");
        };
        let (joined, ()) = tokio::join!(client.join(&service, Some(&token)), answers);
        assert!(matches!(joined, Err(Error::Proof)), "{joined:?}");
    }
}

/// Before purposes, a frame was {1, the message, ...}, and the server spoke first as well.
#[tokio::test]
async fn peers_of_the_previous_version_get_a_message() {
    let (token, service) = (Token::new(SECRET), service(Purpose::Coordinate));
    // A client of it reads another version's number in the greeting, and leaves.
    let (mut client, mut server) = by_hand();
    let leaves = async {
        let length = client.read_u32_le().await.expect("a frame") as usize;
        let mut body = vec![0; length];
        client.read_exact(&mut body).await.expect("a frame");
        drop(client);
        body[0]
    };
    let (version, accepted) = tokio::join!(leaves, server.accept(&service, Some(&token)));
    assert_eq!(version, VERSION);
    let text = accepted.expect_err("it left").to_string();
    assert!(text.contains("does not speak version 2"), "{text}");

    // A server of it says Hello, with a nonce, and is told a version that it can read.
    let (mut server, client) = by_hand();
    let mut client = client;
    let answers = async {
        let mut hello = vec![35, 0, 0, 0, 1, 0];
        hello.extend([9; 32]);
        hello.push(1);
        server.write_all(&hello).await.expect("sent");
        let length = server.read_u32_le().await.expect("a frame") as usize;
        let mut body = vec![0; length];
        server.read_exact(&mut body).await.expect("a frame");
        assert!(length >= 2, "it takes no shorter ones");
        body[0]
    };
    let (joined, version) = tokio::join!(client.join(&service, Some(&token)), answers);
    assert_eq!(version, VERSION);
    let text = joined.expect_err("another version").to_string();
    let message = "the other side speaks version 1 of the handshake, this one version 2: ";
    assert!(text.starts_with(message), "{text}");
}

#[tokio::test]
async fn another_version_of_a_service_is_reported_on_both_sides() {
    let (token, ours) = (Token::new(SECRET), service(Purpose::Move));
    let newer = Service { version: 8, ..ours };
    let (mut client, mut server) = ends(None).await;
    let (joined, accepted) = tokio::join!(
        client.join(&newer, Some(&token)),
        server.accept(&ours, Some(&token))
    );
    let text = joined.expect_err("another version").to_string();
    assert!(
        text.contains("speaks version 7 of move, this one version 8"),
        "{text}"
    );
    let text = accepted.expect_err("another version").to_string();
    assert!(
        text.contains("speaks version 8 of move, this one version 7"),
        "{text}"
    );
}

#[tokio::test]
async fn frames_are_short_before_and_bounded_after() {
    let (token, service) = (Token::new(SECRET), service(Purpose::Coordinate));
    let (mut stranger, mut server) = by_hand();
    let announced = stranger.write_all(&2000u32.to_le_bytes()).await;
    announced.expect("sent");
    let accepted = server.accept(&service, Some(&token)).await;
    assert!(
        matches!(
            accepted,
            Err(Error::Frame(FrameError::Length {
                length: 2000,
                most: 1024,
                ..
            }))
        ),
        "{accepted:?}"
    );

    let tls = Tls::new();
    for mode in [None, Some(&tls)] {
        let (mut client, mut server) = ends(mode).await;
        let (joined, accepted) = tokio::join!(
            client.join(&service, Some(&token)),
            server.accept(&service, Some(&token))
        );
        joined.expect("let in");
        accepted.expect("let in");
        for length in [1, 2000, service.most_frame] {
            let body = vec![5; length];
            let (sent, read) = tokio::join!(
                client.writer.send(&body, PATIENCE),
                server.reader.next(PATIENCE)
            );
            sent.expect("sent");
            assert!(read.expect("allowed") == body);
        }
        let body = vec![5; service.most_frame + 1];
        let (sent, read) = tokio::join!(
            client.writer.send(&body, PATIENCE),
            server.reader.next(PATIENCE)
        );
        sent.expect("sent");
        assert!(matches!(read, Err(FrameError::Length { .. })));
    }
}

/// What is encrypted cannot be read on its way, and cannot be changed.
#[tokio::test]
async fn without_tls_the_token_makes_a_connection_private() {
    let (token, service) = (Token::new(SECRET), service(Purpose::Coordinate));
    let ((mut client, mut middle), (mut out, mut server)) = (ends(None).await, ends(None).await);
    let mut seen = Vec::new();
    let mut pass = async |from: &mut BoxedReader, to: &mut BoxedWriter, change| {
        let mut frame = from.next(PATIENCE).await.expect("a frame").to_vec();
        frame[0] ^= change;
        seen.extend_from_slice(&frame);
        to.send(&frame, PATIENCE).await.expect("sent");
    };
    let passed = async {
        pass(&mut out.reader, &mut middle.writer, 0).await;
        pass(&mut middle.reader, &mut out.writer, 0).await;
        pass(&mut out.reader, &mut middle.writer, 0).await;
        pass(&mut middle.reader, &mut out.writer, 0).await;
        pass(&mut middle.reader, &mut out.writer, 1).await;
    };
    let asked = async {
        client.join(&service, Some(&token)).await.expect("let in");
        for _ in 0..2 {
            let sent = client.writer.send(b"a secret question", PATIENCE).await;
            sent.expect("sent");
        }
    };
    let left = async {
        let wanted = server.accept(&service, Some(&token)).await;
        assert_eq!(wanted.expect("let in"), b"this");
        let first = server.reader.next(PATIENCE).await.expect("untouched");
        assert_eq!(first, b"a secret question");
        let second = server.reader.next(PATIENCE).await;
        assert!(matches!(second, Err(FrameError::Seal)), "{second:?}");
    };
    tokio::join!(passed, asked, left);
    let read = |word: &[u8]| seen.windows(word.len()).any(|part| part == word);
    assert!(!read(b"question") && !read(b"this"));
}

#[tokio::test(start_paused = true)]
async fn a_silent_side_is_not_waited_for() {
    let (token, service) = (Token::new(SECRET), service(Purpose::Coordinate));
    let (_silent, mut server) = by_hand();
    let accepted = server.accept(&service, Some(&token)).await;
    let slow = |error| matches!(error, Error::Frame(FrameError::Slow(PATIENCE)));
    assert!(slow(accepted.expect_err("nothing was said")));
    let (mut half, mut client) = by_hand();
    half.write_all(&[200, 0]).await.expect("sent");
    assert!(slow(client.join(&service, Some(&token)).await.unwrap_err()));
}

/// A round trip less: where the server is known, what follows a client's word goes with it.
#[tokio::test]
async fn data_after_a_word_does_not_wait_for_the_answer() {
    let (token, service) = (Token::new(SECRET), service(Purpose::Move));
    let (one, other) = duplex(PIPE);
    let (client, server) = (
        End::new(one, Protection::Kernel),
        End::new(other, Protection::Kernel),
    );
    let in_pipe = (client, server, None);
    let (client, server) = Tls::new().ends().await;
    let in_tls = (client, server, Some(&token));
    for (mut client, mut server, token) in [in_pipe, in_tls] {
        let is_kernel = server.protection == Protection::Kernel;
        let greeted = Greeted::new(&service, token, is_kernel).expect("random");
        let greet = async |server: &mut End| {
            let sent = server.writer.send(&greeted.body, PATIENCE).await;
            sent.expect("sent");
        };
        // In a pipe not even the greeting is waited for.
        if !is_kernel {
            greet(&mut server).await;
        }
        let End {
            reader,
            writer,
            protection,
        } = &mut client;
        let joining = begin(reader, writer, &service, token, protection, b"this").await;
        let joining = joining.expect("said");
        writer.send(b"more", PATIENCE).await.expect("sent");
        if is_kernel {
            greet(&mut server).await;
        }
        let End {
            reader,
            writer,
            protection,
        } = &mut server;
        let accepted = accept_greeted(reader, writer, &service, token, protection, &greeted).await;
        assert_eq!(accepted.expect("let in"), b"this");
        assert_eq!(reader.next(PATIENCE).await.expect("it is there"), b"more");
        let answered = joining.answered(&mut client.reader).await;
        assert!(answered.expect("let in").is_none(), "no keys are needed");
    }
}

/// The server's greeting is in its first flight of TLS, before the client's second one.
#[test]
fn a_greeting_goes_with_the_handshake_of_tls() {
    let Tls(acceptor, connector) = Tls::new();
    let greeted = Greeted::new(&service(Purpose::Move), None, false).expect("random");
    let mut server = rustls::ServerConnection::new(acceptor.config().clone()).expect("TLS");
    server.writer().write_all(&greeted.frame()).expect("memory");
    let name = "localhost".try_into().expect("a name");
    let mut client = rustls::ClientConnection::new(connector.config().clone(), name).expect("TLS");
    let mut flight = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut flight).expect("memory");
    }
    server.read_tls(&mut &flight[..]).expect("memory");
    server.process_new_packets().expect("hello");
    flight.clear();
    while server.wants_write() {
        server.write_tls(&mut flight).expect("memory");
    }
    let mut flight = &flight[..];
    while !flight.is_empty() {
        client.read_tls(&mut flight).expect("memory");
        client.process_new_packets().expect("the server's part");
    }
    let mut came = vec![0; greeted.frame().len()];
    client.reader().read_exact(&mut came).expect("the greeting");
    assert_eq!(came, greeted.frame());
    assert!(server.is_handshaking());
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The page as a scraper gets it, from outside.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use paceline_metrics::{Address, Page, Server};

fn ask(mut stream: impl Read + Write, request: &str) -> String {
    stream.write_all(request.as_bytes()).expect("asked");
    let mut answer = String::new();
    // One that is hung up on before it is answered has an empty answer.
    let _ = stream.read_to_string(&mut answer);
    answer
}

const SCRAPE: &str = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

fn counting() -> (Arc<AtomicU64>, impl FnMut() -> Page + Send + 'static) {
    let made = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&made);
    let make = move || {
        let mut page = Page::default();
        let number = count.fetch_add(1, Ordering::SeqCst) + 1;
        page.counter("pages", "Pages made", number);
        page
    };
    (made, make)
}

fn tcp(server: &Server) -> TcpStream {
    match server.address() {
        Address::Loopback(address) => TcpStream::connect(address).expect("served"),
        Address::Unix(path) => panic!("{path:?}"),
    }
}

#[test]
fn a_loopback_address_serves_both_formats_and_nothing_else() {
    let address = "127.0.0.1:0".parse().expect("an address");
    let (_, make) = counting();
    let server = Server::start(&address, make).expect("served");
    let text = ask(tcp(&server), SCRAPE);
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    assert!(
        text.contains("Content-Type: text/plain; version=0.0.4"),
        "{text}"
    );
    assert!(
        text.contains("# TYPE paceline_pages_total counter"),
        "{text}"
    );
    let open = "GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text\r\n\r\n";
    let open = ask(tcp(&server), open);
    assert!(open.contains("Content-Type: application/openmetrics-text; version=1.0.0"));
    assert!(open.ends_with("# EOF\n"), "{open}");
    let other = ask(tcp(&server), "GET /secret HTTP/1.1\r\n\r\n");
    assert!(other.starts_with("HTTP/1.1 404"), "{other}");
}

#[test]
fn callers_in_a_loop_do_not_make_a_page_each() {
    let address = "127.0.0.1:0".parse().expect("an address");
    let (made, make) = counting();
    let server = Server::start(&address, make).expect("served");
    let began = std::time::Instant::now();
    for _ in 0..50 {
        assert!(ask(tcp(&server), SCRAPE).contains("paceline_pages_total"));
    }
    // One for each second that it took, and one.
    let most = began.elapsed().as_secs() + 2;
    assert!(made.load(Ordering::SeqCst) <= most, "{made:?} of {most}");
}

#[test]
fn silent_callers_do_not_accumulate() {
    let address = "127.0.0.1:0".parse().expect("an address");
    let (_, make) = counting();
    let server = Server::start(&address, make).expect("served");
    let silent: Vec<TcpStream> = (0..100).map(|_| tcp(&server)).collect();
    // All but those who are waited for are hung up on.
    let mut open = 0;
    for mut stream in silent {
        match stream.read(&mut [0; 16]) {
            Ok(0) | Err(_) => {}
            Ok(_) => open += 1,
        }
    }
    assert_eq!(open, 0, "nobody was answered");
    let answered = (0..600).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        ask(tcp(&server), SCRAPE).starts_with("HTTP/1.1 200")
    });
    assert!(answered, "never again");
}

#[test]
fn a_socket_is_for_owner_and_group_and_goes_with_its_server() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("metrics.sock");
    let address: Address = path.to_str().expect("UTF-8").parse().expect("an address");
    let server = Server::start(&address, counting().1).expect("served");
    let mode = path.metadata().expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    let text = ask(UnixStream::connect(&path).expect("served"), SCRAPE);
    assert!(text.contains("paceline_pages_total 1"), "{text}");
    // Another one is no reason to take it away.
    assert!(Server::start(&address, counting().1).is_err());
    drop(server);
    assert!(!path.exists());
}

#[test]
fn a_killed_servers_socket_is_replaced_and_a_file_is_not() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("metrics.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).expect("bound"));
    let address: Address = path.to_str().expect("UTF-8").parse().expect("an address");
    let server = Server::start(&address, counting().1).expect("in place of the old one");
    drop(server);
    std::fs::write(&path, "precious").expect("written");
    let error = Server::start(&address, counting().1).expect_err("a file");
    assert!(error.to_string().contains("is no socket"), "{error}");
    assert_eq!(std::fs::read_to_string(&path).expect("kept"), "precious");
}

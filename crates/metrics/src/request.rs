// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The little of HTTP/1.1 that a scrape needs: one request, one answer, the end.

use std::io::{self, Read};
use std::time::Instant;

use crate::page::Form;

/// A request's head at most, bytes. Prometheus sends some 300.
const LONGEST: usize = 8192;
/// Headers at most.
const MOST_HEADERS: usize = 64;

/// The request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// The page; without its text for HEAD.
    Page { form: Form, head: bool },
    /// Something else: the status line of the answer.
    Nothing(&'static str),
}

/// Reads a request's head, until `deadline` at the latest; the stream's own time-out has to end
/// each read.
///
/// # Errors
/// Where the caller is too slow or hangs up.
pub(crate) fn read(stream: &mut impl Read, deadline: Instant) -> io::Result<Asked> {
    let mut bytes = Vec::new();
    let mut part = [0; 1024];
    loop {
        let length = stream.read(&mut part)?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes.extend_from_slice(&part[..length]);
        if let Some(asked) = parse(&bytes) {
            return Ok(asked);
        }
        if bytes.len() >= LONGEST {
            return Ok(Asked::Nothing("431 Request Header Fields Too Large"));
        }
        if Instant::now() >= deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
}

/// The request; none while it is not whole.
fn parse(bytes: &[u8]) -> Option<Asked> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return None,
        Err(_) => return Some(Asked::Nothing("400 Bad Request")),
    }
    let path = request.path.unwrap_or_default();
    if path.split('?').next() != Some("/metrics") {
        return Some(Asked::Nothing("404 Not Found"));
    }
    let head = match request.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Some(Asked::Nothing("405 Method Not Allowed")),
    };
    let accepts = |header: &httparse::Header| {
        header.name.eq_ignore_ascii_case("accept")
            && String::from_utf8_lossy(header.value).contains("application/openmetrics-text")
    };
    let form = match request.headers.iter().any(accepts) {
        true => Form::OpenMetrics,
        false => Form::Text,
    };
    Some(Asked::Page { form, head })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scrape_gets_the_form_that_it_accepts() {
        let prometheus = b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1\r\n\r\n";
        let form = Form::OpenMetrics;
        assert_eq!(parse(prometheus), Some(Asked::Page { form, head: false }));
        let curl = b"HEAD /metrics?x=1 HTTP/1.1\r\nAccept: */*\r\n\r\n";
        let form = Form::Text;
        assert_eq!(parse(curl), Some(Asked::Page { form, head: true }));
        assert_eq!(parse(&curl[..curl.len() - 1]), None);
    }

    #[test]
    fn other_requests_get_an_error_status() {
        for (bytes, status) in [
            ("GET / HTTP/1.1\r\n\r\n", "404"),
            ("GET /metricsx HTTP/1.1\r\n\r\n", "404"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
            ("\u{1}\u{2}\u{3}\r\n\r\n", "400"),
        ] {
            match parse(bytes.as_bytes()) {
                Some(Asked::Nothing(line)) => assert!(line.starts_with(status), "{bytes}: {line}"),
                other => panic!("{bytes}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_head_without_end_is_cut_off() {
        let soon = Instant::now() + std::time::Duration::from_secs(600);
        let mut endless = b"GET /metrics HTTP/1.1\r\nA: "
            .iter()
            .copied()
            .chain(std::iter::repeat(b'a'))
            .take(100_000)
            .collect::<std::collections::VecDeque<u8>>();
        let asked = read(&mut endless, soon).expect("an answer");
        assert!(matches!(asked, Asked::Nothing(line) if line.starts_with("431")));
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands of the peer program that make messages of more than one write.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// How long a sender sleeps until it looks again whether all is acknowledged.
const LOOK: Duration = Duration::from_micros(100);

/// The answer to a command, if it is one of these.
pub fn carry_out(words: &[&str], stream: &mut TcpStream) -> Option<String> {
    let number = |text: &str| text.parse().expect("a number");
    match words {
        ["pace", bytes_per_second] => pace(stream, number(bytes_per_second)),
        ["messages", seed, count, most] => {
            for length in lengths(number(seed) as u64, number(count), number(most)) {
                stream.write_all(&vec![0; length]).unwrap();
                while unacknowledged(stream) != 0 {
                    std::thread::sleep(LOOK);
                }
            }
        }
        ["write-write-read", bytes, count] => {
            for _ in 0..number(count) {
                for _ in 0..2 {
                    stream.write_all(&vec![0; number(bytes)]).unwrap();
                }
                stream.read_exact(&mut [0]).unwrap();
            }
        }
        ["answer-pairs", bytes, count] => {
            for _ in 0..number(count) {
                stream.read_exact(&mut vec![0; 2 * number(bytes)]).unwrap();
                stream.write_all(&[0]).unwrap();
            }
        }
        ["sleep-ms", time] => std::thread::sleep(Duration::from_millis(number(time) as u64)),
        ["tcp-options"] => return Some(tcp_options(stream).to_string()),
        ["nodelay"] => return Some(stream.nodelay().unwrap().to_string()),
        ["shut"] => stream.shutdown(std::net::Shutdown::Both).unwrap(),
        _ => return None,
    }
    Some("done".to_owned())
}

/// Lengths of messages, 1 to `most` bytes: the same for the same seed (xorshift64).
pub fn lengths(seed: u64, count: usize, most: usize) -> impl Iterator<Item = usize> {
    let mut state = seed;
    (0..count).map(move |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        1 + (state % most as u64) as usize
    })
}

/// SO_MAX_PACING_RATE: the kernel's timer spaces the segments.
fn pace(stream: &TcpStream, bytes_per_second: usize) {
    let rate = bytes_per_second as u64;
    // SAFETY: the option takes eight bytes.
    let result = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            (&raw const rate).cast(),
            size_of_val(&rate) as libc::socklen_t,
        )
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// Bytes that the peer has not acknowledged (SIOCOUTQ).
fn unacknowledged(stream: &TcpStream) -> libc::c_int {
    let mut bytes = 0;
    // SAFETY: the request writes one int.
    let result = unsafe { libc::ioctl(stream.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    assert_eq!(result, 0);
    bytes
}

/// tcpi_options of struct tcp_info (include/uapi/linux/tcp.h).
fn tcp_options(stream: &TcpStream) -> u8 {
    use std::os::fd::AsRawFd;
    let mut info = [0u8; 8];
    let mut size = info.len() as libc::socklen_t;
    // SAFETY: `info` has room for `size` bytes.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &mut size,
        )
    };
    assert_eq!(result, 0);
    info[5]
}

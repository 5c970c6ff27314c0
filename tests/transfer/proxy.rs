// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections to a receiver that pass through here, and may break.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;

pub struct Proxy {
    pub address: SocketAddr,
    /// Connections that were made.
    pub made: Arc<AtomicUsize>,
}

impl Proxy {
    /// In front of `receiver`. The first connection that has carried so many bytes to it is cut;
    /// the others are not.
    pub fn new(receiver: &str, cut_after: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let (made, is_cut) = (
            Arc::new(AtomicUsize::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let (count, receiver) = (Arc::clone(&made), receiver.to_owned());
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(&receiver)) else {
                    return;
                };
                count.fetch_add(1, Ordering::SeqCst);
                let again = |stream: &TcpStream| stream.try_clone().expect("a descriptor");
                let (from, to) = (again(&server), again(&client));
                std::thread::spawn(move || pass(from, to, usize::MAX, &AtomicBool::new(false)));
                let is_cut = Arc::clone(&is_cut);
                std::thread::spawn(move || pass(client, server, cut_after, &is_cut));
            }
        });
        Self { address, made }
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, cut_after: usize, is_cut: &AtomicBool) {
    let (mut buffer, mut passed) = ([0; 65536], 0);
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
        passed += length;
        if passed > cut_after && !is_cut.swap(true, Ordering::SeqCst) {
            break;
        }
    }
    for end in [from, to] {
        let _ = end.shutdown(Shutdown::Both);
    }
}

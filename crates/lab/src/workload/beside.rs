// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An endless flow beside the measured one.

use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};

use paceline_net::clock::{now_ns, sleep_until};
use paceline_net::connection::Congestion;
use paceline_net::{Doing, Namespace};

use crate::host::connection::{connect, receive_into, run_promptly, send, Counters};
use crate::CaseError;

/// The flow, from its connection on.
pub(super) struct Beside {
    sender: TcpStream,
    receiver: TcpStream,
    threads: Vec<JoinHandle<()>>,
    /// From when on it counts, and the bytes that had arrived by then.
    since_ns: u64,
    before: u64,
}

impl Beside {
    /// Connects from `host` with the congestion control `name`.
    pub fn connect(
        host: &Namespace,
        (listener, address): (&TcpListener, SocketAddr),
        name: &str,
    ) -> Result<Self, CaseError> {
        let own = Congestion {
            asked: Some(name.to_owned()),
            expected: Some(name.to_owned()),
        };
        let (sender, receiver) = connect(host, listener, address, &own)?;
        Ok(Beside {
            sender,
            receiver,
            threads: Vec::new(),
            since_ns: 0,
            before: 0,
        })
    }

    /// It begins at this time.
    pub fn start(&mut self, start_ns: u64) -> Result<(), CaseError> {
        let mut to_send = self.sender.try_clone().doing("duplicating a socket")?;
        let mut to_receive = self.receiver.try_clone().doing("duplicating a socket")?;
        let sending = thread::spawn(move || {
            sleep_until(start_ns);
            // Ends with the error that the shutdown makes.
            drop(send(&mut to_send, u64::MAX));
        });
        let receiving = thread::spawn(move || {
            run_promptly(true);
            drop(receive_into(
                &mut to_receive,
                u64::MAX,
                &mut vec![0; 1 << 20],
            ));
        });
        self.threads = vec![sending, receiving];
        self.since_ns = start_ns;
        Ok(())
    }

    /// It counts from now on.
    pub fn count(&mut self) -> Result<(), CaseError> {
        self.before = Counters::of(&self.receiver)?.received_bytes;
        self.since_ns = now_ns();
        Ok(())
    }

    /// Ends it. Bytes that had arrived, and over which time, nanoseconds.
    pub fn stop(self) -> Result<(u64, u64), CaseError> {
        let took_ns = now_ns() - self.since_ns;
        let received = Counters::of(&self.receiver)?.received_bytes - self.before;
        Ok((received, took_ns))
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        for stream in [&self.receiver, &self.sender] {
            drop(stream.shutdown(Shutdown::Both));
        }
        for thread in self.threads.drain(..) {
            if let Err(panic) = thread.join() {
                // One panic is enough.
                if !thread::panicking() {
                    std::panic::resume_unwind(panic);
                }
            }
        }
    }
}

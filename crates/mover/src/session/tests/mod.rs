// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Both sides in one process, over pipes that a test may damage.

mod attributes;
mod bounds;
mod changes;
mod damage;
mod early;
mod hostile;
mod late;
mod names;
mod rsync;
mod seeds;
mod sparse;

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{duplex, split, AsyncRead, ReadBuf};
use tokio::sync::mpsc;

use super::fixtures::{controls, progress, runtime, Events, SECRET};
use super::pool::Supply;
use super::progress::{Event, Progress};
use super::sink::{self, Bounds, Target};
use super::source;
use paceline_conduit::control::BoxedRead;
use paceline_conduit::stream::{Stream, StreamReader, StreamWriter};
use paceline_conduit::Result;
use paceline_transfer::read::{Filter, Tops};
use paceline_transfer::wire::{Options, Summary};

const ID: [u8; 32] = [4; 32];
/// Of a pipe, bytes: less than a frame, so that streams wait for each other.
const PIPE: usize = 100_000;

/// What happens to the bytes of a data connection.
#[derive(Clone, Default)]
struct Damage {
    /// One bit is flipped in so many bytes on average; 0: none.
    every: u64,
    seed: u64,
    /// It breaks after so many bytes.
    cut: Option<u64>,
    /// One bit, in one byte of all connections together.
    hit: Option<Arc<Hit>>,
    /// Acknowledgements are damaged, and not what they are of.
    of_acks: bool,
}

/// See [`Damage::hit`].
struct Hit {
    /// Bytes before it.
    at: u64,
    bit: u8,
    /// Bytes that came.
    read: AtomicU64,
}

impl Hit {
    /// Changes the one among these bytes, if it is.
    fn meets(&self, bytes: &mut [u8]) {
        let before = self.read.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let place = self.at.checked_sub(before).map(|place| place as usize);
        if let Some(byte) = place.and_then(|place| bytes.get_mut(place)) {
            *byte ^= 1 << self.bit;
        }
    }
}

/// What reads through it is damaged.
struct Damaged<R> {
    inner: R,
    damage: Damage,
    /// Bytes up to the next one that is hit.
    left: u64,
    read: u64,
}

impl<R> Damaged<R> {
    fn new(inner: R, damage: Damage) -> Self {
        let mut new = Self {
            inner,
            damage,
            left: 0,
            read: 0,
        };
        new.left = new.draw();
        new
    }

    fn draw(&mut self) -> u64 {
        let Damage { every, seed, .. } = &mut self.damage;
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (*seed >> 20) % (2 * *every).max(1)
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Damaged<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(context, buffer);
        self.read += (buffer.filled().len() - before) as u64;
        if let Some(hit) = &self.damage.hit {
            hit.meets(&mut buffer.filled_mut()[before..]);
        }
        if self.damage.cut.is_some_and(|cut| self.read > cut) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if self.damage.every == 0 {
            return polled;
        }
        let mut at = before as u64 + self.left;
        while at < buffer.filled().len() as u64 {
            let bit = self.damage.seed % 8;
            buffer.filled_mut()[at as usize] ^= 1 << bit;
            at += 1 + self.draw();
        }
        self.left = at - buffer.filled().len() as u64;
        polled
    }
}

/// Both ends of a data connection, which damages what goes to the sink, or what comes back.
fn stream(number: u16, damage: Damage) -> (Stream, Stream) {
    let (one, other) = duplex(PIPE);
    let socket = || OwnedFd::from(File::open("/dev/null").expect("there"));
    let end = |end, damage| {
        let (read, write) = split(end);
        let read: BoxedRead = Box::new(Damaged::new(read, damage));
        Stream {
            number,
            reader: StreamReader::Plain(read, Vec::new()),
            writer: StreamWriter::Plain(Box::new(write)),
            socket: socket(),
            guard: None,
        }
    };
    match damage.of_acks {
        true => (end(one, damage), end(other, Damage::default())),
        false => (end(one, Damage::default()), end(other, damage)),
    }
}

fn sink_job(target: Target, options: &Options) -> sink::Job {
    sink::Job {
        target,
        filter: Filter::default(),
        options: options.clone(),
        id: ID,
        secret: SECRET,
    }
}

/// One that writes to `in` below `root`.
fn below(root: &Path, bounds: Bounds) -> sink::Job {
    let target = Target::Below(root.to_owned(), b"/in".to_vec(), bounds);
    sink_job(target, &Options::default())
}

/// Moves `from` to `to` over damaged data connections.
async fn transfer(
    from: &Path,
    to: &Path,
    options: &Options,
    damage: Damage,
) -> (Result<Summary>, Result<Summary>, Events) {
    let (mut source, mut sink) = controls().await;
    let (one, other) = (mpsc::channel(16), mpsc::channel(16));
    for number in 0..options.streams {
        let seed = damage.seed + u64::from(number) * 7919;
        let (sends, receives) = stream(
            number,
            Damage {
                seed,
                ..damage.clone()
            },
        );
        assert!(one.0.try_send(sends).is_ok() && other.0.try_send(receives).is_ok());
    }
    let (progress, events) = progress();
    let job = source::Job {
        tops: Tops::open(&[from.to_owned()])
            .map_err(|(_, error)| error)
            .expect("there"),
        filter: Filter::default(),
        options: options.clone(),
        secret: SECRET,
        tuning: None,
    };
    let sending = async {
        drop(one.0);
        let supply = Supply {
            are_early: damage.seed.is_multiple_of(2),
            ..one.1.into()
        };
        let result = source::run(&mut source.inbox, &source.outbox, supply, job, progress).await;
        source.end(&result).await;
        result
    };
    let job = sink_job(Target::Operator(to.to_owned()), options);
    let receiving = async {
        drop(other.0);
        let progress = Progress::new(|_| {});
        let result = sink::run(&mut sink.inbox, &sink.outbox, other.1.into(), job, progress).await;
        sink.end(&result).await;
        result
    };
    // Each on a thread of its own, as in two processes.
    let (sent, received) = tokio::join!(sending, receiving);
    (sent, received, events)
}

/// Tells another thread that all is over, also after a panic.
struct Over<'a>(&'a std::sync::atomic::AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

/// Bytes that differ everywhere.
fn bytes(length: usize, seed: u64) -> Vec<u8> {
    let mut output = vec![0; length];
    let mut hasher = blake3::Hasher::new();
    hasher.update(&seed.to_le_bytes());
    hasher.finalize_xof().fill(&mut output);
    output
}

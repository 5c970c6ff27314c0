// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One stream: takes a bite, reads it, sends it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::block_in_place;

use super::{Source, State, FIRST_DELAY};
use crate::fault;
use crate::session::progress::{shown, Event};
use paceline_conduit::stream::{tags, Stream, StreamReader, StreamWriter};
use paceline_conduit::{Error, Result};
use paceline_transfer::chunk::{hash_bite, Bite, Work, CV, LEAST_BITE};
use paceline_transfer::read::{extents, open, read_bite, read_small, Small};
use paceline_transfer::wire::{
    pack_sparse, Ack, Frame, Header, Kind, PackItem, Tags, HEADER, TRAILER,
};

/// An idle stream looks so often whether a bite of another one is late.
const LOOK: Duration = Duration::from_millis(20);
/// An acknowledgement is late when it takes twice the usual, and this.
const LATE: Duration = Duration::from_millis(50);
/// Weight of a new delay in the smoothed one: 1/8, as of round trips (RFC 6298).
const WEIGHT: u32 = 8;

/// A connection on which so many frames in a row come damaged is of no use.
const DAMAGED: u32 = 16;

/// Frames on their way, by number.
type Flying = Arc<Mutex<HashMap<u64, Flight>>>;

struct Flight {
    bite: u64,
    /// Its content: of a pack, the files that could be read.
    work: Work,
    since: Duration,
    payload: u64,
}

impl Source {
    /// Serves one data connection, until all is over or it breaks.
    pub(super) async fn stream(self: Arc<Self>, stream: Stream) -> Result<()> {
        let Stream {
            number,
            reader,
            mut writer,
            socket,
            guard: _guard,
        } = stream;
        let carrier = usize::from(number);
        {
            let mut state = self.lock();
            state.queue.open(carrier);
            state.sockets.insert(number, socket);
            state.share_rate();
        }
        let (frame_tags, ack_tags) = tags(&self.secret, number);
        let flying = Flying::default();
        // A task of its own: while a socket takes all, the sending one does not pause.
        let mut acks = {
            let (source, flying) = (Arc::clone(&self), Arc::clone(&flying));
            tokio::spawn(async move { source.read_acks((number, reader), ack_tags, &flying).await })
        };
        let result = tokio::select! {
            sent = self.send_all(carrier, &mut writer, frame_tags, &flying) => sent,
            read = &mut acks => read.unwrap_or(Err(Error::Unexpected("acknowledgements ended"))),
        };
        acks.abort();
        writer.close().await;
        let mut state = self.lock();
        state.queue.close(carrier);
        state.sockets.remove(&number);
        state.share_rate();
        let is_retired = state.retired.remove(&number);
        let mut flying = flying.lock().unwrap_or_else(PoisonError::into_inner);
        // The other side closes it as soon as it has acknowledged all.
        let is_done = is_retired && flying.is_empty();
        for (_, flight) in flying.drain() {
            state.sent = state.sent.saturating_sub(flight.payload);
            self.landed(&mut state, &flight.work);
        }
        self.wake.notify_waiters();
        match is_done {
            true => Ok(()),
            false => result,
        }
    }

    /// Sends bites until all is over, or the stream is to end: then it waits for their
    /// acknowledgements, so that nothing is sent twice.
    async fn send_all(
        &self,
        carrier: usize,
        writer: &mut StreamWriter,
        tags: Tags,
        flying: &Flying,
    ) -> Result<()> {
        self.send_bites(carrier, writer, tags, flying).await?;
        loop {
            let woken = self.wake.notified();
            let is_landed = {
                let flying = flying.lock().unwrap_or_else(PoisonError::into_inner);
                flying.is_empty()
            };
            if is_landed || self.lock().is_over {
                return Ok(());
            }
            let _ = tokio::time::timeout(LOOK, woken).await;
        }
    }

    async fn send_bites(
        &self,
        carrier: usize,
        writer: &mut StreamWriter,
        mut tags: Tags,
        flying: &Flying,
    ) -> Result<()> {
        let mut body = Vec::new();
        loop {
            let is_idle = || {
                let flying = flying.lock().unwrap_or_else(PoisonError::into_inner);
                // A pack may have less: of files that the walk had found by then.
                flying.values().map(|flight| flight.payload).sum::<u64>() < LEAST_BITE / 2
            };
            let Some(bite) = self.next_bite(carrier, is_idle).await else {
                break;
            };
            let Some((header, cv, work)) = block_in_place(|| self.read(&bite, &mut body)) else {
                continue;
            };
            let number = Frame::seal(&mut body, &header, &cv, &mut tags);
            let flight = Flight {
                bite: bite.id,
                work,
                since: self.now(),
                payload: header.payload.into(),
            };
            note(flying, number, flight);
            fault::point("source-sends");
            writer.send(&body).await?;
            block_in_place(|| self.after(&bite));
        }
        body.clear();
        body.resize(HEADER, 0);
        let end = Header::without_file(Kind::End, 0);
        Frame::seal(&mut body, &end, &[0; 32], &mut tags);
        debug_assert_eq!(body.len(), HEADER + TRAILER);
        writer.send(&body).await
    }

    /// `None` when all is over, or the stream is to end.
    async fn next_bite(&self, carrier: usize, is_idle: impl Fn() -> bool) -> Option<Bite> {
        loop {
            let woken = self.wake.notified();
            {
                let mut state = self.lock();
                if state.is_over || state.retired.contains(&(carrier as u16)) {
                    return None;
                }
                // One bite of each before the sink has answered: all begin in the first round trip.
                let may = state.is_taken || is_idle();
                if may && state.sent < state.credit {
                    let late = 2 * state.ack_delay.unwrap_or(FIRST_DELAY) + LATE;
                    if let Some(bite) = state.queue.take(carrier, self.now(), late) {
                        return Some(bite);
                    }
                }
            }
            let _ = tokio::time::timeout(LOOK, woken).await;
        }
    }

    /// A frame's body up to its payload's end, header not filled in, and what it carries; `None`
    /// if there is nothing to be sent after all.
    fn read(&self, bite: &Bite, body: &mut Vec<u8>) -> Option<(Header, CV, Work)> {
        body.clear();
        body.resize(HEADER, 0);
        let read = match &bite.work {
            Work::Range {
                file,
                size,
                attempt,
                offset,
                length,
            } => self
                .read_range(*file, *attempt, (*offset, *length, *size), body)
                .map(|(header, cv)| (header, cv, bite.work.clone())),
            Work::Pack(files) => self.read_pack(files, body),
        };
        let mut state = self.lock();
        match &read {
            None => {
                // Unless it is a copy of one that is on its way.
                let had = state.queue.have(bite.id);
                if let (Some((_, bytes)), Work::Pack(_)) = (had, &bite.work) {
                    self.progress.done(bytes, 0);
                }
            }
            Some((header, ..)) => {
                state.sent += u64::from(header.payload);
                if let Work::Range { file, .. } = bite.work {
                    let file = state.files.get_mut(&file);
                    if let Some(large) = file.and_then(|file| file.large.as_mut()) {
                        large.unacked += 1;
                    }
                }
            }
        }
        read
    }

    fn read_range(
        &self,
        n: u64,
        attempt: u16,
        (offset, length, size): (u64, u64, u64),
        body: &mut Vec<u8>,
    ) -> Option<(Header, CV)> {
        let (place, stamp, dense, held) = {
            let state = self.lock();
            let file = state.files.get(&n)?;
            let large = file
                .large
                .as_ref()
                .filter(|large| large.attempt == attempt)?;
            (
                file.place.clone(),
                file.stamp,
                file.dense,
                large.file.clone(),
            )
        };
        let file = match held {
            Some(file) => file,
            None => match open(&place) {
                Ok((file, now, _)) if now == stamp => {
                    let file = Arc::new(file);
                    let mut state = self.lock();
                    let own = state.files.get_mut(&n)?;
                    own.large.as_mut()?.file = Some(Arc::clone(&file));
                    file
                }
                Ok(_) => {
                    self.changed(n, attempt);
                    return None;
                }
                Err(error) => {
                    self.unreadable(n, &error);
                    return None;
                }
            },
        };
        match read_bite(&file, offset, length, body) {
            Ok(true) => {}
            Ok(false) => {
                self.changed(n, attempt);
                return None;
            }
            Err(error) => {
                self.unreadable(n, &error);
                return None;
            }
        }
        let cv = hash_bite(&body[HEADER..], offset, size);
        let kind = match dense {
            true => Kind::Chunk,
            false => sparse(&extents(&file, offset, length), length, body),
        };
        if !self.remember(n, attempt, (offset, length), cv) {
            return None;
        }
        let header = Header {
            kind,
            attempt,
            payload: (body.len() - HEADER) as u32,
            file: n,
            offset,
            size,
            length,
        };
        Some((header, cv))
    }

    /// Notes a bite's hash. False if it has another one than before: the file has changed.
    fn remember(&self, n: u64, attempt: u16, (offset, length): (u64, u64), cv: CV) -> bool {
        let mut state = self.lock();
        let Some(file) = state.files.get_mut(&n) else {
            return false;
        };
        let Some(large) = file.large.as_mut().filter(|large| large.attempt == attempt) else {
            return false;
        };
        match large.bites.get(offset, length) {
            Some(before) if *before == cv => true,
            Some(_) => {
                drop(state);
                self.changed(n, attempt);
                false
            }
            None => {
                // One that overlaps was sent in another cut before: its hash stands for it.
                large.bites.add(offset, length, cv);
                true
            }
        }
    }

    fn read_pack(&self, files: &[u64], body: &mut Vec<u8>) -> Option<(Header, CV, Work)> {
        let (mut items, mut bytes) = (Vec::with_capacity(files.len()), Vec::new());
        for n in files {
            let place = self.lock().files.get(n).map(|file| file.place.clone());
            let Some(place) = place else {
                continue;
            };
            let start = bytes.len();
            match read_small(&place, &mut bytes) {
                Ok(Small::Whole { stamp, mode }) => items.push(PackItem {
                    n: *n,
                    stamp,
                    mode,
                    root: *blake3::hash(&bytes[start..]).as_bytes(),
                }),
                Ok(Small::Changed) => {
                    self.small_failed(*n, true, "it kept changing while it was read");
                }
                Err(error) => self.small_failed(*n, false, &error.to_string()),
            }
        }
        if items.is_empty() {
            return None;
        }
        let list = postcard::to_stdvec(&items).expect("memory takes it");
        body.extend_from_slice(&list);
        body.extend_from_slice(&bytes);
        let cv = *blake3::hash(&body[HEADER..]).as_bytes();
        let header = Header::without_file(Kind::Pack, (body.len() - HEADER) as u32);
        let carried = items.iter().map(|item| item.n).collect();
        Some((header, cv, Work::Pack(carried)))
    }

    /// A bite was sent: perhaps the last one of its file.
    fn after(&self, bite: &Bite) {
        let Work::Range {
            file: n, attempt, ..
        } = bite.work
        else {
            return;
        };
        let state = self.lock();
        let large = state.files.get(&n).and_then(|file| file.large.as_ref());
        let all = large.is_some_and(|large| {
            large.attempt == attempt && large.bites.known() == large.wanted && !large.is_complete
        });
        drop(state);
        if all {
            self.finish(n, attempt);
        }
    }

    async fn read_acks(
        &self,
        (stream, mut reader): (u16, StreamReader),
        mut tags: Tags,
        flying: &Flying,
    ) -> Result<()> {
        let mut damaged = 0;
        loop {
            let ack = reader.ack(&mut tags).await?;
            let (number, is_there) = match ack {
                Ack::Have(number) => (number, true),
                Ack::Again(number) => (number, false),
            };
            damaged = if is_there { 0 } else { damaged + 1 };
            if damaged >= DAMAGED {
                return Err(Error::Damaged);
            }
            let Some(flight) = forget(flying, number) else {
                return Err(Error::Unexpected("an acknowledgement of no frame"));
            };
            block_in_place(|| self.acked(stream, &flight, is_there));
            self.wake.notify_waiters();
        }
    }

    fn acked(&self, stream: u16, flight: &Flight, is_there: bool) {
        let mut state = self.lock();
        let delay = self.now().saturating_sub(flight.since);
        state.ack_delay = Some(match state.ack_delay {
            None => delay,
            Some(before) => before - before / WEIGHT + delay / WEIGHT,
        });
        if !is_there {
            state.queue.again(flight.bite);
            let files = match &flight.work {
                Work::Range { file, .. } => std::slice::from_ref(file),
                Work::Pack(files) => files,
            };
            for file in files.iter().filter_map(|n| state.files.get(n)) {
                let path = shown(&file.path);
                self.progress.report(Event::SentAgain { path });
            }
        } else if let Some((_, bytes)) = state.queue.have(flight.bite) {
            self.progress.done(bytes, bytes);
            let now = self.now();
            state.queue.delivered(stream.into(), bytes, now);
            let carried = state.carried.entry(stream).or_default();
            *carried = (carried.0 + bytes, now);
            if let Work::Pack(files) = &flight.work {
                for n in files {
                    self.small_there(&mut state, *n);
                }
            }
        }
        let again = self.landed(&mut state, &flight.work);
        drop(state);
        if let Some((n, attempt)) = again {
            self.finish(n, attempt);
        }
    }

    /// A frame is not on its way any more. Returns a file that waited for it to be finished.
    fn landed(&self, state: &mut State, work: &Work) -> Option<(u64, u16)> {
        let Work::Range { file: n, .. } = work else {
            return None;
        };
        let large = state.files.get_mut(n)?.large.as_mut()?;
        large.unacked = large.unacked.saturating_sub(1);
        if large.unacked > 0 {
            return None;
        }
        if large.is_complete {
            // Unless something of it is to be sent again.
            if !state.queue.has(*n) {
                state.files.remove(n);
                self.progress.entry_done();
            }
            return None;
        }
        let attempt = large.attempt;
        let waits = attempt > 0 || large.is_shared;
        (waits && large.bites.known() == large.wanted).then_some((*n, attempt))
    }
}

fn note(flying: &Flying, number: u64, flight: Flight) {
    let mut flying = flying.lock().unwrap_or_else(PoisonError::into_inner);
    flying.insert(number, flight);
}

fn forget(flying: &Flying, number: u64) -> Option<Flight> {
    let mut flying = flying.lock().unwrap_or_else(PoisonError::into_inner);
    flying.remove(&number)
}

/// Rewrites a bite's payload without its holes, if it has any.
fn sparse(extents: &[(usize, usize)], length: u64, body: &mut Vec<u8>) -> Kind {
    if extents == [(0, length as usize)] {
        return Kind::Chunk;
    }
    let bytes = body.split_off(HEADER);
    pack_sparse(body, &bytes, extents);
    Kind::Sparse
}

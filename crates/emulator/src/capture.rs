// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packet capture at both ends of a link, as pcapng.
//!
//! A thread of its own writes; the link's thread never waits for it. Packets that exceed
//! the queue between the two are counted, not captured.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{sync_channel, Receiver, SyncSender};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::{DataLink, PcapError};

/// Packets between link and writer: a third of a second at 1 Gbit/s each way, with
/// both ends captured.
const WAITING: usize = 1 << 17;
/// Timestamps are in units of ten to the power of minus so many seconds.
const NANOSECONDS: u8 = 9;

/// Where a packet was seen, in the order of the file's interfaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Point {
    /// At its arrival at the link.
    In = 0,
    /// As it left the link; the time is its due time.
    Out = 1,
}

struct Packet {
    interface: u32,
    realtime_ns: u64,
    length: u32,
    data: Box<[u8]>,
}

/// A running capture.
#[derive(Debug)]
pub struct Capture {
    sender: SyncSender<Packet>,
    missed: Arc<AtomicU64>,
    snap_bytes: usize,
    thread: JoinHandle<io::Result<u64>>,
}

/// Feeds a capture from one direction of the link.
#[derive(Debug, Clone)]
pub(crate) struct Tap {
    sender: SyncSender<Packet>,
    missed: Arc<AtomicU64>,
    snap_bytes: usize,
    first_interface: u32,
}

/// The contents of a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Captured {
    /// Packets in the file.
    pub packets: u64,
    /// Packets that the writer was too slow for.
    pub missed: u64,
}

impl Capture {
    /// Writes to `path` the first `snap_bytes` of each packet of a link between two
    /// interfaces of these names.
    ///
    /// # Errors
    /// When the file cannot be made or written.
    pub fn start(path: &Path, interfaces: [&str; 2], snap_bytes: u32) -> io::Result<Self> {
        let mut writer = PcapNgWriter::new(BufWriter::new(File::create(path)?)).map_err(failed)?;
        let [first, second] = interfaces;
        for name in [
            format!("{first} in"),
            format!("{second} out"),
            format!("{second} in"),
            format!("{first} out"),
        ] {
            let mut interface = InterfaceDescriptionBlock::new(DataLink::ETHERNET, snap_bytes);
            interface.options = vec![
                InterfaceDescriptionOption::IfName(Cow::Owned(name)),
                InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
            ];
            writer.write_pcapng_block(interface).map_err(failed)?;
        }
        let (sender, receiver) = sync_channel(WAITING);
        let thread = std::thread::Builder::new()
            .name("capture".to_owned())
            .spawn(move || write_all(writer, &receiver))?;
        Ok(Capture {
            sender,
            missed: Arc::default(),
            snap_bytes: snap_bytes as usize,
            thread,
        })
    }

    pub(crate) fn tap(&self, direction: u32) -> Tap {
        Tap {
            sender: self.sender.clone(),
            missed: Arc::clone(&self.missed),
            snap_bytes: self.snap_bytes,
            first_interface: 2 * direction,
        }
    }

    /// Ends the capture once the link has stopped. Returns its contents.
    ///
    /// # Errors
    /// When the file could not be written to its end.
    pub fn finish(self) -> io::Result<Captured> {
        let Capture {
            sender,
            missed,
            thread,
            ..
        } = self;
        drop(sender);
        let written = thread
            .join()
            .map_err(|_| io::Error::other("the writer panicked"))?;
        Ok(Captured {
            packets: written?,
            missed: missed.load(Ordering::Relaxed),
        })
    }
}

impl Tap {
    pub fn packet(&self, point: Point, realtime_ns: u64, length: u32, data: &[u8]) {
        let packet = Packet {
            interface: self.first_interface + point as u32,
            realtime_ns,
            length,
            data: data[..data.len().min(self.snap_bytes)].into(),
        };
        if self.sender.try_send(packet).is_err() {
            self.missed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn write_all(
    mut writer: PcapNgWriter<BufWriter<File>>,
    packets: &Receiver<Packet>,
) -> io::Result<u64> {
    let mut written = 0;
    for packet in packets {
        let block = EnhancedPacketBlock {
            interface_id: packet.interface,
            timestamp: Duration::from_nanos(packet.realtime_ns),
            original_len: packet.length,
            data: Cow::Borrowed(&packet.data),
            options: Vec::new(),
        };
        writer.write_pcapng_block(block).map_err(failed)?;
        written += 1;
    }
    writer.get_mut().flush()?;
    Ok(written)
}

fn failed(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        other => io::Error::other(other.to_string()),
    }
}

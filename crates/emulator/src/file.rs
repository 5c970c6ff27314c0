// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A link as a TOML file. The keys are described in `docs/emulator.md`.

mod keys;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use paceline_input::units::Time;
use paceline_input::{Document, Percent, Place, Problems, Reader, Reported};

use keys::{Content, Keys};

use crate::config::{
    Buffer, Change, Jitter, Line, LinkConfig, Loss, Policer, Reorder, ETHERNET_FRAMING,
};
use crate::trace::{self, Trace};
use crate::EmulatorError;

/// Longest file that is read, bytes: a thousand steps fit.
const LONGEST_BYTES: u64 = 1 << 20;
/// Longest trace that is read, bytes: hours at 100 Mbit/s.
const LONGEST_TRACE_BYTES: u64 = 1 << 28;

/// Why a file describes no link.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It, or a trace that it names, could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Something in it is wrong.
    #[error(transparent)]
    Invalid(#[from] Problems),
    /// A trace that is none.
    #[error(transparent)]
    Trace(EmulatorError),
}

/// The JSON schema of the file.
pub fn schema() -> serde_json::Value {
    paceline_input::schema::<Content>()
}

/// Reads the trace that a file names.
type Load<'l> = &'l dyn Fn(&str) -> Result<Trace, FileError>;

/// Both directions of a link.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkFile {
    /// From the first interface to the second.
    pub forward: LinkConfig,
    /// Back.
    pub reverse: LinkConfig,
}

impl LinkFile {
    /// Reads `path`; traces are found from its directory.
    ///
    /// # Errors
    /// All that is wrong, when it is not a link for frames of `frame_bytes`.
    pub fn read(path: &Path, frame_bytes: u32) -> Result<Self, FileError> {
        let text = read_text(path, LONGEST_BYTES)?;
        let load = |name: &str| {
            let file = path.parent().unwrap_or(Path::new("")).join(name);
            let text = read_text(&file, LONGEST_TRACE_BYTES)?;
            Trace::parse(&text, &file.display().to_string()).map_err(FileError::Trace)
        };
        Self::parse(&text, &path.display().to_string(), frame_bytes, &load)
    }

    /// Reads the text of a file called `name`; `load` reads a trace.
    ///
    /// # Errors
    /// As [`LinkFile::read`].
    pub fn parse(
        text: &str,
        name: &str,
        frame_bytes: u32,
        load: Load<'_>,
    ) -> Result<Self, FileError> {
        let document = Document::new(name, text);
        let file: Content = Reader::default().read(&document, &[])?;
        Ok(document.check(|place| {
            let direction = |name, own, number| {
                let direction = Direction {
                    own: (name, own),
                    both: ("link", file.link.as_ref()),
                    place,
                };
                // Neighbouring seeds give unlike sequences; the directions must not be alike.
                let seed = file.seed.wrapping_mul(2).wrapping_add(number);
                direction.config(&file, seed, frame_bytes, load)
            };
            let forward = direction("forward", file.forward.as_ref(), 0);
            let reverse = direction("reverse", file.reverse.as_ref(), 1);
            Ok(LinkFile {
                forward: forward?,
                reverse: reverse?,
            })
        })?)
    }
}

fn read_text(path: &Path, longest: u64) -> Result<String, FileError> {
    let fail = |source| FileError::Read {
        path: path.to_owned(),
        source,
    };
    let length = std::fs::metadata(path).map_err(fail)?.len();
    if length > longest {
        return Err(fail(std::io::Error::other(format!(
            "longer than {longest} bytes"
        ))));
    }
    std::fs::read_to_string(path).map_err(fail)
}

/// Keys of one table.
type Table<'a> = (&'static str, Option<&'a Keys>);

/// The keys of one direction.
struct Direction<'a> {
    own: Table<'a>,
    both: Table<'a>,
    place: &'a Place<'a>,
}

impl<'a> Direction<'a> {
    fn get<T: Copy>(&self, key: fn(&Keys) -> &Option<T>) -> Option<T> {
        let tables = [self.own.1, self.both.1];
        tables.into_iter().flatten().find_map(|keys| *key(keys))
    }

    /// The table that is the direction's own, or that of both, or that might be.
    fn table(&self) -> Place<'a> {
        let name = self.own.1.map_or(self.both.0, |_| self.own.0);
        self.place.key(name)
    }

    /// Of two keys that exclude each other; a direction's own key takes precedence over that of
    /// both.
    fn either<T, U>(
        &self,
        names: [&str; 2],
        first: fn(&Keys) -> &Option<T>,
        second: fn(&Keys) -> &Option<U>,
    ) -> Result<(Option<&'a T>, Option<&'a U>), Reported> {
        for (table, keys) in [self.own, self.both] {
            match keys.map(|keys| (first(keys), second(keys))) {
                None | Some((None, None)) => {}
                Some((Some(_), Some(_))) => {
                    let key = self.place.key(table).key(names[1]);
                    return Err(key.wrong_key(format!(
                        "excludes {}, which is given already: leave one of the two out",
                        names[0]
                    )));
                }
                Some((first, second)) => return Ok((first.as_ref(), second.as_ref())),
            }
        }
        Ok((None, None))
    }

    fn line(&self, load: Load<'_>) -> Result<Line, Reported> {
        match self.either(["rate", "trace"], |k| &k.rate, |k| &k.trace)? {
            (Some(rate), _) => Ok(Line::Rate(rate.bits_per_second())),
            (_, Some(name)) => match load(name) {
                Ok(trace) => Ok(Line::Trace(Arc::new(trace))),
                Err(error) => Err(self.table().key("trace").wrong(error.to_string())),
            },
            _ => Err(self
                .table()
                .key("rate")
                .wrong("missing: write rate = \"500mbit\" or trace = \"FILE\"")),
        }
    }

    fn buffer(&self) -> Result<Buffer, Reported> {
        let names = ["buffer", "buffer_packets"];
        match self.either(names, |k| &k.buffer, |k| &k.buffer_packets)? {
            (Some(bytes), _) => Ok(Buffer::Bytes(bytes.bytes())),
            (_, Some(packets)) => Ok(Buffer::Packets(*packets)),
            _ => Err(self.table().key("buffer").wrong(
                "missing: write buffer = \"128KiB\" or buffer_packets = 100: there is no right default",
            )),
        }
    }

    fn jitter(&self) -> Result<Option<Jitter>, Reported> {
        let names = ["jitter", "normal_jitter"];
        Ok(
            match self.either(names, |k| &k.jitter, |k| &k.normal_jitter)? {
                (Some(most), _) => Some(Jitter::Uniform {
                    most_ns: nanos(*most),
                }),
                (_, Some(deviation)) => Some(Jitter::Normal {
                    deviation_ns: nanos(*deviation),
                }),
                _ => None,
            },
        )
    }

    fn loss(&self) -> Result<Option<Loss>, Reported> {
        Ok(
            match self.either(["loss", "burst_loss"], |k| &k.loss, |k| &k.burst_loss)? {
                (Some(share), _) => Some(Loss::Random {
                    share: share.share(),
                }),
                (_, Some(bursts)) => Some(bursts.loss()),
                _ => None,
            },
        )
    }

    fn config(
        &self,
        file: &Content,
        seed: u64,
        frame_bytes: u32,
        load: Load<'_>,
    ) -> Result<LinkConfig, Reported> {
        let (line, buffer) = (self.line(load), self.buffer());
        let (jitter, loss) = (self.jitter(), self.loss());
        let line = line?;
        let framing_bytes = match (&file.framing, &line) {
            (Some(framing), _) => i32::try_from(framing.bytes()).unwrap_or(i32::MAX),
            (None, Line::Trace(_)) => trace::FRAMING,
            (None, Line::Rate(_)) => ETHERNET_FRAMING,
        };
        let config = LinkConfig {
            line,
            framing_bytes,
            delay_ns: self.get(|k| &k.delay).map_or(0, nanos),
            jitter: jitter?,
            buffer: buffer?,
            policer: self.get(|k| &k.policer).map(|policer| Policer {
                rate_bits: policer.rate.bits_per_second(),
                burst_bytes: policer.burst.bytes(),
            }),
            slot_ns: self.get(|k| &k.slots).map_or(0, nanos),
            red: self.get(|k| &k.red).map(|red| red.red()),
            codel: self.get(|k| &k.codel).map(|codel| codel.codel()),
            loss: loss?,
            reorder: self.get(|k| &k.reorder).map(|reorder| Reorder {
                share: reorder.share.share(),
                by_ns: nanos(reorder.by),
            }),
            duplicate: self.get(|k| &k.duplicate).map_or(0.0, Percent::share),
            steps: Vec::new(),
            seed,
        };
        if let Err(error) = config.check(frame_bytes) {
            self.at(&error).wrong(error.to_string());
        }
        Ok(self.steps(config, frame_bytes))
    }

    /// The key that an error of the whole is about.
    fn at(&self, error: &EmulatorError) -> Place<'a> {
        let what = match error {
            EmulatorError::BufferTooSmall { .. } => "buffer",
            EmulatorError::Range { what, .. } => what,
            _ => return self.table(),
        };
        let keys = ["buffer", "jitter", "policer", "red", "loss"];
        match keys.into_iter().find(|key| what.contains(key)) {
            Some("loss") => self.table().key("burst_loss"),
            Some(key) => self.table().key(key),
            None => self.table(),
        }
    }

    fn steps(&self, mut config: LinkConfig, frame_bytes: u32) -> LinkConfig {
        let has_steps = |(_, keys): &Table<'a>| keys.is_some_and(|keys| !keys.step.is_empty());
        let Some((table, Some(keys))) = [self.own, self.both].into_iter().find(has_steps) else {
            return config;
        };
        for (index, keys) in keys.step.iter().enumerate() {
            let place = self.place.key(table).key("step").item(index);
            let step = keys.step();
            if step.change == Change::default() {
                place.wrong("changes nothing: it needs rate, delay, buffer, loss, cut or outage");
            }
            let last = config.steps.last();
            if last.is_some_and(|last| last.at_ns > step.at_ns) {
                place.key("at").wrong("is earlier than the step before it");
            }
            if let Err(error) = config.check_change(&step.change, frame_bytes) {
                place.wrong(error.to_string());
            }
            config.steps.push(step);
        }
        config
    }
}

pub(crate) fn nanos(time: Time) -> u64 {
    time.micros().saturating_mul(1_000)
}

#[cfg(test)]
mod tests;

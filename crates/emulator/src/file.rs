// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A link as a TOML file. The keys are described in `docs/emulator.md`.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use paceline_input::units::{Rate, Size, Time};
use paceline_input::Percent;
use serde::Deserialize;
use toml::Spanned;

use crate::config::{
    Buffer, Change, Codel, Jitter, Line, LinkConfig, Loss, Policer, Red, Reorder, Step,
    ETHERNET_FRAMING,
};
use crate::trace::{self, Trace};
use crate::EmulatorError;

/// Longest file that is read, bytes: a thousand steps fit.
const LONGEST_BYTES: u64 = 1 << 20;
/// Longest trace that is read, bytes: hours at 100 Mbit/s.
const LONGEST_TRACE_BYTES: u64 = 1 << 28;
/// The weight of an arrival in RED's average that ns takes by default.
const RED_WEIGHT: f64 = 0.002;

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
    #[error("{file}:{line}: {key}: {problem}")]
    Invalid {
        /// The file.
        file: String,
        /// From 1.
        line: usize,
        /// The key or table.
        key: String,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// A trace that is none.
    #[error(transparent)]
    Trace(EmulatorError),
}

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
    /// With file, line and key, when it is not a link for frames of `frame_bytes`.
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
        load: &dyn Fn(&str) -> Result<Trace, FileError>,
    ) -> Result<Self, FileError> {
        let place = Place { text, name };
        let file: Content = toml::from_str(text).map_err(|error| place.syntax(&error))?;
        let mut links = Vec::new();
        for (number, own) in (0..).zip([&file.forward, &file.reverse]) {
            let header = own.as_ref().or(file.link.as_ref());
            let table = Table {
                place: &place,
                header: header.map_or(0..0, Spanned::span),
                name: ["forward", "reverse"][number as usize],
                own: own.as_ref().map(Spanned::get_ref),
                both: file.link.as_ref().map(Spanned::get_ref),
            };
            // Neighbouring seeds give unlike sequences; the directions must not be alike.
            let seed = file.seed.wrapping_mul(2).wrapping_add(number);
            links.push(table.config(&file, seed, frame_bytes, load)?);
        }
        let (reverse, forward) = (links.pop(), links.pop());
        let (Some(forward), Some(reverse)) = (forward, reverse) else {
            unreachable!("two directions were pushed");
        };
        Ok(LinkFile { forward, reverse })
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

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    #[serde(default)]
    seed: u64,
    framing: Option<Size>,
    /// For both directions, where they do not say otherwise themselves.
    link: Option<Spanned<Keys>>,
    forward: Option<Spanned<Keys>>,
    reverse: Option<Spanned<Keys>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    rate: Option<Spanned<Rate>>,
    trace: Option<Spanned<String>>,
    delay: Option<Spanned<Time>>,
    jitter: Option<Spanned<Time>>,
    normal_jitter: Option<Spanned<Time>>,
    buffer: Option<Spanned<Size>>,
    buffer_packets: Option<Spanned<u64>>,
    red: Option<Spanned<RedKeys>>,
    codel: Option<Spanned<CodelKeys>>,
    policer: Option<Spanned<PolicerKeys>>,
    slots: Option<Spanned<Time>>,
    loss: Option<Spanned<Percent>>,
    burst_loss: Option<Spanned<BurstKeys>>,
    reorder: Option<Spanned<ReorderKeys>>,
    duplicate: Option<Spanned<Percent>>,
    #[serde(default)]
    step: Vec<Spanned<StepKeys>>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct RedKeys {
    least: Size,
    most: Size,
    probability: Percent,
    weight: Option<f64>,
    #[serde(default = "yes")]
    gentle: bool,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct CodelKeys {
    target: Time,
    interval: Time,
    #[serde(default)]
    ecn: bool,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicerKeys {
    rate: Rate,
    burst: Size,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct BurstKeys {
    to_bad: Percent,
    to_good: Percent,
    #[serde(default)]
    good: Percent,
    #[serde(default = "all")]
    bad: Percent,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReorderKeys {
    share: Percent,
    by: Time,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct StepKeys {
    at: Time,
    rate: Option<Rate>,
    delay: Option<Time>,
    buffer: Option<Size>,
    loss: Option<Percent>,
    outage: Option<Time>,
    #[serde(default)]
    cut: bool,
}

fn yes() -> bool {
    true
}

fn all() -> Percent {
    Percent::ALL
}

/// Finds lines for messages.
struct Place<'a> {
    text: &'a str,
    name: &'a str,
}

impl Place<'_> {
    fn syntax(&self, error: &toml::de::Error) -> FileError {
        let span = error.span().unwrap_or(0..0);
        let content = self.text.lines().nth(self.line(&span) - 1);
        let key = content.and_then(|line| line.split('=').next());
        let key = key.map(str::trim).filter(|key| !key.is_empty());
        self.wrong(
            span,
            key.unwrap_or("file"),
            error.message().replace('\n', " "),
        )
    }

    fn line(&self, span: &Range<usize>) -> usize {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        before.matches('\n').count() + 1
    }

    fn wrong(&self, span: Range<usize>, key: &str, problem: String) -> FileError {
        FileError::Invalid {
            file: self.name.to_owned(),
            line: self.line(&span),
            key: key.to_owned(),
            problem,
        }
    }
}

/// At most one of two keys.
type Either<'a, T, U> = (Option<&'a Spanned<T>>, Option<&'a Spanned<U>>);

/// What is said of one direction.
struct Table<'a> {
    place: &'a Place<'a>,
    header: Range<usize>,
    name: &'static str,
    own: Option<&'a Keys>,
    both: Option<&'a Keys>,
}

impl<'a> Table<'a> {
    fn get<T>(&self, key: fn(&Keys) -> &Option<Spanned<T>>) -> Option<&'a Spanned<T>> {
        let own = self.own.and_then(|keys| key(keys).as_ref());
        own.or_else(|| self.both.and_then(|keys| key(keys).as_ref()))
    }

    /// Of two keys that exclude each other; what the direction says itself goes before
    /// what is said of both.
    fn either<T, U>(
        &self,
        names: [&str; 2],
        first: fn(&Keys) -> &Option<Spanned<T>>,
        second: fn(&Keys) -> &Option<Spanned<U>>,
    ) -> Result<Either<'a, T, U>, FileError> {
        for keys in [self.own, self.both].into_iter().flatten() {
            match (first(keys), second(keys)) {
                (None, None) => {}
                (Some(_), Some(second)) => {
                    let problem = format!("there is {} already: one of the two", names[0]);
                    return Err(self.place.wrong(second.span(), names[1], problem));
                }
                (first, second) => return Ok((first.as_ref(), second.as_ref())),
            }
        }
        Ok((None, None))
    }

    fn missing(&self, key: &str, right: &str) -> FileError {
        let problem = format!("[{}] needs {right}", self.name);
        self.place.wrong(self.header.clone(), key, problem)
    }

    fn config(
        &self,
        file: &Content,
        seed: u64,
        frame_bytes: u32,
        load: &dyn Fn(&str) -> Result<Trace, FileError>,
    ) -> Result<LinkConfig, FileError> {
        let line = match self.either(["rate", "trace"], |k| &k.rate, |k| &k.trace)? {
            (Some(rate), _) => Line::Rate(rate.get_ref().bits_per_second()),
            (_, Some(name)) => Line::Trace(Arc::new(load(name.get_ref())?)),
            _ => return Err(self.missing("rate", "rate = \"500mbit\" or trace = \"FILE\"")),
        };
        let buffer = match self.either(
            ["buffer", "buffer_packets"],
            |k| &k.buffer,
            |k| &k.buffer_packets,
        )? {
            (Some(bytes), _) => Buffer::Bytes(bytes.get_ref().bytes()),
            (_, Some(packets)) => Buffer::Packets(*packets.get_ref()),
            _ => {
                return Err(self.missing(
                    "buffer",
                    "buffer = \"128KiB\" or buffer_packets = 100: there is no right default",
                ))
            }
        };
        let jitter = match self.either(
            ["jitter", "normal_jitter"],
            |k| &k.jitter,
            |k| &k.normal_jitter,
        )? {
            (Some(most), _) => Some(Jitter::Uniform {
                most_ns: nanos(*most.get_ref()),
            }),
            (_, Some(deviation)) => Some(Jitter::Normal {
                deviation_ns: nanos(*deviation.get_ref()),
            }),
            _ => None,
        };
        let loss = match self.either(["loss", "burst_loss"], |k| &k.loss, |k| &k.burst_loss)? {
            (Some(share), _) => Some(Loss::Random {
                share: share.get_ref().share(),
            }),
            (_, Some(bursts)) => Some(bursts.get_ref().loss()),
            _ => None,
        };
        let framing_bytes = match (&file.framing, &line) {
            (Some(framing), _) => i32::try_from(framing.bytes()).unwrap_or(i32::MAX),
            (None, Line::Trace(_)) => trace::FRAMING,
            (None, Line::Rate(_)) => ETHERNET_FRAMING,
        };
        let config = LinkConfig {
            line,
            framing_bytes,
            delay_ns: self
                .get(|k| &k.delay)
                .map_or(0, |delay| nanos(*delay.get_ref())),
            jitter,
            buffer,
            policer: self.get(|k| &k.policer).map(|policer| Policer {
                rate_bits: policer.get_ref().rate.bits_per_second(),
                burst_bytes: policer.get_ref().burst.bytes(),
            }),
            slot_ns: self
                .get(|k| &k.slots)
                .map_or(0, |slots| nanos(*slots.get_ref())),
            red: self.get(|k| &k.red).map(|red| red.get_ref().red()),
            codel: self.get(|k| &k.codel).map(|codel| Codel {
                target_ns: nanos(codel.get_ref().target),
                interval_ns: nanos(codel.get_ref().interval),
                ecn: codel.get_ref().ecn,
            }),
            loss,
            reorder: self.get(|k| &k.reorder).map(|reorder| Reorder {
                share: reorder.get_ref().share.share(),
                by_ns: nanos(reorder.get_ref().by),
            }),
            duplicate: self
                .get(|k| &k.duplicate)
                .map_or(0.0, |share| share.get_ref().share()),
            steps: Vec::new(),
            seed,
        };
        let whole = |error: EmulatorError| {
            self.place
                .wrong(self.header.clone(), self.name, error.to_string())
        };
        config.check(frame_bytes).map_err(whole)?;
        self.steps(config, frame_bytes)
    }

    fn steps(&self, mut config: LinkConfig, frame_bytes: u32) -> Result<LinkConfig, FileError> {
        let own = self.own.map_or(&[][..], |keys| &keys.step);
        let both = self.both.map_or(&[][..], |keys| &keys.step);
        let steps = if own.is_empty() { both } else { own };
        for keys in steps {
            let step = keys.get_ref().step();
            let wrong = |problem: String| self.place.wrong(keys.span(), "step", problem);
            if step.change == Change::default() {
                return Err(wrong(
                    "changes nothing: it needs rate, delay, buffer, loss, cut or outage".to_owned(),
                ));
            }
            if config
                .steps
                .last()
                .is_some_and(|last| last.at_ns > step.at_ns)
            {
                return Err(wrong("is earlier than the one before it".to_owned()));
            }
            config
                .check_change(&step.change, frame_bytes)
                .map_err(|error| wrong(error.to_string()))?;
            config.steps.push(step);
        }
        Ok(config)
    }
}

impl RedKeys {
    fn red(&self) -> Red {
        Red {
            least_bytes: self.least.bytes(),
            most_bytes: self.most.bytes(),
            probability: self.probability.share(),
            weight: self.weight.unwrap_or(RED_WEIGHT),
            gentle: self.gentle,
        }
    }
}

impl BurstKeys {
    fn loss(&self) -> Loss {
        Loss::Bursts {
            to_bad: self.to_bad.share(),
            to_good: self.to_good.share(),
            good: self.good.share(),
            bad: self.bad.share(),
        }
    }
}

impl StepKeys {
    fn step(&self) -> Step {
        Step {
            at_ns: nanos(self.at),
            change: Change {
                rate_bits: self.rate.map(Rate::bits_per_second),
                delay_ns: self.delay.map(nanos),
                buffer: self.buffer.map(|bytes| Buffer::Bytes(bytes.bytes())),
                loss: self.loss.map(|share| Loss::Random {
                    share: share.share(),
                }),
                cut: self.cut,
                outage_ns: self.outage.map(nanos),
            },
        }
    }
}

pub(crate) fn nanos(time: Time) -> u64 {
    time.micros().saturating_mul(1_000)
}

#[cfg(test)]
mod tests;

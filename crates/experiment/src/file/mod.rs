// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An experiment file: one TOML with topology, workloads, variants and what must
//! hold. The keys are described in `docs/experiments.md`.

mod burst;
mod check;
mod cross;
mod gateway;
mod impairment;
mod link;
mod messages;
mod paper;
mod paths;
pub mod program;
mod shard;
mod step;
pub mod streams;
mod transfer;

use std::path::{Path, PathBuf};

use indexmap::IndexMap;
use paceline_coordinator::algorithm::Choice;
use paceline_input::units::{Rate, Size, Time};
use paceline_input::{Document, Format, Problems, Reader};
pub use program::Program;
use schemars::JsonSchema;
use serde::Deserialize;
pub use streams::Streams;

use crate::skeleton::{Benchmark, Class};

pub use burst::Burst;
pub use cross::CrossKeys;
pub use gateway::GatewayKeys;
pub use link::{Link, Scenario};
pub use messages::{Direction, Messages, Netpipe, OutOfCore};
pub use paper::{Paper, Values};
pub use paths::Paths;
pub use step::Step;
pub use transfer::Transfer;

/// Why an experiment file was refused.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// It could not be read.
    #[error("cannot read the experiment {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// Something in it is wrong.
    #[error(transparent)]
    Invalid(#[from] Problems),
    /// `--variant` names none of its variants.
    #[error("the experiment has no variant \"{asked}\"; it has {known}")]
    NoVariant {
        /// The requested name.
        asked: String,
        /// The variants.
        known: String,
    },
}

/// A file that was read and checked.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// The file's name without `.toml`.
    pub name: String,
    /// The parsed file.
    pub file: File,
}

/// The formats of a file's strings.
const FORMATS: [Format<'static>; 4] = [
    paceline_policy::FORMATS[0],
    paceline_policy::FORMATS[1],
    ("coordinator", &Choice::check),
    ("printed", &paper::check_printed),
];

/// The JSON schema of the file.
pub fn schema() -> serde_json::Value {
    paceline_input::schema::<File>()
}

/// An experiment: network, workloads, variants to compare, and claims.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Paceline experiment")]
pub struct File {
    /// One line.
    pub title: String,
    /// The question, and the derivation of the bounds.
    pub description: String,
    /// Seed of all random choices.
    #[serde(default = "first_seed")]
    pub seed: u64,
    /// Segmentation offload of each variant: off, on, both, or drawn by `[paths]`.
    #[serde(default)]
    pub offload: Offload,
    /// The claims: conditions that must hold.
    #[serde(default)]
    pub holds: Vec<String>,
    /// The network.
    pub link: Link,
    /// The virtual backend's machine.
    #[serde(default, rename = "virtual")]
    pub machine: Machine,
    /// Sets of link values, run one after the other; with `[paths]`, one for each path in turn.
    #[serde(default)]
    pub scenario: Vec<Scenario>,
    /// Links drawn at random, in place of the rate, delay and buffer of `[link]`.
    pub paths: Option<Paths>,
    /// Bursts after idle.
    #[serde(default)]
    pub burst: Vec<Burst>,
    /// Many senders answer at once.
    #[serde(default)]
    pub incast: Vec<Incast>,
    /// Concurrent flows.
    #[serde(default)]
    pub bulk: Vec<Bulk>,
    /// Parallel transfers that begin together.
    #[serde(default)]
    pub streams: Vec<Streams>,
    /// All-to-all and one-to-one alternately, between two clusters.
    #[serde(default)]
    pub switch: Vec<Switch>,
    /// Messages from one host to another, one way or in turn.
    #[serde(default)]
    pub messages: Vec<Messages>,
    /// Messages both ways in turn with growing sizes.
    #[serde(default)]
    pub netpipe: Vec<Netpipe>,
    /// All-to-all after all-to-all, over two clusters or at one switch.
    #[serde(default)]
    pub alltoall: Vec<AllToAll>,
    /// Jacobi's method on a matrix in files of all hosts, at one switch.
    #[serde(default)]
    pub outofcore: Vec<OutOfCore>,
    /// Communication skeletons of the NAS Parallel Benchmarks, between two clusters.
    #[serde(default)]
    pub skeleton: Vec<Skeleton>,
    /// Real MPI programs, on two clusters.
    #[serde(default)]
    pub program: Vec<Program>,
    /// Files from the hosts of one cluster to those of the other, by `paceline send`.
    #[serde(default)]
    pub transfer: Vec<Transfer>,
    /// Published values of the same quantities.
    #[serde(default)]
    pub paper: Vec<Paper>,
    /// The variants to compare.
    #[serde(rename = "variant")]
    pub variants: IndexMap<String, Variant>,
}

/// Segmentation offload of the hosts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Offload {
    /// The stack makes packets of one segment.
    #[default]
    Off,
    /// The stack makes packets of up to 64 KB, as on a real host.
    On,
    /// Each variant twice; with offload its name ends in `+tso`.
    Both,
    /// Drawn for each of the `[paths]`.
    Drawn,
}

/// The virtual backend's machine.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// One instruction takes 2^shift ns, -3 to 4.
    #[serde(default)]
    #[schemars(range(min = -3, max = 4))]
    pub shift: i8,
    /// What programs need in the guest besides themselves and their libraries: files and
    /// directories of this machine, by absolute paths.
    #[serde(default)]
    pub files: Vec<PathBuf>,
}

/// Many senders answer at once; each number of senders runs with each size.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Incast {
    /// Numbers of senders.
    #[schemars(length(min = 1), inner(range(min = 1, max = check::MOST_SENDERS)))]
    pub senders: Vec<u32>,
    /// Sizes of an answer.
    #[schemars(length(min = 1))]
    pub answers: Vec<Size>,
    /// Rounds of each combination.
    pub rounds: u32,
    /// Rounds with `--quick`.
    pub quick: Option<u32>,
    /// Number of the first round that counts for medians, from 1.
    #[serde(default = "one")]
    pub from_round: u32,
    /// Time from the start of a round to the start of the next.
    pub period: Time,
}

/// All-to-all and one-to-one in turn; see [`crate::plan::Switch`].
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Switch {
    /// Bytes of the one-to-one transfer.
    #[schemars(extend("x-range" = ["1B", null]))]
    pub transfer: Size,
    /// Bytes from each rank to each one of the other cluster.
    #[schemars(extend("x-range" = ["1B", null]))]
    pub block: Size,
    /// Number of block exchanges in one all-to-all.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1000))]
    pub rounds: u32,
    /// Number of cycles.
    #[schemars(range(min = 1, max = 1000))]
    pub cycles: u32,
    /// Cycles with `--quick`.
    pub quick: Option<u32>,
    /// Number of the first cycle that counts for medians, from 1.
    #[serde(default = "one")]
    pub from_cycle: u32,
    /// Time from the end of a transfer to the next cycle.
    pub pause: Time,
}

/// All-to-all after all-to-all; see [`crate::plan::AllToAll`].
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AllToAll {
    /// Bytes from each rank to each other one; each size runs by itself.
    #[schemars(length(min = 1))]
    pub blocks: Vec<Size>,
    /// Rounds of each size.
    #[schemars(range(max = 10_000))]
    pub rounds: u32,
    /// Rounds with `--quick`.
    pub quick: Option<u32>,
    /// Number of the first round that counts for medians, from 1.
    #[serde(default = "one")]
    pub from_round: u32,
}

/// Skeletons of benchmarks, one after the other; see [`crate::skeleton`].
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Skeleton {
    /// Names of the benchmarks.
    #[schemars(length(min = 1), extend("examples" = [["BT", "CG"]]))]
    pub benchmarks: Vec<Benchmark>,
    /// Problem size.
    pub class: Class,
    /// Iterations that run; the rest is extrapolated.
    pub iterations: u32,
    /// Iterations with `--quick`.
    pub quick: Option<u32>,
    /// Number of the first iteration that the extrapolation uses, from 1.
    #[serde(default = "one")]
    pub from_iteration: u32,
    /// Repetitions of each benchmark, with other random start times.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1000))]
    pub repeats: u32,
    /// Maximum random delay of each rank's start.
    #[serde(default)]
    pub spread: Time,
}

/// Concurrent flows.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bulk {
    /// Tail of the metrics' names.
    #[serde(default)]
    pub name: String,
    /// Time over which goodput is taken.
    pub duration: Time,
    /// The same with `--quick`.
    pub quick: Option<Time>,
    /// Repetitions, each with other random start times.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1000))]
    pub repeats: u32,
    /// The same with `--quick`.
    pub quick_repeats: Option<u32>,
    /// Number of the repetition, from 1, that records the packets of the first group's flow.
    pub sample_repeat: Option<u32>,
    /// Group k sends from host k.
    #[schemars(length(min = 1, max = check::MOST_SENDERS))]
    pub flows: Vec<Flows>,
}

/// Flows of one kind.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Flows {
    /// Tail of the metrics' names.
    #[serde(default)]
    pub name: String,
    /// Number of flows.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1000))]
    pub count: u32,
    /// Start time of the flows.
    #[serde(default)]
    pub start: Time,
    /// Maximum random delay of each flow's start.
    #[serde(default)]
    pub spread: Time,
    /// Congestion control in all variants.
    pub congestion: Option<String>,
    /// Rate of the host's link in all variants.
    pub edge_rate: Option<Rate>,
    /// Bursts of this size instead of one endless transfer.
    #[schemars(extend("x-range" = ["8B", null]))]
    pub burst: Option<Size>,
    /// Time from a reply to the next write.
    pub gap: Option<Time>,
}

/// The variants to compare.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// TCP_CONGESTION of the senders' sockets.
    pub congestion: Option<String>,
    /// A preset, a policy file relative to the experiment, or an inline policy.
    pub policy: Option<PolicyChoice>,
    /// An algorithm of the coordinator, with its parameters, for `[[streams]]`.
    #[schemars(with = "Option<String>", extend("format" = "coordinator", "examples" = ["even"]))]
    pub coordinate: Option<Choice>,
    /// Each host's own link, instead of the experiment's; it may be slower than the bottleneck.
    pub edge_rate: Option<Rate>,
    /// An upper bound for any TCP: the bottleneck's queue is unlimited, and connections begin with
    /// a large window. The other variants can be compared with it.
    #[serde(default)]
    pub ideal: bool,
    /// A pair of gateways at the ends of the link, `[link] gateways = true`.
    pub gateway: Option<GatewayKeys>,
    /// Sysctls set on every host.
    #[serde(default)]
    #[schemars(with = "IndexMap<String, serde_json::Value>")]
    pub sysctl: IndexMap<String, toml::Value>,
}

/// How a variant names its policy.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum PolicyChoice {
    /// A preset or a file.
    Named(String),
    /// The policy itself; its name is the variant's.
    Inline(#[schemars(schema_with = "paceline_policy::inline_schema")] toml::Table),
}

fn one() -> u32 {
    1
}
fn first_seed() -> u64 {
    1
}
fn four() -> u8 {
    4
}
fn gigabit() -> Rate {
    Rate::from_bits_per_second(1_000_000_000)
}
fn twenty_mebibytes() -> Size {
    Size::from_bytes(20 << 20)
}

impl File {
    /// The changes of the link and of all scenarios.
    fn steps(&self) -> impl Iterator<Item = &Step> {
        let of_scenarios = self.scenario.iter().flat_map(|scenario| &scenario.step);
        self.link.step.iter().chain(of_scenarios)
    }

    /// The other traffic of the link and of all scenarios.
    fn crosses(&self) -> impl Iterator<Item = &Option<CrossKeys>> {
        let of_scenarios = self.scenario.iter().map(|scenario| &scenario.cross);
        std::iter::once(&self.link.cross).chain(of_scenarios)
    }
}

impl Experiment {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// [`ExperimentError`] with all problems: file, line, column, key, and what
    /// would be right.
    pub fn load(path: &Path) -> Result<Self, ExperimentError> {
        let text = std::fs::read_to_string(path).map_err(|source| ExperimentError::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(&text, path)
    }

    /// Checks `text`, which `path` is the place of: its name is the experiment's,
    /// and policy files are looked up from its directory.
    ///
    /// # Errors
    /// As [`Experiment::load`].
    pub fn parse(text: &str, path: &Path) -> Result<Self, ExperimentError> {
        let document = Document::new(path.display().to_string(), text);
        let file = Reader::default().read(&document, &FORMATS)?;
        let name = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let mut experiment = Experiment { name, file };
        check::resolve_policy_files(&mut experiment.file, path);
        program::resolve_directories(&mut experiment.file.program, path);
        document.check(|place| {
            check::experiment(&experiment, place);
            Ok(())
        })?;
        Ok(experiment)
    }
}

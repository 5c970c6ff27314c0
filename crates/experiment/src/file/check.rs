// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the types of an experiment file cannot say.

use std::path::Path;

use paceline_policy::Policy;
use paceline_report::claims::Claim;

use super::{burst, link, program, Experiment, ExperimentError, File, PolicyChoice, Variant};
use crate::located::Located;
use crate::plan::PolicySource;
use crate::skeleton::RANKS;

/// Hosts that fit the lab's addresses.
pub(super) const MOST_SENDERS: u32 = 250;

/// Makes relative policy files relative to the experiment.
pub fn resolve_policy_files(file: &mut File, path: &Path) {
    let directory = path.parent().unwrap_or(Path::new(""));
    for variant in file.variants.values_mut() {
        if let Some(PolicyChoice::Named(name)) = &mut variant.policy {
            if Policy::preset(name).is_none() && directory.join(&*name).is_file() {
                *name = directory.join(&*name).to_string_lossy().into_owned();
            }
        }
    }
}

/// Finds places in the text for messages.
pub(super) struct Place<'a> {
    text: &'a str,
    file: String,
}

impl Place<'_> {
    /// A problem with `key` of the `index`-th table `header`, such as `[[burst]]`,
    /// or of the top if the header is empty.
    pub(super) fn wrong(
        &self,
        header: &str,
        index: usize,
        key: &str,
        problem: String,
    ) -> ExperimentError {
        let mut line = 0;
        let mut seen = 0;
        let mut inside = header.is_empty();
        for (number, content) in (1..).zip(self.text.lines()) {
            let content = content.trim();
            if content == header {
                inside = seen == index;
                seen += 1;
                if inside {
                    line = number;
                }
            } else if content.starts_with('[') {
                inside = false;
            } else if inside
                && content
                    .split('=')
                    .next()
                    .is_some_and(|name| name.trim() == key)
            {
                line = number;
                break;
            }
        }
        ExperimentError::Invalid(Located {
            file: self.file.clone(),
            line: line.max(1),
            key: key.to_owned(),
            problem,
        })
    }
}

/// The first problem of `experiment`.
pub fn experiment(experiment: &Experiment, text: &str, path: &Path) -> Result<(), ExperimentError> {
    let place = Place {
        text,
        file: path.display().to_string(),
    };
    let file = &experiment.file;
    let dumbbell = !(file.burst.is_empty()
        && file.incast.is_empty()
        && file.bulk.is_empty()
        && file.streams.is_empty());
    let ranks = !(file.switch.is_empty()
        && file.alltoall.is_empty()
        && file.skeleton.is_empty()
        && file.program.is_empty());
    if !dumbbell && !ranks {
        let problem = "nothing to do: give at least one [[burst]], [[incast]], [[bulk]], \
            [[streams]], [[switch]], [[alltoall]], [[skeleton]] or [[program]]"
            .to_owned();
        return Err(place.wrong("", 0, "workload", problem));
    }
    match file.link.clusters {
        None if ranks => {
            let problem =
                "[[switch]], [[alltoall]], [[skeleton]] and [[program]] need two clusters: clusters = [8, 8]"
                    .to_owned();
            return Err(place.wrong("[link]", 0, "clusters", problem));
        }
        Some(_) if dumbbell => {
            let problem =
                "only [[switch]], [[alltoall]], [[skeleton]] and [[program]] run between two clusters"
                    .to_owned();
            return Err(place.wrong("[link]", 0, "clusters", problem));
        }
        _ => {}
    }
    link::check(file, &place)?;
    machine(file, &place)?;
    burst::check(file, &place)?;
    incasts(file, &place)?;
    bulks(file, &place)?;
    super::streams::check(file, &place)?;
    switches(file, &place)?;
    all_to_alls(file, &place)?;
    skeletons(file, &place)?;
    program::check(file, &place)?;
    if file.variants.is_empty() {
        return Err(place.wrong(
            "",
            0,
            "variant",
            "give at least one [variant.NAME]".to_owned(),
        ));
    }
    for (name, variant) in &file.variants {
        let header = format!("[variant.{name}]");
        if name.contains(['+', '@', '/', '*', ' ']) || name == "bound" {
            let problem =
                "a variant's name has none of + @ / * and space, and is not \"bound\"".to_owned();
            return Err(place.wrong(&header, 0, name, problem));
        }
        if let Err(problem) = policy_source(name, variant) {
            let inline = matches!(variant.policy, Some(PolicyChoice::Inline(_)));
            let header = if inline {
                format!("[variant.{name}.policy]")
            } else {
                header
            };
            return Err(place.wrong(&header, 0, "policy", problem));
        }
    }
    super::paper::check(file, &place)?;
    for claim in &file.holds {
        if let Err(error) = Claim::parse(claim) {
            return Err(place.wrong("", 0, "holds", error.to_string()));
        }
    }
    Ok(())
}

/// A variant's policy as the plan carries it, or what is wrong with it.
pub fn policy_source(name: &str, variant: &Variant) -> Result<Option<PolicySource>, String> {
    let Some(choice) = &variant.policy else {
        return Ok(None);
    };
    match choice {
        PolicyChoice::Named(preset) if Policy::preset(preset).is_some() => {
            Ok(Some(PolicySource::Preset(preset.clone())))
        }
        PolicyChoice::Named(file) => {
            let policy = Policy::load(file).map_err(|error| error.to_string())?;
            Ok(Some(PolicySource::Text {
                file: file.clone(),
                text: policy.to_toml(),
            }))
        }
        PolicyChoice::Inline(table) => {
            let mut table = table.clone();
            table.entry("name").or_insert_with(|| name.into());
            let text = table.to_string();
            Policy::parse(&text, "policy").map_err(|error| error.to_string())?;
            Ok(Some(PolicySource::Text {
                file: "policy".to_owned(),
                text,
            }))
        }
    }
}

fn switches(file: &File, place: &Place) -> Result<(), ExperimentError> {
    for (index, switch) in file.switch.iter().enumerate() {
        let wrong = |key: &str, problem: &str| {
            Err(place.wrong("[[switch]]", index, key, problem.to_owned()))
        };
        let least = switch.cycles.min(switch.quick.unwrap_or(switch.cycles));
        if switch.cycles > 1000 || switch.rounds == 0 || switch.rounds > 1000 {
            return wrong("cycles", "cycles and rounds must be 1 to 1000");
        }
        if switch.from_cycle == 0 || switch.from_cycle > least {
            return wrong(
                "from_cycle",
                "must be 1 to cycles, and to quick where that is given",
            );
        }
        if switch.transfer.bytes() == 0 || switch.block.bytes() == 0 {
            return wrong("transfer", "transfer and block must be at least one byte");
        }
    }
    Ok(())
}

fn all_to_alls(file: &File, place: &Place) -> Result<(), ExperimentError> {
    for (index, all) in file.alltoall.iter().enumerate() {
        let wrong = |key: &str, problem: &str| {
            Err(place.wrong("[[alltoall]]", index, key, problem.to_owned()))
        };
        if all.blocks.is_empty() || all.blocks.iter().any(|size| size.bytes() == 0) {
            return wrong("blocks", "must be sizes of at least one byte");
        }
        let least = all.rounds.min(all.quick.unwrap_or(all.rounds));
        if all.rounds > 10_000 || all.from_round == 0 || all.from_round > least {
            return wrong(
                "from_round",
                "must be 1 to rounds, at most 10000, and to quick where that is given",
            );
        }
    }
    Ok(())
}

fn skeletons(file: &File, place: &Place) -> Result<(), ExperimentError> {
    let half = RANKS as u32 / 2;
    if !file.skeleton.is_empty() && file.link.clusters != Some([half, half]) {
        let problem = format!("[[skeleton]] is for {RANKS} ranks: clusters = [{half}, {half}]");
        return Err(place.wrong("[link]", 0, "clusters", problem));
    }
    for (index, skeleton) in file.skeleton.iter().enumerate() {
        let wrong = |key: &str, problem: &str| {
            Err(place.wrong("[[skeleton]]", index, key, problem.to_owned()))
        };
        let least = skeleton
            .iterations
            .min(skeleton.quick.unwrap_or(skeleton.iterations));
        if skeleton.benchmarks.is_empty() {
            return wrong("benchmarks", "give at least one, such as [\"BT\", \"CG\"]");
        }
        if least == 0 {
            return wrong("iterations", "must be at least 1, quick as well");
        }
        if skeleton.from_iteration == 0 || skeleton.from_iteration > least {
            return wrong(
                "from_iteration",
                "must be 1 to iterations, and to quick where that is given",
            );
        }
        if skeleton.repeats == 0 || skeleton.repeats > 1000 {
            return wrong("repeats", "must be 1 to 1000");
        }
    }
    Ok(())
}

fn machine(file: &File, place: &Place) -> Result<(), ExperimentError> {
    if (-3..=4).contains(&file.machine.shift) {
        return Ok(());
    }
    let problem = "must be -3 to 4: one instruction takes 2^shift ns".to_owned();
    Err(place.wrong("[virtual]", 0, "shift", problem))
}

fn incasts(file: &File, place: &Place) -> Result<(), ExperimentError> {
    for (index, incast) in file.incast.iter().enumerate() {
        let wrong =
            |key: &str, problem: String| Err(place.wrong("[[incast]]", index, key, problem));
        if incast.senders.is_empty()
            || incast
                .senders
                .iter()
                .any(|&count| count == 0 || count > MOST_SENDERS)
        {
            return wrong(
                "senders",
                format!("must be numbers from 1 to {MOST_SENDERS}"),
            );
        }
        if incast.answers.is_empty() || incast.answers.iter().any(|size| size.bytes() == 0) {
            return wrong("answers", "must be sizes of at least one byte".to_owned());
        }
        let least = incast.rounds.min(incast.quick.unwrap_or(incast.rounds));
        if incast.from_round == 0 || incast.from_round > least {
            return wrong(
                "from_round",
                format!("must be 1 to the number of rounds, {least}"),
            );
        }
    }
    Ok(())
}

fn bulks(file: &File, place: &Place) -> Result<(), ExperimentError> {
    for (index, bulk) in file.bulk.iter().enumerate() {
        let wrong =
            |key: &str, problem: &str| Err(place.wrong("[[bulk]]", index, key, problem.to_owned()));
        if bulk.flows.is_empty() || bulk.flows.len() > MOST_SENDERS as usize {
            return wrong("flows", "give at least one [[bulk.flows]]");
        }
        let least = bulk.repeats.min(bulk.quick_repeats.unwrap_or(bulk.repeats));
        if least == 0 || bulk.repeats > 1000 || bulk.quick_repeats > Some(bulk.repeats) {
            return wrong(
                "repeats",
                "must be 1 to 1000, and quick_repeats no more than that",
            );
        }
        let sampled = bulk.sample_repeat.is_some();
        if bulk
            .sample_repeat
            .is_some_and(|sample| sample == 0 || sample > least)
        {
            return wrong(
                "sample_repeat",
                "must be 1 to repeats, and to quick_repeats where that is given",
            );
        }
        if sampled && (bulk.flows[0].count > 1 || bulk.flows[0].burst.is_some()) {
            return wrong(
                "sample_repeat",
                "records the first group's flow: one, without bursts",
            );
        }
        let rtts = file
            .scenario
            .iter()
            .filter_map(|scenario| scenario.one_way_delay);
        if sampled
            && rtts
                .chain([file.link.one_way_delay])
                .any(|delay| delay.micros() == 0)
        {
            return wrong(
                "sample_repeat",
                "needs a link with a delay: what leaves is counted by the round trip",
            );
        }
        for flows in &bulk.flows {
            if flows.count == 0 || flows.count > 1000 {
                return wrong("count", "a group has 1 to 1000 flows");
            }
            if flows.burst.is_some() != flows.gap.is_some() {
                return wrong("flows", "burst and gap are given together or not at all");
            }
            if flows.burst.is_some_and(|size| size.bytes() < 8) {
                return wrong("burst", "must be at least 8 bytes");
            }
        }
        let same = |a: usize, b: usize| a < b && bulk.flows[a].name == bulk.flows[b].name;
        if (0..bulk.flows.len()).any(|b| (0..b).any(|a| same(a, b))) {
            return wrong("name", "groups of one [[bulk]] need names of their own");
        }
    }
    Ok(())
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks of an experiment file that its types cannot express.

use std::path::Path;

use paceline_input::units::Size;
use paceline_input::Place;
use paceline_policy::{Policy, PolicyError};
use paceline_report::claims::Claim;

use super::{burst, link, paths, program, Experiment, File, PolicyChoice, Variant};
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

/// Checks `experiment`, and reports each problem at its place.
pub fn experiment(experiment: &Experiment, place: &Place<'_>) {
    let file = &experiment.file;
    workloads(file, place);
    link::check(file, place);
    paths::check(file, place);
    burst::check(file, place);
    incasts(file, place);
    bulks(file, place);
    super::streams::check(file, place);
    super::messages::check(file, place);
    switches(file, place);
    all_to_alls(file, place);
    skeletons(file, place);
    program::check(file, place);
    super::transfer::check(file, place);
    super::gateway::check(file, place);
    if file.variants.is_empty() {
        place
            .key("variant")
            .wrong("give at least one [variant.NAME]");
    }
    for (name, variant) in &file.variants {
        let place = place.key("variant").key(name);
        if name.contains(['+', '@', '/', '*', ' ']) || name == "bound" {
            let problem =
                "a variant's name must not have + @ / * or a space, and must not be \"bound\"";
            place.wrong(problem);
        }
        match policy_source(name, variant) {
            Err(PolicyError::Invalid(problems)) if is_inline(variant) => {
                place.key("policy").adopt(&problems);
            }
            Err(error) => {
                place.key("policy").wrong(error.to_string());
            }
            Ok(_) => {}
        }
    }
    super::paper::check(file, place);
    for (index, claim) in file.holds.iter().enumerate() {
        if let Err(error) = Claim::parse(claim) {
            place.key("holds").item(index).wrong(error.to_string());
        }
    }
}

/// Whether there are any, and the link is one for them.
fn workloads(file: &File, place: &Place<'_>) {
    let to_a_receiver = !(file.burst.is_empty()
        && file.incast.is_empty()
        && file.bulk.is_empty()
        && file.streams.is_empty());
    let between_two_hosts = !(file.messages.is_empty() && file.netpipe.is_empty());
    let over_two_clusters = !(file.switch.is_empty()
        && file.skeleton.is_empty()
        && file.program.is_empty()
        && file.transfer.is_empty());
    let clusters = place.key("link").key("clusters");
    let has_clusters = !file.link.clusters.is_empty();
    let has_one = file.link.is_one_switch();
    if !(to_a_receiver
        || between_two_hosts
        || over_two_clusters
        || !file.alltoall.is_empty()
        || !file.outofcore.is_empty())
    {
        place.key("workload").wrong(
            "there is no workload: give at least one [[burst]], [[incast]], [[bulk]], \
            [[streams]], [[messages]], [[netpipe]], [[switch]], [[alltoall]], [[outofcore]], \
            [[skeleton]], [[program]] or [[transfer]]",
        );
    } else if over_two_clusters && (!has_clusters || has_one) {
        clusters.wrong(
            "[[switch]], [[skeleton]], [[program]] and [[transfer]] need two clusters: \
            clusters = [8, 8]",
        );
    } else if !file.outofcore.is_empty() && !has_one {
        clusters.wrong("[[outofcore]] needs one cluster: clusters = [16]");
    } else if !file.alltoall.is_empty() && !has_clusters {
        clusters
            .wrong("[[alltoall]] needs clusters: two, clusters = [8, 8], or one, clusters = [16]");
    } else if to_a_receiver && has_clusters {
        clusters.wrong(
            "[[burst]], [[incast]], [[bulk]] and [[streams]] need senders and one receiver: leave clusters out",
        );
    } else if between_two_hosts && has_clusters && !has_one {
        clusters.wrong("[[messages]] and [[netpipe]] need one cluster, clusters = [2], or none");
    }
}

fn is_inline(variant: &Variant) -> bool {
    matches!(variant.policy, Some(PolicyChoice::Inline(_)))
}

/// A variant's policy as the plan carries it, or its error.
pub fn policy_source(name: &str, variant: &Variant) -> Result<Option<PolicySource>, PolicyError> {
    let Some(choice) = &variant.policy else {
        return Ok(None);
    };
    match choice {
        PolicyChoice::Named(preset) if Policy::preset(preset).is_some() => {
            Ok(Some(PolicySource::Preset(preset.clone())))
        }
        PolicyChoice::Named(file) => {
            let policy = Policy::load(file)?;
            Ok(Some(PolicySource::Text {
                file: file.clone(),
                text: policy.to_toml(),
            }))
        }
        PolicyChoice::Inline(table) => {
            let mut table = table.clone();
            table.entry("name").or_insert_with(|| name.into());
            let text = table.to_string();
            Policy::parse(&text, "policy")?;
            Ok(Some(PolicySource::Text {
                file: "policy".to_owned(),
                text,
            }))
        }
    }
}

fn switches(file: &File, place: &Place<'_>) {
    for (index, switch) in file.switch.iter().enumerate() {
        let least = switch.cycles.min(switch.quick.unwrap_or(switch.cycles));
        if switch.from_cycle == 0 || switch.from_cycle > least {
            let place = place.key("switch").item(index).key("from_cycle");
            place.wrong("must be 1 to cycles, and to quick where that is given");
        }
    }
}

fn all_to_alls(file: &File, place: &Place<'_>) {
    for (index, all) in file.alltoall.iter().enumerate() {
        let place = place.key("alltoall").item(index);
        sizes(&all.blocks, &place.key("blocks"));
        let least = all.rounds.min(all.quick.unwrap_or(all.rounds));
        if all.from_round == 0 || all.from_round > least {
            let problem = "must be 1 to rounds, at most 10000, and to quick where that is given";
            place.key("from_round").wrong(problem);
        }
    }
}

pub(super) fn sizes(sizes: &[Size], place: &Place<'_>) {
    if let Some(empty) = sizes.iter().position(|size| size.bytes() == 0) {
        place.item(empty).wrong("must be at least one byte");
    }
}

fn skeletons(file: &File, place: &Place<'_>) {
    let half = RANKS as u32 / 2;
    if !file.skeleton.is_empty() && file.link.clusters != [half, half] {
        let problem =
            format!("[[skeleton]] needs {RANKS} ranks: write clusters = [{half}, {half}]");
        place.key("link").key("clusters").wrong(problem);
    }
    for (index, skeleton) in file.skeleton.iter().enumerate() {
        let place = place.key("skeleton").item(index);
        let least = skeleton
            .iterations
            .min(skeleton.quick.unwrap_or(skeleton.iterations));
        if least == 0 {
            let problem = "must be at least 1, and so must quick";
            place.key("iterations").wrong(problem);
        } else if skeleton.from_iteration == 0 || skeleton.from_iteration > least {
            let problem = "must be 1 to iterations, and to quick where that is given";
            place.key("from_iteration").wrong(problem);
        }
    }
}

fn incasts(file: &File, place: &Place<'_>) {
    for (index, incast) in file.incast.iter().enumerate() {
        let place = place.key("incast").item(index);
        sizes(&incast.answers, &place.key("answers"));
        let least = incast.rounds.min(incast.quick.unwrap_or(incast.rounds));
        if incast.from_round == 0 || incast.from_round > least {
            let problem = format!("must be 1 to the number of rounds, {least}");
            place.key("from_round").wrong(problem);
        }
    }
}

fn bulks(file: &File, place: &Place<'_>) {
    for (index, bulk) in file.bulk.iter().enumerate() {
        let place = place.key("bulk").item(index);
        let wrong = |key: &str, problem: &str| place.key(key).wrong(problem);
        let least = bulk.repeats.min(bulk.quick_repeats.unwrap_or(bulk.repeats));
        if least == 0 || bulk.quick_repeats > Some(bulk.repeats) {
            wrong(
                "quick_repeats",
                "must be 1 to 1000, and no more than repeats",
            );
        }
        let sampled = bulk.sample_repeat;
        if sampled.is_some_and(|sample| sample == 0 || sample > least) {
            wrong(
                "sample_repeat",
                "must be 1 to repeats, and to quick_repeats where that is given",
            );
        }
        let first = &bulk.flows[0];
        if sampled.is_some() && (first.count > 1 || first.burst.is_some()) {
            wrong(
                "sample_repeat",
                "records the flow of a single connection: the first group must have one, and no bursts",
            );
        }
        let mut delays = file
            .scenario
            .iter()
            .filter_map(|scenario| scenario.one_way_delay)
            .chain([file.link.one_way_delay]);
        if sampled.is_some() && delays.any(|delay| delay.micros() == 0) {
            wrong(
                "sample_repeat",
                "needs a link with a delay: packets are counted per round trip",
            );
        }
        for (number, flows) in bulk.flows.iter().enumerate() {
            let place = place.key("flows").item(number);
            if flows.burst.is_some() != flows.gap.is_some() {
                place.wrong("give both burst and gap, or neither");
            }
            if bulk.flows[..number]
                .iter()
                .any(|other| other.name == flows.name)
            {
                let problem = "the groups of a [[bulk]] need different names";
                place.key("name").wrong(problem);
            }
        }
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages of libbpf and the verifier. All of them go to the log; the error of a
//! failed load has the operation, the program and the decisive message.

use std::os::fd::AsFd;

use libbpf_rs::btf::types::{MemberAttr, Struct};
use libbpf_rs::btf::Btf;
use libbpf_rs::query::ProgInfoIter;
use libbpf_rs::{AsRawLibbpf, MapType, Object, OpenObject, Program};
use paceline_bpf::messages;

use super::btf::OPERATIONS;
use crate::error::{Error, Result};

/// Loads the object; an error names the refused part and the reason.
pub(super) fn load(open: OpenObject) -> Result<Object> {
    let operations = operations(&open);
    let (loaded, log) = messages::collect(|| open.load());
    let object = loaded.map_err(|error| Error::bpf(refusal(&log, &operations), error))?;
    if tracing::enabled!(tracing::Level::DEBUG) {
        log_verified(&object);
    }
    Ok(object)
}

/// Logs each program's verified instructions, of which the limit is a million: newer
/// kernels distinguish more states.
fn log_verified(object: &Object) {
    let own: Vec<u32> = object
        .progs()
        .filter(|program| program.autoload())
        .filter_map(|program| Program::id_from_fd(program.as_fd()).ok())
        .collect();
    for info in ProgInfoIter::default().filter(|info| own.contains(&info.id)) {
        let name = info.name.to_string_lossy();
        tracing::debug!("{name}: {} instructions verified", info.verified_insns);
    }
}

/// Each program of the congestion controls that are to be loaded, with its operation.
fn operations(open: &OpenObject) -> Vec<(String, String)> {
    // SAFETY: the object is open, and nothing changes it during this function.
    let object = unsafe { open.as_libbpf_object().as_ref() };
    let Ok(Some(btf)) = Btf::from_bpf_object(object) else {
        return Vec::new();
    };
    let Some(operations) = btf.type_by_name::<Struct<'_>>(OPERATIONS) else {
        return Vec::new();
    };
    let programs: Vec<(usize, String)> = open
        .progs()
        .map(|program| {
            let name = program.name().to_string_lossy().into_owned();
            (program.as_libbpf_object().as_ptr() as usize, name)
        })
        .collect();
    let mut found = Vec::new();
    for map in open.maps() {
        if map.map_type() != MapType::StructOps || !map.autocreate() {
            continue;
        }
        let value = map.initial_value().unwrap_or_default();
        for member in operations.iter() {
            let (Some(name), MemberAttr::Normal { offset }) = (member.name, member.attr) else {
                continue;
            };
            let at = offset as usize / 8;
            // Until it is loaded the struct has pointers to libbpf's programs.
            let pointer = value
                .get(at..at + size_of::<usize>())
                .and_then(|bytes| bytes.try_into().ok())
                .map(usize::from_ne_bytes);
            let program = programs.iter().find(|(known, _)| Some(*known) == pointer);
            if let Some((_, program)) = program {
                found.push((program.clone(), name.to_string_lossy().into_owned()));
            }
        }
    }
    found
}

/// The failed step, from libbpf's warnings during the load.
fn refusal(log: &[String], operations: &[(String, String)]) -> String {
    const ACTION: &str = "the kernel refused Paceline's BPF programs";
    let of_program = |message: &str| {
        let (name, rest) = message.split_once("prog '")?.1.split_once("': ")?;
        Some((name.to_owned(), rest.to_owned()))
    };
    let messages: Vec<(String, String)> = log
        .iter()
        .filter_map(|message| of_program(message))
        .collect();
    let failed = messages
        .iter()
        .find(|(_, rest)| rest.starts_with("BPF program load failed"));
    let Some((program, _)) = failed else {
        // The load did not reach the verifier: a function or an operation is missing.
        return match log.first() {
            Some(message) => format!("{ACTION}: {}", message.trim_start_matches("libbpf: ")),
            None => ACTION.to_owned(),
        };
    };
    let place = match operations.iter().find(|(name, _)| name == program) {
        Some((_, operation)) => format!("operation {operation} ({program})"),
        None => program.clone(),
    };
    let verifier = messages
        .iter()
        .find(|(name, rest)| name == program && rest.contains("BEGIN PROG LOAD LOG"))
        .and_then(|(_, log)| last_message(log));
    match verifier {
        Some(reason) => format!("{ACTION}: {place}: {reason}"),
        None => format!("{ACTION}: {place}"),
    }
}

/// The line of a verifier's log with the reason: the last one before its statistics.
fn last_message(log: &str) -> Option<&str> {
    const STATISTICS: [&str; 5] = [
        "--",
        "processed ",
        "verification time",
        "stack depth",
        "max_",
    ];
    log.lines()
        .skip(1)
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .filter(|line| !STATISTICS.iter().any(|start| line.starts_with(start)))
        .last()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal_of(log: &[&str]) -> String {
        let log: Vec<String> = log.iter().map(|&line| line.to_owned()).collect();
        let operations = [("pl_cubic_acked".to_owned(), "pkts_acked".to_owned())];
        refusal(&log, &operations)
    }

    #[test]
    fn a_refusal_names_operation_and_function() {
        let text = refusal_of(&[
            "libbpf: prog 'pl_cubic_acked': BPF program load failed: -EINVAL",
            "libbpf: prog 'pl_cubic_acked': -- BEGIN PROG LOAD LOG --\n0: R1=ctx() R10=fp0\n\
             14: <invalid kfunc call>\nkfunc 'cubictcp_acked' is referenced but wasn't resolved\n\
             processed 15 insns (limit 1000000) max_states_per_insn 0\n-- END PROG LOAD LOG --",
            "libbpf: prog 'pl_cubic_acked': failed to load: -EINVAL",
        ]);
        assert_eq!(
            text,
            "the kernel refused Paceline's BPF programs: operation pkts_acked (pl_cubic_acked): \
             kfunc 'cubictcp_acked' is referenced but wasn't resolved"
        );
    }

    #[test]
    fn a_load_that_fails_before_the_verifier_has_libbpfs_message() {
        let message = "struct_ops init_kern paceline_cubic: Cannot find member x in kernel BTF";
        let text = refusal_of(&[
            &format!("libbpf: {message}"),
            "libbpf: failed to load object",
        ]);
        assert!(text.ends_with(message), "{text}");
        assert_eq!(
            refusal_of(&[]),
            "the kernel refused Paceline's BPF programs"
        );
    }

    #[test]
    fn another_program_is_named() {
        let text = refusal_of(&["libbpf: prog 'pl_status': BPF program load failed: -EPERM"]);
        assert!(text.ends_with(": pl_status"), "{text}");
    }
}

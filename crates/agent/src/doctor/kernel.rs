// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks of the kernel's BPF, and of the TCP operations that BPF may implement.

use std::path::Path;

use super::{sysctl, Check};
use paceline_cgroup::Hierarchy;

use crate::error::Result;
use crate::kernel_side::{self, bbr_form, discover, BbrForm, KernelSide};
use crate::{leftovers, tuning};

pub(super) fn checks(root: bool) -> Vec<Check> {
    let mut checks = vec![version(), btf(), jit()];
    if !root {
        for (name, meaning) in [
            ("sockops", SOCKOPS),
            ("iterators", ITERATORS),
            ("cubic", CUBIC),
            ("reno", RENO),
            ("bbr", BBR),
            ("registering", REGISTERING),
            ("quick ACKs", QUICK),
            ("held ACKs", HELD),
            ("SYN options", OPTIONS),
        ] {
            checks.push(Check::unchecked(name, meaning));
        }
        checks.push(rto_max());
        return checks;
    }
    checks.push(sockops());
    checks.push(iterators());
    checks.push(congestion("cubic", "paceline_cubic", CUBIC));
    checks.push(congestion("reno", "paceline_reno", RENO));
    checks.push(bbr());
    checks.push(registering());
    checks.push(quick());
    checks.push(held());
    checks.push(options());
    checks.push(rto_max());
    checks
}

const SOCKOPS: &str = "each connection of a job gets its policy when it is established";
const ITERATORS: &str = "attach changes existing connections, and status reads them";
const CUBIC: &str = "policies with base = \"cubic\", such as the default preset, can wrap it";
const RENO: &str = "policies with base = \"reno\" can wrap it";
const BBR: &str = "policies with base = \"bbr\" can wrap it";
const QUICK: &str = "policies with ack.every = 1 acknowledge each segment at once";
const HELD: &str = "policies with ack.every from 3 on hold ACKs back";
const OPTIONS: &str = "policies with [options] keep TCP options out of connections";
const REGISTERING: &str = "the kernel accepts a congestion control written in BPF";

fn version() -> Check {
    let release = sysctl("kernel.osrelease").unwrap_or_default();
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|part| part.parse().ok());
    let version: (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let found = format!("Linux {release} on {}", std::env::consts::ARCH);
    if version >= (6, 1) {
        Check::ok("kernel", found, "for information: the checks below decide")
    } else {
        Check::warn(
            "kernel",
            found,
            "Paceline supports Linux 6.1 and later; the checks below decide",
            "if one of them fails, boot a newer kernel",
        )
    }
}

fn btf() -> Check {
    const FILE: &str = "/sys/kernel/btf/vmlinux";
    if Path::new(FILE).exists() {
        Check::ok(
            "btf",
            FILE,
            "BPF programs built elsewhere fit this kernel (CO-RE)",
        )
    } else {
        Check::fail(
            "btf",
            format!("no {FILE}"),
            "BPF programs cannot be relocated for this kernel (CO-RE)",
            "boot a kernel built with CONFIG_DEBUG_INFO_BTF=y, as distributions build it",
        )
    }
}

fn jit() -> Check {
    const NAME: &str = "net.core.bpf_jit_enable";
    match sysctl(NAME).as_deref() {
        Some("0") => Check::fail(
            "jit",
            format!("{NAME} = 0"),
            "without the JIT, the kernel registers no congestion control written in BPF",
            "sysctl -w net.core.bpf_jit_enable=1",
        ),
        Some(value) => Check::ok(
            "jit",
            format!("{NAME} = {value}"),
            "the kernel compiles BPF programs",
        ),
        None => Check::warn(
            "jit",
            format!("cannot read {NAME}"),
            "usual in a container; the check \"registering\" below decides",
            "run paceline doctor on the host",
        ),
    }
}

fn sockops() -> Check {
    match KernelSide::probe(
        &["pl_connection", "pl_maker", "pl_set_option", "pl_get_option"],
        None,
    ) {
        Ok(()) => Check::ok("sockops", "the programs load", SOCKOPS),
        Err(error) => Check::fail(
            "sockops",
            error.to_string(),
            "connections cannot get a policy",
            "boot a kernel built with CONFIG_CGROUP_BPF=y; paceline -vv doctor shows the verifier's log",
        ),
    }
}

fn iterators() -> Check {
    const PROGRAMS: [&str; 5] = [
        "pl_status",
        "pl_streams",
        "pl_adopt",
        "pl_release",
        "pl_change",
    ];
    match KernelSide::probe(&PROGRAMS, None) {
        Ok(()) => Check::ok("iterators", "the programs load", ITERATORS),
        Err(error) => Check::fail(
            "iterators",
            error.to_string(),
            "status cannot read connections, and attach and set cannot change existing ones",
            "boot Linux 6.1 or later",
        ),
    }
}

fn congestion(name: &'static str, map: &str, meaning: &str) -> Check {
    match KernelSide::probe(&[], Some(map)) {
        Ok(()) => Check::ok(name, "the kernel's functions can be wrapped", meaning),
        Err(error) => {
            let advice = match std::env::consts::ARCH {
                "aarch64" => "arm64 kernels before 6.10 do not let BPF call these functions: boot a newer one",
                _ => "boot a kernel that exports them to BPF (Linux 6.1 or later with CONFIG_DYNAMIC_FTRACE=y)",
            };
            let no = format!("policies with base = \"{name}\" and a startup law do not run here");
            // Without CUBIC the default policy is gone; the rest is a choice.
            match name {
                "cubic" => Check::fail(name, error.to_string(), &no, advice),
                _ => Check::warn(name, error.to_string(), &no, advice),
            }
        }
    }
}

fn bbr() -> Check {
    kernel_side::load_bbr_module();
    match bbr_form() {
        None => Check::warn(
            "bbr",
            "no bbr_main with BTF, in the kernel or as module tcp_bbr",
            "policies with base = \"bbr\" do not run here",
            "install the module tcp_bbr, or use base = \"cubic\"",
        ),
        Some(form) => {
            let mut check = congestion("bbr", form.map(), BBR);
            if check.level == super::Level::Ok {
                check.found.push_str(match form {
                    BbrForm::TwoArguments => " (two-argument form)",
                    BbrForm::FourArguments => " (four-argument form)",
                });
            }
            check
        }
    }
}

/// Registers the wrapped Reno for a moment, unless something of ours is
/// registered already, and removes the leftovers of ended jobs on the way.
fn registering() -> Check {
    let tried = || -> Result<String> {
        let hierarchy = Hierarchy::find()?;
        let lock = hierarchy.lock()?;
        let cleaned = leftovers::clean(&hierarchy, &lock)?;
        if let Some(found) = cleaned.found {
            let names = found.congestion();
            if !names.is_empty() {
                return Ok(format!("{} registered for running jobs", names.join(", ")));
            }
        }
        KernelSide::probe_registering(&lock, "paceline_reno")?;
        discover::unregister_strays()?;
        Ok("registered and removed one".to_owned())
    };
    match tried() {
        Ok(found) => Check::ok("registering", found, REGISTERING),
        Err(error) => Check::fail(
            "registering",
            error.to_string(),
            "no policy with a startup law can run",
            "boot a kernel built with CONFIG_BPF_JIT=y and CONFIG_DEBUG_INFO_BTF=y",
        ),
    }
}

/// Whether a congestion control may write the flags of quick ACKs (bpf/tuned.h):
/// all wrappers do.
fn quick() -> Check {
    match KernelSide::probe(&[], Some("paceline_reno")) {
        Ok(()) => Check::ok(
            "quick ACKs",
            "a congestion control may ask for them; not on connections that negotiate ECN",
            QUICK,
        ),
        Err(error) => Check::warn(
            "quick ACKs",
            error.to_string(),
            "policies with ack.every = 1 do not run here",
            "leave ack.every out",
        ),
    }
}

fn held() -> Check {
    match KernelSide::probe(&["pl_arrivals", "pl_hold_acks"], None) {
        Ok(()) => Check::ok("held ACKs", "the programs load", HELD),
        Err(error) => Check::warn(
            "held ACKs",
            error.to_string(),
            "policies with ack.every from 3 on do not run here",
            "boot a kernel built with CONFIG_CGROUP_BPF=y",
        ),
    }
}

fn options() -> Check {
    match paceline_bpf::options::probe() {
        Ok(()) => Check::ok("SYN options", "the programs load", OPTIONS),
        Err(error) => Check::warn(
            "SYN options",
            error.to_string(),
            "policies with [options] do not run here",
            "boot a kernel built with CONFIG_NET_CLS_BPF and CONFIG_BPF_EVENTS",
        ),
    }
}

fn rto_max() -> Check {
    match tuning::has_rto_max() {
        true => Check::ok(
            "maximum RTO",
            "sockets have TCP_RTO_MAX_MS",
            "policies may limit the RTO above (rto.most)",
        ),
        false => Check::warn(
            "maximum RTO",
            "sockets have no TCP_RTO_MAX_MS",
            "policies with rto.most do not run here",
            "boot Linux 6.15 or later",
        ),
    }
}

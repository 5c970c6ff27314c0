// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The running kernel's BTF of the functions that Paceline wraps.

use std::ffi::CString;
use std::process::{Command, Stdio};

use libbpf_rs::btf::types::{MemberAttr, Struct};
use libbpf_rs::btf::Btf as TypedBtf;
use libbpf_rs::libbpf_sys as sys;
use libbpf_rs::{AsRawLibbpf, OpenObject};

/// The struct of a congestion control's operations.
pub(super) const OPERATIONS: &str = "tcp_congestion_ops";
/// The start of a transmission with nothing in flight: one of several events up to Linux
/// 7.0, a separate operation from 7.1 on. A kernel has the algorithms' functions of one of
/// the two forms.
const EVENT: &str = "cwnd_event";
const TX_START: &str = "cwnd_event_tx_start";

/// The form of the kernel's `bbr_main`, which follows `cong_control`'s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BbrForm {
    /// `(sk, rate_sample)`: up to Linux 6.9.
    TwoArguments,
    /// `(sk, ack, flag, rate_sample)`: from Linux 6.10.
    FourArguments,
}

impl BbrForm {
    /// Name of the struct_ops map made for this form.
    pub(crate) fn map(self) -> &'static str {
        match self {
            BbrForm::TwoArguments => "paceline_bbr_v1",
            BbrForm::FourArguments => "paceline_bbr_v2",
        }
    }
}

/// Removes from the congestion control `map` the operation whose form is not the kernel's:
/// libbpf refuses an operation that the kernel lacks, and the kernel a program that calls
/// a function it lacks.
pub(super) fn fit_operations(open: &mut OpenObject, map: &str) -> libbpf_rs::Result<()> {
    let kernel = TypedBtf::from_vmlinux()?;
    let foreign = match offset(&kernel, TX_START) {
        Some(_) => EVENT,
        None => TX_START,
    };
    // SAFETY: the object is open, and nothing else refers to it during the call.
    let object = unsafe { open.as_libbpf_object().as_ref() };
    let Some(at) = TypedBtf::from_bpf_object(object)?.and_then(|own| offset(&own, foreign)) else {
        return Ok(());
    };
    let wanted = open.maps_mut().find(|found| found.name() == map);
    if let Some(mut wanted) = wanted {
        // The struct as it will be registered, with pointers to programs (libbpf's
        // "shadow type").
        let slot = wanted
            .initial_value_mut()
            .and_then(|value| value.get_mut(at..at + size_of::<usize>()));
        if let Some(slot) = slot {
            slot.fill(0);
        }
    }
    Ok(())
}

/// Where an operation is in the struct, bytes.
fn offset(btf: &TypedBtf<'_>, operation: &str) -> Option<usize> {
    let operations: Struct<'_> = btf.type_by_name(OPERATIONS)?;
    let mut members = operations.iter();
    let member = members.find(|member| member.name.is_some_and(|name| name == operation))?;
    match member.attr {
        MemberAttr::Normal { offset } => Some(offset as usize / 8),
        MemberAttr::BitField { .. } => None,
    }
}

/// Asks for the module tcp_bbr where the kernel does not offer `bbr`: a
/// congestion control set by a BPF program is not loaded on demand.
pub fn load_bbr_module() {
    let available = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    if available.is_ok_and(|names| names.split_whitespace().any(|name| name == "bbr")) {
        return;
    }
    // A failure shows in the next check; modprobe's output does not help.
    let _ = Command::new("modprobe")
        .arg("tcp_bbr")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
}

/// The form of `bbr_main` in the kernel or its module tcp_bbr, if that is
/// loaded. None where there is no BBR or no BTF of it.
pub fn bbr_form() -> Option<BbrForm> {
    match function_arguments("bbr_main", "tcp_bbr")? {
        2 => Some(BbrForm::TwoArguments),
        4 => Some(BbrForm::FourArguments),
        other => {
            tracing::warn!("this kernel's bbr_main takes {other} arguments: expected 2 or 4");
            None
        }
    }
}

/// Number of arguments of a function of the kernel, or of this module.
fn function_arguments(name: &str, module: &str) -> Option<usize> {
    let kernel = Btf::new(|| {
        // SAFETY: no preconditions; the result is checked.
        unsafe { sys::btf__load_vmlinux_btf() }
    })?;
    if let Some(count) = kernel.function_arguments(name) {
        return Some(count);
    }
    let module = CString::new(module).ok()?;
    let split = Btf::new(|| {
        // SAFETY: the name ends with NUL; `kernel` outlives `split`.
        unsafe { sys::btf__load_module_btf(module.as_ptr(), kernel.0) }
    })?;
    split.function_arguments(name)
}

struct Btf(*mut sys::btf);

impl Btf {
    fn new(load: impl FnOnce() -> *mut sys::btf) -> Option<Self> {
        let pointer = load();
        (!pointer.is_null()).then_some(Self(pointer))
    }

    fn function_arguments(&self, name: &str) -> Option<usize> {
        let name = CString::new(name).ok()?;
        // SAFETY: `self.0` is a loaded BTF; ids come from the same BTF; a
        // FUNC's `type` is its FUNC_PROTO, whose low 16 info bits count
        // parameters (linux/btf.h).
        unsafe {
            let id = sys::btf__find_by_name_kind(self.0, name.as_ptr(), sys::BTF_KIND_FUNC);
            let function = sys::btf__type_by_id(self.0, u32::try_from(id).ok()?).as_ref()?;
            let prototype =
                sys::btf__type_by_id(self.0, function.__bindgen_anon_1.type_).as_ref()?;
            Some((prototype.info & 0xffff) as usize)
        }
    }
}

impl Drop for Btf {
    fn drop(&mut self) {
        // SAFETY: loaded by us, freed once.
        unsafe { sys::btf__free(self.0) }
    }
}

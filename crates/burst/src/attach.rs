// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The hooks of an interface: TCX, XDP, or cls_bpf where the kernel has nothing better.
//!
//! TCX (Linux 6.6) and XDP attachments are links, which end with their last
//! descriptor: however this process ends, they end with it.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use libbpf_rs::libbpf_sys as sys;
use libbpf_rs::query::{LinkInfo, LinkTypeInfo};
use libbpf_rs::{Object, TcAttachPoint, TC_EGRESS, TC_INGRESS};

use super::classic::Classic;
use super::{Direction, Interface, Options};
use crate::error::{Error, Result};

const IN: &str = "pl_burst_in";
const OUT: &str = "pl_burst_out";
const XDP: &str = "pl_burst_xdp";

/// The requested hook.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Attach {
    /// TCX, or cls_bpf where the kernel has no TCX.
    #[default]
    Auto,
    /// TCX and nothing else.
    Tcx,
    /// XDP in the driver: packets as they were received, before GRO joins them.
    Xdp,
    /// cls_bpf and nothing else.
    Classic,
}

/// The hook in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// TCX links.
    Tcx,
    /// An XDP link.
    Xdp,
    /// Filters of the clsact queueing discipline.
    Classic,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Tcx => "tcx",
            Kind::Xdp => "xdp",
            Kind::Classic => "cls_bpf",
        })
    }
}

#[derive(Debug)]
pub(super) enum Attachment {
    Links(Kind, Vec<OwnedFd>),
    Classic(Classic),
}

impl Attachment {
    pub fn kind(&self) -> Kind {
        match self {
            Attachment::Links(kind, _) => *kind,
            Attachment::Classic(_) => Kind::Classic,
        }
    }

    /// Fails if packets are not counted any more.
    pub fn check(&self, interface: &Interface) -> Result<()> {
        let attached = match self {
            Attachment::Links(_, links) => links.iter().all(link_is_attached),
            Attachment::Classic(classic) => classic.is_attached(),
        };
        if attached {
            return Ok(());
        }
        Err(Error::Interface {
            interface: interface.name().to_owned(),
            why:
                "packets are no longer counted: the interface is gone, or its program was detached"
                    .to_owned(),
        })
    }
}

/// A link whose interface is gone, or that was detached by force, has interface 0.
fn link_is_attached(link: &OwnedFd) -> bool {
    match LinkInfo::from_fd(link.as_fd()).map(|info| info.info) {
        Ok(LinkTypeInfo::Tcx(info)) => info.ifindex != 0,
        Ok(LinkTypeInfo::Xdp(info)) => info.ifindex != 0,
        _ => false,
    }
}

/// Attaches the programs that `load` loads.
pub(super) fn attach(
    options: &Options,
    load: impl Fn(&[&str]) -> Result<Object>,
) -> Result<(Object, Attachment)> {
    match options.attach {
        Attach::Xdp => attach_xdp(options, load),
        Attach::Tcx => attach_tcx(options, load),
        Attach::Classic => attach_classic(options, load),
        Attach::Auto => match attach_tcx(options, &load) {
            Err(Error::System { source, .. }) if is_unknown(&source) => {
                attach_classic(options, load)
            }
            result => result,
        },
    }
}

/// The error of a kernel that does not have a kind of attachment.
fn is_unknown(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP))
}

fn points(direction: Direction) -> Vec<(&'static str, sys::bpf_attach_type, TcAttachPoint)> {
    let all = [
        (IN, sys::BPF_TCX_INGRESS, TC_INGRESS),
        (OUT, sys::BPF_TCX_EGRESS, TC_EGRESS),
    ];
    all.into_iter()
        .filter(|(name, ..)| match direction {
            Direction::In => *name == IN,
            Direction::Out => *name == OUT,
            Direction::Both => true,
        })
        .collect()
}

fn attach_tcx(
    options: &Options,
    load: impl Fn(&[&str]) -> Result<Object>,
) -> Result<(Object, Attachment)> {
    let points = points(options.direction);
    let object = load(&points.iter().map(|point| point.0).collect::<Vec<_>>())?;
    let links = points.iter().map(|(name, place, _)| {
        // Before all others: another program may end the processing of a packet.
        create_link(&object, name, &options.interface, *place, sys::BPF_F_BEFORE).map_err(
            |source| {
                let hint = match is_unknown(&source) {
                    true => ": this kernel has no TCX (Linux 6.6): use --attach tc",
                    false => "",
                };
                let name = options.interface.name();
                Error::system(format!("cannot attach to {name} by TCX{hint}"), source)
            },
        )
    });
    let links = links.collect::<Result<_>>()?;
    Ok((object, Attachment::Links(Kind::Tcx, links)))
}

fn attach_xdp(
    options: &Options,
    load: impl Fn(&[&str]) -> Result<Object>,
) -> Result<(Object, Attachment)> {
    let refuse = |why: String| Error::Interface {
        interface: options.interface.name().to_owned(),
        why,
    };
    if options.direction != Direction::In {
        return Err(refuse(
            "XDP sees only received packets: use --direction in, or another --attach".to_owned(),
        ));
    }
    let object = load(&[XDP])?;
    let link = create_link(
        &object,
        XDP,
        &options.interface,
        sys::BPF_XDP,
        sys::XDP_FLAGS_DRV_MODE,
    );
    let link = link.map_err(|error| match error.raw_os_error() {
        Some(libc::EBUSY) => {
            refuse("another XDP program is attached: use --attach auto".to_owned())
        }
        Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ERANGE) => refuse(format!(
            "its driver accepts no XDP program in this configuration ({error}): use --attach auto"
        )),
        _ => Error::system(
            format!("cannot attach to {} by XDP", options.interface.name()),
            error,
        ),
    })?;
    Ok((object, Attachment::Links(Kind::Xdp, vec![link])))
}

fn attach_classic(
    options: &Options,
    load: impl Fn(&[&str]) -> Result<Object>,
) -> Result<(Object, Attachment)> {
    let points = points(options.direction);
    let object = load(&points.iter().map(|point| point.0).collect::<Vec<_>>())?;
    let mut filters = Vec::new();
    for (name, _, place) in points {
        let program = program(&object, name)?;
        filters.push((place, program));
    }
    let classic = Classic::attach(&options.interface, &filters)?;
    Ok((object, Attachment::Classic(classic)))
}

fn program<'a>(object: &'a Object, name: &'static str) -> Result<libbpf_rs::Program<'a>> {
    object
        .progs()
        .find(|program| program.name() == name)
        .ok_or(Error::Incomplete { what: name })
}

fn create_link(
    object: &Object,
    name: &'static str,
    interface: &Interface,
    place: sys::bpf_attach_type,
    flags: u32,
) -> io::Result<OwnedFd> {
    let program = program(object, name).map_err(io::Error::other)?;
    let options = sys::bpf_link_create_opts {
        sz: size_of::<sys::bpf_link_create_opts>() as sys::size_t,
        flags,
        ..Default::default()
    };
    // SAFETY: program and options live across the call; the descriptor is new.
    unsafe {
        let link = sys::bpf_link_create(
            program.as_fd().as_raw_fd(),
            interface.index() as i32,
            place,
            &options,
        );
        match link {
            0.. => Ok(OwnedFd::from_raw_fd(link)),
            error => Err(io::Error::from_raw_os_error(-error)),
        }
    }
}

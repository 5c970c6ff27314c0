// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Paths on this host and others.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use anyhow::{bail, Context, Result};
use paceline_mover::session::SshHost;

/// Of standing receivers.
const SCHEME: &[u8] = b"paceline://";
/// Their port, if none is given.
const PORT: u16 = 7412;

/// A path, and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// Here.
    Local(PathBuf),
    /// `[USER@]HOST:PATH`.
    Ssh(SshHost, Vec<u8>),
    /// `paceline://HOST[:PORT]/PATH`: host and port, and a path below the receiver's root.
    Standing(String, Vec<u8>),
}

impl Address {
    /// Reads one, as the user writes it. A path with a colon in it is local if it has a slash
    /// before (`./a:b`), as for scp and rsync.
    pub fn parse(text: &OsStr) -> Result<Self> {
        let bytes = text.as_bytes();
        let shown = text.to_string_lossy();
        if bytes.is_empty() {
            bail!("an empty path: write . for this directory");
        }
        if let Some(rest) = bytes.strip_prefix(SCHEME) {
            let slash = rest.iter().position(|byte| *byte == b'/');
            let (host, path) = rest.split_at(slash.unwrap_or(rest.len()));
            let host = std::str::from_utf8(host)
                .ok()
                .filter(|host| !host.is_empty());
            let host = host.with_context(|| {
                format!("{shown:?} is not an address: expected paceline://HOST[:PORT]/PATH")
            })?;
            let path = path.to_vec();
            let path = if path.is_empty() { b"/".to_vec() } else { path };
            return Ok(Self::Standing(with_default_port(host)?, path));
        }
        let start = match bytes.iter().position(|byte| *byte == b'[') {
            // [IPV6]:PATH
            Some(bracket) if !bytes[..bracket].contains(&b'/') => {
                bytes.iter().position(|byte| *byte == b']').unwrap_or(0)
            }
            _ => 0,
        };
        let colon = bytes[start..]
            .iter()
            .position(|byte| *byte == b':')
            .map(|at| at + start);
        match colon {
            Some(colon) if !bytes[..colon].contains(&b'/') => {
                let host = std::str::from_utf8(&bytes[..colon]);
                let host = host.with_context(|| format!("{shown:?}: the host's name"))?;
                let path = match &bytes[colon + 1..] {
                    b"" => b".".to_vec(),
                    path => path.to_vec(),
                };
                Ok(Self::Ssh(SshHost::new(host)?, path))
            }
            _ => Ok(Self::Local(text.into())),
        }
    }
}

fn with_default_port(host: &str) -> Result<String> {
    if !host.starts_with('[') && host.matches(':').count() > 1 {
        bail!("{host:?}: write an IPv6 address in brackets, as paceline://[fd00::1]:{PORT}/PATH");
    }
    let is_bare = match host.rfind(']') {
        Some(end) => end + 1 == host.len(),
        None => !host.contains(':'),
    };
    match is_bare {
        true => Ok(format!("{host}:{PORT}")),
        false => {
            let port = host.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
            match port {
                Some(Ok(_)) => Ok(host.to_owned()),
                _ => bail!("{host:?} is not HOST:PORT"),
            }
        }
    }
}

/// The host that sends.
#[derive(Debug)]
pub enum Route {
    /// From this one.
    Here(Vec<PathBuf>, Address),
    /// From another one to a third.
    Across((SshHost, Vec<Vec<u8>>), (SshHost, Vec<u8>)),
}

/// Sources and destination of `send`. If the first source is on another host, all are.
pub fn route(paths: &[OsString]) -> Result<Route> {
    let is_across = match paths.first() {
        Some(first) if paths.len() > 1 => matches!(Address::parse(first)?, Address::Ssh(..)),
        _ => false,
    };
    if !is_across {
        let (here, to) = destination(paths)?;
        return Ok(Route::Here(here, to));
    }
    let (last, first) = paths
        .split_last()
        .context("expected SRC... and a destination")?;
    let from = one_host(first)?;
    match Address::parse(last)? {
        Address::Ssh(host, path) => Ok(Route::Across(from, (host, path))),
        Address::Local(_) => bail!(
            "{:?} is on this host: to get files of another one, run paceline receive",
            last.to_string_lossy()
        ),
        Address::Standing(..) => bail!(
            "from another host to a standing receiver: run paceline send on that host, which has \
             the token then"
        ),
    }
}

/// The hosts of an option, each of them once.
pub fn hosts(option: &str, names: &[String]) -> Result<Vec<SshHost>> {
    let mut hosts: Vec<SshHost> = Vec::new();
    for name in names {
        let host = SshHost::new(name).with_context(|| format!("{option} {name:?}"))?;
        if name.contains([':', '/']) && !name.ends_with(']') {
            bail!("{option} {name:?}: expected [USER@]HOST; the path is given once, after all options");
        }
        if hosts.contains(&host) {
            bail!("{option} {name:?}: it is there twice");
        }
        hosts.push(host);
    }
    Ok(hosts)
}

/// SRC... and DST as several hosts see them.
pub fn shared_paths(paths: &[OsString]) -> Result<(Vec<Vec<u8>>, Vec<u8>)> {
    let Some((last, first)) = paths.split_last().filter(|(_, first)| !first.is_empty()) else {
        bail!("expected SRC... and DST, as the hosts of --from and of --to see them");
    };
    let bytes = |path: &OsString| match Address::parse(path)? {
        Address::Local(_) => Ok(path.as_bytes().to_vec()),
        _ => bail!(
            "{:?}: with --from and --to expected a path without a host",
            path.to_string_lossy()
        ),
    };
    let sources = first.iter().map(bytes).collect::<Result<_>>()?;
    Ok((sources, bytes(last)?))
}

/// Sources on one other host.
fn one_host(sources: &[OsString]) -> Result<(SshHost, Vec<Vec<u8>>)> {
    let (mut host, mut there) = (None, Vec::new());
    for source in sources {
        let Address::Ssh(own, path) = Address::parse(source)? else {
            bail!("{:?}: expected [USER@]HOST:SRC", source.to_string_lossy());
        };
        if host.get_or_insert_with(|| own.clone()) != &own {
            bail!("sources on several hosts: run one command for each");
        }
        there.push(path);
    }
    Ok((host.context("expected [USER@]HOST:SRC")?, there))
}

fn destination(paths: &[OsString]) -> Result<(Vec<PathBuf>, Address)> {
    let Some((last, first)) = paths.split_last().filter(|(_, first)| !first.is_empty()) else {
        bail!("expected SRC... and a destination: [USER@]HOST:DST or paceline://HOST[:PORT]/DST");
    };
    let mut here = Vec::new();
    for source in first {
        match Address::parse(source)? {
            Address::Local(path) => here.push(path),
            _ => bail!(
                "{:?} is on another host, and the first source on this one: run one command for \
                 each",
                source.to_string_lossy()
            ),
        }
    }
    match Address::parse(last)? {
        Address::Local(path) => bail!(
            "{:?} is on this host: expected [USER@]HOST:DST or paceline://HOST[:PORT]/DST; for a \
             copy on one host use cp",
            path.display()
        ),
        there => Ok((here, there)),
    }
}

/// Sources and destination of `receive`.
pub fn sources(paths: &[OsString]) -> Result<(SshHost, Vec<Vec<u8>>, PathBuf)> {
    let Some((last, first)) = paths.split_last().filter(|(_, first)| !first.is_empty()) else {
        bail!("expected [USER@]HOST:SRC... and a destination on this host; or --listen");
    };
    let Address::Local(here) = Address::parse(last)? else {
        bail!(
            "{:?} is on another host: receive writes to this one; to write there, run paceline send",
            last.to_string_lossy()
        );
    };
    let (host, there) = one_host(first)?;
    Ok((host, there, here))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Address {
        Address::parse(OsStr::new(text)).expect(text)
    }

    #[test]
    fn addresses() {
        let ssh = |host: &str, path: &str| {
            Address::Ssh(
                SshHost::new(host).expect("a host"),
                path.as_bytes().to_vec(),
            )
        };
        assert_eq!(parse("h:/x"), ssh("h", "/x"));
        assert_eq!(parse("u@h:x:y"), ssh("u@h", "x:y"));
        assert_eq!(parse("h:"), ssh("h", "."));
        assert_eq!(parse("[fe80::1]:x"), ssh("[fe80::1]", "x"));
        assert_eq!(parse("u@[::1]:/a"), ssh("u@[::1]", "/a"));
        for local in ["x", "./a:b", "/a:b", "a/b:c", "a[1]"] {
            assert_eq!(parse(local), Address::Local(local.into()));
        }
        let standing = |host: &str, path: &str| Address::Standing(host.into(), path.into());
        assert_eq!(parse("paceline://h/a/b"), standing("h:7412", "/a/b"));
        assert_eq!(parse("paceline://h:1"), standing("h:1", "/"));
        assert_eq!(parse("paceline://[::1]/"), standing("[::1]:7412", "/"));
        assert_eq!(parse("paceline://[::1]:99/x"), standing("[::1]:99", "/x"));
        for wrong in [
            "",
            "paceline://fd00::1/x",
            "paceline://",
            "paceline://h:x/",
            "-oProxyCommand=x:y",
            ":x",
        ] {
            assert!(Address::parse(OsStr::new(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn invalid_arguments_name_the_right_form() {
        let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        for (wrong, expected) in [
            (&["x"][..], "[USER@]HOST:DST"),
            (&["a", "b"], "cp"),
            (&["h:a", "b"], "paceline receive"),
            (&["a", "h:a", "g:b"], "one command for each"),
            (&["h:a", "g:a", "g:b"], "one command for each"),
            (&["h:a", "b", "g:b"], "[USER@]HOST:SRC"),
            (&["h:a", "paceline://g/b"], "on that host"),
        ] {
            let error = route(&words(wrong)).expect_err("wrong").to_string();
            assert!(error.contains(expected), "{error}");
        }
        for (wrong, expected) in [
            (&["x"][..], "--listen"),
            (&["a", "b"], "[USER@]HOST:SRC"),
            (&["h:a", "g:b"], "paceline send"),
            (&["h:a", "g:b", "c"], "one command for each"),
        ] {
            let error = sources(&words(wrong)).expect_err("wrong").to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}

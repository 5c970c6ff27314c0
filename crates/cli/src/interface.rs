// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interfaces as users name them.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::sched::{setns, CloneFlags};

/// An interface, of this network namespace or of one with a name: `IF` or `NETNS:IF`.
#[derive(Debug, Clone)]
pub struct Place {
    namespace: Option<PathBuf>,
    /// Of the interface.
    pub name: String,
}

impl std::str::FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (namespace, name) = match text.rsplit_once(':') {
            Some((namespace, name)) if namespace.contains('/') => (Some(namespace.into()), name),
            Some((namespace, name)) => (Some(Path::new("/run/netns").join(namespace)), name),
            None => (None, text),
        };
        if name.is_empty() {
            return Err("write IF or NETNS:IF".to_owned());
        }
        Ok(Place {
            namespace,
            name: name.to_owned(),
        })
    }
}

impl Place {
    /// Takes the calling thread into the interface's network namespace, if one is named.
    ///
    /// # Errors
    /// When there is none, or it may not be entered.
    pub fn enter(&self) -> Result<()> {
        let Some(path) = &self.namespace else {
            return Ok(());
        };
        let namespace = File::open(path)
            .with_context(|| format!("there is no network namespace {}", path.display()))?;
        setns(namespace, CloneFlags::CLONE_NEWNET)
            .with_context(|| format!("cannot enter {}", path.display()))
    }
}

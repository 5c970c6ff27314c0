// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel of a guest, as `--kernel` names it.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Directory of packages to use instead of the distribution's, where there is no
/// `--kernel`.
pub const PACKAGES_VARIABLE: &str = "PACELINE_KERNEL_DEB_DIR";

/// A suite of Debian whose kernel a guest can boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Suite {
    /// As in the archive.
    pub name: &'static str,
    /// Whether it has been released, and so has security updates.
    pub released: bool,
}

/// From the oldest kernel to the newest.
pub const SUITES: [Suite; 4] = [
    Suite {
        name: "bookworm",
        released: true,
    },
    Suite {
        name: "trixie",
        released: true,
    },
    Suite {
        name: "sid",
        released: false,
    },
    Suite {
        name: "experimental",
        released: false,
    },
];

/// Where the kernel comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// Today's kernel of this machine's distribution, by the lists that its apt has.
    Distribution,
    /// Today's kernel of a suite of Debian.
    Suite(Suite),
    /// A directory of packages.
    Directory(PathBuf),
}

/// No suite and no directory has this name.
#[derive(Debug, thiserror::Error)]
#[error("there is no kernel {name:?}: name a Debian suite ({known}) or a directory of linux-image packages")]
pub struct UnknownKernel {
    name: String,
    known: String,
}

impl Default for Choice {
    /// The directory that PACELINE_KERNEL_DEB_DIR names, else the distribution's.
    fn default() -> Self {
        std::env::var_os(PACKAGES_VARIABLE)
            .filter(|directory| !directory.is_empty())
            .map_or(Choice::Distribution, |directory| {
                Choice::Directory(directory.into())
            })
    }
}

impl FromStr for Choice {
    type Err = UnknownKernel;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        if let Some(suite) = SUITES.iter().find(|suite| suite.name == name) {
            return Ok(Choice::Suite(*suite));
        }
        let directory = PathBuf::from(name);
        if directory.is_dir() {
            return Ok(Choice::Directory(directory));
        }
        Err(UnknownKernel {
            name: name.to_owned(),
            known: SUITES.map(|suite| suite.name).join(", "),
        })
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Choice::Distribution => formatter.write_str("distribution"),
            Choice::Suite(suite) => formatter.write_str(suite.name),
            Choice::Directory(directory) => directory.display().fmt(formatter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let error = "trixy".parse::<Choice>().unwrap_err().to_string();
        for part in ["\"trixy\"", "bookworm, trixie, sid, experimental"] {
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_suite_goes_before_a_directory() {
        assert_eq!("sid".parse::<Choice>().unwrap().to_string(), "sid");
        let directory = "/tmp".parse::<Choice>().unwrap();
        assert_eq!(directory, Choice::Directory("/tmp".into()));
    }
}

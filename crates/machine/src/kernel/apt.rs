// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Looks packages up and downloads them with apt: by the lists that the machine's own apt
//! has, or by lists of another suite, which are kept in the cache. Nothing of the
//! machine's apt changes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::choice::{Suite, SUITES};
use super::list;
use crate::{VirtualError, Wrong};

/// Where Debian is on a machine whose sources do not name it.
const MIRROR: &str = "http://deb.debian.org/debian";
/// Likewise, with its security updates.
const SECURITY_MIRROR: &str = "http://deb.debian.org/debian-security";
/// Debian's package of the same name has it; else the machine's own keys must do.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// Lists that are older are fetched again.
const LISTS_LAST: Duration = Duration::from_secs(24 * 3600);
/// Settings of the machine that a suite's apt keeps: how to fetch, through which proxy,
/// and whether an old mirror may be used; but not the other files to fetch.
const KEPT_SETTINGS: &str = "Acquire::";
const OTHER_FILES: [&str; 3] = [
    "Acquire::IndexTargets",
    "Acquire::Languages",
    "Acquire::GzipIndexes",
];

/// apt with one set of lists.
pub struct Apt {
    /// `APT_CONFIG` of its commands; the machine's own without.
    configuration: Option<PathBuf>,
}

impl Apt {
    /// With the lists that the machine has.
    pub fn of_this_machine() -> Self {
        Apt {
            configuration: None,
        }
    }

    /// With lists of `suite`, kept in `directory` and fetched again once a day.
    pub fn of_suite(suite: Suite, directory: &Path) -> Result<Self, VirtualError> {
        for place in [directory.join("lists/partial"), directory.join("cache")] {
            fs::create_dir_all(&place).wrong("make", &place)?;
        }
        let host = Apt::of_this_machine();
        let sources = directory.join("sources.list");
        let wanted = sources_of(suite, &host.sources()?, Path::new(KEYRING).exists());
        let configuration = directory.join("apt.conf");
        let settings = host.run("apt-config", &["dump"], None)?;
        let same = fs::read_to_string(&sources).is_ok_and(|found| found == wanted);
        fs::write(&sources, wanted).wrong("write", &sources)?;
        fs::write(&configuration, configuration_of(directory, &settings))
            .wrong("write", &configuration)?;
        let apt = Apt {
            configuration: Some(configuration),
        };
        let stamp = directory.join("fetched");
        let fresh = fs::metadata(&stamp)
            .and_then(|data| data.modified())
            .is_ok_and(|time| time.elapsed().is_ok_and(|age| age < LISTS_LAST));
        if !(same && fresh) {
            apt.run("apt-get", &["update", "--error-on=any"], None)?;
            fs::write(&stamp, "").wrong("write", &stamp)?;
        }
        Ok(apt)
    }

    /// Whether it is the machine's own.
    pub fn is_of_this_machine(&self) -> bool {
        self.configuration.is_none()
    }

    /// The record of the package that would be installed.
    pub fn show(&self, package: &str) -> Result<String, VirtualError> {
        self.run("apt-cache", &["show", "--no-all-versions", package], None)
    }

    /// Downloads `packages` into `place`.
    pub fn download(
        &self,
        packages: &[String],
        place: &Path,
    ) -> Result<Vec<PathBuf>, VirtualError> {
        let mut arguments = vec!["download"];
        arguments.extend(packages.iter().map(String::as_str));
        self.run("apt-get", &arguments, Some(place))?;
        debs(place)
    }

    /// Address and suite of each source of packages.
    fn sources(&self) -> Result<Vec<(String, String)>, VirtualError> {
        let arguments = [
            "indextargets",
            "--format",
            "$(REPO_URI)|$(RELEASE)",
            "Created-By: Packages",
        ];
        let text = self.run("apt-get", &arguments, None)?;
        Ok(text
            .lines()
            .filter_map(|line| line.split_once('|'))
            .map(|(address, suite)| (address.to_owned(), suite.to_owned()))
            .collect())
    }

    fn run(
        &self,
        program: &str,
        arguments: &[&str],
        place: Option<&Path>,
    ) -> Result<String, VirtualError> {
        let mut command = Command::new(program);
        command.args(arguments).env("LC_ALL", "C");
        if let Some(configuration) = &self.configuration {
            command.env("APT_CONFIG", configuration);
        }
        if let Some(place) = place {
            command.current_dir(place);
        }
        let output = command.output().map_err(|source| VirtualError::Start {
            program: program.to_owned(),
            source,
        })?;
        if !output.status.success() {
            return Err(VirtualError::Apt {
                command: format!("{program} {}", arguments.join(" ")),
                message: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            });
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// The packages in a directory.
pub fn debs(directory: &Path) -> Result<Vec<PathBuf>, VirtualError> {
    let mut paths = list(directory)?;
    paths.retain(|path| path.extension().is_some_and(|end| end == "deb"));
    Ok(paths)
}

/// A suite's list of sources: its own and, once it is released, its security updates,
/// from the mirrors that the machine uses for other suites of Debian.
fn sources_of(suite: Suite, host: &[(String, String)], keyring: bool) -> String {
    let of_debian = |host_suite: &str, end: &str| {
        let name = host_suite.strip_suffix(end);
        name.is_some_and(|name| {
            SUITES.iter().any(|suite| suite.name == name) || ["stable", "testing"].contains(&name)
        })
    };
    let mirror = |end, otherwise: &str| {
        host.iter()
            .find(|(_, host_suite)| of_debian(host_suite, end))
            .map_or(otherwise.to_owned(), |(address, _)| address.clone())
    };
    let signed = match keyring {
        true => format!(" signed-by={KEYRING}"),
        false => String::new(),
    };
    let line = |address: &str, end: &str| {
        format!(
            "deb [arch=amd64{signed}] {address} {}{end} main\n",
            suite.name
        )
    };
    let mut text = line(&mirror("", MIRROR), "");
    if suite.released {
        text += &line(&mirror("-security", SECURITY_MIRROR), "-security");
    }
    text
}

/// apt's configuration in place of the machine's, whose hooks are meant for the machine's
/// own packages.
fn configuration_of(directory: &Path, host: &str) -> String {
    let mut text = String::new();
    for line in host.lines() {
        let is_other = OTHER_FILES.iter().any(|name| line.starts_with(name));
        if line.starts_with(KEPT_SETTINGS) && !is_other {
            text += line;
            text.push('\n');
        }
    }
    let place = directory.display();
    text += &format!(
        "Acquire::Languages \"none\";\n\
         Dir::Etc::main \"/dev/null\";\n\
         Dir::Etc::parts \"/dev/null\";\n\
         Dir::Etc::preferences \"/dev/null\";\n\
         Dir::Etc::preferencesparts \"/dev/null\";\n\
         Dir::Etc::sourceparts \"/dev/null\";\n\
         Dir::Etc::sourcelist \"{place}/sources.list\";\n\
         Dir::State::lists \"{place}/lists\";\n\
         Dir::Cache \"{place}/cache\";\n\
         APT::Sandbox::User \"root\";\n"
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suite(name: &str) -> Suite {
        *SUITES
            .iter()
            .find(|suite| suite.name == name)
            .expect("known")
    }

    #[test]
    fn a_suite_comes_from_the_machines_own_mirrors() {
        let host = [
            ("http://other.example/apt", "nodistro"),
            ("http://mirror.example/debian/", "bookworm"),
            ("http://mirror.example/security/", "bookworm-security"),
        ]
        .map(|(address, suite)| (address.to_owned(), suite.to_owned()));
        assert_eq!(
            sources_of(suite("trixie"), &host, true),
            "deb [arch=amd64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://mirror.example/debian/ trixie main\n\
             deb [arch=amd64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://mirror.example/security/ trixie-security main\n"
        );
        assert_eq!(
            sources_of(suite("sid"), &host[..1], false),
            "deb [arch=amd64] http://deb.debian.org/debian sid main\n"
        );
    }

    #[test]
    fn hooks_of_the_machine_are_left_out_and_its_proxy_is_not() {
        let host = "APT::Update::Post-Invoke:: \"rm -f /var/cache/apt/*.bin || true\";\n\
                    Acquire::http::Proxy \"http://proxy.example:3128\";\n\
                    Acquire::IndexTargets::deb::DEP-11::ShortDescription \"DEP-11\";\n\
                    Dir::Etc::parts \"apt.conf.d\";\n";
        let text = configuration_of(Path::new("/cache/sid"), host);
        assert!(text.starts_with(
            "Acquire::http::Proxy \"http://proxy.example:3128\";\nAcquire::Languages"
        ));
        assert!(!text.contains("Post-Invoke") && !text.contains("DEP-11"));
        assert!(text.contains("Dir::State::lists \"/cache/sid/lists\";\n"));
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The stock kernel that the guest boots: found in packages, fetched, unpacked into the
//! cache, and never installed.

mod apt;
mod choice;
mod unpack;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use apt::Apt;
use paceline_experiment::hash::hash_of;

use super::{VirtualError, Wrong};

pub use choice::{Choice, Suite, UnknownKernel, SUITES};

/// Kernel modules that the lab needs, where the kernel has them as modules.
const MODULES: [&str; 14] = [
    "veth",
    "sch_tbf",
    "sch_netem",
    "sch_fq",
    "sch_ingress",
    "cls_bpf",
    "cls_matchall",
    "act_police",
    "sch_codel",
    "sch_fq_codel",
    "sch_red",
    "bridge",
    "tcp_bbr",
    "af_packet",
];
/// And those of transparent gateways, which the guest loads for them alone.
const GATEWAY_MODULES: [&str; 4] = ["nf_tables", "nft_tproxy", "nft_socket", "nft_fib_inet"];
/// Names of packages that hold a kernel or lead to one.
const KERNEL_PACKAGES: [&str; 3] = ["linux-image-", "linux-binary-", "linux-modules-"];
/// In the cache: for each source of kernels a link to the newest one it had.
const LATEST: &str = "latest";

/// An unpacked kernel.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// Its own directory in the cache: `vmlinuz`, `modules/NN-name.ko`, numbered in the order
    /// of loading, and `gateway-modules` with those of [`GATEWAY_MODULES`].
    pub directory: PathBuf,
    /// Why it may not be the one of today.
    pub stale: Option<String>,
}

impl Kernel {
    /// The file for the bootloader.
    pub fn boot_file(&self) -> PathBuf {
        self.directory.join("vmlinuz")
    }

    /// The modules of one of the two directories, in the order of loading.
    pub fn modules(&self, directory: &str) -> Result<Vec<PathBuf>, VirtualError> {
        let mut paths = list(&self.directory.join(directory))?;
        paths.sort();
        Ok(paths)
    }
}

/// Finds, fetches and unpacks a kernel below `cache`, which the caller has locked.
/// Without a network, the newest one of the same source that is there already.
pub fn find(cache: &Path, choice: &Choice) -> Result<Kernel, VirtualError> {
    if std::env::consts::ARCH != "x86_64" {
        return Err(VirtualError::Architecture(std::env::consts::ARCH));
    }
    let kernels = cache.join("kernels");
    fs::create_dir_all(&kernels).wrong("make", &kernels)?;
    let apt = match choice {
        Choice::Directory(directory) => return of_directory(&kernels, directory),
        Choice::Distribution => Ok(Apt::of_this_machine()),
        Choice::Suite(suite) => Apt::of_suite(*suite, &cache.join("apt").join(suite.name)),
    };
    let link = kernels.join(LATEST).join(choice.to_string());
    match apt.and_then(|apt| of_apt(&kernels, &apt)) {
        Ok(kernel) => {
            point(&link, &kernel.directory)?;
            Ok(kernel)
        }
        Err(error) => match fs::canonicalize(&link) {
            Ok(directory) if directory.join("vmlinuz").exists() => Ok(Kernel {
                directory,
                stale: Some(format!(
                    "the kernel of {choice} is the newest one in the cache, because {error}"
                )),
            }),
            _ => Err(error),
        },
    }
}

/// Makes `link` lead to `directory`.
fn point(link: &Path, directory: &Path) -> Result<(), VirtualError> {
    if fs::read_link(link).is_ok_and(|found| found == directory) {
        return Ok(());
    }
    let parent = link.parent().unwrap_or(link);
    fs::create_dir_all(parent).wrong("make", parent)?;
    drop(fs::remove_file(link));
    std::os::unix::fs::symlink(directory, link).wrong("make", link)
}

fn of_directory(kernels: &Path, directory: &Path) -> Result<Kernel, VirtualError> {
    let packages = apt::debs(directory)?;
    let first = packages.iter().find_map(|path| {
        let name = path.file_stem()?.to_string_lossy().into_owned();
        ["linux-image-", "linux-binary-"]
            .iter()
            .any(|start| name.starts_with(start))
            .then_some(name)
    });
    let Some(first) = first else {
        return Err(VirtualError::NoImagePackage {
            directory: directory.to_owned(),
        });
    };
    // A user's own package may have the same name and another kernel.
    let mut contents = Vec::new();
    for path in &packages {
        let data = fs::metadata(path).wrong("look at", path)?;
        let changed = data.modified().ok();
        let changed = changed.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        contents.push(format!("{} {} {changed:?}", path.display(), data.len()));
    }
    let contents = hash_of(&[contents.join("\n").as_bytes()]);
    unpacked(kernels, &format!("{first}-{:08x}", contents as u32), |_| {
        Ok(packages)
    })
}

/// The kernel that the distribution's meta-package leads to.
fn of_apt(kernels: &Path, apt: &Apt) -> Result<Kernel, VirtualError> {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let is_ubuntu = release
        .lines()
        .any(|line| line == "ID=ubuntu" || line.starts_with("ID_LIKE=ubuntu"));
    let meta = match apt.is_of_this_machine() && is_ubuntu {
        true => "linux-image-virtual",
        false => "linux-image-cloud-amd64",
    };
    let (name, packages) = resolve(meta, |package| apt.show(package))?;
    unpacked(kernels, &name, |place| apt.download(&packages, place))
}

/// Follows a meta-package to the packages that hold today's kernel: a name for it, and
/// all of theirs. `show` gives a package's record.
fn resolve(
    meta: &str,
    show: impl Fn(&str) -> Result<String, VirtualError>,
) -> Result<(String, Vec<String>), VirtualError> {
    let mut packages = vec![meta.to_owned()];
    let mut name = None;
    let mut next = 0;
    while let Some(package) = packages.get(next).cloned() {
        next += 1;
        let record = show(&package)?;
        if next > 1 && name.is_none() && package.starts_with("linux-image-") {
            name = field(&record, "Version").map(|version| format!("{package}_{version}"));
        }
        let depends = field(&record, "Depends").unwrap_or_default();
        for wanted in depends.split([',', '|']) {
            let wanted = wanted.split_whitespace().next().unwrap_or_default();
            let leads = KERNEL_PACKAGES
                .iter()
                .any(|start| wanted.starts_with(start));
            if leads && packages.iter().all(|known| known != wanted) {
                packages.push(wanted.to_owned());
            }
        }
        // Ubuntu keeps some of the lab's modules apart, where nothing depends on them.
        if let Some(release) = package.strip_prefix("linux-modules-") {
            let extra = format!("linux-modules-extra-{release}");
            if !release.starts_with("extra-") && show(&extra).is_ok_and(|text| !text.is_empty()) {
                packages.push(extra);
            }
        }
    }
    let name = name.ok_or_else(|| VirtualError::NoKernelPackage {
        meta: meta.to_owned(),
    })?;
    packages.remove(0);
    Ok((name, packages))
}

fn field<'a>(record: &'a str, name: &str) -> Option<&'a str> {
    record
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// The kernel `name` of the cache; if it is not there yet, unpacked from the result of
/// `packages`.
fn unpacked(
    kernels: &Path,
    name: &str,
    packages: impl FnOnce(&Path) -> Result<Vec<PathBuf>, VirtualError>,
) -> Result<Kernel, VirtualError> {
    // Another list of modules is another unpacking.
    let directory = kernels.join(format!(
        "{name}-{:08x}",
        hash_of(&[
            MODULES.join(" ").as_bytes(),
            GATEWAY_MODULES.join(" ").as_bytes()
        ]) as u32
    ));
    let kernel = Kernel {
        directory: directory.clone(),
        stale: None,
    };
    if directory.join("vmlinuz").exists() {
        return Ok(kernel);
    }
    let work = tempfile::Builder::new()
        .prefix(".unpacking-")
        .tempdir_in(kernels)
        .wrong("make a directory in", kernels)?;
    let result = work.path().join("kernel");
    unpack::unpack(&packages(work.path())?, work.path(), &result)?;
    fs::rename(&result, &directory).wrong("move into place", &directory)?;
    Ok(kernel)
}

fn list(directory: &Path) -> Result<Vec<PathBuf>, VirtualError> {
    fs::read_dir(directory)
        .and_then(|entries| {
            entries
                .map(|entry| entry.map(|entry| entry.path()))
                .collect()
        })
        .wrong("list", directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(records: &[(&str, &str)]) -> (String, Vec<String>) {
        resolve("linux-image-cloud-amd64", |package| {
            let record = records.iter().find(|(name, _)| *name == package);
            Ok(record.map_or(String::new(), |(_, record)| (*record).to_owned()))
        })
        .expect("it leads to a kernel")
    }

    #[test]
    fn one_package_holds_kernel_and_modules() {
        let (name, packages) = resolved(&[
            (
                "linux-image-cloud-amd64",
                "Version: 6.1.192-2\nDepends: linux-image-6.1.0-56-cloud-amd64 (= 6.1.192-2)\n",
            ),
            (
                "linux-image-6.1.0-56-cloud-amd64",
                "Version: 6.1.192-2\nDepends: kmod, linux-base (>= 4.3~), initramfs-tools | linux-initramfs-tool\n",
            ),
        ]);
        assert_eq!(name, "linux-image-6.1.0-56-cloud-amd64_6.1.192-2");
        assert_eq!(packages, ["linux-image-6.1.0-56-cloud-amd64"]);
    }

    #[test]
    fn split_packages_are_found_by_what_they_depend_on() {
        let (name, packages) = resolved(&[
            (
                "linux-image-cloud-amd64",
                "Version: 7.2.13-1\nDepends: linux-base-cloud-amd64 (= 7.2.13-1), linux-image-7.2-cloud-amd64 (= 7.2.13-1)\n",
            ),
            (
                "linux-image-7.2-cloud-amd64",
                "Version: 7.2.13-1\nDepends: dracut | initramfs-tools, linux-binary-7.2-cloud-amd64 (= 7.2.13-1), linux-modules-7.2-cloud-amd64 (= 7.2.13-1)\n",
            ),
        ]);
        assert_eq!(name, "linux-image-7.2-cloud-amd64_7.2.13-1");
        assert_eq!(
            packages,
            [
                "linux-image-7.2-cloud-amd64",
                "linux-binary-7.2-cloud-amd64",
                "linux-modules-7.2-cloud-amd64"
            ]
        );
    }

    #[test]
    fn a_meta_package_without_a_kernel_is_an_error() {
        let error = resolve("linux-image-cloud-amd64", |_| {
            Ok("Depends: kmod\n".to_owned())
        });
        let error = error.unwrap_err().to_string();
        assert!(error.contains("linux-image-cloud-amd64"), "{error}");
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds the stock kernel that the guest boots: whatever the distribution ships,
//! taken from its package and never installed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{VirtualError, Wrong};

/// Kernel modules that the lab needs, where the kernel has them as modules.
const MODULES: [&str; 9] = [
    "veth",
    "sch_tbf",
    "sch_netem",
    "sch_fq",
    "sch_ingress",
    "sch_red",
    "bridge",
    "tcp_bbr",
    "af_packet",
];
/// Directory of packages to use instead of the distribution's.
const PACKAGES_VARIABLE: &str = "PACELINE_KERNEL_DEB_DIR";

/// An unpacked kernel.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// Its own directory in the cache: `vmlinuz` and `modules/NN-name.ko`, numbered
    /// in the order of loading.
    pub directory: PathBuf,
}

impl Kernel {
    /// What the bootloader takes.
    pub fn boot_file(&self) -> PathBuf {
        self.directory.join("vmlinuz")
    }

    /// The modules, in the order of loading.
    pub fn modules(&self) -> Result<Vec<PathBuf>, VirtualError> {
        let directory = self.directory.join("modules");
        let mut paths = list(&directory)?;
        paths.sort();
        Ok(paths)
    }
}

/// Finds, fetches and unpacks a kernel under `cache`, which the caller has locked.
/// Without a network, the newest one that is there already.
pub fn find(cache: &Path) -> Result<Kernel, VirtualError> {
    if std::env::consts::ARCH != "x86_64" {
        return Err(VirtualError::Architecture(std::env::consts::ARCH));
    }
    fs::create_dir_all(cache).wrong("make", cache)?;
    if let Some(directory) = std::env::var_os(PACKAGES_VARIABLE) {
        let directory = PathBuf::from(directory);
        let packages: Vec<PathBuf> = list(&directory)?
            .into_iter()
            .filter(|path| path.extension().is_some_and(|end| end == "deb"))
            .collect();
        let names: Vec<String> = packages
            .iter()
            .filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned()))
            .collect();
        let Some(first) = names.iter().find(|name| name.starts_with("linux-image-")) else {
            return Err(VirtualError::NoImagePackage {
                variable: PACKAGES_VARIABLE,
                directory,
            });
        };
        return unpacked(cache, first, |_| Ok(packages.clone()));
    }
    let wanted = match distribution_packages() {
        Ok(wanted) => wanted,
        Err(error) => return newest_cached(cache).ok_or(error),
    };
    unpacked(cache, &wanted.name, |place| fetch(&wanted.packages, place))
        .or_else(|error| newest_cached(cache).ok_or(error))
}

/// A kernel that the distribution offers.
struct Wanted {
    /// Package and version.
    name: String,
    /// All packages that hold it.
    packages: Vec<String>,
}

/// Resolves the distribution's meta-package to the kernel of today.
fn distribution_packages() -> Result<Wanted, VirtualError> {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let is_ubuntu = release
        .lines()
        .any(|line| line == "ID=ubuntu" || line.starts_with("ID_LIKE=ubuntu"));
    let meta = if is_ubuntu {
        "linux-image-virtual"
    } else {
        "linux-image-cloud-amd64"
    };
    let shown = apt(&["apt-cache", "show", "--no-all-versions", meta], None)?;
    let image = field(&shown, "Depends")
        .and_then(|depends| {
            depends
                .split([',', '|', ' '])
                .find(|name| name.starts_with("linux-image-"))
        })
        .ok_or_else(|| VirtualError::NoKernelPackage {
            meta: meta.to_owned(),
        })?
        .to_owned();
    // Debian's signed image package holds the same kernel; the unsigned one exists
    // for every architecture and needs no second package.
    let packages = if is_ubuntu {
        let release = image.trim_start_matches("linux-image-").to_owned();
        let extra = format!("linux-modules-extra-{release}");
        let mut packages = vec![image, format!("linux-modules-{release}")];
        if apt(&["apt-cache", "show", "--no-all-versions", &extra], None).is_ok() {
            packages.push(extra);
        }
        packages
    } else {
        vec![format!("{image}-unsigned")]
    };
    let shown = apt(
        &["apt-cache", "show", "--no-all-versions", &packages[0]],
        None,
    )?;
    let version = field(&shown, "Version").ok_or_else(|| VirtualError::NoKernelPackage {
        meta: packages[0].clone(),
    })?;
    Ok(Wanted {
        name: format!("{}_{version}", packages[0]),
        packages,
    })
}

fn field<'a>(shown: &'a str, name: &str) -> Option<&'a str> {
    shown
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

fn fetch(packages: &[String], place: &Path) -> Result<Vec<PathBuf>, VirtualError> {
    let mut command = vec!["apt-get", "download"];
    command.extend(packages.iter().map(String::as_str));
    apt(&command, Some(place))?;
    Ok(list(place)?
        .into_iter()
        .filter(|path| path.extension().is_some_and(|end| end == "deb"))
        .collect())
}

fn apt(command: &[&str], place: Option<&Path>) -> Result<String, VirtualError> {
    let mut child = Command::new(command[0]);
    child.args(&command[1..]).env("LC_ALL", "C");
    if let Some(place) = place {
        child.current_dir(place);
    }
    let output = child.output().map_err(|source| VirtualError::Start {
        program: command[0].to_owned(),
        source,
    })?;
    if !output.status.success() {
        return Err(VirtualError::Apt {
            command: command.join(" "),
            message: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The kernel `name` of the cache, unpacked from what `packages` fetches if it is
/// not there yet.
fn unpacked(
    cache: &Path,
    name: &str,
    packages: impl FnOnce(&Path) -> Result<Vec<PathBuf>, VirtualError>,
) -> Result<Kernel, VirtualError> {
    // Another list of modules is another unpacking.
    let directory = cache.join(format!(
        "{name}-{:08x}",
        crate::hash::hash_of(&[MODULES.join(" ").as_bytes()]) as u32
    ));
    if directory.join("vmlinuz").exists() {
        return Ok(Kernel { directory });
    }
    let work = tempfile::Builder::new()
        .prefix(".unpacking-")
        .tempdir_in(cache)
        .wrong("make a directory in", cache)?;
    let tree = work.path().join("tree");
    for package in packages(work.path())? {
        run(Command::new("dpkg-deb").arg("-x").arg(&package).arg(&tree))?;
    }
    let result = work.path().join("kernel");
    let modules = result.join("modules");
    fs::create_dir_all(&modules).wrong("make", &modules)?;
    let boot = list(&tree.join("boot"))?
        .into_iter()
        .find(|path| {
            path.file_name()
                .is_some_and(|file| file.to_string_lossy().starts_with("vmlinuz-"))
        })
        .ok_or_else(|| VirtualError::NoKernelPackage {
            meta: name.to_owned(),
        })?;
    fs::rename(&boot, result.join("vmlinuz")).wrong("move", &boot)?;
    for (number, (module, content)) in modules_in_order(&tree)?.into_iter().enumerate() {
        let path = modules.join(format!("{number:02}-{module}.ko"));
        fs::write(&path, content).wrong("write", &path)?;
    }
    fs::rename(&result, &directory).wrong("move into place", &directory)?;
    Ok(Kernel { directory })
}

fn newest_cached(cache: &Path) -> Option<Kernel> {
    list(cache)
        .ok()?
        .into_iter()
        .filter(|path| path.join("vmlinuz").exists())
        .max_by_key(|path| path.metadata().and_then(|data| data.modified()).ok())
        .map(|directory| Kernel { directory })
}

/// [`MODULES`] and what they depend on, dependencies first, decompressed.
/// Dependencies are read from the modules themselves: a package that was not
/// installed has no modules.dep.
fn modules_in_order(tree: &Path) -> Result<Vec<(String, Vec<u8>)>, VirtualError> {
    let mut paths = BTreeMap::new();
    for root in ["lib/modules", "usr/lib/modules"] {
        collect_modules(&tree.join(root), &mut paths);
    }
    let mut ordered = Vec::new();
    let mut seen = BTreeSet::new();
    for name in MODULES {
        // What is not a module is built in, or the guest says what is missing.
        add_module(name, &paths, &mut seen, &mut ordered)?;
    }
    Ok(ordered)
}

fn add_module(
    name: &str,
    paths: &BTreeMap<String, PathBuf>,
    seen: &mut BTreeSet<String>,
    ordered: &mut Vec<(String, Vec<u8>)>,
) -> Result<(), VirtualError> {
    let Some(path) = paths.get(name) else {
        return Ok(());
    };
    if !seen.insert(name.to_owned()) {
        return Ok(());
    }
    let content = read_module(path)?;
    for dependency in dependencies(&content) {
        add_module(&dependency, paths, seen, ordered)?;
    }
    ordered.push((name.to_owned(), content));
    Ok(())
}

fn collect_modules(directory: &Path, paths: &mut BTreeMap<String, PathBuf>) {
    for path in list(directory).unwrap_or_default() {
        if path.is_dir() && !path.is_symlink() {
            collect_modules(&path, paths);
        } else if let Some((stem, _)) = path
            .file_name()
            .and_then(|name| name.to_str()?.split_once(".ko"))
        {
            paths.insert(stem.replace('-', "_"), path.clone());
        }
    }
}

fn read_module(path: &Path) -> Result<Vec<u8>, VirtualError> {
    let program = match path.extension().and_then(|end| end.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        Some("gz") => "gzip",
        _ => return fs::read(path).wrong("read", path),
    };
    run(Command::new(program).arg("-dc").arg(path))
}

/// The `depends=` entry of a module's `.modinfo` section.
fn dependencies(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = module.windows(KEY.len()).position(|window| window == KEY) else {
        return Vec::new();
    };
    let value = module[at + KEY.len()..]
        .split(|&byte| byte == 0)
        .next()
        .unwrap_or_default();
    String::from_utf8_lossy(value)
        .split(',')
        .filter(|name| !name.is_empty())
        .map(|name| name.replace('-', "_"))
        .collect()
}

fn run(command: &mut Command) -> Result<Vec<u8>, VirtualError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|source| VirtualError::Start {
        program: program.clone(),
        source,
    })?;
    if !output.status.success() {
        return Err(VirtualError::Program {
            program,
            message: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        });
    }
    Ok(output.stdout)
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

    #[test]
    fn reads_a_modules_dependencies() {
        assert_eq!(
            dependencies(b"\x7fELF\0depends=stp,llc-x\0name=bridge\0"),
            ["stp", "llc_x"]
        );
        assert!(dependencies(b"\x7fELF\0depends=\0name=veth\0").is_empty());
        assert!(dependencies(b"no module").is_empty());
    }

    #[test]
    fn reads_fields_of_apt() {
        let shown = "Package: linux-image-cloud-amd64\nVersion: 6.1.192-2\nDepends: linux-image-6.1.0-56-cloud-amd64 (= 6.1.192-2)\n";
        assert_eq!(field(shown, "Version"), Some("6.1.192-2"));
        assert_eq!(
            field(shown, "Depends"),
            Some("linux-image-6.1.0-56-cloud-amd64 (= 6.1.192-2)")
        );
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Takes the kernel and a few of its modules out of packages of either layout:
//! one package with `/boot/vmlinuz-VERSION` and `/lib/modules`, or, as Debian has them from
//! Linux 7.x on, one with `/usr/lib/modules/VERSION/vmlinuz` beside one with the modules.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{list, GATEWAY_MODULES, MODULES};
use crate::{VirtualError, Wrong};

/// Where a package has directories of kernels.
const MODULE_ROOTS: [&str; 2] = ["lib/modules", "usr/lib/modules"];

/// Unpacks `packages` into `work` and makes `result` of them: `vmlinuz`, and
/// `modules/NN-name.ko` and `gateway-modules/NN-name.ko`, numbered in the order of loading.
pub fn unpack(packages: &[PathBuf], work: &Path, result: &Path) -> Result<(), VirtualError> {
    let tree = work.join("tree");
    for package in packages {
        run(Command::new("dpkg-deb").arg("-x").arg(package).arg(&tree))?;
    }
    let boot = boot_file(&tree).ok_or_else(|| VirtualError::NoBootFile {
        packages: packages
            .iter()
            .filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
            .collect(),
    })?;
    let mut seen = BTreeSet::new();
    for (directory, names) in [
        ("modules", &MODULES[..]),
        ("gateway-modules", &GATEWAY_MODULES[..]),
    ] {
        let directory = result.join(directory);
        fs::create_dir_all(&directory).wrong("make", &directory)?;
        let modules = modules_in_order(&tree, names, &mut seen)?;
        for (number, (module, content)) in modules.into_iter().enumerate() {
            let path = directory.join(format!("{number:02}-{module}.ko"));
            fs::write(&path, content).wrong("write", &path)?;
        }
    }
    fs::rename(&boot, result.join("vmlinuz")).wrong("move", &boot)
}

/// `boot/vmlinuz-VERSION`, or `vmlinuz` beside the modules; `vmlinuz.unsigned` in packages
/// that are not signed.
fn boot_file(tree: &Path) -> Option<PathBuf> {
    let beside = MODULE_ROOTS
        .iter()
        .flat_map(|root| list(&tree.join(root)).unwrap_or_default());
    std::iter::once(tree.join("boot"))
        .chain(beside)
        .flat_map(|directory| list(&directory).unwrap_or_default())
        .find(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz"))
        })
}

/// `names` and their dependencies, but for those `seen`, dependencies first, decompressed.
/// Dependencies are read from the modules themselves: a package that was not
/// installed has no modules.dep.
fn modules_in_order(
    tree: &Path,
    names: &[&str],
    seen: &mut BTreeSet<String>,
) -> Result<Vec<(String, Vec<u8>)>, VirtualError> {
    let mut paths = BTreeMap::new();
    for root in MODULE_ROOTS {
        collect_modules(&tree.join(root), &mut paths);
    }
    let mut ordered = Vec::new();
    for name in names {
        // Others are built in, or the guest reports the missing one.
        add_module(name, &paths, seen, &mut ordered)?;
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
    fn finds_the_kernel_in_each_layout() {
        for place in [
            "boot/vmlinuz-6.1.0-50-cloud-amd64",
            "usr/lib/modules/7.2.13+deb14-cloud-amd64/vmlinuz",
            "usr/lib/modules/7.3-cloud-amd64/vmlinuz.unsigned",
            "lib/modules/7.3/vmlinuz",
        ] {
            let tree = tempfile::tempdir().expect("a directory");
            for file in [place, "usr/lib/modules/7.3/kernel/net/sched/sch_tbf.ko.xz"] {
                let path = tree.path().join(file);
                fs::create_dir_all(path.parent().expect("it has one")).expect("made");
                fs::write(path, "").expect("written");
            }
            assert_eq!(boot_file(tree.path()), Some(tree.path().join(place)));
        }
        let none = tempfile::tempdir().expect("a directory");
        assert_eq!(boot_file(none.path()), None);
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compiles `bpf/paceline.bpf.c`, the one translation unit of the kernel side, and
//! `bpf/burst.bpf.c`, which has nothing to do with it, into the objects that the
//! agent embeds.

use std::collections::hash_map::DefaultHasher;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=CLANG");
    let bpf = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo"))
        .join("../../bpf")
        .canonicalize()
        .expect("the bpf/ folder beside crates/");
    // A folder is watched as a whole: a new header counts as well.
    println!("cargo:rerun-if-changed={}", bpf.display());

    let out = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo"));
    let object = out.join("paceline.bpf.o");
    compile(&bpf.join("paceline.bpf.c"), &bpf, &object);
    compile(&bpf.join("burst.bpf.c"), &bpf, &out.join("burst.bpf.o"));

    // Identifies the build in the kernel (see kernel_side::identity).
    let mut hasher = DefaultHasher::new();
    fs::read(&object).expect("clang wrote it").hash(&mut hasher);
    println!(
        "cargo:rustc-env=PACELINE_BPF_BUILD={}",
        hasher.finish() as u32
    );
}

fn compile(source: &Path, include: &Path, object: &Path) {
    let clang = env::var_os("CLANG").unwrap_or_else(|| OsString::from("clang"));
    let architecture = env::var("CARGO_CFG_TARGET_ARCH").expect("set by cargo");
    let define = match architecture.as_str() {
        "x86_64" => "-D__TARGET_ARCH_x86",
        "aarch64" => "-D__TARGET_ARCH_arm64",
        other => panic!("the kernel side is not made for {other}; x86_64 and aarch64 are"),
    };

    let mut command = Command::new(&clang);
    command
        .args([
            "-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Werror",
        ])
        // Paths in the debug information would make builds differ by folder.
        .arg(format!("-fdebug-prefix-map={}=bpf", include.display()))
        .arg(define)
        .arg("-I")
        .arg(include);
    if let Some(headers) = env::var_os("DEP_BPF_INCLUDE") {
        command.arg("-I").arg(headers);
    }
    // <asm/types.h> lives in the multiarch folder on Debian and Ubuntu, which
    // clang does not search for the bpf target.
    command
        .arg("-idirafter")
        .arg(format!("/usr/include/{architecture}-linux-gnu"));
    command.arg("-c").arg(source).arg("-o").arg(object);

    match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{} failed: {status}", source.display()),
        Err(error) => panic!(
            "cannot run {}: {error}; install clang 14 or later, or name it in CLANG",
            clang.to_string_lossy()
        ),
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! For the build scripts of the crates that embed a BPF object: compiles a source of `bpf/`
//! with clang. A file and no crate, because a build script has nothing to link.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

/// Compiles `bpf/NAME.bpf.c` to `NAME.bpf.o` in the caller's OUT_DIR; says where that is.
///
/// The caller's package must depend on libbpf-sys itself, or cargo does not say where the
/// headers of the vendored libbpf are.
pub fn compile(name: &str) -> PathBuf {
    println!("cargo:rerun-if-env-changed=CLANG");
    let include = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo"))
        .join("../../bpf")
        .canonicalize()
        .expect("the bpf/ folder beside crates/");
    // A folder is watched as a whole: a new header counts as well. Relative, as all that is
    // watched is: of two trees that share a build directory each watches its own.
    println!("cargo:rerun-if-changed=../../bpf");
    let source = include.join(format!("{name}.bpf.c"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo"));
    let object = out.join(format!("{name}.bpf.o"));

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
        .arg("-fdebug-compilation-dir=.")
        .arg(define)
        .arg("-I")
        .arg(&include);
    if let Some(headers) = env::var_os("DEP_BPF_INCLUDE") {
        let headers = PathBuf::from(headers);
        command.arg("-I").arg(&headers);
        command.arg(format!("-fdebug-prefix-map={}=libbpf", headers.display()));
    }
    // <asm/types.h> lives in the multiarch folder on Debian and Ubuntu, which
    // clang does not search for the bpf target.
    command
        .arg("-idirafter")
        .arg(format!("/usr/include/{architecture}-linux-gnu"));
    command.arg("-c").arg(&source).arg("-o").arg(&object);

    match command.status() {
        Ok(status) if status.success() => object,
        Ok(status) => panic!("{} failed: {status}", source.display()),
        Err(error) => panic!(
            "cannot run {}: {error}; install clang 14 or later, or name it in CLANG",
            clang.to_string_lossy()
        ),
    }
}

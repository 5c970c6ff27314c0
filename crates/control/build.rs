// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compiles `bpf/control/*.h` for the host and generates its types.

use std::env;
use std::path::PathBuf;

fn main() {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo"));
    let bpf = here.join("../../bpf");
    let shim = here.join("src/shim.c");
    let header = here.join("src/shim.h");
    for file in [
        "src/shim.c",
        "src/shim.h",
        // The directory: any header in it, new ones too.
        "../../bpf/control",
        "../../bpf/paceline_abi.h",
    ] {
        println!("cargo:rerun-if-changed={file}");
    }

    let mut compiler = cc::Build::new();
    compiler
        .file(&shim)
        .include(&bpf)
        .flag("-std=gnu11")
        .flag_if_supported("-Wno-unused-parameter");
    // Under a compiler with sanitizers (RUSTFLAGS=-Zsanitizer=address) the laws have it, too;
    // the runtime is rustc's, so it has to be clang's kind.
    if env::var("CARGO_CFG_SANITIZE").is_ok_and(|sanitizers| sanitizers.contains("address")) {
        compiler.compiler("clang").flag("-fsanitize=address");
    }
    if env::var("PROFILE").as_deref() == Ok("debug") {
        // Undefined behaviour ends the process, without a runtime library.
        let clang = compiler.get_compiler().is_like_clang();
        compiler.flag("-fsanitize=undefined").flag(if clang {
            "-fsanitize-trap=undefined"
        } else {
            "-fsanitize-undefined-trap-on-error"
        });
    }
    compiler.compile("paceline_control");

    let bindings = bindgen::Builder::default()
        .header(header.to_str().expect("the path of the source tree is UTF-8"))
        .clang_arg(format!("-I{}", bpf.display()))
        .allowlist_file(".*/control/(even|gaps|incast|path|phases|refill|spacing|startup|turns|window_cap)\\.h")
        .allowlist_file(".*/src/shim\\.h")
        .blocklist_file(".*/paceline_abi\\.h")
        .raw_line("use paceline_abi::{pl_path, pl_policy, pl_turn, pl_uwnd};")
        .derive_default(true)
        .derive_eq(true)
        .explicit_padding(true)
        .layout_tests(true)
        .generate()
        .expect("bindgen needs libclang and the headers of linux/types.h (packages libclang-dev, linux-libc-dev)");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo")).join("bindings.rs");
    bindings
        .write_to_file(&out)
        .unwrap_or_else(|error| panic!("cannot write {}: {error}", out.display()));
}

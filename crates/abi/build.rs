// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Generates the bindings of `bpf/paceline_abi.h`.

use std::env;
use std::path::PathBuf;

fn main() {
    let header = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo"))
        .join("../../bpf/paceline_abi.h");
    println!("cargo:rerun-if-changed=../../bpf/paceline_abi.h");

    let bindings = bindgen::Builder::default()
        .header(header.to_str().expect("the path of the source tree is UTF-8"))
        .allowlist_item("(pl|PL)_.*")
        .rustified_enum("pl_.*")
        .derive_default(true)
        .derive_eq(true)
        // Padding that is a field is initialised, so a struct may be viewed as bytes.
        .explicit_padding(true)
        .layout_tests(true)
        .generate()
        .expect("bindgen needs libclang and the headers of linux/types.h (packages libclang-dev, linux-libc-dev)");

    let out = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo")).join("bindings.rs");
    bindings
        .write_to_file(&out)
        .unwrap_or_else(|error| panic!("cannot write {}: {error}", out.display()));
}

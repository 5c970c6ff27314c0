// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compiles `bpf/paceline.bpf.c`, the one translation unit of the kernel side, into the
//! object that the agent embeds.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};

#[path = "../bpf/compile.rs"]
mod compile;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=../bpf/compile.rs");
    let object = compile::compile("paceline");

    // Identifies the build in the kernel (see kernel_side::identity).
    let mut hasher = DefaultHasher::new();
    fs::read(&object).expect("clang wrote it").hash(&mut hasher);
    println!(
        "cargo:rustc-env=PACELINE_BPF_BUILD={}",
        hasher.finish() as u32
    );
}

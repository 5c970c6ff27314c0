// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compiles `bpf/burst.bpf.c` into the object that the meter embeds.

#[path = "../bpf/compile.rs"]
mod compile;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=../bpf/compile.rs");
    compile::compile("burst");
}

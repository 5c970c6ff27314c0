// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compiles `bpf/options.bpf.c`, the filters of a job at an interface.

#[path = "compile.rs"]
mod compile;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=compile.rs");
    compile::compile("options");
}

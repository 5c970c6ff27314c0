// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Links the shared library.

fn main() {
    // Its destructors of threads and its fork handlers would outlive a dlclose.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libpaceline.so");
}

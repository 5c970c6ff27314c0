// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A transfer's identity: the same command has the same one, so it finds what it left.

use std::path::Path;

use crate::wire::Options;

/// Of a transfer from `sources` on the host `from` to `destination` on the host `to`. Only
/// options that change the result count.
pub fn identity(
    (from, sources): (&str, &[Vec<u8>]),
    (to, destination): (&str, &[u8]),
    options: &Options,
) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("paceline move 1 identity");
    let parts = (
        from,
        sources,
        to,
        destination,
        &options.filters,
        options.delete.is_some(),
    );
    hasher.update(&postcard::to_stdvec(&parts).expect("memory takes it"));
    *hasher.finalize().as_bytes()
}

/// An absolute path, so that the same command in another directory is another one.
pub fn absolute(path: &Path) -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt;
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    absolute.as_os_str().as_bytes().to_vec()
}

/// This host's name.
pub fn host_name() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}

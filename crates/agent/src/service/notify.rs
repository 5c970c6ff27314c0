// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Telling systemd that the agent serves (sd_notify(3), for units of Type=notify).

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Says so where somebody wants to know.
pub(super) fn ready() {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
        return;
    };
    if let Err(error) = tell(name.as_bytes(), b"READY=1") {
        tracing::warn!("cannot tell the service manager: {error}");
    }
}

fn tell(name: &[u8], message: &[u8]) -> io::Result<()> {
    let address = match name {
        [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest)?,
        _ => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(name))?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.send_to_addr(message, &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_the_managers_address_are_reached() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("notify");
        let abstract_name = format!("paceline-test-{}", std::process::id());
        let listening = [
            (
                path.as_os_str().as_bytes().to_vec(),
                UnixDatagram::bind(&path).expect("a socket"),
            ),
            (
                format!("@{abstract_name}").into_bytes(),
                UnixDatagram::bind_addr(
                    &SocketAddr::from_abstract_name(abstract_name.as_bytes()).expect("a name"),
                )
                .expect("a socket"),
            ),
        ];
        for (name, manager) in listening {
            tell(&name, b"READY=1").expect("it listens");
            let mut bytes = [0; 16];
            let count = manager.recv(&mut bytes).expect("a message");
            assert_eq!(&bytes[..count], b"READY=1");
        }
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two network namespaces joined by a veth pair, and a shell that leads from one to the other.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

pub struct Namespaces([String; 2]);

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status();
    assert!(status.expect("iproute2").success(), "ip {arguments}");
}

impl Namespaces {
    pub fn new() -> Self {
        let names = ["a", "b"].map(|name| format!("plmove-{}-{name}", std::process::id()));
        let [a, b] = &names;
        for name in &names {
            ip(&format!("netns add {name}"));
        }
        ip(&format!(
            "-n {a} link add v type veth peer name v netns {b}"
        ));
        for (name, host) in [(a, 1), (b, 2)] {
            ip(&format!("-n {name} addr add 10.97.0.{host}/24 dev v"));
            ip(&format!("-n {name} link set v up"));
        }
        Self(names)
    }

    /// Writes a program that is called as ssh is, and runs the command in the second one. The
    /// host's name means nothing: only what ssh tells the helper leads there. (ip netns exec would
    /// hide the cgroups.)
    pub fn shell(&self, path: &Path) {
        let text = format!(
            "#!/bin/sh\nshift\nexport SSH_CONNECTION='10.97.0.1 1 10.97.0.2 22'\n\
             exec nsenter --net=/run/netns/{} /bin/sh -c \"exec $*\"\n",
            self.0[1]
        );
        fs::write(path, text).expect("ours");
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).expect("ours");
    }

    /// `command` in the first one.
    pub fn enter(&self, command: &Command) -> Command {
        let mut inside = Command::new("nsenter");
        inside.arg(format!("--net=/run/netns/{}", self.0[0]));
        inside.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            if let Some(value) = value {
                inside.env(name, value);
            }
        }
        if let Some(directory) = command.get_current_dir() {
            inside.current_dir(directory);
        }
        inside
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in &self.0 {
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

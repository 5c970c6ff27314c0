// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Labs of `paceline lab up`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{output, paceline};

/// Two clusters of two hosts; 5 ms each way.
pub const TWO_CLUSTERS: &str = r#"
[[cluster]]
name = "near"
hosts = 2
switch_buffer = "256KiB"

[[cluster]]
name = "far"
hosts = 2
edge_rate = "100mbit"
switch_buffer = "64KiB"

[[wan]]
from = "near"
to = "far"
rate = "200mbit"
one_way_delay = "5ms"
buffer = "128KiB"

[sysctl]
"net.ipv4.tcp_slow_start_after_idle" = 0
"#;

/// A lab, down again when this is dropped.
pub struct Lab {
    pub name: String,
}

impl Lab {
    /// `what` tells the labs of one test apart.
    pub fn up(what: &str, topology: &str) -> Self {
        let name = name(what);
        let file = TopologyFile::new(&name, topology);
        let shown = output(&["lab", "up", file.path(), "--name", &name]);
        assert!(shown.status.success(), "{shown:?}");
        Lab { name }
    }

    /// What `lab show --json` says.
    pub fn state(&self) -> Value {
        let shown = output(&["lab", "show", &self.name, "--json"]);
        assert!(shown.status.success(), "{shown:?}");
        serde_json::from_slice(&shown.stdout).expect("lab show writes JSON")
    }

    /// `paceline lab exec NODE --`, to be gone on with.
    pub fn command(&self, node: &str) -> Command {
        let mut command = paceline();
        command.args(["lab", "exec", "--lab", &self.name, node, "--"]);
        command
    }

    /// Runs a shell's command on a node.
    pub fn shell(&self, node: &str, text: &str) -> Output {
        let mut command = self.command(node);
        command.args(["sh", "-c", text]).output().unwrap()
    }

    /// A long-running process of a node.
    pub fn sleeper(&self, node: &str) -> Child {
        // One behind it that nobody waits for.
        let text = "sleep 1000 & exec sleep 1000";
        let mut command = self.command(node);
        command.args(["sh", "-c", text]);
        command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }

    pub fn down(&self) {
        down(&self.name);
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = output(&["lab", "down", &self.name]);
    }
}

/// A topology that goes with the test.
pub struct TopologyFile(PathBuf);

impl TopologyFile {
    pub fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("{name}.toml"));
        fs::write(&path, text).unwrap();
        TopologyFile(path)
    }

    pub fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for TopologyFile {
    fn drop(&mut self) {
        fs::remove_file(&self.0).unwrap();
    }
}

/// A lab's name that no other test has.
pub fn name(what: &str) -> String {
    format!("pltest-{what}-{}", std::process::id())
}

pub fn down(lab: &str) {
    let shown = output(&["lab", "down", lab]);
    assert!(shown.status.success(), "{shown:?}");
}

/// The keeper of a lab, from its first moment on.
pub fn keeper(lab: &str) -> Option<u32> {
    processes(|pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line == format!("paceline\0lab\0keep\0{lab}\0").as_bytes()
    })
    .pop()
}

/// What there is of a lab in the kernel, in words.
pub fn remains(lab: &str, namespaces: &[u64]) -> Vec<String> {
    let mut found = Vec::new();
    if let Some(pid) = keeper(lab) {
        found.push(format!("keeper {pid}"));
    }
    let mark = format!("paceline-lab:{lab}:");
    let marked = processes(|pid| {
        let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo"));
        mounts.is_ok_and(|mounts| mounts.contains(&mark))
    });
    found.extend(marked.iter().map(|pid| format!("process {pid} inside")));
    let sockets = fs::read_to_string("/proc/net/unix").unwrap();
    let socket = format!("@paceline-lab.{lab}");
    found.extend(
        sockets
            .lines()
            .filter(|line| line.ends_with(&socket))
            .map(|line| format!("socket {line}")),
    );
    let nets: Vec<String> = namespaces
        .iter()
        .map(|inode| format!("net:[{inode}]"))
        .collect();
    let holders = processes(|pid| {
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd"))
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path());
        descriptors
            .chain([PathBuf::from(format!("/proc/{pid}/ns/net"))])
            .filter_map(|path| fs::read_link(path).ok())
            .any(|target| nets.iter().any(|net| Path::new(net) == target))
    });
    found.extend(
        holders
            .iter()
            .map(|pid| format!("process {pid} holds a namespace")),
    );
    found
}

/// Waits until nothing is left of a lab: the kernel takes a namespace apart after the
/// last process has let go of it.
pub fn assert_nothing_is_left(lab: &str, namespaces: &[u64], shown: &str) {
    let begin = Instant::now();
    loop {
        let remains = remains(lab, namespaces);
        if remains.is_empty() {
            return;
        }
        assert!(
            begin.elapsed() < Duration::from_secs(60),
            "{shown}: {remains:?}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Inodes of the network namespaces in what `lab show --json` says.
pub fn namespaces(state: &Value) -> Vec<u64> {
    let nodes = state["nodes"].as_array().expect("nodes is a list");
    let inodes = nodes.iter().map(|node| &node["network_namespace"]);
    inodes.map(|inode| inode.as_u64().unwrap()).collect()
}

fn processes(applies: impl Fn(u32) -> bool) -> Vec<u32> {
    fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| applies(*pid))
        .collect()
}

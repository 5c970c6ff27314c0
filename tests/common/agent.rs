// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An agent of a test's own, and users who ask it for jobs.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::{own_cgroup, paceline, Net, Peer};

/// Two users without rights; a number needs no entry in /etc/passwd.
pub const USER: u32 = 65534;
pub const OTHER_USER: u32 = 65533;
/// A group that every distribution has, and that neither is in by itself.
pub const GROUP: &str = "daemon";
/// Long enough for any machine: what does not come by then never comes.
pub const NEVER: Duration = Duration::from_secs(60);

/// The cgroup of the job that `paceline run` with this number was moved into.
pub fn directory_of(process: u32) -> PathBuf {
    own_cgroup().join(format!("paceline.{process}.0"))
}

/// Waits for what the agent does by itself: no other command runs meanwhile.
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !done() {
        assert!(start.elapsed() < NEVER, "never came: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn until_gone(process: u32) {
    let directory = directory_of(process);
    until("the end of the job's cgroup", || !directory.exists());
}

/// An agent with sockets and configuration of its own.
pub struct Agent {
    pub process: Child,
    pub place: PathBuf,
    ready: UnixDatagram,
}

impl Agent {
    pub fn start() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("paceline-test-{}-agent-{number}", std::process::id());
        let place = std::env::temp_dir().join(name);
        fs::create_dir(&place).unwrap();
        fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).unwrap();
        // Where these are built, not every user may look.
        let peer = std::env::current_exe().unwrap();
        for (file, name) in [
            (Path::new(env!("CARGO_BIN_EXE_paceline")), "paceline"),
            (peer.as_path(), "peer"),
        ] {
            let link = place.join(name);
            if fs::hard_link(file, &link).is_err() {
                fs::copy(file, &link).unwrap();
            }
        }
        fs::write(place.join("site.toml"), "name = \"site\"\n").unwrap();
        let listed = place.join("site.toml");
        let config = format!("groups = [{GROUP:?}]\npolicies = [\"lfn\", \"pace\", {listed:?}]\n");
        fs::write(place.join("agent.toml"), config).unwrap();
        let ready = UnixDatagram::bind(place.join("ready")).unwrap();
        ready.set_read_timeout(Some(NEVER)).unwrap();
        let mut agent = Self {
            process: Self::command(&place).spawn().unwrap(),
            place,
            ready,
        };
        agent.wait_until_ready();
        agent
    }

    pub fn command(place: &Path) -> Command {
        let mut command = paceline();
        command
            .arg("agent")
            .args(["--config".as_ref(), place.join("agent.toml").as_os_str()])
            .args(["--directory".as_ref(), place.join("run").as_os_str()])
            .env("NOTIFY_SOCKET", place.join("ready"))
            .stdout(Stdio::null());
        command
    }

    pub fn wait_until_ready(&mut self) {
        let mut message = [0; 32];
        let length = self.ready.recv(&mut message).expect("the agent starts");
        assert_eq!(message[..length].trim_ascii(), b"READY=1");
    }

    pub fn socket(&self) -> PathBuf {
        self.place.join("run/jobs.sock")
    }

    /// Whether it had said that it is ready or not.
    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        self.ready.set_nonblocking(true).unwrap();
        while self.ready.recv(&mut [0; 32]).is_ok() {}
        self.ready.set_nonblocking(false).unwrap();
    }

    pub fn begin(&mut self) {
        self.process = Self::command(&self.place).spawn().unwrap();
    }

    /// The same with sockets that a service manager hands over (sd_listen_fds(3)).
    pub fn begin_with(&mut self, sockets: &[UnixListener]) {
        const FIRST: i32 = 3;
        let agent = Self::command(&self.place);
        // The process that the variable names executes the agent.
        let mut command = Command::new("sh");
        command
            .args(["-c", "export LISTEN_PID=$$; exec \"$@\"", "sh"])
            .arg(agent.get_program())
            .args(agent.get_args())
            .env("LISTEN_FDS", sockets.len().to_string())
            .stdout(Stdio::null());
        for (name, value) in agent.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let numbers: Vec<i32> = sockets.iter().map(AsRawFd::as_raw_fd).collect();
        // SAFETY: system calls on descriptors that this process keeps meanwhile.
        unsafe {
            command.pre_exec(move || {
                // Out of the way first: they may have each other's numbers.
                for (number, socket) in numbers.iter().enumerate() {
                    libc::dup2(*socket, 100 + number as i32);
                }
                for number in 0..numbers.len() as i32 {
                    libc::dup2(100 + number, FIRST + number);
                    libc::close(100 + number);
                }
                Ok(())
            });
        }
        self.process = command.spawn().unwrap();
    }

    pub fn restart(&mut self) {
        self.begin();
        self.wait_until_ready();
    }

    /// `paceline run ARGUMENTS` of a user, in a namespace of `net` if one is given.
    pub fn run(&self, user: u32, net: Option<&Net>, arguments: &[&str]) -> Command {
        self.run_with(user, Some(group_id(GROUP)), net, arguments)
    }

    pub fn run_with(
        &self,
        user: u32,
        group: Option<u32>,
        net: Option<&Net>,
        arguments: &[&str],
    ) -> Command {
        let mut command = self.as_user(user, group, net);
        command
            .arg("run")
            .args(["--agent".as_ref(), self.place.join("run").as_os_str()])
            .args(arguments);
        command
    }

    /// `paceline` of a user, in a namespace of `net` if one is given.
    pub fn as_user(&self, user: u32, group: Option<u32>, net: Option<&Net>) -> Command {
        let mut command = Command::new(self.place.join("paceline"));
        command
            .env_remove("SUDO_UID")
            .env("HOME", "/")
            .current_dir("/");
        // While it may still enter it.
        if let Some(net) = net {
            net.enter(0, &mut command);
        }
        // SAFETY: plain system calls on numbers, between fork and exec.
        unsafe {
            command.pre_exec(move || {
                let groups = [group.unwrap_or(user)];
                let failed = libc::setgroups(1, groups.as_ptr()) != 0
                    || libc::setresgid(user, user, user) != 0
                    || libc::setresuid(user, user, user) != 0;
                if failed {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        command
    }

    /// A peer program as a user's job.
    pub fn peer(&self, user: u32, net: &Net, policy: &str) -> Peer {
        let program = self.place.join("peer");
        let arguments = ["--policy", policy, "--", program.to_str().unwrap()];
        Peer::spawn(self.run(user, Some(net), &arguments))
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // Ended already, in some tests.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.place);
    }
}

pub fn group_id(name: &str) -> u32 {
    let groups = fs::read_to_string("/etc/group").unwrap();
    groups
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>())
        .find(|fields| fields[0] == name)
        .and_then(|fields| fields[2].parse().ok())
        .expect("the group exists")
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The inside of the virtual backend's guest: this program as its first
//! process. It mounts, loads the kernel modules, does its task and powers off.

pub mod clock;
pub mod command;

use std::error::Error;
use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use nix::kmod::{finit_module, ModuleInitFlags};
use nix::mount::{mount, MsFlags};
use nix::sys::reboot::{reboot, RebootMode};
use nix::sys::resource::{setrlimit, Resource};
use nix::sys::termios::{cfmakeraw, tcdrain, tcgetattr, tcsetattr, SetArg};
use paceline_experiment::plan::{Plan, Workload};
use paceline_experiment::record::{Record, Sink};
use paceline_net::Doing;
use serde::{Deserialize, Serialize};

use self::command::Command;

/// The first process's path in the guest.
pub const INIT: &str = "/init";
/// Where the host puts the task.
pub const TASK: &str = "paceline/task.json";
/// Where the image keeps kernel modules; they are loaded in the order of names.
pub const MODULES: &str = "paceline/modules";
/// The same of those that only transparent gateways need.
pub const GATEWAY_MODULES: &str = "paceline/gateway-modules";
/// Descriptors of a process: a thousand connections with both ends, twice each, and as many
/// of each gateway.
const MOST_FILES: u64 = 65_536;
/// Memory of all TCP sockets together, of all network namespaces.
const TCP_MEM: &str = "/proc/sys/net/ipv4/tcp_mem";
/// Low, pressure, high, in pages of 4 KiB. The guest's 2 GiB give TCP 190 MiB, which
/// sixteen hosts with megabytes for each other fill: windows shrink then, and
/// connections of programs that end are reset. Hosts of their own have as much each.
const TCP_MEM_PAGES: &str = "262144 327680 393216";
/// The serial line that carries the records; the first one is the console.
const RECORDS: &str = "/dev/ttyS1";

/// The task of a guest.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Task {
    /// A shard of an experiment.
    Plan(Box<Plan>),
    /// A command of the user's.
    Command(Command),
}

/// True if this process is the first of a guest that the virtual backend booted.
pub fn is_guest_init() -> bool {
    std::process::id() == 1
        && std::env::args_os().next().is_some_and(|name| name == INIT)
        && Path::new("/").join(TASK).exists()
}

/// The work of a guest by its plan, with its records.
pub type Work = fn(&Plan, Sink) -> Result<(), Box<dyn Error>>;

/// Why a guest did not do its task.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// A system call or a tool failed.
    #[error(transparent)]
    System(#[from] paceline_net::Error),
    /// A command without words.
    #[error("a command has a program")]
    NoProgram,
    /// The work by the plan failed.
    #[error("{0}")]
    Work(#[source] Box<dyn Error>),
}

/// Does the task, by `work` if it is a plan, reports to the host, powers off.
pub fn init_main(work: Work) -> ! {
    if let Err(error) = run(work) {
        eprintln!("paceline: {error}");
    }
    // Returns only if it is refused; a first process that exits stops the kernel.
    let Err(_) = reboot(RebootMode::RB_POWER_OFF);
    std::process::exit(1)
}

fn run(work: Work) -> Result<(), GuestError> {
    prepare()?;
    clock::slow_down().doing("slowing the local APIC's timer")?;
    let mut records = open_records().doing(format!("opening {RECORDS}"))?;
    let mut sink = |record: &Record| write_record(&mut records, record);
    let outcome = begin(work, &mut sink);
    let last = match outcome {
        Ok(()) => Record::End,
        Err(error) => Record::Failed {
            text: error.to_string(),
        },
    };
    sink(&last).doing("writing the last record")?;
    Ok(tcdrain(&records).doing("waiting for the serial line")?)
}

fn begin(work: Work, sink: Sink) -> Result<(), GuestError> {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease")
        .doing("reading the kernel's release")?;
    sink(&Record::Begin {
        kernel: kernel.trim().to_owned(),
    })
    .doing("writing the first record")?;
    load_modules(MODULES)?;
    let text = std::fs::read_to_string(Path::new("/").join(TASK)).doing("reading the task")?;
    let task: Task = serde_json::from_str(&text)
        .map_err(io::Error::from)
        .doing("reading the task")?;
    let plan = match task {
        Task::Plan(plan) => plan,
        Task::Command(command) => return command::run(&command, sink),
    };
    if plan.adaptation.gateway.is_some() {
        load_modules(GATEWAY_MODULES)?;
    }
    setrlimit(Resource::RLIMIT_NOFILE, MOST_FILES, MOST_FILES).doing("raising RLIMIT_NOFILE")?;
    if plan.topology.is_cluster() {
        let first = std::fs::read_dir("/proc").doing("looking for ksoftirqd")?;
        for process in first.flatten() {
            prefer_network(&process.path());
        }
        std::fs::write(TCP_MEM, TCP_MEM_PAGES).doing("raising tcp_mem")?;
    }
    let mut workloads = plan.workloads.iter();
    if workloads.any(|workload| matches!(workload, Workload::RealProgram(_))) {
        furnish()?;
        std::env::set_var("HOME", "/root");
    }
    work(&plan, sink).map_err(GuestError::Work)
}

/// What programs of a distribution expect, beside their own files.
fn furnish() -> Result<(), GuestError> {
    for (kind, place) in [("devpts", "/dev/pts"), ("tmpfs", "/dev/shm")] {
        mount_new(kind, place)?;
    }
    for directory in ["/root", "/etc"] {
        std::fs::create_dir_all(directory).doing(format!("making {directory}"))?;
    }
    for (path, content) in [
        ("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"),
        ("/etc/group", "root:x:0:\n"),
        ("/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n"),
    ] {
        if !Path::new(path).exists() {
            std::fs::write(path, content).doing(format!("writing {path}"))?;
        }
    }
    Ok(())
}

/// Lets ksoftirqd run before programs. Under load the kernel hands its network work to
/// that thread, where it shares the one CPU with a program by time slices of
/// milliseconds: a rank that fills a send buffer of megabytes would stop all hosts'
/// links for as long.
fn prefer_network(process: &Path) {
    let name = std::fs::read_to_string(process.join("comm")).unwrap_or_default();
    let pid = process
        .file_name()
        .and_then(|pid| pid.to_str()?.parse().ok());
    if let (true, Some(pid)) = (name.starts_with("ksoftirqd/"), pid) {
        let priority = libc::sched_param { sched_priority: 2 };
        // SAFETY: the call reads one properly initialised struct.
        unsafe { libc::sched_setscheduler(pid, libc::SCHED_FIFO, &priority) };
    }
}

fn prepare() -> Result<(), GuestError> {
    std::env::set_var("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    for (kind, place) in [
        ("devtmpfs", "/dev"),
        ("proc", "/proc"),
        ("sysfs", "/sys"),
        ("cgroup2", "/sys/fs/cgroup"),
        ("bpf", "/sys/fs/bpf"),
    ] {
        mount_new(kind, place)?;
    }
    // The root is in memory, and so are these; a command's files may be in them.
    Ok(
        std::fs::set_permissions("/tmp", Permissions::from_mode(0o1777))
            .doing("making /tmp writable for all")?,
    )
}

fn mount_new(kind: &str, place: &str) -> Result<(), GuestError> {
    std::fs::create_dir_all(place).doing(format!("making {place}"))?;
    Ok(mount(
        Some(kind),
        place,
        Some(kind),
        MsFlags::empty(),
        None::<&str>,
    )
    .doing(format!("mounting {kind} on {place}"))?)
}

fn load_modules(directory: &str) -> Result<(), GuestError> {
    let directory = Path::new("/").join(directory);
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(&directory).doing("listing the kernel modules")? {
        paths.push(entry.doing("listing the kernel modules")?.path());
    }
    paths.sort();
    for path in paths {
        let module = File::open(&path).doing(format!("opening {}", path.display()))?;
        finit_module(&module, c"", ModuleInitFlags::empty())
            .doing(format!("loading {}", path.display()))?;
    }
    Ok(())
}

/// Opens the serial line as a plain byte channel: no echo, no change of line ends.
fn open_records() -> io::Result<File> {
    let file = File::options().read(true).write(true).open(RECORDS)?;
    let mut settings = tcgetattr(file.as_fd())?;
    cfmakeraw(&mut settings);
    nix::sys::termios::cfsetspeed(&mut settings, nix::sys::termios::BaudRate::B115200)?;
    tcsetattr(file.as_fd(), SetArg::TCSANOW, &settings)?;
    Ok(file)
}

fn write_record(file: &mut File, record: &Record) -> io::Result<()> {
    let mut line = serde_json::to_vec(record)?;
    line.push(b'\n');
    file.write_all(&line)
}

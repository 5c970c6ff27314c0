// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One QEMU per task: a shard of an experiment, or a command. Its clock counts instructions
//! (`-icount`), so nothing that the host does reaches the guest.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use paceline_experiment::hash::hash_of;
use paceline_experiment::plan::Plan;
use paceline_experiment::record::{Record, Stream};
use paceline_net::{process, scratch};

use super::cpio::{Archive, FILE};
use super::entry::Entry;
use super::image::Image;
use super::processor::Processor;
use super::{VirtualError, Wrong};
use crate::guest::command::Command as GuestCommand;
use crate::guest::{clock, Task, TASK};

/// Found on the PATH.
const PROGRAM: &str = "qemu-system-x86_64";
const DIRECTORY_PREFIX: &str = "paceline-lab-";
/// Text of the kernel's console at a double fault (arch/x86/kernel/traps.c).
const DOUBLE_FAULT: &str = "double fault";
/// See docs/experiments.md.
const QEMU_FAULT: &str = "A double fault is most likely one of QEMU before 8.0 (CMPXCHG16B): \
     take QEMU 8.0 or later, or another --seed.";
/// No RDRAND or RDSEED, and the same features on every host.
const CPU: &str = "Nehalem";
/// The same without the instruction that QEMU before 8.0 gets wrong.
const CPU_WITHOUT_CMPXCHG16B: &str = "Nehalem,-cx16";
const ONCE_MORE: &str = "a fault of QEMU before 8.0 ended the guest: run once more, on a CPU \
     without CMPXCHG16B";
const CONSOLE_LINES_SHOWN: usize = 20;
/// The guest kernel's command line.
const COMMAND_LINE: [&str; 9] = [
    "console=ttyS0",
    "quiet",
    // A panic ends QEMU (-no-reboot).
    "panic=-1",
    // The same addresses in each run.
    "nokaslr",
    // One instruction is one nanosecond or more: these would take a tenth of them.
    "mitigations=off",
    "init_on_alloc=0",
    // Nothing to watch or calibrate where the clock counts instructions; this
    // halves the time to boot.
    "tsc=reliable",
    "no_timer_check",
    // A timer that paces packets does not wait for a system call to end.
    "preempt=full",
];
/// The timestamp counter under `-icount shift=0`: it counts nanoseconds.
const TSC_KHZ: u32 = 1_000_000;
/// Interval of reads of the records. Does not reach the guest.
const POLL: Duration = Duration::from_millis(50);

/// The environment variable of the log filter, as the guest's program reads it.
const LOG: &str = "PACELINE_LOG";

/// Settings of a machine beside its task.
#[derive(Clone)]
pub struct Machine {
    /// The image that it boots.
    pub image: Image,
    /// One instruction takes 2^shift ns of its time.
    pub shift: i8,
    /// Wall time without output from the guest after which it is given up.
    pub patience: Duration,
    /// Log filter (`tracing`) of the program in the guest. With one, all that the
    /// guest's console shows is repeated on standard error.
    pub log: Option<String>,
}

/// A hash of all that goes into a run on this machine, but for the plan; `files` are those
/// beside the image's.
///
/// # Errors
/// If QEMU cannot be run for its version, or does not print it.
pub fn inputs(machine: &Machine, files: &[Entry]) -> Result<u64, VirtualError> {
    let qemu = Command::new(PROGRAM)
        .arg("--version")
        .output()
        .map_err(|source| VirtualError::Start {
            program: PROGRAM.to_owned(),
            source,
        })?;
    if !qemu.status.success() {
        return Err(VirtualError::Program {
            program: format!("{PROGRAM} --version"),
            message: qemu.status.to_string(),
        });
    }
    let image = &machine.image;
    let shift = machine.shift.to_le_bytes();
    let mut parts: Vec<&[u8]> = vec![
        &qemu.stdout,
        image.kernel.as_os_str().as_encoded_bytes(),
        &image.initramfs,
        &shift,
        machine.log.as_deref().unwrap_or_default().as_bytes(),
    ];
    for file in files {
        parts.extend([file.path().as_bytes(), file.content()]);
    }
    Ok(hash_of(&parts))
}

/// Runs `plan` in a machine of its own, with `files` beside the image's. `progress` gets the
/// steps done so far; the machine is ended early once `stop` returns true.
///
/// # Errors
/// If QEMU cannot be started, the guest fails, dies or is silent for too long.
pub fn run(
    machine: &Machine,
    plan: &Plan,
    files: &[Entry],
    progress: &dyn Fn(u64),
    stop: &dyn Fn() -> bool,
) -> Result<Vec<Record>, VirtualError> {
    let name = plan.shard_name();
    let task = Task::Plan(Box::new(plan.clone()));
    let attempt = |cpu: &str| {
        let mut records = Vec::new();
        let mut take = |record| match record {
            Record::Progress { done } => progress(done),
            record => records.push(record),
        };
        attend((machine, cpu), &name, &task, files, &mut take, stop)?;
        Ok(records)
    };
    once_more_if_qemu_fails(&name, attempt)
}

/// The records of `attempt` with the usual CPU or, after a fault of QEMU, with the other one:
/// the first of them says so then.
fn once_more_if_qemu_fails(
    shard: &str,
    attempt: impl Fn(&str) -> Result<Vec<Record>, VirtualError>,
) -> Result<Vec<Record>, VirtualError> {
    let fault = match attempt(CPU) {
        // The same run would meet it again.
        Err(fault) if is_fault_of_qemu(&fault) => fault,
        outcome => return outcome,
    };
    eprintln!("paceline: {shard}: {ONCE_MORE}");
    let mut records = match attempt(CPU_WITHOUT_CMPXCHG16B) {
        // A kernel that needs the instruction has other errors then.
        Err(error) if !matches!(error, VirtualError::Interrupted) => return Err(fault),
        outcome => outcome?,
    };
    let text = ONCE_MORE.to_owned();
    records.insert(0, Record::Warning { text });
    Ok(records)
}

/// Whether a guest ended as [`QEMU_FAULT`] says.
fn is_fault_of_qemu(error: &VirtualError) -> bool {
    matches!(error, VirtualError::Died { console, .. } if console.ends_with(QEMU_FAULT))
}

/// Runs `command` in a machine of its own, with `files` beside the image's. `print` gets
/// its output, while it runs; the machine is ended early once `stop` returns true.
///
/// Returns the command's exit status, or 128 plus the signal that ended it.
///
/// # Errors
/// If QEMU cannot be started, the command cannot be started, or the guest dies or is
/// silent for too long.
pub fn execute(
    machine: &Machine,
    command: &GuestCommand,
    files: &[Entry],
    print: &mut dyn FnMut(Stream, &str),
    stop: &dyn Fn() -> bool,
) -> Result<i32, VirtualError> {
    let name = command.words.first().map_or("", String::as_str);
    let mut ended = None;
    let mut take = |record| match record {
        Record::Printed { stream, text } => print(stream, &text),
        Record::Exited { status } => ended = Some(status),
        _ => {}
    };
    let task = Task::Command(command.clone());
    attend((machine, CPU), name, &task, files, &mut take, stop)?;
    ended.ok_or_else(|| VirtualError::Guest {
        shard: name.to_owned(),
        message: "the command has no end".to_owned(),
    })
}

/// Boots a machine with such a CPU for `task`, called `name` in messages, and hands its records
/// to `take` until the last one.
fn attend(
    (machine, cpu): (&Machine, &str),
    name: &str,
    task: &Task,
    beside: &[Entry],
    take: &mut dyn FnMut(Record),
    stop: &dyn Fn() -> bool,
) -> Result<(), VirtualError> {
    let shard = || name.to_owned();
    let temporary = std::env::temp_dir();
    let directory =
        scratch::make(&temporary, DIRECTORY_PREFIX).wrong("make a directory in", &temporary)?;
    let files = Files::create(directory.path(), &machine.image, task, beside)?;
    let mut guest = Guest::start((machine, cpu), &files, memory_mib(beside))?;
    let mut last_word = Instant::now();
    let mut records = LineReader::open(&files.records)?;
    let mut console = match machine.log {
        Some(_) => Some(LineReader::open(&files.console)?),
        None => None,
    };
    loop {
        let exited = guest.exited()?;
        if let Some(console) = &mut console {
            while let Some(line) = console.line()? {
                eprintln!("{name}: {}", String::from_utf8_lossy(&line).trim_end());
            }
        }
        while let Some(line) = records.line()? {
            last_word = Instant::now();
            let record = serde_json::from_slice(&line).map_err(|source| VirtualError::Record {
                shard: shard(),
                line: String::from_utf8_lossy(&line).into_owned(),
                source,
            })?;
            match record {
                Record::Failed { text } => {
                    return Err(VirtualError::Guest {
                        shard: shard(),
                        message: text,
                    })
                }
                Record::End => return Ok(()),
                record => take(record),
            }
        }
        if stop() {
            return Err(VirtualError::Interrupted);
        }
        if let Some(status) = exited {
            return Err(VirtualError::Died {
                shard: shard(),
                status,
                console: files.console_tail(),
            });
        }
        if last_word.elapsed() > machine.patience {
            let seconds = machine.patience.as_secs();
            return Err(VirtualError::Silent {
                shard: shard(),
                seconds,
                console: files.console_tail(),
            });
        }
        std::thread::sleep(POLL);
    }
}

/// Memory of a guest with these files beside its image, MiB. They are in it twice until the
/// archive is unpacked, and its root may be half of the memory.
fn memory_mib(files: &[Entry]) -> usize {
    const WITHOUT: usize = 2048;
    let bytes: usize = files.iter().map(|file| file.content().len()).sum();
    WITHOUT + 3 * (bytes >> 20)
}

/// Removes the temporary files of killed runs.
pub fn clean_stale() {
    scratch::clean_stale(&std::env::temp_dir(), DIRECTORY_PREFIX);
}

/// The kernel's command line for a machine of that speed and log filter.
///
/// QEMU's clock counts a nanosecond per instruction at least. The kernel of a faster machine
/// gets a TSC frequency above the real one, so that all its time passes more slowly;
/// [`clock::slow_down`] slows the local APIC's timer down by the same factor.
fn command_line(shift: i8, log: Option<&str>) -> String {
    let mut words: Vec<String> = COMMAND_LINE.map(str::to_owned).into();
    match shift {
        ..0 => {
            let faster = shift.unsigned_abs();
            words.push(format!("tsc_early_khz={}", TSC_KHZ << faster));
            // Its timer is reached through /dev/mem.
            words.push("iomem=relaxed".to_owned());
            // The first program's environment.
            words.push(format!("{}={faster}", clock::FASTER));
        }
        0.. => words.push("nolapic_timer".to_owned()),
    }
    if let Some(log) = log {
        words.push(format!("{LOG}={log}"));
    }
    words.join(" ")
}

/// The files of one run.
struct Files {
    initramfs: PathBuf,
    console: PathBuf,
    records: PathBuf,
    errors: PathBuf,
}

impl Files {
    fn create(
        directory: &Path,
        image: &Image,
        task: &Task,
        beside: &[Entry],
    ) -> Result<Self, VirtualError> {
        let files = Files {
            initramfs: directory.join("initramfs.cpio"),
            console: directory.join("console"),
            records: directory.join("records"),
            errors: directory.join("qemu"),
        };
        let mut archive = Archive::default();
        archive.file(
            TASK,
            FILE,
            &serde_json::to_vec(task)
                .map_err(io::Error::from)
                .wrong("encode", Path::new(TASK))?,
        );
        for entry in beside {
            entry.put_into(&mut archive);
        }
        File::create(&files.initramfs)
            .and_then(|mut file| {
                file.write_all(&image.initramfs)?;
                file.write_all(&archive.finish())
            })
            .wrong("write", &files.initramfs)?;
        for path in [&files.console, &files.records, &files.errors] {
            File::create(path).wrong("make", path)?;
        }
        Ok(files)
    }

    /// The last lines of QEMU and of the guest's kernel.
    fn console_tail(&self) -> String {
        let mut text = String::new();
        for path in [&self.errors, &self.console] {
            let content = fs::read(path).unwrap_or_default();
            text += &String::from_utf8_lossy(&content);
        }
        last_lines(&text)
    }
}

/// The last lines that are not empty, and an explanation of a fault that they show.
fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim_end)
        .filter(|line| !line.is_empty())
        .collect();
    let mut shown = lines[lines.len().saturating_sub(CONSOLE_LINES_SHOWN)..].to_vec();
    if lines.iter().any(|line| line.contains(DOUBLE_FAULT)) {
        shown.push(QEMU_FAULT);
    }
    shown.join("\n")
}

/// A running QEMU, killed when dropped, and by the kernel when this process dies.
struct Guest {
    child: Child,
    _processor: Processor,
}

impl Guest {
    fn start(
        (machine, cpu): (&Machine, &str),
        files: &Files,
        memory_mib: usize,
    ) -> Result<Self, VirtualError> {
        let mut command = Command::new(PROGRAM);
        command
            .args([
                "-no-user-config",
                "-nodefaults",
                "-no-reboot",
                "-display",
                "none",
                "-nic",
                "none",
            ])
            .args(["-accel", "tcg,thread=single", "-smp", "1"])
            .args(["-m", &memory_mib.to_string()])
            .args([
                "-icount",
                &format!("shift={},sleep=off", machine.shift.max(0)),
            ])
            .args(["-rtc", "clock=vm,base=2026-01-01"])
            .args(["-cpu", cpu, "-seed", "1"])
            .arg("-kernel")
            .arg(&machine.image.kernel)
            .arg("-initrd")
            .arg(&files.initramfs)
            .args([
                "-append",
                &command_line(machine.shift, machine.log.as_deref()),
            ])
            .arg("-serial")
            .arg(format!("file:{}", files.console.display()))
            .arg("-serial")
            .arg(format!("file:{}", files.records.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(
                File::options()
                    .append(true)
                    .open(&files.errors)
                    .wrong("open", &files.errors)?,
            );
        let processor = Processor::take().wrong("choose a CPU for", Path::new(PROGRAM))?;
        let confine = processor
            .confine()
            .wrong("choose a CPU for", Path::new(PROGRAM))?;
        process::end_with_this_thread(&mut command);
        // SAFETY: all its system calls are async-signal-safe.
        unsafe {
            command.pre_exec(confine);
        }
        command
            .spawn()
            .map(|child| Guest {
                child,
                _processor: processor,
            })
            .map_err(|source| VirtualError::Start {
                program: PROGRAM.to_owned(),
                source,
            })
    }

    fn exited(&mut self) -> Result<Option<ExitStatus>, VirtualError> {
        self.child.try_wait().wrong("wait for", Path::new(PROGRAM))
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // Fails if it has exited already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Reads whole lines from a file that grows.
struct LineReader {
    path: PathBuf,
    file: BufReader<File>,
    partial: Vec<u8>,
}

impl LineReader {
    fn open(path: &Path) -> Result<Self, VirtualError> {
        Ok(LineReader {
            path: path.to_owned(),
            file: BufReader::new(File::open(path).wrong("open", path)?),
            partial: Vec::new(),
        })
    }

    fn line(&mut self) -> Result<Option<Vec<u8>>, VirtualError> {
        self.file
            .by_ref()
            .read_until(b'\n', &mut self.partial)
            .wrong("read", &self.path)?;
        if self.partial.last() == Some(&b'\n') {
            return Ok(Some(std::mem::take(&mut self.partial)));
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_double_fault_is_explained_wherever_it_is_printed() {
        assert!(is_fault_of_qemu(&double_fault()));
        assert!(!is_fault_of_qemu(&died("Kernel panic: no init")));
        let mut console = "PANIC: double fault, error_code: 0x0\r\n\r\n".to_owned();
        for line in 1..=CONSOLE_LINES_SHOWN {
            console += &format!("{line}\r\n");
        }
        let shown = last_lines(&console);
        assert!(shown.starts_with("1\n2\n"), "{shown}");
        assert!(shown.ends_with("or another --seed."), "{shown}");
        assert_eq!(last_lines("a\n\nb\n"), "a\nb");
    }
    #[test]
    fn a_run_on_another_cpu_is_told_in_its_records() {
        let begin = || Record::Begin {
            kernel: "6.1".to_owned(),
        };
        let records = once_more_if_qemu_fails("cubic", |cpu| match cpu {
            CPU => Err(double_fault()),
            _ => Ok(vec![begin()]),
        });
        let records = records.unwrap();
        assert!(matches!(&records[0], Record::Warning { text } if text == ONCE_MORE));
        assert_eq!(records[1..], [begin()]);

        let records = once_more_if_qemu_fails("cubic", |cpu| match cpu {
            CPU => Ok(vec![begin()]),
            _ => Err(died("not needed")),
        });
        assert_eq!(records.unwrap(), [begin()]);
    }

    #[test]
    fn what_another_cpu_cannot_mend_is_the_first_error() {
        let failed = once_more_if_qemu_fails("cubic", |cpu| match cpu {
            CPU => Err(double_fault()),
            _ => Err(died("Kernel panic: no CMPXCHG16B")),
        });
        assert!(is_fault_of_qemu(&failed.unwrap_err()));

        let failed = once_more_if_qemu_fails("cubic", |cpu| match cpu {
            CPU => Err(died("Kernel panic: no init")),
            _ => Ok(Vec::new()),
        });
        assert!(!is_fault_of_qemu(&failed.unwrap_err()));
    }

    fn double_fault() -> VirtualError {
        died("PANIC: double fault, error_code: 0x0")
    }

    fn died(console: &str) -> VirtualError {
        VirtualError::Died {
            shard: "cubic".to_owned(),
            status: ExitStatus::default(),
            console: last_lines(console),
        }
    }
}

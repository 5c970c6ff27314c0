// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A program on a pseudo terminal, and what its screen shows.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::pty::{openpty, Winsize};
use nix::sys::termios::{tcgetattr, Termios};
use vt100::Parser;

use super::agent::NEVER;

/// The terminal that the program draws on.
pub struct Terminal {
    pub process: Child,
    /// Where a user types and looks; gone when the window was closed.
    window: Option<OwnedFd>,
    /// The program's side, kept open so that its settings can be read when it has ended.
    line: Option<OwnedFd>,
    before: Termios,
    seen: Arc<Mutex<Parser>>,
    reading: Option<JoinHandle<()>>,
}

fn size(rows: u16, columns: u16) -> Winsize {
    Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

impl Terminal {
    /// 80 columns of 24 lines, on which the command runs in a session of its own.
    pub fn start(mut command: Command) -> Self {
        let pty = openpty(&size(24, 80), None).expect("there are pseudo terminals");
        let before = tcgetattr(&pty.slave).expect("a terminal");
        let end = || pty.slave.try_clone().unwrap();
        command
            .env("TERM", "xterm-256color")
            .stdin(end())
            .stdout(end())
            .stderr(end());
        // SAFETY: two system calls between fork and exec; descriptor 0 is the terminal.
        unsafe {
            command.pre_exec(|| {
                nix::unistd::setsid()?;
                match libc::ioctl(0, libc::TIOCSCTTY, 0) {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                }
            });
        }
        let process = command.spawn().expect("it starts");
        let seen = Arc::new(Mutex::new(Parser::new(24, 80, 0)));
        let mut output = File::from(pty.master.try_clone().unwrap());
        let shown = Arc::clone(&seen);
        let reading = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // Ends with an error when nobody has the program's side any more.
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                shown.lock().unwrap().process(&bytes[..count]);
            }
        });
        Self {
            process,
            window: Some(pty.master),
            line: Some(pty.slave),
            before,
            seen,
            reading: Some(reading),
        }
    }

    fn window(&self) -> &OwnedFd {
        self.window.as_ref().expect("the window is there")
    }

    pub fn press(&mut self, keys: &str) {
        let mut keyboard = File::from(self.window().try_clone().unwrap());
        keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// As if the window were drawn larger or smaller.
    pub fn resize(&mut self, rows: u16, columns: u16) {
        let mut seen = self.seen.lock().unwrap();
        seen.screen_mut().set_size(rows, columns);
        let new = size(rows, columns);
        // SAFETY: reads one initialised struct.
        let result = unsafe { libc::ioctl(self.window().as_raw_fd(), libc::TIOCSWINSZ, &new) };
        assert_eq!(result, 0);
    }

    /// What is on the screen.
    pub fn screen(&self) -> String {
        self.seen.lock().unwrap().screen().contents()
    }

    /// Until the screen is as it should be.
    pub fn until(&self, what: &str, done: impl Fn(&str) -> bool) -> String {
        let begin = Instant::now();
        loop {
            let screen = self.screen();
            if done(&screen) {
                return screen;
            }
            assert!(begin.elapsed() < NEVER, "never came: {what}\n{screen}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn until_shown(&self, part: &str) -> String {
        self.until(part, |screen| screen.contains(part))
    }

    /// The program's end, after which the terminal is as it was before.
    pub fn end(mut self) -> (ExitStatus, String) {
        let status = self.process.wait().unwrap();
        let line = self.line.take().unwrap();
        let after = tcgetattr(&line).expect("a terminal");
        assert_eq!(after, self.before, "the terminal's settings");
        drop(line);
        self.reading.take().unwrap().join().unwrap();
        let seen = self.seen.lock().unwrap();
        let screen = seen.screen();
        assert!(!screen.alternate_screen(), "the former screen is back");
        assert!(!screen.hide_cursor(), "the cursor is back");
        (status, screen.contents())
    }

    /// The window is closed under the program, which ends.
    pub fn hang_up(mut self) -> ExitStatus {
        self.line = None;
        self.window = None;
        // The reader has the window, too, until the program has ended: a hangup is what
        // the kernel makes of the last close.
        nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(self.process.id() as i32),
            nix::sys::signal::Signal::SIGHUP,
        )
        .unwrap();
        self.process.wait().unwrap()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Ended already, if all is well.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

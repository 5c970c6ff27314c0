// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The page at an address, by threads of its own, independent of the service's runtime.

use std::fmt;
use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::address::Address;
use crate::page::Page;
use crate::request::{self, Asked};

/// Callers that are answered at once; one more is hung up on. A host has one Prometheus, or two.
const MOST_CALLERS: usize = 16;
/// How long a caller may take. Prometheus itself gives up after 10 s.
const PATIENCE: Duration = Duration::from_secs(5);
/// A page serves all callers within this time: making one costs some milliseconds, which a
/// caller in a loop must not multiply.
const FRESH: Duration = Duration::from_secs(1);
/// After a failed accept (no descriptor is left), before the next.
const PAUSE: Duration = Duration::from_millis(100);

/// Metrics that are served, until the service ends. When it is dropped, a socket's file goes.
#[derive(Debug)]
pub struct Server {
    address: Address,
}

/// The two kinds of sockets.
#[derive(Debug)]
enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

impl Server {
    /// Listens at the address, and from then on answers with the pages of `make`.
    ///
    /// # Errors
    /// Where it cannot listen there: another program does, or the path is no socket.
    pub fn start(
        address: &Address,
        make: impl FnMut() -> Page + Send + 'static,
    ) -> io::Result<Self> {
        let (listener, address) = match address {
            Address::Unix(path) => (Listener::Unix(unix(path)?), address.clone()),
            Address::Loopback(asked) => {
                let listener = TcpListener::bind(asked)?;
                let address = Address::Loopback(listener.local_addr()?);
                (Listener::Tcp(listener), address)
            }
        };
        let pages = Arc::new(Mutex::new(Pages {
            make: Box::new(make),
            last: None,
        }));
        thread::Builder::new()
            .name("metrics".to_owned())
            .spawn(move || answer_all(&listener, &pages))?;
        Ok(Self { address })
    }

    /// The address, with the port that the kernel chose in place of 0.
    pub fn address(&self) -> &Address {
        &self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Address::Unix(path) = &self.address {
            let _ = fs::remove_file(path);
        }
    }
}

/// A socket at a path, in place of one that a killed service left.
fn unix(path: &Path) -> io::Result<UnixListener> {
    if let Ok(there) = fs::symlink_metadata(path) {
        if !there.file_type().is_socket() {
            let what = format!("{} is there and is no socket", path.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
        }
        if UnixStream::connect(path).is_ok() {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        fs::remove_file(path)?;
    }
    // Under another name until the permissions are set.
    let new = PathBuf::from(format!("{}.{}", path.display(), std::process::id()));
    let _ = fs::remove_file(&new);
    let listener = UnixListener::bind(&new)?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o660))?;
    fs::rename(&new, path)?;
    Ok(listener)
}

/// Makes pages, and keeps the last for a moment.
struct Pages {
    make: Box<dyn FnMut() -> Page + Send>,
    last: Option<(Instant, Arc<Page>)>,
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pages").finish_non_exhaustive()
    }
}

impl Pages {
    fn now(&mut self) -> Arc<Page> {
        if let Some((made, page)) = &self.last {
            if made.elapsed() < FRESH {
                return Arc::clone(page);
            }
        }
        let page = Arc::new((self.make)());
        self.last = Some((Instant::now(), Arc::clone(&page)));
        page
    }
}

/// One of the callers that are answered.
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn answer_all(listener: &Listener, pages: &Arc<Mutex<Pages>>) {
    let callers = Arc::new(AtomicUsize::new(0));
    loop {
        let stream = match accept(listener) {
            Ok(stream) => stream,
            Err(error) => {
                tracing::debug!("cannot take a scrape: {error}");
                thread::sleep(PAUSE);
                continue;
            }
        };
        let before = callers.fetch_add(1, Ordering::Relaxed);
        let place = Place(Arc::clone(&callers));
        if before >= MOST_CALLERS {
            tracing::debug!("too many scrapes at once: one is hung up on");
            continue;
        }
        let pages = Arc::clone(pages);
        let started = thread::Builder::new()
            .name("scrape".to_owned())
            .spawn(move || {
                let _place = place;
                if let Err(error) = answer(stream, &pages) {
                    tracing::debug!("a scrape was not answered: {error}");
                }
            });
        if let Err(error) = started {
            tracing::debug!("a scrape was not answered: {error}");
        }
    }
}

fn accept(listener: &Listener) -> io::Result<Box<dyn Stream>> {
    Ok(match listener {
        Listener::Unix(listener) => {
            let (stream, _) = listener.accept()?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            Box::new(stream)
        }
        Listener::Tcp(listener) => {
            let (stream, _) = listener.accept()?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            Box::new(stream)
        }
    })
}

fn answer(mut stream: Box<dyn Stream>, pages: &Mutex<Pages>) -> io::Result<()> {
    let asked = request::read(&mut stream, Instant::now() + PATIENCE)?;
    let (status, kind, text, head) = match asked {
        Asked::Page { form, head } => {
            let page = pages.lock().unwrap_or_else(PoisonError::into_inner).now();
            ("200 OK", form.content_type(), page.text(form), head)
        }
        Asked::Nothing(status) => {
            let text = format!("{status}: metrics are at /metrics\n");
            (status, "text/plain; charset=utf-8", text, false)
        }
    };
    let mut response = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        text.len()
    );
    if !head {
        response += &text;
    }
    stream.write_all(response.as_bytes())
}

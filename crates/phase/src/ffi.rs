// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The functions of `include/paceline.h`, on the one page of this process.

use std::cell::Cell;
use std::ffi::{c_int, c_uint};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::Once;

use crate::lock::Held;
use crate::phases::notify_at_exit;
use crate::{EnterError, Page, Phases, Token, Unbalanced};

const ERANGE: c_int = -1;
const EUNBALANCED: c_int = -2;
const EFULL: c_int = -3;

/// Where the agent of this process's job listens; `paceline run` sets it.
const SOCKET_VARIABLE: &str = "PACELINE_SOCKET";
/// Where the agent of this host listens.
const HOST_SOCKET: &str = "/run/paceline/agent.sock";

/// Null: not looked for yet. Dangling: there are none. Else leaked, for ever.
static PHASES: AtomicPtr<Phases> = AtomicPtr::new(ptr::null_mut());

fn absent() -> *mut Phases {
    ptr::dangling_mut()
}

/// This process's phases; `None` where it does not run under Paceline.
#[inline]
fn phases() -> Option<&'static Phases> {
    let found = PHASES.load(Ordering::Acquire);
    if found == absent() {
        return None;
    }
    if found.is_null() {
        return look();
    }
    // SAFETY: not null and not `absent()`: a leaked box.
    Some(unsafe { &*found })
}

#[cold]
fn look() -> Option<&'static Phases> {
    let socket = std::env::var_os(SOCKET_VARIABLE).map(PathBuf::from);
    let socket = socket.as_deref().unwrap_or(Path::new(HOST_SOCKET));
    let found = match Page::ask(socket) {
        Ok(page) => Box::into_raw(Box::new(Phases::new(page))),
        // A program runs the same without Paceline, without a message.
        Err(_) => absent(),
    };
    match PHASES.compare_exchange(ptr::null_mut(), found, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => watch_forks(),
        Err(_) if found != absent() => {
            // Another thread was first. The agent gave both the same page.
            // SAFETY: made above, and not shared.
            drop(unsafe { Box::from_raw(found) });
        }
        Err(_) => {}
    }
    phases()
}

/// A forked child is a process of its own: it begins in class 0 and requests a page
/// of its own when it first enters a class.
fn watch_forks() {
    thread_local! {
        static HELD: Cell<Option<Held<'static>>> = const { Cell::new(None) };
    }
    extern "C" fn before() {
        HELD.set(known().map(Phases::hold));
    }
    extern "C" fn in_parent() {
        HELD.set(None);
    }
    extern "C" fn in_child() {
        HELD.set(None);
        let parents = PHASES.swap(ptr::null_mut(), Ordering::AcqRel);
        if !parents.is_null() && parents != absent() {
            // The parent's page is not the child's to write.
            notify_at_exit(None);
            // SAFETY: a leaked box. The child has one thread, which is here and has
            // forgotten it.
            drop(unsafe { Box::from_raw(parents) });
        }
    }
    fn known() -> Option<&'static Phases> {
        let found = PHASES.load(Ordering::Acquire);
        // SAFETY: not null and not `absent()`: a leaked box.
        (!found.is_null() && found != absent()).then(|| unsafe { &*found })
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handlers are functions of this library, which is never
        // unloaded. It fails for want of memory only, and then a fork keeps sharing.
        unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    });
}

fn error_of(error: EnterError) -> c_int {
    match error {
        EnterError::OutOfRange => ERANGE,
        EnterError::Full => EFULL,
    }
}

fn status(result: Result<(), Unbalanced>) -> c_int {
    result.map_or(EUNBALANCED, |()| 0)
}

/// See `include/paceline.h`.
#[no_mangle]
pub extern "C" fn paceline_enter(class_id: c_uint) -> c_int {
    let Some(phases) = phases() else { return 0 };
    notify_at_exit(Some(phases));
    phases.enter(class_id).map_or_else(error_of, |()| 0)
}

/// See `include/paceline.h`.
#[no_mangle]
pub extern "C" fn paceline_leave() -> c_int {
    phases().map_or(0, |phases| status(phases.leave()))
}

/// See `include/paceline.h`.
#[no_mangle]
pub extern "C" fn paceline_begin(class_id: c_uint) -> c_int {
    phases().map_or(0, |phases| match phases.begin(class_id) {
        Ok(Token(token)) => token as c_int,
        Err(error) => error_of(error),
    })
}

/// See `include/paceline.h`.
#[no_mangle]
pub extern "C" fn paceline_end(token: c_int) -> c_int {
    let Some(phases) = phases() else { return 0 };
    match u32::try_from(token) {
        Ok(token) => status(phases.end(Token(token))),
        Err(_) => EUNBALANCED,
    }
}

/// See `include/paceline.h`.
#[no_mangle]
pub extern "C" fn paceline_class_new() -> c_int {
    phases()
        .and_then(Phases::new_class)
        .map_or(EFULL, |class| class as c_int)
}

/// See `include/paceline.h`.
#[no_mangle]
pub extern "C" fn paceline_class_free(class_id: c_uint) -> c_int {
    phases().map_or(ERANGE, |phases| {
        phases.free_class(class_id).map_or_else(error_of, |()| 0)
    })
}

/// See `include/paceline.h`.
#[no_mangle]
pub extern "C" fn paceline_active() -> c_int {
    phases().is_some().into()
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The class of a process: the one entered last and not left, of all threads.

use std::cell::UnsafeCell;
use std::fmt;

use paceline_abi::PL_CLASSES;

use crate::lock::{Held, Lock};
use crate::Page;

/// Classes are 0 to this, less one.
pub const CLASSES: u32 = PL_CLASSES;

/// Operations that may be active at once. Collectives nest two or three deep, and a
/// program with more nonblocking ones under way than this is in a collective anyway.
const ACTIVE: usize = 64;

/// Bits of a phase that are its class; the generation is above them
/// (bpf/control/phases.h).
const CLASS_BITS: u32 = 8;
const GENERATION_MASK: u32 = u32::MAX >> CLASS_BITS;
/// A program that a process executes after another one begins this much further on:
/// its classes have nothing to do with the former's.
const PROGRAM_BITS: u32 = 12;

/// Why a class was not entered. The class stays what it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnterError {
    /// There is no such class: classes are below [`CLASSES`].
    OutOfRange,
    /// Too many operations are active.
    Full,
}

impl fmt::Display for EnterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange => write!(f, "no such class: classes are below {CLASSES}"),
            Self::Full => write!(f, "{ACTIVE} operations are already active"),
        }
    }
}

impl std::error::Error for EnterError {}

/// A leave without an enter, or an end without a begin. Nothing is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unbalanced;

impl fmt::Display for Unbalanced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a leave without an enter, or an end without a begin")
    }
}

impl std::error::Error for Unbalanced {}

/// An operation that [`Phases::begin`] began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token(pub(crate) u32);

/// The owner of an active operation, which ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// The thread of that key, by leaving.
    Thread(usize),
    /// The holder of the token.
    Token(u32),
}

#[derive(Debug, Clone, Copy)]
struct Operation {
    owner: Owner,
    class: u32,
}

/// The phases of one process.
#[derive(Debug)]
pub struct Phases {
    page: Page,
    lock: Lock,
    state: UnsafeCell<State>,
}

// SAFETY: only the holder of `lock` touches `state`.
unsafe impl Sync for Phases {}

#[derive(Debug)]
struct State {
    /// The first `active` are, in the order in which they were entered.
    operations: [Operation; ACTIVE],
    active: usize,
    /// Enters beyond that, which are only counted.
    beyond: u32,
    next_token: u32,
    generations: [u32; CLASSES as usize],
    /// Bit k: `new_class` has assigned class k.
    given: u64,
}

impl Phases {
    /// The phases of a process that has just begun: class 0.
    pub fn new(page: Page) -> Self {
        let first = page.count_program() << PROGRAM_BITS & GENERATION_MASK;
        let mut generations = [first; CLASSES as usize];
        // Point-to-point is the same in every program.
        generations[0] = 0;
        page.set_phase(0);
        let nothing = Operation {
            owner: Owner::Token(0),
            class: 0,
        };
        Self {
            page,
            lock: Lock::new(),
            state: UnsafeCell::new(State {
                operations: [nothing; ACTIVE],
                active: 0,
                beyond: 0,
                next_token: 0,
                generations,
                given: 0,
            }),
        }
    }

    /// The memory behind it.
    pub fn page(&self) -> &Page {
        &self.page
    }

    /// The calling thread enters `class`; nests.
    ///
    /// # Errors
    /// [`EnterError`]; the enter counts all the same, and is to be left.
    pub fn enter(&self, class: u32) -> Result<(), EnterError> {
        self.locked(|state, page, me| state.enter(Owner::Thread(me), class, page))
    }

    /// Leaves the class that the calling thread entered last.
    ///
    /// # Errors
    /// [`Unbalanced`].
    pub fn leave(&self) -> Result<(), Unbalanced> {
        self.locked(|state, page, me| {
            if state.beyond > 0 {
                state.beyond -= 1;
                return Ok(());
            }
            state.end(Owner::Thread(me), page)
        })
    }

    /// As [`Phases::enter`], for an operation that any thread may end.
    ///
    /// # Errors
    /// [`EnterError`]; there is nothing to end then.
    pub fn begin(&self, class: u32) -> Result<Token, EnterError> {
        self.locked(|state, page, _| {
            if class >= CLASSES {
                return Err(EnterError::OutOfRange);
            }
            if state.active == ACTIVE {
                return Err(EnterError::Full);
            }
            // The top bit stays clear: a token is a positive int in C.
            let token = state.next_token;
            state.next_token = (token + 1) & (u32::MAX >> 1);
            state.enter(Owner::Token(token), class, page)?;
            Ok(Token(token))
        })
    }

    /// Ends an operation of [`Phases::begin`].
    ///
    /// # Errors
    /// [`Unbalanced`].
    pub fn end(&self, token: Token) -> Result<(), Unbalanced> {
        self.locked(|state, page, _| state.end(Owner::Token(token.0), page))
    }

    /// An unassigned class, from the highest number downwards, without state from an
    /// earlier use; `None` when all but class 0 are assigned.
    pub fn new_class(&self) -> Option<u32> {
        self.locked(|state, page, _| {
            let class = (1..CLASSES)
                .rev()
                .find(|class| state.given & (1 << class) == 0)?;
            state.given |= 1 << class;
            state.renew(class, page);
            Some(class)
        })
    }

    /// Frees a class: its state is forgotten.
    ///
    /// # Errors
    /// [`EnterError::OutOfRange`] where it was not assigned.
    pub fn free_class(&self, class: u32) -> Result<(), EnterError> {
        self.locked(|state, page, _| {
            if class >= CLASSES || state.given & (1 << class) == 0 {
                return Err(EnterError::OutOfRange);
            }
            state.given &= !(1 << class);
            state.renew(class, page);
            Ok(())
        })
    }

    /// The thread of that key has ended: leaves its remaining classes.
    fn thread_ends(&self, key: usize) {
        let _held = self.lock.hold(key);
        // SAFETY: the lock is held until the end of this function.
        let state = unsafe { &mut *self.state.get() };
        while state.end(Owner::Thread(key), &self.page).is_ok() {}
    }

    #[inline]
    fn locked<T>(&self, work: impl FnOnce(&mut State, &Page, usize) -> T) -> T {
        let me = thread::key();
        let _held = self.lock.hold(me);
        // SAFETY: the lock is held until the end of this function.
        work(unsafe { &mut *self.state.get() }, &self.page, me)
    }

    /// To be held over a fork, so that the child gets a state that is whole.
    pub(crate) fn hold(&self) -> Held<'_> {
        self.lock.hold(thread::key())
    }
}

impl State {
    fn enter(&mut self, owner: Owner, class: u32, page: &Page) -> Result<(), EnterError> {
        if self.active == ACTIVE {
            self.beyond += 1;
            return Err(EnterError::Full);
        }
        // An enter of no class keeps the one that is.
        let known = class < CLASSES;
        let entered = if known { class } else { self.class() };
        self.operations[self.active] = Operation {
            owner,
            class: entered,
        };
        self.active += 1;
        if !known {
            return Err(EnterError::OutOfRange);
        }
        self.show(page);
        page.count(class);
        Ok(())
    }

    fn end(&mut self, owner: Owner, page: &Page) -> Result<(), Unbalanced> {
        let operations = &mut self.operations[..self.active];
        match operations {
            // Nearly always.
            [.., last] if last.owner == owner => {}
            _ => {
                let at = operations
                    .iter()
                    .rposition(|operation| operation.owner == owner)
                    .ok_or(Unbalanced)?;
                operations.copy_within(at + 1.., at);
            }
        }
        self.active -= 1;
        self.show(page);
        Ok(())
    }

    fn renew(&mut self, class: u32, page: &Page) {
        let generation = &mut self.generations[class as usize];
        *generation = (*generation + 1) & GENERATION_MASK;
        self.show(page);
    }

    fn class(&self) -> u32 {
        match self.active {
            0 => 0,
            active => self.operations[active - 1].class,
        }
    }

    fn show(&self, page: &Page) {
        let class = self.class();
        page.set_phase(class | self.generations[class as usize] << CLASS_BITS);
    }
}

mod thread {
    //! Threads by the address of a variable of theirs, which is dropped when they end.

    use std::cell::Cell;
    use std::ptr;

    use super::Phases;

    struct Mark(Cell<Option<&'static Phases>>);

    impl Drop for Mark {
        fn drop(&mut self) {
            if let Some(phases) = self.0.get() {
                phases.thread_ends(ptr::from_ref(self) as usize);
            }
        }
    }

    thread_local! {
        static MARK: Mark = const { Mark(Cell::new(None)) };
    }

    /// The calling thread's key: no other's as long as it lives. Threads whose
    /// variables are being destroyed have none left, and share one.
    #[inline]
    pub(super) fn key() -> usize {
        const ENDING: usize = 2;
        MARK.try_with(|mark| ptr::from_ref(mark) as usize)
            .unwrap_or(ENDING)
    }

    /// Sets the phases that the calling thread leaves at its end; `None`: none.
    #[inline]
    pub(crate) fn notify_at_exit(phases: Option<&'static Phases>) {
        let _ = MARK.try_with(|mark| mark.0.set(phases));
    }
}

pub(crate) use thread::notify_at_exit;

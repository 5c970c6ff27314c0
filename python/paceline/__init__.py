# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Phases: a program tells Paceline when its communication pattern changes.

    import paceline

    with paceline.phase(1):
        exchange_with_all()

Class 0 is what a program is in when it entered nothing: point-to-point. The meaning
of classes 1 to CLASSES - 1 is the program's own. A process is in the class that was
entered last and has not been left, whichever thread entered it.

This is libpaceline (include/paceline.h) by ctypes. Where that is not installed, or the
program does not run under Paceline, the functions switch nothing; wrong use raises the
same exceptions either way. A call that raises has changed nothing: an enter() that
raised is not to be left.

The library is found if the program has loaded it already, beside this file (a wheel brings
it), in PREFIX/lib if this package is in PREFIX/lib/python3/dist-packages, or where the
dynamic linker looks. PACELINE_LIBRARY names another one; empty, none.

In a job that has phases, the first phase of a process whose phases do not reach the job
gives a RuntimeWarning: once, and not if PACELINE_LIBRARY is empty.
"""

import contextlib
import ctypes
import operator
import os
import threading
import warnings

__all__ = [
    "CLASSES",
    "active",
    "begin",
    "class_free",
    "class_new",
    "end",
    "enter",
    "leave",
    "phase",
]
__version__ = "0.1.0"

CLASSES = 64
"""Classes are 0 to CLASSES - 1. A connection remembers the 8 last used."""

# Return values of the library; see include/paceline.h.
_ERANGE = -1
_EUNBALANCED = -2
_EFULL = -3

_SIGNATURES = {
    "paceline_enter": [ctypes.c_uint],
    "paceline_leave": [],
    "paceline_begin": [ctypes.c_uint],
    "paceline_end": [ctypes.c_int],
    "paceline_class_new": [],
    "paceline_class_free": [ctypes.c_uint],
    "paceline_active": [],
}


def _candidates():
    named = os.environ.get("PACELINE_LIBRARY")
    if named is not None:
        return [(named, ctypes.DEFAULT_MODE)] if named else []
    here = os.path.dirname(os.path.abspath(__file__))
    return [
        (None, ctypes.DEFAULT_MODE),  # what the program is linked with
        # An instance that the process, or the MPI shim, has opened.
        ("libpaceline.so", ctypes.DEFAULT_MODE | getattr(os, "RTLD_NOLOAD", 0)),
        (os.path.join(here, "libpaceline.so"), ctypes.DEFAULT_MODE),
        (os.path.join(here, "..", "..", "..", "libpaceline.so"), ctypes.DEFAULT_MODE),
        ("libpaceline.so", ctypes.DEFAULT_MODE),
    ]


def _load():
    for name, mode in _candidates():
        try:
            library = ctypes.CDLL(name, mode)
            for function, arguments in _SIGNATURES.items():
                getattr(library, function).argtypes = arguments
                getattr(library, function).restype = ctypes.c_int
        except (OSError, AttributeError):
            continue
        return library
    return None


class _State:
    """What this process has entered, begun and been given.

    The library knows it as well, but only where the program runs under Paceline.
    """

    def __init__(self):
        self.process = os.getpid()
        self.lock = threading.Lock()
        # Per thread: enters without their leave.
        self.thread = threading.local()
        # Of begin(): token to the library's own.
        self.begun = {}
        self.next_token = 0
        # Assigned where the library assigns none.
        self.given = set()
        # Whether the warning that all of this has no effect was given.
        self.warned = False


_library = _load()
_state = _State()


def _forget():
    # As the library does: a child is a new process, in class 0.
    global _state
    _state = _State()


os.register_at_fork(after_in_child=_forget)


def _warn_if_in_vain():
    """Says so where the process is in a job with phases, and its own do not reach it."""
    if _state.warned:
        return
    _state.warned = True
    # `paceline run` and the plugin for Slurm set it where the policy has phases.
    if not os.environ.get("PACELINE_SOCKET") or os.environ.get("PACELINE_LIBRARY") == "":
        return
    if _library is None:
        why = (
            "libpaceline was not found: install the wheel or the package that brings it, "
            "or name it by PACELINE_LIBRARY"
        )
    elif not active():
        why = f"nothing answers at {os.environ['PACELINE_SOCKET']}, or not for this process"
    else:
        return
    warnings.warn(
        f"this program runs in a Paceline job, but its phases switch nothing: {why}",
        RuntimeWarning,
        stacklevel=3,
    )


def _checked(class_id):
    number = operator.index(class_id)
    if not 0 <= number < CLASSES:
        raise ValueError(f"no class {number}: classes are 0 to {CLASSES - 1}")
    return number


def _full():
    return RuntimeError("too many phases are active at once")


def _unbalanced(what):
    return RuntimeError(f"unbalanced {what}")


def active():
    """Whether this process's phases reach a Paceline job.

    The first call of any function decides, for the life of the process; a forked
    child decides anew.
    """
    return _library is not None and _library.paceline_active() == 1


def enter(class_id):
    """The calling thread enters a class; nests.

    Raises ValueError if there is no such class, RuntimeError if too many are active.
    """
    number = _checked(class_id)
    _warn_if_in_vain()
    if _library is not None and _library.paceline_enter(number) == _EFULL:
        # The library counts this enter nevertheless.
        _library.paceline_leave()
        raise _full()
    thread = _state.thread
    thread.entered = getattr(thread, "entered", 0) + 1


def leave():
    """Leaves the phase that the calling thread entered last.

    Raises RuntimeError if it has entered nothing.
    """
    thread = _state.thread
    if getattr(thread, "entered", 0) == 0:
        raise _unbalanced("leave: this thread has entered nothing")
    thread.entered -= 1
    if _library is not None:
        _library.paceline_leave()


def begin(class_id):
    """As enter(), for an operation that another thread may end, or that ends beside
    others of the same thread. Returns a token for end().

    Raises ValueError if there is no such class, RuntimeError if too many are active.
    """
    number = _checked(class_id)
    _warn_if_in_vain()
    theirs = 0 if _library is None else _library.paceline_begin(number)
    if theirs == _EFULL:
        raise _full()
    with _state.lock:
        token = _state.next_token
        _state.next_token += 1
        _state.begun[token] = theirs
    return token


def end(token):
    """Ends the phase that begin() began. Raises RuntimeError if it has ended, or never began."""
    with _state.lock:
        theirs = _state.begun.pop(token, None)
    if theirs is None:
        raise _unbalanced(f"end: nothing with token {token!r} is active")
    if _library is not None:
        _library.paceline_end(theirs)


def class_new():
    """A new class, never 0, without learned state: for libraries that must
    not collide with the program's own numbers.

    Raises RuntimeError if all are given out.
    """
    _warn_if_in_vain()
    if active():
        number = _library.paceline_class_new()
    else:
        number = _EFULL
        with _state.lock:
            for candidate in range(CLASSES - 1, 0, -1):
                if candidate not in _state.given:
                    _state.given.add(candidate)
                    number = candidate
                    break
    if number == _EFULL:
        raise RuntimeError("no class is free")
    return number


def class_free(class_id):
    """Frees a class and deletes its learned state.

    Raises ValueError for a class that class_new() did not give out.
    """
    number = _checked(class_id)
    if active():
        given = _library.paceline_class_free(number) != _ERANGE
    else:
        with _state.lock:
            given = number in _state.given
            _state.given.discard(number)
    if not given:
        raise ValueError(f"class {number} was not given out")


@contextlib.contextmanager
def phase(class_id):
    """The body of a with statement is in this class."""
    enter(class_id)
    process = os.getpid()
    try:
        yield
    finally:
        # A child that was forked in the body has entered nothing.
        if os.getpid() == process:
            leave()

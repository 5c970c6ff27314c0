# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Phases of training with PyTorch: each kind of collective has its own class.

    import paceline.torch

    model = DistributedDataParallel(model)
    model.register_comm_hook(None, paceline.torch.allreduce_hook)    # DDP

    with paceline.torch.collectives():                               # FSDP, MoE, one's own
        train()

DDP calls its process group from C++: its hook marks what it sends. FSDP and MoE layers call
torch.distributed from Python: collectives() marks those calls, all_gather apart from
reduce_scatter, all_to_all apart from all_reduce. An asynchronous collective is in its class
from its call until its future is complete.

That is when its data has been sent with Gloo and MPI, whose connections are those of the
process. NCCL completes a future when its kernel is queued, and often writes from a proxy
thread later: its collectives may leave their class too early.

Where no class is free, or too many phases are active, the collective runs unmarked: a
training job does not fail for this.
"""

import contextlib
import functools
import os
import threading

import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

import paceline

__all__ = ["allreduce_hook", "classes", "collectives", "marked"]

# Functions of torch.distributed, and the kind that each is. Some are there in some versions
# of PyTorch only.
_KINDS = {
    "all_reduce": "all_reduce",
    "all_reduce_coalesced": "all_reduce",
    "all_gather": "all_gather",
    "all_gather_into_tensor": "all_gather",
    "_all_gather_base": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "reduce_scatter_tensor": "reduce_scatter",
    "_reduce_scatter_base": "reduce_scatter",
    "all_to_all": "all_to_all",
    "all_to_all_single": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
}

_lock = threading.Lock()
_classes = {}
_process = os.getpid()


def classes():
    """The class of each kind of collective that this process has used: {"all_reduce": 63}."""
    with _lock:
        return {kind: number for kind, number in _classes.items() if number is not None}


def _class(kind):
    global _process
    with _lock:
        # A forked child has its own classes.
        if _process != os.getpid():
            _classes.clear()
            _process = os.getpid()
        if kind not in _classes:
            try:
                _classes[kind] = paceline.class_new()
            except RuntimeError:
                _classes[kind] = None
        return _classes[kind]


def _begin(kind):
    number = _class(kind)
    if number is None:
        return None
    try:
        return paceline.begin(number)
    except RuntimeError:
        return None


def _end(token):
    if token is not None:
        paceline.end(token)


def _end_with(future, token):
    """The phase lasts until the future is complete, with or without an error."""
    try:
        future.add_done_callback(lambda _: _end(token))
    except BaseException:
        _end(token)
        raise


def marked(hook, kind="all_reduce"):
    """A communication hook of DDP that does what `hook` does, marked as this kind.

    kind: a name of one's own, or that of a collective.
    """

    @functools.wraps(hook)
    def marked_hook(state, bucket):
        token = _begin(kind)
        try:
            future = hook(state, bucket)
        except BaseException:
            _end(token)
            raise
        _end_with(future, token)
        return future

    return marked_hook


allreduce_hook = marked(default_hooks.allreduce_hook)
"""DDP's default reduction, marked: for register_comm_hook(process_group or None, ...)."""


def _marked_collective(function, kind):
    @functools.wraps(function)
    def collective(*args, **kwargs):
        token = _begin(kind)
        try:
            work = function(*args, **kwargs)
        except BaseException:
            _end(token)
            raise
        # A synchronous one has ended; one in a group without this rank gives nothing.
        future = getattr(work, "get_future", None)
        if future is None:
            _end(token)
            return work
        try:
            future = future()
        except RuntimeError:
            # This backend returns none: the end of the collective is not known.
            _end(token)
            return work
        _end_with(future, token)
        return work

    return collective


@contextlib.contextmanager
def collectives():
    """Within it, calls of torch.distributed's collectives are marked by their kind.

    In all threads, and not inside another one. Functions that a module has imported by their
    names before (from torch.distributed import all_reduce) are not reached.
    """
    places = [(module, name) for module in (dist, c10d) for name in _KINDS if hasattr(module, name)]
    if any(hasattr(getattr(module, name), "_paceline") for module, name in places):
        raise RuntimeError("paceline.torch.collectives() is active already")
    before = [(module, name, getattr(module, name)) for module, name in places]
    try:
        for module, name, function in before:
            marked_one = _marked_collective(function, _KINDS[name])
            marked_one._paceline = True
            setattr(module, name, marked_one)
        yield
    finally:
        for module, name, function in before:
            setattr(module, name, function)

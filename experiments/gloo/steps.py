# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Steps of distributed training with Gloo, one rank per host: the argument says what a step
sends. Each begins with all ranks together, after a pause that stands for computing, and is as
long as it takes the slowest rank. Prints median, 99th percentile and longest step, in
seconds, as p50=SECONDS and so on, and for programs with a limit the steps above 200 ms."""

import datetime
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

PORT = 29500
WARM = 4  # steps: connections, and what a path is learned from
PAUSE_S = 0.1
FLOATS = 1 << 18  # 1 MiB

rank, size = (int(os.environ[f"OMPI_COMM_WORLD_{name}"]) for name in ("RANK", "SIZE"))
os.environ.setdefault("GLOO_SOCKET_IFNAME", "eth0")
dist.init_process_group("gloo", f"tcp://near0:{PORT}", rank=rank, world_size=size, timeout=datetime.timedelta(minutes=2))
torch.manual_seed(1)
torch.set_num_threads(1)


def all_reduce():
    """1 MiB of gradients."""
    tensor = torch.ones(FLOATS)
    return lambda: dist.all_reduce(tensor)


def ddp():
    """A backward pass: gradients of 2 MiB in buckets of half a MiB, as they come."""
    layers = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(8)))
    model = DistributedDataParallel(layers, bucket_cap_mb=0.5)
    batch = torch.ones(8, 256)

    def step():
        model.zero_grad(set_to_none=True)
        model(batch).sum().backward()

    return step


def fsdp():
    """Four sharded layers of 512 KiB: each is gathered forwards and backwards, and its gradients
    are reduced, a shard to each rank. (Gloo of PyTorch 1.13 has no reduce_scatter.)"""
    shard = torch.ones((FLOATS // 2) // size)
    layer = [torch.empty_like(shard) for _ in range(size)]

    def step():
        for _ in range(2 * 4):
            dist.all_gather(layer, shard)
        for _ in range(4):
            for work in [dist.reduce(part, owner, async_op=True) for owner, part in enumerate(layer)]:
                work.wait()

    return step


def moe():
    """Tokens to experts and back: 256 KiB between each two ranks, twice."""
    tokens, theirs = torch.ones(size * FLOATS // 4), torch.empty(size * FLOATS // 4)

    def step():
        dist.all_to_all_single(theirs, tokens)
        dist.all_to_all_single(tokens, theirs)

    return step


def gather():
    """128 KiB from each rank to the first one."""
    tensor = torch.ones(FLOATS // 8)
    parts = [torch.empty_like(tensor) for _ in range(size)] if rank == 0 else None
    return lambda: dist.gather(tensor, parts)


def all_to_all():
    """128 KiB between each two ranks."""
    send, receive = torch.ones(size * FLOATS // 8), torch.empty(size * FLOATS // 8)
    return lambda: dist.all_to_all_single(receive, send)


def main(step, steps):
    took = []
    for _ in range(WARM + steps):
        time.sleep(PAUSE_S)
        dist.barrier()
        began = time.monotonic()
        step()
        took.append(time.monotonic() - began)
    took = torch.tensor(took[WARM:])
    dist.all_reduce(took, dist.ReduceOp.MAX)
    if rank == 0:
        took = sorted(took.tolist())
        print(f"p50={took[len(took) // 2]:.6f}\np99={took[(99 * len(took)) // 100]:.6f}\nlongest={took[-1]:.6f}", flush=True)
    dist.barrier()


main({name.__name__: name for name in (all_reduce, ddp, fsdp, moe, gather, all_to_all)}[sys.argv[1]](), int(sys.argv[2]))
# What its threads still hold is the system's to free.
sys.stdout.flush()
os._exit(0)

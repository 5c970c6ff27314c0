# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A rank of the test: trains by DDP, then calls collectives; prints their counts; waits for stdin."""

import json
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import paceline
import paceline.torch

STEPS = 5
GATHERS = 3
EXCHANGES = 2

dist.init_process_group("gloo")
torch.manual_seed(1)
model = DistributedDataParallel(torch.nn.Linear(256, 256))
model.register_comm_hook(None, paceline.torch.allreduce_hook)
for step in range(STEPS):
    loss = model(torch.ones(1, 256) * (dist.get_rank() + 1)).sum()
    model.zero_grad()
    loss.backward()
# The mean over both ranks, as without the hook.
assert torch.allclose(model.module.weight.grad, torch.full((256, 256), 1.5)), "wrong gradients"

all_gather = dist.all_gather
with paceline.torch.collectives():
    mine = torch.full((4096,), float(dist.get_rank()))
    for step in range(GATHERS):
        both = [torch.empty(4096) for _ in range(2)]
        # Synchronous and not.
        work = dist.all_gather(both, mine, async_op=step > 0)
        if work is not None:
            work.wait()
        assert [one[0].item() for one in both] == [0, 1], "wrong data"
    for step in range(EXCHANGES):
        theirs = torch.empty(4096)
        dist.all_to_all_single(theirs, mine)
        assert theirs[0] == 0 and theirs[-1] == 1, "wrong data"
    # One that fails leaves its class, too.
    try:
        dist.all_gather(both, mine, group="none")
    except Exception:
        pass
    else:
        raise SystemExit("a collective of no group did not fail")
    try:
        with paceline.torch.collectives():
            raise SystemExit("collectives() twice did not fail")
    except RuntimeError:
        pass
assert dist.all_gather is all_gather, "the functions are not given back"

counts = {"active": paceline.active(), "classes": paceline.torch.classes(), "steps": STEPS, "gathers": GATHERS + 1}
counts["exchanges"] = EXCHANGES
print(json.dumps(counts), flush=True)
sys.stdin.read()
dist.destroy_process_group()

# SPDX-License-Identifier: Apache-2.0 OR MIT
"""With two ranks, the second asks the first for messages, each after a pause, and prints
the median time of the third one and later ones, in seconds, as SIZE=SECONDS. With more, all
exchange blocks with all without a pause (as osu_alltoall does); prints
SIZE=EXCHANGES_PER_SECOND."""

import statistics
import time

from mpi4py import MPI

SIZES = {"100KB": 100_000, "1MB": 1_000_000, "10MB": 10_000_000}
BLOCKS = {"64KiB": 64 << 10, "256KiB": 256 << 10, "1MiB": 1 << 20}
ASKED = 6
FIRST = 2
PAUSE_S = 0.7
STEADY_S = 10.0

world = MPI.COMM_WORLD
first = world.rank == 0


def asked(size):
    question, answer = bytearray(1), bytearray(size)
    times = []
    for _ in range(ASKED):
        if first:
            world.Recv(question, 1)
            world.Send(answer, 1)
            continue
        time.sleep(PAUSE_S)
        began = time.monotonic()
        world.Send(question, 0)
        world.Recv(answer, 0)
        times.append(time.monotonic() - began)
    return times and statistics.median(times[FIRST:])


def exchanged(block):
    send, receive = bytearray(block * world.size), bytearray(block * world.size)
    done, began, go_on = -1, 0.0, True
    while go_on:
        world.Alltoall(send, receive)
        done += 1
        if done == 0:  # the first one connects
            began = time.monotonic()
        took = time.monotonic() - began
        go_on = world.bcast(done < 3 or took < STEADY_S)
    return first and done / took


if world.size == 2:
    results = {name: asked(size) for name, size in SIZES.items()}
    said = not first
else:
    results = {name: exchanged(block) for name, block in BLOCKS.items()}
    said = first
if said:
    for name, value in results.items():
        print(f"{name}={value:.6f}", flush=True)

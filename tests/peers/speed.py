#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The simulator's speed beside that of Debian's ns-3: speed.py NS3-DUMBBELL PACELINE [ROUNDS].

Table 1 of feng-2000 with 60 clients for 200 s, on one core: Reno in the simulator, NewReno in
ns-3, which has no other, and NewReno with ns-3's habits in the simulator. The programs run
one after another, round by round, so that a busy machine is busy for all of them; what
counts is the CPU time of the whole process and its ratio within a round. Prints Markdown."""
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

PEER, OURS = sys.argv[1:3]
ROUNDS = int(sys.argv[3]) if len(sys.argv) > 3 else 3


def timed(command):
    """CPU seconds of a command, and its output."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out, err = process.stdout.read(), process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    # This benchmark ignores failed claims: exit status 1.
    if os.waitstatus_to_exitcode(status) not in (0, 1):
        sys.exit(f"{command[0]} failed: {err}")
    return usage.ru_utime + usage.ru_stime, out, err


def simulator(scenario, *point):
    with tempfile.TemporaryDirectory() as place:
        command = [OURS, "sim", "run", scenario, *point, "--seeds", "1", "--jobs", "1", "--out", place]
        seconds, _, err = timed(command)
    events, sent = (float(re.search(rf"([\d.]+) million {what}", err)[1]) for what in ("events", "packet"))
    return seconds, sent, events


def ns3():
    seconds, out, _ = timed([PEER, "--transport=newreno", "--queue=fifo", "--clients=60", "--seed=1"])
    run = json.loads(out)
    return seconds, run["transmissions"] / 1e6, run["events"] / 1e6


programs = {
    "ns-3, NewReno": ns3,
    "simulator, Reno": lambda: simulator("experiments/burstiness.toml", "--variant", "reno", "--at", "clients=60"),
    "simulator, NewReno as in ns-3": lambda: simulator(
        "tests/peers/ns3-dumbbell.toml", "--variant", "newreno-fifo", "--at", "clients=60"
    ),
}
rounds = [{name: run() for name, run in programs.items()} for _ in range(ROUNDS)]
print("| program | CPU, s | transmissions, million | million transmissions/s | events, million | million events/s | ns-3's time over it, by round |")
print("|---|---|---|---|---|---|---|")
for name in programs:
    seconds = statistics.median(each[name][0] for each in rounds)
    _, sent, events = rounds[0][name]
    ratios = ", ".join(f"{each['ns-3, NewReno'][0] / each[name][0]:.1f}" for each in rounds)
    print(f"| {name} | {seconds:.2f} | {sent:.2f} | {sent / seconds:.2f} | {events:.2f} | {events / seconds:.2f} | {ratios} |")

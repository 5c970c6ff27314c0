#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs thousands of short jobs, and checks that nothing grows with their number.

Each job makes one connection to another host, sends a line and ends. Half of them are
root's, half a user's by the agent; one job goes on all the time, so that the kernel side
lives through all of it. What may grow: BPF maps and programs, cgroups that are dying,
the agent's descriptors and memory, the kernel's memory.

    sudo tests/torture/short_jobs.py [--jobs 10000] [--paceline PATH]

It needs root, and a host where no job of Paceline runs. Exit status: 0 if nothing grew,
1 if something did, 2 if it cannot run.
"""

import argparse
import os
import shutil
import sys
import time
from pathlib import Path

from host import Host, cgroups
from scene import PROGRAM, PYTHON, Scene, as_user, end, start_agent

JOB = ("bash", "-c", "exec 3<>/dev/tcp/10.97.99.2/7070; echo line >&3")
SAMPLES = 20
# The first samples warm caches up: slabs, the agent's heap.
WARM = SAMPLES // 4
# A leaked cgroup costs the kernel more than 10 KiB, an object of Paceline's more than 1;
# the rest of a machine that is in use moves its memory by less than this per job.
MOST_KERNEL_BYTES = 1024
MOST_AGENT_BYTES = 32


def kernel_memory():
    """Bytes of slabs and per-CPU memory that cannot be reclaimed."""
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return sum(int(lines[name].split()[0]) * 1024 for name in ("SUnreclaim", "Percpu"))


def dying_cgroups():
    lines = dict(line.split() for line in (cgroups() / "cgroup.stat").read_text().splitlines())
    return int(lines["nr_dying_descendants"])


class Sample:
    def __init__(self, jobs, agent):
        host = Host.now()
        self.jobs = jobs
        self.objects = sum(host.maps.values()) + sum(host.programs.values())
        self.cgroups = len(host.cgroups)
        self.dying = dying_cgroups()
        self.kernel = kernel_memory()
        directory = Path("/proc", str(agent.pid))
        self.descriptors = len(os.listdir(directory / "fd"))
        times = (directory / "stat").read_text().rsplit(")", 1)[1].split()
        self.cpu_s = (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")
        self.agent = int((directory / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def __str__(self):
        return (
            f"{self.jobs:7} jobs: {self.objects} BPF objects, {self.cgroups} cgroups, {self.dying} dying, "
            f"kernel {self.kernel >> 10} KiB; agent: {self.descriptors} descriptors, {self.agent >> 10} KiB"
        )


def per_job(samples, value):
    """The slope of a straight line through the samples, by least squares."""
    xs, ys = [sample.jobs for sample in samples], [value(sample) for sample in samples]
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((a - x) * (b - y) for a, b in zip(xs, ys)) / sum((a - x) ** 2 for a in xs)


def one(scene, number):
    if number % 2:
        job = as_user(scene, JOB)
    else:
        job = scene.start("run", "--policy", "lfn", "--", *JOB, before=scene.inside)
    code = job.wait()
    end(job)
    if code != 0:
        raise SystemExit(f"job {number} ended with {code}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=10000)
    parser.add_argument("--paceline", default=shutil.which("paceline"), help="the binary")
    options = parser.parse_args()
    if os.geteuid() != 0 or not options.paceline:
        print("short_jobs.py: it needs root, and --paceline PATH or paceline in the PATH", file=sys.stderr)
        return 2
    scene = Scene(Path(options.paceline).resolve())
    agent = start_agent(scene)
    lasting = scene.start("run", "--policy", "lfn", "--", PYTHON, "-c", PROGRAM, before=scene.inside)
    lasting.stdout.readline()
    samples = []
    try:
        every = max(options.jobs // SAMPLES, 1)
        start = time.monotonic()
        for number in range(options.jobs):
            one(scene, number)
            if (number + 1) % every == 0:
                samples.append(Sample(number + 1, agent))
                rest = (time.monotonic() - start) / (number + 1) * (options.jobs - number - 1)
                print(f"{samples[-1]}; {rest:.0f} s to go", flush=True)
    finally:
        end(lasting)
        end(agent)
        scene.close()
    steady = samples[WARM:]
    early, late = steady[: len(steady) // 2], steady[len(steady) // 2 :]
    grown = []
    for name, value in (
        ("BPF objects", lambda sample: sample.objects),
        ("dying cgroups", lambda sample: sample.dying),
        ("the agent's descriptors", lambda sample: sample.descriptors),
    ):
        # They go up and down with each job.
        before, after = max(map(value, early)), min(map(value, late))
        if after > before:
            grown.append(f"{name}: {before} -> {after}")
    for name, value, most in (
        ("kernel memory", lambda sample: sample.kernel, MOST_KERNEL_BYTES),
        ("the agent's memory", lambda sample: sample.agent, MOST_AGENT_BYTES),
    ):
        slope = per_job(steady, value)
        print(f"{name}: {slope:.0f} bytes per job (at most {most})")
        if slope > most:
            grown.append(f"{name}: {slope:.0f} bytes per job")
    # Half of the jobs are the agent's.
    jobs = (samples[-1].jobs - samples[0].jobs) / 2
    print(f"the agent's CPU time: {1000 * (samples[-1].cpu_s - samples[0].cpu_s) / max(jobs, 1):.1f} ms per job of a user, start and end")
    print(f"{options.jobs} jobs: " + ("; ".join(grown) + " grew" if grown else "nothing grew"))
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())

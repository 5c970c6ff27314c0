#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Kills Paceline's processes at random moments, and looks for leftovers.

Each round starts one of them, kills it with SIGKILL at a moment between its beginning
and half as much again as it takes to be up, gives the next command its chance, and
compares the machine with what it was: cgroups, congestion controls, BPF maps, network
namespaces, interfaces, sockets in /run/paceline, abstract sockets, processes.

    sudo tests/torture/kills.py [--rounds 200] [--seed 1] [--paceline PATH]

It needs root, and a host where no job of Paceline runs. Exit status: 0 if nothing was
left, 1 if something was (it is named, with the seed and the round), 2 if it cannot run.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from host import Host, wait_until
from scene import PROGRAM, PYTHON, Scene, as_user, end, start_agent

TOPOLOGY = """
[[cluster]]
name = "near"
hosts = 1
switch_buffer = "256KiB"

[[cluster]]
name = "far"
hosts = 1
switch_buffer = "256KiB"

[[wan]]
from = "near"
to = "far"
rate = "200mbit"
one_way_delay = "1ms"
buffer = "128KiB"
"""


def until_up(process):
    """Waits for the word of the program inside."""
    line = process.stdout.readline()
    if line != b"up\n":
        raise SystemExit(f"the program of a job did not start: {line!r}")


class Victim:
    """One kind of process. `begin` returns the process to kill, `up` waits until it is up, and
    `after` is the next command, which must leave nothing."""

    def __init__(self, scene):
        self.scene = scene
        self.spread = None

    def round(self, chance):
        if self.spread is None:
            # How long it takes here to be up: moments are drawn over half as much again.
            start = time.monotonic()
            process = self.begin()
            self.up(process)
            self.spread = (time.monotonic() - start) * 1.5
            end(process)
            self.after()
        process = self.begin()
        moment = chance.uniform(0, self.spread)
        time.sleep(moment)
        end(process)
        self.after()
        return moment

    def up(self, process):
        until_up(process)


class Run(Victim):
    name = "run"

    def begin(self):
        return self.scene.start(
            "run", "--policy", "lfn", "--", PYTHON, "-c", PROGRAM, before=self.scene.inside
        )

    def after(self):
        # Its program reads the end of its input, and ends.
        wait_until("the job is gone", lambda: not self.jobs())

    def jobs(self):
        status = self.scene.run("status", "--json")
        if status.returncode != 0:
            raise SystemExit(f"status: {status.stderr}")
        return json.loads(status.stdout)["jobs"]


class Client(Run):
    """A user's `paceline run`, by an agent that stays."""

    name = "client"

    def __init__(self, scene):
        super().__init__(scene)
        self.agent = None

    def round(self, chance):
        self.agent = start_agent(self.scene)
        try:
            return super().round(chance)
        finally:
            end(self.agent)
            clean_agent(self.scene)

    def begin(self):
        return as_user(self.scene)


class Agent(Run):
    """The agent, while a user asks it for a job."""

    name = "agent"

    def begin(self):
        self.agent = start_agent(self.scene)
        self.client = as_user(self.scene)
        return self.agent

    def up(self, process):
        until_up(self.client)

    def after(self):
        end(self.client)
        super().after()
        clean_agent(self.scene)


def clean_agent(scene):
    shutil.rmtree(scene.place / "run", ignore_errors=True)


class Keeper(Victim):
    """`lab up`, or the keeper that it leaves."""

    name = "keeper"

    def begin(self):
        up = self.scene.start(
            "lab", "up", self.scene.place / "topology.toml", "--name", self.scene.tag
        )
        self.starting = up
        return up

    def up(self, process):
        process.wait()

    def after(self):
        # Every second time the lab stands already: then it is the keeper that is killed.
        shown = self.scene.run("lab", "show", self.scene.tag, "--json")
        if shown.returncode == 0:
            keeper = json.loads(shown.stdout).get("keeper")
            if keeper:
                os.kill(int(keeper), signal.SIGKILL)
        self.scene.run("lab", "down", self.scene.tag)


class Emulate(Victim):
    name = "emulate"

    def begin(self):
        self.control = self.scene.place / "link.sock"
        return self.scene.start(
            "emulate",
            "run",
            f"{self.scene.a}:port",
            f"{self.scene.b}:port",
            *("--rate", "100mbit", "--delay", "1ms", "--buffer", "64KiB"),
            *("--control", self.control),
            stdout=subprocess.DEVNULL,
        )

    def up(self, process):
        wait_until("the link answers", lambda: self.scene.run("emulate", "show", self.control).returncode == 0)

    def after(self):
        # The next link at that place: up, and ended as Ctrl-C ends it.
        link = self.begin()
        self.up(link)
        link.send_signal(signal.SIGINT)
        link.wait()
        end(link)
        if self.control.exists():
            raise SystemExit("the link's socket is left")


class Coordinator(Victim):
    """`coordinate serve` with a client that has streams, and in turns the client."""

    name = "coordinator"
    turn = 0

    def begin(self):
        self.socket = self.scene.place / "coordinator.sock"
        self.job = self.scene.start(
            *("run", "--policy", "lfn", "--group", "torture", "--"),
            *(PYTHON, "-c", PROGRAM),
            before=self.scene.inside,
        )
        until_up(self.job)
        serve = self.scene.start("coordinate", "serve", "--listen", self.socket)
        join = self.scene.start("coordinate", "join", "--group", "torture", "--to", self.socket)
        self.turn += 1
        self.processes = [serve, join]
        return self.processes[self.turn % 2]

    def up(self, process):
        wait_until(
            "the client has a stream",
            lambda: '"streams": 1' in self.scene.run("coordinate", "status", "--json", "--to", self.socket).stdout,
        )

    def after(self):
        # The surviving side continues: the other is started again, and they connect.
        if self.processes[0].poll() is not None:
            self.processes[0] = self.scene.start("coordinate", "serve", "--listen", self.socket)
        if self.processes[1].poll() is not None:
            self.processes[1] = self.scene.start("coordinate", "join", "--group", "torture", "--to", self.socket)
        self.up(None)
        for process in self.processes:
            process.send_signal(signal.SIGINT)
            process.wait()
            end(process)
        end(self.job)
        self.socket.unlink(missing_ok=True)
        wait_until("the job is gone", lambda: not Run(self.scene).jobs())


VICTIMS = [Run, Client, Agent, Keeper, Emulate, Coordinator]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1, help="of the moments and of who is killed")
    parser.add_argument("--only", choices=[kind.name for kind in VICTIMS], help="kill these alone")
    parser.add_argument("--paceline", default=shutil.which("paceline"), help="the binary")
    options = parser.parse_args()
    if os.geteuid() != 0 or not options.paceline:
        print("kills.py: it needs root, and --paceline PATH or paceline in the PATH", file=sys.stderr)
        return 2
    chance = random.Random(options.seed)
    scene = Scene(Path(options.paceline).resolve())
    (scene.place / "topology.toml").write_text(TOPOLOGY)
    left = 0
    counts = {}
    try:
        if Run(scene).jobs():
            print("kills.py: jobs of Paceline run on this host: end them first", file=sys.stderr)
            return 2
        # Resources of an earlier job that the kernel still frees do not count.
        wait_until("the kernel frees what earlier jobs had", lambda: not Host.now().maps)
        before = Host.now()
        victims = [kind(scene) for kind in VICTIMS if options.only in (None, kind.name)]
        start = time.monotonic()
        for number in range(1, options.rounds + 1):
            victim = chance.choice(victims)
            moment = victim.round(chance)
            counts[victim.name] = counts.get(victim.name, 0) + 1
            difference = before.until_same()
            if difference:
                left += 1
                print(f"\nseed {options.seed}, round {number}: {victim.name} killed after {moment:.3f} s left:")
                print(difference)
                before = Host.now()
            elapsed = time.monotonic() - start
            rest = elapsed / number * (options.rounds - number)
            if sys.stderr.isatty():
                print(f"\r{number} of {options.rounds}, {rest:.0f} s to go ", end="", file=sys.stderr)
    finally:
        scene.close()
    summary = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    print(f"{sum(counts.values())} kills ({summary}), seed {options.seed}: {left} left something")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())

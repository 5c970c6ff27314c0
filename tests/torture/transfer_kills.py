#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Kills a transfer at random moments, each of its processes in turn, with SIGKILL.

`paceline send a:SRC b:DST` has three processes: the head, the source and the sink. All run on
this host here, the last two behind a command in ssh's place. One of them is killed at a moment
drawn from the time that a whole transfer takes; then the same command runs again, at once, and
must end with 0, the same tree (contents, modes, modification times), and nothing temporary.

    tests/torture/transfer_kills.py [--kills 200] [--paceline PATH] [--seed 1]

It prints how much of what the killed run had written was sent again. It needs no root. Exit
status: 0 if all held, 1 if something did not, 2 if it cannot run.
"""

import argparse
import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROCESSES = ("head", "source", "sink")
ROOT = Path(__file__).resolve().parents[2]
RATE_BPS = 160_000_000
STREAMS = 2
CHUNK = 1 << 20
# A second of the line, and a chunk for each stream.
MOST_AGAIN = RATE_BPS // 8 + STREAMS * CHUNK
SHELL = """#!/bin/sh
export SSH_CONNECTION='127.0.0.1 1 127.0.0.1 22'
shift
exec /bin/sh -c "exec $*"
"""


class Scene:
    """A source tree, and the command that copies it."""

    def __init__(self, place, program, draw):
        self.source, self.sink = place / "from", place / "to"
        shell = place / "shell"
        shell.write_text(SHELL)
        shell.chmod(0o755)
        (self.source / "many").mkdir(parents=True)
        (self.source / "large").write_bytes(draw.randbytes(24_000_000 + 1))
        (self.source / "middle").write_bytes(draw.randbytes(3_000_000))
        for number in range(120):
            path = self.source / "many" / str(number)
            path.write_bytes(draw.randbytes(draw.randrange(65_536)))
            path.chmod(draw.choice((0o600, 0o644, 0o755)))
        self.environment = dict(os.environ, XDG_STATE_HOME=str(place / "state"))
        self.command = [
            program, "send", "--json", "--rate", f"{RATE_BPS // 1_000_000}mbit",
            "--streams", str(STREAMS), "--chunk", "1MiB", "--ssh", str(shell),
            "--remote-command", program, f"a:{self.source}/", f"b:{self.sink}",
        ]

    def start(self):
        return subprocess.Popen(
            self.command, env=self.environment, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )

    def whole(self):
        """Runs it to its end: exit code, its last event, its errors."""
        running = self.start()
        output, errors = running.communicate(timeout=300)
        events = [json.loads(line) for line in output.splitlines()]
        last = events[-1] if events else {}
        return running.returncode, last, errors

    def differences(self):
        """What is not the same at the other side, or is there too much."""
        wrong = []
        here, there = listed(self.source), listed(self.sink)
        wrong += [f"missing: {path}" for path in sorted(here.keys() - there.keys())]
        wrong += [f"left: {path}" for path in sorted(there.keys() - here.keys())]
        for path in here.keys() & there.keys():
            own, other = self.source / path, self.sink / path
            if here[path] != there[path]:
                wrong.append(f"{path}: {there[path]}, not {here[path]}")
            elif own.is_file() and own.read_bytes() != other.read_bytes():
                wrong.append(f"{path}: other bytes")
        return wrong

    def written(self):
        """Bytes that are at the destination in temporary files."""
        paths = (path for path in listed(self.sink) if path.name.startswith("."))
        return sum(data_of(self.sink / path) for path in paths if path.parts[0] != ".paceline")


def data_of(path):
    """Bytes of a file that were written: allocated, unwritten blocks are holes, too."""
    data = at = 0
    try:
        with open(path, "rb") as file:
            while True:
                start = os.lseek(file.fileno(), at, os.SEEK_DATA)
                at = os.lseek(file.fileno(), start, os.SEEK_HOLE)
                data += at - start
    except OSError as error:
        # No data beyond `at`; a directory; gone.
        if error.errno not in (errno.ENXIO, errno.EISDIR, errno.ENOENT):
            raise
    return data


def listed(root):
    """Of each path below `root`: mode, size (0 of directories), modification time."""
    found = {}
    for path in root.rglob("*"):
        try:
            status = path.lstat()
        except FileNotFoundError:
            continue
        size = status.st_size if path.is_file() else 0
        found[path.relative_to(root)] = (oct(status.st_mode), size, status.st_mtime_ns)
    return found


def process_of(head, name):
    """The process id of the head's `name`; None if it is not there (yet, or any more)."""
    if name == "head":
        return head.pid
    role = b"send" if name == "source" else b"receive"
    for entry in Path(f"/proc/{head.pid}/task").glob("*/children"):
        for pid in entry.read_text().split():
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            except FileNotFoundError:
                continue
            if words[1:2] == [role] and b"--stdio" in words:
                return int(pid)
    return None


def one(scene, name, moment):
    """One kill: whether it hit, the errors, and bytes written before and sent again."""
    shutil.rmtree(scene.sink, ignore_errors=True)
    running = scene.start()
    time.sleep(moment)
    pid = process_of(running, name) if running.poll() is None else None
    if pid is not None:
        os.kill(pid, signal.SIGKILL)
    output, _ = running.communicate(timeout=120)
    has_hit = pid is not None and running.returncode != 0
    if not has_hit:
        return False, [] if running.returncode == 0 else [output], 0, 0
    written = scene.written()
    code, last, errors = scene.whole()
    wrong = [] if code == 0 else [f"the same command ended with {code}: {errors}"]
    wrong += scene.differences()
    again = max(0, written - last.get("resumed_bytes", 0))
    if again > MOST_AGAIN:
        wrong.append(f"{again} bytes of what was written were sent again")
    return True, wrong, written, again


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--paceline", default=str(ROOT / ".target/release/paceline"))
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    if not os.access(asked.paceline, os.X_OK):
        print(f"{asked.paceline}: expected the program, as by make install", file=sys.stderr)
        return 2
    draw = random.Random(asked.seed)
    with tempfile.TemporaryDirectory(prefix="paceline-kills-") as place:
        scene = Scene(Path(place), asked.paceline, draw)
        begun = time.monotonic()
        code, _, errors = scene.whole()
        took = time.monotonic() - begun
        if code != 0 or scene.differences():
            print(f"a transfer that nobody kills: {code} {errors}", file=sys.stderr)
            return 2
        failed, hits, sums = 0, dict.fromkeys(PROCESSES, 0), []
        late = 0
        while sum(hits.values()) < asked.kills:
            name = PROCESSES[sum(hits.values()) % len(PROCESSES)]
            moment = draw.uniform(0, took)
            has_hit, wrong, written, again = one(scene, name, moment)
            if not has_hit:
                late += 1
            else:
                hits[name] += 1
                sums.append((again, written))
            for text in wrong:
                print(f"{name} killed after {moment:.3f} s: {text}")
            failed += bool(wrong)
            if late > 10 * asked.kills:
                print("the kills do not hit", file=sys.stderr)
                return 2
        counts = ", ".join(f"{count} of the {name}" for name, count in hits.items())
        print(f"seed {asked.seed}: {sum(hits.values())} kills ({counts}), moments within {took:.2f} s; "
              f"{late} more came before the process or after the end")
        agains = sorted(again for again, _ in sums)
        print(f"written without a name and sent again: median {agains[len(agains) // 2]}, "
              f"most {agains[-1]} bytes (bound {MOST_AGAIN}); "
              f"{sum(1 for _, written in sums if written)} runs had written such bytes")
        print(f"{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

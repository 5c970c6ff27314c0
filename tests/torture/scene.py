# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Two network namespaces with a server in one, and jobs in the other."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from host import wait_until

NOBODY = 65534
# One that every user may execute.
PYTHON = "/usr/bin/python3"
# A program of a job: one connection across the veth pair, then it waits to be ended.
PROGRAM = """
import socket, sys
line = socket.create_connection(("10.97.99.2", 7070), timeout=30)
line.sendall(b"x" * 20000)
print("up", flush=True)
sys.stdin.read()
"""
SERVER = """
import socket, threading
def drain(line):
    while line.recv(65536): pass
listener = socket.create_server(("10.97.99.2", 7070))
print("up", flush=True)
while True:
    threading.Thread(target=drain, args=(listener.accept()[0],), daemon=True).start()
"""


class Scene:
    """The parts that stay up for all rounds: two namespaces, a server, a directory."""

    def __init__(self, paceline):
        self.tag = f"pltorture{os.getpid()}"
        self.started = []
        self.place = Path(tempfile.mkdtemp(prefix="pl-torture-"))
        self.place.chmod(0o755)
        # Where it was built, not every user may look.
        self.paceline = str(shutil.copy(paceline, self.place / "paceline"))
        (self.place / "agent.toml").write_text('groups = ["daemon"]\npolicies = ["lfn"]\n')
        self.a, self.b = f"{self.tag}a", f"{self.tag}b"
        for name in (self.a, self.b):
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("-n", self.a, "link", "add", "v", "type", "veth", "peer", "name", "v", "netns", self.b)
        for name, host in ((self.a, 1), (self.b, 2)):
            ip("-n", name, "addr", "add", f"10.97.99.{host}/24", "dev", "v")
            ip("-n", name, "link", "set", "v", "up")
        # For emulate: a port of each host's.
        for name in (self.a, self.b):
            ip("-n", name, "link", "add", "port", "type", "veth", "peer", "name", "inside")
            ip("-n", name, "link", "set", "port", "up")
            ip("-n", name, "link", "set", "inside", "up")
        self.server = subprocess.Popen(
            ["nsenter", f"--net=/run/netns/{self.b}", PYTHON, "-c", SERVER], stdout=subprocess.PIPE
        )
        self.server.stdout.readline()
        # Not `ip netns exec`, which hides the cgroups.
        self.inside = ["nsenter", f"--net=/run/netns/{self.a}"]

    def close(self):
        for process in self.started:
            if process.poll() is None:
                end(process)
        self.server.kill()
        self.server.wait()
        for name in (self.a, self.b):
            subprocess.run(["ip", "netns", "del", name], check=False)
        shutil.rmtree(self.place)

    def run(self, *arguments, **options):
        """A command of Paceline to its end."""
        return subprocess.run(
            [self.paceline, *arguments], capture_output=True, text=True, timeout=120, **options
        )

    def start(self, *arguments, before=(), **options):
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.DEVNULL)
        options.setdefault("stdin", subprocess.PIPE)
        process = subprocess.Popen([*before, self.paceline, *arguments], **options)
        self.started = [other for other in self.started if other.poll() is None] + [process]
        return process


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True)


def end(process):
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream:
            stream.close()


def start_agent(scene):
    places = ["--config", scene.place / "agent.toml", "--directory", scene.place / "run"]
    agent = scene.start("agent", *places, stdout=subprocess.DEVNULL)
    wait_until(
        "the agent listens",
        lambda: (scene.place / "run/jobs.sock").exists() or agent.poll() is not None,
    )
    return agent


def as_user(scene, program=(PYTHON, "-c", PROGRAM)):
    user = [*scene.inside, "setpriv", "--reuid", str(NOBODY), "--regid", "daemon"]
    arguments = ["run", "--agent", scene.place / "run", "--policy", "lfn", "--", *program]
    return scene.start(*arguments, before=[*user, "--clear-groups"])

# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What of this machine Paceline could change, as it is now."""

import ctypes
import os
import time
from dataclasses import dataclass
from pathlib import Path

# Longer than any cleanup takes on a busy machine: anything still there then is a leftover.
PATIENCE_S = 60
# In the environment of all that is started from here: other commands of Paceline on this
# host, which come and go, are not counted.
os.environ["PACELINE_TORTURE"] = MARK = str(os.getpid())
# linux/bpf.h
BPF_MAP_GET_NEXT_ID, BPF_PROG_GET_NEXT_ID = 12, 11
BPF_MAP_GET_FD_BY_ID, BPF_PROG_GET_FD_BY_ID = 14, 13
BPF_OBJ_GET_INFO_BY_FD = 15
SYS_BPF = {"x86_64": 321, "aarch64": 280}[os.uname().machine]
MAP_NAME_AT, PROG_NAME_AT = 24, 64  # in struct bpf_map_info, struct bpf_prog_info


def cgroups():
    """Where the cgroup v2 hierarchy is mounted."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, after = line.split(" - ")
        if after.split()[0] == "cgroup2":
            return Path(before.split()[4])
    raise SystemExit("no cgroup v2 hierarchy is mounted")


def wait_until(what, done):
    start = time.monotonic()
    while not done():
        if time.monotonic() - start > PATIENCE_S:
            raise SystemExit(f"never came: {what}")
        time.sleep(0.01)


def bpf(command, attribute):
    libc = ctypes.CDLL(None, use_errno=True)
    return libc.syscall(SYS_BPF, command, attribute, len(attribute))


def word(value):
    return int(value).to_bytes(4, "little")


def objects(next_id, open_id, name_at):
    """Names of all maps or programs of the kernel."""
    names, identity = [], 0
    while True:
        attribute = ctypes.create_string_buffer(word(identity) + bytes(60), 64)
        if bpf(next_id, attribute) != 0:
            return names
        identity = int.from_bytes(attribute.raw[4:8], "little")
        attribute = ctypes.create_string_buffer(word(identity) + bytes(60), 64)
        descriptor = bpf(open_id, attribute)
        if descriptor < 0:
            continue  # gone meanwhile
        information = ctypes.create_string_buffer(256)
        place = ctypes.addressof(information).to_bytes(8, "little")
        attribute = ctypes.create_string_buffer(word(descriptor) + word(256) + place + bytes(48), 64)
        if bpf(BPF_OBJ_GET_INFO_BY_FD, attribute) == 0:
            names.append(information.raw[name_at : name_at + 16].split(b"\0")[0].decode())
        os.close(descriptor)


def counted(names):
    return {name: names.count(name) for name in set(names)}


@dataclass
class Host:
    cgroups: list
    congestion: list
    maps: dict
    programs: dict
    namespaces: list
    interfaces: list
    files: list
    abstract: list
    processes: list

    @staticmethod
    def now():
        ours = lambda name: name.startswith(("pl_", "paceline", "bpf_ctl"))
        unix = Path("/proc/net/unix").read_text().splitlines()
        return Host(
            cgroups=sorted(str(path) for path in cgroups().rglob("paceline.*")),
            congestion=sorted(
                name
                for name in Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
                if name.startswith("paceline")
            ),
            maps=counted([name for name in objects(BPF_MAP_GET_NEXT_ID, BPF_MAP_GET_FD_BY_ID, MAP_NAME_AT) if ours(name)]),
            programs=counted(
                [name for name in objects(BPF_PROG_GET_NEXT_ID, BPF_PROG_GET_FD_BY_ID, PROG_NAME_AT) if ours(name)]
            ),
            namespaces=sorted(os.listdir("/run/netns")) if Path("/run/netns").exists() else [],
            interfaces=sorted(os.listdir("/sys/class/net")),
            files=sorted(str(path) for path in Path("/run/paceline").rglob("*")),
            abstract=sorted(line.split()[-1] for line in unix if "@paceline" in line.split()[-1]),
            processes=processes(),
        )

    def differences(self):
        """Lines that name resources that appeared or disappeared."""
        now = Host.now()
        lines = []
        for name, before in vars(self).items():
            after = vars(now)[name]
            if before != after:
                lines.append(f"  {name}: {before} -> {after}")
        return "\n".join(lines)

    def until_same(self):
        """Waits for resources that the kernel frees by itself (sockets in TIME_WAIT hold none)."""
        start = time.monotonic()
        while difference := self.differences():
            if time.monotonic() - start > PATIENCE_S:
                return difference
            time.sleep(0.05)
        return ""


def processes():
    """Command lines of running `paceline` processes that were started from here."""
    found = []
    for directory in Path("/proc").iterdir():
        if not directory.name.isdigit():
            continue
        try:
            words = (directory / "cmdline").read_bytes().split(b"\0")
            variables = (directory / "environ").read_bytes().split(b"\0")
            state = (directory / "stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        ours = f"PACELINE_TORTURE={MARK}".encode() in variables
        if ours and state != "Z" and os.path.basename(words[0]) == b"paceline":
            found.append(b" ".join(words).decode(errors="replace"))
    return sorted(found)

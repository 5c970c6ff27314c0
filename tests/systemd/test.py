#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Boots systemd in a QEMU guest, with this host's own programs, Paceline and its units, and
runs guest.sh there as a service. Needs root, QEMU, systemd and cpio; argument: the paceline
to test (default target/release/paceline)."""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parent.parent
# With all that they depend on.
PACKAGES = ["systemd", "bash", "dash", "coreutils", "util-linux", "mount", "iproute2", "python3-minimal", "grep", "sed"]
# Nothing reads it in the guest.
WITHOUT = re.compile(r"/usr/share/(doc|man|locale|info|bash-completion|zsh|i18n|zoneinfo|perl.*)(/|$)|/usr/lib/udev/hwdb|/etc/(shadow|gshadow)")
# They wait for hardware or for a network that is not there.
MASKED = [
    "getty.target", "serial-getty@ttyS0.service", "systemd-networkd.service", "systemd-networkd.socket",
    "systemd-resolved.service", "systemd-timesyncd.service", "systemd-udev-settle.service", "dbus.service",
    "dbus.socket", "systemd-logind.service", "e2scrub_reap.service", "fstrim.timer", "slurmd.service",
]
TEST_UNIT = """[Unit]
Description=the test
After=basic.target
SuccessAction=poweroff-force
FailureAction=poweroff-force
[Service]
Type=oneshot
ExecStart=/bin/bash /test/guest.sh
StandardOutput=file:/dev/ttyS0
StandardError=inherit
"""
INIT = """#!/bin/sh
mount -t tmpfs -o mode=755,size=90% root /new
for part in /*; do case $part in /new | /init) ;; *) cp -a $part /new/ ;; esac; done
exec switch_root /new /lib/systemd/systemd
"""


def closure(packages):
    """The packages and all their installed dependencies."""
    depends = {}
    provides = {}
    fields = "${Package}\\t${Provides}\\t${Pre-Depends}, ${Depends}\\n"
    listing = subprocess.run(["dpkg-query", "-W", "-f", fields], check=True, capture_output=True, text=True)
    for line in listing.stdout.splitlines():
        name, provided, needed = line.split("\t")
        names = lambda text: [part.split()[0].split(":")[0] for part in re.split(r"[,|]", text) if part.strip()]
        depends[name] = names(needed)
        for other in names(provided):
            provides.setdefault(other, name)
    found, todo = set(), list(packages)
    while todo:
        name = todo.pop()
        name = name if name in depends else provides.get(name)
        if name and name not in found:
            found.add(name)
            todo += depends[name]
    return sorted(found)


def put(root, path):
    """A file of this host, at the same place with the directories' links followed."""
    path = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    to = root / path.lstrip("/")
    if WITHOUT.search(path) or os.path.lexists(to) or not os.path.lexists(path):
        return
    if os.path.isdir(path) and not os.path.islink(path):
        to.mkdir(parents=True, exist_ok=True)
        return
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(path, to, follow_symlinks=False)


def libraries(program):
    """Of a program: their paths."""
    listed = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    return re.findall(r"(/\S+) \(0x", listed)


def build(root, paceline, kernel_image):
    for link in ("bin", "sbin", "lib", "lib64"):
        if os.path.islink(f"/{link}"):
            (root / link).symlink_to(os.readlink(f"/{link}"))
            (root / "usr" / link).mkdir(parents=True, exist_ok=True)
    for directory in ("dev", "proc", "sys", "run", "tmp", "root", "new", "var/lib", "var/log", "home", "test"):
        (root / directory).mkdir(parents=True, exist_ok=True)
    for package in closure(PACKAGES):
        for path in subprocess.run(["dpkg", "-L", package], check=True, capture_output=True, text=True).stdout.splitlines():
            if path.startswith("/") and path != "/.":
                put(root, path)
    for path in ["/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/ld.so.cache"]:
        put(root, path)
    for path in libraries(paceline):
        put(root, path)
        put(root, os.path.realpath(path))
    shutil.copy2(paceline, root / "usr/bin/paceline")
    shutil.copy2(HERE / "guest.sh", root / "test/guest.sh")
    units = root / "etc/systemd/system"
    units.mkdir(parents=True, exist_ok=True)
    for name in ("paceline-agent.service", "paceline-agent.socket"):
        text = (TOP / "packaging" / name).read_text()
        (units / name).write_text(text.replace("/usr/local/bin", "/usr/bin"))
    for name in MASKED:
        link = units / name
        if not os.path.lexists(link):
            link.symlink_to("/dev/null")
    (units / "paceline-test.service").write_text(TEST_UNIT)
    wants = units / "multi-user.target.wants"
    shutil.rmtree(wants, ignore_errors=True)
    wants.mkdir()
    (wants / "paceline-test.service").symlink_to("../paceline-test.service")
    (root / "etc/paceline").mkdir()
    (root / "etc/paceline/agent.toml").write_text('groups = ["daemon"]\npolicies = ["lfn", "pace"]\n')
    (root / "etc/machine-id").write_text("0123456789abcdef0123456789abcdef\n")
    (root / "etc/fstab").write_text("")
    init = root / "init"
    init.write_text(INIT)
    init.chmod(0o755)


def kernel(paceline):
    """The lab's own, which it has fetched at the latest now."""
    subprocess.run([paceline, "lab", "guest", "--kernel", "trixie", "--", "paceline", "--version"], check=True)
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache"))
    return cache / "paceline/kernels/latest/trixie/vmlinuz"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paceline", nargs="?", default=TOP / "target/release/paceline")
    parser.add_argument("--minutes", type=float, default=15, help="after which the guest is given up")
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("test.py: this needs root: its guest's files keep their owners")
    paceline = os.path.realpath(arguments.paceline)
    with tempfile.TemporaryDirectory(prefix="paceline-systemd-") as place:
        place = pathlib.Path(place)
        root = place / "root"
        root.mkdir()
        vmlinuz = kernel(paceline)
        build(root, paceline, vmlinuz)
        image = place / "root.cpio"
        with open(image, "wb") as out:
            names = subprocess.Popen(["find", ".", "-print0"], cwd=root, stdout=subprocess.PIPE)
            subprocess.run(["cpio", "--null", "--create", "--format=newc", "--quiet"], cwd=root,
                           stdin=names.stdout, stdout=out, check=True)
        command = [
            "qemu-system-x86_64", "-machine", "q35", "-accel", "tcg", "-cpu", "max", "-m", "2048", "-no-reboot",
            "-display", "none", "-monitor", "none", "-net", "none", "-serial", "stdio", "-kernel", vmlinuz, "-initrd", image,
            "-append", "console=ttyS0 rdinit=/init panic=-1 quiet systemd.show_status=false systemd.log_level=warning",
        ]
        try:
            guest = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=60 * arguments.minutes)
            output = guest.stdout.decode(errors="replace")
        except subprocess.TimeoutExpired as late:
            output = (late.stdout or b"").decode(errors="replace") + "\nthe guest was given up\n"
        print(output)
        if "all held" not in output:
            sys.exit("FAILED: the agent under systemd")


main()

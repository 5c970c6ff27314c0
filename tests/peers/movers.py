#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""paceline send beside rsync, rclone, lftp and aria2, live, over an emulated link.

As root: tests/peers/movers.py --paceline target/release/paceline --out DIRECTORY

Two hosts of a lab (paceline lab up) with a link between them. In each round each command moves
one large file, and a tree of small ones, under each congestion control; the order turns from
round to round. A time is that of the whole command. What arrived is compared with the source.
The congestion control is that of the hosts' routes of both address families. It is read back: of one connection by IPv4 and one by IPv6 before, and of the
connections that each command made while it ran (ss).

Into DIRECTORY: movers.json and movers.md. Exit status 1 if a command was ahead of paceline.
Needs rsync, rclone, lftp, aria2, nginx, ss and openssl; a peer that is not there is left out,
and told.
"""

import argparse
import hashlib
import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TOPOLOGY = """
[[cluster]]
name = "near"
hosts = 1
edge_rate = "1gbit"
switch_buffer = "4MiB"

[[cluster]]
name = "far"
hosts = 1
edge_rate = "1gbit"
switch_buffer = "4MiB"

[[wan]]
from = "near"
to = "far"
rate = "{rate}mbit"
one_way_delay = "{delay}ms"
buffer = "{buffer}KiB"

[sysctl]
"net.ipv4.tcp_rmem" = "4096 131072 20971520"
"net.ipv4.tcp_wmem" = "4096 87380 20971520"
"""

NGINX = """
daemon off; user root; pid {place}/nginx.pid; error_log {place}/nginx.log; worker_processes 1;
events {{ worker_connections 512; }}
http {{
  access_log off; sendfile on; tcp_nodelay on;
  client_body_temp_path {place}/t; proxy_temp_path {place}/t; fastcgi_temp_path {place}/t;
  uwsgi_temp_path {place}/t; scgi_temp_path {place}/t;
  server {{ listen 8080; listen [::]:8080; root {source}; autoindex on; }}
}}
"""

RSYNCD = """
use chroot = no
uid = root
gid = root
[sink]
path = {sink}
read only = no
"""

# Runs at the far host, and at the near one: the settings of connections of both families.
LISTENS = """
import socket, sys
listener = socket.create_server(("::", 7999), family=socket.AF_INET6, dualstack_ipv6=True)
print("ready", flush=True)
for _ in range(2):
    listener.accept()[0].recv(1)
"""
ASKS = """
import socket
for family in (socket.AF_INET, socket.AF_INET6):
    address = socket.getaddrinfo("far0", 7999, family, socket.SOCK_STREAM)[0][4]
    with socket.socket(family, socket.SOCK_STREAM) as asks:
        asks.connect(address)
        own = asks.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
        print(own.split(b"\\0")[0].decode())
"""


class Lab:
    """Two hosts, and the processes that were started on them."""

    def __init__(self, paceline, place, link):
        self.paceline, self.name, self.servers = paceline, f"movers-{os.getpid()}", []
        topology = place / "topology.toml"
        topology.write_text(TOPOLOGY.format(**link))
        subprocess.run([paceline, "lab", "up", topology, "--name", self.name],
                       check=True, stdout=subprocess.DEVNULL)

    def at(self, host, command):
        return [self.paceline, "lab", "exec", "--lab", self.name, host, "--", *map(str, command)]

    def run(self, host, command, **options):
        return subprocess.run(self.at(host, command), check=True, text=True,
                              stdout=subprocess.PIPE, **options).stdout

    def serve(self, host, command, log):
        with open(log, "ab") as output:
            self.servers.append(subprocess.Popen(self.at(host, command), stdin=subprocess.DEVNULL,
                                                 stdout=output, stderr=output))

    def stop_servers(self):
        for server in self.servers:
            server.send_signal(signal.SIGTERM)
        for server in self.servers:
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
        self.servers.clear()

    def down(self):
        self.stop_servers()
        subprocess.run([self.paceline, "lab", "down", self.name], check=True,
                       stdout=subprocess.DEVNULL)

    def wait_for_port(self, host, port):
        for _ in range(200):
            if f":{port} " in self.run(host, ["ss", "-tlnH"]):
                return
            time.sleep(0.05)
        sys.exit(f"nobody listens at {host}:{port}: see the logs of the servers")

    def congestion(self, name):
        """Sets it at both hosts, and reads back the settings of connections: IPv4, IPv6."""
        for number, host in enumerate(("near0", "far0"), 1):
            # By routes: a namespace may not have every algorithm as its default (EPERM).
            for family, gateway in (("-4", f"10.{number}.0.254"), ("-6", f"fd00:9a:{number}::fe")):
                self.run(host, ["ip", family, "route", "replace", "default", "via", gateway,
                                "dev", "eth0", "congctl", name])
        found = {}
        for here, there in (("near0", "far0"), ("far0", "near0")):
            listens = subprocess.Popen(self.at(there, ["python3", "-c", LISTENS]),
                                       stdout=subprocess.PIPE)
            listens.stdout.readline()
            own = self.run(here, ["python3", "-c", ASKS.replace("far0", there)]).split()
            listens.wait()
            if own != [name, name]:
                sys.exit(f"{here}: connections have {own} by IPv4 and IPv6, not {name}")
            found[here] = dict(zip(("IPv4", "IPv6"), own))
        return found

    def connections(self):
        """Family and congestion control of the connections that send much at the near host."""
        lines = self.run("near0", ["ss", "-tinHO", "state", "established"]).splitlines()
        found = set()
        for line in lines:
            sent = re.search(r"bytes_sent:(\d+)", line)
            if sent and int(sent[1]) > 50_000:
                family = "IPv6" if "[fd" in line or "[::" in line and "ffff" not in line else "IPv4"
                name = re.search(r"\s(paceline_\w+|cubic|bbr|reno)\s", line)
                found.add(f"{family} {name[1] if name else '?'}")
        return found


def trees(place, large, files, seed):
    """One large file; small files, log-uniform from 4 to 64 KiB. Their bytes."""
    draw = random.Random(seed)
    sizes = {}
    for name in ("large", "small"):
        (place / name).mkdir()
    (place / "large/file").write_bytes(draw.randbytes(large))
    sizes["large"] = large
    sizes["small"] = 0
    for number in range(files):
        size = int(4096 * 16 ** draw.random())
        directory = place / f"small/{number // 100:02}"
        directory.mkdir(exist_ok=True)
        (directory / f"{number:05}").write_bytes(draw.randbytes(size))
        sizes["small"] += size
    return sizes


def digest(top):
    """Of names and contents."""
    whole = hashlib.sha256()
    for path in sorted(path for path in top.rglob("*") if path.is_file()):
        whole.update(str(path.relative_to(top)).encode() + b"\0")
        whole.update(hashlib.sha256(path.read_bytes()).digest())
    return whole.hexdigest()


def commands(paceline, place, sink, policy):
    """Of each peer: the program that it needs, the host that types it, and the commands."""
    url = "http://near0:8080"
    rclone = ["rclone", "--config", "/dev/null", "copy", ":http:", sink, "--http-url"]
    aria2 = ["aria2c", "-q", "--file-allocation=none", "-d", sink]
    send = [paceline, "send", "-q", "--token-file", place / "token", "--pin", place / "cert.pem"]
    to = ["paceline://10.2.0.1:7412/"]
    listed = place / "list"
    small = place / "source/small"
    with open(listed, "w") as output:
        for path in sorted(path for path in small.rglob("*") if path.is_file()):
            own = path.relative_to(small)
            output.write(f"{url}/small/{own}\n  out={own}\n")
    peers = {
        "rsync": ("rsync", "near0", {
            name: ["rsync", "-a", "--whole-file", f"{place}/source/{name}/", "rsync://far0/sink/"]
            for name in ("large", "small")}),
        "rclone": ("rclone", "far0", {
            "large": [*rclone, f"{url}/large/", "--multi-thread-streams", "8",
                      "--multi-thread-cutoff", "1M"],
            "small": [*rclone, f"{url}/small/", "--transfers", "32", "--checkers", "32"]}),
        "lftp": ("lftp", "far0", {
            "large": ["lftp", "-c", f"pget -n 8 -O {sink} {url}/large/file"],
            "small": ["lftp", "-c", f"mirror --parallel=32 {url}/small/ {sink}"]}),
        "aria2": ("aria2c", "far0", {
            "large": [*aria2, "-x8", "-s8", "-k1M", f"{url}/large/file"],
            "small": [*aria2, "-j32", "-i", listed]}),
        "paceline": (str(paceline), "near0", {
            name: [*send, f"{place}/source/{name}/", *to] for name in ("large", "small")}),
    }
    if policy:
        program, host, own = peers["paceline"]
        peers[f"paceline {policy}"] = (program, host, {
            name: [*command[:2], "--policy", policy, *command[2:]]
            for name, command in own.items()})
    return peers


def serve(lab, paceline, place, sink):
    log = place / "servers.log"
    (place / "nginx.conf").write_text(NGINX.format(place=place, source=place / "source"))
    (place / "rsyncd.conf").write_text(RSYNCD.format(sink=sink))
    if shutil.which("nginx"):
        lab.serve("near0", ["nginx", "-c", place / "nginx.conf"], log)
        lab.wait_for_port("near0", 8080)
    if shutil.which("rsync"):
        lab.serve("far0", ["rsync", "--daemon", "--no-detach", "--config",
                           place / "rsyncd.conf", "--port", "873"], log)
        lab.wait_for_port("far0", 873)
    lab.serve("far0", [paceline, "receive", "--listen", "10.2.0.1:7412", "--root", sink,
                       "--token-file", place / "token", "--cert", place / "cert.pem",
                       "--key", place / "key.pem"], log)
    lab.wait_for_port("far0", 7412)


def measure(lab, host, command, sink, wanted):
    """Seconds of the whole command, and the kind of its connections."""
    for path in sink.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    seen = set()
    begun = time.monotonic()
    process = subprocess.Popen(lab.at(host, command), stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    # Once, while it sends: a look costs little, and the same for all.
    try:
        process.wait(1.5)
    except subprocess.TimeoutExpired:
        seen = lab.connections()
    output = process.communicate()[0]
    seconds = time.monotonic() - begun
    if process.returncode != 0:
        sys.exit(f"{command}: {process.returncode}: {output.decode(errors='replace')[-2000:]}")
    if digest(sink) != wanted:
        sys.exit(f"{command}: what arrived is not the source")
    return seconds, sorted(seen)


def table(result):
    lines = [f"{result['link']}; {result['rounds']} rounds, interleaved; share of the line's "
             "payload by the time of the whole command, median (least to most)", ""]
    for tree in ("large", "small"):
        names = list(result["runs"][tree])
        lines += [f"**{result['trees'][tree]}**", "", "| | " + " | ".join(names) + " |",
                  "|---" * (len(names) + 1) + "|"]
        for control in result["congestion"]:
            cells = []
            for name in names:
                own = result["runs"][tree][name].get(control)
                cells.append("" if not own else "{:.3f} ({:.3f} to {:.3f})".format(
                    statistics.median(own), min(own), max(own)))
            lines.append(f"| {control} | " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines + [f"- {line}" for line in result["verdict"]]) + "\n"


def verdict(result):
    """paceline against the best peer, under any congestion control of each."""
    lines, is_ahead = [], False
    for tree, runs in result["runs"].items():
        own = [(statistics.median(rounds), name, control) for name, controls in runs.items()
               for control, rounds in controls.items()]
        best = max(row for row in own if row[1].startswith("paceline"))
        peers = [row for row in own if not row[1].startswith("paceline")]
        if not peers:
            continue
        peer = max(peers)
        rounds = zip(runs[best[1]][best[2]], runs[peer[1]][peer[2]])
        lost = sum(ours < theirs for ours, theirs in rounds)
        lines.append(f"{tree}: {best[1]} ({best[2]}) is at {best[0] / peer[0]:.2f} of the best "
                     f"peer, {peer[1]} ({peer[2]}), which was ahead in {lost} rounds")
        is_ahead |= best[0] < peer[0]
    return lines, is_ahead


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--paceline", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rate", type=int, default=100, help="Mbit/s")
    parser.add_argument("--rtt", type=int, default=50, help="milliseconds")
    parser.add_argument("--megabytes", type=int, default=100, help="of the large file")
    parser.add_argument("--files", type=int, default=2000, help="small ones")
    parser.add_argument("--congestion", default="cubic,bbr")
    parser.add_argument("--policy", default="lfn", help="also paceline send --policy; or none")
    args = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("movers.py: it makes network namespaces: run it as root")
    paceline = args.paceline.resolve()
    buffer = args.rate * 1000 * args.rtt / 8 / 4 / 1024
    link = {"rate": args.rate, "delay": args.rtt / 2, "buffer": int(buffer)}
    memory = Path("/dev/shm") if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="movers-", dir=memory) as name:
        place = Path(name)
        (place / "source").mkdir()
        sink = place / "sink"
        sink.mkdir()
        os.environ["XDG_STATE_HOME"] = str(place / "state")
        sizes = trees(place / "source", args.megabytes * 1_000_000, args.files, 1)
        wanted = {tree: digest(place / "source" / tree) for tree in sizes}
        subprocess.run([paceline, "coordinate", "token", place / "token"], check=True)
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                        "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj",
                        "/CN=far0", "-addext", "subjectAltName=IP:10.2.0.1", "-keyout",
                        place / "key.pem", "-out", place / "cert.pem"],
                       check=True, stderr=subprocess.DEVNULL)
        lab = Lab(paceline, place, link)
        try:
            result = rounds(args, lab, paceline, place, sink, (sizes, wanted))
        finally:
            lab.down()
    result["verdict"], is_ahead = verdict(result)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "movers.json").write_text(json.dumps(result, indent=1) + "\n")
    (args.out / "movers.md").write_text(table(result))
    print(table(result))
    sys.exit(is_ahead)


def rounds(args, lab, paceline, place, sink, about):
    sizes, wanted = about
    policy = None if args.policy == "none" else args.policy
    peers = commands(paceline, place, sink, policy)
    missing = [name for name, (program, _, _) in peers.items() if not shutil.which(program)]
    for name in missing:
        print(f"left out: {name}: its program is not there", file=sys.stderr)
        del peers[name]
    # What the line carries of TCP's payload: 1448 of 1500 bytes and a frame's 14.
    payload = args.rate * 1e6 / 8 * 1448 / 1514
    result = {
        "kernel": os.uname().release,
        "link": f"{args.rate} Mbit/s, {args.rtt} ms, queue of 1/4 of what the path holds",
        "rounds": args.rounds,
        "trees": {"large": f"one file of {args.megabytes} MB",
                  "small": f"{args.files} files of 4 to 64 KiB, {sizes['small'] / 1e6:.1f} MB"},
        "congestion": args.congestion.split(","),
        "versions": {}, "read_back": {}, "connections": {},
        "runs": {tree: {name: {} for name in peers} for tree in sizes},
    }
    for program in ("rsync", "rclone", "lftp", "aria2c"):
        if shutil.which(program):
            output = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
            result["versions"][program] = output.splitlines()[0] if output else ""
    for number in range(args.rounds):
        for control in result["congestion"]:
            result["read_back"][control] = lab.congestion(control)
            serve(lab, paceline, place, sink)
            names = list(peers)
            turn = number % len(names)
            for name in names[turn:] + names[:turn]:
                # A policy brings its own.
                if name == f"paceline {policy}" and control != result["congestion"][0]:
                    continue
                _, host, own = peers[name]
                for tree, command in own.items():
                    seconds, seen = measure(lab, host, command, sink, wanted[tree])
                    share = sizes[tree] / payload / seconds
                    result["runs"][tree][name].setdefault(control, []).append(round(share, 4))
                    known = result["connections"].setdefault(f"{name}, {control}", [])
                    known.extend(one for one in seen if one not in known)
                    print(f"{number + 1} {control} {name} {tree}: {seconds:.2f} s, {share:.3f}",
                          file=sys.stderr, flush=True)
            lab.stop_servers()
    return result


if __name__ == "__main__":
    main()

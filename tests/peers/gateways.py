#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""paceline gateway beside haproxy and kcptun, live: CPU time per gigabit, and goodput.

As root: tests/peers/gateways.py --paceline target/release/paceline --out DIRECTORY

    host - gateway - WAN - gateway - host

Each of them is a network namespace, and so is the WAN. In each round each pair of gateways
carries one connection's endless data on each WAN; the order turns from round to round. CPU time
is that of the gateways' processes, by their cgroups; goodput is what the far host has read.
Both are counted in the same window of time, after a warm-up.

Into DIRECTORY: gateways.json and gateways.md. Needs haproxy, kcptun-client, kcptun-server,
openssl, ethtool, nft and cgroup v2; a missing peer is left out with a message.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TAG = f"plg{os.getpid()}"
HOSTS = ["near", "near-gw", "wan", "far-gw", "far"]
FAR = "10.95.2.1"
PORT = 9000
# `clean`: the cable itself, and the host sends at a rate, so that all carry the same where they
# can. `long`: the path of experiments/gateway-goodput.toml.
WANS = {
    "clean": {"description": "no delay, no loss; the host sends {offered} Mbit/s", "reserve": 2},
    "long": {"description": "20 Mbit/s, 350 ms, 1 % loss, queue of 256 KiB; the host sends what it can",
             "emulate": ["--rate", "20mbit", "--delay", "175ms", "--buffer", "256KiB",
                         "--loss", "1%"]},
}
LONG_RESERVE = "19450kbit"

# At the far host: counts the bytes that it reads, and prints the count for each input line.
SINK = """
import socket, sys, threading, time
total = 0
def read(peer):
    global total
    room = bytearray(1 << 18)
    while count := peer.recv_into(room):
        total += count
def accept(server):
    while True:
        peer = server.accept()[0]
        threading.Thread(target=read, args=(peer,), daemon=True).start()
server = socket.create_server((sys.argv[1], int(sys.argv[2])))
threading.Thread(target=accept, args=(server,), daemon=True).start()
print("ready", flush=True)
for _ in sys.stdin:
    print(time.monotonic(), total, flush=True)
"""
# At the near host: sends until it is killed. SO_MAX_PACING_RATE (47), bytes per second.
SOURCE = """
import os, socket, sys
host, port, rate = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
connection = socket.socket()
if rate:
    connection.setsockopt(socket.SOL_SOCKET, 47, rate)
connection.connect((host, port))
data = os.urandom(1 << 20)
while True:
    connection.sendall(data)
"""
HAPROXY = """
global
  nbthread 1
defaults
  mode tcp
  timeout connect 10s
  timeout client 1h
  timeout server 1h
listen data
  bind {bind}
  server next {server}
"""


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def at(host, *command):
    return ["ip", "netns", "exec", f"{TAG}-{host}", *map(str, command)]


def until(what, found):
    for _ in range(300):
        if found():
            return
        time.sleep(0.1)
    sys.exit(f"never came: {what}")


@contextlib.contextmanager
def process(command, log, group=None, **keys):
    """A program, in a cgroup from its first instruction on; killed at the end."""
    command = list(map(str, command))
    if group:
        command = ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "-", *command]
    with open(log, "a", encoding="utf-8") as out:
        started = subprocess.Popen(command, stderr=out, **({"stdout": out} | keys))
    try:
        yield started
    finally:
        started.send_signal(signal.SIGTERM)
        try:
            started.wait(20)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


@contextlib.contextmanager
def network(is_emulated):
    """The namespaces; without the emulator the gateways have one cable."""
    wans = [("near-gw", "wan", "wan", "near"), ("far-gw", "wan", "wan", "far")]
    if not is_emulated:
        wans = [("near-gw", "wan", "far-gw", "wan")]
    try:
        for host in HOSTS:
            run("ip", "netns", "add", f"{TAG}-{host}")
            run("ip", "-n", f"{TAG}-{host}", "link", "set", "lo", "up")
            # Windows that hold the long path.
            for name in ("tcp_rmem=4096 131072 20971520", "tcp_wmem=4096 87380 20971520"):
                run(*at(host, "sysctl", "-qw", f"net.ipv4.{name}"))
        for one, name, other, others in [("near", "lan", "near-gw", "lan"),
                                         ("far", "lan", "far-gw", "lan"), *wans]:
            run("ip", "-n", f"{TAG}-{one}", "link", "add", name, "type", "veth",
                "peer", "name", others, "netns", f"{TAG}-{other}")
            run("ip", "-n", f"{TAG}-{one}", "link", "set", name, "up")
            run("ip", "-n", f"{TAG}-{other}", "link", "set", others, "up")
        for host, name, address in [("near", "lan", "10.95.1.1"), ("near-gw", "lan", "10.95.1.254"),
                                    ("far", "lan", FAR), ("far-gw", "lan", "10.95.2.254"),
                                    ("near-gw", "wan", "10.95.9.1"), ("far-gw", "wan", "10.95.9.2")]:
            run("ip", "-n", f"{TAG}-{host}", "addr", "add", f"{address}/24", "dev", name)
        for host, number in (("near", 1), ("far", 2)):
            run("ip", "-n", f"{TAG}-{host}", "route", "add", "default", "via",
                f"10.95.{number}.254")
        if is_emulated:
            # What the emulator gets must be packets of the link's size.
            for host in ("near-gw", "far-gw"):
                run(*at(host, "ethtool", "-K", "wan", "tso", "off", "gso", "off", "tx", "off"))
        yield
    finally:
        for host in HOSTS:
            subprocess.run(["ip", "netns", "del", f"{TAG}-{host}"], check=False,
                           stderr=subprocess.DEVNULL)


class Pair:
    """A pair of gateways: the commands of both ends, and the address for the near host."""

    def __init__(self, near, far, to, congestion=None):
        self.commands = {"near": near, "far": far}
        self.to = to
        self.congestion = congestion


def prepare(place, paceline):
    """The files that do not depend on the WAN."""
    for name, key in (("gateway", ["ed25519"]),
                      ("haproxy", ["ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])):
        run("openssl", "req", "-x509", "-newkey", *key, "-nodes", "-subj", "/CN=far",
            "-days", "2", "-keyout", place / f"{name}.key", "-out", place / f"{name}.crt")
    both = (place / "haproxy.crt").read_text() + (place / "haproxy.key").read_text()
    (place / "haproxy.pem").write_text(both)
    run(paceline, "coordinate", "token", place / "token")
    plain = ("10.95.9.2:7000", f"{FAR}:{PORT}")
    for name, server, bind in [
            ("plain", plain[0], ""),
            ("tls", f"{plain[0]} ssl verify required ca-file {place}/haproxy.crt",
             f" ssl crt {place}/haproxy.pem")]:
        (place / f"haproxy-{name}-near").write_text(
            HAPROXY.format(bind="10.95.1.254:7000", server=server))
        (place / f"haproxy-{name}-far").write_text(
            HAPROXY.format(bind=plain[0] + bind, server=plain[1]))


def gateway_files(place, rate):
    fingerprint = run("openssl", "x509", "-in", place / "gateway.crt", "-noout", "-fingerprint",
                      "-sha256").split("=")[1].strip()
    rate = f'rate = {{ reserve = "{rate}" }}\n'
    (place / "far.toml").write_text(
        'name = "far"\nlisten = "10.95.9.2:7420"\ncertificate = "gateway.crt"\n'
        f'key = "gateway.key"\ntoken = "token"\ncontrol = "far.sock"\n[peer.near]\n{rate}'
        '[accept]\nto = ["10.95.2.0/24"]\n')
    (place / "near.toml").write_text(
        'name = "near"\ntoken = "token"\ncontrol = "near.sock"\n[peer.far]\n'
        f'address = "10.95.9.2:7420"\nfingerprint = "{fingerprint}"\n{rate}'
        '[transparent]\ninterface = "lan"\npeer = "far"\nto = ["10.95.2.0/24"]\n')


def pairs(place, paceline):
    """Each program as its documentation has it; kcptun with windows for the long path, and
    without compression, since the data is random."""
    kcptun = ["--mode", "fast3", "--nocomp", "--sndwnd", "2048", "--rcvwnd", "2048",
              "--crypt", "aes"]
    haproxy = {name: [["haproxy", "-db", "-f", place / f"haproxy-{name}-{end}"]
                      for end in ("near", "far")] for name in ("plain", "tls")}
    proxy = ("10.95.1.254", 7000)
    return {
        "paceline": Pair([paceline, "gateway", "serve", "--config", place / "near.toml"],
                         [paceline, "gateway", "serve", "--config", place / "far.toml"],
                         (FAR, PORT)),
        "haproxy": Pair(*haproxy["plain"], proxy, "cubic"),
        "haproxy, TLS": Pair(*haproxy["tls"], proxy, "cubic"),
        "haproxy, TLS, BBR": Pair(*haproxy["tls"], proxy, "bbr"),
        "kcptun": Pair(["kcptun-client", "-r", "10.95.9.2:4000", "-l", "10.95.1.254:7000", *kcptun],
                       ["kcptun-server", "-l", "10.95.9.2:4000", "-t", f"{FAR}:{PORT}", *kcptun],
                       proxy),
    }


def is_ready(name, end, place, paceline):
    if name == "paceline":
        peer = {"near": "far", "far": "near"}[end]
        seen = subprocess.run([paceline, "gateway", "status", "--json", "--socket",
                               place / f"{end}.sock"], capture_output=True, check=False)
        return seen.returncode == 0 and json.loads(seen.stdout)["peers"][peer] is not None
    socket = {"near": "10.95.1.254:7000", "far": "10.95.9.2:7000"}[end]
    listens = "-Hltn" if name.startswith("haproxy") or end == "near" else "-Hlun"
    socket = socket if listens == "-Hltn" else "10.95.9.2:4000"
    return socket in run(*at(f"{end}-gw", "ss", listens))


def cpu_s(group):
    return int((group / "cpu.stat").read_text().split()[1]) / 1e6


def measure(name, pair, place, paceline, groups, rate, args):
    """Goodput in Mbit/s, and CPU seconds of both ends in the window."""
    log = place / "log"
    for end in ("near", "far"):
        if pair.congestion:
            run("ip", "-n", f"{TAG}-{end}-gw", "route", "replace", "10.95.9.0/24", "dev", "wan",
                "congctl", pair.congestion)
    with contextlib.ExitStack() as stack:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        sink = stack.enter_context(process(
            at("far", "python3", "-c", SINK, FAR, PORT), log, **pipes))
        sink.stdout.readline()
        for end in ("far", "near"):
            started = stack.enter_context(process(
                at(f"{end}-gw", *pair.commands[end]), log, groups[end]))
            until(f"{name} at {end}", lambda: started.poll() is not None or (
                end == "far" and name == "paceline" or is_ready(name, end, place, paceline)))
            if started.poll() is not None:
                sys.exit(f"{name}: {log.read_text()}")

        def look():
            sink.stdin.write("\n")
            sink.stdin.flush()
            when, total = sink.stdout.readline().split()
            return float(when), int(total), [cpu_s(groups[end]) for end in ("near", "far")]
        source = stack.enter_context(process(
            at("near", "python3", "-c", SOURCE, *pair.to, rate), log))
        time.sleep(args.warm_up)
        if pair.congestion:
            seen = run(*at("near-gw", "ss", "-tinHO", "dst", "10.95.9.2"))
            if f" {pair.congestion} " not in seen:
                sys.exit(f"{name}: its connection is not of {pair.congestion}: {seen}")
        before = look()
        time.sleep(args.seconds)
        after = look()
        if source.poll() is not None or after[1] == before[1]:
            sys.exit(f"{name}: nothing comes: {log.read_text()}")
    gigabits = (after[1] - before[1]) * 8 / 1e9
    return {"goodput_mbps": round(gigabits * 1e3 / (after[0] - before[0]), 3),
            "near_cpu_s_per_gbit": round((after[2][0] - before[2][0]) / gigabits, 4),
            "far_cpu_s_per_gbit": round((after[2][1] - before[2][1]) / gigabits, 4)}


def version(*command):
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = (finished.stdout + finished.stderr).splitlines()
    return lines[0] if lines else ""


def table(result):
    def cell(runs, value, places):
        own = [value(one) for one in runs]
        return f"{statistics.median(own):.{places}f} ({min(own):.{places}f} to {max(own):.{places}f})"
    lines = []
    for wan, runs in result["runs"].items():
        lines += [f"**{result['wans'][wan]}**", "",
                  "| | goodput, Mbit/s | CPU, s per gigabit: both ends | near | far |",
                  "|---|---|---|---|---|"]
        for name, own in runs.items():
            near, far = "near_cpu_s_per_gbit", "far_cpu_s_per_gbit"
            lines.append("| " + " | ".join([
                name, cell(own, lambda one: one["goodput_mbps"], 1),
                cell(own, lambda one: one[near] + one[far], 2),
                cell(own, lambda one: one[near], 2), cell(own, lambda one: one[far], 2)]) + " |")
        lines.append("")
    lines.append(f"{result['rounds']} rounds, interleaved, {result['seconds']} s each; "
                 "median (least to most); kernel " + result["kernel"])
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--paceline", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10, help="counted")
    parser.add_argument("--warm-up", type=float, default=4, help="seconds before")
    parser.add_argument("--offered", type=int, default=100, help="Mbit/s on the clean WAN")
    args = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("gateways.py: it makes network namespaces: run it as root")
    paceline = args.paceline.resolve()
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    top = Path(next(mount[1] for mount in mounts if mount[2] == "cgroup2")) / TAG
    groups = {end: top / end for end in ("near", "far")}
    with tempfile.TemporaryDirectory(prefix="gateways-") as name:
        place = Path(name)
        prepare(place, paceline)
        peers = pairs(place, paceline)
        for name, pair in list(peers.items()):
            missing = [str(own[0]) for own in pair.commands.values() if not shutil.which(own[0])]
            if missing:
                print(f"left out: {name}: no {missing[0]}", file=sys.stderr)
                del peers[name]
        result = {
            "kernel": os.uname().release, "rounds": args.rounds, "seconds": args.seconds,
            "wans": {wan: of["description"].format(offered=args.offered) for wan, of in WANS.items()},
            "versions": [version("haproxy", "-v"), version("kcptun-client", "-v")],
            "runs": {wan: {name: [] for name in peers} for wan in WANS},
        }
        try:
            for group in (top, *groups.values()):
                group.mkdir()
            for number in range(args.rounds):
                one_round(number, peers, place, paceline, groups, args, result)
        finally:
            for group in (*groups.values(), top):
                with contextlib.suppress(OSError):
                    group.rmdir()
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "gateways.json").write_text(json.dumps(result, indent=1) + "\n")
    (args.out / "gateways.md").write_text(table(result))
    print(table(result))


def one_round(number, peers, place, paceline, groups, args, result):
    names = list(peers)
    turn = number % len(names)
    for wan, of in WANS.items():
        emulate = of.get("emulate")
        gateway_files(place, LONG_RESERVE if emulate else f"{of['reserve'] * args.offered}mbit")
        rate = 0 if emulate else args.offered * 1_000_000 // 8
        for name in names[turn:] + names[:turn]:
            with network(bool(emulate)), contextlib.ExitStack() as stack:
                if emulate:
                    link = [f"{TAG}-wan:near", f"{TAG}-wan:far"]
                    control = place / "wan.sock"
                    stack.enter_context(process(
                        [paceline, "emulate", "run", *link, *emulate, "--control", control],
                        place / "emulator"))
                    until("the link", control.exists)
                one = measure(name, peers[name], place, paceline, groups, rate, args)
            result["runs"][wan][name].append(one)
            print(f"{number + 1} {wan} {name}: {one}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    # The context managers clean up.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    main()

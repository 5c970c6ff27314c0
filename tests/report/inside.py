# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs labs inside a guest: bursts over one path, in several jobs. See labs.py.

    inside.py LABS.json PLACE    each line of stdout is the result of one lab, as JSON
    inside.py client PLAN.json   the sender of one job, under paceline run
    inside.py serve              the receiver of all
"""

import ctypes
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time

CLIENT, ROUTER, SERVER = "client", "router", "server"
ADDRESS, PORT = "10.98.2.1", 7000
# linux/bpf.h
BPF_MAP_LOOKUP_ELEM, BPF_MAP_GET_NEXT_ID = 1, 12
BPF_MAP_GET_FD_BY_ID, BPF_OBJ_GET_INFO_BY_FD = 14, 15
SYS_BPF = 321  # x86_64
# struct pl_trial_key, struct pl_trial: their lengths are held against the kernel's.
KEY_BYTES, VALUE_BYTES, VALUE, SIZES = 16, 48, struct.Struct("<6Q"), 8
LIBC = ctypes.CDLL(None, use_errno=True)


def bpf(command, attribute):
    return LIBC.syscall(SYS_BPF, command, attribute, len(attribute))


def word(value, size=4):
    return int(value).to_bytes(size, "little")


class Trials:
    """The kernel side's counts of one job's bursts, by their treatment."""

    def __init__(self, job):
        descriptor = self.find()
        with open("/sys/devices/system/cpu/possible") as file:
            cpus = int(file.read().strip().split("-")[-1]) + 1
        self.values = ctypes.create_string_buffer(VALUE_BYTES * cpus)
        self.keys, self.lookups = [], ([], [])
        for held, lookups in enumerate(self.lookups):
            for size in range(SIZES):
                key = ctypes.create_string_buffer(word(job, 8) + word(size) + word(held), KEY_BYTES)
                self.keys.append(key)
                places = word(ctypes.addressof(key), 8) + word(ctypes.addressof(self.values), 8)
                lookups.append(ctypes.create_string_buffer(word(descriptor) + word(0) + places, 64))

    @staticmethod
    def find():
        identity = 0
        while True:
            attribute = ctypes.create_string_buffer(word(identity), 64)
            if bpf(BPF_MAP_GET_NEXT_ID, attribute) != 0:
                raise SystemExit("the kernel side has no map pl_trials")
            identity = int.from_bytes(attribute.raw[4:8], "little")
            descriptor = bpf(BPF_MAP_GET_FD_BY_ID, ctypes.create_string_buffer(word(identity), 64))
            if descriptor < 0:
                continue
            # struct bpf_map_info: type, id, key_size, value_size, max_entries, map_flags, name
            information = ctypes.create_string_buffer(88)
            place = word(ctypes.addressof(information), 8)
            attribute = ctypes.create_string_buffer(word(descriptor) + word(88) + place, 64)
            bpf(BPF_OBJ_GET_INFO_BY_FD, attribute)
            if information.raw[24:40].split(b"\0")[0] == b"pl_trials":
                sizes = [int.from_bytes(information.raw[at:at + 4], "little") for at in (8, 12)]
                if sizes != [KEY_BYTES, VALUE_BYTES]:
                    raise SystemExit(f"pl_trials has keys and values of {sizes} bytes")
                return descriptor
            os.close(descriptor)

    def now(self):
        """(bursts, sum of durations in us) of bursts under the policy, and of held-out ones."""
        arms = []
        for lookups in self.lookups:
            bursts = sum_us = 0
            for lookup in lookups:
                if bpf(BPF_MAP_LOOKUP_ELEM, lookup) == 0:
                    for cpu in VALUE.iter_unpack(self.values.raw):
                        bursts += cpu[0]
                        sum_us += cpu[3]
            arms.append((bursts, sum_us))
        return arms


def cgroup():
    with open("/proc/self/cgroup") as file:
        below = next(line for line in file if line.startswith("0::")).strip()[3:]
    return f"/sys/fs/cgroup{below}"


def client(plan):
    """One burst after the other; reports duration and kind of each."""
    place = cgroup()
    trials = Trials(os.stat(place).st_ino)
    before, rows, connection = trials.now(), [], None
    for size, gap in plan["bursts"]:
        if connection is None or plan["fresh"]:
            if connection:
                connection.close()
            connection = socket.create_connection((ADDRESS, PORT))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        data = size.to_bytes(8, "little") + bytes(size - 8)
        began = time.monotonic()
        connection.sendall(data)
        if not connection.recv(1):
            raise SystemExit("the server has gone")
        took_us = (time.monotonic() - began) * 1e6
        # What is left in flight, the last ACK, has a pause to arrive.
        time.sleep(gap)
        after = trials.now()
        ended = [after[held][0] - before[held][0] for held in (0, 1)]
        held = {(1, 0): 0, (0, 1): 1}.get(tuple(ended))
        us = None if held is None else after[held][1] - before[held][1]
        rows.append([held, us, round(took_us)])
        before = after
    print(json.dumps({"job": os.path.basename(place), "rows": rows}), flush=True)
    sys.stdin.readline()


def serve(listener):
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=answer, args=(connection,), daemon=True).start()


def answer(connection):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while True:
        head = connection.recv(8, socket.MSG_WAITALL)
        if len(head) < 8:
            return
        left = int.from_bytes(head, "little") - 8
        while left:
            left -= len(connection.recv(min(left, 1 << 18)))
        connection.sendall(b"x")


def command(*words):
    subprocess.run([str(word) for word in words], check=True)


def network(lab):
    ip = lambda *words: command("ip", *words)
    inside = lambda name, *words: command("ip", "netns", "exec", name, *words)
    for name in (CLIENT, ROUTER, SERVER):
        ip("netns", "add", name)
        inside(name, "ip", "link", "set", "lo", "up")
    for (left, right), third in (((CLIENT, ROUTER), 1), ((SERVER, ROUTER), 2)):
        ip("link", "add", "v0", "netns", left, "type", "veth", "peer", "name", f"to-{left}", "netns", right)
        inside(left, "ip", "address", "add", f"10.98.{third}.1/24", "dev", "v0")
        inside(right, "ip", "address", "add", f"10.98.{third}.254/24", "dev", f"to-{left}")
        for name, device in ((left, "v0"), (right, f"to-{left}")):
            if not lab["offload"]:
                inside(name, "ip", "link", "set", device, "gso_max_segs", "1")
            inside(name, "ip", "link", "set", device, "up")
        inside(left, "ip", "route", "add", "default", "via", f"10.98.{third}.254")
    inside(ROUTER, "sysctl", "-qw", "net.ipv4.ip_forward=1")
    for name in (CLIENT, SERVER):
        inside(name, "sysctl", "-qw", "net.ipv4.tcp_no_metrics_save=1")
    line = ("tc", "qdisc", "add", "dev", f"to-{SERVER}")
    inside(ROUTER, *line, "root", "handle", "1:", "tbf", "rate", f"{lab['rate_kbit']}kbit", "burst", "3100", "limit", 1 << 30)
    loss = ("loss", f"{lab['loss_percent']}%") if lab["loss_percent"] else ()
    inside(ROUTER, *line, "parent", "1:1", "netem", "limit", lab["queue_packets"], *loss)
    inside(SERVER, "tc", "qdisc", "add", "dev", "v0", "root", "netem", "delay", f"{lab['rtt_us']}us", "limit", 100000)


def within(name, *words, **options):
    # Not by `ip netns exec`, which hides the cgroups.
    return subprocess.Popen(["nsenter", f"--net=/run/netns/{name}", *words], text=True, **options)


def one_run(place, policy, lab):
    plan = os.path.join(place, "plan.json")
    with open(plan, "w") as file:
        json.dump({"bursts": lab["bursts"], "fresh": lab["fresh"]}, file)
    job = within(CLIENT, "paceline", "run", "--quiet", "--policy", policy, "--", sys.executable, __file__, "client", plan,
                 stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    result = job.stdout.readline()
    if not result:
        raise SystemExit(f"the job failed: {job.wait()}")
    result = json.loads(result)
    report = subprocess.run(["paceline", "report", result["job"], "--json"], check=True, capture_output=True, text=True)
    job.stdin.close()
    if job.wait() != 0:
        raise SystemExit("the job failed at its end")
    return result["rows"], json.loads(report.stdout)


def policies(place, lab):
    """The policy with bursts held out, the policy, and its settings without its laws."""
    shown = subprocess.run(["paceline", "policy", "show", lab["policy"]], check=True, capture_output=True, text=True).stdout
    lines, settings, keep = shown.splitlines(), [], True
    for line in lines:
        if line.startswith("["):
            keep = not line.startswith("[startup")
        if keep:
            settings.append(line)
    held_out = [*lines, "[report]", f"held_out = \"{lab['held_out_percent']}%\""]
    paths = []
    for name, text in (("held-out", held_out), ("policy", lines), ("settings", settings)):
        paths.append(os.path.join(place, f"{name}.toml"))
        with open(paths[-1], "w") as file:
            file.write("\n".join(text) + "\n")
    return paths


def main(labs, place):
    os.makedirs(place, exist_ok=True)
    kept = subprocess.Popen(["paceline", "run", "--quiet", "--policy", "lfn", "--", sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    with open(labs) as file:
        labs = json.load(file)
    for lab in labs:
        network(lab)
        listening = within(SERVER, sys.executable, __file__, "serve", stdout=subprocess.PIPE)
        listening.stdout.readline()
        held_out, policy, settings = policies(place, lab)
        rows, report = one_run(place, held_out, lab)
        half = {**lab, "bursts": lab["bursts"][:lab["whole_bursts"]]}
        result = {
            "lab": lab,
            "report": {"overall": report["overall"], "trials": report["trials"]},
            "rows": rows,
            "pairs": [one_run(place, held_out, lab)[0] for _ in range(lab["paired_runs"])],
            "policy": [row[2] for row in one_run(place, policy, half)[0]],
            "settings": [row[2] for row in one_run(place, settings, half)[0]],
        }
        print(json.dumps(result), flush=True)
        listening.terminate()
        listening.wait()
        for name in (CLIENT, ROUTER, SERVER):
            command("ip", "netns", "del", name)
    kept.stdin.close()
    kept.wait()


if __name__ == "__main__":
    if sys.argv[1] == "client":
        with open(sys.argv[2]) as plan_file:
            client(json.load(plan_file))
    elif sys.argv[1] == "serve":
        server = socket.create_server((ADDRESS, PORT), backlog=64)
        print("ready", flush=True)
        serve(server)
    else:
        main(sys.argv[1], sys.argv[2])

# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A program of a job that takes all it can get of what jobs share. Says what it did in a
line, and goes on until its input ends."""

import mmap
import os
import selectors
import socket
import struct
import sys

ATTACHGROUP = 0x504C01
NEAR = "10.98.0.2"
FAR = (10 << 24) + (128 << 16)  # 10.128.0.0/9


def server():
    """Takes every connection, and reads until the other end closes."""
    listener = socket.create_server(("0.0.0.0", 0), backlog=4096)
    listener.setblocking(False)
    print(listener.getsockname()[1], flush=True)
    watch = selectors.EpollSelector()
    watch.register(listener, selectors.EVENT_READ)
    watch.register(sys.stdin, selectors.EVENT_READ)
    while True:
        for key, _ in watch.select():
            if key.fileobj is sys.stdin:
                return
            if key.fileobj is listener:
                try:
                    while True:
                        watch.register(listener.accept()[0], selectors.EVENT_READ)
                except BlockingIOError:
                    continue
            try:
                if key.fileobj.recv(1 << 16):
                    continue
            except OSError:
                pass
            watch.unregister(key.fileobj)
            key.fileobj.close()


def page(version):
    """The memory in which this process shows its phase."""
    agent = socket.socket(socket.AF_UNIX)
    agent.connect(os.environ["PACELINE_SOCKET"])
    agent.send(struct.pack("=I", version))
    _, files, _, _ = socket.recv_fds(agent, 1, 1)
    return mmap.mmap(files[0], mmap.PAGESIZE)


def phases(port, count, version):
    """Invents phases, each with a path of its own."""
    memory = page(version)
    connection = socket.create_connection((NEAR, port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for number in range(count):
        # Each class again and again with another meaning, but not before it is forgotten.
        memory[:4] = struct.pack("=I", (number << 8) + 1 + number % 63)
        connection.send(b"x")
    return [connection, memory]


def far(port, first, count):
    """Connects to one host after the other."""
    for host in range(int(first), int(first) + count):
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("=ii", 1, 0))
        connection.connect((socket.inet_ntoa(struct.pack("!I", FAR + host)), port))
        connection.close()
    return []


def groups(port, count):
    """Connections with a group each."""
    kept = []
    for number in range(count):
        kept.append(socket.socket())
        kept[-1].setsockopt(socket.IPPROTO_TCP, ATTACHGROUP, f"group {number}".encode())
        kept[-1].connect((NEAR, port))
    return kept


kept = []
if sys.argv[1] == "server":
    server()
    sys.exit()
for line in sys.stdin:
    words = line.split()
    port = int(sys.argv[1])
    match words:
        case ["phases", count, version]:
            kept += phases(port, int(count), int(version))
        case ["far", first, count]:
            kept += far(port, first, int(count))
        case ["groups", count]:
            kept += groups(port, int(count))
    print("done", flush=True)

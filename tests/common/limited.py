# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Connections that are limited by different things, and stay so until stdin ends.

    limited.py serve                    prints a port for each kind, in one line
    limited.py send ADDRESS PORT...     prints the local port of each, then sends
"""

import socket
import sys
import threading
import time

KINDS = ("receive-window", "closed-window", "send-buffer", "application", "network")


def serve():
    ports = []
    for kind in KINDS:
        listener = socket.socket()
        if kind == "receive-window":
            # Before the handshake, or the window's scale is not of this size.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listener.bind(("0.0.0.0", 0))
        listener.listen()
        ports.append(listener.getsockname()[1])
        threading.Thread(target=receive, args=(kind, listener), daemon=True).start()
    print(*ports, flush=True)


def receive(kind, listener):
    connection, _ = listener.accept()
    while kind != "closed-window" and connection.recv(1 << 16):
        pass
    # It stays open, and nobody reads.
    threading.Event().wait()


def send(address, ports):
    connections = []
    for kind, port in zip(KINDS, ports):
        connection = socket.socket()
        if kind == "send-buffer":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        connection.connect((address, int(port)))
        connections.append(connection)
    print(*(connection.getsockname()[1] for connection in connections), flush=True)
    for kind, connection in zip(KINDS, connections):
        threading.Thread(target=write, args=(kind, connection), daemon=True).start()


def write(kind, connection):
    while True:
        if kind == "application":
            connection.sendall(b"x" * 100)
            time.sleep(0.2)
        else:
            connection.sendall(b"x" * 65536)


if sys.argv[1] == "serve":
    serve()
else:
    send(sys.argv[2], sys.argv[3:])
sys.stdin.read()

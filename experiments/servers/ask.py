# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Asks a server for 100 KB, 1 MB and 10 MB, each after a pause, on a connection for each
size; prints the median time of the third answer and later ones, in seconds, as
SIZE=SECONDS.

ask.py http|redis|grpc HOST
"""

import http.client
import socket
import statistics
import sys
import time

SIZES = {"100KB": 100_000, "1MB": 1_000_000, "10MB": 10_000_000}
ASKED = 6
FIRST = 2  # the path is not known before
PAUSE_S = 0.7  # longer than a retransmission timeout: idle, as Linux has it


def by_http(host):
    connection = http.client.HTTPConnection(host, 8080)

    def ask(size):
        connection.request("GET", f"/{size}")
        return connection.getresponse().read()

    return ask


def by_redis(host):
    import redis

    # The server fills it: what is asked for has not come over the link.
    fill = "redis.call('SET', KEYS[1], string.rep('x', ARGV[1]))"
    server = redis.Redis(host, 6379)
    for size in SIZES.values():
        server.eval(fill, 1, size, size)
    # A connection of its own, that has sent nothing yet.
    return redis.Redis(host, 6379).get


def by_grpc(host):
    import grpc

    options = [("grpc.max_receive_message_length", -1)]
    channel = grpc.insecure_channel(f"{host}:50051", options)
    call = channel.unary_unary("/servers/Answer")
    return lambda size: call(str(size).encode())


def seconds(ask, size):
    time.sleep(PAUSE_S)
    began = time.monotonic()
    answer = ask(size)
    took = time.monotonic() - began
    assert len(answer) == size, (len(answer), size)
    return took


connect = {"http": by_http, "redis": by_redis, "grpc": by_grpc}[sys.argv[1]]
# gRPC would ask a name server, too, and none is reached from here.
host = socket.gethostbyname(sys.argv[2])
for name, size in SIZES.items():
    ask = connect(host)
    times = [seconds(ask, size) for _ in range(ASKED)]
    print(f"{name}={statistics.median(times[FIRST:]):.6f}", flush=True)

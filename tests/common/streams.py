# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A program that knows nothing of Paceline but the numbers of its socket options. It does
what it is told, a line at a time, and answers with a line of JSON."""

import ctypes
import errno
import json
import socket
import struct
import sys
import threading
import time

ATTACHGROUP, WININFO, STREAMBYTES = 0x504C01, 0x504C02, 0x504C03
TCP = socket.IPPROTO_TCP
MEMBER = struct.Struct("=QQQIIIIII")
HEADER = struct.Struct("=8I")
libc = ctypes.CDLL(None, use_errno=True)

sockets = []
listener = None


def name_of(number):
    # One of two names of the same number.
    return "EOPNOTSUPP" if number == errno.EOPNOTSUPP else errno.errorcode[number]


def number(error):
    return {"error": name_of(error.errno)}


def set_option(sock, level, name, value):
    try:
        sock.setsockopt(level, name, value)
        return {"ok": True}
    except OSError as error:
        return number(error)


def raw_get(sock, level, name, size):
    """getsockopt with a buffer of any size: what it returned, and what is in the buffer."""
    buffer = ctypes.create_string_buffer(size)
    ctypes.memset(buffer, 0xAA, size)
    length = ctypes.c_uint(size)
    if libc.getsockopt(sock.fileno(), level, name, buffer, ctypes.byref(length)):
        return {"error": name_of(ctypes.get_errno())}
    # What is of this moment or this socket is left out by the length alone.
    return {"length": length.value, "beyond": buffer.raw[length.value :].count(0xAA)}


def wininfo(sock, size=HEADER.size + 20 * MEMBER.size):
    try:
        got = sock.getsockopt(TCP, WININFO, size)
    except OSError as error:
        return number(error)
    page, pages, members, count, least, most, lease, _ = HEADER.unpack_from(got)
    names = "cookie acked total inflight cwnd uwnd mss srtt retransmitted".split()
    streams = [
        dict(zip(names, MEMBER.unpack_from(got, HEADER.size + i * MEMBER.size))) for i in range(count)
    ]
    return {
        "page": page, "pages": pages, "members": members, "min": least, "max": most,
        "lease_ms": lease, "streams": streams,
    }


class Capture(threading.Thread):
    """Every TCP segment of this host from or to a port: (outgoing, sequence, end, ack)."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.port = port
        self.found = []
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
        # SO_RCVBUFFORCE: none is to be lost.
        self.socket.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)
        self.socket.settimeout(0.2)
        self.going_on = True
        self.start()

    def run(self):
        while self.going_on:
            try:
                data, where = self.socket.recvfrom(96)
            except TimeoutError:
                continue
            self.found.append((where[1], where[2], data))

    def segments(self):
        segments = []
        for protocol, kind, data in self.found:
            if protocol != 0x0800 or data[9] != 6:
                continue
            tcp = data[(data[0] & 15) * 4 :]
            source, target, sequence, ack = struct.unpack_from("!HHII", tcp)
            length = struct.unpack_from("!H", data, 2)[0] - (data[0] & 15) * 4 - (tcp[12] >> 4) * 4
            if self.port == target:
                segments.append((True, sequence, sequence + length, ack))
            elif self.port == source:
                segments.append((False, sequence, sequence, ack))
        return segments

    def end(self):
        """Most bytes in flight, and most sent in one go: between two that came."""
        self.going_on = False
        self.join()
        drops = struct.unpack("II", self.socket.getsockopt(263, 6, 8))[1]
        highest = acked = None
        inflight = burst = run = again = 0
        for outgoing, start, end, ack in self.segments():
            if not outgoing:
                acked = ack if acked is None else max(acked, ack)
                run = 0
            elif end > start:
                again += highest is not None and start < highest
                highest = end if highest is None else max(highest, end)
                run += end - start
                burst = max(burst, run)
                if acked is not None:
                    inflight = max(inflight, highest - acked)
        return {"inflight": inflight, "burst": burst, "again": again, "dropped": drops}


def keep_sending(sock, stop):
    data = bytes(1 << 16)
    sock.settimeout(0.2)
    while not stop.is_set():
        try:
            sock.send(data)
        except TimeoutError:
            pass
        except OSError:
            return


def keep_receiving(sock):
    try:
        while sock.recv(1 << 20):
            pass
    except OSError:
        pass


stop, threads, capture = threading.Event(), [], None

for line in sys.stdin:
    words = line.split()
    last = sockets[-1] if sockets else None
    answer = {"ok": True}
    match words:
        case ["listen", address]:
            listener = socket.create_server((address, 0), backlog=4096)
            answer = {"port": listener.getsockname()[1]}
        case ["listen-in-group", address, name]:
            listener = socket.socket()
            listener.setsockopt(TCP, ATTACHGROUP, name.encode())
            listener.bind((address, 0))
            listener.listen(4096)
            answer = {"port": listener.getsockname()[1]}
        case ["connect", address, port]:
            sockets.append(socket.create_connection((address, int(port))))
            answer = {"cookie": struct.unpack("Q", sockets[-1].getsockopt(socket.SOL_SOCKET, 57, 8))[0]}
        case ["connect-in-group", address, port, name]:
            sockets.append(socket.socket())
            answer = set_option(sockets[-1], TCP, ATTACHGROUP, name.encode())
            sockets[-1].connect((address, int(port)))
        case ["connect-many", address, port, count]:
            for _ in range(int(count)):
                sockets.append(socket.create_connection((address, int(port))))
        case ["accept"]:
            sockets.append(listener.accept()[0])
        case ["accept-and-receive"]:
            sockets.append(listener.accept()[0])
            threads.append(threading.Thread(target=keep_receiving, args=(sockets[-1],), daemon=True))
            threads[-1].start()
        case ["accept-many", count]:
            for _ in range(int(count)):
                sockets.append(listener.accept()[0])
        case ["attach"]:
            answer = set_option(last, TCP, ATTACHGROUP, b"")
        case ["attach", name]:
            answer = set_option(last, TCP, ATTACHGROUP, name.encode().decode("unicode_escape").encode())
        case ["bytes", total]:
            answer = set_option(last, TCP, STREAMBYTES, struct.pack("=Q", int(total)))
        case ["limits", least, most, lease]:
            answer = set_option(last, TCP, WININFO, struct.pack("=6I", 2, 0, int(least), int(most), int(lease), 0))
        case ["page", page]:
            answer = set_option(last, TCP, WININFO, struct.pack("=6I", 1, int(page), 0, 0, 0, 0))
        case ["raw-limits", *values]:
            answer = set_option(last, TCP, WININFO, struct.pack(f"={len(values)}I", *map(int, values)))
        case ["info"]:
            answer = wininfo(last)
        case ["info", size]:
            answer = wininfo(last, int(size))
        case ["get", level, name, size]:
            answer = raw_get(last, int(level), int(name), int(size))
        case ["set", level, name, size]:
            answer = set_option(last, int(level), int(name), bytes(int(size)))
        case ["send", count]:
            last.sendall(bytes(int(count)))
        case ["receive", count]:
            left = int(count)
            while left:
                left -= len(last.recv(min(left, 1 << 20)))
        case ["keep-sending"]:
            threads.append(threading.Thread(target=keep_sending, args=(last, stop), daemon=True))
            threads[-1].start()
        case ["capture", port]:
            capture = Capture(int(port))
        case ["captured"]:
            answer = capture.end()
        case ["sleep-ms", ms]:
            time.sleep(int(ms) / 1000)
        case ["close"]:
            sockets.pop().close()
        case ["close-all"]:
            while sockets:
                sockets.pop().close()
        case ["exit"]:
            stop.set()
            print("{}", flush=True)
            break
        case _:
            raise ValueError(line)
    print(json.dumps(answer), flush=True)

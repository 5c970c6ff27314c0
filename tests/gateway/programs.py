#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Unmodified programs across a pair of gateways, live: ssh, rsync, curl with HTTP/2 from nginx,
PostgreSQL, and an MPI job between the two sites. Each is asked by its own means whether what
arrived is what was sent.

    host - gateway - WAN - gateway - host

Each of them is a network namespace. Nothing forwards packets, so all that crosses went through
both gateways. Needs root, nft, and the programs; missing programs are reported and left out, or with
CI=true an error. Argument: the paceline to test (default target/release/paceline)."""

import contextlib
import glob
import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
HOSTS = ["near", "near-gw", "far-gw", "far"]
TAG = f"plp{os.getpid()}"
NEAR, FAR = "10.96.1.1", "10.96.2.1"
POSTGRES = sorted(glob.glob("/usr/lib/postgresql/*/bin"))
# What each test needs beside ip and nft.
NEEDS = {
    "ssh": ["ssh", "sshd", "ssh-keygen"],
    "rsync": ["rsync", "ssh", "sshd", "ssh-keygen"],
    "curl": ["curl", "nginx", "openssl"],
    "postgresql": ["psql", "setpriv", *[f"{POSTGRES[-1] if POSTGRES else ''}/{name}"
                                        for name in ("initdb", "postgres")]],
    "mpi": ["mpiexec.mpich", "mpicc.mpich", "ssh", "sshd", "ssh-keygen"],
}
MPI = r"""
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
/* Every rank sends every other one a block of its own, which that one looks at. */
int main(int argc, char **argv)
{
	int rank, size, wrong = 0, all, block = 1 << 18;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	unsigned *out = malloc(sizeof(*out) * block * size), *in = malloc(sizeof(*in) * block * size);
	for (int round = 0; round < 3; round++) {
		for (int to = 0; to < size; to++)
			for (int n = 0; n < block; n++)
				out[to * block + n] = rank * 7919u + to * 104729u + n * 31u + round;
		MPI_Alltoall(out, block, MPI_UNSIGNED, in, block, MPI_UNSIGNED, MPI_COMM_WORLD);
		for (int from = 0; from < size; from++)
			for (int n = 0; n < block; n++)
				wrong += in[from * block + n] != from * 7919u + rank * 104729u + n * 31u + round;
	}
	MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (rank == 0)
		printf("%d ranks, %d wrong\n", size, all);
	MPI_Finalize();
	return all != 0;
}
"""


def run(*command, **keys):
    """Ends the test if it fails, and returns its output."""
    done = subprocess.run([str(word) for word in command], capture_output=True, timeout=300,
                          check=False, **keys)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: {done.returncode}\n"
                 f"{done.stdout.decode(errors='replace')}{done.stderr.decode(errors='replace')}")
    return done.stdout


def at(host, *command, **keys):
    return run("ip", "netns", "exec", f"{TAG}-{host}", *command, **keys)


def until(what, done):
    """Waits for a condition, a minute at most."""
    for _ in range(600):
        found = done()
        if found:
            return found
        time.sleep(0.1)
    sys.exit(f"never came: {what}")


@contextlib.contextmanager
def running(host, *command, log):
    with open(log, "w", encoding="utf-8") as out:
        process = subprocess.Popen(["ip", "netns", "exec", f"{TAG}-{host}", *map(str, command)],
                                   stdout=out, stderr=out)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def is_open(host, port, process, log):
    """Until a server of this host listens: seen there, so no connection crosses for it."""
    def found():
        if process.poll() is not None:
            sys.exit(f"ended with {process.returncode}: {pathlib.Path(log).read_text()}")
        return b"LISTEN" in at(host, "ss", "-Hltn", f"sport = :{port}")
    until(f"port {port}", found)


@contextlib.contextmanager
def sites():
    """The four namespaces."""
    try:
        for host in HOSTS:
            run("ip", "netns", "add", f"{TAG}-{host}")
            run("ip", "-n", f"{TAG}-{host}", "link", "set", "lo", "up")
        for one, other, name, addresses in [
                ("near", "near-gw", "lan", ("10.96.1.1", "10.96.1.254")),
                ("far", "far-gw", "lan", ("10.96.2.1", "10.96.2.254")),
                ("near-gw", "far-gw", "wan", ("10.96.9.1", "10.96.9.2"))]:
            run("ip", "-n", f"{TAG}-{one}", "link", "add", name, "type", "veth",
                "peer", "name", name, "netns", f"{TAG}-{other}")
            for host, address in zip((one, other), addresses):
                run("ip", "-n", f"{TAG}-{host}", "addr", "add", f"{address}/24", "dev", name)
                run("ip", "-n", f"{TAG}-{host}", "link", "set", name, "up")
        for host, number in (("near", 1), ("far", 2)):
            run("ip", "-n", f"{TAG}-{host}", "route", "add", "default", "via",
                f"10.96.{number}.254")
        yield
    finally:
        for host in HOSTS:
            subprocess.run(["ip", "netns", "del", f"{TAG}-{host}"], check=False,
                           stderr=subprocess.DEVNULL)


def status(paceline, place, name):
    return json.loads(run(paceline, "gateway", "status", "--json", "--socket",
                          place / f"{name}.sock"))


@contextlib.contextmanager
def gateways(paceline, place):
    """Both, with a session. A host keeps its address at the other site."""
    run("openssl", "req", "-x509", "-newkey", "ed25519", "-nodes", "-subj", "/CN=far",
        "-keyout", place / "far.key", "-out", place / "far.pem")
    fingerprint = run("openssl", "x509", "-in", place / "far.pem", "-noout", "-fingerprint",
                      "-sha256").decode().split("=")[1].strip()
    run(paceline, "coordinate", "token", place / "token")
    rate = 'rate = { reserve = "400mbit" }\n'

    def site(own, other, peer):
        return (f'[transparent]\ninterface = "lan"\npeer = "{peer}"\nto = ["10.96.{other}.0/24"]\n'
                f'[accept]\nsource = "keep"\nto = ["10.96.{own}.0/24"]\n')
    (place / "far.toml").write_text(
        f'name = "far"\nlisten = "10.96.9.2:7420"\ncertificate = "far.pem"\nkey = "far.key"\n'
        f'token = "token"\ncontrol = "far.sock"\n[peer.near]\n{rate}{site(2, 1, "near")}')
    (place / "near.toml").write_text(
        f'name = "near"\ntoken = "token"\ncontrol = "near.sock"\n[peer.far]\n'
        f'address = "10.96.9.2:7420"\nfingerprint = "{fingerprint}"\n{rate}{site(1, 2, "far")}')
    checked = subprocess.run([str(paceline), "gateway", "check", "--config",
                              str(place / "near.toml")], capture_output=True, text=True,
                             check=False)
    if "this kernel lacks" in checked.stderr:
        print(f"skipped: {checked.stderr.strip()}")
        sys.exit(0)
    with contextlib.ExitStack() as stack:
        for name in ("far", "near"):
            log = place / f"{name}.log"
            process = stack.enter_context(running(
                f"{name}-gw", paceline, "gateway", "serve", "--config", place / f"{name}.toml",
                log=log))

            def is_up(process=process, log=log):
                text = log.read_text(encoding="utf-8")
                if process.poll() is not None:
                    sys.exit(f"gateway: {text}")
                return "connections of hosts" in text
            until(f"gateway {name}", is_up)
        for name, peer in (("near", "far"), ("far", "near")):
            until("a session", lambda name=name, peer=peer:
                  status(paceline, place, name)["peers"][peer])
        yield


@contextlib.contextmanager
def ssh(place, host, address):
    """A server at a host; gives the options of a client that knows it."""
    if not (place / "user").exists():
        for key in ("server", "user"):
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", place / key)
    server_key = (place / "server.pub").read_text()
    with (place / "known").open("a", encoding="utf-8") as known:
        known.write(f"{address} {server_key}")
    pathlib.Path("/run/sshd").mkdir(exist_ok=True)
    config = place / f"sshd-{host}"
    config.write_text(
        f"ListenAddress {address}\nHostKey {place}/server\nAuthorizedKeysFile {place}/user.pub\n"
        "StrictModes no\nPermitRootLogin prohibit-password\nUsePAM no\nPidFile none\n"
        "AllowUsers root\n")
    log = place / f"sshd-{host}.log"
    with running(host, shutil.which("sshd"), "-D", "-e", "-f", config, log=log) as process:
        is_open(host, 22, process, log)
        yield ["-F", "none", "-i", place / "user", "-o", f"UserKnownHostsFile={place}/known",
               "-o", "BatchMode=yes"]


def noise(count, seed):
    return random.Random(seed).randbytes(count)


def test_ssh(place):
    content = noise(8_000_000, 1)
    digest = hashlib.sha256(content).hexdigest()
    with ssh(place, "far", FAR) as options:
        output = at("near", "ssh", *options, f"root@{FAR}", f"tee {place}/copied | sha256sum",
                  input=content).decode()
        assert output.split()[0] == digest, output
        back = at("near", "ssh", *options, f"root@{FAR}", f"cat {place}/copied")
        assert back == content, "other bytes"
        who = at("near", "ssh", *options, f"root@{FAR}", "echo $SSH_CLIENT").decode()
        assert who.split()[0] == NEAR, who
        ended = subprocess.run(["ip", "netns", "exec", f"{TAG}-near", "ssh", *map(str, options),
                                f"root@{FAR}", "exit 7"], check=False, timeout=300)
        assert ended.returncode == 7, ended
    return "8 MB each way, SHA-256 by the far side; exit status 7 comes back"


def test_rsync(place):
    source = place / "tree"
    for number in range(200):
        path = source / f"d{number % 7}" / f"f{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(noise(number * 377, number))
    with ssh(place, "far", FAR) as options:
        shell = "ssh " + " ".join(map(str, options))
        for _ in range(2):
            at("near", "rsync", "-a", "--delete", "-e", shell, f"{source}/",
               f"root@{FAR}:{place}/there/")
            # Its own comparison, by checksum over the same way: nothing to do.
            rest = at("near", "rsync", "-anci", "--delete", "-e", shell, f"{source}/",
                      f"root@{FAR}:{place}/there/")
            assert rest == b"", rest
            # The second time by differences.
            with (source / "d1" / "f197").open("r+b") as file:
                file.seek(30_000)
                file.write(noise(1_000, 9))
            (source / "d2" / "f2").unlink(missing_ok=True)
        at("near", "rsync", "-a", "--delete", "-e", shell, f"root@{FAR}:{place}/there/",
           f"{place}/back/")
    run("diff", "-r", place / "there", place / "back")
    return "200 files there, their changes, and back; --checksum finds no difference"


def test_curl(place):
    served = place / "served"
    served.mkdir()
    served.chmod(0o755)
    names = [f"f{number}" for number in range(20)]
    for number, name in enumerate(names):
        (served / name).write_bytes(noise(500_000 + number, number))
    run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=far",
        "-addext", f"subjectAltName=IP:{FAR}", "-keyout", place / "web.key",
        "-out", place / "web.pem")
    (place / "nginx.conf").write_text(
        f"daemon off;\nmaster_process off;\nuser root;\npid {place}/nginx.pid;\n"
        f"error_log {place}/nginx-error.log;\nevents {{}}\nhttp {{\n access_log off;\n"
        f" client_body_temp_path {place}/nginx-body;\n server {{\n  listen {FAR}:443 ssl http2;\n"
        f"  ssl_certificate {place}/web.pem;\n  ssl_certificate_key {place}/web.key;\n"
        f"  root {served};\n }}\n}}\n")
    log = place / "nginx.log"
    with running("far", "nginx", "-c", place / "nginx.conf", log=log) as process:
        is_open("far", 443, process, log)
        got = place / "got"
        got.mkdir()
        output = at("near", "curl", "--silent", "--show-error", "--fail", "--http2", "--parallel",
                  "--noproxy", "*", "--cacert", place / "web.pem", "--write-out",
                  "%{http_version} %{size_download}\\n", "--remote-name-all",
                  *[f"https://{FAR}/{name}" for name in names], cwd=got).decode()
    lines = sorted(output.split("\n")[:-1])
    expected = sorted(f"2 {500_000 + number}" for number in range(len(names)))
    assert lines == expected, output
    run("diff", "-r", served, got)
    return "20 files at once, HTTP/2 each, whole"


def test_postgresql(place):
    programs = pathlib.Path(POSTGRES[-1])
    # Who runs it must reach it.
    data = pathlib.Path(tempfile.mkdtemp(prefix="plp-pg-"))
    shutil.chown(data, "postgres", "postgres")
    try:
        # Becomes the program, so signals are the program's.
        as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"]
        run(*as_user, programs / "initdb", "--data-checksums",
            "--encoding=UTF8", "--locale=C", "--auth=trust", "-D", data / "db", cwd="/")
        with (data / "db" / "pg_hba.conf").open("a", encoding="utf-8") as file:
            # The server sees the host that connects.
            file.write(f"host all all {NEAR}/32 trust\n")
        log = place / "postgres.log"
        with running("far", *as_user, programs / "postgres", "-D", data / "db", "-h", FAR,
                     "-k", data, log=log) as process:
            is_open("far", 5432, process, log)
            until("recovery", lambda: "ready to accept" in log.read_text())

            def sql(text, **keys):
                return at("near", "psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h",
                          FAR, "-U", "postgres", "-c", text, cwd="/", **keys).decode().strip()
            sql("CREATE TABLE t (n int PRIMARY KEY, text text)")
            rows = "".join(f"{n}\t{hashlib.sha256(str(n).encode()).hexdigest()}\n"
                           for n in range(100_000))
            sql("COPY t FROM STDIN", input=rows.encode())
            there = sql("SELECT md5(string_agg(n || E'\\t' || text || E'\\n', '' ORDER BY n))"
                        " FROM t")
            assert there == hashlib.md5(rows.encode()).hexdigest(), there
            assert sql("SELECT bool_and(text = encode(sha256(n::text::bytea), 'hex')) FROM t") == "t"
            back = sql("COPY (SELECT * FROM t ORDER BY n) TO STDOUT")
            assert back == rows.strip(), "other rows"
            seen = sql("SELECT DISTINCT client_addr FROM pg_stat_activity"
                       " WHERE client_addr IS NOT NULL")
            assert seen == NEAR, seen
    finally:
        shutil.rmtree(data)
    return "100,000 rows by COPY there and back; the server's own SHA-256 of each"


def test_mpi(place):
    (place / "alltoall.c").write_text(MPI)
    run("mpicc.mpich", "-O1", "-o", place / "alltoall", place / "alltoall.c")
    (place / "hosts").write_text(f"{NEAR}:2\n{FAR}:2\n")
    with ssh(place, "far", FAR) as options, ssh(place, "near", NEAR):
        words = " ".join(map(str, options))
        launcher = place / "launch"
        launcher.write_text(f'#!/bin/sh\nexec ssh {words} "$@"\n')
        launcher.chmod(0o755)
        output = at("near", "mpiexec.mpich", "-launcher", "ssh", "-launcher-exec", launcher,
                  "-localhost", NEAR, "-iface", "lan", "-f", place / "hosts", "-n", "4",
                  place / "alltoall").decode()
    assert output == "4 ranks, 0 wrong\n", output
    return "4 ranks at two sites, three all-to-alls of 1 MiB blocks, each word looked at"


def main():
    paceline = pathlib.Path(sys.argv[1] if len(sys.argv) > 1
                            else TOP / "target/release/paceline").resolve()
    wanted = sys.argv[2:] or list(NEEDS)
    if os.geteuid() != 0:
        sys.exit("needs root")
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    tests = []
    for name in wanted:
        missing = [need for need in ["ip", "ss", "nft", "openssl", *NEEDS[name]]
                   if not shutil.which(need)]
        if missing and os.environ.get("CI") == "true":
            sys.exit(f"{name}: not installed: {', '.join(missing)}; in CI it must be")
        if missing:
            print(f"skipped: {name}: not installed: {', '.join(missing)}")
        else:
            tests.append(name)
    for name in tests:
        # sshd and MPI's launcher take no long paths.
        with tempfile.TemporaryDirectory(prefix="plp") as place, sites():
            place = pathlib.Path(place)
            place.chmod(0o711)
            with gateways(paceline, place):
                begun = time.monotonic()
                what = globals()[f"test_{name}"](place)
                took = time.monotonic() - begun

                def counts():
                    return [status(paceline, place, site)["transparent"] for site in ("near", "far")]
                near, far = counts()
                assert near["connect"] == "honest" and near["taken"] >= 1, near
                assert near["failed"] == 0 and near["loops"] == 0, near
                print(f"ok: {name}: {what} ({took:.1f} s; connections: {near['taken']} from the "
                      f"near site, {far['taken']} from the far one)", flush=True)


main()

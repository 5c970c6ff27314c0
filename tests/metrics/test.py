#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Agent, coordinator and gateway under a real Prometheus: promtool's verdict on their pages and
of the alert rules, whether Prometheus takes the pages, and whether each query of the dashboard
and each alert's expression is answered by it. Needs root, and prometheus with promtool;
argument: the paceline to test (default target/release/paceline)."""

import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
CONTRIB = TOP / "contrib"
OPEN_METRICS = "application/openmetrics-text; version=1.0.0"
# All series that a quiet, and later a working, fleet shows.
AGENT = ["paceline_jobs", "paceline_connections", "paceline_agent_jobs_started_total",
         "paceline_connections_governed_total", "paceline_acked_bytes_total",
         "paceline_bursts_total", "paceline_sent_segments_total"]


def until(what, done):
    """Waits for a condition, a minute at most."""
    for _ in range(600):
        found = done()
        if found:
            return found
        time.sleep(0.1)
    sys.exit(f"never came: {what}")


def get(address, accept="*/*"):
    request = urllib.request.Request(address, headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


@contextlib.contextmanager
def running(command, log):
    with open(log, "w", encoding="utf-8") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def served(process, log):
    def found():
        text = pathlib.Path(log).read_text(encoding="utf-8")
        if process.poll() is not None:
            sys.exit(f"{log}: ended with {process.returncode}: {text}")
        return re.search(r"^metrics at (http\S+)$", text, re.M)
    return until(f"metrics in {log}", found).group(1)


def promtool(*arguments, **keys):
    done = subprocess.run(["promtool", *map(str, arguments)], text=True, capture_output=True, **keys)
    if done.returncode or "lint" in done.stderr:
        sys.exit(f"promtool {' '.join(map(str, arguments))}: {done.stdout}{done.stderr}")


def check_page(name, address):
    kind, text = get(address)
    assert kind.startswith("text/plain; version=0.0.4"), kind
    promtool("check", "metrics", input=text)
    kind, text = get(address, OPEN_METRICS)
    assert kind.startswith(OPEN_METRICS), kind
    assert text.endswith("# EOF\n"), text[-200:]
    documented = (TOP / "docs/metrics.md").read_text(encoding="utf-8")
    for metric in re.findall(r"^# TYPE (\S+)", get(address)[1], re.M):
        assert f"`{metric}`" in documented, f"docs/metrics.md lacks {metric} of the {name}"
    print(f"{name}: {len(text.splitlines())} lines, promtool has no objection")


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def gateways(paceline, place):
    """Two sites on this host; returns the file of the far one."""
    subprocess.run([paceline, "coordinate", "token", place / "token"], check=True)
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                    "-days", "2", "-subj", "/CN=paceline", "-addext", "subjectAltName=DNS:paceline",
                    "-keyout", place / "far.key", "-out", place / "far.pem"], check=True, capture_output=True)
    os.chmod(place / "far.key", 0o600)
    shown = [paceline, "coordinate", "fingerprint", place / "far.pem"]
    fingerprint = subprocess.run(shown, check=True, capture_output=True, text=True).stdout.strip()
    port = free_port()
    (place / "far.toml").write_text(
        f'name = "far"\nlisten = "127.0.0.1:{port}"\ncontrol = "{place}/far.sock"\ntoken = "{place}/token"\n'
        f'certificate = "{place}/far.pem"\nkey = "{place}/far.key"\n[peer.near]\nrate.reserve = "10mbit"\n')
    (place / "near.toml").write_text(
        f'name = "near"\ncontrol = "{place}/near.sock"\ntoken = "{place}/token"\n[peer.far]\n'
        f'address = "127.0.0.1:{port}"\nfingerprint = "{fingerprint}"\nrate.reserve = "10mbit"\n')
    return place / "far.toml"


def query(base, expression):
    url = f"{base}/api/v1/query?" + urllib.parse.urlencode({"query": expression})
    with urllib.request.urlopen(url, timeout=30) as answer:
        found = json.load(answer)
    assert found["status"] == "success", (expression, found)
    return found["data"]["result"]


def main():
    paceline = sys.argv[1] if len(sys.argv) > 1 else str(TOP / "target/release/paceline")
    paceline = str(pathlib.Path(paceline).resolve())
    print("== rules")
    promtool("check", "rules", CONTRIB / "prometheus/paceline.rules.yml")
    promtool("test", "rules", CONTRIB / "prometheus/paceline.rules.test.yml")
    promtool("check", "config", CONTRIB / "prometheus/prometheus.yml")
    if os.geteuid() != 0:
        print("skipped: the services need root")
        return
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        place = pathlib.Path(name)
        (place / "agent.toml").write_text('groups = ["nogroup"]\npolicies = ["lfn", "pace"]\n')
        far = gateways(paceline, place)
        start = {
            "agent": ["--verbose", "agent", "--config", place / "agent.toml", "--directory", place / "agent"],
            "coordinator": ["coordinate", "serve", "--listen", place / "coordinator.sock"],
            "gateway": ["gateway", "serve", "--config", place / "near.toml"],
        }
        stack.enter_context(running([paceline, "gateway", "serve", "--config", far], place / "far.log"))
        pages = {}
        for service, words in start.items():
            log = place / f"{service}.log"
            command = [paceline, *map(str, words), "--metrics", "127.0.0.1:0"]
            pages[service] = served(stack.enter_context(running(command, log)), log)

        print("== pages")
        until("a session of the gateways",
              lambda: 'paceline_gateway_peer_connected{peer="far"} 1' in get(pages["gateway"])[1])
        for service, address in pages.items():
            check_page(service, address)

        print("== a job, as Prometheus sees it")
        hosts = {service: urllib.parse.urlsplit(address).netloc for service, address in pages.items()}
        scrapes = [{"job_name": f"paceline-{service}", "static_configs": [{"targets": [host]}]}
                   for service, host in hosts.items()]
        # JSON is YAML.
        (place / "prometheus.yml").write_text(json.dumps({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(CONTRIB / "prometheus/paceline.rules.yml")], "scrape_configs": scrapes}))
        port = free_port()
        base = f"http://127.0.0.1:{port}"
        command = ["prometheus", f"--config.file={place}/prometheus.yml", f"--storage.tsdb.path={place}/data",
                   f"--web.listen-address=127.0.0.1:{port}"]
        prometheus = stack.enter_context(running(command, place / "prometheus.log"))

        def ready():
            if prometheus.poll() is not None:
                sys.exit((place / "prometheus.log").read_text())
            with contextlib.suppress(OSError):
                return get(f"{base}/-/ready")
        until("Prometheus", ready)
        until("a scrape of all services", lambda: len(query(base, 'up{job=~"paceline-.*"} == 1')) == len(pages))

        # A job with a connection to another host: a namespace of its own.
        job = stack.enter_context(running(
            ["unshare", "--net", "sh", "-c", "ip link set lo up && exec sleep 600"], place / "other.log"))
        pid = job.pid
        until("a namespace", lambda: os.readlink(f"/proc/{pid}/ns/net") != os.readlink("/proc/self/ns/net"))
        link = f"plm{os.getpid() % 100000}"
        subprocess.run(["ip", "link", "add", link, "type", "veth", "peer", "name", "peer0", "netns", str(pid)], check=True)
        stack.callback(subprocess.run, ["ip", "link", "del", link], stderr=subprocess.DEVNULL)
        subprocess.run(["ip", "addr", "add", "10.98.77.1/30", "dev", link], check=True)
        subprocess.run(["ip", "link", "set", link, "up"], check=True)
        subprocess.run(["nsenter", f"--net=/proc/{pid}/ns/net", "sh", "-c",
                        "ip addr add 10.98.77.2/30 dev peer0; ip link set peer0 up"], check=True)
        echo = ("import socket,threading\ns=socket.create_server(('10.98.77.2',7000))\n"
                "def take(c):\n while c.recv(65536): pass\n"
                "while True: threading.Thread(target=take,args=(s.accept()[0],),daemon=True).start()\n")
        stack.enter_context(running(
            ["nsenter", f"--net=/proc/{pid}/ns/net", "python3", "-c", echo], place / "echo.log"))
        client = ("import socket,time\n"
                  "while True:\n"
                  " try: c=socket.create_connection(('10.98.77.2',7000)); break\n"
                  " except OSError: time.sleep(0.1)\n"
                  "while True: c.sendall(b'x'*100000); time.sleep(0.1)\n")
        run = ["setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups", "--", paceline, "run",
               "--agent", str(place / "agent"), "--policy", "lfn", "--", "python3", "-c", client]
        os.chmod(place, 0o755)
        with running(run, place / "run.log"):
            for metric in AGENT:
                until(metric, lambda m=metric: any(float(s["value"][1]) > 0 for s in query(base, m)))
            found = query(base, "paceline_jobs")
            assert [s["metric"]["policy"] for s in found] == ["lfn"], found
            refused = subprocess.run([*run[:run.index("lfn")], "beowulf", "--", "true"], capture_output=True, text=True)
            assert refused.returncode == 125, refused
            until("a refusal", lambda: query(base, 'paceline_agent_requests_refused_total{code="policy"} == 1'))
            check_page("agent with a job", pages["agent"])
        # The counts of the ended job stay.
        until("no job", lambda: not query(base, "paceline_jobs"))
        assert float(query(base, "paceline_connections_governed_total")[0]["value"][1]) == 1
        until("its end", lambda: query(base, "paceline_agent_jobs_ended_total == 1"))

        print("== each query of the dashboard, each alert")
        dashboard = json.loads((CONTRIB / "grafana/paceline.json").read_text(encoding="utf-8"))
        queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
        shown = 0
        for expression in queries:
            expression = expression.replace("$instance", ".*").replace("$__rate_interval", "1m")
            for metric in set(re.findall(r"paceline_\w+", expression)):
                # A name with a spelling mistake is answered by nothing at all.
                documented = (TOP / "docs/metrics.md").read_text(encoding="utf-8")
                assert f"`{metric}`" in documented, f"the dashboard asks for {metric}"
            shown += bool(query(base, expression))
        assert shown > len(queries) // 2, f"{shown} of {len(queries)} queries show anything"
        rules = json.loads(get(f"{base}/api/v1/rules")[1])["data"]["groups"][0]["rules"]
        until("the rules' evaluation", lambda: all(
            rule["health"] == "ok"
            for rule in json.loads(get(f"{base}/api/v1/rules")[1])["data"]["groups"][0]["rules"]))
        print(f"{len(queries)} queries, of which {shown} show something; {len(rules)} rules are evaluated")
    print("all of it holds")


if __name__ == "__main__":
    main()

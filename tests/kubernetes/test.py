#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The Kubernetes manifests against the schemas of Kubernetes, the chart against the manifest
that is made from it, and the program that puts pods under policies against cgroups as kubelet
makes them and an API server of its own. Argument: the paceline to test.

There is no kubelet here: that a real one starts the DaemonSet is not tested."""

import http.server
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import uuid

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
KUBERNETES = TOP / "packaging/kubernetes"
MANIFEST = KUBERNETES / "paceline.yaml"
NODE = "node-1"


def check(held, what):
    if not held:
        sys.exit(f"FAILED: {what}")


def until(condition, what):
    for _ in range(600):
        if condition():
            return
        time.sleep(0.1)
    sys.exit(f"FAILED: after a minute: {what}")


def manifests():
    helm, other = shutil.which("helm"), None
    if importlib.util.find_spec("yaml") is None:
        print("skipped: python3-yaml is not installed: the manifests are not read")
        return
    import yaml
    if helm:
        # Without its version helm takes the Kubernetes that it was built for, or 1.20.
        cluster = ["--kube-version", "1.25.0"]
        render = [helm, "template", "paceline", KUBERNETES / "chart", *cluster]
        rendered = subprocess.run([*render, "--namespace", "kube-system"],
                                  check=True, capture_output=True, text=True).stdout
        made, committed = [[document for document in yaml.safe_load_all(text) if document]
                           for text in (rendered, MANIFEST.read_text())]
        check(made == committed, f"{MANIFEST} is not what helm template makes of the chart")
        subprocess.run([helm, "lint", "--strict", *cluster, KUBERNETES / "chart"], check=True)
        refused = subprocess.run([*render, "--set", "policies[0]=a b"], capture_output=True, text=True)
        check(refused.returncode != 0 and "policies" in refused.stderr, "a wrong policy name is accepted")
        # Every value, each another than its default.
        values = {"image": {"repository": "registry.example/paceline", "tag": "9", "pullPolicy": "Always"}, "policies": ["pace"],
                  "seconds": 0.5, "metrics": {"port": 1}, "nodeSelector": {"pool": "hpc"},
                  "tolerations": [{"operator": "Exists"}], "resources": {"limits": {"memory": "1Gi"}}}
        text = subprocess.run([*render, "--values", "-"], input=json.dumps(values), check=True, capture_output=True, text=True).stdout
        other = [document for document in yaml.safe_load_all(text) if document]
        containers = other[-1]["spec"]["template"]["spec"]["containers"]
        check("--policies=pace" in containers[1]["args"] and "127.0.0.1:1" in containers[0]["args"], containers)
        print("ok: the chart gives the manifest")
    else:
        print("skipped: helm is not installed: the chart is not rendered")
    if importlib.util.find_spec("kubernetes_validate") is None:
        print("skipped: kubernetes-validate (PyPI) is not installed: the manifests are not checked")
        return
    import kubernetes_validate
    version = kubernetes_validate.latest_version()
    kinds = []
    for path in (MANIFEST, KUBERNETES / "example.yaml"):
        for document in filter(None, yaml.safe_load_all(path.read_text())):
            kubernetes_validate.validate(document, version, strict=True)
            kinds.append(document["kind"])
    for document in other or []:
        kubernetes_validate.validate(document, version, strict=True)
    check(kinds == ["ServiceAccount", "ClusterRole", "ClusterRoleBinding", "DaemonSet", "Job"], kinds)
    wrong = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a", "nmae": "b"}}
    try:
        kubernetes_validate.validate(wrong, version, strict=True)
    except kubernetes_validate.ValidationError:
        print(f"ok: kubernetes-validate --strict, Kubernetes {version}: {', '.join(kinds)}")
    else:
        sys.exit("FAILED: kubernetes-validate accepts an unknown key")


class Pods(http.server.BaseHTTPRequestHandler):
    """An API server with the pods of one node."""

    listed = []
    asked = []

    def do_GET(self):
        Pods.asked.append((self.path, self.headers.get("Authorization")))
        body = json.dumps({"kind": "PodList", "items": Pods.listed}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def pod(uid, name, policy=None, phase="Running"):
    annotations = {"paceline.dev/policy": policy} if policy else {}
    return {"metadata": {"uid": uid, "namespace": "default", "name": name, "annotations": annotations},
            "status": {"phase": phase}}


def hierarchy():
    for line in pathlib.Path("/proc/mounts").read_text().splitlines():
        fields = line.split()
        if fields[2] == "cgroup2":
            return pathlib.Path(fields[1])
    return None


def attached(paceline, below):
    status = json.loads(subprocess.run([paceline, "status", "--json"], check=True, capture_output=True).stdout)
    return {pathlib.Path(job["cgroup"]): job["policy"] for job in status["jobs"]
            if job["attached"] and (job["cgroup"] or "").startswith(f"{below}/")}


def in_cgroup(path, *command):
    return subprocess.Popen(["sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', path, *command],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def pods(paceline):
    mount = hierarchy()
    if os.geteuid() != 0 or mount is None:
        print("skipped: pods and their cgroups need root and cgroup v2")
        return
    top = mount / f"paceline-kubernetes-{os.getpid()}"
    uids = [str(uuid.uuid4()) for _ in range(4)]
    # As kubelet's driver for systemd makes them, and its driver cgroupfs.
    systemd = [top / "kubepods.slice" / f"kubepods-pod{uids[0].replace('-', '_')}.slice",
               top / "kubepods.slice/kubepods-burstable.slice" / f"kubepods-burstable-pod{uids[1].replace('-', '_')}.slice"]
    plain = [top / f"kubepods/besteffort/pod{uid}" for uid in uids[2:]]
    places = systemd + plain
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pods)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    account = pathlib.Path(tempfile.mkdtemp(prefix="paceline-account-"))
    (account / "token").write_text("secret\n")
    log = account / "log"
    children = []
    try:
        for place in places:
            # A container's cgroup is below its pod's.
            (place / "container").mkdir(parents=True)
        for place in places:
            children.append(in_cgroup(place / "container", "cat"))
        Pods.listed = [pod(uids[0], "asks", "lfn"), pod(uids[1], "asks-not"), pod(uids[2], "wrong", "mine"),
                       pod(uids[3], "other", "pace"), pod(str(uuid.uuid4()), "no-cgroup", "lfn"),
                       pod("../../etc", "strange", "lfn")]
        command = [sys.executable, KUBERNETES / "paceline_pods.py", "--node", NODE, "--cgroups", top, "--paceline", paceline,
                   "--api", f"http://127.0.0.1:{server.server_port}", "--account", account, "--seconds", "0.2",
                   "--policies", "lfn,pace"]

        def start():
            with open(log, "a") as out:
                children.append(subprocess.Popen(command, stderr=out))
            return children[-1]

        first = start()
        wanted = {places[0]: "lfn", places[3]: "pace"}
        until(lambda: attached(paceline, top) == wanted, f"{attached(paceline, top)}, not {wanted}: {log.read_text()}")
        until(lambda: "default/wrong: policy 'mine' is not allowed: use one of lfn, pace" in log.read_text(), log.read_text())
        check(Pods.asked[0] == (f"/api/v1/pods?fieldSelector=spec.nodeName%3D{NODE}", "Bearer secret"), Pods.asked[0])
        print("ok: pods have the policies that they ask for")

        # It is killed, and its successor finds the attached policies.
        first.kill()
        first.wait()
        asked = len(Pods.asked)
        second = start()
        until(lambda: len(Pods.asked) > asked + 2, "the successor does not ask")
        check(attached(paceline, top) == wanted, attached(paceline, top))
        check(log.read_text().count("default/asks: policy lfn") == 1, log.read_text())

        # Annotations change, and pods end.
        Pods.listed = [pod(uids[0], "asks", "pace"), pod(uids[1], "asks-not", "lfn"), pod(uids[3], "other")]
        wanted = {places[0]: "pace", places[1]: "lfn"}
        until(lambda: attached(paceline, top) == wanted, f"{attached(paceline, top)}, not {wanted}: {log.read_text()}")
        children[0].stdin.close()
        children[0].wait()
        (places[0] / "container").rmdir()
        places[0].rmdir()
        until(lambda: attached(paceline, top) == {places[1]: "lfn"}, attached(paceline, top))
        print("ok: policies follow annotations, and end with their pods")

        second.terminate()
        check(second.wait(60) == 0, f"it ended with {second.returncode}")
        check("Traceback" not in log.read_text(), log.read_text())
        print("ok: it ends at once, and what it attached stays")
        subprocess.run([paceline, "detach", "--cgroup", places[1]], check=True)
    finally:
        for child in children:
            if child.stdin:
                child.stdin.close()
            child.kill()
            child.wait()
        for path, _, _ in os.walk(top, topdown=False):
            pathlib.Path(path).rmdir()
        server.shutdown()
        shutil.rmtree(account)
        subprocess.run([paceline, "status"], check=True, stdout=subprocess.DEVNULL)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    manifests()
    pods(os.path.realpath(sys.argv[1]))
    print("all held")


main()

#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Puts the pods of this node under the policies that their annotation asks for.

A pod with the annotation `paceline.dev/policy: NAME` gets the policy NAME for all its
containers, by `paceline attach` on the pod's cgroup: connections that exist are adopted. The
pods are read from the API server, those of this node alone, again every few seconds; the
cgroup is found by the pod's UID. A pod that ends takes its cgroup with it, and the policy ends.
A pod without the annotation, or with "none", is left alone, and an annotation that goes takes
the policy away.

What the annotation may name is listed by the administrator: --policies.
"""

import argparse
import json
import os
import pathlib
import re
import signal
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request

ANNOTATION = "paceline.dev/policy"
ACCOUNT = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount")
# As kubelet writes a UID: in systemd's slices with _ for -.
UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
LONGEST_ANSWER = 256 << 20


def log(text):
    print(f"paceline-pods: {text}", file=sys.stderr, flush=True)


def api_server():
    """Its address from inside of a pod."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        sys.exit("paceline-pods: KUBERNETES_SERVICE_HOST is not set: this runs in a pod, or name the server by --api")
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def pods_of(api, node, account):
    """The pods of a node that run: [(UID, namespace/name, policy or None)]."""
    query = urllib.parse.urlencode({"fieldSelector": f"spec.nodeName={node}"})
    request = urllib.request.Request(f"{api}/api/v1/pods?{query}", headers={"Accept": "application/json"})
    token, authority = account / "token", account / "ca.crt"
    if token.exists():
        # Anew each time: it is exchanged before it expires.
        request.add_header("Authorization", "Bearer " + token.read_text().strip())
    context = ssl.create_default_context(cafile=authority) if api.startswith("https:") else None
    with urllib.request.urlopen(request, timeout=30, context=context) as answer:
        listed = json.loads(answer.read(LONGEST_ANSWER))
    found = []
    for pod in listed["items"]:
        meta = pod["metadata"]
        if pod.get("status", {}).get("phase") in ("Succeeded", "Failed") or not UID.fullmatch(meta["uid"]):
            continue
        policy = (meta.get("annotations") or {}).get(ANNOTATION, "none")
        found.append((meta["uid"], f"{meta['namespace']}/{meta['name']}", None if policy == "none" else policy))
    return found


def cgroups(root):
    """The pods' cgroups by UID, of kubelet's drivers systemd and cgroupfs."""
    found = {}
    for top in ("kubepods.slice", "kubepods"):
        # Below it, or a class of service below that.
        for pattern in (f"{top}/*", f"{top}/*/*"):
            for path in root.glob(pattern):
                name = re.search(r"pod([0-9a-f_-]{36})(\.slice)?$", path.name)
                if name and path.is_dir():
                    found[name[1].replace("_", "-")] = path
    return found


class Node:
    """What has been done on this node."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.policies = arguments.policies.split(",")
        # What each UID has, or was refused, with the cgroup that it was done to.
        self.done = {}
        self.begin()

    def paceline(self, *words):
        return subprocess.run([self.arguments.paceline, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL)

    def begin(self):
        """Finds the pods that a former one has attached: they keep their policy meanwhile."""
        status = self.paceline("status", "--json")
        if status.returncode != 0:
            sys.exit(f"paceline-pods: paceline status: {status.stderr.strip()}")
        policies = {job["cgroup"]: job["policy"] for job in json.loads(status.stdout)["jobs"] if job["attached"]}
        for uid, path in cgroups(self.arguments.cgroups).items():
            if str(path) in policies:
                self.done[uid] = (path, policies[str(path)], True)

    def settle(self, pods):
        """Applies the policies that the pods request. Returns whether all were applied."""
        paths, complete = cgroups(self.arguments.cgroups), True
        asked = {uid: (name, policy) for uid, name, policy in pods}
        for uid in [uid for uid in self.done if uid not in paths]:
            del self.done[uid]
        for uid, (name, policy) in asked.items():
            path = paths.get(uid)
            if path is None:
                # Not made yet, or gone already.
                complete = complete and policy is None
                continue
            _, has, attached = self.done.get(uid, (path, None, False))
            if has == policy:
                continue
            if attached:
                self.paceline("detach", "--cgroup", str(path))
            self.done[uid] = (path, policy, policy is not None and self.attach(name, path, policy))
        return complete

    def attach(self, name, path, policy):
        if policy not in self.policies:
            log(f"pod {name}: policy {policy!r} is not allowed: use one of {', '.join(self.policies)}")
            return False
        attached = self.paceline("attach", "--cgroup", str(path), "--policy", policy)
        if attached.returncode != 0:
            log(f"pod {name}: {attached.stderr.strip()}")
            return False
        log(f"pod {name}: policy {policy}")
        return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--node", default=os.environ.get("NODE_NAME"), help="name of this node [default: $NODE_NAME]")
    parser.add_argument("--policies", default="lfn,pace,standard,rto", help="names that the annotation may have, with commas")
    parser.add_argument("--api", help="address of the API server [default: that of the cluster]")
    parser.add_argument("--account", type=pathlib.Path, default=ACCOUNT, help="directory with token and ca.crt")
    parser.add_argument("--cgroups", type=pathlib.Path, default=pathlib.Path("/sys/fs/cgroup"), help="the host's cgroup v2 mount")
    parser.add_argument("--paceline", default="paceline", help="the program")
    parser.add_argument("--seconds", type=float, default=2, help="between two looks at the pods")
    parser.add_argument("--once", action="store_true", help="look once; exits with 1 if a pod waits for its cgroup")
    arguments = parser.parse_args()
    if not arguments.node:
        sys.exit("paceline-pods: which node is this? Set NODE_NAME (fieldRef spec.nodeName), or --node")
    api = arguments.api or api_server()
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    node, silent = Node(arguments), False
    while not over.is_set():
        complete = False
        try:
            complete = node.settle(pods_of(api, arguments.node, arguments.account))
            silent = False
        except (urllib.error.URLError, OSError, ValueError, KeyError) as error:
            # Pods keep their policies.
            if not silent:
                log(f"cannot read the pods of {arguments.node} from {api}: {error}")
            silent = True
        if arguments.once:
            sys.exit(0 if complete else 1)
        over.wait(arguments.seconds)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0 OR MIT
"""paceline.torch with real PyTorch: two ranks of Gloo in two network namespaces, one of them a
job, whose classes and connections `paceline status` must show.

    test.py PACELINE [PYTHON]    as root; exit status 77: there is no PyTorch

The module and the library are those of the wheel, which it builds.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
NEVER = 300  # seconds; what does not come by then never comes


def ip(*words):
    subprocess.run(["ip", *words], check=True)


def wheel(python, library, place):
    """Installs the wheel, which it builds, below `place`."""
    source = os.path.join(place, "source")
    # No file of the build is left in the repository.
    subprocess.run(["cp", "-r", os.path.join(ROOT, "python"), source], check=True)
    environment = dict(os.environ, PACELINE_WHEEL_LIBRARY=library)
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", place, source], check=True, env=environment)
    built = [name for name in os.listdir(place) if name.endswith(".whl")]
    assert len(built) == 1 and "-py3-none-linux_" in built[0], built
    target = os.path.join(place, "installed")
    subprocess.run([*pip, "install", "--no-deps", "--target", target, os.path.join(place, built[0])], check=True)
    return target


def main(paceline, python):
    if subprocess.run([python, "-c", "import torch.distributed"], capture_output=True).returncode != 0:
        print(f"skipped: {python} has no PyTorch")
        return 77
    library = os.path.join(os.path.dirname(os.path.realpath(paceline)), "libpaceline.so")
    names = [f"pltorch-{os.getpid()}-{side}" for side in "ab"]
    ranks = []
    with tempfile.TemporaryDirectory() as place:
        module = wheel(python, library, place)
        try:
            for name in names:
                ip("netns", "add", name)
                ip("-n", name, "link", "set", "lo", "up")
            ip("-n", names[0], "link", "add", "ve0", "type", "veth", "peer", "name", "ve0", "netns", names[1])
            for rank, name in enumerate(names):
                ip("-n", name, "addr", "add", f"10.97.0.{rank + 1}/24", "dev", "ve0")
                ip("-n", name, "link", "set", "ve0", "up")
            for rank, name in enumerate(names):
                environment = dict(
                    os.environ, MASTER_ADDR="10.97.0.1", MASTER_PORT="29500", RANK=str(rank), WORLD_SIZE="2",
                    GLOO_SOCKET_IFNAME="ve0", PYTHONPATH=module, OMP_NUM_THREADS="1",
                )
                environment.pop("PACELINE_LIBRARY", None)
                job = [paceline, "run", "--policy", "lfn", "--"] if rank == 0 else []
                ranks.append(subprocess.Popen(
                    ["nsenter", f"--net=/run/netns/{name}", *job, python, os.path.join(HERE, "rank.py")],
                    env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                ))
            counts = []
            for rank in ranks:
                line = rank.stdout.readline()
                assert line, "a rank failed"
                counts.append(json.loads(line))
            check(paceline, counts)
            for rank in ranks:
                rank.stdin.close()
                assert rank.wait(NEVER) == 0
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()
            for name in names:
                subprocess.run(["ip", "netns", "del", name], check=False)
    return 0


def check(paceline, counts):
    assert counts[0]["active"] is True, "the rank in the job is not active"
    assert counts[1]["active"] is False, "the other rank is in no job"
    classes = {kind: str(number) for kind, number in counts[0]["classes"].items()}
    assert set(classes) == {"all_reduce", "all_gather", "all_to_all"}, classes
    deadline = time.monotonic() + NEVER
    while True:
        status = json.loads(subprocess.run([paceline, "status", "--json"], check=True, capture_output=True).stdout)
        jobs = [job for job in status["jobs"] if any(c["remote"].startswith("10.97.0.2:") for c in job["connections"])]
        shown = [process["phases"] for job in jobs for process in job["processes"] if "phases" in process]
        switches = sum(c["phase_switches"] for job in jobs for c in job["connections"])
        # A future's callback may come after its wait().
        if shown and shown[0]["class"] == 0 and switches > 0:
            break
        assert time.monotonic() < deadline, (shown, switches)
        time.sleep(0.05)
    entered = shown[0]["entered"]
    assert entered[classes["all_reduce"]] == counts[0]["steps"], entered
    assert entered[classes["all_gather"]] == counts[0]["gathers"], entered
    assert entered[classes["all_to_all"]] == counts[0]["exchanges"], entered
    print(f"entered {entered}, classes {classes}, {switches} switches of connections")


if __name__ == "__main__":
    # What it made goes away then, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "/usr/bin/python3"))

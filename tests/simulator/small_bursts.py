#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Small bursts into short queues, drawn at random, on the virtual backend: what the
simulator is held against (tests/lab/simulated.rs). 15 to 60 KB from each of 1 to 16
connections, every 20 to 250 ms, into queues of 8 to 30 packets. Cells whose run is void
(exit status 3) are drawn again, and counted.

    tests/simulator/small_bursts.py --paceline target/release/paceline --cells 30 \\
        --seed 7 --out docs/results/small-bursts/cells.csv
"""

import argparse
import csv
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import time

TEMPLATE = pathlib.Path(__file__).with_name("small-bursts.toml")
PACKET_BYTES = 1538  # framing included
VOID = 3
COLUMNS = ("connections", "kilobytes", "gap_ms", "queue_bytes", "rate_mbit", "delay_us")


def draw(chance):
    connections = chance.choice((1, 2, 4, 8, 16))
    return {
        "connections": connections,
        "kilobytes": connections * chance.randint(15, 60),
        "gap_ms": chance.randint(20, 249),
        "queue_bytes": chance.randint(8, 30) * PACKET_BYTES,
        "rate_mbit": chance.choice((20, 50, 100, 200, 500)),
        "delay_us": chance.choice((500, 2000, 5000, 10000, 20000)),
    }


def measured(paceline, cell):
    """Medians in seconds by variant; None if the run is void."""
    text = TEMPLATE.read_text()
    for column in COLUMNS:
        text = text.replace(f"@{column.upper()}@", str(cell[column]))
    with tempfile.TemporaryDirectory() as place:
        file, out = pathlib.Path(place, "cell.toml"), pathlib.Path(place, "out")
        file.write_text(text)
        command = [paceline, "lab", "run", file, "--backend", "virtual", "--out", out]
        run = subprocess.run(command, capture_output=True, text=True)
        if run.returncode == VOID:
            return None
        if run.returncode != 0:
            sys.exit(f"{cell}: exit status {run.returncode}\n{run.stderr}")
        variants = json.loads((out / "results.json").read_text())["variants"]
    of = lambda metrics: next(m["median"] for name, m in metrics.items() if name.startswith("completion_s"))
    return {f"{name}_s": of(metrics) for name, metrics in variants.items()}


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--paceline", default="target/release/paceline")
    options.add_argument("--cells", type=int, default=30)
    options.add_argument("--seed", type=int, default=7)
    options.add_argument("--out", type=pathlib.Path, required=True)
    options = options.parse_args()
    chance, done, void, began = random.Random(options.seed), 0, 0, time.monotonic()
    with options.out.open("w", newline="") as file:
        rows = csv.DictWriter(file, (*COLUMNS, "cubic_s", "paceline_s"), lineterminator="\n")
        rows.writeheader()
        while done < options.cells:
            cell = draw(chance)
            times = measured(options.paceline, cell)
            if times is None:
                void += 1
                continue
            done += 1
            rows.writerow(cell | times)
            file.flush()
            left = (time.monotonic() - began) / done * (options.cells - done)
            print(f"{done} of {options.cells} cells, {void} void, about {left:.0f} s to go", file=sys.stderr, flush=True)


main()

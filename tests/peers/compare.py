#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The simulator beside ns-3: compare.py NS3-TABLE.md SIM-RESULTS.json, a Markdown table.

The second file is made by `paceline sim sweep tests/peers/ns3-dumbbell.toml`."""
import json
import sys

peer = {}
for line in open(sys.argv[1]):
    cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
    if cells[0] in ("newreno", "udp"):
        values = [float(cell.split()[0]) for cell in cells[4:8]]
        peer[cells[0], cells[1], int(cells[2])] = (int(cells[3]), values)

print("| transport | clients | seeds of ns-3 | throughput, Mbit/s | loss, % | c.o.v., whole | c.o.v., from 20 s |")
print("|---|---|---|---|---|---|---|")
variants = json.load(open(sys.argv[2]))["variants"]
for (transport, queue, clients), (seeds, theirs) in peer.items():
    metrics = variants.get(f"{transport}-{queue}")
    if metrics is None:
        continue

    def mean(name):
        runs = metrics[f"{name}/{clients}"]["runs"]
        return sum(runs) / len(runs)

    ours = [mean("goodput_bps") / 1e6, mean("loss_share") * 100, mean("cov"), mean("steady_cov")]
    cells = []
    for digits, mine, other in zip((2, 3, 4, 4), ours, theirs):
        off = f" ({(mine / other - 1) * 100:+.1f} %)" if other else ""
        cells.append(f"{mine:.{digits}f}, ns-3 {other:.{digits}f}{off}")
    print(f"| {transport}, {queue} | {clients} | {seeds} | " + " | ".join(cells) + " |")

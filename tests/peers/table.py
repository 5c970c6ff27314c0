# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The runs of ns3.sh as a table: means over the seeds, with their standard deviation."""

import json
import statistics
import sys

COLUMNS = [
    ("throughput, Mbit/s", lambda run: run["throughput_bps"] / 1e6, 2),
    ("loss, %", lambda run: run["loss"] * 100, 3),
    ("c.o.v., whole", lambda run: run["cov_whole"], 4),
    ("c.o.v., from 20 s", lambda run: run["cov_steady"], 4),
    ("over Poisson, from 20 s", lambda run: run["cov_steady"] / run["poisson_cov"], 2),
    ("time-outs", lambda run: run["timeouts"], 0),
]


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        runs = [json.loads(line) for line in file]
    cases = {}
    for run in runs:
        cases.setdefault((run["transport"], run["queue"], run["clients"]), []).append(run)
    heading = ["transport", "queue", "clients", "seeds"]
    heading += [name for name, _, _ in COLUMNS]
    heading += ["transmissions, million", "wall, s (least)", "CPU, s (least)", "CPU us per transmission"]
    print("| " + " | ".join(heading) + " |")
    print("|" + "---|" * len(heading))
    for (transport, queue, clients), case in sorted(cases.items()):
        cells = [transport, queue, str(clients), str(len(case))]
        for _, value, digits in COLUMNS:
            values = [value(run) for run in case]
            mean = f"{statistics.mean(values):.{digits}f}"
            # One seed does not show the spread over seeds.
            if len(values) > 1:
                mean += f" ± {statistics.stdev(values):.{digits}f}"
            cells.append(mean)
        fastest = min(case, key=lambda run: run["cpu_s"] / run["transmissions"])
        sent = statistics.mean(run["transmissions"] for run in case)
        cells.append(f"{sent / 1e6:.3f}")
        cells.append(f"{min(run['wall_s'] for run in case):.2f}")
        cells.append(f"{min(run['cpu_s'] for run in case):.2f}")
        cells.append(f"{fastest['cpu_s'] / fastest['transmissions'] * 1e6:.2f}")
        print("| " + " | ".join(cells) + " |")


main()

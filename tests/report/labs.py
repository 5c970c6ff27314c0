#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Whether `paceline report` is right: its estimates from held-out bursts, against the
difference between separate runs, in virtual labs drawn at random.

    tests/report/labs.py --paceline target/release/paceline --labs 20 --seed 1 --out DIR

Each lab is a path and a list of bursts, both drawn. The list runs several times, each time as
a job of its own, and each time the kernel draws anew which bursts are held out. The first run
has the report. From the others comes the paired difference: burst by burst, the mean duration
in the runs where this burst had the policy, less that in the runs where it was held out. So
both have the same size, the same pause, and bursts under the same policy before them.

Beside it stands what the report does not claim to be: the difference between a run in which
all bursts have the policy and one whose policy has the same settings and no law.

A lab in which no size has 30 held-out bursts has no interval; another one is drawn for it.

Exit status: 0 if the paired difference lies in the report's interval in 19 of 20 labs (95 % of
any other number, rounded down), 1 if not, 2 if a lab could not run. An interval of 95 % that is
right holds in 19 or more of 20 labs three times out of four.
"""

import argparse
import csv
import json
import math
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
PYTHON = "/usr/bin/python3"  # the machine's own, with its library
FILES = ("/sbin/ip", "/sbin/tc", "/sbin/sysctl", "/usr/bin/nsenter")
PACKET_BYTES = 1514
NO_CHANCE = 2


def log_uniform(chance, least, most):
    return math.exp(chance.uniform(math.log(least), math.log(most)))


def draw(seed, number, bursts, paired_runs):
    """A lab depends on the seed and its number alone."""
    chance = random.Random(f"{seed}/{number}")
    rate, rtt = log_uniform(chance, 20e6, 300e6), log_uniform(chance, 4e-3, 80e-3)
    queue = max(15, round(chance.uniform(0.25, 2) * rate * rtt / 8 / PACKET_BYTES))
    mean, pause = log_uniform(chance, 25e3, 100e3), log_uniform(chance, 0.1, 1)
    return {
        "number": number,
        "policy": "lfn",
        "rate_kbit": round(rate / 1e3),
        "rtt_us": round(rtt * 1e6),
        "queue_packets": queue,
        "loss_percent": chance.choice((0, 0, 0.05, 0.2)),
        "offload": chance.random() < 0.5,
        "fresh": chance.random() < 0.3,
        "held_out_percent": chance.choice((25, 30, 35)),
        "paired_runs": paired_runs,
        "whole_bursts": bursts // 2,
        # At least a round trip and a half: the last ACK is back by then.
        "bursts": [[round(mean * chance.uniform(0.6, 1.4)), round(1.5 * rtt + pause * chance.expovariate(1), 6)] for _ in range(bursts)],
    }


def run(paceline, kernel, labs):
    """A guest's results, one after the other, as they come."""
    with tempfile.TemporaryDirectory(prefix="paceline-report-") as place:
        plan = pathlib.Path(place, "labs.json")
        plan.write_text(json.dumps(labs))
        version = subprocess.run([PYTHON, "-c", "import sysconfig; print(sysconfig.get_path('stdlib'))"],
                                 check=True, capture_output=True, text=True).stdout.strip()
        options = []
        for file in (PYTHON, version, *FILES, HERE / "inside.py", plan):
            options += ["--file", str(file)]
        command = [paceline, "lab", "guest", "--kernel", kernel, "--patience", "30min", *options, "--",
                   PYTHON, "-B", "-u", str(HERE / "inside.py"), str(plan), "/run/labs"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as guest:
            try:
                for line in guest.stdout:
                    if line.startswith("{"):
                        yield json.loads(line)
            finally:
                guest.terminate()
        if guest.returncode != 0:
            print(f"labs.py: the guest ended with {guest.returncode}", file=sys.stderr)
            raise SystemExit(NO_CHANCE)


def size_class(size):
    """As the kernel side has them: below 4 KiB, and four times as much each."""
    return min(7, max(0, (size.bit_length() - 11) // 2))


def paired(result):
    """The paired difference and its standard error, in us, with the report's weights of sizes;
    and the number of bursts that count. None if the report has no interval."""
    trials, weights, total, variance, count = result["report"]["trials"], {}, 0.0, 0.0, 0
    for trial in trials:
        arms = trial["policy"]["bursts"], trial["held_out"]["bursts"]
        if min(arms) >= 30:
            weights[trial["size"]] = sum(arms)
    if not weights or result["report"]["overall"] is None:
        return None
    for size, weight in weights.items():
        share, differences = weight / sum(weights.values()), []
        for at, (length, _) in enumerate(result["lab"]["bursts"]):
            if size_class(length) != size:
                continue
            arms = [[run[at][1] for run in result["pairs"] if run[at][0] == held] for held in (0, 1)]
            if all(arms):
                differences.append(statistics.fmean(arms[0]) - statistics.fmean(arms[1]))
        if len(differences) < 2:
            return None
        total += share * statistics.fmean(differences)
        variance += share**2 * statistics.variance(differences) / len(differences)
        count += len(differences)
    return total, math.sqrt(variance), count


COLUMNS = ("lab", "rate_mbit", "rtt_ms", "queue_packets", "loss_percent", "offload", "fresh", "held_out_percent", "held_out_bursts",
           "report_ms", "least_ms", "most_ms", "paired_ms", "paired_error_ms", "pairs", "whole_runs_ms", "holds")


def row(result):
    lab, overall = result["lab"], result["report"]["overall"]
    found = paired(result)
    # The first quarter is learning.
    first = lab["whole_bursts"] // 4
    whole = statistics.fmean(result["policy"][first:]) - statistics.fmean(result["settings"][first:])
    values = {
        "lab": lab["number"], "rate_mbit": round(lab["rate_kbit"] / 1e3, 1), "rtt_ms": round(lab["rtt_us"] / 1e3, 1),
        "queue_packets": lab["queue_packets"], "loss_percent": lab["loss_percent"], "offload": lab["offload"],
        "fresh": lab["fresh"], "held_out_percent": lab["held_out_percent"],
        "held_out_bursts": sum(trial["held_out"]["bursts"] for trial in result["report"]["trials"]),
        "whole_runs_ms": round(whole / 1e3, 2),
    }
    if found is None:
        return values
    least, most = overall["interval_us"]
    difference, error, count = found
    return values | {
        "report_ms": round(overall["difference_us"] / 1e3, 2), "least_ms": round(least / 1e3, 2), "most_ms": round(most / 1e3, 2),
        "paired_ms": round(difference / 1e3, 2), "paired_error_ms": round(error / 1e3, 2), "pairs": count,
        "holds": least <= difference <= most,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--paceline", default="target/release/paceline")
    parser.add_argument("--kernel", default="bookworm")
    parser.add_argument("--labs", type=int, default=20)
    parser.add_argument("--first", type=int, default=1, help="number of the first lab")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bursts", type=int, default=200, help="of each run")
    parser.add_argument("--paired-runs", type=int, default=5)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    rows, number = [], options.first
    with open(options.out / "labs.csv", "w", newline="") as file, open(options.out / "runs.jsonl", "w") as raw:
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        table.writeheader()
        while missing := options.labs - sum("holds" in values for values in rows):
            labs = [draw(options.seed, number + at, options.bursts, options.paired_runs) for at in range(missing)]
            number += missing
            for result in run(options.paceline, options.kernel, labs):
                raw.write(json.dumps(result) + "\n")
                raw.flush()
                rows.append(row(result))
                table.writerow(rows[-1])
                file.flush()
                print(json.dumps(rows[-1]), flush=True)
    held, asked = sum(values.get("holds", False) for values in rows), math.floor(0.95 * options.labs)
    print(f"the paired difference lies in the report's interval in {held} of {options.labs} labs; {asked} are asked for")
    if len(rows) > options.labs:
        print(f"{len(rows) - options.labs} more labs had too few held-out bursts of a size for an interval")
    return 0 if held >= asked else 1


if __name__ == "__main__":
    sys.exit(main())

"""Does a load generator of several workers take more? One worker and several, in turns.

    python -m tests.benchmarks.scaling --workers 1,2 --rounds 3 --out results/scaling/scaling.json

`isobatch bench` in a closed loop against a server that answers at once with ready-made bytes
(`firehose`), so that the client is what limits: events a second is what it can take. Each round
runs every number of workers once, in an order that turns. CPU for an event is that of the workers
while they send; seconds of CPU are those of all of the bench's processes, start-up included. The
server's own are told beside them, for it shares the cores.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.results.atomic import write_atomically
from harness.results.environment import environment, tool

EVENTS = 51


@contextmanager
def firehose() -> Iterator[tuple[str, int]]:
    """URL and process id of a running server."""
    command = [sys.executable, "-m", "tests.benchmarks.firehose", str(EVENTS)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip(), process.pid
        assert process.stdin is not None
        process.stdin.close()


def _cpu_s(pid: int) -> float:
    """User and system time of a running process (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measured(workers: int, streams: int, requests: int) -> dict[str, Any]:
    """One bench with so many workers."""
    with firehose() as (url, pid), tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable, "-m", "harness.cli", "bench", url, "--preset", "paced",
            "--requests", str(requests), "--concurrency", str(streams), "--prompts", "100:200",
            "--workers", str(workers), "--no-warmup", "--no-calibrate", "--no-page", "--json",
            "--out", folder,
        ]  # fmt: skip
        before, served_s = resource.getrusage(resource.RUSAGE_CHILDREN), _cpu_s(pid)
        # A client that is driven to its limit says so with its exit status.
        run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        after, served_s = resource.getrusage(resource.RUSAGE_CHILDREN), _cpu_s(pid) - served_s
    document = json.loads(run.stdout)
    metrics = {(m["id"], m["statistic"], m["window"]): m["value"] for m in document["metrics"]}
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    complete = int(metrics["requests.complete", "value", None])
    rate = metrics["throughput.requests", "value", "whole"]
    return {
        "workers": workers,
        "complete": complete,
        "events": complete * EVENTS,
        "events_per_s": rate * EVENTS,
        "client_cpu_s": cpu_s,
        "client_cpu_us_per_event": document["client_health"]["numbers"]["cpu_total_s"]
        / (complete * EVENTS)
        * 1e6,
        "server_cpu_s": served_s,
        "client_health": document["client_health"]["reasons"],
    }


def summary(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Medians for each number of workers, and the ratio of its rate to the first's."""
    rows: list[dict[str, Any]] = []
    for workers in dict.fromkeys(run["workers"] for run in runs):
        own = [run for run in runs if run["workers"] == workers]
        rate = statistics.median(run["events_per_s"] for run in own)
        rows.append(
            {
                "workers": workers,
                "events_per_s": round(rate),
                "times_the_first": round(rate / rows[0]["events_per_s"], 2) if rows else 1.0,
                "client_cpu_us_per_event": round(
                    statistics.median(run["client_cpu_us_per_event"] for run in own), 1
                ),
                "server_share_of_cpu": round(
                    statistics.median(
                        run["server_cpu_s"] / (run["server_cpu_s"] + run["client_cpu_s"])
                        for run in own
                    ),
                    3,
                ),
            }
        )
    return rows


def main() -> None:
    """Measure in turns and write the document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", default="1,2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--requests", type=int, default=6000)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    numbers = [int(n) for n in options.workers.split(",")]
    runs: list[dict[str, Any]] = []
    for turn in range(options.rounds):
        for workers in numbers if turn % 2 == 0 else reversed(numbers):
            runs.append(measured(workers, options.streams, options.requests))
            print(json.dumps(runs[-1]), flush=True)
    document = {
        "format": "isobatch.scaling/1",
        "tool": tool(),
        "environment": environment(),
        "command": f"python -m tests.benchmarks.scaling --workers {options.workers} "
        f"--rounds {options.rounds} --streams {options.streams} --requests {options.requests}",
        "load_average": os.getloadavg(),
        "summary": summary(runs),
        "runs": runs,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(options.out, (json.dumps(document, indent=1) + "\n").encode())
    print(json.dumps(document["summary"]))


if __name__ == "__main__":
    main()

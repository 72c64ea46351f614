"""The peers document as a Markdown table: ``python -m tests.benchmarks.peers.table FILE``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def table(document: dict[str, Any]) -> str:
    """One row a tool and concurrency: its errors, and what it cost."""
    lines = [
        "| client | streams | requests | TTFT mean error, ms | TTFT p99 error, ms "
        "| gap p99 error, ms | CPU s, start-up included |",
        "|---|---|---|---|---|---|---|",
    ]
    for run in document["runs"]:
        errors = run.get("error_ms") or {}
        cells = [
            f"{run['tool']} ({run['package']})",
            str(run["streams"]),
            str(run["requests"]),
            *(_number(errors.get(k)) for k in ("ttft_mean", "ttft_p99", "gap_p99")),
            f"{run['cpu_s']:.1f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    lines += [
        f"| {left['tool']} | left out: {left['reason']} | | | | | |"
        for left in document["left_out"]
    ]
    return "\n".join(lines) + "\n"


def _number(value: float | None) -> str:
    return "not given" if value is None else f"{value:.2f}"


if __name__ == "__main__":
    print(table(json.loads(Path(sys.argv[1]).read_text())), end="")

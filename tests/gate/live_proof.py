"""The gate's live proof: a delay of 10% is caught, and identical servers pass.

    python -m tests.gate.live_proof --out FILE [--gates 20] [--pairs 16]

Our server with the plain probe on both sides. One gate has a head whose steps take 10% longer, a
delta of 3%; the others have two processes of one command, and a delta of 10%. FILE gets each
gate's status, measured slowdown, interval and noise as it ends. The machine wants to be left alone.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from harness.cli import main as isobatch
from harness.results import read_result
from harness.results.environment import environment, tool
from reference_engine.probe import VARIANTS, export_probe

SLOWED = Path(__file__).with_name("slowed_server.py")
SERVE = f"--port 0 --name {VARIANTS['plain'].name}"


def gate(model_dir: Path, out: Path, delay: float, *arguments: str) -> int:
    """The exit status of one gate. A ``delay`` of 0 means two processes of the same command."""
    healthy = f"{sys.executable} -m harness.cli serve {model_dir} {SERVE}"
    slowed = f"{sys.executable} {SLOWED} {delay} {model_dir} {SERVE}"
    # A delay of 0 is no identity: even sleep(0) lets another thread go first, and cost 7%.
    head = slowed if delay else healthy
    try:
        isobatch(["gate", "--base", healthy, "--head", head, "--out", str(out), *arguments])
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 2
    return 0


def one(model_dir: Path, delay: float, delta: str, pairs: int) -> dict[str, Any]:
    """One gate on the mean time per output token, with what it measured."""
    wanted = ("--requests", "16", "--checks", "", "--metric", f"tpot:mean={delta}")
    with tempfile.TemporaryDirectory() as out:
        status = gate(model_dir, Path(out), delay, "--pairs", str(pairs), *wanted)
        (folder,) = Path(out).iterdir()
        (metric,) = read_result(folder)["gate"]["metrics"]
    return {"delay": delay, "delta": delta, "pairs": pairs, "status": status, "measured": metric}


def live_proof(model_dir: Path, gates: int, pairs: int, out: Path | None) -> list[dict[str, Any]]:
    """The delayed gate, then ``gates`` of identical sides; the same into ``out``, one by one."""
    plan = [(0.10, "3%", 20)] + [(0.0, "10%", pairs)] * gates
    found: list[dict[str, Any]] = []
    for delay, delta, count in plan:
        found.append(one(model_dir, delay, delta, count))
        if out is not None:
            document = {"made_by": tool(), "environment": environment(), "gates": found}
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text(json.dumps(document, indent=1) + "\n")
    return found


def main() -> None:
    """Run the proof; status 1 if the delay was missed or fewer than 19 in 20 identical pass."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--gates", type=int, default=20)
    parser.add_argument("--pairs", type=int, default=16)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model_dir = export_probe(VARIANTS["plain"], Path(folder) / "plain")
        delayed, *same = live_proof(model_dir, options.gates, options.pairs, options.out)
    passed = sum(g["status"] == 0 for g in same)
    print(f"10% delay: status {delayed['status']}; identical: {passed} of {len(same)} pass")
    sys.exit(not (delayed["status"] == 1 and passed >= 0.95 * len(same)))


if __name__ == "__main__":
    main()

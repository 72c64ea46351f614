"""Are the techniques of a server told from outside? Eight servers of which that is known.

    python -m tests.benchmarks.techniques --out results/techniques

Our server with one technique off in turn, each judged by the TEC check of that technique as any
server is, and with all of them, judged by all six. Every server that lacks something must be told,
and the one that lacks nothing must pass. Two have two slots, where a freed slot matters.
Writes techniques.json and techniques.md.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from harness.checks.budget import BUDGETS
from harness.checks.registry import select
from harness.checks.suite import SuiteOptions, run_suite
from harness.mutants.thread_server import thread_server
from harness.oracles.choose import OracleChoice
from harness.results.atomic import write_atomically
from harness.results.environment import environment, tool
from harness.targets.http import HttpTarget
from harness.verdict import CheckResult, Verdict
from reference_engine.engine import EngineConfig
from reference_engine.probe import VARIANTS, export_probe

if TYPE_CHECKING:
    from reference_engine.model import LoadedModel

VARIANT: Final = "eos"
CHECKS: Final = tuple(check.id for check in select(["TEC"]))


@dataclass(frozen=True, slots=True)
class Server:
    """One server, and the verdict that tells what it lacks; ``check_id`` None: all six pass."""

    lacks: str
    check_id: str | None = None
    verdict: Verdict = Verdict.FAIL
    fault: str | None = None
    engine: Mapping[str, Any] = field(default_factory=dict)

    def recognised(self, results: Sequence[CheckResult]) -> bool:
        """Whether the check that must tell does, or all checks pass where none must."""
        verdicts = {r.check_id: r.verdict for r in results}
        if self.check_id is None:
            return all(v is Verdict.PASS for v in verdicts.values())
        return verdicts.get(self.check_id) is self.verdict


SERVERS: Final = (
    Server("nothing"),
    Server("nothing (two slots)", "TEC-4", Verdict.PASS, engine={"max_num_seqs": 2}),
    Server("KV cache", "TEC-1", fault="no-kv-cache"),
    Server("chunked prefill", "TEC-2", fault="no-chunked-prefill"),
    Server("ragged batches (padded)", "TEC-3", fault="padded-to-the-longest"),
    Server("in-flight batching (static)", "TEC-4", fault="static-batching"),
    Server(
        "refill of freed slots (two slots)",
        "TEC-4",
        fault="freed-slot-not-refilled",
        engine={"max_num_seqs": 2},
    ),
    Server("prefix cache", "TEC-5", Verdict.UNSUPPORTED, engine={"prefix_caching": False}),
)


def judged(
    server: Server, model: LoadedModel, folder: Path, only: Sequence[str] = CHECKS, seed: int = 0
) -> list[CheckResult]:
    """The verdicts of these checks on this server, over HTTP."""
    config = replace(EngineConfig(), **server.engine)
    budget = replace(BUDGETS["quick"], shrink_runs=0, confirmations=0)
    options = SuiteOptions(select(only), budget, seed, OracleChoice("probe", VARIANT))
    name = VARIANTS[VARIANT].name
    with thread_server(model, folder, name, config, server.fault) as running:
        return run_suite(lambda: HttpTarget(running.url), options).results


def row(server: Server, results: Sequence[CheckResult]) -> dict[str, Any]:
    """One server's entry in the document."""
    shown = ("effect", "control", "agreement", "rounds")
    return {
        "lacks": server.lacks,
        "fault": server.fault,
        "engine": dict(server.engine),
        "told_by": server.check_id,
        "recognised": server.recognised(results),
        "requests": sum(r.requests for r in results),
        "duration_s": round(sum(r.duration_s for r in results), 1),
        "checks": {
            r.check_id: {
                "verdict": r.verdict.value,
                "reason": r.reason,
                **{k: round(r.evidence[k], 3) for k in shown if k in r.evidence},
            }
            for r in results
        },
    }


def page(document: Mapping[str, Any]) -> str:
    """The document as a table: verdict, effect and control of each check on each server."""
    rows = document["rows"]
    whole = {i: c.get("effect") for i, c in rows[0]["checks"].items()}
    lines = [
        "# Techniques told from outside",
        "",
        f"`{document['command']}`: our server with one technique off in turn, judged over HTTP by "
        "the check of that technique, and with all of them, judged by all six. The effect is the "
        "ratio that the check measures, large where the technique is in use; the control says how "
        "far apart the two cases would lie. "
        f"{document['recognised']} of {len(rows)} servers are recognised.",
        "",
        "| the server lacks | check | verdict | effect | effect where nothing is lacking | control "
        "| agreement | rounds | recognised |",
        "|---" * 9 + "|",
    ]
    for entry in rows:
        told = "yes" if entry["recognised"] else "**no**"
        for check_id, found in entry["checks"].items():
            numbers = [found.get("effect"), whole.get(check_id), found.get("control")]
            shown = " | ".join("" if n is None else f"{n:.2f}" for n in numbers)
            lines.append(
                f"| {entry['lacks']} | {check_id} | {found['verdict']} | {shown} "
                f"| {found.get('agreement', 0):.2f} | {found.get('rounds', 0):.0f} | {told} |"
            )
    sentences = [f"- {check.id}: {check.sentence}" for check in select(["TEC"])]
    return "\n".join([*lines, "", *sentences, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the table")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    rows = measured(options.seed)
    document = {
        "format": "isobatch.techniques/1",
        "tool": tool(),
        "environment": environment(),
        "command": f"python -m tests.benchmarks.techniques --out {options.out}",
        "seed": options.seed,
        "recognised": sum(entry["recognised"] for entry in rows),
        "rows": rows,
    }
    text = json.dumps(document, indent=1) + "\n"
    write_atomically(options.out / "techniques.json", text.encode())
    write_atomically(options.out / "techniques.md", page(document).encode())


def measured(seed: int) -> list[dict[str, Any]]:
    """All servers, one after another; each is told as it ends."""
    from reference_engine.model import load_model

    rows = []
    with tempfile.TemporaryDirectory(prefix="isobatch-techniques-") as scratch:
        folder = export_probe(VARIANTS[VARIANT], Path(scratch) / VARIANT)
        model = load_model(folder)
        for server in SERVERS:
            only = (server.check_id,) if server.check_id else CHECKS
            rows.append(row(server, judged(server, model, folder, only, seed)))
            print(json.dumps(rows[-1]), flush=True)
    return rows


if __name__ == "__main__":
    main()

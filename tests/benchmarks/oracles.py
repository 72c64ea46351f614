"""Do the reference and the self oracle judge servers that are not exact? Healthy and faulty ones.

    python -m tests.benchmarks.oracles --out results/oracles

A small random Llama with a tokenizer, served by our engine over HTTP three ways: exact in fp32,
and in bf16 with sums that are cut by the number of rows, so that a row's bits move with its
neighbours as on most real servers; the latter also as a server that tells text only. The healthy
ones must pass every check (tie flips allowed where the arithmetic is not exact), the faulty ones
must fail one. A fault that changes an answer in the same way when the request is alone cannot be
seen by comparing the server with itself: those are judged by the reference oracle only.
Writes oracles.json and oracles.md.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from harness.checks.budget import BUDGETS
from harness.checks.registry import select
from harness.checks.suite import SuiteOptions, SuiteReport, run_suite
from harness.mutants.thread_server import thread_server
from harness.oracles.choose import OracleChoice
from harness.results.atomic import write_atomically
from harness.results.environment import environment, tool
from harness.targets.http import HttpTarget
from harness.verdict import Verdict
from tests.checks.rounding_server import inexact_model, write_checkpoint

if TYPE_CHECKING:
    from reference_engine.model import LoadedModel

CHAPTERS: Final = ("EQV", "ISO", "CCH", "SCH", "CAN", "SMP", "STR", "LEN", "LOG", "API", "DET")
EXACT: Final = "fp32, exact"
INEXACT: Final = "bf16, not batch invariant"
TEXT: Final = "bf16, not batch invariant, text only"
UNDER_LOAD: Final = (
    "neighbour-visible",
    "hash-without-parent",
    "evicted-page-still-found",
    "replies-swapped",
    "parameter-row-shifted",
    "choices-overwritten",
    "cancel-takes-the-neighbour",
)
"""Faults that show as a difference between a request alone and the same request among others."""
ALWAYS: Final = (
    "decode-position",
    "chunk-positions-restart",
    "full-page-slot",
    "last-key-hidden",
    "usage-without-last-token",
    "last-delta-lost",
)
"""Faults that harm a request alone as well."""


@dataclass(frozen=True, slots=True)
class Case:
    """One server and the oracle that judges it."""

    server: str
    oracle: str
    fault: str | None = None

    @property
    def params(self) -> dict[str, None]:
        """Fields that this server does not take."""
        return {"return_token_ids": None} if self.server == TEXT else {}

    def rightly_judged(self, verdicts: Mapping[str, int]) -> bool:
        """A healthy server failed nothing, and flipped ties only where it may; a faulty failed."""
        if self.fault is not None:
            return bool(verdicts.get(Verdict.FAIL))
        flips = verdicts.get(Verdict.TIE_FLIPS, 0)
        return not verdicts.get(Verdict.FAIL) and (self.server != EXACT or not flips)


def cases() -> Iterator[Case]:
    """Every server under both oracles, without a fault and with each that the oracle can see."""
    for oracle in ("reference", "self"):
        for server in (EXACT, INEXACT, TEXT):
            yield Case(server, oracle)
        for fault in (*UNDER_LOAD, *(ALWAYS if oracle == "reference" else ())):
            yield Case(INEXACT, oracle, fault)


def judged(
    case: Case, model: LoadedModel, folder: Path, only: Sequence[str] = CHAPTERS
) -> SuiteReport:
    """The suite's report on this server, over HTTP; up to the first failure where one is due."""
    budget = replace(BUDGETS["quick"], shrink_runs=0, confirmations=0)
    reference = str(folder) if case.oracle == "reference" else None
    options = SuiteOptions(
        select(only),
        budget,
        0,
        OracleChoice(case.oracle, reference=reference),
        case.params,
        stop_at_failure=case.fault is not None,
    )
    with thread_server(model, folder, "tiny", fault=case.fault) as server:
        return run_suite(lambda: HttpTarget(server.url, model="tiny"), options)


def row(case: Case, report: SuiteReport, duration_s: float) -> dict[str, Any]:
    """One case's entry in the document."""
    verdicts = Counter(result.verdict.value for result in report.results)
    failed = [r for r in report.results if r.verdict is Verdict.FAIL]
    return {
        "server": case.server,
        "oracle": case.oracle,
        "fault": case.fault,
        "rightly_judged": case.rightly_judged(verdicts),
        "verdicts": dict(sorted(verdicts.items())),
        "failed": {r.check_id: r.reason or r.failures[0].detail for r in failed},
        "oracle_said": report.oracle,
        "requests": sum(r.requests for r in report.results),
        "duration_s": round(duration_s, 1),
    }


def page(document: Mapping[str, Any]) -> str:
    """The document as a table."""
    rows = document["rows"]
    lines = [
        "# Servers that are not exact, under the reference and the self oracle",
        "",
        f"`{document['command']}`: a small random Llama served by our engine over HTTP, healthy "
        "and with faults, judged by the checks of eleven chapters in the `quick` budget. A healthy "
        "server must fail nothing; its near-ties may flip where its arithmetic depends on the "
        f"batch. A faulty one must fail. {document['right']} of {len(rows)} are rightly judged.",
        "",
        "| server | oracle | fault | pass | tie flips | fail | not judged | requests | right |",
        "|---" * 9 + "|",
    ]
    for entry in rows:
        found = Counter(entry["verdicts"])
        judged_ones = [found["pass"], found["tie-flips"], found["fail"]]
        rest = sum(found.values()) - sum(judged_ones)
        names = ", ".join(entry["failed"])
        numbers = [*judged_ones[:2], f"{judged_ones[2]} ({names})" if names else 0, rest]
        lines.append(
            f"| {entry['server']} | {entry['oracle']} | {entry['fault'] or ''} | "
            + " | ".join(str(n) for n in numbers)
            + f" | {entry['requests']} | {'yes' if entry['rightly_judged'] else '**no**'} |"
        )
    said = [f"- {e['server']}, {e['oracle']}: {e['oracle_said']}" for e in rows if not e["fault"]]
    return "\n".join([*lines, "", "What each oracle said of the healthy servers:", "", *said, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the table")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for entry in measured():
        rows.append(entry)
        document = {
            "format": "isobatch.oracles/1",
            "tool": tool(),
            "environment": environment(),
            "command": f"python -m tests.benchmarks.oracles --out {options.out}",
            "right": sum(e["rightly_judged"] for e in rows),
            "rows": rows,
        }
        text = json.dumps(document, indent=1) + "\n"
        write_atomically(options.out / "oracles.json", text.encode())
        write_atomically(options.out / "oracles.md", page(document).encode())


def measured() -> Iterator[dict[str, Any]]:
    """All cases, one after another; each is told as it ends."""
    from reference_engine.model import load_model

    with tempfile.TemporaryDirectory(prefix="isobatch-oracles-") as scratch:
        folder = write_checkpoint(Path(scratch) / "model", spread=0.15)
        exact, inexact = load_model(folder), inexact_model(folder)
        for case in cases():
            started_s = time.monotonic()
            report = judged(case, exact if case.server == EXACT else inexact, folder)
            entry = row(case, report, time.monotonic() - started_s)
            print(json.dumps(entry), flush=True)
            yield entry


if __name__ == "__main__":
    main()

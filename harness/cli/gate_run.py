"""A live gate from start to end: serve both sides, check both, measure pairs, decide, record."""

from __future__ import annotations

import asyncio
import math
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from harness.checks.suite import Progress, run_suite
from harness.cli.check import ensure_writable, redacted, suite_options
from harness.cli.errors import ExitStatus, UserError
from harness.cli.gate_table import percent, print_pair, print_report
from harness.console import plain_console
from harness.gate.decision import Outcome
from harness.gate.guarded_metric import GuardedMetric
from harness.gate.paired_run import Pair, PairedRun
from harness.gate.report import GateReport, NoiseReport, conclude
from harness.gate.side import Side
from harness.oracles.choose import OracleChoice
from harness.results.run_folder import RunFolder
from harness.targets.http import HttpTarget
from harness.targets.wording import Wording
from harness.verdict import CheckResult, Verdict
from workloads.presets import load_preset
from workloads.recipe import Recipe

_GOOD = frozenset({Verdict.PASS, Verdict.TIE_FLIPS})
_BAD = frozenset({Verdict.FAIL, Verdict.ERROR})


@dataclass(slots=True)
class GateRun:
    """What was asked for; the command's options under the same names."""

    base: str
    head: str
    pairs: int
    preset: str
    requests: int | None
    metrics: tuple[GuardedMetric, ...]
    checks: str
    model: str | None
    seed: int
    out: Path

    def gate_status(self) -> ExitStatus:
        """Run the gate: 0 equivalent or better, 1 regression, 2 inconclusive."""
        report = self._run(plain_console())
        return {
            Outcome.REGRESSION: ExitStatus.FAILED,
            Outcome.INCONCLUSIVE: ExitStatus.UNUSABLE,
        }.get(report.outcome, ExitStatus.OK)

    def noise_status(self) -> ExitStatus:
        """Run A/A: 0 when the machine is quiet enough to gate, 1 on a false alarm, else 2."""
        console = plain_console()
        noise = NoiseReport.of(self._run(console))
        if noise.false_alarm:
            console.print("false alarm: the same server was called a regression of itself")
            return ExitStatus.FAILED
        if noise.too_noisy:
            names = ", ".join(noise.too_noisy)
            console.print(f"do not gate here with {self.pairs} pairs: too noisy for {names}")
            return ExitStatus.UNUSABLE
        console.print(f"quiet enough to gate with {self.pairs} pairs")
        return ExitStatus.OK

    def _run(self, console: Console) -> GateReport:
        recipe = self._recipe()
        ensure_writable(self.out)
        command = ["isobatch", *redacted(sys.argv[1:])]
        with ExitStack() as stack:
            run = stack.enter_context(RunFolder.create(self.out, kind="gate", command=command))
            urls = [
                stack.enter_context(Side(label, source).serving(run.path / f"{label}.log"))
                for label, source in (("base", self.base), ("head", self.head))
            ]
            run.set_server(url=urls[1], model=self.model, sources={"url": "given"})
            broken = self._broken_checks(run, urls, console) if self.checks else ()
            pairs = self._pairs(run, urls, recipe, console)
            report = conclude(pairs, self.metrics, broken)
            run.set_gate(report.to_json())
        print_report(console, report)
        console.print(f"written to {run.path}")
        return report

    def _recipe(self) -> Recipe:
        try:
            return load_preset(self.preset).resized(requests=self.requests, concurrency=None)
        except ValueError as error:
            raise UserError(str(error)) from None

    def _broken_checks(self, run: RunFolder, urls: list[str], console: Console) -> tuple[str, ...]:
        """Run the checks on both sides; the head's verdicts are the run's."""
        base, head = (self._check(url) for url in urls)
        for result in head:
            run.add_verdict(result)
        passed = {result.check_id for result in base if result.verdict in _GOOD}
        failed = [result.check_id for result in head if result.verdict in _BAD]
        broken = tuple(check_id for check_id in failed if check_id in passed)
        console.print(
            f"checks: {len(passed)} of {len(base)} pass on the base,"
            f" {sum(r.verdict in _GOOD for r in head)} of {len(head)} on the head"
        )
        return broken

    def _check(self, url: str) -> list[CheckResult]:
        options = suite_options(self.checks, "quick", str(self.seed), OracleChoice(), {})

        def open_target() -> HttpTarget:
            return HttpTarget(url, model=self.model)

        return run_suite(open_target, options, Progress()).results

    def _pairs(
        self, run: RunFolder, urls: list[str], recipe: Recipe, console: Console
    ) -> list[Pair]:
        names = tuple(metric.name for metric in self.metrics)

        def on_pair(pair: Pair) -> None:
            run.append("pairs", pair_row(pair))
            slowdowns = [pair.slowdown(metric) for metric in self.metrics]
            print_pair(
                console,
                pair,
                names,
                [percent(s if s is None else math.expm1(s)) for s in slowdowns],
            )

        def on_wording(wording: Wording) -> None:
            run.set_server(wording=wording.to_json())
            for sentence in wording.sentences():
                console.print(sentence, markup=False)

        paired = PairedRun(urls[0], urls[1], recipe, self.pairs, self.seed, self.model)
        return asyncio.run(paired.run(on_pair, on_wording))


def pair_row(pair: Pair) -> dict[str, object]:
    """A pair as a raw row: every number of both sides."""
    return {
        "number": pair.number,
        "base_first": pair.base_first,
        **{
            side: {
                "failed": replicate.failed,
                "invalid": list(replicate.invalid),
                "metrics": replicate.rows,
            }
            for side, replicate in (("base", pair.base), ("head", pair.head))
        },
    }

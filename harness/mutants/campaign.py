"""Serves each fault and runs the suite against it over HTTP, as against any server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.checks.budget import Budget
from harness.checks.registry import Check
from harness.checks.suite import Progress, SuiteOptions, run_suite
from harness.mutants.attempt import Attempt, MutantRow
from harness.mutants.settings import Setting, chapters_of, may_kill, settings_of
from harness.mutants.thread_server import ThreadServer, thread_server
from harness.oracles.choose import OracleChoice
from harness.targets.http import HttpTarget
from harness.targets.target import TargetUnusable
from harness.verdict import CheckResult
from reference_engine.engine import EngineConfig
from reference_engine.faults import Fault
from reference_engine.model import LoadedModel, load_model
from reference_engine.probe import VARIANTS, export_probe


class _TimeUp(Exception):
    """The time for one fault is spent."""


@dataclass(frozen=True, slots=True)
class Campaign:
    """What all faults are run with.

    ``budgets`` are tried in turn, the next one only on a fault that survived the one before.
    ``whole`` runs every check; else the first kill ends it. After ``fault_s`` seconds a fault that
    no check has killed counts as a survivor.
    """

    checks: Sequence[Check]
    budgets: Sequence[Budget]
    folder: Path
    seed: int = 0
    whole: bool = False
    fault_s: float = 600.0
    models: dict[str, tuple[Path, LoadedModel]] = field(default_factory=dict)

    def run(self, fault: Fault, told: Callable[[str], None]) -> MutantRow:
        """Its own chapters in every setting, then the other checks, until one fails."""
        row = MutantRow(fault.name, fault.title, fault.group, fault.imitates)
        ends_s = time.monotonic() + self.fault_s
        for budget, checks, setting in self._plan(fault):
            if row.killed and not self.whole:
                break
            attempt = Attempt(setting.name, budget.name, self.seed)
            row.attempts.append(attempt)
            # A killed fault needs no smallest workload; a false alarm does.
            quick = replace(budget, shrink_runs=0, confirmations=0)
            self._fill(attempt, fault, setting, checks, quick, told, ends_s)
            if time.monotonic() > ends_s:
                break
        return row

    def healthy(
        self, setting: Setting, budget: Budget, seed: int, told: Callable[[str], None]
    ) -> Attempt:
        """One run of every check against the server without a fault."""
        attempt = Attempt(setting.name, budget.name, seed)
        whole = replace(self, whole=True)
        whole._fill(attempt, None, setting, self.checks, budget, told, None)
        return attempt

    def _plan(self, fault: Fault) -> Iterator[tuple[Budget, Sequence[Check], Setting]]:
        own = chapters_of(fault.group)
        checks = [c for c in self.checks if may_kill(c.chapter, fault.group)]
        halves = (
            [c for c in checks if c.chapter in own],
            [c for c in checks if c.chapter not in own],
        )
        for budget in self.budgets:
            for chosen in halves:
                for setting in settings_of(fault.group) if chosen else ():
                    yield budget, chosen, setting

    def _fill(
        self,
        attempt: Attempt,
        fault: Fault | None,
        setting: Setting,
        checks: Sequence[Check],
        budget: Budget,
        told: Callable[[str], None],
        ends_s: float | None,
    ) -> None:
        """Run the checks and put what they find into ``attempt`` as it comes."""
        started_s = time.monotonic()
        options = SuiteOptions(
            checks,
            budget,
            attempt.seed,
            OracleChoice("probe", setting.variant),
            stop_at_failure=not self.whole,
        )
        try:
            with self._served(fault, setting) as server:

                def finished(result: CheckResult) -> None:
                    attempt.executions = server.executions
                    attempt.results.append(result)
                    attempt.requests += result.requests
                    told(f"{setting.name} {result.check_id} {result.verdict.value}")
                    if ends_s is not None and time.monotonic() > ends_s:
                        raise _TimeUp

                run_suite(lambda: HttpTarget(server.url), options, Progress(finished=finished))
        except TargetUnusable as error:
            attempt.error = str(error)
        except _TimeUp:
            attempt.error = None
        attempt.duration_s = time.monotonic() - started_s

    @contextmanager
    def _served(self, fault: Fault | None, setting: Setting) -> Iterator[ThreadServer]:
        folder, model = self._model(setting.variant)
        config = replace(EngineConfig(), **setting.engine)
        name = VARIANTS[setting.variant].name
        with thread_server(model, folder, name, config, fault.name if fault else None) as server:
            yield server

    def _model(self, variant: str) -> tuple[Path, LoadedModel]:
        """The exported probe and the loaded model, each made once."""
        if variant not in self.models:
            folder = export_probe(VARIANTS[variant], self.folder / variant)
            self.models[variant] = folder, load_model(folder)
        return self.models[variant]

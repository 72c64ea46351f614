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
from harness.mutants.settings import SETTINGS, Setting, chapters_of
from harness.mutants.thread_server import ThreadServer, thread_server
from harness.oracles.choose import OracleChoice
from harness.targets.http import HttpTarget
from harness.targets.target import TargetUnusable
from harness.verdict import CheckResult, Verdict
from reference_engine.engine import EngineConfig
from reference_engine.faults import Fault
from reference_engine.model import LoadedModel, load_model
from reference_engine.probe import VARIANTS, export_probe


@dataclass(slots=True)
class Attempt:
    """The suite against one fault in one setting. ``error`` is why it could not be run."""

    setting: str
    results: list[CheckResult] = field(default_factory=list)
    executions: int | None = None
    requests: int = 0
    duration_s: float = 0.0
    error: str | None = None

    @property
    def killers(self) -> list[CheckResult]:
        """The checks that failed."""
        return [r for r in self.results if r.verdict is Verdict.FAIL]


@dataclass(slots=True)
class MutantRow:
    """One fault and all attempts at it."""

    name: str
    title: str
    group: str
    imitates: tuple[str, ...]
    attempts: list[Attempt] = field(default_factory=list)

    @property
    def killed(self) -> bool:
        """Whether any check failed. A server that could not be judged is an error, not a kill."""
        return any(a.killers for a in self.attempts)

    @property
    def errors(self) -> list[str]:
        """Why it could not be judged, in the settings in which it could not."""
        return [a.error for a in self.attempts if a.error]

    @property
    def killed_by_its_chapter(self) -> bool:
        """Whether a check of the chapters that answer for its group failed."""
        own = {chapter.value for chapter in chapters_of(self.group)}
        return any(k.check_id.split("-")[0] in own for a in self.attempts for k in a.killers)

    @property
    def requests_to_detection(self) -> int | None:
        """Requests that the suite had sent, over all settings, when a check first failed."""
        sent = 0
        for attempt in self.attempts:
            for result in attempt.results:
                if result.verdict is Verdict.FAIL:
                    return sent + (result.first_failure_requests or result.requests)
                sent += result.requests
        return None


@dataclass(frozen=True, slots=True)
class Campaign:
    """What all faults are run with. ``whole`` runs every check; else the first kill ends it."""

    checks: Sequence[Check]
    budget: Budget
    folder: Path
    seed: int = 0
    whole: bool = False
    models: dict[str, tuple[Path, LoadedModel]] = field(default_factory=dict)

    def run(self, fault: Fault, told: Callable[[str], None]) -> MutantRow:
        """Its own chapters in every setting, then the other checks, until one fails."""
        row = MutantRow(fault.name, fault.title, fault.group, fault.imitates)
        own = chapters_of(fault.group)
        for checks in (
            [c for c in self.checks if c.chapter in own],
            [c for c in self.checks if c.chapter not in own],
        ):
            for setting in SETTINGS if checks else ():
                attempt = replace(self, checks=checks)._attempt(fault, setting, told)
                row.attempts.append(attempt)
                if attempt.error or (attempt.killers and not self.whole):
                    return row
            if row.killed and not self.whole:
                break
        return row

    def healthy(self, setting: Setting, seed: int, told: Callable[[str], None]) -> Attempt:
        """One run of every check against the server without a fault."""
        return replace(self, seed=seed, whole=True)._attempt(None, setting, told)

    def _attempt(
        self, fault: Fault | None, setting: Setting, told: Callable[[str], None]
    ) -> Attempt:
        attempt = Attempt(setting.name)
        started_s = time.monotonic()

        def finished(result: CheckResult) -> None:
            attempt.results.append(result)
            attempt.requests += result.requests
            told(f"{setting.name} {result.check_id} {result.verdict.value}")

        # A killed fault needs no smallest workload; a false alarm does.
        budget = self.budget
        if fault is not None:
            budget = replace(budget, shrink_runs=0, confirmations=0)
        options = SuiteOptions(
            self.checks,
            budget,
            self.seed,
            OracleChoice("probe", setting.variant),
            stop_at_failure=not self.whole,
        )
        try:
            with self._served(fault, setting) as server:
                run_suite(lambda: HttpTarget(server.url), options, Progress(finished=finished))
                attempt.executions = server.executions
        except TargetUnusable as error:
            attempt.error = str(error)
        attempt.duration_s = time.monotonic() - started_s
        return attempt

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

"""A run of the suite: open the target, choose the oracle, discover, run the checks, close.

Hypothesis is synchronous and the targets are asynchronous, so a run owns one event loop and is
itself a plain function; from asynchronous code call it in a thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from harness.checks.asker import Asker
from harness.checks.budget import BUDGETS, Budget
from harness.checks.capabilities import Capabilities
from harness.checks.dialect import find_dialect
from harness.checks.discovery import discover_capabilities
from harness.checks.presence import plain_answer
from harness.checks.registry import Check
from harness.checks.runner import run_check
from harness.checks.session import Session
from harness.oracles.choose import OracleChoice, choose_oracle
from harness.targets.target import Target, TargetUnusable
from harness.transcript import Ending
from harness.verdict import CheckResult, Verdict

PAUSES_S: Final = (1.0, 4.0)
# Verdicts that a dead server can bring about: after one of them it is asked whether it is there.
_DOUBTFUL: Final = frozenset({Verdict.FAIL, Verdict.ERROR, Verdict.INCONCLUSIVE})


@dataclass(frozen=True, slots=True)
class SuiteOptions:
    """What to run and how.

    ``params`` are added to every request. ``stop_at_failure`` ends the run with the first check
    that fails.
    """

    checks: Sequence[Check]
    budget: Budget = BUDGETS["quick"]
    seed: int = 0
    choice: OracleChoice = field(default_factory=OracleChoice)
    params: Mapping[str, Any] = field(default_factory=dict)
    stop_at_failure: bool = False


@dataclass(slots=True)
class Progress:
    """Told as the run goes on; each may be left out."""

    opened: Callable[[Session], None] = lambda _session: None
    started: Callable[[Check], None] = lambda _check: None
    finished: Callable[[CheckResult], None] = lambda _result: None


@dataclass(slots=True)
class SuiteReport:
    """All results, and what they stand on."""

    oracle: str
    capabilities: Capabilities
    seed: int
    results: list[CheckResult] = field(default_factory=list)
    duration_s: float = 0.0

    @property
    def requests(self) -> int:
        """Requests sent by all checks."""
        return sum(result.requests for result in self.results)

    @property
    def failed(self) -> bool:
        """Whether any check failed or broke."""
        return any(r.verdict in (Verdict.FAIL, Verdict.ERROR) for r in self.results)

    @property
    def judged_nothing(self) -> bool:
        """Whether every check was unsupported or inconclusive, so that nothing is known."""
        silent = (Verdict.UNSUPPORTED, Verdict.INCONCLUSIVE)
        return bool(self.results) and all(r.verdict in silent for r in self.results)


def run_suite(
    open_target: Callable[[], Target], options: SuiteOptions, progress: Progress | None = None
) -> SuiteReport:
    """Run the checks one after another against the target that ``open_target`` makes.

    Raises TargetUnusable, before any check, when there is nothing to be judged. A
    KeyboardInterrupt passes through: ``progress.finished`` has been told all that was found.
    Once the server is gone, or answers nobody any more, the remaining checks are not run: they are
    errors, not failures.
    """
    progress = progress or Progress()
    started_s = time.monotonic()
    with asyncio.Runner() as loop:
        target = loop.run(_opened(open_target))
        try:
            session = loop.run(open_session(target, options))
            progress.opened(session)
            report = SuiteReport(session.oracle.description, session.capabilities, options.seed)
            loss: str | None = None
            for check in options.checks:
                progress.started(check)
                if loss is not None:
                    result = CheckResult(check.id, Verdict.ERROR, check.sentence, loss)
                else:
                    result = run_check(check, session, loop.run)
                    loss = loop.run(_loss(result, session))
                report.results.append(result)
                progress.finished(result)
                if options.stop_at_failure and report.failed:
                    break
        finally:
            loop.run(target.close())
    report.duration_s = time.monotonic() - started_s
    return report


async def _opened(open_target: Callable[[], Target]) -> Target:
    return open_target()


async def open_session(target: Target, options: SuiteOptions) -> Session:
    """Choose the oracle and discover what the server can do."""
    described = await _describe(target)
    asker = Asker(target, await find_dialect(target, options.params))
    oracle = await choose_oracle(asker, options.choice, described.model)
    capabilities = await discover_capabilities(asker, oracle, described.context_limit)
    return Session(asker, oracle, capabilities, options.budget, options.seed)


@dataclass(frozen=True, slots=True)
class _Described:
    model: str | None
    context_limit: int | None


async def _describe(target: Target) -> _Described:
    """The model's name and context limit, where the target can tell them."""
    discover = getattr(target, "discover", None)
    if discover is None:
        return _Described(getattr(target, "model", None), None)
    found = await discover()
    model = getattr(target, "model", None)
    if model not in found.models:
        names = ", ".join(found.models[:5])
        raise TargetUnusable(f"{target.name} does not serve {model!r}; it serves {names}")
    document = found.documents[found.models.index(model)]
    limit = document.get("max_model_len") or document.get("context_length")
    return _Described(model, int(limit) if isinstance(limit, int) else None)


async def _loss(result: CheckResult, session: Session) -> str | None:
    """Why nothing more can be judged after a doubtful verdict; None where the server answers.

    A plain request is asked again after some pauses: a busy server recovers. A failure's reason
    tells that the server was lost over it.
    """
    if result.verdict not in _DOUBTFUL:
        return None
    for pause_s in (0.0, *PAUSES_S):
        await asyncio.sleep(pause_s)
        answer = await plain_answer(session.asker, session.oracle)
        if answer.ending is Ending.COMPLETE:
            return None
    if result.verdict is Verdict.FAIL:
        result.reason += "; after this the server no longer answers"
    if answer.ending is Ending.CONNECT_FAILED:
        return f"the server went away during {result.check_id}"
    said = f"{answer.ending.value}: {answer.error}" if answer.error else answer.ending.value
    return f"the server answers no plain request since {result.check_id}: {said}"

"""Runs one check: draws examples, shrinks the first failing one, and comes to a verdict.

Hypothesis decides what to try; this module decides when to stop and what it means. It keeps its
own record of the smallest failing example, because the search for it is cut off by a limit (every
step costs real requests) and because a server may fail only now and then, which Hypothesis alone
would call flaky.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from hypothesis.errors import Flaky, StopTest, Unsatisfiable, UnsatisfiedAssumption

from harness.checks.assertions import PropertyBroken
from harness.checks.context import CheckContext
from harness.checks.draws import Draws, HypothesisDraws, RecordedDraws
from harness.checks.example import NotApplicable, Tally
from harness.checks.readout import add_readout
from harness.checks.registry import Check
from harness.checks.session import Session
from harness.oracles.flips import CalmRate, FlipTest
from harness.transcript import Ending
from harness.verdict import CheckResult, Failure, Verdict
from workloads.workload import Workload

Call = Callable[[Coroutine[Any, Any, None]], None]


class _Stop(BaseException):
    """Ends the search from inside an example. Not an Exception: Hypothesis would shrink it."""


@dataclass(slots=True)
class _Search:
    """The state of one check's search."""

    check: Check
    session: Session
    call: Call
    tally: Tally = field(default_factory=Tally)
    smallest: Failure | None = None
    weight: tuple[int, int] | None = None
    guess: str | Callable[[], str | None] | None = None
    started_s: float = field(default_factory=time.monotonic)
    failed_s: float | None = None
    runs_since_failure: int = 0
    examples: int = 0
    first_failure_requests: int | None = None

    def example(self, draws: Draws) -> None:
        """Run the body once. Raises PropertyBroken, _Stop, NotApplicable, or what broke."""
        self._stop_when_spent()
        context = CheckContext(self.session, self.check.id, draws, self.tally)
        self.examples += 1
        try:
            self.call(self.check.body(context))
        except PropertyBroken as error:
            self._record(context, error)
            raise
        if self.accusation is not None:
            raise _Stop

    @property
    def accusation(self) -> str | None:
        """What too many tie flips amount to; None while they are as many as on the calm server."""
        calm = self.session.oracle.calm
        if calm is None or not self.tally.tie_flips:
            return None
        test = FlipTest(calm)
        return test.accusation(self.tally.trials) if test.rejects(self.tally.trials) else None

    def _stop_when_spent(self) -> None:
        budget, now_s = self.session.budget, time.monotonic()
        if self.failed_s is None:
            if self.examples and now_s - self.started_s > budget.check_s:
                raise _Stop
            return
        self.runs_since_failure += 1
        if self.runs_since_failure > budget.shrink_runs or (
            now_s - self.failed_s > budget.shrink_s
        ):
            raise _Stop

    def _record(self, context: CheckContext, error: PropertyBroken) -> None:
        if self.failed_s is None:
            self.failed_s = time.monotonic()
            self.first_failure_requests = self.tally.requests
        workloads = [run.workload for run in context.runs]
        weight = (
            sum(len(w.requests) for w in workloads),
            sum(len(r.prompt_ids or r.prompt_text or "") for w in workloads for r in w.requests),
        )
        if self.weight is not None and weight >= self.weight:
            return
        self.weight, self.guess = weight, error.guess
        self.smallest = Failure(
            sentence=self.check.sentence,
            request_key=error.request_key,
            expected=_plain(error.expected),
            actual=_plain(error.actual),
            first_difference=error.first_difference,
            workload=workloads[-1] if workloads else None,
            detail=error.message,
            draws=list(context.draws.recorded),
            earlier=workloads[:-1],
        )

    def explained(self) -> Failure | None:
        """The smallest failure, with the guess at its cause."""
        if self.smallest is not None:
            self.smallest.guess = self.guess() if callable(self.guess) else self.guess
        return self.smallest


def run_check(check: Check, session: Session, call: Call) -> CheckResult:
    """Run one check within the session's budget. ``call`` runs a coroutine to its end."""
    result = CheckResult(check.id, Verdict.PASS, check.sentence)
    search = _Search(check, session, call)
    lacking = session.capabilities.lacking(check.needs)
    if lacking is not None:
        result.verdict, result.reason = Verdict.UNSUPPORTED, lacking
        return result
    try:
        _search(search)
        if search.smallest is None and _lacking_evidence(check, search.tally):
            # Answers that last a few milliseconds do not overlap; longer ones do.
            search.session = _with_longer_answers(session)
            _search(search)
    except NotApplicable as reason:
        result.verdict, result.reason = Verdict.UNSUPPORTED, str(reason)
    except (Unsatisfiable, UnsatisfiedAssumption):
        result.verdict, result.reason = Verdict.INCONCLUSIVE, "no example met the preconditions"
    except Exception as error:
        if search.smallest is None:
            result.verdict = Verdict.ERROR
            result.reason = f"the check itself broke: {type(error).__name__}: {error}"
    if search.smallest is not None:
        _confirm(search, search.smallest)
        result.verdict, result.reason = Verdict.FAIL, search.smallest.detail
        result.failures = [search.smallest]
        search.explained()
        call(add_readout(search.smallest, session))
    elif search.accusation is not None:
        result.verdict, result.reason = Verdict.FAIL, search.accusation
    elif result.verdict is Verdict.PASS:
        _weigh_evidence(result, check, search.tally, session.oracle.calm)
    result.evidence = _evidence(search)
    result.requests = search.tally.requests
    result.first_failure_requests = search.first_failure_requests
    result.duration_s = time.monotonic() - search.started_s
    return result


def _evidence(search: _Search) -> dict[str, float]:
    """What the check counted, with how much it judged."""
    tally = search.tally
    evidence = dict(tally.evidence) | {"examples": float(search.examples)}
    if tally.unjudged:
        evidence["unjudged"] = float(tally.unjudged)
    if tally.judged:
        evidence["judged"] = float(tally.judged)
    if search.session.oracle.calm is not None and tally.trials:
        evidence["tokens_judged"] = float(len(tally.trials))
        evidence["tokens_flipped"] = float(sum(tally.trials.values()))
    return evidence


def replay_check(check: Check, session: Session, call: Call, draws: list[Any]) -> Failure | None:
    """Run the check's body once with recorded choices; the failure, or None if it holds.

    Raises DrawsDiffer when the choices are those of another version of the check.
    """
    search = _Search(check, session, call)
    try:
        search.example(RecordedDraws(draws))
    except PropertyBroken:
        return search.explained()
    return None


def replay_workload(workload: Workload, session: Session, call: Call) -> Failure | None:
    """Run any workload once and hold every answer to the oracle; the failure, or None."""

    async def body(context: CheckContext) -> None:
        await context.assert_as_alone(await context.run(*workload.requests))

    check = Check("replay", "Every request gets the answer that it gets alone", body)
    return replay_check(check, session, call, [])


def _search(search: _Search) -> None:
    """Let Hypothesis look for a failing example and shrink it."""
    examples = max(1, round(search.session.budget.examples * search.check.cost))

    @seeded(f"{search.session.seed}/{search.check.id}")
    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        verbosity=Verbosity.quiet,
        print_blob=False,
    )
    @given(st.data())
    def example(source: st.DataObject) -> None:
        search.example(HypothesisDraws(source))

    try:
        example()
    except (PropertyBroken, Flaky, _Stop, StopTest):
        return


def _confirm(search: _Search, failure: Failure) -> None:
    """Try the smallest example again, so that the report can say k of n."""
    for _ in range(search.session.budget.confirmations):
        failure.tried += 1
        context = CheckContext(
            search.session, search.check.id, RecordedDraws(failure.draws), search.tally
        )
        try:
            search.call(search.check.body(context))
        except PropertyBroken:
            failure.seen += 1
        except (Exception, NotApplicable):
            continue
        if any(a.ending is Ending.CONNECT_FAILED for r in context.runs for a in r.answers):
            return


def _lacking_evidence(check: Check, tally: Tally) -> str | None:
    """Which evidence is missing, None if none is."""
    for name, least in check.shows.items():
        seen = tally.evidence.get(name, 0)
        if seen < least:
            return f"{name} is {seen:g}, should be {least:g}"
    return None


def _with_longer_answers(session: Session) -> Session:
    budget = session.budget
    longer = min(8 * budget.output_tokens, budget.prompt_tokens)
    return replace(session, budget=replace(budget, examples=1, output_tokens=longer))


def _weigh_evidence(result: CheckResult, check: Check, tally: Tally, calm: CalmRate | None) -> None:
    """Lower a pass to inconclusive or tie-flips where that is all that was shown."""
    lacking = _lacking_evidence(check, tally)
    if lacking is not None:
        result.verdict = Verdict.INCONCLUSIVE
        result.reason = f"not shown to be exercised: {lacking}"
        return
    if tally.unjudged and not tally.judged:
        result.verdict = Verdict.INCONCLUSIVE
        result.reason = f"none of {tally.unjudged} answers could be judged"
        return
    if tally.tie_flips:
        result.verdict = Verdict.TIE_FLIPS
        result.reason = f"{tally.tie_flips} of {tally.judged} answers flipped at a near-tie"
        if calm is not None:
            result.reason += f": {FlipTest(calm).counted(tally.trials)}"


def _plain(value: Any) -> Any:
    """The value as JSON can hold it."""
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    return value if isinstance(value, str | int | float | bool | None) else repr(value)

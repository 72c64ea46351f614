"""What a server may do to a client, on the paced server: each with what the client must report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

from harness.client.limits import Limits
from harness.load.paced.pace import Pace
from harness.load.paced.process import paced_server
from harness.metrics.ledger import TokenLedger
from harness.targets.http import HttpTarget
from harness.transcript import Ending, RequestTranscript
from workloads.workload import Workload, WorkloadRequest

TOKENS: Final = 20
STALL_S: Final = 0.3
LATE_S: Final = 0.05
"""How much later than sent the client may see something on a machine that is not idle."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A pace, the ending it must lead to, and what else must hold (a sentence if it does not)."""

    name: str
    pace: dict[str, float]
    ending: Ending
    check: Callable[[RequestTranscript], str | None]


@dataclass(frozen=True, slots=True)
class ScenarioResult:
    """``problem`` is None where every stream was reported as it was."""

    name: str
    streams: int
    problem: str | None


async def run_scenarios(streams: int = 8) -> list[ScenarioResult]:
    """Run each scenario with some streams at once."""
    limits = Limits(first_token_s=5.0, idle_s=0.5, total_s=10.0)
    results = []
    with paced_server() as url:
        target = HttpTarget(url, model="paced", limits=limits)
        for scenario in SCENARIOS:
            got = await target.run(_workload(scenario, streams))
            problems = [_judge(scenario, r) for r in got.requests.values()]
            results.append(
                ScenarioResult(scenario.name, streams, next((p for p in problems if p), None))
            )
        await target.close()
    return results


def _workload(scenario: Scenario, streams: int) -> Workload:
    params: dict[str, Any] = {"max_tokens": TOKENS, "paced": scenario.pace}
    request = WorkloadRequest("", prompt_ids=(1, 2, 3), params=params)
    return Workload(tuple(replace(request, key=f"s{i}") for i in range(streams)))


def _judge(scenario: Scenario, request: RequestTranscript) -> str | None:
    if request.ending is not scenario.ending:
        return f"reported as {request.ending}, was {scenario.ending} ({request.error})"
    return scenario.check(request)


def _sent(request: RequestTranscript) -> list[float]:
    return [d["paced_sent_s"] for d in request.raw if isinstance(d, dict) and "paced_sent_s" in d]


def _kept(tokens: int) -> Callable[[RequestTranscript], str | None]:
    def check(request: RequestTranscript) -> str | None:
        found = TokenLedger.of(request).ids
        return None if found == tokens else f"{found} tokens kept of {tokens} that were sent"

    return check


def _several_tokens(request: RequestTranscript) -> str | None:
    ledger = TokenLedger.of(request)
    if (ledger.server, ledger.ids, ledger.chunks) != (TOKENS, TOKENS, -(-TOKENS // 4)):
        return f"ledgers {ledger}"
    return None


def _gaps(request: RequestTranscript) -> str | None:
    """Each gap as it was sent, no later than `LATE_S`."""
    seen = [b.t_s - a.t_s for a, b in pairwise(request.first.chunks)]
    true = [b - a for a, b in pairwise(_sent(request))]
    if len(seen) != len(true):
        return f"{len(seen)} gaps of {len(true)}"
    worst = max(abs(s - t) for s, t in zip(seen, true, strict=True))
    return None if worst < LATE_S else f"a gap is wrong by {worst * 1e3:.1f} ms"


def _stall(request: RequestTranscript) -> str | None:
    longest = max(b.t_s - a.t_s for a, b in pairwise(request.first.chunks))
    wanted = STALL_S + Pace().gap_s
    if abs(longest - wanted) > LATE_S:
        return f"a stall of {wanted * 1e3:.0f} ms reported as {longest * 1e3:.0f} ms"
    return _gaps(request)


SCENARIOS: Final = (
    Scenario("plain stream", {}, Ending.COMPLETE, _gaps),
    Scenario("4 tokens an event", {"tokens_per_chunk": 4}, Ending.COMPLETE, _several_tokens),
    Scenario("bursts of 5 events", {"chunks_per_write": 5}, Ending.COMPLETE, _gaps),
    Scenario("stall", {"stall_at": 7, "stall_s": STALL_S}, Ending.COMPLETE, _stall),
    Scenario("error mid-stream", {"error_at": 6}, Ending.SERVER_ERROR, _kept(6)),
    Scenario("half-open", {"hang_at": 6}, Ending.TIMEOUT, _kept(6)),
    Scenario("reset mid-stream", {"reset_at": 6}, Ending.DISCONNECTED, _kept(6)),
)

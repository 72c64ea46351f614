"""A fake server in which a step takes the time of the tokens that it computes, techniques apart.

Time is virtual: what a technique saves or costs is exact, and a disturbance comes when it is told.
"""

from __future__ import annotations

from collections.abc import Callable

from harness.transcript import Ending, RequestTranscript, Transcript
from reference_engine.probe import ProbeConfig
from tests.checks.fake_server import FakeServer, Row
from workloads.workload import Workload, WorkloadRequest

STEP_S = 0.001
TOKEN_S = 0.0001


class PacedServer(FakeServer):
    """``chunk_tokens``: tokens a step computes at most, None for no limit.

    ``refill``: "at once", "unused" (late requests take slots that were never taken) or "never"
    (while anybody runs). ``late_pause_s`` tells for the n-th run with a late request how long the
    machine is away while that request is read.
    """

    def __init__(
        self,
        config: ProbeConfig,
        *,
        chunk_tokens: int | None = 256,
        cached_keys: bool = True,
        cached_prefixes: bool = True,
        padded: bool = False,
        slots: int = 16,
        refill: str = "at once",
        late_pause_s: Callable[[int], float] = lambda _number: 0.0,
    ) -> None:
        super().__init__(config)
        self.chunk_tokens = chunk_tokens or 1 << 20
        self.cached_keys, self.cached_prefixes, self.padded = cached_keys, cached_prefixes, padded
        self.slots, self.refill, self.late_pause_s = slots, refill, late_pause_s
        self.late_runs = 0

    async def run(self, workload: Workload) -> Transcript:
        transcript = Transcript()
        for r in workload.requests:
            transcript.requests[r.key] = RequestTranscript(r.key, Ending.COMPLETE, r.due_s)
        pause_s = self._pause_of_run(workload)
        pending, waiting = list(workload.requests), []
        running: list[Row] = []
        read: dict[int, int] = {}
        now_s, taken = 0.0, 0
        while pending or waiting or running:
            for request in [r for r in pending if self._due(r, transcript, now_s)]:
                pending.remove(request)
                waiting += self._admitted(request, transcript, now_s)
            taken = max(taken, len(running)) if running else 0
            for _ in range(min(self._room(running, taken), len(waiting))):
                row = self._next(waiting)
                read[id(row)] = self._found(row)
                running.append(row)
                taken += 1
            counts = self._planned(running, read)
            now_s += self._cost_s(running, counts, read)
            if any(r.request.key == "late" and counts[id(r)] > 1 for r in running):
                now_s, pause_s = now_s + pause_s, 0.0
            self._compute(running, counts, read, now_s)
            running = self._retire(running, now_s)
            if not running and not waiting and pending:
                now_s = max(now_s, min(r.due_s for r in pending))
        transcript.duration_s = now_s
        return transcript

    def refuses(self, request: WorkloadRequest) -> bool:
        ignored = request.params.get("ignore_eos", False)
        return not isinstance(ignored, bool) or super().refuses(request)

    def _pause_of_run(self, workload: Workload) -> float:
        if all(r.key != "late" for r in workload.requests):
            return 0.0
        self.late_runs += 1
        return self.late_pause_s(self.late_runs - 1)

    def _next(self, waiting: list[Row]) -> Row:
        return waiting.pop(0)

    def _room(self, running: list[Row], taken: int) -> int:
        if self.refill == "never" and running:
            return 0
        return self.slots - (taken if self.refill == "unused" else len(running))

    def _found(self, row: Row) -> int:
        known = self.cached_prefixes and row.prompt_ids in self.finished_prompts
        return len(row.prompt_ids) - 1 if known else 0

    def _planned(self, running: list[Row], read: dict[int, int]) -> dict[int, int]:
        """How many tokens of each row the step computes: decodes first."""
        counts, budget = dict.fromkeys(map(id, running), 0), self.chunk_tokens
        for row in sorted(running, key=lambda r: not r.token_ids):
            known = len(row.prompt_ids) + len(row.token_ids)
            counts[id(row)] = min(budget, known - read[id(row)])
            budget -= counts[id(row)]
        return counts

    def _cost_s(self, running: list[Row], counts: dict[int, int], read: dict[int, int]) -> float:
        tokens = sum(counts.values())
        if self.padded:
            tokens = sum(n > 0 for n in counts.values()) * max(counts.values(), default=0)
        if not self.cached_keys:
            tokens += sum(read[id(row)] for row in running)
        return STEP_S + TOKEN_S * tokens

    def _compute(
        self, running: list[Row], counts: dict[int, int], read: dict[int, int], now_s: float
    ) -> None:
        for row in running:
            read[id(row)] += counts[id(row)]
            if read[id(row)] == len(row.prompt_ids) + len(row.token_ids):
                self._advance(row, [], now_s)

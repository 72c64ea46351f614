"""What the idle server answers to a request alone, asked once and remembered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from harness.oracles.oracle import Expected, NotPredictable
from harness.transcript import Ending, RequestTranscript
from workloads.workload import Workload, WorkloadRequest

if TYPE_CHECKING:
    from harness.checks.asker import Asker


class IdleAnswers:
    """Solo answers by request. ``extra`` numbers are the least that a request asks for."""

    def __init__(self, asker: Asker, extra: Mapping[str, int] | None = None) -> None:
        self._asker = asker
        self._extra = dict(extra or {})
        self._answers: dict[str, RequestTranscript] = {}

    async def to(self, request: WorkloadRequest) -> RequestTranscript:
        """The answer. Raises NotPredictable for a draw without a seed, and where it fails alone."""
        if request.params.get("temperature", 1) and request.params.get("seed") is None:
            raise NotPredictable("a sampled answer without a seed")
        params = dict(request.params)
        for name, value in self._extra.items():
            params[name] = max(value, params.get(name) or 0)
        solo = replace(
            request, key="alone", due_s=0.0, after=None, cancel_after_tokens=None,
            cancel_after_s=None, stream=True, params=params,
        )  # fmt: skip
        digest = Workload((solo,)).sha256
        if digest not in self._answers:
            answer = await self._asker.one(solo, "alone")
            if answer.ending is not Ending.COMPLETE:
                raise NotPredictable(f"alone the request ended in {answer.ending.value}")
            self._answers[digest] = answer
        return self._answers[digest]


def as_expected(answer: RequestTranscript) -> Expected:
    """A server's own answer, taken for the right one."""
    reason = next(iter(answer.first.finish_reasons), "")
    prompt_tokens = answer.usage.prompt_tokens if answer.usage else None
    return Expected(answer.first.token_ids, answer.first.text, reason, prompt_tokens)

"""How a server wants to be asked: the fields it refuses, and how it ends its streams.

Some servers refuse a body with any field they do not know, or end a stream by closing it. Neither
says anything about their answers, so the suite adapts, and leaves the judgement of the protocol to
the checks that are about it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from harness.targets.target import Target, TargetUnusable
from harness.transcript import Ending, RequestTranscript, Transcript
from workloads.workload import Workload, WorkloadRequest

# Fields that the HTTP target adds by itself; None takes one out again.
_OPTIONAL: Final[tuple[Mapping[str, Any], ...]] = (
    {},
    {"return_token_ids": None},
    {"return_token_ids": None, "stream_options": None},
)


@dataclass(frozen=True, slots=True)
class Dialect:
    """``params`` go into every request. ``ends_by_closing``: streams come without ``[DONE]``."""

    params: Mapping[str, Any] = field(default_factory=dict)
    ends_by_closing: bool = False

    def read(self, transcript: Transcript) -> Transcript:
        """Take a stream that gave its finish reason and closed for complete, where that is usual.

        The transcript still counts no terminator, for the check that asks for one.
        """
        if self.ends_by_closing:
            for answer in transcript.requests.values():
                if _finished_without_terminator(answer):
                    answer.ending, answer.error = Ending.COMPLETE, None
        return transcript


async def find_dialect(target: Target, params: Mapping[str, Any]) -> Dialect:
    """Ask a plain question until the server takes it.

    Raises TargetUnusable when it takes none, with what it said to the first.
    """
    first: RequestTranscript | None = None
    for removed in _OPTIONAL:
        tried = {**params, **removed}
        request = WorkloadRequest(
            "hello",
            prompt_text="Hello, world",
            params={"max_tokens": 4, "temperature": 0, **tried},
        )
        answer = (await target.run(Workload((request,), origin="hello")))["hello"]
        first = first or answer
        if answer.ending is Ending.COMPLETE:
            return Dialect(tried)
        if _finished_without_terminator(answer):
            return Dialect(tried, ends_by_closing=True)
        if answer.ending is not Ending.REFUSED:
            break
    said = (first.error or first.ending.value) if first is not None else "nothing"
    raise TargetUnusable(
        f"{target.name} does not complete a plain request to /v1/completions: {said}"
    )


def _finished_without_terminator(answer: RequestTranscript) -> bool:
    return (
        answer.ending is Ending.DISCONNECTED
        and answer.terminators == 0
        and bool(answer.choices)
        and all(choice.finish_reasons for choice in answer.choices.values())
    )

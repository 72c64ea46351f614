"""How a load is put to one server: fields it refuses are left out, ids it refuses are spelled.

Context: `transformers serve` refuses a body with any field it does not know, takes prompts as text
only, and ends its streams by closing them. Another server's load could then not be measured at all.

Choice: before a run the server is asked one small question of the load's own shape, and where it
refuses, one more for each thing that it may refuse. The workload stays what was wanted; the wording
says how it was put, goes into the result, and the metrics against the plan (`lengths.*`) show what
the difference did. A field that the user gave is never left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from harness.transcript import Ending, RequestTranscript
from workloads.workload import Workload, WorkloadRequest

if TYPE_CHECKING:
    from harness.targets.http import HttpTarget

Spelling = Callable[[Sequence[int]], str]
"""Makes the text of a prompt's token ids, of which the server makes the same ids again."""

TOKEN_ID_PROMPTS: Final = "prompts as token ids"
# What a load can do without. The first and the last are added by the HTTP target itself.
_OPTIONAL: Final = ("return_token_ids", "ignore_eos", "min_tokens", "stream_options")
_QUESTION_TOKENS: Final = 4
_QUESTION_PROMPT: Final = 16


@dataclass(frozen=True, slots=True)
class Wording:
    """``without``: what the server refuses, in its own words; these fields are left out.

    ``spelling`` makes text of token-id prompts, None where they are sent as ids.
    ``ends_by_closing``: a stream that gave its finish reasons and then simply ends is whole.
    """

    without: Mapping[str, str] = field(default_factory=dict)
    spelling: Spelling | None = None
    ends_by_closing: bool = False

    def to_json(self) -> dict[str, Any]:
        """What a run's document keeps of it, under the server."""
        return {"without": dict(self.without), "streams_end_without_done": self.ends_by_closing}

    def sentences(self) -> list[str]:
        """One line for each thing that is not as usual."""
        lines = [f"left out: {name}, which the server refuses: {w}" for name, w in self._fields()]
        if TOKEN_ID_PROMPTS in self.without:
            lines.append(f"prompts are sent as text: {self.without[TOKEN_ID_PROMPTS]}")
        if self.ends_by_closing:
            lines.append("streams end without [DONE]: those with a finish reason count as whole")
        return lines

    def put(self, workload: Workload) -> Workload:
        """The workload as the server gets it, for judging: other fields mean other answers."""
        return replace(workload, requests=tuple(self._put(r) for r in workload.requests))

    def _put(self, request: WorkloadRequest) -> WorkloadRequest:
        kept = {k: v for k, v in request.params.items() if k not in self.without}
        ids = request.prompt_ids
        if self.spelling is None or ids is None:
            return replace(request, params=kept)
        return replace(request, params=kept, prompt_ids=None, prompt_text=self.spelling(ids))

    def joined(self, other: Wording) -> Wording:
        """What suits both servers: neither is asked for what one of them refuses."""
        return Wording(
            {**other.without, **self.without},
            self.spelling or other.spelling,
            self.ends_by_closing or other.ends_by_closing,
        )

    def _fields(self) -> list[tuple[str, str]]:
        return [(n, words) for n, words in self.without.items() if n != TOKEN_ID_PROMPTS]


async def find_wording(
    target: HttpTarget,
    sample: WorkloadRequest,
    spelling: Spelling | None = None,
    given: Mapping[str, Any] | None = None,
) -> Wording:
    """Ask the idle server questions shaped like ``sample``, a request that is not measured later.

    ``given`` are the fields that the user asked for. A server that answers no form of the question
    gets the usual wording: what it says to the load itself is then the result.
    """
    question = _Question(target, _short(sample), spelling, given or {})
    first = await question.ask(frozenset())
    if first.ending is Ending.COMPLETE:
        return Wording(ends_by_closing=first.closed_without_done)
    everything = frozenset(question.removable)
    if first.ending is not Ending.REFUSED or not everything:
        return Wording()
    barest = await question.ask(everything)
    if barest.ending is not Ending.COMPLETE:
        return Wording()
    without: dict[str, str] = {}
    for name in question.removable:
        answer = await question.ask(everything - {name})
        if answer.ending is Ending.REFUSED:
            without[name] = (answer.error or answer.ending.value)[:160]
    used = spelling if TOKEN_ID_PROMPTS in without else None
    return Wording(without, used, ends_by_closing=barest.closed_without_done)


@dataclass(frozen=True, slots=True)
class _Question:
    target: HttpTarget
    sample: WorkloadRequest
    spelling: Spelling | None
    given: Mapping[str, Any]

    @property
    def removable(self) -> list[str]:
        """What this request carries and can do without."""
        sent = self.target.caller().body(self.sample)
        names: list[str] = [name for name in _OPTIONAL if name in sent and name not in self.given]
        if self.sample.prompt_ids is not None and self.spelling is not None:
            names.append(TOKEN_ID_PROMPTS)
        return names

    async def ask(self, without: frozenset[str]) -> RequestTranscript:
        """The answer to the question in that form; a stream may end by closing."""
        spelling = self.spelling if TOKEN_ID_PROMPTS in without else None
        self.target.wording = Wording(dict.fromkeys(without, ""), spelling, ends_by_closing=True)
        try:
            answers = await self.target.run(Workload((self.sample,), origin="wording"))
        finally:
            self.target.wording = Wording()
        return answers[self.sample.key]


def _short(sample: WorkloadRequest) -> WorkloadRequest:
    """The request alone, at once, with a short prompt and a short answer."""
    params = {**sample.params, "max_tokens": _QUESTION_TOKENS}
    if isinstance(least := params.get("min_tokens"), int):
        params["min_tokens"] = min(least, _QUESTION_TOKENS)
    ids, text = sample.prompt_ids, sample.prompt_text
    return replace(
        WorkloadRequest("wording", prompt_text="", params=params, stream=sample.stream),
        prompt_ids=None if ids is None else ids[:_QUESTION_PROMPT],
        prompt_text=None if text is None else " ".join(text.split()[:_QUESTION_PROMPT]),
        messages=sample.messages,
    )

"""The `Workload`: requests with due times and cancel points, and its JSON form.

A workload says everything that a client does, and nothing about the server. It is data: drawn by
a Hypothesis strategy, read from a trace, or loaded from a preset, and written to a file when it is
the smallest one that fails.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

FORMAT = "isobatch.workload/1"
_PROMPTS = ("prompt_ids", "prompt_text", "messages")
_DEFAULTS: tuple[tuple[str, Any], ...] = (
    ("params", {}),
    ("headers", {}),
    ("stream", True),
    ("due_s", 0.0),
    ("think_s", 0.0),
)


@dataclass(frozen=True, slots=True)
class AfterTokens:
    """A trigger: ``tokens`` token-bearing events of request ``key`` have reached the client."""

    key: str
    tokens: int


@dataclass(frozen=True, slots=True)
class WorkloadRequest:
    """One request of a workload.

    ``key`` names it within the workload. The prompt is ``prompt_ids`` or ``prompt_text`` or, for
    the chat endpoint, ``messages``; exactly one is set. ``params`` are OpenAI request fields
    (``max_tokens``, ``temperature``, ...), sent as they are, and ``headers`` HTTP headers that this
    request alone carries. It is sent ``due_s`` seconds after the run begins and, when ``after`` is
    set, not before that trigger. ``cancel_after_tokens`` closes the connection after so many
    token-bearing events (0: as soon as it is sent); ``cancel_after_s`` does it after so many
    seconds.
    """

    key: str
    prompt_ids: tuple[int, ...] | None = None
    prompt_text: str | None = None
    messages: tuple[Mapping[str, Any], ...] | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    stream: bool = True
    due_s: float = 0.0
    after: AfterTokens | None = None
    cancel_after_tokens: int | None = None
    cancel_after_s: float | None = None
    after_end: str | None = None
    think_s: float = 0.0

    def __post_init__(self) -> None:
        given = [p for p in (self.prompt_ids, self.prompt_text, self.messages) if p is not None]
        if len(given) != 1:
            raise ValueError(
                f"request {self.key!r} needs exactly one of prompt_ids, prompt_text, messages"
            )

    @property
    def cancels(self) -> bool:
        """Whether the client means to hang up before the end."""
        return self.cancel_after_tokens is not None or self.cancel_after_s is not None


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests in order of submission. ``seed`` and ``origin`` say where it came from.

    ``concurrency`` closes the loop: at most so many are in flight, and the next that is due is
    sent when one ends. None leaves it open: the schedule alone decides.
    """

    requests: tuple[WorkloadRequest, ...]
    origin: str = ""
    seed: int | None = None
    concurrency: int | None = None

    def __post_init__(self) -> None:
        keys = {r.key for r in self.requests}
        if len(keys) != len(self.requests):
            raise ValueError("two requests of the workload have the same key")
        if self.concurrency is not None and self.concurrency < 1:
            raise ValueError(f"concurrency is {self.concurrency}, at least 1 is needed")
        for request in self.requests:
            for awaited in (request.after.key if request.after else None, request.after_end):
                if awaited is not None and awaited not in keys:
                    raise ValueError(f"request {request.key!r} waits for {awaited!r}: no such key")

    def to_json(self) -> dict[str, Any]:
        """The JSON document, without the fields that hold their default."""
        rows = []
        for request in self.requests:
            row = {k: v for k, v in _fields(request).items() if v is not None}
            for name, default in _DEFAULTS:
                if row[name] == default:
                    del row[name]
            rows.append(row)
        document = {"format": FORMAT, "origin": self.origin, "seed": self.seed, "requests": rows}
        if self.concurrency is not None:
            document["concurrency"] = self.concurrency
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote. Raises ValueError with the place of the first mistake."""
        if not isinstance(document, Mapping):
            raise ValueError("a JSON object is expected")
        if document.get("format") != FORMAT:
            raise ValueError(
                f"not a workload: format is {document.get('format')!r}, not {FORMAT!r}"
            )
        rows = document.get("requests", ())
        if not isinstance(rows, Sequence) or not all(isinstance(row, Mapping) for row in rows):
            raise ValueError("requests: a list of JSON objects is expected")
        requests = []
        for index, row in enumerate(rows):
            try:
                requests.append(_request_from_json(row))
            except (TypeError, KeyError, ValueError) as error:
                raise ValueError(f"requests[{index}]: {error}") from None
        return cls(
            tuple(requests),
            document.get("origin", ""),
            document.get("seed"),
            document.get("concurrency"),
        )

    @property
    def sha256(self) -> str:
        """A digest of the JSON form, the same on every machine."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def _fields(request: WorkloadRequest) -> dict[str, Any]:
    """As `asdict`, which would copy every id of every prompt by itself, several times a run."""
    without_prompt = asdict(replace(request, prompt_ids=(), prompt_text=None, messages=None))
    prompt = (request.prompt_ids, request.prompt_text, copy.deepcopy(request.messages))
    return {**without_prompt, **dict(zip(_PROMPTS, prompt, strict=True))}


def _request_from_json(row: Mapping[str, Any]) -> WorkloadRequest:
    fields = dict(row)
    if (ids := fields.get("prompt_ids")) is not None:
        fields["prompt_ids"] = tuple(int(i) for i in ids)
    if (messages := fields.get("messages")) is not None:
        fields["messages"] = tuple(messages)
    headers = fields.get("headers", {})
    if not isinstance(headers, Mapping) or not all(isinstance(v, str) for v in headers.values()):
        raise ValueError("headers: an object of strings is expected")
    if (after := fields.get("after")) is not None:
        fields["after"] = AfterTokens(**after)
    return WorkloadRequest(**fields)

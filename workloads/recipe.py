"""The `Recipe`: a load described in a few lines of TOML, from which a workload is built."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from workloads.arrivals import Arrivals, AtOnce, arrivals_from
from workloads.lengths import Lengths, lengths_from
from workloads.prompts import Prompts
from workloads.seeded import stream
from workloads.workload import Workload, WorkloadRequest

_FIELDS = {
    "title", "requests", "concurrency", "arrivals", "prompt_tokens", "output_tokens",
    "shared_prefix_tokens", "prefix_groups", "cancel_share", "params", "source", "licence",
    "turns", "think_s",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Recipe:
    """How many requests, when, how long, and what they share.

    Open (``arrivals`` decides) or closed (``concurrency`` decides). With ``shared_prefix_tokens``
    every prompt begins with one of ``prefix_groups`` common prefixes of that length.
    ``cancel_share`` of the requests are cancelled after a random part of their output. With
    ``turns``, arrivals are conversations of so many requests: each turn's prompt is all of the
    turn before, as many made-up tokens as that turn was to answer, and a new prompt; it is sent
    ``think_s`` seconds (exponential, by mean) after the turn before has ended. ``source`` and
    ``licence`` say where fitted numbers come from.
    """

    name: str
    title: str
    requests: int
    prompt_tokens: Lengths
    output_tokens: Lengths
    arrivals: Arrivals = field(default_factory=AtOnce)
    concurrency: int | None = None
    shared_prefix_tokens: int = 0
    prefix_groups: int = 1
    cancel_share: float = 0.0
    params: Mapping[str, Any] = field(default_factory=dict)
    turns: Lengths | None = None
    think_s: float = 0.0
    source: str = ""
    licence: str = ""

    @classmethod
    def from_toml(cls, name: str, text: str) -> Self:
        """Read a recipe. Raises ValueError with one sentence that names the place."""
        try:
            table = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"workload {name!r} is not TOML: {error}") from None
        unknown = table.keys() - _FIELDS
        if unknown:
            raise ValueError(f"workload {name!r}: unknown field {', '.join(sorted(unknown))}")
        try:
            table["prompt_tokens"] = lengths_from(table["prompt_tokens"])
            table["output_tokens"] = lengths_from(table["output_tokens"])
            if "turns" in table:
                table["turns"] = lengths_from(table["turns"])
            if "arrivals" in table:
                table["arrivals"] = arrivals_from(table["arrivals"])
            return cls(name=name, **table)
        except KeyError as error:
            raise ValueError(f"workload {name!r}: {error.args[0]} is missing") from None
        except (TypeError, ValueError) as error:
            raise ValueError(f"workload {name!r}: {error}") from None

    def resized(self, *, requests: int | None, concurrency: int | None) -> Self:
        """The same load with another number of requests or another concurrency."""
        recipe = self if requests is None else replace(self, requests=requests)
        return recipe if concurrency is None else replace(recipe, concurrency=concurrency)

    def build(self, prompts: Prompts, seed: int) -> Workload:
        """The workload, the same for the same seed, bit for bit."""
        draws = _Draws(seed)
        due = self.arrivals.times(self.requests, stream(seed, "arrivals"))
        requests: list[WorkloadRequest] = []
        for due_s in due:
            turns = 1 if self.turns is None else self.turns.draw(draws.turns)
            previous: WorkloadRequest | None = None
            for _ in range(turns):
                if len(requests) == self.requests:
                    break
                number = len(requests)
                request = self._request(prompts, seed, number, draws)
                if previous is None:
                    request = replace(request, due_s=due_s)
                else:
                    request = self._next_turn(prompts, seed, number, previous, request, draws)
                requests.append(request)
                previous = request
        return Workload(tuple(requests), f"preset {self.name}", seed, self.concurrency)

    def _request(self, prompts: Prompts, seed: int, number: int, draws: _Draws) -> WorkloadRequest:
        output = self.output_tokens.draw(draws.output)
        length = self.prompt_tokens.draw(draws.prompt)
        group = int(draws.group.random() * self.prefix_groups)
        content = self._prompt(prompts, seed, number, length, group)
        cancels = draws.cancel.random() < self.cancel_share
        cancel_at = int(draws.cancel.random() * output)
        return WorkloadRequest(
            key=f"r{number}",
            prompt_ids=content if isinstance(content, tuple) else None,
            prompt_text=content if isinstance(content, str) else None,
            params={"max_tokens": output, **self.params},
            cancel_after_tokens=cancel_at if cancels else None,
        )

    def _next_turn(
        self,
        prompts: Prompts,
        seed: int,
        number: int,
        previous: WorkloadRequest,
        new: WorkloadRequest,
        draws: _Draws,
    ) -> WorkloadRequest:
        # What the server will have said is not known beforehand; made-up tokens stand for it, so
        # that the workload stays data. The cache still finds the whole turn before, if not that.
        said = prompts.prompt(seed, -1_000_000 - number, int(previous.params["max_tokens"]))
        think_s = -math.log(1.0 - draws.think.random()) * self.think_s
        timing: dict[str, Any] = {"after_end": previous.key, "think_s": think_s}
        if isinstance(said, str):
            text = f"{previous.prompt_text} {said} {new.prompt_text}"
            return replace(new, prompt_text=text, **timing)
        first = getattr(prompts, "bos_id", None) is not None
        ids = (*(previous.prompt_ids or ()), *said[first:], *(new.prompt_ids or ())[first:])
        return replace(new, prompt_ids=ids, **timing)

    def _prompt(
        self, prompts: Prompts, seed: int, number: int, length: int, group: int
    ) -> tuple[int, ...] | str:
        shared = min(self.shared_prefix_tokens, length)
        own = prompts.prompt(seed, number, length)
        if shared == 0:
            return own
        # Prefixes are numbered from -1 down, prompts from 0 up.
        prefix = prompts.prompt(seed, -1 - group, shared)
        if isinstance(own, tuple) and isinstance(prefix, tuple):
            return prefix + own[shared:]
        return f"{prefix} {' '.join(str(own).split()[shared:])}".strip()


class _Draws:
    """The streams of one workload, each for one purpose."""

    def __init__(self, seed: int) -> None:
        self.prompt = stream(seed, "prompt-lengths")
        self.output = stream(seed, "output-lengths")
        self.cancel = stream(seed, "cancels")
        self.group = stream(seed, "prefix-groups")
        self.turns = stream(seed, "turns")
        self.think = stream(seed, "think-times")

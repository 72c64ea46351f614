"""The `Recipe`: a load described in a few lines of TOML, from which a workload is built."""

from __future__ import annotations

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
    "shared_prefix_tokens", "prefix_groups", "cancel_share", "params",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Recipe:
    """How many requests, when, how long, and what they share.

    Open (``arrivals`` decides) or closed (``concurrency`` decides). With ``shared_prefix_tokens``
    every prompt begins with one of ``prefix_groups`` common prefixes of that length.
    ``cancel_share`` of the requests are cancelled after a random part of their output.
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
        due = self.arrivals.times(self.requests, stream(seed, "arrivals"))
        prompt_rng, output_rng = stream(seed, "prompt-lengths"), stream(seed, "output-lengths")
        cancel_rng, group_rng = stream(seed, "cancels"), stream(seed, "prefix-groups")
        requests = []
        for number, due_s in enumerate(due):
            output = self.output_tokens.draw(output_rng)
            length = self.prompt_tokens.draw(prompt_rng)
            group = int(group_rng.random() * self.prefix_groups)
            content = self._prompt(prompts, seed, number, length, group)
            cancels = cancel_rng.random() < self.cancel_share
            cancel_at = int(cancel_rng.random() * output) if cancels else None
            requests.append(
                WorkloadRequest(
                    key=f"r{number}",
                    prompt_ids=content if isinstance(content, tuple) else None,
                    prompt_text=content if isinstance(content, str) else None,
                    params={"max_tokens": output, **self.params},
                    due_s=due_s,
                    cancel_after_tokens=cancel_at,
                )
            )
        return Workload(tuple(requests), f"preset {self.name}", seed, self.concurrency)

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

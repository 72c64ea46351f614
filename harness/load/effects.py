"""Two effects of batching, measured live: raggedness, and long prompts beside streams."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from harness.metrics.comparisons import prefill_interference, ragged_efficiency, uniform_twin
from harness.results.document import MetricRow
from harness.targets.http import HttpTarget
from harness.targets.wording import Spelling, find_wording
from workloads.prompts import Prompts
from workloads.recipe import Recipe
from workloads.workload import AfterTokens, Workload, WorkloadRequest

_GREEDY: Final = {"temperature": 0.0, "ignore_eos": True}
_OTHER_SEED: Final = 7_000_003


@dataclass(frozen=True, slots=True)
class Interference:
    """Streams that run, and long prompts sent one after another beside them."""

    streams: int = 12
    stream_tokens: int = 96
    long_prompt_tokens: int = 512
    long_prompts: int = 8

    def workload(self, prompts: Prompts, seed: int, *, long: bool) -> Workload:
        """The streams, with the long prompts or without; each prompt is used once."""
        requests = [
            self._request(prompts, seed, number, f"stream{number}", 16, self.stream_tokens)
            for number in range(self.streams)
        ]
        if long:
            requests += self._long(prompts, seed)
        return Workload(tuple(requests), "prefill interference", seed)

    @property
    def long_keys(self) -> list[str]:
        """The keys of the long prompts."""
        return [f"long{number}" for number in range(self.long_prompts)]

    def _long(self, prompts: Prompts, seed: int) -> list[WorkloadRequest]:
        made: list[WorkloadRequest] = []
        for number, key in enumerate(self.long_keys):
            place = self.streams + number
            request = self._request(prompts, seed, place, key, self.long_prompt_tokens, 1)
            if made:
                made.append(replace(request, after_end=made[-1].key))
            else:
                made.append(replace(request, after=AfterTokens("stream0", 4)))
        return made

    def _request(
        self, prompts: Prompts, seed: int, number: int, key: str, tokens: int, output: int
    ) -> WorkloadRequest:
        content = prompts.prompt(seed, number, tokens)
        params: Mapping[str, Any] = {"max_tokens": output, **_GREEDY}
        return WorkloadRequest(
            key,
            prompt_ids=content if isinstance(content, tuple) else None,
            prompt_text=content if isinstance(content, str) else None,
            params=params,
        )


async def measure_effects(
    target: HttpTarget,
    recipe: Recipe,
    prompts: Prompts,
    seed: int,
    interference: Interference | None = None,
    spelling: Spelling | None = None,
) -> list[MetricRow]:
    """Both effects, each from two runs on an otherwise idle server, after a warm-up.

    ``target.wording`` becomes what the server takes; ``spelling`` makes text of token-id prompts.
    """
    shape = interference or Interference()
    ragged = recipe.build(prompts, seed)
    warmup = recipe.resized(requests=8, concurrency=8).build(prompts, seed + _OTHER_SEED)
    target.wording = await find_wording(target, warmup.requests[0], spelling)
    await target.run(warmup)
    uniform_run = await target.run(uniform_twin(ragged, prompts, seed + 1))
    ragged_run = await target.run(ragged)
    calm = await target.run(shape.workload(prompts, seed + 2, long=False))
    busy = await target.run(shape.workload(prompts, seed + 3, long=True))
    return [
        ragged_efficiency(list(ragged_run.requests.values()), list(uniform_run.requests.values())),
        prefill_interference(
            list(busy.requests.values()), list(calm.requests.values()), shape.long_keys
        ),
    ]

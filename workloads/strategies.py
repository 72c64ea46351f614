"""Hypothesis strategies for ragged requests, arrivals and cancel points.

Lengths come from the boundaries at which engines change behaviour (page, prefill chunk, window,
graph bucket), each -1, 0 and +1, mixed with short lengths; the caller names the alphabet. Contents
are derived from one drawn integer, so a long prompt costs one draw and shrinking shortens prompts
before it changes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from hypothesis import strategies as st

from workloads.lengths import boundary_lengths
from workloads.prompts import TokenAlphabet
from workloads.workload import AfterTokens, Workload, WorkloadRequest

COMMON_SIZES: Final = (16, 32, 64, 128, 256)
"""Page, chunk and bucket sizes of engines in use; see the boundaries table of each."""


def lengths(
    sizes: Sequence[int] = COMMON_SIZES, *, low: int = 1, high: int = 300
) -> st.SearchStrategy[int]:
    """A token count: a short one, or one at a boundary of ``sizes``."""
    short = st.integers(low, min(high, max(low, 40)))
    return st.one_of(short, st.sampled_from(boundary_lengths(sizes, low=low, high=high)))


def prompts(
    alphabet: TokenAlphabet, prompt_tokens: st.SearchStrategy[int]
) -> st.SearchStrategy[tuple[int, ...]]:
    """Token-id prompts over ``alphabet``, each of a length drawn from ``prompt_tokens``."""
    return st.builds(
        lambda content, tokens: alphabet.prompt(content, 0, tokens),
        st.integers(0, 2**16 - 1),
        prompt_tokens,
    )


@st.composite
def requests(
    draw: st.DrawFn,
    alphabet: TokenAlphabet,
    *,
    key: str = "r0",
    prompt_tokens: st.SearchStrategy[int] | None = None,
    output_tokens: st.SearchStrategy[int] | None = None,
    stream: bool = True,
) -> WorkloadRequest:
    """One request with greedy parameters."""
    prompt = draw(prompts(alphabet, prompt_tokens or lengths(low=2)), label=f"{key} prompt")
    output = draw(output_tokens or lengths((16, 32), low=1, high=40), label=f"{key} max_tokens")
    params = {"max_tokens": output, "temperature": 0.0}
    return WorkloadRequest(key, prompt_ids=prompt, params=params, stream=stream)


@st.composite
def workloads(
    draw: st.DrawFn,
    alphabet: TokenAlphabet,
    *,
    min_requests: int = 2,
    max_requests: int = 8,
    prompt_tokens: st.SearchStrategy[int] | None = None,
    output_tokens: st.SearchStrategy[int] | None = None,
    cancels: bool = False,
) -> Workload:
    """A ragged workload: some requests at once, some due later, some after tokens of another.

    With ``cancels``, some are cancelled at a drawn point: at once, at the first token, in the
    middle, or where the last token would be.
    """
    count = draw(st.integers(min_requests, max_requests), label="number of requests")
    made: list[WorkloadRequest] = []
    for number in range(count):
        base = draw(
            requests(
                alphabet,
                key=f"r{number}",
                prompt_tokens=prompt_tokens,
                output_tokens=output_tokens,
            )
        )
        due_s, after = draw(arrivals(made), label=f"{base.key} arrival")
        cancel = draw(cancel_points(base), label=f"{base.key} cancel") if cancels else None
        made.append(replace(base, due_s=due_s, after=after, cancel_after_tokens=cancel))
    return Workload(tuple(made), origin="workloads.strategies")


def arrivals(
    earlier: Sequence[WorkloadRequest],
) -> st.SearchStrategy[tuple[float, AfterTokens | None]]:
    """When a request comes: at once, some milliseconds later, or after tokens of an earlier one."""
    now = st.just((0.0, None))
    later = st.integers(1, 50).map(lambda ms: (ms / 1000, None))
    if not earlier:
        return st.one_of(now, later)
    triggers = st.sampled_from(list(earlier)).flatmap(
        lambda request: st.integers(1, max(1, int(request.params["max_tokens"]))).map(
            lambda tokens: (0.0, AfterTokens(request.key, tokens))
        )
    )
    return st.one_of(now, later, triggers)


def cancel_points(request: WorkloadRequest) -> st.SearchStrategy[int | None]:
    """None, or how many token-bearing events the client waits for before it hangs up."""
    last = max(1, int(request.params["max_tokens"]))
    return st.one_of(st.none(), st.sampled_from(sorted({0, 1, (last + 1) // 2, last})))

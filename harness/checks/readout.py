"""What a probe's layers saw when a check failed: the failing example again, with top logprobs.

Only probes have gauges, and only servers with top logprobs show them. Elsewhere a failure keeps
its verdict and goes without these words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from harness.checks.capabilities import Capability
from harness.oracles.probe import ProbeOracle
from reference_engine.probe import ProbeConfig, vocabulary
from reference_engine.probe.readout import Reading, in_words, read_answer

if TYPE_CHECKING:
    from harness.checks.session import Session
    from harness.transcript import RequestTranscript
    from harness.verdict import Failure
    from workloads.workload import WorkloadRequest

TOP: Final = 20
_TRIES: Final = 2


async def add_readout(failure: Failure, session: Session) -> None:
    """Add to the failure's guess what the layers saw, where the server lets that be read."""
    oracle = session.oracle
    if not isinstance(oracle, ProbeOracle) or Capability.LOGPROBS not in session.capabilities:
        return
    if failure.workload is None or failure.actual is None:
        return
    for _ in range(_TRIES):
        words = await _ask_again(failure, session, oracle)
        if words:
            said = "; ".join(words)
            failure.guess = f"{failure.guess}; {said}" if failure.guess else said
            return


async def _ask_again(failure: Failure, session: Session, oracle: ProbeOracle) -> list[str]:
    """Run the failing workload with top logprobs for the failing request; what they say."""
    workload = failure.workload
    if workload is None:
        return []
    asked = [_with_logprobs(r) if _asks(r, failure) else r for r in workload.requests]
    again = await session.asker.run(replace(workload, requests=tuple(asked)))
    words: list[str] = []
    for request in asked:
        if _asks(request, failure) and request.key in again.requests:
            words += layer_words(oracle, request, again[request.key])
    return words


def _asks(request: WorkloadRequest, failure: Failure) -> bool:
    return request.key == failure.request_key and request.messages is None


def _with_logprobs(request: WorkloadRequest) -> WorkloadRequest:
    return replace(request, params={**request.params, "logprobs": TOP})


def layer_words(
    oracle: ProbeOracle, request: WorkloadRequest, answer: RequestTranscript
) -> list[str]:
    """What the top logprobs of an answer say about its layers; empty where they say nothing."""
    tops = _tops(oracle.config, answer)
    # What was chosen at temperature 0, also where the server tells no ids; the last is not read.
    chosen = [max(top, key=lambda i: top[i]) for top in tops[:-1] if top]
    ids = [*oracle.prompt_ids(request), *chosen]
    try:
        return in_words(oracle.config, ids, readings_of(oracle, request, answer))
    except ValueError:  # the answer holds a BOS: no context of a probe
        return []


def readings_of(
    oracle: ProbeOracle, request: WorkloadRequest, answer: RequestTranscript
) -> list[Reading]:
    """What the top logprobs of an answer show; empty where a token has none."""
    tops = _tops(oracle.config, answer)
    if not all(tops):
        return []
    return read_answer(oracle.config, len(oracle.prompt_ids(request)), tops)


def _tops(config: ProbeConfig, answer: RequestTranscript) -> list[dict[int, float]]:
    chunks = answer.first.chunks
    return [_by_id(config, top) for chunk in chunks for top in chunk.top_logprobs or ()]


def _by_id(config: ProbeConfig, top: Mapping[str, float]) -> dict[int, float]:
    """Log-probabilities by token id, of the tokens that their names tell."""
    known = _names(config)
    return {known[name]: value for name, value in top.items() if name in known}


@lru_cache(maxsize=8)
def _names(config: ProbeConfig) -> Mapping[str, int]:
    """Every way to write a token: its text where that is UTF-8, and ``token_id:N``."""
    texts = vocabulary(config).texts
    names = {f"token_id:{token_id}": token_id for token_id in range(len(texts))}
    for token_id, text in enumerate(texts):
        try:
            names[text.decode()] = token_id
        except UnicodeDecodeError:
            continue
    return names

"""The metric definitions: an id, a unit and one sentence each.

Names collide between tools (what one calls ITL is another's TPOT), so results carry these ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Definition:
    """One metric. ``sampled``: it has one value a request or gap, and so a distribution."""

    id: str
    unit: str
    sentence: str
    sampled: bool = True


_ALL = (
    Definition(
        "ttft.response",
        "s",
        "t_first - t_due: from when the schedule wanted the request sent to its first "
        "token-bearing chunk; what a user waits, the client's own queueing included",
    ),
    Definition(
        "ttft.service",
        "s",
        "t_first - t_sent: from the first byte written to the first token-bearing chunk",
    ),
    Definition(
        "tpot",
        "s",
        "(t_last - t_first) / (n - 1) with n output tokens by the server's count, else by ids or "
        "the client's tokenizer; undefined for n < 2 (GuideLLM and AIPerf call this ITL)",
    ),
    Definition("chunk_gap", "s", "gap between successive token-bearing chunks of one choice"),
    Definition(
        "itl",
        "s",
        "chunk gap divided by the tokens of the later chunk, where the server tells them",
    ),
    Definition("e2e.response", "s", "t_last - t_due"),
    Definition("e2e.service", "s", "t_last - t_sent"),
    Definition("connect", "s", "time to open the connection, of requests that opened one"),
    Definition("send_lag", "s", "t_sent - t_due: how late the client itself was"),
    Definition("throughput.output", "tokens/s", "output tokens per second", sampled=False),
    Definition(
        "throughput.total", "tokens/s", "prompt and output tokens per second", sampled=False
    ),
    Definition("throughput.requests", "1/s", "requests completed per second", sampled=False),
    Definition(
        "goodput",
        "1",
        "requests that met every stated objective / requests attempted; failures stay in the "
        "denominator, requests that the workload itself cancels do not",
        sampled=False,
    ),
    Definition(
        "requests.attempted", "1", "requests that the workload did not cancel", sampled=False
    ),
    Definition("requests.complete", "1", "requests that ended as they should", sampled=False),
    Definition("requests.cancelled", "1", "requests that the workload cancelled", sampled=False),
    Definition("requests.failed", "1", "all others, by class in the notes", sampled=False),
    Definition("tokens.server", "tokens", "output tokens by the server's usage", sampled=False),
    Definition("tokens.ids", "tokens", "token ids that arrived", sampled=False),
    Definition(
        "tokens.text",
        "tokens",
        "tokens of the whole text, counted by the client with the model's tokenizer",
        sampled=False,
    ),
    Definition("tokens.chunks", "1", "token-bearing chunks", sampled=False),
    Definition(
        "tokens.mismatched_requests",
        "1",
        "complete requests whose ledgers disagree: usage against ids or text",
        sampled=False,
    ),
    Definition(
        "lengths.prompt_off_plan",
        "1",
        "complete requests with a token-id prompt whose prompt_tokens, by the server's usage, are "
        "not as many as were sent",
        sampled=False,
    ),
    Definition(
        "lengths.output_off_plan",
        "1",
        "complete requests that were to fill max_tokens (ignore_eos, or min_tokens as large) and "
        "did not",
        sampled=False,
    ),
    Definition(
        "ragged_efficiency",
        "1",
        "output tokens/s on a ragged workload / output tokens/s on a uniform one of the same "
        "token count",
        sampled=False,
    ),
    Definition(
        "prefill_interference",
        "1",
        "p99 chunk gap of running streams while a long prompt prefills / the same without it",
        sampled=False,
    ),
)

DEFINITIONS: Final[Mapping[str, Definition]] = {d.id: d for d in _ALL}

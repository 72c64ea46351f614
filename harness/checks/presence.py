"""Whether a server is still there, so that its absence is never taken for an answer."""

from __future__ import annotations

from typing import Final

from harness.checks.asker import Asker
from harness.oracles.oracle import Oracle
from harness.transcript import Ending, RequestTranscript
from workloads.workload import WorkloadRequest

# Endings in which the server did not say anything: they tell of no feature.
UNSAID: Final = frozenset({Ending.CONNECT_FAILED, Ending.DISCONNECTED, Ending.TIMEOUT})


async def plain_answer(asker: Asker, oracle: Oracle) -> RequestTranscript:
    """The answer to a plain request of one token, alone."""
    prompt = oracle.prompt(4, "still there?")
    request = WorkloadRequest("r", prompt_text=prompt.text, params={"max_tokens": 1})
    return await asker.one(request)


async def plain_ending(asker: Asker, oracle: Oracle) -> Ending:
    """How a plain request of one token ends, alone."""
    return (await plain_answer(asker, oracle)).ending

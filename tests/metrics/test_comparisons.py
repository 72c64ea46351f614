"""Metrics of two runs."""

from __future__ import annotations

import pytest

from harness.load.effects import Interference
from harness.metrics.comparisons import prefill_interference, ragged_efficiency, uniform_twin
from harness.transcript import ChoiceTranscript, Ending, RequestTranscript, TokenChunk, Usage
from workloads.presets import PRESETS
from workloads.prompts import TokenAlphabet, Words

ALPHABET = TokenAlphabet(tuple(range(10, 90)), bos_id=1)


def stream(key: str, gap_s: float, count: int, start_s: float = 0.0) -> RequestTranscript:
    request = RequestTranscript(key, Ending.COMPLETE, start_s, start_s, start_s + gap_s * count)
    times = [start_s + gap_s * (i + 1) for i in range(count)]
    request.choices[0] = ChoiceTranscript([TokenChunk(t, "x", tokens=1) for t in times])
    request.usage = Usage(4, count)
    return request


def test_ragged_efficiency_is_the_ratio_of_the_rates():
    row = ragged_efficiency([stream("a", 0.2, 10)], [stream("b", 0.1, 10)])
    assert row["value"] == pytest.approx(0.5)
    assert ragged_efficiency([], [stream("b", 0.1, 10)])["value"] is None


def test_interference_counts_only_gaps_while_a_long_prompt_prefills():
    calm = [stream(f"s{i}", 0.01, 400) for i in range(2)]
    slow = [stream(f"s{i}", 0.01, 200) for i in range(4)]
    for request in slow:  # gaps three times as long from second 2 on
        tail = [TokenChunk(2.0 + 0.03 * (i + 1), "x", tokens=1) for i in range(200)]
        request.choices[0].chunks += tail
    long = RequestTranscript("long0", Ending.COMPLETE, 2.001, 2.001, 7.999)
    long.choices[0] = ChoiceTranscript([TokenChunk(7.999, "x", tokens=1)])
    row = prefill_interference([*slow, long], calm, ["long0"])
    assert row["value"] == pytest.approx(3.0)
    assert row["count"] == 800
    assert prefill_interference([*slow, long], calm[:0], ["long0"])["value"] is None


@pytest.mark.parametrize("prompts", [ALPHABET, Words()])
def test_the_uniform_twin_has_as_many_tokens_and_other_prompts(prompts):
    ragged = PRESETS["ragged"].build(prompts, 0)
    twin = uniform_twin(ragged, prompts, 1)

    def total(workload):
        lengths = [r.prompt_ids or (r.prompt_text or "").split() for r in workload.requests]
        outputs = [r.params["max_tokens"] for r in workload.requests]
        return sum(map(len, lengths)) + sum(outputs), {len(x) for x in lengths}

    (tokens, _), (twin_tokens, lengths) = total(ragged), total(twin)
    assert len(lengths) == 1
    assert abs(tokens - twin_tokens) <= len(ragged.requests)
    assert twin.concurrency == ragged.concurrency
    seen = {r.prompt_ids or r.prompt_text for r in ragged.requests}
    assert not seen & {r.prompt_ids or r.prompt_text for r in twin.requests}


def test_long_prompts_come_one_after_another_beside_running_streams():
    shape = Interference(streams=3, long_prompts=3)
    with_long = shape.workload(ALPHABET, 0, long=True)
    without = shape.workload(ALPHABET, 0, long=False)
    assert with_long.requests[:3] == without.requests
    long = with_long.requests[3:]
    assert [r.key for r in long] == shape.long_keys
    assert long[0].after is not None
    assert [r.after_end for r in long[1:]] == ["long0", "long1"]
    assert {len(r.prompt_ids or ()) for r in long} == {512}

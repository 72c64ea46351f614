"""Trace readers, replay with prefix structure, and the shipped fits."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from workloads.presets import PRESETS
from workloads.prompts import TokenAlphabet, Words
from workloads.trace import Trace, TraceRow
from workloads.trace_files import read_trace, write_trace

ALPHABET = TokenAlphabet(tuple(range(10, 200)), bos_id=1)

AZURE_2023 = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
"""
AZURE_2024 = """TIMESTAMP,ContextTokens,GeneratedTokens
2024-05-10 00:00:00.009930+00:00,2162,5
2024-05-10 00:00:01.017335+00:00,2399,6
"""
BURSTGPT = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,ChatGPT,1087,0,1087,Conversation log
118,GPT-4,417,276,693,Conversation log
"""
MOONCAKE = """{"timestamp": 0, "input_length": 1030, "output_length": 5, "hash_ids": [0, 1, 2]}
{"timestamp": 3500, "input_length": 1100, "output_length": 9, "hash_ids": [0, 1, 3]}
"""


def read(tmp_path: Path, text: str, name: str = "trace") -> Trace:
    path = tmp_path / name
    path.write_text(text)
    return read_trace(path)


def test_azure(tmp_path: Path):
    rows = read(tmp_path, AZURE_2023).rows
    assert [(r.prompt_tokens, r.output_tokens) for r in rows] == [(374, 44), (396, 109)]
    assert rows[0].arrival_s == 0.0
    assert rows[1].arrival_s == pytest.approx(4.314579, abs=1e-6)
    rows = read(tmp_path, AZURE_2024).rows
    assert rows[1].arrival_s == pytest.approx(1.007405, abs=1e-5)


def test_burstgpt_without_the_requests_that_failed(tmp_path: Path):
    rows = read(tmp_path, BURSTGPT).rows
    assert [(r.arrival_s, r.prompt_tokens, r.output_tokens) for r in rows] == [
        (0.0, 472, 18),
        (113.0, 417, 276),
    ]


def test_mooncake_prompts_share_the_blocks_that_their_hash_ids_share(tmp_path: Path):
    trace = read(tmp_path, MOONCAKE)
    assert trace.rows[1].arrival_s == 3.5
    assert trace.prefix_hit_share() == 2 / 6
    first, second = (r.prompt_ids for r in trace.workload(ALPHABET, seed=0).requests)
    assert first is not None
    assert second is not None
    assert (len(first), len(second)) == (1030, 1100)
    shared = 1 + 2 * 512  # the first id, then two blocks
    assert first[:shared] == second[:shared]
    assert first[shared:] != second[shared : len(first)]


def test_word_prompts_share_blocks_too(tmp_path: Path):
    trace = read(tmp_path, MOONCAKE).scaled(length=0.1)
    first, second = (str(r.prompt_text).split() for r in trace.workload(Words(), 0).requests)
    assert (len(first), len(second)) == (103, 110)
    assert first[:102] == second[:102]


def test_scaling_keeps_the_share_of_reused_tokens(tmp_path: Path):
    trace = read(tmp_path, MOONCAKE).scaled(time=0.5, length=0.25)
    assert trace.block_tokens == 128
    assert trace.rows[1].arrival_s == 1.75
    assert trace.rows[0].prompt_tokens == 258
    with pytest.raises(ValueError, match="above 0"):
        trace.scaled(time=0)


def test_our_own_format_survives_and_gzip_is_read(tmp_path: Path):
    trace = Trace("x", (TraceRow(0.0, 5, 2), TraceRow(1.25, 7, 3, (4, 5))))
    path = tmp_path / "own.jsonl"
    write_trace(trace, path)
    assert read_trace(path).rows == trace.rows
    packed = tmp_path / "own.jsonl.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert read_trace(packed).rows == trace.rows
    assert read_trace(packed, limit=1).rows == trace.rows[:1]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a,b,c\n1,2,3\n", "no known trace format"),
        ("", "no known trace format"),
        (AZURE_2023.replace("374", "many"), "after line 2.*many"),
        (MOONCAKE + "{nonsense\n", "after line 2"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", "holds no requests"),
    ],
)
def test_a_bad_file_is_refused_in_one_sentence(tmp_path: Path, text: str, sentence: str):
    with pytest.raises(ValueError, match=sentence):
        read(tmp_path, text)


def test_a_missing_file_is_refused_in_one_sentence(tmp_path: Path):
    for name in ("nothing", "nothing.gz"):
        with pytest.raises(ValueError, match="cannot be read: no such file") as refused:
            read_trace(tmp_path / name)
        assert str(refused.value).count("nothing") == 1


# Means of the source files, over all their requests.
SOURCES = {
    "azure-2023-conv": (1155, 211, 5.53),
    "azure-2023-code": (2048, 27.9, 2.57),
    "mooncake-conversation": (12035, 343, 3.40),
    "mooncake-synthetic": (15326, 149, 3.91),
}


@pytest.mark.parametrize("name", SOURCES)
def test_a_shipped_fit_has_the_means_of_its_source_and_names_it(name: str):
    recipe = PRESETS[name]
    prompt, output, rate = SOURCES[name]
    assert recipe.prompt_tokens.mean == pytest.approx(prompt, rel=0.03)  # type: ignore[attr-defined]
    assert recipe.output_tokens.mean == pytest.approx(output, rel=0.03)  # type: ignore[attr-defined]
    assert recipe.arrivals.rate == pytest.approx(rate, rel=0.02)  # type: ignore[attr-defined]
    assert recipe.source
    assert recipe.licence in ("CC-BY-4.0", "Apache-2.0")


def test_turns_of_a_conversation_repeat_what_was_said():
    workload = PRESETS["conversation"].build(ALPHABET, seed=1)
    by_key = {r.key: r for r in workload.requests}
    later = [r for r in workload.requests if r.after_end]
    assert len(later) > 20
    for request in later:
        before = by_key[request.after_end or ""]
        assert request.prompt_ids is not None
        assert before.prompt_ids is not None
        assert request.prompt_ids[: len(before.prompt_ids)] == before.prompt_ids
        assert request.prompt_ids.count(ALPHABET.bos_id) == 1
        assert request.think_s > 0

"""The completions endpoint: every prompt form, streaming and not, and the small print."""

from __future__ import annotations

import json
from typing import Any

import pytest

from reference_engine.request import FinishReason, Request, RequestRefused
from reference_engine.server.text_codec import TextCodec
from tests.server.conftest import MODEL, Running, running_server
from tests.server.events import sse_events
from tests.server.fake_engine import FakeEngine, counting, spelling


def _answer_ids(prompt_ids: list[int], max_tokens: int, choice: int = 0) -> list[int]:
    from reference_engine.request import SamplingParams

    return counting(Request("x", tuple(prompt_ids), SamplingParams(max_tokens=max_tokens)), choice)


async def test_token_ids_in_text_and_ids_out(running: Running, codec: TextCodec) -> None:
    status, answer = await running.post(
        "/v1/completions", prompt=[1, 50], max_tokens=4, return_token_ids=True
    )
    ids = _answer_ids([1, 50], 4)
    assert status == 200
    assert answer["object"] == "text_completion"
    assert answer["model"] == MODEL
    [choice] = answer["choices"]
    assert choice["token_ids"] == ids
    assert choice["prompt_token_ids"] == [1, 50]
    assert choice["text"] == codec.decode(ids)
    assert choice["finish_reason"] == "length"
    assert answer["usage"] == {
        "prompt_tokens": 2,
        "completion_tokens": 4,
        "total_tokens": 6,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


@pytest.mark.parametrize(
    ("prompt", "prompts", "prompt_tokens"),
    [
        ("ab", 1, 3),
        (["ab", "c"], 2, 5),
        ([1, 50, 51], 1, 3),
        ([[1, 50], [1, 51, 52]], 2, 5),
    ],
)
async def test_the_four_forms_of_a_prompt(
    running: Running, prompt: Any, prompts: int, prompt_tokens: int
) -> None:
    status, answer = await running.post("/v1/completions", prompt=prompt, max_tokens=2)
    assert status == 200
    assert [c["index"] for c in answer["choices"]] == list(range(prompts))
    assert answer["usage"]["prompt_tokens"] == prompt_tokens
    assert answer["usage"]["completion_tokens"] == 2 * prompts


async def test_every_prompt_has_n_choices_in_order(running: Running) -> None:
    _, answer = await running.post(
        "/v1/completions", prompt=[[1, 50], [1, 60]], n=3, max_tokens=3, return_token_ids=True
    )
    expected = [_answer_ids(p, 3, c) for p in ([1, 50], [1, 60]) for c in range(3)]
    assert [c["index"] for c in answer["choices"]] == list(range(6))
    assert [c["token_ids"] for c in answer["choices"]] == expected
    assert answer["usage"]["prompt_tokens"] == 4
    assert answer["usage"]["completion_tokens"] == 18


async def test_a_stream_has_one_event_a_token_and_one_end(running: Running) -> None:
    events = await sse_events(
        running, "/v1/completions", prompt=[1, 50], max_tokens=5, return_token_ids=True
    )
    assert events[-1] == "[DONE]"
    chunks = events[:-1]
    assert [len(c["choices"][0]["token_ids"]) for c in chunks] == [1] * 5
    assert [c["choices"][0]["finish_reason"] for c in chunks] == [None] * 4 + ["length"]
    assert chunks[0]["choices"][0]["prompt_token_ids"] == [1, 50]
    assert all("prompt_token_ids" not in c["choices"][0] for c in chunks[1:])
    assert all("usage" not in c for c in chunks)
    assert len({c["id"] for c in chunks}) == 1


async def test_usage_comes_in_a_last_chunk_without_choices(running: Running) -> None:
    events = await sse_events(
        running,
        "/v1/completions",
        prompt=[1, 50],
        max_tokens=3,
        n=2,
        stream_options={"include_usage": True},
    )
    *chunks, last, done = events
    assert done == "[DONE]"
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 6
    assert [c["usage"] for c in chunks] == [None] * 6


async def test_echo_puts_the_prompt_before_the_text(running: Running, codec: TextCodec) -> None:
    _, answer = await running.post("/v1/completions", prompt="hey", echo=True, max_tokens=2)
    assert answer["choices"][0]["text"].startswith("hey")
    ids = codec.encode("hey")
    _, by_ids = await running.post("/v1/completions", prompt=list(ids), echo=True, max_tokens=2)
    assert by_ids["choices"][0]["text"] == answer["choices"][0]["text"]


async def test_echo_with_logprobs_scores_the_prompt_and_nothing_else(running: Running) -> None:
    _, answer = await running.post(
        "/v1/completions", prompt=[1, 50, 51], echo=True, max_tokens=0, logprobs=1
    )
    [choice] = answer["choices"]
    rows = choice["logprobs"]
    assert rows["token_logprobs"] == [None, -0.25, -0.25]
    assert rows["top_logprobs"][0] is None
    assert rows["text_offset"] == [0, 0, 1]  # BOS is not shown
    assert rows["tokens"] == ["<s>", *choice["text"]]
    assert answer["usage"]["completion_tokens"] == 0


async def test_logprobs_have_a_row_a_token_and_offsets_into_the_text(codec: TextCodec) -> None:
    async with running_server(codec, spelling(codec, "aéb")) as running:
        body = {"prompt": [1, 50], "max_tokens": 9, "logprobs": 2}
        _, answer = await running.post("/v1/completions", **body)
        events = await sse_events(running, "/v1/completions", **body)
    rows = answer["choices"][0]["logprobs"]
    assert rows["tokens"] == ["a", "bytes:\\xc3", "bytes:\\xa9", "b", "</s>"]
    assert rows["text_offset"] == [0, 1, 1, 2, 3]
    assert all(len(top) == 2 for top in rows["top_logprobs"])
    streamed = [c["choices"][0]["logprobs"] for c in events[:-1]]
    for key, values in rows.items():
        assert [v for row in streamed for v in row[key]] == values


async def test_prompt_logprobs_as_vllm_shapes_them(running: Running) -> None:
    _, answer = await running.post(
        "/v1/completions", prompt=[1, 50, 51], max_tokens=1, prompt_logprobs=1
    )
    first, second, third = answer["choices"][0]["prompt_logprobs"]
    assert first is None
    assert second["50"]["rank"] == 1
    assert set(third["51"]) == {"logprob", "rank", "decoded_token"}


async def test_cached_tokens_are_told_once_a_prompt(codec: TextCodec) -> None:
    engine = FakeEngine()
    engine.cached_tokens = 16
    async with running_server(codec, engine) as running:
        _, answer = await running.post("/v1/completions", prompt=[1] * 20, n=2, max_tokens=3)
    assert answer["usage"]["prompt_tokens_details"] == {"cached_tokens": 16}


async def test_parameters_reach_the_engine(running: Running) -> None:
    await running.post(
        "/v1/completions",
        prompt=[1, 50],
        max_tokens=3,
        min_tokens=1,
        temperature=0.5,
        top_p=0.9,
        top_k=-1,
        min_p=0.1,
        seed=-7,
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        repetition_penalty=1.5,
        logit_bias={"40": -100},
        stop_token_ids=[9],
        ignore_eos=True,
        cache_salt="mine",
        priority=3,
        logprobs=0,
    )
    [request] = running.engine.submitted
    params = request.params
    assert (request.cache_salt, request.priority) == ("mine", 3)
    assert (params.min_tokens, params.temperature, params.top_p, params.top_k) == (1, 0.5, 0.9, 0)
    assert (params.min_p, params.seed, params.ignore_eos) == (0.1, -7, True)
    assert (params.presence_penalty, params.frequency_penalty) == (0.5, -0.5)
    assert params.repetition_penalty == 1.5
    assert params.logit_bias == {40: -100.0}
    assert params.stop_token_ids == (9,)
    assert params.logprobs == 0


async def test_the_clients_id_is_part_of_the_answers(running: Running) -> None:
    async with running.client.post(
        running.url + "/v1/completions",
        json={"prompt": [1, 50], "max_tokens": 1},
        headers={"X-Request-Id": "mine-1"},
    ) as response:
        answer = await response.json()
        assert answer["id"] == "cmpl-mine-1"
        assert response.headers["X-Request-Id"] == "cmpl-mine-1"


async def test_a_refusal_by_the_engine_is_a_400_that_names_the_field(codec: TextCodec) -> None:
    engine = FakeEngine()
    engine.refuse = RequestRefused("the prompt does not fit", field="prompt_ids")
    async with running_server(codec, engine) as running:
        status, answer = await running.post("/v1/completions", prompt=[1, 50], stream=True)
    assert status == 400
    assert answer["error"]["param"] == "prompt"
    assert answer["error"]["message"] == "the prompt does not fit"


async def test_an_error_of_the_engine_in_mid_stream_is_an_event_without_done(
    codec: TextCodec,
) -> None:
    engine = FakeEngine()
    healthy = engine._event

    def failing(request: Any, choice: int, answer: Any, index: int) -> Any:
        event = healthy(request, choice, answer, index)
        if index < 2:
            return event
        from dataclasses import replace

        return replace(event, token_id=None, finish_reason=FinishReason.ERROR, error="NaN logits")

    engine._event = failing  # type: ignore[method-assign]
    async with running_server(codec, engine) as running:
        events = await sse_events(running, "/v1/completions", prompt=[1, 50], max_tokens=9)
        status, answer = await running.post("/v1/completions", prompt=[1, 50], max_tokens=9)
    assert len(events) == 3
    assert events[-1]["error"]["message"] == "NaN logits"
    assert (status, answer["error"]["code"]) == (500, "engine_error")


async def test_events_are_valid_json_lines(running: Running) -> None:
    async with running.client.post(
        running.url + "/v1/completions", json={"prompt": [1, 50], "stream": True, "max_tokens": 2}
    ) as response:
        assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        raw = await response.read()
    events = raw.decode().split("\n\n")
    assert events[-1] == ""
    assert all(json.loads(e.removeprefix("data: ")) for e in events[:-2])

"""Reading answers: both endpoints, the places of token ids, and the quick way beside the long."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.client.answer_reader import AnswerReader
from harness.client.openai_answer import MalformedAnswer, ServerReportedError, read_document
from harness.client.plain_event import plain_chunk
from harness.transcript import Ending, RequestTranscript, Usage

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
ids = st.lists(st.integers(0, 200_000), max_size=3)
maybe = st.one_of(st.none(), ids)


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """Events of all shapes, the ordinary among them."""
    choice: dict[str, Any] = {"index": draw(st.sampled_from([0, 0, 0, 1]))}
    if draw(st.booleans()):
        choice["text"] = draw(texts)
    else:
        choice["delta"] = draw(
            st.fixed_dictionaries(
                {},
                optional={
                    "content": st.one_of(st.none(), texts),
                    "role": st.just("assistant"),
                    "token_ids": maybe,
                    "reasoning": st.one_of(st.none(), texts),
                },
            )
        )
    rare = {
        "token_ids": maybe,
        "finish_reason": st.sampled_from([None, None, "stop"]),
        "logprobs": st.sampled_from(
            [None, {"tokens": ["a"], "token_logprobs": [-1.0]}, {"content": []}]
        ),
        "prompt_token_ids": maybe,
    }
    choice.update(draw(st.fixed_dictionaries({}, optional=rare)))
    usage = {"prompt_tokens": 3, "completion_tokens": 2}
    kinds = st.sampled_from(["text_completion", "chat.completion.chunk", "error", "other"])
    document = draw(
        st.fixed_dictionaries(
            {"choices": st.just([choice] * draw(st.sampled_from([1, 1, 1, 0, 2])))},
            optional={
                "id": st.just("x"),
                "object": kinds,
                "usage": st.sampled_from([None, usage]),
                "error": st.sampled_from([None, {"message": "m"}]),
                "extra": st.integers(0, 9),
            },
        )
    )
    return dict(document)


@settings(max_examples=80)
@given(documents())
def test_the_quick_way_agrees_with_the_long_way_wherever_it_is_taken(document: dict[str, Any]):
    data = orjson.dumps(document)
    quick = plain_chunk(1.5, memoryview(data))
    transcript = RequestTranscript("a", Ending.COMPLETE, 0.0)
    try:
        read_document(orjson.loads(data), 1.5, transcript)
    except (MalformedAnswer, ServerReportedError):
        assert quick is None
        return
    if quick is not None:
        assert transcript.first.chunks == [quick]
        assert transcript.first.finish_reasons == []
        assert transcript.usage is None
        assert transcript.prompt_token_ids is None


@pytest.mark.parametrize(
    "choice",
    [
        {"index": 0, "text": "t", "logprobs": None, "finish_reason": None},
        {"index": 0, "text": "t", "token_ids": [7], "finish_reason": None, "stop_reason": None},
        {"index": 0, "delta": {"content": "t"}, "finish_reason": None, "token_ids": [7]},
    ],
)
def test_the_quick_way_is_taken_for_the_events_of_common_servers(choice: dict[str, Any]):
    kind = "text_completion" if "text" in choice else "chat.completion.chunk"
    document = {"id": "x", "object": kind, "created": 1, "model": "m", "choices": [choice]}
    chunk = plain_chunk(0.0, memoryview(orjson.dumps(document)))
    assert chunk is not None
    assert chunk.text == "t"


def read(documents: list[dict[str, Any]], *, keep_raw: bool = False) -> RequestTranscript:
    transcript = RequestTranscript("a", Ending.COMPLETE, 0.0)
    reader = AnswerReader(transcript, stream=True, origin_s=0.0, keep_raw=keep_raw)
    for number, document in enumerate(documents):
        reader.feed(float(number), b"data: " + orjson.dumps(document) + b"\n\n")
    reader.feed(float(len(documents)), b"data: [DONE]\n\n")
    reader.catch_up()
    assert reader.failure is None, reader.failure
    return transcript


@settings(max_examples=40)
@given(st.lists(documents(), max_size=6))
def test_what_is_put_aside_reads_the_same_as_what_is_read_at_once(many: list[dict[str, Any]]):
    good = []
    for document in many:
        try:
            read_document(document, 0.0, RequestTranscript("a", Ending.COMPLETE, 0.0))
        except (MalformedAnswer, ServerReportedError):
            continue
        good.append(document)
    aside, at_once = read(good), RequestTranscript("a", Ending.COMPLETE, 0.0)
    for number, document in enumerate(good):
        read_document(document, float(number), at_once)
    assert aside.choices == at_once.choices
    assert aside.usage == at_once.usage


def test_token_ids_are_found_where_servers_put_them():
    vllm = {"choices": [{"index": 0, "text": "ab", "token_ids": [1, 2]}]}
    named = {
        "choices": [
            {
                "index": 0,
                "text": "c",
                "logprobs": {"tokens": ["token_id:3"], "token_logprobs": [-0.5]},
            }
        ]
    }
    llama_cpp = {
        "choices": [
            {
                "index": 0,
                "delta": {"content": "d"},
                "logprobs": {"content": [{"id": 4, "token": "d", "logprob": -1.5}]},
            }
        ]
    }
    transcript = read([vllm, named, llama_cpp])
    assert transcript.first.token_ids == (1, 2, 3, 4)
    assert [c.tokens for c in transcript.first.chunks] == [2, 1, 1]
    assert transcript.first.chunks[1].logprobs == (-0.5,)


def test_a_running_usage_tells_how_many_tokens_a_chunk_has():
    def event(text: str, completion_tokens: int) -> dict[str, Any]:
        usage = {"prompt_tokens": 5, "completion_tokens": completion_tokens}
        return {"choices": [{"index": 0, "text": text}], "usage": usage}

    transcript = read([event("a", 1), event("bcd", 4)])
    assert [c.tokens for c in transcript.first.chunks] == [1, 3]
    assert transcript.usage == Usage(5, 4)
    assert transcript.usages_seen == 2


def test_several_choices_are_kept_apart():
    transcript = read(
        [{"choices": [{"index": i, "text": "ab"[i], "finish_reason": "stop"}]} for i in (1, 0)]
    )
    assert (transcript.choices[0].text, transcript.choices[1].text) == ("a", "b")


def test_role_and_empty_chunks_bear_no_token_and_an_id_without_text_does():
    transcript = read(
        [
            {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]},
            {"choices": [{"index": 0, "delta": {"content": ""}}]},
            {"choices": [{"index": 0, "delta": {"content": "", "token_ids": [9]}}]},
            {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        ]
    )
    assert [c.t_s for c in transcript.first.chunks] == [2.0]
    assert transcript.first.finish_reasons == ["stop"]


def test_raw_events_are_kept_in_order_with_the_terminator():
    documents = [{"choices": [{"index": 0, "text": t}]} for t in "ab"]
    assert read(documents, keep_raw=True).raw == [*documents, "[DONE]"]


TOKEN = b'data: {"choices": [{"index": 0, "text": "a"}]}\n\n'


@pytest.mark.parametrize(
    ("stream", "ending"),
    [
        (b'data: {"error": {"message": "no", "code": 400}}\n\n', Ending.REFUSED),
        (b'event: error\ndata: {"error": {"message": "no", "code": 422}}\n\n', Ending.REFUSED),
        (b'data: {"error": {"message": "no", "code": 500}}\n\n', Ending.SERVER_ERROR),
        (b'data: {"error": {"message": "no", "code": "400"}}\n\n', Ending.SERVER_ERROR),
        (b'data: {"error": "no"}\n\n', Ending.SERVER_ERROR),
        (TOKEN + b'data: {"error": {"message": "no", "code": 400}}\n\n', Ending.SERVER_ERROR),
    ],
)
def test_an_error_event_is_a_refusal_if_its_code_is_4xx_and_nothing_came_before(
    stream: bytes, ending: Ending
):
    reader = AnswerReader(RequestTranscript("r", Ending.COMPLETE, 0.0), stream=True, origin_s=0.0)
    reader.feed(1.0, stream)
    assert reader.failure == (ending, "the server reported: no")

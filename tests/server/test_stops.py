"""Stop strings, stop tokens and the end of sequence: what is shown, counted and freed."""

from __future__ import annotations

import asyncio
import threading

from reference_engine.server.text_codec import TextCodec
from tests.server.conftest import running_server, until
from tests.server.events import sse_events
from tests.server.fake_engine import EOS_ID, FakeEngine, spelling


async def test_a_stream_and_a_whole_answer_say_the_same(codec: TextCodec) -> None:
    body = {"prompt": [1, 50], "max_tokens": 40, "stop": ["cd", "de"], "return_token_ids": True}
    async with running_server(codec, spelling(codec, "aé😀bcd tail")) as running:
        _, whole = await running.post("/v1/completions", **body)
        events = await sse_events(running, "/v1/completions", **body)
    choice = whole["choices"][0]
    assert choice["text"] == "aé😀b"
    assert choice["finish_reason"] == "stop"
    assert choice["stop_reason"] == "cd"
    deltas = [c["choices"][0] for c in events[:-1]]
    assert "".join(d["text"] for d in deltas) == choice["text"]
    assert [i for d in deltas for i in d["token_ids"]] == choice["token_ids"]
    assert [d["stop_reason"] for d in deltas][-1] == "cd"
    assert "\N{REPLACEMENT CHARACTER}" not in "".join(d["text"] for d in deltas)


async def test_a_stop_string_frees_the_request_in_the_engine(codec: TextCodec) -> None:
    engine = spelling(codec, "abcdef" * 20)
    engine.gate = threading.Semaphore(3)
    async with running_server(codec, engine) as running:
        _, answer = await running.post("/v1/completions", prompt=[1, 50], max_tokens=100, stop="c")
        assert answer["choices"][0]["text"] == "ab"
        assert answer["usage"]["completion_tokens"] == 3
        engine.gate.release(1)
        await until(lambda: engine.cancelled == [answer["id"]])
        assert engine.stats().pages_used == 0


async def test_a_stop_string_in_one_choice_ends_that_choice_only(codec: TextCodec) -> None:
    texts = [codec.encode(t, add_special_tokens=False) for t in ("abSTOPxxxx", "cdefghijkl")]
    engine = FakeEngine(lambda request, choice: texts[choice], gate=threading.Semaphore(6))
    async with running_server(codec, engine) as running:
        call = asyncio.create_task(
            running.post("/v1/completions", prompt=[1, 50], max_tokens=10, n=2, stop="STOP")
        )
        while not engine.cancelled_choices:
            engine.gate.release()
            await asyncio.sleep(0.01)
        engine.gate.release(20)
        _, answer = await call
    first, second = answer["choices"]
    assert (first["text"], first["finish_reason"]) == ("ab", "stop")
    assert (second["text"], second["finish_reason"]) == ("cdefghijkl", "length")
    assert engine.cancelled_choices == [(answer["id"], 0)]
    assert answer["usage"]["completion_tokens"] == 6 + 10


async def test_the_end_of_sequence_is_counted_and_not_shown(codec: TextCodec) -> None:
    async with running_server(codec, spelling(codec, "ab")) as running:
        _, answer = await running.post(
            "/v1/completions", prompt=[1, 50], max_tokens=9, return_token_ids=True
        )
    [choice] = answer["choices"]
    assert choice["text"] == "ab"
    assert choice["token_ids"][-1] == EOS_ID
    assert choice["finish_reason"] == "stop"
    assert choice["stop_reason"] is None
    assert answer["usage"]["completion_tokens"] == 3


async def test_a_stop_token_is_counted_named_and_not_shown(codec: TextCodec) -> None:
    [stop_id] = codec.encode("b", add_special_tokens=False)
    async with running_server(codec, spelling(codec, "abc")) as running:
        _, answer = await running.post(
            "/v1/completions", prompt=[1, 50], max_tokens=9, stop_token_ids=[stop_id]
        )
    [choice] = answer["choices"]
    assert choice["text"] == "a"
    assert choice["stop_reason"] == stop_id
    assert answer["usage"]["completion_tokens"] == 2


async def test_text_held_back_for_a_stop_string_comes_out_at_the_end(codec: TextCodec) -> None:
    async with running_server(codec, spelling(codec, "abST")) as running:
        events = await sse_events(
            running, "/v1/completions", prompt=[1, 50], max_tokens=9, stop=["STOP"]
        )
    texts = [c["choices"][0]["text"] for c in events[:-1]]
    assert "".join(texts) == "abST"
    assert texts[-1] == "ST"

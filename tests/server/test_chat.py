"""The chat endpoint, /tokenize and /detokenize."""

from __future__ import annotations

from typing import Any

from reference_engine.server.text_codec import TextCodec
from tests.server.conftest import Running, running_server
from tests.server.events import sse_events
from tests.server.fake_engine import EOS_ID, FakeEngine

MESSAGES: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]


async def test_a_chat_answer(running: Running, codec: TextCodec) -> None:
    status, answer = await running.post(
        "/v1/chat/completions",
        messages=MESSAGES,
        max_completion_tokens=3,
        return_token_ids=True,
        logprobs=True,
        top_logprobs=2,
    )
    assert status == 200
    assert answer["object"] == "chat.completion"
    prompt_ids = codec.encode("<s>[user]hi[assistant]", add_special_tokens=False)
    assert answer["prompt_token_ids"] == list(prompt_ids)
    [choice] = answer["choices"]
    assert choice["message"]["role"] == "assistant"
    assert choice["message"]["content"] == codec.decode(choice["token_ids"])
    rows = choice["logprobs"]["content"]
    assert [bytes(r["bytes"]).decode() for r in rows] == list(choice["message"]["content"])
    assert all(len(r["top_logprobs"]) == 2 for r in rows)
    assert answer["usage"]["prompt_tokens"] == len(prompt_ids)


async def test_a_chat_stream_begins_with_the_role_and_ends_once(running: Running) -> None:
    events = await sse_events(
        running, "/v1/chat/completions", messages=MESSAGES, max_tokens=3, n=2, return_token_ids=True
    )
    assert events[-1] == "[DONE]"
    choices = [c["choices"][0] for c in events[:-1]]
    assert [c["delta"] for c in choices[:2]] == [{"role": "assistant", "content": ""}] * 2
    assert [c["finish_reason"] for c in choices].count("length") == 2
    assert all(events[0]["object"] == "chat.completion.chunk" for _ in events)
    assert "prompt_token_ids" in events[2]
    assert all("prompt_token_ids" not in e for e in (*events[:2], *events[3:-1]))


async def test_without_a_limit_a_chat_answer_may_fill_the_context(codec: TextCodec) -> None:
    engine = FakeEngine(lambda request, choice: [60] * 5 + [EOS_ID])
    async with running_server(codec, engine) as running:
        _, answer = await running.post("/v1/chat/completions", messages=MESSAGES)
    assert answer["choices"][0]["finish_reason"] == "stop"
    prompt = answer["usage"]["prompt_tokens"]
    assert engine.submitted[0].params.max_tokens == 512 - prompt


async def test_content_may_come_in_parts(running: Running) -> None:
    parts = [{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]
    bodies = [MESSAGES, [{"role": "user", "content": parts}]]
    for messages in bodies:
        await running.post("/v1/chat/completions", messages=messages, max_tokens=1)
    first, second = running.engine.submitted
    assert first.prompt_ids == second.prompt_ids


async def test_a_model_without_a_chat_template_says_so() -> None:
    from tests.server.conftest import byte_tokenizer

    plain = TextCodec(byte_tokenizer(), 300)
    async with running_server(plain, FakeEngine()) as running:
        status, answer = await running.post("/v1/chat/completions", messages=MESSAGES)
    assert status == 400
    assert answer["error"]["code"] == "no_chat_template"


async def test_tokenize_and_detokenize_are_inverse(running: Running) -> None:
    _, answer = await running.post("/tokenize", prompt="aé", return_token_strs=True)
    assert answer["count"] == len(answer["tokens"]) == 4
    assert answer["token_strs"][0] == "<s>"
    _, text = await running.post("/detokenize", tokens=answer["tokens"])
    assert text == {"prompt": "<s>aé"}
    _, chat = await running.post("/tokenize", messages=MESSAGES)
    _, text = await running.post("/detokenize", tokens=chat["tokens"])
    assert text == {"prompt": "<s>[user]hi[assistant]"}

"""The official Python client, sync and async, streaming and not, reads every answer."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest

from reference_engine.server.text_codec import TextCodec
from tests.server.conftest import MODEL, Running, running_server
from tests.server.fake_engine import EOS_ID, FakeEngine

MESSAGES: Any = [{"role": "user", "content": "hi"}]
TEXT = "aé😀 and more"


@pytest.fixture
def speaking(codec: TextCodec) -> FakeEngine:
    """An engine that always says `TEXT`."""
    ids = [*codec.encode(TEXT, add_special_tokens=False), EOS_ID]
    return FakeEngine(lambda request, choice: ids)


def _async_client(running: Running, key: str = "unused") -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=running.url + "/v1", api_key=key, max_retries=0)


def _sync_client(running: Running) -> openai.OpenAI:
    return openai.OpenAI(base_url=running.url + "/v1", api_key="unused", max_retries=0)


async def test_completions(codec: TextCodec, speaking: FakeEngine) -> None:
    async with running_server(codec, speaking) as running, _async_client(running) as client:
        answer = await client.completions.create(
            model=MODEL,
            prompt="x",
            max_tokens=99,
            logprobs=1,
            extra_body={"return_token_ids": True},
        )
    [choice] = answer.choices
    assert choice.text == TEXT
    assert choice.finish_reason == "stop"
    assert choice.logprobs is not None
    assert len(choice.logprobs.tokens or ()) == len(choice.model_extra["token_ids"])  # type: ignore[index]
    assert answer.usage is not None
    assert answer.usage.completion_tokens == len(choice.logprobs.tokens or ())


async def test_completions_in_a_stream(codec: TextCodec, speaking: FakeEngine) -> None:
    async with running_server(codec, speaking) as running, _async_client(running) as client:
        stream = await client.completions.create(
            model=MODEL,
            prompt="x",
            max_tokens=99,
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
    assert "".join(c.choices[0].text for c in chunks if c.choices) == TEXT
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.prompt_tokens == 2


async def test_chat(codec: TextCodec, speaking: FakeEngine) -> None:
    async with running_server(codec, speaking) as running, _async_client(running) as client:
        answer = await client.chat.completions.create(
            model=MODEL, messages=MESSAGES, logprobs=True, top_logprobs=2, n=2
        )
    assert [c.message.content for c in answer.choices] == [TEXT, TEXT]
    assert answer.choices[0].logprobs is not None
    rows = answer.choices[0].logprobs.content
    assert rows is not None
    assert bytes(b for r in rows[:-1] for b in r.bytes or ()).decode() == TEXT
    assert all(len(r.top_logprobs) == 2 for r in rows)


async def test_chat_in_a_stream(codec: TextCodec, speaking: FakeEngine) -> None:
    async with running_server(codec, speaking) as running, _async_client(running) as client:
        stream = await client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
        chunks = [chunk async for chunk in stream]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == TEXT
    assert [c.choices[0].finish_reason for c in chunks if c.choices[0].finish_reason] == ["stop"]


async def test_the_sync_client_too(codec: TextCodec, speaking: FakeEngine) -> None:
    def use(running: Running) -> None:
        with _sync_client(running) as client:
            assert [m.id for m in client.models.list()] == [MODEL]
            assert client.models.retrieve(MODEL).id == MODEL
            whole = client.completions.create(model=MODEL, prompt=[1, 50], max_tokens=99)
            assert whole.choices[0].text == TEXT
            stream = client.completions.create(
                model=MODEL, prompt=[[1, 50], [1, 51]], max_tokens=99, stream=True
            )
            texts = ["", ""]
            for chunk in stream:
                texts[chunk.choices[0].index] += chunk.choices[0].text
            assert texts == [TEXT, TEXT]
            chat = client.chat.completions.create(model=MODEL, messages=MESSAGES)
            assert chat.choices[0].message.content == TEXT
            deltas = client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
            assert "".join(c.choices[0].delta.content or "" for c in deltas) == TEXT

    async with running_server(codec, speaking) as running:
        await asyncio.to_thread(use, running)


async def test_errors_become_the_clients_own_exceptions(codec: TextCodec) -> None:
    async with running_server(codec, FakeEngine(), api_key="sesame") as running:
        async with _async_client(running, "sesame") as client:
            with pytest.raises(openai.BadRequestError) as bad:
                await client.completions.create(model=MODEL, prompt="x", temperature=9)
            with pytest.raises(openai.NotFoundError):
                await client.completions.create(model="other", prompt="x")
        async with _async_client(running, "wrong") as client:
            with pytest.raises(openai.AuthenticationError):
                await client.models.list()
    assert bad.value.param == "temperature"
    assert bad.value.code == "invalid_value"


async def test_an_error_in_a_stream_is_raised(codec: TextCodec) -> None:
    def broken(request: Any, choice: int) -> list[int]:
        return [50, 51]

    engine = FakeEngine(broken)
    async with running_server(codec, engine) as running, _async_client(running) as client:
        engine.explode_in_step = RuntimeError("dead")
        with pytest.raises(openai.APIError):
            async for _ in await client.completions.create(model=MODEL, prompt="x", stream=True):
                pass

"""Fixtures: a byte-level tokenizer, and a server over the fake engine on a free port."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import aiohttp
import pytest
from aiohttp import web
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

from reference_engine.server.app import create_app
from reference_engine.server.engine_host import EngineHost, EngineLike
from reference_engine.server.http_runner import ApiRunner
from reference_engine.server.limits import Limits
from reference_engine.server.metrics import ServerMetrics
from reference_engine.server.served_model import ModelFacts, ServedModel
from reference_engine.server.text_codec import TextCodec
from tests.server.fake_engine import VOCAB_SIZE, FakeEngine

MODEL = "fake-model"
MAX_CONTEXT_TOKENS = 512
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


def byte_tokenizer() -> Tokenizer:
    """PAD, BOS, EOS, then a token for each byte; BOS is put before every text."""
    specials = ["<pad>", "<s>", "</s>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: i for i, token in enumerate([*specials, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.add_special_tokens([AddedToken(s, special=True) for s in specials])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    return tokenizer


@pytest.fixture(scope="session")
def codec() -> TextCodec:
    """The codec over the byte-level tokenizer, with a chat template."""
    return TextCodec(
        byte_tokenizer(),
        VOCAB_SIZE,
        chat_template=CHAT_TEMPLATE,
        special_texts={"bos_token": "<s>", "eos_token": "</s>"},
    )


@dataclass
class Running:
    """A server that runs in the test's own loop, and a client session for it."""

    url: str
    client: aiohttp.ClientSession
    served: ServedModel
    engine: FakeEngine

    async def post(self, path: str, **body: object) -> tuple[int, dict]:  # type: ignore[type-arg]
        """The status and the JSON answer."""
        async with self.client.post(self.url + path, json=body) as response:
            return response.status, await response.json()


@contextlib.asynccontextmanager
async def running_server(
    codec: TextCodec,
    engine: FakeEngine,
    *,
    limits: Limits | None = None,
    api_key: str | None = None,
    make_engine: Callable[[], EngineLike] | None = None,
    trace_steps: int = 0,
    log_requests: bool = False,
) -> AsyncIterator[Running]:
    """Start, yield, stop; the engine thread is joined."""
    host = EngineHost(make_engine or (lambda: engine), trace_steps=trace_steps)
    served = ServedModel(
        name=MODEL,
        host=host,
        limits=limits or Limits(),
        metrics=ServerMetrics(lambda: host.stats, lambda: host.live_requests),
        facts=ModelFacts(codec, MAX_CONTEXT_TOKENS, {"page_size": 16, "token_budget": 64}),
        log_requests=log_requests,
    )
    runner = ApiRunner(
        create_app(served, api_key=api_key),
        handler_cancellation=True,
        keepalive_timeout=served.limits.idle_timeout_s,
        shutdown_timeout=0.1,
    )
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        await host.start()
        async with aiohttp.ClientSession() as client:
            yield Running(f"http://127.0.0.1:{port}", client, served, engine)
    finally:
        if engine.gate is not None:
            engine.gate.release(1_000_000)
        await runner.cleanup()
        await host.stop()


@pytest.fixture
async def running(codec: TextCodec) -> AsyncIterator[Running]:
    """A server over a fake engine with the default script."""
    async with running_server(codec, FakeEngine()) as server:
        yield server


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition that another task or thread makes true; the test's timeout bounds it."""
    while not condition():
        await asyncio.sleep(0.001)

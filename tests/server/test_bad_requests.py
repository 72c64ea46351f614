"""Every wrong body gets a 4xx in the API's shape that names the field, and harms nobody."""

from __future__ import annotations

import gzip
from typing import Any

import pytest

from reference_engine.server.limits import Limits
from reference_engine.server.text_codec import TextCodec
from tests.server.conftest import MAX_CONTEXT_TOKENS, Running, running_server
from tests.server.fake_engine import FakeEngine

WRONG_FIELDS: list[tuple[str, Any]] = [
    ("prompt", None),
    ("prompt", ""),
    ("prompt", []),
    ("prompt", 7),
    ("prompt", {}),
    ("prompt", True),
    ("prompt", [[]]),
    ("prompt", [1, "a"]),
    ("prompt", ["a", 1]),
    ("prompt", [1.5]),
    ("prompt", [True]),
    ("prompt", [-1]),
    ("prompt", [300]),
    ("prompt", [2**70]),
    ("prompt", ["a"] * 300),
    ("max_tokens", 0),
    ("max_tokens", -1),
    ("max_tokens", 1.5),
    ("max_tokens", "4"),
    ("max_tokens", True),
    ("max_tokens", 10**30),
    ("min_tokens", 17),
    ("min_tokens", -1),
    ("temperature", -0.1),
    ("temperature", 2.1),
    ("temperature", "hot"),
    ("top_p", 0),
    ("top_p", 1.01),
    ("top_k", -2),
    ("min_p", 2),
    ("n", 0),
    ("n", 17),
    ("seed", 2**63),
    ("seed", "x"),
    ("stop", ["a", "b", "c", "d", "e"]),
    ("stop", ""),
    ("stop", [""]),
    ("stop", 1),
    ("stop", "x" * 2000),
    ("stop_token_ids", [-1]),
    ("stop_token_ids", [300]),
    ("stop_token_ids", 3),
    ("logprobs", 21),
    ("logprobs", -1),
    ("logprobs", True),
    ("prompt_logprobs", 21),
    ("logit_bias", []),
    ("logit_bias", {"a": 1}),
    ("logit_bias", {"-1": 1}),
    ("logit_bias", {"1": 101}),
    ("logit_bias", {"1": "x"}),
    ("logit_bias", {"300": 1}),
    ("presence_penalty", 2.5),
    ("frequency_penalty", -2.5),
    ("repetition_penalty", 0),
    ("stream", "yes"),
    ("stream", 1),
    ("stream_options", {"include_usage": True}),
    ("stream_options", []),
    ("echo", "x"),
    ("best_of", 2),
    ("suffix", "tail"),
    ("cache_salt", ""),
    ("cache_salt", 5),
    ("model", "no-such-model"),
    ("model", 5),
    ("ignore_eos", "x"),
    ("return_token_ids", 1),
    ("request_id", "tab\there"),
    ("no_such_field", 1),
]

BEYOND_THE_CONTEXT: list[tuple[str, Any]] = [
    ("prompt", [1] * MAX_CONTEXT_TOKENS),
    ("prompt", "a" * MAX_CONTEXT_TOKENS),
    ("max_tokens", MAX_CONTEXT_TOKENS - 1),
]


@pytest.mark.parametrize(
    ("name", "value"), WRONG_FIELDS + BEYOND_THE_CONTEXT, ids=lambda v: repr(v)[:24]
)
async def test_a_wrong_field_is_named(running: Running, name: str, value: Any) -> None:
    body = {"prompt": [1, 50], name: value}
    status, answer = await running.post("/v1/completions", **body)
    assert status == (404 if value == "no-such-model" else 400), answer
    error = answer["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["param"].split("[")[0] == name
    assert len(error["message"]) < 300
    assert running.served.host.live_requests == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("messages", None),
        ("messages", []),
        ("messages", "hi"),
        ("messages", [{"role": "user"}]),
        ("messages", [{"role": "king", "content": "x"}]),
        ("messages", [{"role": "user", "content": 5}]),
        ("messages", [{"role": "user", "content": [{"type": "image_url"}]}]),
        ("messages", [{"role": "user", "content": "x", "extra": 1}]),
        ("messages", [{"role": "user", "content": "x" * 600}]),
        ("top_logprobs", 3),
        ("max_completion_tokens", 0),
        ("max_completion_tokens", 512),
        ("response_format", {"type": "json_object"}),
        ("tools", []),
    ],
)
async def test_a_wrong_chat_field_is_named(running: Running, name: str, value: Any) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], name: value}
    status, answer = await running.post("/v1/chat/completions", **body)
    assert status == 400, answer
    assert answer["error"]["param"].split("[")[0].split(".")[0] == name


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b'{"prompt": NaN}',
        b'{"prompt": [1, 50], "temperature": NaN}',
        b'{"prompt": [1, 50], "temperature": Infinity}',
        b'{"prompt": "\xff\xfe"}',
        b'{"prompt": "\\ud800"}',
        b"[" * 100_000,
        b'{"a":' * 5000,
        b"\x00" * 64,
    ],
)
async def test_a_body_that_is_no_json_object(running: Running, raw: bytes) -> None:
    async with running.client.post(running.url + "/v1/completions", data=raw) as response:
        assert response.status == 400
        assert (await response.json())["error"]["code"] == "invalid_json"


async def test_a_huge_temperature_literal_is_out_of_range(running: Running) -> None:
    raw = b'{"prompt": [1, 50], "temperature": 1e999}'
    async with running.client.post(running.url + "/v1/completions", data=raw) as response:
        assert response.status == 400


async def test_a_body_above_the_limit_is_413_with_and_without_a_length(codec: TextCodec) -> None:
    async def chunks() -> Any:
        for _ in range(64):
            yield b" " * 1024

    limits = Limits(max_body_bytes=10_000)
    async with running_server(codec, FakeEngine(), limits=limits) as running:
        for body in (b" " * 20_000, chunks()):
            async with running.client.post(running.url + "/v1/completions", data=body) as response:
                assert response.status == 413
                assert (await response.json())["error"]["code"] == "body_too_large"


async def test_unknown_paths_and_methods_have_the_same_shape(running: Running) -> None:
    async with running.client.get(running.url + "/v2/nothing") as response:
        assert response.status == 404
        assert (await response.json())["error"]["code"] == "not_found"
    async with running.client.get(running.url + "/v1/completions") as response:
        assert response.status == 405
        assert "POST" in response.headers["Allow"]
        assert (await response.json())["error"]["code"] == "method_not_allowed"


async def test_more_requests_than_the_limit_get_429(codec: TextCodec) -> None:
    async with running_server(codec, FakeEngine(), limits=Limits(max_live_requests=2)) as running:
        status, answer = await running.post("/v1/completions", prompt=[[1, 50]] * 3)
    assert status == 429
    assert answer["error"]["code"] == "too_many_requests"


@pytest.mark.parametrize(
    ("raw", "encoding", "status", "code"),
    [
        (b"no gzip", "gzip", 400, "invalid_http"),
        (gzip.compress(b'{"prompt": [1, 50]}')[:-12], "gzip", 400, "invalid_json"),
        (gzip.compress(b" " * 9_000_000), "gzip", 413, "body_too_large"),
    ],
)
async def test_a_compressed_body_is_bounded_and_must_be_whole(
    running: Running, raw: bytes, encoding: str, status: int, code: str
) -> None:
    headers = {"Content-Encoding": encoding}
    async with running.client.post(
        running.url + "/v1/completions", data=raw, headers=headers
    ) as response:
        assert response.status == status
        assert (await response.json())["error"]["code"] == code


@pytest.mark.parametrize(("expect", "status"), [("100-continue", 200), ("miracles", 417)])
async def test_expectations(running: Running, expect: str, status: int) -> None:
    async with running.client.post(
        running.url + "/v1/completions", json={"prompt": [1, 50]}, headers={"Expect": expect}
    ) as response:
        assert response.status == status
        assert ("error" in await response.json()) is (status == 417)

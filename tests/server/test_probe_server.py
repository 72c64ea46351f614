"""`isobatch serve` on a probe checkpoint: the real engine, the real command, exact answers."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest

from reference_engine.probe import VARIANTS, Rule, export_probe
from tests.server.events import parse_events
from tests.server.idle import metrics, until_idle
from tests.server.served_process import ServedProcess, served_process

CONFIG = VARIANTS["eos"]
RULE = Rule(CONFIG)
LENGTHS = (1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 255)


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedProcess]:
    """One server for all tests of this file, with pages and steps small enough to matter."""
    folder = export_probe(CONFIG, tmp_path_factory.mktemp("probe") / "checkpoint")
    options = ("--port", "0", "--num-pages", "256", "--token-budget", "64", "--trace-steps", "16")
    with served_process("harness.cli", "serve", str(folder), *options) as served:
        yield served
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(timeout=30) == 0


def _prompt(length: int, seed: int) -> list[int]:
    draw = random.Random(seed)
    return [CONFIG.bos_id, *(draw.randrange(4, 260) for _ in range(length - 1))]


async def _answer(session: aiohttp.ClientSession, url: str, prompt: list[int], **more: Any) -> Any:
    body = {"prompt": prompt, "temperature": 0, "return_token_ids": True, "stream": True, **more}
    async with session.post(url + "/v1/completions", json=body) as response:
        assert response.status == 200, await response.text()
        chunks = parse_events(await response.read())
    assert chunks.pop() == "[DONE]"
    choices = [c["choices"][0] for c in chunks]
    ids = tuple(i for c in choices for i in c["token_ids"])
    return ids, "".join(c["text"] for c in choices), choices[-1]["finish_reason"]


def test_the_ready_line_names_the_model_and_the_url(probe: ServedProcess) -> None:
    prefix, _, url = probe.ready_line.rpartition(" ")
    assert prefix == f"isobatch: serving {CONFIG.name} on"
    assert url.startswith("http://127.0.0.1:")


async def test_sixteen_ragged_streams_at_once_are_exact(probe: ServedProcess) -> None:
    prompts = [_prompt(length, seed) for seed, length in enumerate(LENGTHS)]
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        answers = await asyncio.gather(
            *(_answer(session, probe.url, p, max_tokens=24) for p in prompts)
        )
        gauges = await until_idle(session, probe.url)
    for prompt, (ids, _, finish) in zip(prompts, answers, strict=True):
        expected = RULE.generate(prompt, 24)
        assert (ids, finish) == (expected.token_ids, expected.finish_reason)
    assert gauges["isobatch_kv_pages_used"] == 0


async def test_hanging_up_gives_the_pages_back_and_harms_nobody(probe: ServedProcess) -> None:
    stays, leaves = _prompt(40, 100), _prompt(200, 101)
    async with aiohttp.ClientSession() as session:
        good = asyncio.create_task(_answer(session, probe.url, stays, max_tokens=24))
        body = {"prompt": leaves, "max_tokens": 500, "stream": True, "ignore_eos": True}
        before = (await metrics(session, probe.url))["isobatch_requests_cancelled_total"]
        for _ in range(3):
            response = await session.post(probe.url + "/v1/completions", json=body)
            await response.content.readuntil(b"\n\n")
            response.close()
        ids, _, _ = await good
        gauges = await until_idle(session, probe.url)
    assert ids == RULE.generate(stays, 24).token_ids
    assert gauges["isobatch_requests_cancelled_total"] == before + 3
    assert gauges["isobatch_kv_pages_used"] == 0
    free, cached = gauges["isobatch_kv_pages_free"], gauges["isobatch_kv_pages_cached"]
    assert free + cached == gauges["isobatch_kv_pages_total"]


async def test_a_stop_string_cut_from_the_answer_itself(probe: ServedProcess) -> None:
    prompt = _prompt(33, 200)
    async with aiohttp.ClientSession() as session:
        _, text, _ = await _answer(session, probe.url, prompt, max_tokens=30, ignore_eos=True)
        stop = text[10:14]
        _, cut, finish = await _answer(
            session, probe.url, prompt, max_tokens=30, ignore_eos=True, stop=stop
        )
    assert cut == text[: text.index(stop)]
    assert finish == "stop"


async def test_a_repeated_prompt_is_cached_and_answered_alike(probe: ServedProcess) -> None:
    prompt = _prompt(100, 300)
    body = {"prompt": prompt, "max_tokens": 8, "temperature": 0, "return_token_ids": True}
    answers = []
    async with aiohttp.ClientSession() as session:
        for _ in range(2):
            async with session.post(probe.url + "/v1/completions", json=body) as response:
                answers.append(await response.json())
    cold, warm = answers
    assert cold["choices"][0]["token_ids"] == warm["choices"][0]["token_ids"]
    assert cold["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert warm["usage"]["prompt_tokens_details"]["cached_tokens"] == 96


async def test_a_prompt_beyond_the_context_is_refused_at_once(probe: ServedProcess) -> None:
    async with aiohttp.ClientSession() as session:
        body = {"prompt": [1] * 100_000}
        async with session.post(probe.url + "/v1/completions", json=body) as response:
            assert response.status == 400
            assert (await response.json())["error"]["code"] == "context_length_exceeded"


async def test_the_steps_can_be_read_for_pictures(probe: ServedProcess) -> None:
    async with aiohttp.ClientSession() as session:
        body = {"prompt": _prompt(5, 400), "max_tokens": 3}
        async with session.post(probe.url + "/v1/completions", json=body) as response:
            answer = await response.json()
        async with session.get(probe.url + "/debug/steps") as response:
            trace = await response.json()
    rows = [r for s in trace["steps"] for r in s["scheduled"] if r["request_id"] == answer["id"]]
    assert [(r["kind"], r["start"], r["tokens"]) for r in rows] == [
        ("prefill", 0, 5),
        ("decode", 5, 1),
        ("decode", 6, 1),
    ]
    assert (trace["token_budget"], trace["page_size"]) == (64, 16)


async def test_parameters_reach_the_real_engine(probe: ServedProcess) -> None:
    prompt = _prompt(20, 500)
    base = {"prompt": prompt, "max_tokens": 6, "return_token_ids": True, "ignore_eos": True}
    chosen = RULE.generate(prompt, 1, ignore_eos=True).token_ids[0]

    async with aiohttp.ClientSession() as session:

        async def ids(**more: Any) -> list[list[int]]:
            body = {"temperature": 0, **base, **more}
            async with session.post(probe.url + "/v1/completions", json=body) as response:
                answer = await response.json()
                assert response.status == 200, answer
                return [choice["token_ids"] for choice in answer["choices"]]

        assert (await ids(stop_token_ids=[chosen]))[0] == [chosen]
        assert len((await ids(stop_token_ids=[chosen], min_tokens=3))[0]) >= 3
        expected = list(RULE.generate(prompt, 6, ignore_eos=True).token_ids)
        biased = {"logit_bias": {str(chosen): 1.5}, "presence_penalty": 0.5}
        assert await ids(n=4, temperature=1.0, seed=-5, **biased) == [expected] * 4


async def test_scores_of_the_prompt_and_of_the_answer_agree(probe: ServedProcess) -> None:
    prompt = _prompt(30, 600)
    url = probe.url + "/v1/completions"
    async with aiohttp.ClientSession() as session:
        body = {"prompt": prompt, "max_tokens": 5, "temperature": 0, "ignore_eos": True}
        body |= {"logprobs": 2, "return_token_ids": True}
        async with session.post(url, json=body) as response:
            [choice] = (await response.json())["choices"]
        again = {"prompt": prompt + choice["token_ids"], "max_tokens": 0, "echo": True}
        async with session.post(url, json={**again, "logprobs": 2}) as response:
            answer = await response.json()
    rows = answer["choices"][0]["logprobs"]
    assert rows["token_logprobs"][0] is None
    assert rows["token_logprobs"][-5:] == choice["logprobs"]["token_logprobs"]
    assert answer["usage"]["completion_tokens"] == 0

"""Every fault of the server acts, and a client can see it; a healthy server shows none of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from reference_engine.faults import FAULTS, install
from reference_engine.request import Request
from reference_engine.server.mailbox import Mailbox
from reference_engine.server.text_codec import TextCodec
from tests.server.conftest import MAX_CONTEXT_TOKENS, Running, running_server, until
from tests.server.events import sse_events
from tests.server.fake_engine import EOS_ID, FakeEngine

Scenario = Callable[[Running], Awaitable[object]]
COMPLETIONS = "/v1/completions"
PROMPT = [1, 50]


def answering(text: str) -> Callable[[TextCodec], FakeEngine]:
    """An engine whose every answer is this text and the end."""

    def make(codec: TextCodec) -> FakeEngine:
        ids = [*codec.encode(text, add_special_tokens=False), EOS_ID]
        return FakeEngine(lambda request, choice: ids)

    return make


def gated(codec: TextCodec) -> FakeEngine:
    """An engine that steps when the scenario says so."""
    return FakeEngine(gate=threading.Semaphore(0))


def plain(codec: TextCodec) -> FakeEngine:
    """An engine with the default answers."""
    return FakeEngine()


def whole(**body: Any) -> Scenario:
    """What a client sees of one answer in one piece."""

    async def scenario(running: Running) -> object:
        _, answer = await running.post(COMPLETIONS, **{"prompt": PROMPT, **body})
        return answer["choices"], answer["usage"]

    return scenario


def streamed(**body: Any) -> Scenario:
    """What a client sees of one stream."""

    async def scenario(running: Running) -> object:
        events = await sse_events(running, COMPLETIONS, **{"prompt": PROMPT, **body})
        return [e if e == "[DONE]" else e["choices"] for e in events]

    return scenario


def engine_sees(**body: Any) -> Scenario:
    """What reaches the engine of one request."""

    async def scenario(running: Running) -> object:
        await running.post(COMPLETIONS, **{"prompt": PROMPT, **body})
        [request] = running.engine.submitted
        return request.params, request.cache_salt

    return scenario


async def same_ids(running: Running) -> object:
    """Two requests with one id at the same time."""
    gate = running.engine.gate
    assert gate is not None
    call = {"max_tokens": 6, "return_token_ids": True, "request_id": "same"}
    first = asyncio.create_task(running.post(COMPLETIONS, prompt=PROMPT, **call))
    await until(lambda: running.served.host.live_requests == 1)
    second = asyncio.create_task(running.post(COMPLETIONS, prompt=[1, 60], **call))
    await until(lambda: running.served.host.live_requests == 2 or first.done())
    while not (first.done() and second.done()):
        gate.release()
        await asyncio.sleep(0.002)
    answers = [(await first), (await second)]
    return [(s, a["choices"][0]["token_ids"] if s == 200 else None) for s, a in answers]


async def hanging_up(running: Running) -> object:
    """Whether the engine hears of a client that left."""
    gate = running.engine.gate
    assert gate is not None
    body = {"prompt": PROMPT, "max_tokens": 30, "stream": True}
    response = await running.client.post(running.url + COMPLETIONS, json=body)
    response.close()
    await until(lambda: running.served.ids.live == 0)
    gate.release(100)
    await until(lambda: not running.engine.has_work)
    return len(running.engine.cancelled)


async def two_at_once(running: Running) -> object:
    """The ids that two simultaneous clients get."""
    gate = running.engine.gate
    assert gate is not None
    calls = [
        asyncio.create_task(
            running.post(COMPLETIONS, prompt=[1, 50 + 20 * i], max_tokens=12, return_token_ids=True)
        )
        for i in range(2)
    ]
    await until(lambda: running.served.host.live_requests == 2)
    gate.release(100)
    answers = [answer for _, answer in await asyncio.gather(*calls)]
    return [a["choices"][0]["token_ids"] for a in answers]


async def one_does_not_fit(running: Running) -> object:
    """The statuses of a good request and of one that is too long."""
    gate = running.engine.gate
    assert gate is not None
    good = asyncio.create_task(running.post(COMPLETIONS, prompt=PROMPT, max_tokens=6))
    await until(lambda: len(running.engine.submitted) == 1)
    bad, _ = await running.post(COMPLETIONS, prompt=[1] * MAX_CONTEXT_TOKENS)
    gate.release(100)
    status, _ = await good
    return status, bad


SCENARIOS: dict[str, tuple[Callable[[TextCodec], FakeEngine], Scenario]] = {
    "stop-text-leaked": (answering("abSTOPcd"), streamed(stop="STOP")),
    "stop-in-one-token": (answering("abSTOPcd"), whole(stop="STOP")),
    "utf8-split": (answering("aé😀"), streamed()),
    "stop-before-min-tokens": (answering("abababab"), whole(stop="b", min_tokens=5)),
    "delta-repeated": (answering("abcdefghijklmnop"), streamed()),
    "duplicate-id-overwritten": (gated, same_ids),
    "abort-ignored": (gated, hanging_up),
    "replies-swapped": (gated, two_at_once),
    "choices-overwritten": (plain, whole(n=3, max_tokens=4, return_token_ids=True)),
    "logprob-row-shifted": (answering("abc"), whole(logprobs=1)),
    "error-kills-others": (gated, one_does_not_fit),
    "seed-ignored": (plain, engine_sees(seed=5)),
    "ignore-eos-lost": (plain, engine_sees(ignore_eos=True)),
    "min-tokens-lost": (plain, engine_sees(min_tokens=2)),
    "logit-bias-lost": (plain, engine_sees(logit_bias={"50": 100})),
    "salt-lost": (plain, engine_sees(cache_salt="mine")),
    "usage-without-last-token": (plain, whole(max_tokens=4)),
    "usage-of-one-choice": (plain, whole(max_tokens=4, n=2)),
    "finish-reason-on-every-chunk": (plain, streamed(max_tokens=4)),
    "finish-reason-wrong": (plain, whole(max_tokens=4)),
    "terminator-missing": (plain, streamed(max_tokens=4)),
    "last-delta-lost": (plain, streamed(max_tokens=4)),
    "cumulative-text": (plain, streamed(max_tokens=4)),
    "prompt-logprobs-off-by-one": (plain, whole(prompt=[1, 50, 51], prompt_logprobs=1)),
}


def _of_the_server(name: str) -> bool:
    return all(point.startswith("server_") for point in FAULTS[name].hooks)


def test_every_fault_of_the_server_has_a_scenario() -> None:
    assert {name for name in FAULTS if _of_the_server(name)} == set(SCENARIOS)


@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_client_can_see_the_fault(codec: TextCodec, name: str) -> None:
    make_engine, scenario = SCENARIOS[name]
    healthy = []
    for _ in range(2):
        async with running_server(codec, make_engine(codec)) as running:
            healthy.append(await scenario(running))
    assert healthy[0] == healthy[1], "the scenario shows more than the fault"
    async with running_server(codec, make_engine(codec)) as running:
        run = install(FAULTS[name], running.served.parts)
        faulty = await scenario(running)
    assert run.executions > 0, "the fault never acted"
    assert faulty != healthy[0], "the fault changed nothing that a client can see"


async def test_an_id_that_is_overwritten_before_the_engine_knows_it_leaves_nobody_waiting(
    codec: TextCodec,
) -> None:
    """A request that fails while it is handed over is cancelled twice: never the second one's."""
    entered, go_on = threading.Event(), threading.Event()

    class Slow(FakeEngine):
        def submit(self, request: Request) -> None:
            entered.set()
            go_on.wait(10)
            super().submit(request)

    gate = threading.Semaphore(0)
    async with running_server(codec, Slow(gate=gate)) as running:
        install(FAULTS["duplicate-id-overwritten"], running.served.parts)
        host, calls = running.served.host, []
        submit = host.submit

        async def counted(request: Request, mailbox: Mailbox) -> None:
            calls.append(request.request_id)
            await submit(request, mailbox)

        host.submit = counted  # type: ignore[method-assign]
        call = {"prompt": PROMPT, "max_tokens": 6, "request_id": "same"}
        first = asyncio.create_task(running.post(COMPLETIONS, **call))
        await until(entered.is_set)
        second = asyncio.create_task(running.post(COMPLETIONS, **call))
        await until(lambda: len(calls) == 2)
        go_on.set()
        async with asyncio.timeout(5):
            statuses = [(await first)[0]]
            gate.release(100)
            statuses.append((await second)[0])
    assert statuses == [500, 200]


async def test_the_executions_of_a_fault_can_be_read(codec: TextCodec) -> None:
    async with running_server(codec, FakeEngine()) as running:
        async with running.client.get(running.url + "/debug/faults") as response:
            assert response.status == 404
        fault = FAULTS["usage-without-last-token"]
        running.served.fault_run = install(fault, running.served.parts)
        await running.post(COMPLETIONS, prompt=PROMPT)
        async with running.client.get(running.url + "/debug/faults") as response:
            assert await response.json() == {
                "fault": fault.name,
                "title": fault.title,
                "executions": 1,
            }

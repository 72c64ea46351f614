"""Each of the twelve guarantees holds, and is seen to fail when it is broken on purpose.

A property is a coroutine that asserts; a breakage patches the code so that the promise no longer
holds, as one of the tools named in `harness.load.guarantees` did it. A property that still passes
then would prove nothing.
"""

from __future__ import annotations

import ast
import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from harness.client.connection import HttpConnection
from harness.client.exchange import Exchange
from harness.client.limits import Limits
from harness.client.pool import ConnectionPool
from harness.client.request_run import RequestRun
from harness.client.sse import SseEvent, SseParser
from harness.client.workload_run import WorkloadRun
from harness.load import client_health
from harness.load.bench_load import RecipeLoad
from harness.load.client_health import HealthWatch
from harness.load.guarantees import GUARANTEES, page
from harness.load.measurement import measure
from harness.load.paced.process import paced_server
from harness.load.selftest import Spread, measure_level
from harness.load.split import split
from harness.metrics.ledger import TokenLedger
from harness.metrics.summary import metric_rows
from harness.targets.http import HttpTarget
from harness.transcript import ChoiceTranscript, Ending, RequestTranscript, TokenChunk, Usage
from tests.client.counting_server import counting_server
from tests.client.scripted_server import END, HEAD, TOKEN, chunk, saying, scripted_server
from workloads.arrivals import Poisson
from workloads.lengths import Fixed
from workloads.prompts import TokenAlphabet
from workloads.recipe import Recipe
from workloads.seeded import stream
from workloads.workload import Workload, WorkloadRequest

ALPHABET = TokenAlphabet(tuple(range(10, 90)))
Patch = pytest.MonkeyPatch
bound_s = [60.0]  # a run that has not ended by then never will
SHORT = Limits(connect_s=0.5, first_token_s=0.1, idle_s=0.1, total_s=0.5)


def request(key: str = "a", **params: object) -> WorkloadRequest:
    return WorkloadRequest(key, prompt_ids=(10, 11), params={"max_tokens": 2, **params})


def metric(requests: list[RequestTranscript], metric_id: str) -> float | None:
    [row] = [r for r in metric_rows(requests) if r["id"] == metric_id]
    return row["value"]


async def ask(url: str, workload: Workload, limits: Limits = SHORT) -> list[RequestTranscript]:
    target = HttpTarget(url, model="m", limits=limits)
    async with asyncio.timeout(bound_s[0]):
        transcript = await target.run(workload)
    await target.close()
    return list(transcript.requests.values())


# 1 ------------------------------------------------------------------------------------------------


async def cuts_do_not_matter() -> None:
    raw = b"data: a\n\ndata:b\r\n\r\n"
    for cut in range(len(raw) + 1):
        parser = SseParser()
        events = [*parser.feed(raw[:cut]), *parser.feed(raw[cut:])]
        assert events == [SseEvent("message", b"a"), SseEvent("message", b"b")], f"cut at {cut}"


def take_reads_for_events(patch: Patch) -> None:
    patch.setattr(
        SseParser,
        "feed",
        lambda self, data: [SseEvent("message", line[6:]) for line in data.split(b"\n\n") if line],
    )


# 2 ------------------------------------------------------------------------------------------------


async def parsing_costs_no_latency() -> None:
    """A slow sink for the first of two pieces must not move the time of the second."""
    seen = []
    connection = HttpConnection(Limits())

    class Wire:
        def write(self, data: bytes) -> None:
            pass

        close = abort = lambda self: None

    def sink(t_s: float, _data: bytes) -> None:
        seen.append(t_s)
        time.sleep(0.02)

    connection.connected(Wire())
    connection.begin(Exchange(b"", sink))
    connection.bytes_arrived(7.0, HEAD + chunk(TOKEN) + chunk(TOKEN))
    assert seen == [7.0, 7.0]


def stamp_after_parsing(patch: Patch) -> None:
    honest = HttpConnection.on_body

    def on_body(self: HttpConnection, data: bytes) -> None:
        self._t_read_s = time.monotonic()
        honest(self, data)

    patch.setattr(HttpConnection, "on_body", on_body)


# 3 ------------------------------------------------------------------------------------------------

OPEN = Recipe("open", "t", 60, Fixed(3), Fixed(2), arrivals=Poisson(300.0))


async def the_schedule_is_kept() -> None:
    """A slow server delays no request, and the whole is on time to its last one."""
    async with counting_server() as server:
        server.delay_s = 0.05
        got = await ask(server.url, OPEN.build(ALPHABET, 1), Limits())
    due = Poisson(300.0).times(60, stream(1, "arrivals"))
    assert [r.t_due_s for r in got] == due
    drift = [(r.t_sent_s or 0.0) - r.t_due_s for r in got]
    assert min(drift) >= 0.0
    assert sum(drift[-20:]) / 20 < 0.25 + sum(drift[:20]) / 20, "lateness does not add up"
    for request_ in got:
        assert request_.t_first_s is not None
        assert request_.t_first_s - request_.t_due_s >= 0.05


def sleep_between_sends(patch: Patch) -> None:
    """Relative sleeps: each send's own cost is added to all that follow (vllm#21104)."""
    last = [0.0]

    async def relative(self: WorkloadRun, due_s: float) -> None:
        await asyncio.sleep(due_s - last[0] + 0.01)
        last[0] = due_s

    patch.setattr(WorkloadRun, "_sleep_until", relative)


# 4 ------------------------------------------------------------------------------------------------


async def the_headline_is_the_servers_count() -> None:
    chunks = [TokenChunk(t, "ab", tokens=2) for t in (1.0, 2.0)]
    got = RequestTranscript("a", Ending.COMPLETE, 0.0, 0.0, 2.0)
    got.choices[0] = ChoiceTranscript(chunks)
    got.usage = Usage(1, 5)
    ledger = TokenLedger.of(got)
    assert (ledger.output_tokens, ledger.server, ledger.ids, ledger.chunks) == (5, 5, 4, 2)
    assert metric([got], "tokens.mismatched_requests") == 1


def count_chunks(patch: Patch) -> None:
    patch.setattr(TokenLedger, "output_tokens", property(lambda self: self.chunks))


# 5 ------------------------------------------------------------------------------------------------


async def lengths_are_sent_and_verified() -> None:
    async with counting_server() as server:
        got = await ask(server.url, Workload((request(ignore_eos=True, min_tokens=2),)))
        assert server.requests[0]["ignore_eos"] is True
        assert server.requests[0]["min_tokens"] == 2
    assert metric(got, "lengths.prompt_off_plan") == 0
    assert metric(got, "lengths.output_off_plan") == 0
    short = replace(got[0].usage or Usage(0, 0), prompt_tokens=7, completion_tokens=1)
    got[0].usage = short
    assert metric(got, "lengths.prompt_off_plan") == 1
    assert metric(got, "lengths.output_off_plan") == 1


def believe_the_request(patch: Patch) -> None:
    patch.setattr("harness.client.request_run._planned_output", lambda _request: None)


# 6 ------------------------------------------------------------------------------------------------


async def a_clean_end_without_its_terminal_event_is_a_failure() -> None:
    async with scripted_server(saying(HEAD + chunk(TOKEN) + END)) as url:
        [got] = await ask(url, Workload((request(),)))
    assert got.ending is Ending.DISCONNECTED
    assert got.first.text == "t", "what came is kept"


def believe_the_end(patch: Patch) -> None:
    patch.setattr(RequestRun, "_ending", lambda self, exchange: (Ending.COMPLETE, None))


# 7 ------------------------------------------------------------------------------------------------


async def a_half_open_server_ends_in_bounded_time() -> None:
    async with scripted_server(saying(HEAD + chunk(TOKEN), then_close=False)) as url:
        [got] = await ask(url, Workload((request(),)))
    assert got.ending is Ending.TIMEOUT


def wait_for_ever(patch: Patch) -> None:
    patch.setattr("tests.load.test_guarantees.bound_s", [1.0])
    patch.setattr(RequestRun, "check_limits", lambda self, t_s: None)


# 8 ------------------------------------------------------------------------------------------------


async def no_stream_waits_for_a_connection() -> None:
    async with counting_server() as server:
        server.delay_s = 0.8
        many = Workload(tuple(request(f"r{i}") for i in range(150)))
        got = await ask(server.url, many, Limits())
        assert server.most_live == 150
    assert all(r.ending is Ending.COMPLETE and r.t_connect_s is not None for r in got)


def limit_connections_to_a_hundred(patch: Patch) -> None:
    honest = ConnectionPool.acquire
    slots = asyncio.Semaphore(100)

    async def acquire(self: ConnectionPool, *, fresh: bool = False) -> object:
        await slots.acquire()
        asyncio.get_running_loop().call_later(5.0, slots.release)
        return await honest(self, fresh=fresh)

    patch.setattr(ConnectionPool, "acquire", acquire)


# 9 ------------------------------------------------------------------------------------------------


async def a_blocked_client_says_so() -> None:
    async with HealthWatch() as watch:
        for _ in range(3):
            time.sleep(0.12)  # noqa: ASYNC251  (the loop is blocked, which is the point)
            await asyncio.sleep(0.06)
    assert not watch.judge([]).valid


def look_away(patch: Patch) -> None:
    blind = client_health.HealthLimits(1e9, 1e9, 1e9, 1e9)
    patch.setattr(client_health, "HealthLimits", lambda: blind)


# 10 -----------------------------------------------------------------------------------------------


async def warm_up_warms_no_prefix_and_counts_for_nothing() -> None:
    load = RecipeLoad(replace(OPEN, arrivals=Poisson(1e6), concurrency=4, requests=8))
    workload, warmup = load.workload(ALPHABET, 0), load.warmup(ALPHABET, 0)
    async with counting_server() as server:
        target = HttpTarget(server.url, model="m")
        measured = await measure(target, workload, warmup=warmup)
        await target.close()
    sent = [tuple(body["prompt"]) for body in server.requests]
    assert len(warmup.requests) == 4 == warmup.concurrency
    assert not set(sent[:4]) & set(sent[4:]), "other prompts"
    assert [r.key for r in measured.requests] == [r.key for r in workload.requests]


def warm_up_with_the_run_itself(patch: Patch) -> None:
    patch.setattr("harness.load.bench_load._WARMUP_SEED", 0)


# 11 -----------------------------------------------------------------------------------------------


async def workers_together_are_the_whole() -> None:
    workload = OPEN.build(ALPHABET, 3)
    parts = split(workload, 3)
    due = {r.key: r.due_s for r in workload.requests}
    sent = {r.key: r.due_s for part in parts for r in part.requests}
    assert sum(len(part.requests) for part in parts) == len(workload.requests)
    assert sent == due


def each_worker_its_own_schedule(patch: Patch) -> None:
    def own(workload: Workload, workers: int) -> list[Workload]:
        part = replace(OPEN, requests=len(workload.requests) // workers, arrivals=Poisson(100.0))
        return [part.build(ALPHABET, seed) for seed in range(workers)]

    patch.setitem(globals(), "split", own)


# 12 -----------------------------------------------------------------------------------------------


async def the_tools_own_error_is_found() -> None:
    """Half of an error put into the client's clock must show, and show as the client's."""
    honest = HttpConnection.bytes_arrived
    with paced_server("--ttft-s", "0.005", "--gap-s", "0.001") as url, Patch.context() as patch:
        patch.setattr(
            HttpConnection,
            "bytes_arrived",
            lambda self, t_s, data: honest(self, t_s + 0.2, data),
        )
        target = HttpTarget(url, model="paced")
        level = await measure_level(target, 2, rounds=1)
        await target.close()
    assert level.ttft.p50_s > 0.1


def trust_oneself(patch: Patch) -> None:
    patch.setattr(Spread, "of", classmethod(lambda cls, errors: cls(0.0, 0.0, 0.0)))


# --------------------------------------------------------------------------------------------------

PAIRS: dict[int, tuple[Callable[[], Awaitable[None]], Callable[[Patch], None]]] = {
    1: (cuts_do_not_matter, take_reads_for_events),
    2: (parsing_costs_no_latency, stamp_after_parsing),
    3: (the_schedule_is_kept, sleep_between_sends),
    4: (the_headline_is_the_servers_count, count_chunks),
    5: (lengths_are_sent_and_verified, believe_the_request),
    6: (a_clean_end_without_its_terminal_event_is_a_failure, believe_the_end),
    7: (a_half_open_server_ends_in_bounded_time, wait_for_ever),
    8: (no_stream_waits_for_a_connection, limit_connections_to_a_hundred),
    9: (a_blocked_client_says_so, look_away),
    10: (warm_up_warms_no_prefix_and_counts_for_nothing, warm_up_with_the_run_itself),
    11: (workers_together_are_the_whole, each_worker_its_own_schedule),
    12: (the_tools_own_error_is_found, trust_oneself),
}


@pytest.mark.parametrize("number", PAIRS)
async def test_each_guarantee_can_be_seen_to_break(number: int, monkeypatch: Patch):
    holds, broken = PAIRS[number]
    await holds()
    broken(monkeypatch)
    with pytest.raises((AssertionError, TimeoutError)):
        await holds()


async def test_answers_that_are_not_as_long_as_planned_are_counted():
    await lengths_are_sent_and_verified()


def test_all_twelve_are_stated_and_every_test_they_name_exists():
    assert [g.number for g in GUARANTEES] == list(range(1, 13)) == list(PAIRS)
    for guarantee in GUARANTEES:
        assert guarantee.answers
        for node in guarantee.tests:
            path, _, name = node.partition("::")
            tree = ast.parse(Path(path).read_text())
            functions = {
                n.name
                for n in ast.walk(tree)
                if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
            }
            assert name.partition("[")[0] in functions, node


def test_the_page_is_up_to_date():
    assert Path("harness/load/GUARANTEES.md").read_text() == page(), (
        "run: python -m harness.load.guarantees > harness/load/GUARANTEES.md"
    )

"""`InProcessTarget` over a counting engine: the transcript has the shape that HTTP gives."""

from __future__ import annotations

from dataclasses import dataclass, field

from harness.targets.in_process import InProcessTarget
from harness.targets.in_process_text import Detokenizer
from harness.transcript import Ending
from reference_engine.request import (
    FinishReason,
    Request,
    RequestRefused,
    TokenEvent,
    TokenLogprobs,
)
from workloads.workload import AfterTokens, Workload, WorkloadRequest


@dataclass
class CountingEngine:
    """One token for every live request a step: its position in the answer."""

    live: dict[str, tuple[Request, int]] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    most_live: int = 0

    @property
    def has_work(self) -> bool:
        return bool(self.live)

    def submit(self, request: Request) -> None:
        if len(request.prompt_ids) > 9:
            raise RequestRefused("too long", field="prompt_ids")
        self.order.append(request.request_id)
        self.live[request.request_id] = (request, 0)

    def cancel(self, request_id: str) -> bool:
        return self.live.pop(request_id, None) is not None

    def step(self) -> list[TokenEvent]:
        self.most_live = max(self.most_live, len(self.live))
        events = []
        for name, (request, count) in list(self.live.items()):
            last = count + 1 == request.params.max_tokens
            reason = FinishReason.LENGTH if last else None
            scores = TokenLogprobs(count, -0.5, ((count, -0.5),))
            events.append(TokenEvent(name, 0, count, scores, reason, cached_tokens=2))
            if last:
                del self.live[name]
            else:
                self.live[name] = (request, count + 1)
        return events

    def stats(self) -> dict[str, object]:
        return {"running": len(self.live), "name": "counting"}


def ask(key: str, max_tokens: int = 4, **fields: object) -> WorkloadRequest:
    fields.setdefault("prompt_ids", (1, 2, 3))
    params = {"max_tokens": max_tokens, "temperature": 0.0}
    return WorkloadRequest(key, params=params, **fields)  # type: ignore[arg-type]


async def test_tokens_usage_and_ending():
    target = InProcessTarget(CountingEngine(), decode=lambda ids: "".join(map(str, ids)))
    got = (await target.run(Workload((ask("a"),))))["a"]
    assert got.ending is Ending.COMPLETE
    assert got.first.token_ids == (0, 1, 2, 3)
    assert got.first.text == "0123"
    assert got.first.finish_reasons == ["length"]
    assert got.usage is not None
    assert (got.usage.prompt_tokens, got.usage.completion_tokens) == (3, 4)
    assert got.usage.cached_tokens == 2
    assert got.first.chunks[0].logprobs == (-0.5,)
    assert (got.terminators, got.usages_seen) == (1, 1)
    assert await target.metrics() == {"running": 0.0}


async def test_triggers_turns_and_cancel_points():
    engine = CountingEngine()
    transcript = await InProcessTarget(engine).run(
        Workload(
            (
                ask("first", 8),
                ask("later", 2, after=AfterTokens("first", 5)),
                ask("turn", 1, after_end="later", think_s=0.001),
                ask("dropped", 50, cancel_after_tokens=3),
                ask("never", 50, cancel_after_tokens=0),
            )
        )
    )
    assert transcript["later"].t_sent_s >= transcript["first"].first.chunks[4].t_s
    assert transcript["turn"].t_sent_s >= transcript["later"].t_end_s + 0.001
    assert transcript["dropped"].ending is Ending.CANCELLED
    assert len(transcript["dropped"].first.chunks) == 3
    assert transcript["never"].ending is Ending.CANCELLED
    assert not engine.has_work


async def test_a_closed_loop_keeps_so_many_in_flight():
    engine = CountingEngine()
    requests = tuple(ask(str(i), 1 + i % 3) for i in range(10))
    transcript = await InProcessTarget(engine).run(Workload(requests, concurrency=3))
    assert engine.most_live == 3
    assert [r.ending for r in transcript.requests.values()] == [Ending.COMPLETE] * 10


async def test_refusals_are_typed():
    long = ask("long", prompt_ids=tuple(range(20)))
    text = ask("text", prompt_ids=None, prompt_text="x")
    odd = WorkloadRequest("odd", prompt_ids=(1,), params={"stop": ["x"]})
    transcript = await InProcessTarget(CountingEngine()).run(Workload((long, text, odd)))
    assert {r.ending for r in transcript.requests.values()} == {Ending.REFUSED}
    assert "stop" in (transcript["odd"].error or "")


def test_half_a_character_is_held_back():
    raw = "é!".encode()
    reader = Detokenizer(lambda ids: bytes(ids).decode("utf-8", "replace"))
    assert [reader.add(b) for b in raw] == ["", "é", "!"]

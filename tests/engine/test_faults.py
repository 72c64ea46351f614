"""Every engine fault does something: it runs, and somebody outside can see it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

import pytest

from reference_engine.engine import Engine, EngineConfig
from reference_engine.faults import FAULTS, Fault
from reference_engine.request import Request, RequestRefused, SamplingParams, TokenEvent
from tests.engine.families import exact
from tests.engine.tiny import VOCAB, tiny_model

ENGINE_FAULTS = sorted(
    name for name, f in FAULTS.items() if not any(h.startswith("server_") for h in f.hooks)
)
TIMING = {"padded-to-the-longest", "no-kv-cache"}
"""Faults that change when things happen and nothing else."""

PREFIX = tuple(3 + i * i % 150 for i in range(32))


@dataclass
class Outcome:
    """All that a client could see: every stream, the order of endings, refusals, leaks."""

    streams: dict[tuple[str, int], list[TokenEvent]] = field(default_factory=dict)
    endings: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    steps: int = 0
    unfinished: int = 0
    pages_held: int = 0


def ids(seed: int, length: int) -> tuple[int, ...]:
    return tuple(3 + (seed * 37 + k * k * 5) % (VOCAB - 3) for k in range(length))


def first_wave() -> list[Request]:
    """Ragged, greedy and sampled, with every parameter on somebody; pages are scarce."""
    greedy = [
        Request(f"g{i}", ids(i, 5 + 13 * i), SamplingParams(max_tokens=14 + i, ignore_eos=True))
        for i in range(4)
    ]
    sampled = [
        SamplingParams(temperature=1.2, seed=1, max_tokens=6, logprobs=1),
        SamplingParams(temperature=0.9, top_p=0.6, seed=2, max_tokens=8),
        SamplingParams(max_tokens=6, logit_bias={2: 100.0}, min_tokens=3),
        SamplingParams(max_tokens=6, prompt_logprobs=1, logit_bias={77: 100.0}),
        SamplingParams(max_tokens=3, logit_bias={2: 100.0}, min_tokens=2),
        SamplingParams(max_tokens=6, logit_bias={9: 100.0}, stop_token_ids=(9,)),
    ]
    return [*greedy, *(Request(f"s{i}", ids(9 + i, 21), p) for i, p in enumerate(sampled))]


def second_wave() -> list[Request]:
    """Prompts that begin alike, or nearly so, with and without salt."""
    short = SamplingParams(max_tokens=4, ignore_eos=True)
    near = (*PREFIX[:7], 5, *PREFIX[8:])
    return [
        Request("warm", (*PREFIX, 7, 8, 9), short),
        Request("again", (*PREFIX, 7, 8, 9), short),
        Request("longer", (*PREFIX, *ids(3, 30)), short),
        Request("first-differs", (100, *PREFIX[1:], 7, 8, 9), short),
        Request("last-of-page-differs", (*near, 7, 8, 9), short),
        Request("salted", (*PREFIX, 7, 8, 9), short, cache_salt="a"),
        Request("swapped", (PREFIX[1], PREFIX[0], *PREFIX[2:], 7, 8, 9), short),
    ]


def third_wave() -> list[Request]:
    """Alone in turn: choices that share a page, and a prompt that holds the whole vocabulary."""
    several = SamplingParams(temperature=1.2, seed=1, n=3, max_tokens=6, logprobs=1)
    push = {77: 20.0}
    penalties = SamplingParams(frequency_penalty=2.0, presence_penalty=2.0, max_tokens=8)
    return [
        Request("several", ids(5, 21), several),
        Request("penalised", tuple(range(3, VOCAB)), penalties),
        Request(
            "pushed",
            ids(6, 9),
            SamplingParams(frequency_penalty=2.0, max_tokens=12, logit_bias=push),
        ),
    ]


def fourth_wave() -> list[Request]:
    """Three that fit one and a half times: somebody is preempted."""
    long = SamplingParams(max_tokens=70, ignore_eos=True)
    return [Request(f"long{i}", ids(20 + i, 30), long) for i in range(3)]


def crowd(engine: Engine, outcome: Outcome) -> None:
    submit(engine, outcome, first_wave())
    submit(engine, outcome, [Request("too-long", ids(1, 300))])
    submit(engine, outcome, [Request("full", ids(2, 30), SamplingParams(max_tokens=610))])
    for _ in range(6):
        take(engine, outcome)
    engine.cancel("g3")
    engine.cancel("too-long")
    run(engine, outcome)


def prefixes(engine: Engine, outcome: Outcome) -> None:
    for request in second_wave():
        submit(engine, outcome, [request])
        take(engine, outcome)
    run(engine, outcome)


def choices_and_penalties(engine: Engine, outcome: Outcome) -> None:
    for request in third_wave():
        submit(engine, outcome, [request])
        run(engine, outcome)


def pressure(engine: Engine, outcome: Outcome) -> None:
    prefixes(engine, outcome)
    submit(engine, outcome, fourth_wave())
    run(engine, outcome)
    prefixes(engine, outcome)


SCRIPTS = (crowd, prefixes, choices_and_penalties, pressure)


def play(script: int, family: str, fault: Fault | None) -> tuple[Outcome, int]:
    """One script on an engine with or without a fault; also how often the fault was executed."""
    model = tiny_model() if family == "llama" else exact(family)
    config = EngineConfig(page_size=8, num_pages=27, token_budget=24, max_num_seqs=5)
    engine = Engine(model, config, fault)
    outcome = Outcome()
    SCRIPTS[script](engine, outcome)
    outcome.pages_held = engine.stats().pages_used
    return outcome, engine.fault_run.executions if engine.fault_run else 0


def submit(engine: Engine, outcome: Outcome, requests: list[Request]) -> None:
    for request in requests:
        try:
            engine.submit(request)
        except RequestRefused as refusal:
            outcome.refused.append(f"{request.request_id}: {refusal}")


def take(engine: Engine, outcome: Outcome) -> None:
    for event in engine.step():
        outcome.streams.setdefault((event.request_id, event.choice), []).append(event)
        if event.finish_reason is not None:
            outcome.endings.append(f"{event.request_id}/{event.choice}")
    outcome.steps += 1


def run(engine: Engine, outcome: Outcome) -> None:
    for _ in range(150):
        if not engine.has_work:
            return
        take(engine, outcome)
    outcome.unfinished += 1


def model_for(name: str) -> str:
    """Faults of sliding windows need a model that has one."""
    return "mistral-window" if "window" in name else "llama"


@cache
def healthy(script: int, family: str) -> Outcome:
    return play(script, family, None)[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", ENGINE_FAULTS)
def test_fault_is_executed_and_visible(name: str) -> None:
    """With the fault on, some stream, refusal or order of endings differs, or pages leak."""
    family = model_for(name)
    executions = 0
    for script in range(1 if name in TIMING else len(SCRIPTS)):
        outcome, count = play(script, family, FAULTS[name])
        executions += count
        if outcome != healthy(script, family):
            assert count > 0, "something differs, but the fault never ran"
            assert name not in TIMING
            return
    assert executions > 0, "the fault never ran"
    assert name in TIMING, "nobody could see the fault"


@pytest.mark.parametrize("script", range(len(SCRIPTS)))
def test_healthy_engine_leaves_nothing_behind(script: int) -> None:
    """The scripts themselves end: everything answered, nothing leaked, the impossible refused."""
    outcome = healthy(script, "llama")
    assert outcome.unfinished == 0
    assert outcome.pages_held == 0
    refused = ["too-long", "full"] if SCRIPTS[script] is crowd else []
    assert [line.split(":")[0] for line in outcome.refused] == refused


def test_every_root_cause_group_is_covered() -> None:
    """Names are unique, texts are there, and no fault is without the bug it imitates."""
    assert len(FAULTS) >= 48
    for name, fault in FAULTS.items():
        assert name == fault.name
        assert fault.title
        assert fault.does, f"{name} has no description"
        assert fault.imitates, f"{name} imitates nothing"
        assert fault.hooks

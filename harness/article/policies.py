"""Four ways of batching one ragged workload, all on the same engine and model.

- one at a time: the next request begins when the last one has ended;
- static: batches of B, padded to the longest prompt and run to the longest answer;
- dynamic padded: a finished request is replaced at once, but the prompt that joins makes every
  stream of that step as long as itself;
- continuous: ragged steps under a token budget, what this engine does.

Only tokens that somebody asked for count as useful.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from random import Random

from harness.article.experiments import config
from harness.article.findings import Policy
from harness.article.trial import Trial, request, run
from reference_engine.engine import Engine
from reference_engine.model import LoadedModel

Lengths = Sequence[tuple[int, int]]


def ragged_lengths(requests: int, seed: int = 0) -> list[tuple[int, int]]:
    """(prompt, output) tokens, very different from each other."""
    rng = Random(seed)
    return [
        (rng.choice([4, 12, 24, 48, 96]), rng.choice([4, 8, 16, 32, 64])) for _ in range(requests)
    ]


def run_policies(
    model: LoadedModel, lengths: Lengths, streams: int, token_budget: int
) -> tuple[list[Policy], Trial]:
    """All four policies, and the continuous one's trial for the pictures."""
    useful = sum(output for _, output in lengths)
    continuous = _continuous(model, lengths, streams, token_budget)
    trials = (
        ("one at a time", "no batch at all", _one_at_a_time(model, lengths)),
        ("static", f"batches of {streams}, padded, until the longest ends",
         _static(model, lengths, streams)),
        ("dynamic, padded", "refilled at once, the joining step padded to a rectangle",
         _dynamic_padded(model, lengths, streams)),
        ("continuous", f"ragged steps of at most {token_budget} tokens", continuous),
    )  # fmt: skip
    return [
        Policy(name, explanation, useful, trial.rows, trial.cpu_s, len(trial.steps))
        for name, explanation, trial in trials
    ], continuous


def _joined(trials: Sequence[Trial]) -> Trial:
    return Trial([step for trial in trials for step in trial.steps])


def _one_at_a_time(model: LoadedModel, lengths: Lengths) -> Trial:
    return _joined(
        [
            run(model, config(), [request(f"one/{i}", prompt, output, model)])
            for i, (prompt, output) in enumerate(lengths)
        ]
    )


def _static(model: LoadedModel, lengths: Lengths, streams: int) -> Trial:
    trials = []
    for start in range(0, len(lengths), streams):
        batch = lengths[start : start + streams]
        prompt, output = max(p for p, _ in batch), max(o for _, o in batch)
        rows = [request(f"static/{start + i}", prompt, output, model) for i in range(len(batch))]
        trials.append(run(model, config(max_num_seqs=streams), rows))
    return _joined(trials)


def _dynamic_padded(model: LoadedModel, lengths: Lengths, streams: int) -> Trial:
    """The first batch is padded as a static one; every later prompt pads the streams it joins."""
    longest = max(prompt for prompt, _ in lengths[:streams])
    first = [request(f"d/{i}", longest, out, model) for i, (_, out) in enumerate(lengths[:streams])]
    waiting = deque(enumerate(lengths[streams:], start=streams))
    live = {one.request_id for one in first}

    def refill(engine: Engine, steps: int, done: tuple[str, ...]) -> None:
        live.difference_update(done)
        joining: list[tuple[int, int, int]] = []
        while waiting and len(live) + len(joining) < streams:
            number, (prompt, output) = waiting.popleft()
            joining.append((number, prompt, output))
        width = max((prompt for _, prompt, _ in joining), default=0)
        for i, _ in enumerate(sorted(live) if width > 1 else ()):
            engine.submit(request(f"pad/{steps}/{i}", width - 1, 1, model))
        for number, _, output in joining:
            live.add(f"d/{number}")
            engine.submit(request(f"d/{number}", width, output, model))

    return run(model, config(max_num_seqs=4 * streams), first, refill=refill)


def _continuous(model: LoadedModel, lengths: Lengths, streams: int, token_budget: int) -> Trial:
    requests = [request(f"r{i}", prompt, out, model) for i, (prompt, out) in enumerate(lengths)]
    return run(model, config(max_num_seqs=streams, token_budget=token_budget), requests)

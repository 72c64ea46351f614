"""The experiments behind the article's claims, each on our engine in process.

Padding is emulated by real work: a padded row costs what a row costs, so a request whose answer
nobody wants stands for it. All policies then run the same code on the same model.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Final

from harness.article.findings import (
    CacheCost,
    CacheSize,
    ChunkedPrefill,
    FirstToken,
    Padding,
    Slope,
)
from harness.article.trial import request, run
from reference_engine.engine import Engine, EngineConfig
from reference_engine.model import LoadedModel

WIDE: Final = 4096
LLAMA_2_7B: Final = CacheSize("Llama-2-7B, fp16", 32, 32, 128, 2)


def config(**fields: int) -> EngineConfig:
    """An engine without a prefix cache: no experiment may profit from an earlier one."""
    return EngineConfig(**{"token_budget": WIDE, **fields}, prefix_caching=False)  # type: ignore[arg-type]


def first_token(
    model: LoadedModel, prompt_tokens: int = 400, output_tokens: int = 48
) -> FirstToken:
    """One request alone: the first token waits for the whole prompt, the others do not."""
    run(model, config(), [request("warm-up", 32, 4, model)])
    trial = run(model, config(), [request("alone", prompt_tokens, output_tokens, model)])
    first, *later = (step.cpu_s for step in trial.steps)
    return FirstToken(prompt_tokens, first, tuple(later))


def cache_cost(model: LoadedModel, lengths: Sequence[int], repeats: int = 3) -> CacheCost:
    """The next token at each length: one decode step, or a prefill of everything before it."""
    cached, recomputed = [], []
    for length in lengths:
        decodes, prefills = [], []
        for repeat in range(repeats):
            key = f"{length}/{repeat}"
            trial = run(model, config(), [request(key, length - 4, 8, model)])
            decodes += [step.cpu_s for step in trial.steps[1:]]
            prefills.append(run(model, config(), [request(key, length, 1, model)]).steps[0].cpu_s)
        cached.append(median(decodes))
        recomputed.append(median(prefills))
    return CacheCost(
        tuple(lengths),
        tuple(cached),
        tuple(recomputed),
        _slope(lengths, cached),
        _slope(lengths, recomputed),
    )


def _slope(lengths: Sequence[int], times_s: Sequence[float]) -> Slope:
    from scipy import stats

    fit = stats.linregress(lengths, times_s)
    half = float(stats.t.ppf(0.975, len(lengths) - 2) * fit.stderr)
    slope = float(fit.slope)
    return Slope(slope, slope - half, slope + half, float(fit.intercept))


def cache_sizes(model: LoadedModel, name: str) -> tuple[CacheSize, ...]:
    """The formula, for this model beside what the engine allocated, and for Llama-2-7B."""
    shape = model.layers[0]
    ours = CacheSize(
        name,
        len(model.layers),
        shape.kv_heads,
        shape.head_dim,
        model.dtype.itemsize,
        measured=Engine(model, config(num_pages=8)).stats().kv_bytes_per_token,
    )
    return ours, LLAMA_2_7B


def chunked(model: LoadedModel, prompt_tokens: int, budgets: Sequence[int]) -> list[ChunkedPrefill]:
    """The same prompt under smaller and smaller budgets: more steps, fewer rows at once."""
    asked = request("chunked", prompt_tokens, 8, model)
    whole = run(model, config(), [asked]).answers["chunked"]
    found = []
    for budget in budgets:
        trial = run(model, config(token_budget=budget), [asked])
        prefill = [s for s in trial.steps if s.record.chunks[0].kind.value == "prefill"]
        found.append(
            ChunkedPrefill(
                prompt_tokens,
                budget,
                tuple(s.record.num_tokens for s in prefill),
                max(s.record.num_tokens for s in trial.steps),
                sum(s.cpu_s for s in prefill),
                trial.answers["chunked"] == whole,
            )
        )
    return found


def padding(
    model: LoadedModel, streams: int = 8, prompt_tokens: int = 100, repeats: int = 5
) -> Padding:
    """A prompt joins decoding streams, in one ragged step and in one padded to a rectangle."""
    ragged = [_joining_step(model, streams, prompt_tokens, r, padded=False) for r in range(repeats)]
    padded = [_joining_step(model, streams, prompt_tokens, r, padded=True) for r in range(repeats)]
    return Padding(
        streams,
        prompt_tokens,
        ragged[0][0],
        padded[0][0],
        median(cpu_s for _, cpu_s in ragged),
        median(cpu_s for _, cpu_s in padded),
    )


def _joining_step(
    model: LoadedModel, streams: int, prompt_tokens: int, repeat: int, *, padded: bool
) -> tuple[int, float]:
    """Rows and processor seconds of the step in which the prompt joins."""
    name = f"{'padded' if padded else 'ragged'}/{repeat}"
    running = [request(f"{name}/{i}", 8, 16, model) for i in range(streams - 1)]

    def join(engine: Engine, steps: int, done: tuple[str, ...]) -> None:
        if steps != 4:
            return
        engine.submit(request(f"{name}/joins", prompt_tokens, 1, model))
        for i in range(streams - 1 if padded else 0):
            engine.submit(request(f"{name}/padding/{i}", prompt_tokens - 1, 1, model))

    step = run(model, config(), running, refill=join).steps[4]
    return step.record.num_tokens, step.cpu_s

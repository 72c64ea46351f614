"""``isobatch effects``: what ragged lengths and long prompts cost on a live server."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from harness.cli import bench_options as option
from harness.cli.errors import UserError

if TYPE_CHECKING:
    from harness.results.document import MetricRow


def command(
    url: option.GivenUrl,
    preset: option.Preset = "ragged",
    long_prompt: option.LongPrompt = 512,
    seed: option.Seed = 0,
    model: option.Model = None,
    api_key: option.ApiKey = None,
    prompts: option.PromptKind = "auto",
    as_json: option.Json = False,
) -> None:
    """Measure padding waste and prefill interference of a server that nobody else uses now.

    ragged_efficiency: output tokens/s on a ragged workload over those on a uniform one of as many
    tokens; a server that pads loses here. prefill_interference: p99 gap of running streams while
    long prompts prefill, over the same without them; chunked prefill keeps it near 1.
    """
    import uvloop

    from harness.load.bench_run import prompts_for
    from harness.load.effects import Interference, measure_effects
    from harness.load.probe_prompts import spelling_for
    from harness.targets.http import HttpTarget
    from workloads.presets import load_preset

    try:
        recipe = load_preset(preset)
    except ValueError as error:
        raise UserError(str(error)) from None

    async def run() -> tuple[list[MetricRow], list[str]]:
        target = HttpTarget(url, model=model, api_key=api_key, keep_raw=False)
        await target.discover()
        try:
            served = target.model or ""
            made, spelling = prompts_for(served, prompts), spelling_for(served, prompts)
            shape = Interference(long_prompt_tokens=long_prompt)
            rows = await measure_effects(target, recipe, made, seed, shape, spelling)
            return rows, target.wording.sentences()
        finally:
            await target.close()

    rows, sentences = uvloop.run(run())
    for sentence in sentences:
        print(sentence, file=sys.stderr if as_json else None)
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    for row in rows:
        print(_line(row))


def _line(row: MetricRow) -> str:
    value = "undefined" if row["value"] is None else f"{row['value']:.3f}"
    note = f"  ({row['note']})" if row.get("note") else ""
    return f"{row['id']:22} {value}{note}"

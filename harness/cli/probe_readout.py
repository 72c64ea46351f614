"""`isobatch probe readout`: ask a server that holds a probe, and say what its layers saw."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.errors import ExitStatus, UserError

if TYPE_CHECKING:
    from harness.oracles.probe import ProbeOracle
    from harness.transcript import RequestTranscript
    from workloads.workload import WorkloadRequest


def command(
    url: Annotated[str, typer.Argument(help="Where the server is, such as http://host:8000.")],
    text: Annotated[str, typer.Option(help="The prompt; BOS is added.")] = "What did you see?",
    tokens: Annotated[int, typer.Option(min=1, help="How many tokens at most.")] = 32,
    variant: Annotated[str, typer.Option(help="Which probe the server holds.")] = "eos",
    model: Annotated[str | None, typer.Option(help="The model id to ask for.")] = None,
) -> None:
    """Ask one prompt with top logprobs and compare the sums of each layer with the rule.

    The exit status is 1 if the answer or a layer is wrong.
    """
    from harness.checks.readout import TOP, layer_words, readings_of
    from harness.oracles.choose import named_probe
    from harness.oracles.oracle import Agreement
    from harness.oracles.probe import ProbeOracle
    from workloads.workload import WorkloadRequest

    oracle = ProbeOracle(named_probe(variant))
    params = {"max_tokens": tokens, "temperature": 0, "logprobs": TOP}
    request = WorkloadRequest("readout", prompt_text=text, params=params)
    answer = asyncio.run(_ask(url, model, request))
    readings = readings_of(oracle, request, answer)
    if not readings:
        raise UserError(
            f"{url} shows no gauges: it must serve {oracle.config.name} of this version and give "
            f"{TOP} top logprobs"
        )
    right = _is_right(oracle, request, answer, Agreement.EXACT)
    levels = sorted({reading.level for reading in readings})
    print(f"{len(readings)} readings of layers {', '.join(map(str, levels))}")
    words = layer_words(oracle, request, answer)
    print("\n".join(words) if words else "every layer read saw what the rule says")
    print("the answer is right" if right else "the answer is wrong")
    if words or not right:
        raise typer.Exit(ExitStatus.FAILED)


async def _ask(url: str, model: str | None, request: WorkloadRequest) -> RequestTranscript:
    """The answer. Raises UserError where there is none."""
    from harness.targets.http import HttpTarget
    from harness.targets.target import TargetUnusable
    from harness.targets.wording import find_wording
    from harness.transcript import Ending
    from workloads.workload import Workload

    try:
        target = HttpTarget(url, model=model)
    except ValueError as error:
        raise UserError(f"{error}") from None
    try:
        target.wording = await find_wording(target, request)
        answer = (await target.run(Workload((request,), origin="readout")))[request.key]
    except TargetUnusable as error:
        raise UserError(f"{error}") from None
    finally:
        await target.close()
    if answer.ending is not Ending.COMPLETE:
        raise UserError(f"{url} gave no answer with top logprobs: {answer.error or answer.ending}")
    return answer


def _is_right(
    oracle: ProbeOracle, request: WorkloadRequest, answer: RequestTranscript, exact: object
) -> bool:
    return asyncio.run(oracle.judge(request, answer)).agreement is exact

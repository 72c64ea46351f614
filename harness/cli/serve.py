"""`isobatch serve`: the reference engine behind an OpenAI-compatible HTTP API."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from harness.cli.errors import UserError

if TYPE_CHECKING:
    from reference_engine.faults import Fault

_SERVER: Final = "Server"
_ENGINE: Final = "Engine"
_LIMITS: Final = "Limits"
_DEBUG: Final = "Debugging"


def command(
    model_dir: Annotated[
        Path, typer.Argument(help="A checkpoint folder: config.json, safetensors, tokenizer.json.")
    ],
    host: Annotated[str, typer.Option(rich_help_panel=_SERVER)] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, rich_help_panel=_SERVER, help="0 picks a free port.")
    ] = 8000,
    name: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=_SERVER,
            help="The model id that clients use. Default: the probe's name, or the folder's.",
        ),
    ] = None,
    api_key: Annotated[
        str | None,
        typer.Option(
            envvar="ISOBATCH_API_KEY",
            rich_help_panel=_SERVER,
            help="Ask for this key; needed for any host but 127.0.0.1.",
        ),
    ] = None,
    dtype: Annotated[
        str, typer.Option(rich_help_panel=_ENGINE, help="float32, bfloat16 or float16.")
    ] = "float32",
    threads: Annotated[
        int, typer.Option(min=1, rich_help_panel=_ENGINE, help="Compute threads of torch.")
    ] = 1,
    page_size: Annotated[
        int,
        typer.Option(min=1, rich_help_panel=_ENGINE, help="Tokens to a page of keys and values."),
    ] = 16,
    num_pages: Annotated[
        int, typer.Option(min=2, rich_help_panel=_ENGINE, help="Pages in the cache.")
    ] = 2048,
    token_budget: Annotated[
        int,
        typer.Option(min=1, rich_help_panel=_ENGINE, help="Tokens that one step computes at most."),
    ] = 256,
    max_num_seqs: Annotated[
        int, typer.Option(min=1, rich_help_panel=_ENGINE, help="Sequences that run at once.")
    ] = 64,
    prefix_caching: Annotated[
        bool, typer.Option(rich_help_panel=_ENGINE, help="Reuse pages of equal prefixes.")
    ] = True,
    max_body_mib: Annotated[
        float, typer.Option(min=0.001, rich_help_panel=_LIMITS, help="A larger body gets 413.")
    ] = 4.0,
    max_live_requests: Annotated[
        int,
        typer.Option(min=1, rich_help_panel=_LIMITS, help="One more, queued or running, gets 429."),
    ] = 4096,
    max_prompts: Annotated[
        int, typer.Option(min=1, rich_help_panel=_LIMITS, help="Prompts in one request.")
    ] = 256,
    max_n: Annotated[
        int, typer.Option(min=1, rich_help_panel=_LIMITS, help="Choices to one prompt.")
    ] = 16,
    idle_timeout_s: Annotated[
        float,
        typer.Option(
            min=0.1, rich_help_panel=_LIMITS, help="For a connection without a complete request."
        ),
    ] = 60.0,
    write_stall_s: Annotated[
        float,
        typer.Option(min=0.1, rich_help_panel=_LIMITS, help="For a client that stops reading."),
    ] = 30.0,
    drain_s: Annotated[
        float,
        typer.Option(min=0.1, rich_help_panel=_LIMITS, help="For running requests after SIGTERM."),
    ] = 30.0,
    fault: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=_DEBUG, help="Switch on one planted defect; see `isobatch list faults`."
        ),
    ] = None,
    trace_steps: Annotated[
        int,
        typer.Option(
            min=0, rich_help_panel=_DEBUG, help="Keep so many step records for GET /debug/steps."
        ),
    ] = 0,
    log_requests: Annotated[
        bool,
        typer.Option(rich_help_panel=_DEBUG, help="Log the content of requests and answers."),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", rich_help_panel=_DEBUG, help="Log every request.")
    ] = False,
) -> None:
    """Serve a checkpoint with the exact reference engine, over the OpenAI HTTP API.

    Prints one line when it is ready: `isobatch: serving NAME on http://HOST:PORT`. SIGTERM or
    Ctrl-C lets running requests finish, then exits with status 0; a second one exits at once.
    """
    from reference_engine.server.limits import Limits

    _log_to_stderr(verbose=verbose or log_requests)
    limits = Limits(
        max_body_bytes=int(max_body_mib * 1024 * 1024),
        max_live_requests=max_live_requests,
        max_prompts=max_prompts,
        max_choices=max_n,
        idle_timeout_s=idle_timeout_s,
        write_stall_s=write_stall_s,
        drain_s=drain_s,
    )
    chosen = _fault(fault)
    from reference_engine.engine import EngineConfig
    from reference_engine.server.run import run_server
    from reference_engine.server.serving import Listen

    try:
        run_server(
            model_dir,
            Listen(host, port, api_key),
            EngineConfig(
                page_size=page_size,
                num_pages=num_pages,
                token_budget=token_budget,
                max_num_seqs=max_num_seqs,
                prefix_caching=prefix_caching,
            ),
            name=name,
            dtype=dtype,
            threads=threads,
            fault=chosen,
            limits=limits,
            trace_steps=trace_steps,
            log_requests=log_requests,
            announce=_announce,
        )
    except ValueError as error:  # ServingRefused, ModelRefused, an impossible EngineConfig
        raise UserError(str(error)) from None


def _announce(line: str) -> None:
    """On stdout, alone and at once: programs wait for it."""
    print(line, flush=True)


def _log_to_stderr(*, verbose: bool) -> None:
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO if verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )


def _fault(name: str | None) -> Fault | None:
    if name is None:
        return None
    from reference_engine.faults import FAULTS

    if name not in FAULTS:
        raise UserError(f"there is no fault {name!r}; `isobatch list faults` names them all")
    return FAULTS[name]

"""The options of `isobatch serve`, in the panels of its help page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

_SERVER: Final = "Server"
_ENGINE: Final = "Engine"
_LIMITS: Final = "Limits"
_DEBUG: Final = "Debugging"

ModelDir = Annotated[
    Path, typer.Argument(help="A checkpoint folder: config.json, safetensors, tokenizer.json.")
]
Host = Annotated[str, typer.Option(rich_help_panel=_SERVER, help="The address to listen on.")]
Port = Annotated[
    int, typer.Option(min=0, max=65535, rich_help_panel=_SERVER, help="0 picks a free port.")
]
Name = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=_SERVER,
        help="The model id that clients use. Default: the probe's name, or the folder's.",
    ),
]
ApiKey = Annotated[
    str | None,
    typer.Option(
        envvar="ISOBATCH_API_KEY",
        rich_help_panel=_SERVER,
        help="Ask for this key; needed for any host but 127.0.0.1.",
    ),
]
Dtype = Annotated[
    str, typer.Option(rich_help_panel=_ENGINE, help="float32, bfloat16, float16 or auto.")
]
Device = Annotated[
    str,
    typer.Option(rich_help_panel=_ENGINE, help="cpu, cuda, cuda:N; auto: CUDA if there is any."),
]
Threads = Annotated[
    int, typer.Option(min=1, rich_help_panel=_ENGINE, help="Compute threads of torch.")
]
PageSize = Annotated[
    int, typer.Option(min=1, rich_help_panel=_ENGINE, help="Tokens to a page of keys and values.")
]
NumPages = Annotated[int, typer.Option(min=2, rich_help_panel=_ENGINE, help="Pages in the cache.")]
TokenBudget = Annotated[
    int, typer.Option(min=1, rich_help_panel=_ENGINE, help="Tokens that one step computes at most.")
]
MaxNumSeqs = Annotated[
    int, typer.Option(min=1, rich_help_panel=_ENGINE, help="Sequences that run at once.")
]
PrefixCaching = Annotated[
    bool, typer.Option(rich_help_panel=_ENGINE, help="Reuse pages of equal prefixes.")
]
MaxBodyMib = Annotated[
    float, typer.Option(min=0.001, rich_help_panel=_LIMITS, help="A larger body gets 413.")
]
MaxLiveRequests = Annotated[
    int, typer.Option(min=1, rich_help_panel=_LIMITS, help="One more, queued or running, gets 429.")
]
MaxPrompts = Annotated[
    int, typer.Option(min=1, rich_help_panel=_LIMITS, help="Prompts in one request.")
]
MaxN = Annotated[int, typer.Option(min=1, rich_help_panel=_LIMITS, help="Choices to one prompt.")]
IdleTimeoutS = Annotated[
    float,
    typer.Option(
        min=0.1, rich_help_panel=_LIMITS, help="For a connection without a complete request."
    ),
]
WriteStallS = Annotated[
    float, typer.Option(min=0.1, rich_help_panel=_LIMITS, help="For a client that stops reading.")
]
DrainS = Annotated[
    float,
    typer.Option(min=0.1, rich_help_panel=_LIMITS, help="For running requests after SIGTERM."),
]
FaultName = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=_DEBUG, help="Switch on one planted defect; see `isobatch list faults`."
    ),
]
TraceSteps = Annotated[
    int,
    typer.Option(
        min=0, rich_help_panel=_DEBUG, help="Keep so many step records for GET /debug/steps."
    ),
]
LogRequests = Annotated[
    bool, typer.Option(rich_help_panel=_DEBUG, help="Log the content of requests and answers.")
]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", rich_help_panel=_DEBUG, help="Log every request.")
]

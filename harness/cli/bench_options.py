"""The options of ``isobatch bench`` in the panels of its help page; `sweep`, `effects` share some.

Each has a short name for its value, so that the columns of all panels leave the same room for the
sentences.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import typer

from harness.results.row_file import RowFormat

_LAUNCH: Final = "Launching the server too"
LOAD: Final = "Load"
_REQUESTS: Final = "Requests"
_MEASURING: Final = "Measuring"
_RESULTS: Final = "Results"


def option(panel: str, value: str | None, sentence: str, *names: str, **more: Any) -> Any:
    """An option in a panel; ``value`` is the short name for what it takes, None for its type's."""
    return typer.Option(*names, metavar=value, rich_help_panel=panel, help=sentence, **more)


def _flag(panel: str, sentence: str, *names: str) -> Any:
    return typer.Option(*names, rich_help_panel=panel, help=sentence)


_SERVER: Final = "Base URL of the server, such as http://127.0.0.1:8000."
Url = Annotated[str | None, typer.Argument(help=_SERVER)]
GivenUrl = Annotated[str, typer.Argument(help=_SERVER)]

Launch = Annotated[
    str | None,
    option(
        _LAUNCH,
        "NAME",
        "Start this recipe, measure it, stop it; `isobatch launch --list` names them.",
    ),
]
Variant = Annotated[
    str | None, option(_LAUNCH, "NAME", "The recipe's variant; default: its first.")
]
Device = Annotated[str | None, option(_LAUNCH, "NAME", "cpu or cuda; default: the recipe's first.")]

Preset = Annotated[
    str,
    option(LOAD, "NAME", "A preset (`isobatch list presets`) or the path of a .toml recipe."),
]
TraceFile = Annotated[
    Path | None,
    option(LOAD, "PATH", "Replay a trace file instead (`isobatch trace --help`)."),
]
TimeScale = Annotated[float, option(LOAD, "X", "Trace: stretch its times; 2 halves the rate.")]
LengthScale = Annotated[float, option(LOAD, "X", "Trace: multiply all lengths.")]
Requests = Annotated[int | None, option(LOAD, "N", "How many requests to send.", min=1)]
Concurrency = Annotated[int | None, option(LOAD, "N", "Closed loop: this many in flight.", min=1)]
Rate = Annotated[
    float | None,
    option(LOAD, "X", "Open loop: Poisson arrivals, this many a second on average."),
]
Seed = Annotated[int, option(LOAD, "N", "Seed of lengths, contents and arrivals.")]
LongPrompt = Annotated[
    int, option(LOAD, "N", "Tokens of the long prompts sent beside running streams.", min=1)
]
PromptKind = Annotated[
    str, option(LOAD, "KIND", "auto, text, or token ids to draw from, as FIRST:LAST.")
]

Model = Annotated[
    str | None,
    option(
        _REQUESTS,
        "NAME",
        "Model id; needed if the server has several. With --launch what it shall serve: "
        "probe:VARIANT, a model's folder, or smollm2; default probe:eos.",
    ),
]
ApiKey = Annotated[
    str | None,
    option(_REQUESTS, "KEY", "Sent as a bearer token.", envvar="ISOBATCH_API_KEY"),
]
Params = Annotated[
    list[str] | None,
    option(
        _REQUESTS,
        "FIELD",
        "NAME=JSON for every request, over the load's own; null takes it out; may be repeated.",
    ),
]

Warmup = Annotated[bool, _flag(_MEASURING, "Warm up first, with other prompts.")]
Workers = Annotated[
    str, option(_MEASURING, "N", "Processes to send from; also ray:N or ray:N@ADDRESS.")
]
Calibrate = Annotated[
    bool, _flag(_MEASURING, "Measure the client's own error afterwards (two seconds).")
]
Slos = Annotated[
    list[str] | None,
    option(_MEASURING, "SLO", "Objective for goodput, such as ttft.response=0.5; may be repeated."),
]
Tokenizer = Annotated[
    Path | None,
    option(
        _MEASURING,
        "PATH",
        "A tokenizer.json or its folder: count the text's tokens as a third ledger.",
    ),
]

Page = Annotated[bool, _flag(_RESULTS, "Draw the run as report.html in its folder.")]
Out = Annotated[Path, option(_RESULTS, "PATH", "Folder in which the run's own folder is made.")]
Rows = Annotated[
    RowFormat,
    option(
        _RESULTS,
        None,
        "How request rows are kept: plain JSON Lines, or zstd, a third of the size.",
    ),
]
Json = Annotated[bool, _flag(_RESULTS, "Print the metrics as JSON instead of a table.", "--json")]

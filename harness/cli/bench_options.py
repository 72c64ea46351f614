"""The options of ``isobatch bench``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.results.row_file import RowFormat

Url = Annotated[
    str | None, typer.Argument(help="Base URL of the server, e.g. http://127.0.0.1:8000")
]
GivenUrl = Annotated[str, typer.Argument(help="Base URL of the server, e.g. http://127.0.0.1:8000")]
Launch = Annotated[
    str | None,
    typer.Option(help="Start this recipe, measure it, stop it; `isobatch launch --list`."),
]
Variant = Annotated[
    str | None, typer.Option(help="The recipe's variant; default: its first. With --launch.")
]
Device = Annotated[
    str | None, typer.Option(help="cpu or cuda; default: the recipe's first. With --launch.")
]
Preset = Annotated[
    str, typer.Option(help="A preset (isobatch list presets) or the path of a .toml recipe.")
]
TraceFile = Annotated[
    Path | None, typer.Option(help="Replay a trace file instead (isobatch trace --help).")
]
TimeScale = Annotated[float, typer.Option(help="Trace: stretch time; 2 halves the rate.")]
LengthScale = Annotated[float, typer.Option(help="Trace: scale all lengths.")]
Requests = Annotated[int | None, typer.Option(min=1, help="How many requests to send.")]
Concurrency = Annotated[int | None, typer.Option(min=1, help="Closed loop: this many in flight.")]
Rate = Annotated[
    float | None, typer.Option(min=1e-6, help="Open loop: Poisson arrivals, requests a second.")
]
Seed = Annotated[int, typer.Option(help="Seed of lengths, contents and arrivals.")]
Model = Annotated[
    str | None,
    typer.Option(
        help="Model id, if the server has several. With --launch what it shall serve: "
        "probe:VARIANT, a model's folder, or smollm2; default probe:eos."
    ),
]
ApiKey = Annotated[
    str | None, typer.Option(envvar="ISOBATCH_API_KEY", help="Sent as a bearer token.")
]
PromptKind = Annotated[
    str, typer.Option(help="auto, text, or token ids to draw from, as FIRST:LAST.")
]
Slos = Annotated[
    list[str] | None, typer.Option(help="Objective for goodput, e.g. ttft.response=0.5")
]
Params = Annotated[
    list[str] | None,
    typer.Option(help="Field NAME=JSON of every request, over the load's own; null takes it out."),
]
Warmup = Annotated[bool, typer.Option(help="Warm up first, with other prompts.")]
Workers = Annotated[
    str, typer.Option(help="Processes to send from: N, or ray:N, or ray:N@ADDRESS.")
]
Calibrate = Annotated[
    bool, typer.Option(help="Measure the client's own error afterwards (two seconds).")
]
Tokenizer = Annotated[
    Path | None,
    typer.Option(help="tokenizer.json or its folder: count the text's tokens as a third ledger."),
]
Page = Annotated[bool, typer.Option(help="Draw the run as report.html in its folder.")]
Out = Annotated[Path, typer.Option(help="Where run folders go.")]
Rows = Annotated[
    RowFormat,
    typer.Option(help="Request rows as plain JSON Lines, or zstd: a third of the size."),
]
Json = Annotated[bool, typer.Option("--json", help="Print the metrics as JSON instead of a table.")]

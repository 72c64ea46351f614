"""`isobatch leaderboard`: a static site over a folder of results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.errors import UserError


def command(
    results: Annotated[Path, typer.Argument(help="A folder of run folders.", show_default=False)],
    out: Annotated[Path, typer.Option(help="Folder to write the site into.")] = Path("site"),
) -> None:
    """Build the leaderboard: conformance by chapter, performance beside it, a page a run.

    The site opens from disk, needs no network, and treats every result as foreign: nothing in a
    result file can run code in it.
    """
    from harness.leaderboard.site import write_site
    from harness.leaderboard.standings import read_standings

    try:
        standings = read_standings(results)
    except OSError as error:
        raise UserError(str(error)) from None
    if not standings.runs:
        raise UserError(f"there is no readable run in {results}")
    try:
        complaints = write_site(standings, out)
    except OSError as error:
        raise UserError(f"cannot write {out}: {error.strerror}") from None
    for complaint in complaints:
        print(f"not shown: {complaint}")
    print(
        f"{len(standings.runs)} runs of {len(standings.servers)} checked servers: {out}/index.html"
    )

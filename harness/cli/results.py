"""`isobatch results`: what can be done with run folders once they are written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.errors import ExitStatus, UserError

if TYPE_CHECKING:
    from harness.report.run_view import RunView

app = typer.Typer(help="Show, draw, verify, index and export run folders.", no_args_is_help=True)

RunArgument = Annotated[Path, typer.Argument(help="A run folder.", show_default=False)]


@app.command()
def report(run: RunArgument) -> None:
    """Write the run's page (report.html) anew from its document and rows."""
    from harness.report.page import write_run_page

    read_view(run)
    print(write_run_page(run))


@app.command()
def mask(
    run: RunArgument,
    out: Annotated[Path, typer.Option(help="The SVG file to write.")] = Path("mask.svg"),
) -> None:
    """Draw the attention mask of the run's most telling step as an SVG file.

    The run must have steps: those of `isobatch demo` have.
    """
    from harness.report.pictures import mask_svg

    picture = mask_svg(read_view(run))
    if picture is None:
        raise UserError(f"{run} has no step that fits a picture; `isobatch demo` makes such runs")
    try:
        out.write_text(picture, "utf-8")
    except OSError as error:
        raise UserError(f"cannot write {out}: {error.strerror}") from None
    print(out)


@app.command()
def verify(
    folder: Annotated[Path, typer.Argument(help="A folder of run folders.", show_default=False)],
) -> None:
    """Check every run of a folder: schema, digests, files, and the numbers quoted in Markdown."""
    from harness.results.verify import verify as look

    try:
        found = look(folder)
    except OSError as error:
        raise UserError(str(error)) from None
    for problem in found.problems:
        print(problem)
    print(
        f"{found.runs} runs, {found.files} files, {found.quotations} quoted numbers:"
        f" {len(found.problems)} problems"
    )
    if found.problems:
        raise typer.Exit(ExitStatus.FAILED)
    if not found.runs:
        raise UserError(f"there is no run in {folder}")


@app.command()
def index(
    folder: Annotated[Path, typer.Argument(help="A folder of run folders.", show_default=False)],
) -> None:
    """Write index.json: every run of a folder in one line, with the digest of its document."""
    from harness.results.index import write_index

    try:
        print(write_index(folder))
    except ValueError as error:
        raise UserError(str(error)) from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UserError(f"cannot index {folder}: {reason}") from None


@app.command()
def export(
    run: RunArgument,
    to: Annotated[str, typer.Option("--to", help="The format; see below.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option(help="The file to write; standard output if none.")
    ] = None,
) -> None:
    """Write a run in the format of another tool.

    Formats: junit, csv, llm-d, github-action-benchmark-smaller, github-action-benchmark-bigger.
    """
    from harness.results.document import read_result
    from harness.results.exporters import EXPORTERS

    if to not in EXPORTERS:
        raise UserError(f"no format {to!r}: choose from {', '.join(EXPORTERS)}")
    try:
        text = EXPORTERS[to](read_result(run))
        if out is None:
            print(text, end="")
        else:
            out.write_text(text, "utf-8")
    except FileNotFoundError as error:
        raise UserError(f"there is no {error.filename}") from None
    except (ValueError, OSError) as error:
        raise UserError(str(error)) from None


def read_view(run: Path) -> RunView:
    """The run with its rows. Raises UserError for a folder that is no run."""
    from harness.report.run_view import RunView

    try:
        return RunView.read(run)
    except FileNotFoundError as error:
        raise UserError(f"{run} is no run folder: there is no {error.filename}") from None
    except (ValueError, OSError) as error:
        raise UserError(str(error)) from None

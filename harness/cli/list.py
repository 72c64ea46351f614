"""`isobatch list`: what there is to run, to serve, to load with and to break."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from harness.console import plain_console

if TYPE_CHECKING:
    from reference_engine.probe import ProbeConfig

app = typer.Typer(help="List the checks, faults, presets and probe variants.", no_args_is_help=True)


@app.command()
def checks(
    only: Annotated[str, typer.Option(help="Chapters or ids, separated by commas.")] = "",
    markdown: Annotated[bool, typer.Option(help="Print the page for the documentation.")] = False,
) -> None:
    """List the checks: id, the sentence that must hold, the public bugs it answers to."""
    from harness.checks.registry import select
    from harness.cli.errors import UserError

    try:
        chosen = select(only.split(","))
    except ValueError as error:
        raise UserError(str(error)) from None
    if markdown:
        from harness.checks.catalogue_page import checks_page

        print(checks_page(chosen), end="")
        return
    rows = [(c.id, c.sentence, ", ".join(c.answers)) for c in chosen]
    _print("checks", ("id", "must hold", "answers to"), rows)


@app.command()
def faults() -> None:
    """List the faults that our server can be started with, and the public bug each imitates."""
    from reference_engine.faults import FAULTS

    rows = [(f.name, f.title, ", ".join(f.imitates), f.group) for f in FAULTS.values()]
    _print("faults", ("name", "what it does", "imitates", "root cause"), rows)


@app.command()
def variants() -> None:
    """List the variants of the probe checkpoint."""
    from reference_engine.probe import VARIANTS

    rows = [(name, config.name, what_it_is(config)) for name, config in VARIANTS.items()]
    _print("variants", ("variant", "model name", "what it is"), rows)


def what_it_is(config: ProbeConfig) -> str:
    """Architecture and behaviour of a variant, read off its config."""
    windows = {window for window in config.windows if window is not None}
    parts = [
        config.family,
        f"{len(config.taps)} layers, {config.heads} query heads over {config.kv_heads} KV heads",
        f"head_dim {config.head_dim}",
    ]
    if windows:
        layers = sum(window is not None for window in config.windows)
        parts.append(f"{layers} layers see {', '.join(map(str, sorted(windows)))} tokens")
    if config.dice:
        parts.append("64 answers with known odds")
    parts.append("ends by itself" if config.ends_itself else "never ends")
    if max(map(len, config.alphabet)) > 1:
        parts.append("tokens split characters")
    return "; ".join(parts)


@app.command()
def presets() -> None:
    """List the named workloads."""
    from workloads.presets import PRESETS

    rows = [(name, preset.title) for name, preset in PRESETS.items()]
    _print("presets", ("name", "what it is"), rows)


def _print(title: str, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """A table on a terminal, tab-separated lines elsewhere."""
    console = plain_console(highlight=True)
    if not console.is_terminal:
        for row in rows:
            print("\t".join(row))
        return
    table = Table(title=f"{len(rows)} {title}", title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(table)

"""The console of every command: text from servers and users is shown as it is, never as markup."""

from __future__ import annotations

from rich.console import Console


def plain_console(*, stderr: bool = False, highlight: bool = False) -> Console:
    """A rich console on which ``[bold]`` and ``:bug:`` are only characters.

    A model id or an error message may hold anything; read as markup it could break the output or
    end the command. Colours are given as styles.
    """
    return Console(stderr=stderr, highlight=highlight, markup=False, emoji=False)

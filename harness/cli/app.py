"""The command tree: names and one line each here, the commands themselves in files of their own.

A command's module is imported only when the command is run or its help is asked for, so that
``isobatch --help`` does not wait for torch.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Annotated, Final, NoReturn

import typer

from harness.cli.errors import ExitStatus, UserError
from harness.targets.target import TargetUnusable

COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "demo": ("harness.cli.demo", "Run the whole suite on our own server, from probe to report."),
    "probe": ("harness.cli.probe", "Build probe checkpoints and ask the integer rule for answers."),
    "serve": ("harness.cli.serve", "Serve a checkpoint with the exact reference engine."),
    "check": ("harness.cli.check", "Check a server against the conformance suite."),
    "replay": ("harness.cli.replay", "Run a failure again, or print it as curl or a bug report."),
    "mutants": ("harness.cli.mutants", "Show which checks catch each known defect."),
    "bench": ("harness.cli.bench", "Measure a server's TTFT, gaps and throughput under load."),
    "launch": ("harness.cli.launch", "Install and start a server that others wrote."),
    "model": (
        "harness.cli.model",
        "Fetch a real trained model (SmolLM2) for oracle and benchmarks.",
    ),
    "sweep": ("harness.cli.sweep", "Find where more streams stop helping."),
    "effects": ("harness.cli.effects", "Measure what ragged lengths and long prompts cost."),
    "metrics": ("harness.cli.metrics", "Compute a run's metrics again from its raw rows."),
    "trace": ("harness.cli.trace", "Describe a request trace, or fit a recipe to it."),
    "selftest": ("harness.cli.selftest", "Measure this client's own error and cost."),
    "gate": ("harness.cli.gate", "Decide whether one server is a regression of another."),
    "leaderboard": ("harness.cli.leaderboard", "Build the static site that compares servers."),
    "article": ("harness.cli.article", "Measure every claim of the article behind this project."),
    "trend": ("harness.cli.trend", "Find when a metric changed over many stored runs."),
    "results": ("harness.cli.results", "Show, draw, verify, index and export run folders."),
    "list": ("harness.cli.list", "List the checks, faults, presets and probe variants."),
}


def build(arguments: Sequence[str]) -> typer.Typer:
    """The command tree for this command line: the command it names is real, the others are titles.

    A module offers either ``command``, one function, or ``app``, a group of commands.
    """
    app = typer.Typer(
        name="isobatch",
        help="The same answer, whatever the batch: check and measure LLM inference servers.",
        context_settings={"help_option_names": ["-h", "--help"]},
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    asked = next((a for a in arguments if not a.startswith("-")), None)
    for name, (module_name, title) in COMMANDS.items():
        if name != asked:
            app.command(name, help=title)(_title_only)
            continue
        module = importlib.import_module(module_name)
        if hasattr(module, "command"):
            app.command(name)(module.command)
        else:
            app.add_typer(module.app, name=name, help=title, no_args_is_help=True)
    app.callback()(_no_command)
    return app


def _title_only() -> None:
    raise AssertionError("a command that was not imported was called")


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"isobatch {version('isobatch')}")
        raise typer.Exit


def _no_command(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """The same answer, whatever the batch: check and measure LLM inference servers."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; every expected failure is one line on stderr and a documented status."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        build(argv)(argv, prog_name="isobatch")
        sys.stdout.flush()
    except UserError as error:
        _end(str(error), error.status)
    except TargetUnusable as error:
        _end(str(error), ExitStatus.UNUSABLE)
    except OSError as error:
        _close_stdout()
        place = f"{error.filename}: " if error.filename else ""
        _end(f"{place}{error.strerror or error}", ExitStatus.UNUSABLE)
    except KeyboardInterrupt:
        _end("interrupted", ExitStatus.INTERRUPTED)
    except SystemExit as ended:  # typer turns the end of a command into one
        if ended.code == ExitStatus.INTERRUPTED:
            _end("interrupted", ExitStatus.INTERRUPTED)
        raise


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """SIGTERM, which `timeout`, CI and containers send, ends a run as Ctrl-C does, results kept.

    A shell's background job ignores SIGINT, and must end all the same.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        raise KeyboardInterrupt
    signal.raise_signal(signal.SIGINT)


def _end(message: str, status: ExitStatus) -> NoReturn:
    print(f"isobatch: {message}", file=sys.stderr)
    sys.exit(status)


def _close_stdout() -> None:
    """Let what is still buffered go nowhere, or the interpreter complains about it at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())

"""The command as a whole: how it ends, whatever ends it."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import types
from collections.abc import Callable, Iterator

import pytest

from harness.cli.app import COMMANDS, main
from harness.cli.errors import ExitStatus, UserError


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[[Callable[[], None]], tuple[int, str]]]:
    """Runs a function as if it were a command; returns the exit status and stderr."""
    before = signal.getsignal(signal.SIGTERM)

    def as_command(command: Callable[[], None]) -> tuple[int, str]:
        module = types.ModuleType("invented_command")
        module.command = command  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "invented_command", module)
        monkeypatch.setitem(COMMANDS, "invented", ("invented_command", "Invented."))  # type: ignore[arg-type]
        with pytest.raises(SystemExit) as ended:
            main(["invented"])
        return int(ended.value.code or 0), capsys.readouterr().err

    # A shell has its background jobs ignore Ctrl-C; the test is not about that.
    interrupt = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield as_command
    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_an_interruption(
    run: Callable[[Callable[[], None]], tuple[int, str]], number: signal.Signals
) -> None:
    kept: list[str] = []

    def command() -> None:
        try:
            os.kill(os.getpid(), number)
            signal.pause()
        except KeyboardInterrupt:
            kept.append("what was found")
            raise

    status, stderr = run(command)
    assert (status, stderr) == (ExitStatus.INTERRUPTED, "isobatch: interrupted\n")
    assert kept, "the command could keep its results"


def test_sigterm_ends_a_background_job_too(
    run: Callable[[Callable[[], None]], tuple[int, str]],
) -> None:
    def command() -> None:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell does for its jobs
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            raise AssertionError("SIGTERM did nothing")
        finally:
            signal.signal(signal.SIGINT, before)

    assert run(command) == (ExitStatus.INTERRUPTED, "isobatch: interrupted\n")


def test_what_a_user_can_put_right_is_one_line(
    run: Callable[[Callable[[], None]], tuple[int, str]],
) -> None:
    def command() -> None:
        raise UserError("give a URL")

    assert run(command) == (ExitStatus.UNUSABLE, "isobatch: give a URL\n")


def test_an_error_of_the_system_is_one_line(
    run: Callable[[Callable[[], None]], tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.cli.app._close_stdout", lambda: None)

    def command() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "runs/result.json")

    status, stderr = run(command)
    assert status == ExitStatus.UNUSABLE
    assert stderr == "isobatch: runs/result.json: No space left on device\n"


def _isobatch(*arguments: str, stdout: int) -> subprocess.CompletedProcess[str]:
    call = "import sys; from harness.cli import main; main(sys.argv[1:])"
    return subprocess.run(
        [sys.executable, "-c", call, *arguments],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_full_disk_behind_stdout_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        ended = _isobatch("list", "variants", stdout=full.fileno())
    assert ended.returncode == ExitStatus.UNUSABLE
    assert ended.stderr == "isobatch: No space left on device\n"


def test_the_version_is_told() -> None:
    ended = _isobatch("--version", stdout=subprocess.PIPE)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("isobatch ")

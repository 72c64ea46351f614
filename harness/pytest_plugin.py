"""The pytest plugin: ``pytest --pyargs harness.checks --isobatch-url URL -k ISO``.

Each check is a test item whose node id is the check's id, marked with its chapter. A failed or
broken check fails; one that is unsupported or inconclusive is skipped, with the reason. Known
failures are listed in a file (``--isobatch-xfail``), one a line: the check's id and the upstream
issue. Without ``--isobatch-url`` the plugin does nothing. With xdist give ``--dist loadgroup``: all
checks go to one worker, because two checks at once would be each other's load.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from harness.checks.registry import Check
    from harness.checks.session import Session
    from harness.verdict import CheckResult

_CHECKS_FOLDER = Path(__file__).parent / "checks"
_MARKED = "isobatch"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The plugin's options."""
    group = parser.getgroup("isobatch", "conformance checks of an LLM server")
    group.addoption("--isobatch-url", metavar="URL", help="base URL of the server to check")
    group.addoption("--isobatch-model", metavar="ID", help="model id, if it serves several")
    group.addoption(
        "--isobatch-probe", metavar="NAME", help="the probe it serves: variant or folder"
    )
    group.addoption("--isobatch-oracle", default="auto", help="auto, probe, reference or self")
    group.addoption(
        "--isobatch-reference", metavar="DIR", help="folder of the checkpoint that it serves"
    )
    group.addoption("--isobatch-budget", default="quick", help="quick, standard or exhaustive")
    group.addoption("--isobatch-seed", type=int, default=0, help="the same seed, the same requests")
    group.addoption("--isobatch-xfail", metavar="FILE", help="known failures: ID ISSUE, one a line")


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers of the chapters."""
    from harness.checks.registry import Chapter

    config.addinivalue_line("markers", f"{_MARKED}: a conformance check of isobatch")
    for chapter in Chapter:
        config.addinivalue_line("markers", f"{chapter.value}: isobatch, {chapter.topic}")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """The register stands for all checks; the chapters' own files hold nothing to collect."""
    if parent.config.getoption("--isobatch-url") is None:
        return None
    if file_path != _CHECKS_FOLDER / "registry.py":
        return None
    return CheckFile.from_parent(parent, path=file_path)


class CheckFile(pytest.File):
    """Collects every check of the suite."""

    def collect(self) -> Iterator[pytest.Item]:
        """One item a check, in the suite's order."""
        from harness.checks.registry import all_checks

        known = known_failures(self.config.getoption("--isobatch-xfail"))
        unknown = sorted(known.keys() - all_checks().keys())
        if unknown:
            raise pytest.UsageError(f"--isobatch-xfail names checks that there are not: {unknown}")
        for check in all_checks().values():
            item = CheckItem.from_parent(self, name=check.id, nodeid=check.id, check=check)
            item.add_marker(_MARKED)
            item.add_marker(check.chapter.value)
            if self.config.pluginmanager.hasplugin("xdist"):
                # Checks look at one server and must not run beside each other.
                item.add_marker(pytest.mark.xdist_group(_MARKED))
            if check.id in known:
                item.add_marker(pytest.mark.xfail(reason=known[check.id]))
            yield item


class CheckItem(pytest.Item):
    """One check."""

    def __init__(self, *, check: Check, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.check = check

    def runtest(self) -> None:
        """Run the check against the session's server."""
        from harness.checks.runner import run_check
        from harness.verdict import Verdict

        served = _served(self.config)
        result = run_check(self.check, served.session, served.loop.run)
        self.user_properties.append(("verdict", result.verdict.value))
        self.user_properties += [(f"evidence.{k}", v) for k, v in sorted(result.evidence.items())]
        if result.verdict in (Verdict.UNSUPPORTED, Verdict.INCONCLUSIVE):
            pytest.skip(f"{result.verdict.value}: {result.reason}")
        if result.verdict in (Verdict.FAIL, Verdict.ERROR):
            raise CheckFailed(result)

    def repr_failure(
        self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None
    ) -> str | Any:
        """Expected, actual and the bug report in place of a traceback."""
        if isinstance(excinfo.value, CheckFailed):
            return excinfo.value.text()
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        """What pytest calls it."""
        return self.path, 0, f"{self.check.id}: {self.check.sentence}"


class CheckFailed(Exception):
    """A check that failed or broke."""

    def __init__(self, result: CheckResult) -> None:
        super().__init__(f"{result.check_id}: {result.reason}")
        self.result = result

    def text(self) -> str:
        """The failure for a reader."""
        from harness.bug_report import markdown

        lines = [f"{self.result.check_id} {self.result.verdict.value}: {self.result.sentence}"]
        lines.append(self.result.reason)
        lines += [markdown(f.to_json(self.result.check_id)) for f in self.result.failures]
        return "\n".join(lines)


class _Served:
    """The session with the server, opened by the first check and closed at the end."""

    def __init__(self, config: pytest.Config) -> None:
        self.loop = asyncio.Runner()
        try:
            self.session = self.loop.run(_open(config))
        except BaseException:
            self.loop.close()
            raise

    def close(self) -> None:
        """Close connections and the loop."""
        self.loop.run(self.session.target.close())
        self.loop.close()


_SERVED = pytest.StashKey[_Served]()


def _served(config: pytest.Config) -> _Served:
    if _SERVED not in config.stash:
        config.stash[_SERVED] = _Served(config)
    return config.stash[_SERVED]


async def _open(config: pytest.Config) -> Session:
    """Open the session. A server that cannot be judged ends the whole run, in one line."""
    from harness.checks.budget import BUDGETS
    from harness.checks.suite import SuiteOptions, open_session
    from harness.cli.errors import UserError
    from harness.oracles.choose import OracleChoice
    from harness.targets.http import HttpTarget
    from harness.targets.target import TargetUnusable

    option = config.getoption
    budget = BUDGETS.get(str(option("--isobatch-budget")))
    if budget is None:
        pytest.exit(f"isobatch: --isobatch-budget is one of {', '.join(BUDGETS)}", returncode=2)
    choice = OracleChoice(
        str(option("--isobatch-oracle")),
        option("--isobatch-probe"),
        option("--isobatch-reference"),
    )
    options = SuiteOptions((), budget, int(option("--isobatch-seed")), choice)
    try:
        target = HttpTarget(
            str(option("--isobatch-url")),
            model=option("--isobatch-model"),
            api_key=os.environ.get("ISOBATCH_API_KEY"),
        )
        return await open_session(target, options)
    except (TargetUnusable, UserError) as error:
        pytest.exit(f"isobatch: {error}", returncode=2)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Close the session."""
    if _SERVED in config.stash:
        config.stash[_SERVED].close()


def known_failures(file: str | None) -> dict[str, str]:
    """Check ids and the upstream issue of each, from a file. Raises pytest.UsageError.

    A line is an id, a space and the issue; ``#`` begins a comment line.
    """
    known: dict[str, str] = {}
    if file is None:
        return known
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise pytest.UsageError(f"cannot read {file}: {error.strerror}") from None
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        check_id, _, issue = text.partition(" ")
        if not issue.strip():
            raise pytest.UsageError(f"{file}:{number}: name the upstream issue after {check_id}")
        known[check_id] = issue.strip()
    return known

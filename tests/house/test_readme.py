"""The README is for a newcomer, and everything in it that can drift is checked here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.cli.app import COMMANDS
from harness.cli.errors import ExitStatus

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"!?\[([^\]]*)\]\(([^)\s]+)\)")
NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?![\w])")
# Names that hold a digit without being a measurement.
NAMES = re.compile(r"HTTP/\d|Python 3\.\d+|SmolLM2-135M|h2spec|Apache-2\.0|OpenAI-compatible")


@pytest.fixture(scope="module")
def readme() -> str:
    return (ROOT / "README.md").read_text()


def _prose(text: str) -> str:
    """The text without code and without HTML comments."""
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    return re.sub(r"`[^`]*`", "", text)


def test_every_link_leads_somewhere(readme: str) -> None:
    for _, target in LINK.findall(readme):
        if "://" not in target and not target.startswith("#"):
            assert (ROOT / target.split("#")[0]).exists(), f"{target} is not there"


def test_every_number_is_in_the_result_it_links_to(readme: str) -> None:
    for label, target in LINK.findall(_prose(readme)):
        if target.startswith("results/") and (ROOT / target).is_file():
            held = (ROOT / target).read_text(errors="replace")
            for number in NUMBER.findall(NAMES.sub("", label)):
                plain = number.replace(",", "")
                assert number in held or plain in held, f"{number} is not in {target}"


def test_no_number_stands_without_its_result(readme: str) -> None:
    bare = NAMES.sub("", LINK.sub("", _prose(readme)))
    bare = re.sub(r"^\d+\. ", "", bare, flags=re.MULTILINE)
    assert NUMBER.findall(bare) == [], "link each number to the file under results/ that holds it"


def test_the_table_of_commands_is_that_of_the_code(readme: str) -> None:
    for name, (_, title) in COMMANDS.items():
        assert f"| `isobatch {name}` | {title} |" in readme


def test_exit_statuses_are_those_of_the_code(readme: str) -> None:
    for status in ExitStatus:
        assert f"| `{int(status)}` | {status.meaning} |" in readme


def test_make_targets_in_the_readme_exist(readme: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`?make ([a-z-]+)", readme)) <= targets

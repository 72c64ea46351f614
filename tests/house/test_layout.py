"""The rules of the house that a linter does not know."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("reference_engine", "workloads", "harness")
MAX_FILE_LINES = 330
MAX_FUNCTION_LINES = 50
TOP_LEVEL = {
    *PACKAGES,
    *("tests", "results", "Makefile", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE"),
    *("pyproject.toml", "constraints.txt", ".ci", ".github", ".gitignore"),
    ".pre-commit-config.yaml",
}


def _tracked() -> list[Path]:
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False, text=True
    )
    if listing.returncode != 0:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listing.stdout.split("\0") if name and (ROOT / name).exists()]


def _sources() -> list[Path]:
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


def test_the_top_level_is_the_one_in_the_design() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in _tracked()} <= TOP_LEVEL


def test_files_can_be_read_in_one_sitting() -> None:
    long = {
        str(path.relative_to(ROOT)): lines
        for path in _sources()
        if (lines := len(path.read_text().splitlines())) > MAX_FILE_LINES
    }
    assert not long, f"split these files (at most {MAX_FILE_LINES} lines): {long}"


def test_functions_fit_on_a_screen() -> None:
    long = {}
    for path in _sources():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > MAX_FUNCTION_LINES:
                    long[f"{path.relative_to(ROOT)}:{node.name}"] = lines
    assert not long, f"split these functions (at most {MAX_FUNCTION_LINES} lines): {long}"


def test_names_say_what_a_thing_is() -> None:
    vague = re.compile(r"(manager|helper|utils?|misc)", re.IGNORECASE)
    bad = [str(path.relative_to(ROOT)) for path in _sources() if vague.search(path.stem)]
    bad += [
        f"{path.relative_to(ROOT)}:{node.name}"
        for path in _sources()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and vague.search(node.name)
    ]
    assert not bad, f"name these after what they are: {bad}"


def test_no_path_of_one_machine_is_in_a_file() -> None:
    machine_path = re.compile(rb"(?<![\w.])/(root|home/\w+|work|Users/\w+)/[\w.-]+")
    bad = [
        f"{path.relative_to(ROOT)}: {match.group().decode()}"
        for path in _tracked()
        if path.suffix not in {".png", ".zst"} and path != Path(__file__)
        if (match := machine_path.search(path.read_bytes()))
    ]
    assert not bad, bad


def test_no_big_file_is_tracked() -> None:
    big = [str(p.relative_to(ROOT)) for p in _tracked() if p.stat().st_size > 4 * 2**20]
    assert not big, f"over 4 MiB, keep these out of the repository: {big}"

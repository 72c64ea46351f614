"""Numbers quoted in Markdown, each held to the result that its link names.

A quotation is a link whose label has a number and whose target is a JSON file:
``[243 tokens/s](results/x/result.json)``. The number must be one of the file's, rounded as the
label shows it; a label in ms quotes seconds, one in % quotes a share.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

_LINK: Final = re.compile(r"\[([^\]]*)\]\(([^)\s#]+\.json)(?:#[^)]*)?\)")
_NUMBER: Final = re.compile(r"(?<![\w.])(\d[\d,]*(?:\.\d+)?)(\s*(?:ms|µs|%|GB|MB))?(?![\w.]*\d)")
_SCALES: Final = {"ms": 1e3, "µs": 1e6, "%": 1e2, "GB": 1e-9, "MB": 1e-6}


def wrong_quotations(page: Path) -> tuple[list[str], int]:
    """What is misquoted in a Markdown file, and how many quotations it has."""
    wrong: list[str] = []
    count = 0
    held: dict[Path, list[float] | None] = {}
    for label, target in _LINK.findall(page.read_text("utf-8")):
        if "://" in target:
            continue
        source = page.parent / target
        for number, unit in _NUMBER.findall(label):
            count += 1
            if source not in held:
                held[source] = _numbers_of(source)
            numbers = held[source]
            if numbers is None:
                wrong.append(f"{target}, which [{label}] quotes, is no JSON file")
            elif not _is_held(number, unit.strip(), numbers):
                wrong.append(f"{number}{unit} in [{label}] is not in {target}")
    return wrong, count


def _is_held(shown: str, unit: str, numbers: list[float]) -> bool:
    plain = shown.replace(",", "")
    decimals = len(plain.partition(".")[2])
    scale = _SCALES.get(unit, 1.0)
    value = float(plain)
    half = 0.5 * 10**-decimals * (1 + 1e-9)
    return any(abs(held * s - value) <= half for held in numbers for s in {scale, 1.0})


def _numbers_of(source: Path) -> list[float] | None:
    try:
        return list(_numbers(json.loads(source.read_bytes())))
    except (OSError, ValueError):
        return None


def _numbers(node: Any) -> Iterator[float]:
    if isinstance(node, bool):
        return
    if isinstance(node, int | float):
        yield float(node)
    elif isinstance(node, dict):
        for value in node.values():
            yield from _numbers(value)
    elif isinstance(node, list):
        for value in node:
            yield from _numbers(value)

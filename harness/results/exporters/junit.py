"""Verdicts as JUnit XML: a suite a chapter, a case a check.

pass and tie-flips pass; fail is a failure; error is an error; unsupported and inconclusive are
skipped, with the reason, because neither is a pass and neither is the server's fault.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby
from typing import Final
from xml.etree import ElementTree

from harness.results.document import ResultDocument, VerdictRow

_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_junit(document: ResultDocument) -> str:
    """The XML text."""
    verdicts = sorted(document["verdicts"], key=lambda v: v["chapter"])
    server = document["server"]
    root = ElementTree.Element("testsuites", {"name": "isobatch", **_totals(verdicts)})
    for chapter, grouped in groupby(verdicts, key=lambda v: v["chapter"]):
        rows = list(grouped)
        name = _text(f"{server['name'] or server['url'] or 'server'}.{chapter}")
        timestamp = document["started_at"].removesuffix("Z")
        attributes = {"name": name, "timestamp": timestamp, **_totals(rows)}
        suite = ElementTree.SubElement(root, "testsuite", attributes)
        for row in rows:
            _add_case(suite, row)
    ElementTree.indent(root)
    body = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'


def _add_case(suite: ElementTree.Element, row: VerdictRow) -> None:
    case = ElementTree.SubElement(
        suite,
        "testcase",
        classname=f"isobatch.{row['chapter']}",
        name=_text(f"{row['check_id']} {row['sentence']}"),
        time=f"{row['duration_s']:.3f}",
    )
    match row["verdict"]:
        case "fail":
            message = row["reason"] or row["sentence"]
            failure = ElementTree.SubElement(case, "failure", message=_text(message))
            failure.text = _text("\n".join(_failure_lines(row)))
        case "error":
            ElementTree.SubElement(case, "error", message=_text(row["reason"]))
        case "unsupported" | "inconclusive":
            message = f"{row['verdict']}: {row['reason']}"
            ElementTree.SubElement(case, "skipped", message=_text(message))
    evidence = [f"{name} {count:g}" for name, count in row["evidence"].items()]
    if evidence:
        ElementTree.SubElement(case, "system-out").text = _text("evidence: " + ", ".join(evidence))


def _failure_lines(row: VerdictRow) -> Iterable[str]:
    for failure in row["failures"]:
        yield failure["detail"] or failure["sentence"]
        yield f"should be {failure['expected']!r}"
        yield f"is        {failure['actual']!r}"
        if failure["guess"]:
            yield f"looks as if: {failure['guess']}"
        if failure["workload_path"]:
            yield f"smallest workload: {failure['workload_path']}"


def _totals(rows: Iterable[VerdictRow]) -> dict[str, str]:
    verdicts = [row["verdict"] for row in rows]
    return {
        "tests": str(len(verdicts)),
        "failures": str(verdicts.count("fail")),
        "errors": str(verdicts.count("error")),
        "skipped": str(verdicts.count("unsupported") + verdicts.count("inconclusive")),
        "time": f"{sum(row['duration_s'] for row in rows):.3f}",
    }


def _text(text: str) -> str:
    """Text without the characters that XML cannot hold."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)

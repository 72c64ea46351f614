"""Each technique switched off in our own server is told from outside, over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.checks.registry import all_checks
from harness.verdict import CheckResult, Verdict
from reference_engine.faults import FAULTS
from tests.benchmarks.techniques import CHECKS, SERVERS, Server, judged, page, row

if TYPE_CHECKING:
    from reference_engine.model import LoadedModel


@pytest.mark.slow
@pytest.mark.parametrize("server", SERVERS, ids=lambda s: s.lacks)
def test_what_the_server_lacks_is_told(
    server: Server, model: LoadedModel, probe_folder: Path
) -> None:
    only = CHECKS if server.check_id is None else (server.check_id,)
    results = judged(server, model, probe_folder, only)
    assert server.recognised(results), [(r.check_id, r.verdict, r.reason) for r in results]


def test_every_fault_of_technique_has_its_server() -> None:
    technique = {name for name, fault in FAULTS.items() if "technique" in fault.group}
    assert technique == {server.fault for server in SERVERS} - {None}


def test_the_table_shows_the_effect_and_who_must_tell() -> None:
    results = [
        CheckResult(i, Verdict.FAIL if i == "TEC-1" else Verdict.PASS, "", evidence={"effect": 1.5})
        for i in CHECKS
    ]
    without_keys = next(s for s in SERVERS if s.check_id == "TEC-1")
    rows = [row(SERVERS[0], results), row(without_keys, results[:1])]
    assert [entry["recognised"] for entry in rows] == [False, True]
    text = page({"command": "c", "recognised": 1, "rows": rows})
    assert "| KV cache | TEC-1 | fail | 1.50 | 1.50 |  | 0.00 | 0 | yes |" in text
    assert all(all_checks()[i].sentence in text for i in CHECKS)

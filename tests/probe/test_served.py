"""`isobatch probe prove --url`: a right server has no wrong answer, a defect has some."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.cli import main
from harness.client.discover import Discovery
from reference_engine.probe import VARIANTS
from reference_engine.probe.proof import proof_prompts
from tests.checks.fake_server import FakeServer, OneTokenMore, PositionShifted

Run = Callable[..., tuple[int, dict[str, object]]]


def stand_in(server: type[FakeServer], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``server`` stand where HTTP would be; it names the eos probe as its model."""
    target = server(VARIANTS["eos"])

    async def discover() -> Discovery:
        return Discovery("http://x", (target.model,), ({"id": target.model},))

    monkeypatch.setattr(target, "discover", discover, raising=False)
    monkeypatch.setattr("harness.targets.http.HttpTarget", lambda url, **_: target)


@pytest.fixture
def prove(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """``prove(ServerClass, "--variant", ...)``: the exit status and the proof."""

    def run(server: type[FakeServer], *arguments: str) -> tuple[int, dict[str, object]]:
        stand_in(server, monkeypatch)
        line = ["probe", "prove", "--url", "http://x", "--prompts", "20", "--weights", "f16"]
        with pytest.raises(SystemExit) as ended:
            main([*line, "--out", str(tmp_path), *arguments])
        (file,) = tmp_path.glob("probe-served-*/proof.json")
        (proof,) = json.loads(file.read_text())["proofs"]
        return int(ended.value.code or 0), proof

    return run


def test_a_right_server_has_no_wrong_answer(prove: Run) -> None:
    status, proof = prove(FakeServer)
    assert status == 0
    assert proof["wrong"] == 0
    assert proof["endings"] == {"complete": 20}
    lengths = [len(ids) for ids in proof_prompts(VARIANTS["eos"], 20)]
    assert (proof["prompts"], proof["prompt_tokens"]) == (20, sum(lengths))


@pytest.mark.parametrize("defect", [OneTokenMore, PositionShifted])
def test_a_defect_is_counted(prove: Run, defect: type[FakeServer]) -> None:
    status, proof = prove(defect)
    assert status == 1
    assert int(str(proof["wrong"])) > 0


def test_a_server_of_another_probe_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in(FakeServer, monkeypatch)
    with pytest.raises(SystemExit) as ended:
        main(["probe", "prove", "--url", "http://x", "--variant", "wide", "--prompts", "1"])
    assert ended.value.code == 2
    assert "choose its --variant" in capsys.readouterr().err

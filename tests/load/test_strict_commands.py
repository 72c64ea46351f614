"""Every command that sends requests words them for a server that takes few: see `strict_server`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.cli.app import main
from tests.load.strict_server import KNOWN, RightStrict, Strict, serving
from workloads.workload import Workload, WorkloadRequest

EOS = "/models/isobatch-probe-eos-r2"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """The exit status, standard output and standard error of a command."""
    status = 0
    try:
        main(list(arguments))
    except SystemExit as ended:
        status = int(ended.code or 0)
    shown = capsys.readouterr()
    return status, shown.out, shown.err


def small_recipe(folder: Path) -> str:
    """A recipe of a few small requests."""
    path = folder / "small.toml"
    path.write_text(
        'title = "small"\nrequests = 6\nconcurrency = 2\n'
        "params = { temperature = 0.0, ignore_eos = true }\n"
        '[prompt_tokens]\nkind = "fixed"\ntokens = 6\n[output_tokens]\nkind = "fixed"\ntokens = 5\n'
    )
    return str(path)


def gate(
    base: Strict, head: Strict, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> tuple[str, dict[str, Any], list[dict[str, Any]]]:
    """What a live gate says, its document and its pairs."""
    with serving(base) as base_url, serving(head) as head_url:
        _, said, err = run(
            capsys, "gate", "--base", base_url, "--head", head_url, "--pairs", "5", "--checks", "",
            "--preset", small_recipe(tmp_path), "--out", str(tmp_path / "runs"),
        )  # fmt: skip
    assert err == ""
    (folder,) = (tmp_path / "runs").iterdir()
    pairs = [json.loads(line) for line in (folder / "pairs.jsonl").read_text().splitlines()]
    return said, json.loads((folder / "result.json").read_text()), pairs


def test_a_gate_measures_two_strict_servers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said, document, pairs = gate(Strict(), Strict(), tmp_path, capsys)
    assert len(pairs) == 5
    assert all(pair[side]["failed"] == 0 for pair in pairs for side in ("base", "head"))
    assert "left out: ignore_eos" in said
    assert set(document["server"]["wording"]["without"]) == {
        "return_token_ids",
        "ignore_eos",
        "prompts as token ids",
    }


def test_a_gate_puts_the_load_to_both_sides_in_the_same_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A head that ended its answers early because it alone was asked otherwise would look fast."""
    base, head = Strict(known={*KNOWN, "ignore_eos", "return_token_ids"}), Strict()
    gate(base, head, tmp_path, capsys)
    measured = [body for body in base.answered if body["max_tokens"] == 5]
    assert len(measured) == 2 + 5 * 6
    assert not any("ignore_eos" in body for body in measured)


def test_effects_are_measured_on_a_strict_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(Strict()) as url:
        status, out, err = run(
            capsys,
            "effects",
            url,
            "--preset",
            small_recipe(tmp_path),
            "--long-prompt",
            "8",
            "--json",
        )
    assert status == 0
    efficiency, interference = json.loads(out)
    assert efficiency["value"] > 0
    assert interference["note"].startswith("8 long prompts")
    assert "left out: ignore_eos" in err


def test_a_sweep_says_what_it_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(Strict()) as url:
        status, out, _ = run(
            capsys, "sweep", url, "--preset", small_recipe(tmp_path), "--most-streams", "2",
            "--requests-per-stream", "1", "--out", str(tmp_path / "runs"),
        )  # fmt: skip
    assert status == 0
    assert "failed" not in out
    assert "left out: ignore_eos" in out


@pytest.mark.parametrize("server", [RightStrict, Strict])
def test_a_proof_is_asked_as_text_where_the_server_takes_nothing_else(
    server: type[Strict], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(server(model=EOS)) as url:
        status, _, err = run(
            capsys, "probe", "prove", "--url", url, "--prompts", "24", "--out", str(tmp_path)
        )
    assert err == ""
    (file,) = tmp_path.glob("probe-served-*/proof.json")
    (proof,) = json.loads(file.read_text())["proofs"]
    assert proof["endings"] == {"complete": 24}
    assert (status, proof["wrong"]) == ((0, 0) if server is RightStrict else (1, 24))
    assert proof["wrong_in"] == ({} if server is RightStrict else {"text": 24})
    assert "prompts as token ids" in proof["server"]["wording"]["without"]


def test_a_stored_load_is_replayed_in_the_words_that_the_server_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A load with token ids and `ignore_eos` is judged as it was put: text, and EOS may come."""
    params = {"temperature": 0, "max_tokens": 40, "ignore_eos": True}
    ids = (1, *range(40, 60))
    requests = [WorkloadRequest(f"r{n}", prompt_ids=ids[: 8 + n], params=params) for n in range(4)]
    file = tmp_path / "load.json"
    file.write_text(json.dumps(Workload(tuple(requests), origin="stored").to_json()))
    with serving(RightStrict(model=EOS)) as url:
        status, out, err = run(capsys, "replay", str(file), "--url", url, "--times", "1")
    assert (status, err) == (0, "")
    assert "try 1: holds" in out
    assert "left out: ignore_eos" in out

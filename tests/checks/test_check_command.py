"""`isobatch check` over HTTP: health passes, each fault is caught, bad input is one line."""

from __future__ import annotations

import http.server
import json
import math
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness.checks.budget import BUDGETS
from harness.cli.app import main
from harness.cli.errors import ExitStatus
from harness.cli.verdict_table import VerdictTable
from harness.mutants.thread_server import thread_server
from harness.targets.launch import launched, own_server
from reference_engine.model import LoadedModel
from reference_engine.probe import VARIANTS


def _status(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["check", *arguments])
    code = ended.value.code
    return code if isinstance(code, int) else 0


EOS = VARIANTS["eos"]


@pytest.fixture
def found_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """The quick budget, ended by counts and not by time, and with hardly any shrinking."""
    quick = replace(BUDGETS["quick"], check_s=math.inf, shrink_s=math.inf, shrink_runs=2)
    monkeypatch.setitem(BUDGETS, "quick", quick)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_healthy_server_of_its_own_process_passes(probe_folder: Path, tmp_path: Path) -> None:
    with launched(own_server(str(probe_folder), "--port", "0"), log=tmp_path / "log") as server:
        status = _status(server.url, "--only", "EQV-1,ISO-3,STR-5,LEN-5", "--out", str(tmp_path))
    assert status == ExitStatus.OK
    (document,) = [json.loads(p.read_text()) for p in tmp_path.glob("*/result.json")]
    assert [v["verdict"] for v in document["verdicts"]] == ["pass"] * 4
    assert document["status"] == "complete"
    assert document["verdicts"][0]["evidence"]["interleaved_pairs"] >= 1


@pytest.mark.usefixtures("found_is_enough")
@pytest.mark.parametrize(
    ("fault", "checks"),
    [
        ("neighbour-visible", "EQV-1,EQV-5"),
        ("decode-position", "EQV-10"),
        ("page-freed-early", "EQV-4,ISO-3,ISO-5,EQV-12"),
    ],
)
def test_a_fault_is_caught(
    fault: str, checks: str, model: LoadedModel, probe_folder: Path, tmp_path: Path
) -> None:
    with thread_server(model, probe_folder, EOS.name, fault=fault) as server:
        status = _status(server.url, "--only", checks, "--out", str(tmp_path))
    assert status == ExitStatus.FAILED
    replays = list(tmp_path.glob("*/failures/*.json"))
    assert replays, "a failing workload is written for every failure"
    assert json.loads(replays[0].read_text())["failure"]["draws"]
    (page,) = tmp_path.glob("*/report.html")
    assert "What failed" in page.read_text()


def test_an_interrupted_run_keeps_its_verdicts_and_its_page(
    model: LoadedModel, probe_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(VerdictTable, "finished", interrupted)
    with thread_server(model, probe_folder, EOS.name) as server:
        assert _status(server.url, "--only", "LEN-2,LEN-3", "--out", str(tmp_path)) == 130
    (folder,) = tmp_path.iterdir()
    document = json.loads((folder / "result.json").read_text())
    assert document["status"] == "interrupted"
    assert [v["check_id"] for v in document["verdicts"]] == ["LEN-2"]
    assert "did not end well: interrupted" in (folder / "report.html").read_text()


def test_the_server_is_asked_who_it_is_with_the_key_it_wants(
    model: LoadedModel, probe_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys: list[object] = []

    def discover(_url: str, *, api_key: str | None = None, **_more: object) -> dict[str, object]:
        keys.append(api_key)
        return {"sources": {}}

    monkeypatch.setattr("harness.cli.run_record.discover_server", discover)
    with thread_server(model, probe_folder, EOS.name) as server:
        options = ("--only", "LEN-2", "--api-key", "sesame", "--out", str(tmp_path))
        assert _status(server.url, *options) == ExitStatus.OK
    assert keys == ["sesame"]


def test_a_run_that_could_judge_nothing_says_so(
    model: LoadedModel, probe_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with thread_server(model, probe_folder, EOS.name) as server:
        status = _status(server.url, "--only", "SMP-13", "--out", str(tmp_path))
    assert status == ExitStatus.UNUSABLE
    assert "nothing could be judged" in capsys.readouterr().out


def test_nothing_there_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert _status("http://127.0.0.1:9", "--out", str(tmp_path)) == ExitStatus.UNUSABLE
    _one_line(capsys, "cannot be reached")
    assert list(tmp_path.iterdir()) == [], "no run folder is left for a server that is not there"


def test_a_folder_that_cannot_be_written_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    out = str(tmp_path / "file" / "runs")
    assert _status("http://127.0.0.1:9", "--out", out) == ExitStatus.UNUSABLE
    _one_line(capsys, "cannot write to")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--only", "EQV-999"], "no check"),
        (["--budget", "endless"], "no budget"),
        (["--oracle", "delphi"], "no oracle"),
        (["--seed", "seven"], "--seed is a number"),
        (["--param", "nothing"], "--param is KEY=VALUE"),
        (["--header", "nothing"], "--header is"),
    ],
)
def test_bad_options_are_one_line(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    status = _status("http://127.0.0.1:9", "--out", str(tmp_path), *arguments)
    assert status == ExitStatus.UNUSABLE
    _one_line(capsys, says)


class _StrangeServer(http.server.BaseHTTPRequestHandler):
    """A model that answers every completion with the same words, or no LLM server at all."""

    speaks = True

    def do_GET(self) -> None:
        models = {"object": "list", "data": [{"id": "stranger", "object": "model"}]}
        self._send(models if self.speaks else {"hello": "world"}, "application/json")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        event = {"id": "1", "choices": [{"index": 0, "text": "hi", "finish_reason": "stop"}]}
        body = f"data: {json.dumps(event)}\n\ndata: [DONE]\n\n".encode()
        self._send(body, "text/event-stream")

    def _send(self, body: bytes | dict[str, object], kind: str) -> None:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        return


@pytest.fixture
def strange_url() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _StrangeServer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_model_that_is_no_probe_is_one_line(
    strange_url: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    status = _status(strange_url, "--oracle", "probe", "--out", str(tmp_path))
    assert status == ExitStatus.UNUSABLE
    _one_line(capsys, "is no probe")


def test_a_url_that_is_no_llm_server_is_one_line(
    strange_url: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_StrangeServer, "speaks", False)
    assert _status(strange_url, "--out", str(tmp_path)) == ExitStatus.UNUSABLE
    _one_line(capsys, "no OpenAI-compatible server")


def _one_line(capsys: pytest.CaptureFixture[str], says: str) -> None:
    error = capsys.readouterr().err
    assert says in error
    assert error.startswith("isobatch: ")
    assert error.count("\n") == 1, error

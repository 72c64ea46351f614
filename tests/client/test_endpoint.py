"""URLs, keys and headers that cannot be used are refused in one sentence, before a byte is sent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.cli.app import main
from harness.cli.errors import ExitStatus
from harness.client.endpoint import Endpoint
from harness.client.openai_request import Caller
from harness.targets.target import TargetUnusable
from workloads.workload import Workload, WorkloadRequest

COMMANDS = ("check", "bench", "sweep", "effects")


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "the URL is empty"),
        ("  ", "the URL is empty"),
        ("http://[::1", "not a URL"),
        ("http://a b", "no spaces"),
        ("http://a/\r\nX: 1", "control characters"),
        ("http://höst", "ASCII"),
        ("http://h/ключ", "ASCII"),
        ("http://h:99999", "port"),
        ("http://", "names no host"),
        ("ftp://h", "must begin with"),
    ],
)
def test_a_bad_url_is_one_line(
    url: str, says: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    with pytest.raises(SystemExit) as ended:
        main(["check", url, "--out", str(tmp_path)])
    assert ended.value.code == ExitStatus.UNUSABLE
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("key", ["ключ", "a\r\nX-Admin: 1", "a\nb", "a\x00"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_key_that_no_header_can_carry_is_one_line_that_does_not_show_it(
    command: str,
    key: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main([command, "http://127.0.0.1:9", "--api-key", key])
    assert ended.value.code == ExitStatus.UNUSABLE
    error = capsys.readouterr().err
    assert "API key" in error
    assert key not in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [("X-A", "a\r\nX-B: 1"), ("X-A\r\nX-B", "1"), ("X A", "1"), ("", "1"), ("X-A", "é")],
)
def test_a_header_that_could_become_another_is_refused(name: str, value: str):
    with pytest.raises(TargetUnusable, match="header"):
        Caller(Endpoint.parse("h"), "m", headers={name: value})


def test_a_good_key_and_header_are_sent_as_given():
    caller = Caller(Endpoint.parse("h"), "m", api_key="sk-1 ~", headers={"X-A": "b\tc"})
    head = caller.head("GET", "/v1/models")
    assert b"\r\nAuthorization: Bearer sk-1 ~\r\n" in head
    assert b"\r\nX-A: b\tc\r\n" in head


@pytest.mark.parametrize("command", [*COMMANDS, "replay"])
def test_only_our_own_variable_gives_a_key(
    command: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.chdir(tmp_path)
    arguments = [command, "http://127.0.0.1:9"]
    if command == "replay":
        workload = Workload((WorkloadRequest("a", prompt_text="x"),))
        (tmp_path / "file.json").write_text(json.dumps(workload.to_json()))
        arguments = ["replay", "file.json", "--url", "http://127.0.0.1:9"]
    for variable, read in (("OPENAI_API_KEY", False), ("ISOBATCH_API_KEY", True)):
        with monkeypatch.context() as patch:
            patch.setenv(variable, "no\nkey")
            with pytest.raises(SystemExit) as ended:
                main(arguments)
        assert ended.value.code == ExitStatus.UNUSABLE
        assert ("API key" in capsys.readouterr().err) is read


def test_a_request_carries_its_own_headers_and_the_next_one_does_not():
    caller = Caller(Endpoint.parse("h"), "m")
    named = WorkloadRequest("a", prompt_text="x", headers={"X-Request-Id": "twin"})
    head, _, body = caller.payload(named).partition(b"\r\n\r\n")
    assert b"\r\nX-Request-Id: twin\r\n" in head + b"\r\n"
    assert f"\r\nContent-Length: {len(body)}".encode() in head
    assert b"X-Request-Id" not in caller.payload(WorkloadRequest("b", prompt_text="x"))
    with pytest.raises(TargetUnusable, match="header"):
        caller.payload(WorkloadRequest("c", prompt_text="x", headers={"X-A": "1\r\nX-B: 2"}))

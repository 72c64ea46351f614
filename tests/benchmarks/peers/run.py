"""All clients against the same paced server, one after the other, in one run.

    python -m tests.benchmarks.peers.run --venvs FOLDER --tokenizer FOLDER --out FILE.json

``--venvs`` holds one virtual environment for each tool, named as the tool (see `tools.TOOLS` for
the packages); a tool without one is left out and listed as such. What a perfect client would have
measured comes from the server for each run, so a tool's error is its number less that one: on a
busy machine the server is late too, and that is not the tool's fault. CPU is the user and system
time of the tool's processes, start-up included, since a user pays for it too; ours and the bare
loop run as processes of their own for the same reason.
"""

from __future__ import annotations

import argparse
import http.server
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from harness.load.paced.process import paced_server
from tests.benchmarks.peers.tools import TOOLS, Measured, Setting, Tool

TIMEOUT_S = 240


def _ours(s: Setting) -> list[str]:
    return [
        sys.executable, "-m", "harness.cli", "bench", s.url, "--preset", "paced",
        "--requests", str(s.requests), "--concurrency", str(s.streams), "--prompts", "100:200",
        "--no-warmup", "--no-calibrate", "--no-page", "--json", "--out", str(s.folder),
    ]  # fmt: skip


def _read_ours(s: Setting) -> Measured:
    document = json.loads((s.folder / "stdout").read_text())
    rows = {(r["id"], r["statistic"], r["window"]): r["value"] for r in document["metrics"]}

    def milliseconds(metric: str, statistic: str) -> float | None:
        value = rows.get((metric, statistic, "whole"))
        return None if value is None else value * 1e3

    return Measured(
        milliseconds("ttft.service", "mean"),
        milliseconds("ttft.service", "p99"),
        milliseconds("chunk_gap", "p99"),
        int(rows["requests.complete", "value", None]),
    )


def _bare(s: Setting) -> list[str]:
    module = "tests.benchmarks.peers.bare_loop"
    return [sys.executable, "-m", module, s.url, str(s.streams), str(s.requests)]


def _read_bare(s: Setting) -> Measured:
    found = json.loads((s.folder / "stdout").read_text())
    return Measured(found["ttft_mean_ms"], found["ttft_p99_ms"], found["gap_p99_ms"], s.requests)


OURS = Tool("isobatch", "this", _ours, _read_ours)
BARE = Tool("bare loop", "uvloop and httptools, no JSON", _bare, _read_bare)


@contextmanager
def _book() -> Iterator[str]:
    """The URL of a text for the tool that wants a book to take its prompts from."""
    text = ("It was a dark and stormy night; the rain fell in torrents. " * 4000).encode()

    class Book(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Book)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/book.txt"
    finally:
        server.shutdown()
        server.server_close()


def measure(tool: Tool, setting: Setting, bin_folder: Path | None) -> dict[str, Any]:
    """Run one tool once and put its numbers beside the truth."""
    command = tool.command(setting)
    if bin_folder is not None:
        command[0] = str(bin_folder / command[0])
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    if tool.needs_hub:
        environment.pop("HF_HUB_OFFLINE")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    log = setting.folder / "log"
    with (setting.folder / "stdout").open("w") as out, log.open("w") as err:
        try:
            status: int | str = subprocess.run(
                command,
                env=environment,
                stdout=out,
                stderr=err,
                timeout=TIMEOUT_S,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            status = f"stopped after {TIMEOUT_S} s"
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    with urllib.request.urlopen(f"{setting.url}/paced/truth") as answer:
        truth = json.load(answer)
    row: dict[str, Any] = {
        "tool": tool.name,
        "package": tool.package,
        "streams": setting.streams,
        "requests": setting.requests,
        "status": status,
        "cpu_s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "truth": truth,
    }
    try:
        measured = tool.read(setting)
    except (OSError, KeyError, IndexError, ValueError, TypeError) as error:
        return {**row, "error": f"{type(error).__name__}: {error}"}
    return {**row, "measured": asdict(measured), "error_ms": _errors(measured, truth)}


def _errors(measured: Measured, truth: dict[str, Any]) -> dict[str, float | None]:
    pairs = {
        "ttft_mean": (measured.ttft_mean_ms, truth["ttft_s"]["mean"]),
        "ttft_p99": (measured.ttft_p99_ms, truth["ttft_s"]["p99"]),
        "gap_p99": (measured.gap_p99_ms, truth["gap_s"]["p99"]),
    }
    return {
        name: None if said is None or true is None else said - true * 1e3
        for name, (said, true) in pairs.items()
    }


def main() -> None:
    """Run all and write the document."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--venvs", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--streams", default="1,32,128,256")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    document: dict[str, Any] = {
        "format": "isobatch.peers/1",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}",
        "streams": arguments.streams,
        "rounds": arguments.rounds,
        "left_out": [],
        "runs": [],
    }
    wanted = set(arguments.only.split(",")) - {""}
    for streams in map(int, arguments.streams.split(",")):
        for tool in (BARE, OURS, *TOOLS.values()):
            if wanted and tool.name not in wanted:
                continue
            bin_folder = arguments.venvs / tool.name / "bin" if tool.name in TOOLS else None
            if bin_folder is not None and not bin_folder.exists():
                document["left_out"].append({"tool": tool.name, "reason": "no venv"})
                continue
            row = _one(tool, streams, arguments.rounds, arguments.tokenizer, bin_folder)
            document["runs"].append(row)
            document["load_average"] = os.getloadavg()
            print(json.dumps({k: row.get(k) for k in ("tool", "streams", "cpu_s", "error_ms")}))
            arguments.out.write_text(json.dumps(document, indent=1) + "\n")


def _one(
    tool: Tool, streams: int, rounds: int, tokenizer: Path, bin_folder: Path | None
) -> dict[str, Any]:
    requests = max(32, streams * rounds)
    with tempfile.TemporaryDirectory() as folder, paced_server() as url, _book() as book:
        setting = Setting(url, streams, requests, Path(folder), tokenizer, book)
        (Path(folder) / "tool").mkdir()
        return measure(tool, replace(setting, folder=Path(folder) / "tool"), bin_folder)


if __name__ == "__main__":
    main()

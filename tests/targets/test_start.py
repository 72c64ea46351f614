"""A recipe's server is started on a checkpoint, asked for its version, and always stopped."""

import json
import os
import sys
import urllib.request
from pathlib import Path

import pytest

from harness.targets.recipe import Recipe, load_recipe
from harness.targets.start import served_by_recipe
from harness.targets.target import TargetUnusable
from reference_engine.probe import VARIANTS

SERVER = """
import http.server, json, os, sys
class Api(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"words": sys.argv[1:], "room": os.environ["ROOM"]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args): pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Api).serve_forever()
"""

RECIPE = """
title = "A fake"
homepage = "https://example.org"
checkpoint = "CHECKPOINT"
model_id = "{model_name}"
command = ["{python}", "SERVER", "{port}", "{model}", "{model_name}", "{dtype}"]
identify = ["{python}", "-c", "print('fake 1.2')"]
ready_path = "/"
ready_timeout_s = 20
environment = { ROOM = "1" }

[devices.cpu]
tried = true
disk_gb = 0.1
install_minutes = 1
memory_gb = 1
install = INSTALL
arguments = ["--cpu"]

[variants.default]
title = "as it comes"
dtype = "float32"

[variants.small]
title = "small"
dtype = "float16"
arguments = ["--small"]
environment = { ROOM = "2 on {host}" }
"""


def recipe(tmp_path: Path, install: str = "[]", checkpoint: str = "safetensors") -> Recipe:
    server = tmp_path / "server.py"
    server.write_text(SERVER)
    text = RECIPE.replace("SERVER", str(server)).replace("INSTALL", install)
    path = tmp_path / "fake.toml"
    path.write_text(text.replace("CHECKPOINT", checkpoint))
    return load_recipe(str(path))


def quiet(_line: str) -> None:
    pass


def test_the_server_runs_with_the_arguments_of_recipe_device_and_variant(tmp_path: Path) -> None:
    """One launch: checkpoint made, words and environment passed on, version known, gone after."""
    with served_by_recipe(
        recipe(tmp_path), model="probe:eos", variant="small", say=quiet
    ) as server:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        seen = json.loads(opener.open(server.url, timeout=5).read())
        port, model, name, *rest = seen["words"]
        assert server.url.endswith(f":{port}")
        assert (Path(model) / "model.safetensors").is_file()
        assert name == server.model_id == VARIANTS["eos"].name
        assert rest == ["float16", "--cpu", "--small"]
        assert seen["room"] == "2 on 127.0.0.1"
        assert server.version == "fake 1.2"
        assert server.probe_variant == "eos"
        assert server.exit_status() is None
        assert server.describe()["variant"] == "small"
    assert not Path(model).exists()
    with pytest.raises(OSError, match="refused"):
        opener.open(server.url, timeout=5)


def test_a_server_that_reads_gguf_gets_one(tmp_path: Path) -> None:
    with served_by_recipe(
        recipe(tmp_path, checkpoint="gguf"), model="probe:plain", say=quiet
    ) as server:
        assert server.checkpoint.path.suffix == ".gguf"
        assert server.checkpoint.path.read_bytes()[:4] == b"GGUF"


@pytest.mark.parametrize(
    ("model", "complaint"),
    [("probe:odd", "no probe 'odd'; choose one of .*eos"), ("nowhere", "'nowhere' is neither")],
)
def test_an_unknown_model_is_one_sentence(model: str, complaint: str, tmp_path: Path) -> None:
    with (
        pytest.raises(TargetUnusable, match=complaint),
        served_by_recipe(recipe(tmp_path), model=model, say=quiet),
    ):
        pytest.fail("the block must not begin")


def test_installation_happens_once_and_failure_names_the_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Missing: the command to run. Interrupted or failed: not taken for installed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "executable", _instant_venv(tmp_path))
    steps = "[[\"{python}\", \"-c\", \"open('{venv}/count', 'a').write('x')\"]]"
    fake = recipe(tmp_path, install=steps)
    with (
        pytest.raises(TargetUnusable, match="not installed; run `isobatch launch fake --install`"),
        served_by_recipe(fake, model="probe:eos", say=quiet),
    ):
        pytest.fail("the block must not begin")
    from harness.targets.installation import install, is_installed

    device = fake.device()
    for _ in range(2):
        assert (install(fake, device, quiet) / "count").read_text() == "x"
    assert is_installed(fake, device)
    broken = recipe(tmp_path, install='[["{python}", "-c", "raise SystemExit(\'no room\')"]]')
    assert not is_installed(broken, broken.device())
    with pytest.raises(TargetUnusable, match=r"install step .* failed: no room"):
        install(broken, broken.device(), quiet)
    assert not is_installed(broken, broken.device())


def _instant_venv(tmp_path: Path) -> str:
    """A stand-in for `python -m venv`, which takes seconds: a folder with a link to Python."""
    script = tmp_path / "python"
    real = sys.executable
    script.write_text(
        f'#!/bin/sh\nif [ "$2" = venv ]; then mkdir -p "$3/bin" && ln -s {real} "$3/bin/python"; '
        f'else exec {real} "$@"; fi\n'
    )
    os.chmod(script, 0o755)
    return str(script)

"""Servers that others wrote, on a probe: the answers that must be right are right.

Run by `make external`. A server that is not installed is skipped by name, never passed.
"""

import json
from pathlib import Path

import pytest

from harness.cli.app import main
from harness.cli.errors import ExitStatus
from harness.targets.installation import is_installed
from harness.targets.recipe import load_recipe

# Equivalence, isolation and length: what no healthy server may fail whatever its dialect.
CHECKS = "EQV-1,EQV-2,EQV-7,ISO-2,ISO-3,LEN-1,LEN-3"


@pytest.mark.external
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["transformers", "llama-cpp", "vllm", "mlx-lm"])
def test_a_server_that_others_wrote_answers_a_probe_token_by_token(
    name: str, tmp_path: Path
) -> None:
    """Started from its recipe, judged, stopped; the run says which server and version it was."""
    recipe = load_recipe(name)
    if not is_installed(recipe, recipe.device()):
        pytest.skip(f"not installed: isobatch launch {name} --install")
    with pytest.raises(SystemExit) as ended:
        main(["check", "--launch", name, "--only", CHECKS, "--out", str(tmp_path)])
    (document,) = [json.loads(p.read_text()) for p in tmp_path.glob("*/result.json")]
    verdicts = {v["check_id"]: v["verdict"] for v in document["verdicts"]}
    assert set(verdicts) == set(CHECKS.split(","))
    assert "fail" not in verdicts.values(), verdicts
    assert verdicts["EQV-1"] == "pass"
    assert not ended.value.code or ended.value.code == ExitStatus.OK
    assert document["server"]["recipe"] == name
    assert document["server"]["version"]

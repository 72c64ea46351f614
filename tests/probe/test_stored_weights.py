"""Weights in fewer bits: eight hold the margins, four do not; a missing library is named."""

from __future__ import annotations

import importlib.util

import pytest

from harness.cli import main
from reference_engine.probe import VARIANTS
from reference_engine.probe.proof import Proof, proof_prompts, prove
from reference_engine.probe.stored_weights import BY_LIBRARY, missing_packages
from tests.probe.conftest import Exported


def proof_with(weights: str, exported: Exported) -> Proof:
    config = VARIANTS["eos"]
    prompts = [p for p in proof_prompts(config, 24) if 15 < len(p) < 130]
    folder = exported("eos", "float32")
    return prove(config, folder, "float32", prompts, generate_every=10, weights=weights)


@pytest.mark.parametrize("weights", ["int8", "Q8_0"])
def test_eight_bits_hold_the_margins(weights: str, exported: Exported) -> None:
    proof = proof_with(weights, exported)
    assert proof.holds, proof
    assert proof.smallest_margin > 35


@pytest.mark.parametrize("weights", ["int4", "Q4_0"])
def test_four_bits_are_seen_not_to(weights: str, exported: Exported) -> None:
    proof = proof_with(weights, exported)
    assert proof.wrong_positions > proof.positions / 2, proof


@pytest.mark.parametrize("weights", BY_LIBRARY)
def test_a_library_holds_the_weights(weights: str, exported: Exported) -> None:
    """Where it is installed. Only the weight-only int8 of two of them is right."""
    if missing_packages(weights):
        pytest.skip(f"not installed: {', '.join(missing_packages(weights))}")
    proof = proof_with(weights, exported)
    assert proof.holds is (weights in ("torchao-int8", "quanto-int8")), proof


def test_a_missing_library_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(SystemExit) as ended:
        main(["probe", "prove", "--weights", "torchao-int8"])
    assert ended.value.code == 2
    assert "pip install torchao accelerate" in capsys.readouterr().err

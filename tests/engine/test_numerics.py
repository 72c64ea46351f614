"""A row's bits do not depend on its company: the claims behind `numerics`, one by one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import reference_engine
from reference_engine import numerics
from reference_engine.numerics import ROW_TILE, LinearWeight
from reference_engine.self_test import InexactArithmetic, self_test
from tests.engine.tiny import tiny_model

ENGINE = Path(reference_engine.__file__).parent
REDUCTION = re.compile(
    r"F\.linear|scaled_dot_product|einsum|\.sum\(|\.mean\(|softmax\(|\bbmm\(|matmul\(|\.norm\("
)


def test_padding_rows_may_hold_anything() -> None:
    """NaN in the padding of a tile leaves the real rows as they are with zeros."""
    weight = LinearWeight(torch.randn(40, 96, generator=torch.Generator().manual_seed(1)))
    rows = torch.randn(5, 96, generator=torch.Generator().manual_seed(2))
    zeros = weight.times(numerics.pad_rows(rows))[:5]
    nans = weight.times(numerics.pad_rows(rows, float("nan")))[:5]
    assert torch.equal(zeros, nans)


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 64, 100])
def test_log_softmax_agrees_with_fp64_and_ignores_company(count: int) -> None:
    """The tree sum is close to the truth and the same for one row and for many."""
    rows = torch.randn(count, 49_152, generator=torch.Generator().manual_seed(count)) * 5
    got = numerics.log_softmax(rows)
    assert torch.equal(numerics.log_softmax(rows[-1:]), got[-1:])
    torch.testing.assert_close(got.double(), rows.double().log_softmax(-1), rtol=0, atol=2e-5)


def test_one_thread_and_two_give_the_same_bits() -> None:
    """Threads share out rows and columns, never the terms of one sum."""
    generator = torch.Generator().manual_seed(3)
    weight = LinearWeight(torch.randn(576, 1536, generator=generator))
    rows = torch.randn(24, 1536, generator=generator)
    logits = torch.randn(16, 49_152, generator=generator)
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            results.append(
                (
                    numerics.linear(rows, weight),
                    numerics.mean_square(rows),
                    numerics.log_softmax(logits),
                )
            )
    finally:
        torch.set_num_threads(before)
    for one, two in zip(*results, strict=True):
        assert torch.equal(one, two)


def test_self_test_passes_here_and_compares_rows() -> None:
    """The start-up test compares hundreds of rows and raises nothing on this machine."""
    assert self_test(tiny_model()) > 300


def test_self_test_refuses_arithmetic_that_depends_on_company(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A linear whose bits move with the number of rows is found, and named."""
    honest = LinearWeight.times

    def inexact(self: LinearWeight, x: torch.Tensor) -> torch.Tensor:
        out = honest(self, x)
        return out if x.shape[0] <= ROW_TILE else out * (1 + 2**-23)

    monkeypatch.setattr(LinearWeight, "times", inexact)
    with pytest.raises(InexactArithmetic, match="linear 96 to"):
        self_test(tiny_model())


def test_reductions_live_in_numerics_alone() -> None:
    """No module of the engine adds floats up but numerics and the compiled kernels behind it."""
    allowed = {"numerics.py", "cpu_kernels.py", "triton_kernels.py", "paged_kernel.py"}
    for path in sorted(ENGINE.rglob("*.py")):
        if path.name in allowed or {"probe", "server"} & set(path.parts):
            continue
        found = [
            f"{path.name}:{number}: {line.strip()}"
            for number, line in enumerate(path.read_text().splitlines(), 1)
            if REDUCTION.search(line.replace("log_softmax(", "")) and "numpy" not in line
        ]
        assert not found, "\n".join(found)

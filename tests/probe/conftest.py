"""Exported checkpoints, made once a test run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from reference_engine.probe import VARIANTS, export_probe

Exported = Callable[[str, str], Path]


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Small matrices on few cores are quickest, and least noisy, on one thread."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """The folder of a variant in a dtype."""
    made: dict[tuple[str, str], Path] = {}

    def get(variant: str, dtype: str) -> Path:
        if (variant, dtype) not in made:
            folder = tmp_path_factory.mktemp(f"{variant}-{dtype}")
            made[variant, dtype] = export_probe(VARIANTS[variant], folder, dtype)
        return made[variant, dtype]

    return get

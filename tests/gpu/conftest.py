"""Without a CUDA device Triton's kernels run interpreted, and ``gpu`` tests do not run."""

from __future__ import annotations

import pytest
import torch

HAS_GPU = torch.cuda.is_available()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("gpu") and not HAS_GPU:
            item.add_marker(pytest.mark.skip(reason="not run: no CUDA device here"))

"""What every test shares: one thread, no network, and Hypothesis profiles that replay."""

from __future__ import annotations

import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
if not Path("/dev/nvidiactl").exists():
    # Before anything imports triton: its own functions are compiled or interpreted as it loads.
    os.environ.setdefault("TRITON_INTERPRET", "1")

import pytest
from hypothesis import HealthCheck, settings

_COMMON = {
    "deadline": None,
    "print_blob": True,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}
settings.register_profile("ci", max_examples=100, derandomize=True, **_COMMON)
settings.register_profile("dev", max_examples=25, derandomize=True, **_COMMON)
settings.register_profile("nightly", max_examples=2000, **_COMMON)
settings.load_profile(os.environ.get("ISOBATCH_PROFILE", "ci"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave nightly tests, which take hours, to those who ask for them by name or by profile."""
    if (
        "nightly" in (config.option.markexpr or "")
        or os.environ.get("ISOBATCH_PROFILE") == "nightly"
    ):
        return
    unasked = pytest.mark.skip(reason="nightly: set ISOBATCH_PROFILE=nightly or select -m nightly")
    for item in items:
        if "nightly" in item.keywords:
            item.add_marker(unasked)

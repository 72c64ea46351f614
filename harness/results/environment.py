"""What the client's machine and this copy of isobatch are, as a result records them."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Final

from harness.results.document import Environment, Tool

SUITE_VERSION: Final = "1"
_PACKAGES: Final = ("isobatch", "torch", "transformers", "tokenizers", "aiohttp", "numpy", "uvloop")
_VARIABLES: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "PYTHONHASHSEED")


def tool() -> Tool:
    """This copy of isobatch: its version, and the commit where it runs from a git checkout."""
    commit, dirty = _commit(Path(__file__).parent)
    return {
        "name": "isobatch",
        "version": _version("isobatch") or "unknown",
        "suite_version": SUITE_VERSION,
        "commit": commit,
        "commit_dirty": dirty,
    }


def environment() -> Environment:
    """This machine, without names that identify it or its owner."""
    found = {name: version for name in _PACKAGES if (version := _version(name)) is not None}
    return {
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu_model": _cpu_model(),
        "cpu_count": _cpu_count(),
        "memory_bytes": _memory_bytes(),
        "packages": found,
        "variables": {name: os.environ[name] for name in _VARIABLES if name in os.environ},
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


@cache
def _commit(folder: Path) -> tuple[str | None, bool | None]:
    """The checkout's commit and whether tracked files differ from it; None where unknown."""
    head = _git(folder, "rev-parse", "HEAD")
    if head is None or _git(folder, "ls-files", "--error-unmatch", __file__) is None:
        return None, None
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return head, None if changes is None else bool(changes)


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _cpu_model() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return platform.processor() or None
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, None) or platform.processor() or None


def _cpu_count() -> int | None:
    """The processors this process may use, which a container may have limited."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None

"""Installing a recipe's server, once, into a virtual environment that no other tool uses.

A marker file, written when every step has worked and holding the steps themselves, says that the
installation is complete and of this recipe: a changed recipe or an interrupted run installs anew.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from harness.targets.recipe import Device, Recipe, cache_folder
from harness.targets.target import TargetUnusable

MARKER: Final = ".isobatch-installed.json"


def is_installed(recipe: Recipe, device: Device) -> bool:
    """Whether this recipe's steps have all run; True where there is nothing to install."""
    if not device.install:
        return True
    marker = recipe.venv(device) / MARKER
    return marker.is_file() and json.loads(marker.read_text("utf-8")) == _steps(device)


def install(recipe: Recipe, device: Device, say: Callable[[str], None] = print) -> Path:
    """Run the install steps unless they have run; the virtual environment.

    Raises TargetUnusable with the end of a failed step's output. Needs a network.
    """
    venv = recipe.venv(device)
    if is_installed(recipe, device):
        return venv
    say(
        f"installing {recipe.title} into {venv}: about {device.install_minutes:g} minutes, "
        f"{device.disk_gb:g} GB"
    )
    shutil.rmtree(venv, ignore_errors=True)
    wheels_folder().mkdir(parents=True, exist_ok=True)
    _run([sys.executable, "-m", "venv", str(venv)], {})
    for step in device.install:
        words = filled(step, places(recipe, device))
        say("+ " + " ".join(words))
        _run(words, device.install_environment)
    (venv / MARKER).write_text(json.dumps(_steps(device)) + "\n", "utf-8")
    return venv


def wheels_folder() -> Path:
    """Where wheels that were built from source are kept."""
    return cache_folder() / "wheels"


def places(recipe: Recipe, device: Device) -> dict[str, str]:
    """The placeholders that are about where things are: python, venv, wheels."""
    venv = recipe.venv(device)
    python = str(venv / "bin" / "python") if device.install else sys.executable
    return {"python": python, "venv": str(venv), "wheels": str(wheels_folder())}


def filled(words: Sequence[str], values: dict[str, str]) -> list[str]:
    """The words with ``{placeholder}`` replaced; other braces stay."""
    return [_filled(word, values) for word in words]


def _filled(word: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        word = word.replace("{" + name + "}", value)
    return word


def _steps(device: Device) -> list[list[str]]:
    return [list(step) for step in device.install]


def _run(words: Sequence[str], environment: Mapping[str, str]) -> None:
    ran = subprocess.run(
        words,
        capture_output=True,
        text=True,
        check=False,
        env={**environment, **os.environ},
    )
    if ran.returncode != 0:
        lines = (ran.stderr.strip() or ran.stdout.strip() or "no output").splitlines()[-5:]
        raise TargetUnusable(f"the install step `{' '.join(words)}` failed: {' | '.join(lines)}")

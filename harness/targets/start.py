"""Serving a model with a recipe: install, convert, start, wait, identify, and always stop."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.targets.checkpoint import Checkpoint, checkpoint_for
from harness.targets.installation import filled, install, is_installed, places
from harness.targets.launch import launched
from harness.targets.port import free_port
from harness.targets.recipe import Device, Recipe, Variant
from harness.targets.target import TargetUnusable

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class RecipeServer:
    """A server that a recipe started. ``model_id`` is what requests must ask for."""

    url: str
    model_id: str
    version: str
    recipe: Recipe
    variant: Variant
    device: Device
    checkpoint: Checkpoint
    command: tuple[str, ...]
    log: Path
    ready_after_s: float
    exit_status: Callable[[], int | None]

    @property
    def probe_variant(self) -> str | None:
        """The name of the probe it serves, as `--probe` takes it; None for a trained model."""
        from reference_engine.probe import VARIANTS

        config = self.checkpoint.probe
        return next((name for name, known in VARIANTS.items() if known == config), None)

    def describe(self) -> dict[str, Any]:
        """What a run's document keeps about the server (`RunFolder.set_server`)."""
        facts = {
            "name": self.recipe.title,
            "version": self.version,
            "url": self.url,
            "model": self.checkpoint.name,
            "dtype": self.variant.dtype,
            "flags": [*self.device.arguments, *self.variant.arguments],
            "hardware": self.device.name,
        }
        return {
            **facts,
            "recipe": self.recipe.name,
            "variant": self.variant.name,
            "variant_title": self.variant.title,
            "ready_after_s": round(self.ready_after_s, 1),
            "sources": dict.fromkeys(facts, "given"),
        }


@contextmanager
def served_by_recipe(
    recipe: Recipe,
    *,
    model: str,
    variant: str | None = None,
    device: str | None = None,
    port: int | None = None,
    extra_arguments: tuple[str, ...] = (),
    log: Path | None = None,
    install_missing: bool = False,
    say: Callable[[str], None] = print,
) -> Iterator[RecipeServer]:
    """Start the recipe's server on ``model`` and stop it when the block ends, however it ends.

    ``model`` is as for `checkpoint_for`. Raises TargetUnusable if the server is not installed or
    does not come up, RecipeInvalid for a variant or device that the recipe lacks.
    """
    chosen, hardware = recipe.variant(variant), recipe.device(device)
    _require_installed(recipe, hardware, say if install_missing else None)
    with tempfile.TemporaryDirectory(prefix="isobatch-") as scratch:
        checkpoint = checkpoint_for(model, recipe.checkpoint, chosen.dtype, Path(scratch))
        values = _values(recipe, hardware, chosen, checkpoint, port or free_port(HOST))
        words = [*recipe.command, *hardware.arguments, *chosen.arguments, *extra_arguments]
        command = filled(words, values)
        variables = {**recipe.environment, **hardware.environment, **chosen.environment}
        say(f"starting {recipe.title}, variant {chosen.name}, on {checkpoint.name}")
        t_start_s = time.monotonic()
        with launched(
            command,
            log=log or Path(scratch) / "server.log",
            url=f"http://{HOST}:{values['port']}",
            environment=dict(zip(variables, filled([*variables.values()], values), strict=True)),
            ready_path=recipe.ready_path,
            ready_timeout_s=recipe.ready_timeout_s,
            stop_timeout_s=recipe.stop_timeout_s,
        ) as server:
            yield RecipeServer(
                url=server.url,
                model_id=filled([recipe.model_id], values)[0],
                version=_version(filled(recipe.identify, values)),
                recipe=recipe,
                variant=chosen,
                device=hardware,
                checkpoint=checkpoint,
                command=tuple(command),
                log=server.log,
                ready_after_s=time.monotonic() - t_start_s,
                exit_status=server.exit_status,
            )


def _require_installed(recipe: Recipe, device: Device, say: Callable[[str], None] | None) -> None:
    """Install what is missing if there is somebody to tell it, else say how to."""
    if say is not None:
        install(recipe, device, say)
    if is_installed(recipe, device):
        return
    flag = "" if device == recipe.device() else f" --device {device.name}"
    raise TargetUnusable(
        f"{recipe.title} is not installed; run `isobatch launch {recipe.name} --install{flag}` "
        f"(about {device.install_minutes:g} minutes, {device.disk_gb:g} GB)"
    )


def _values(
    recipe: Recipe, device: Device, variant: Variant, checkpoint: Checkpoint, port: int
) -> dict[str, str]:
    """What the placeholders of the command stand for."""
    return {
        **places(recipe, device),
        "model": str(checkpoint.path),
        "model_name": checkpoint.name,
        "dtype": variant.dtype,
        "host": HOST,
        "port": str(port),
    }


def _version(command: list[str]) -> str:
    """The line of the command's output that names a version, or its first line."""
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    lines = (ran.stdout + ran.stderr).strip().splitlines()
    return next((line for line in lines if line.startswith("version")), lines[0] if lines else "?")

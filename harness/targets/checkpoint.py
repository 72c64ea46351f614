"""The checkpoint that a launched server loads, made in the format it reads.

A probe is exported anew for every launch (a tenth of a second), so that it can never be an old
one. A trained model's folder is used where it lies; for servers that read GGUF it is converted
once and kept in the cache folder.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.targets.recipe import CheckpointFormat, cache_folder
from harness.targets.target import TargetUnusable

if TYPE_CHECKING:
    from reference_engine.probe import ProbeConfig

PROBE_PREFIX = "probe:"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a server loads.

    ``path`` is the folder or GGUF file for the server, ``folder`` the Hugging Face folder with the
    same weights (for the reference oracle), ``name`` the model id to serve it under, ``probe`` the
    probe's configuration if it is one.
    """

    path: Path
    folder: Path
    name: str
    probe: ProbeConfig | None = None


def checkpoint_for(
    model: str, checkpoint_format: CheckpointFormat, dtype: str, scratch: Path
) -> Checkpoint:
    """The checkpoint that ``model`` names, in the format and precision asked for.

    ``model`` is ``probe:VARIANT``, the folder of a model or an exported probe, or a name that
    `isobatch model fetch` knows. ``scratch`` is where files of this launch may be written. Raises
    TargetUnusable with one sentence.
    """
    from reference_engine.probe import VARIANTS

    if model.startswith(PROBE_PREFIX):
        variant = model.removeprefix(PROBE_PREFIX)
        if variant not in VARIANTS:
            known = ", ".join(VARIANTS)
            raise TargetUnusable(f"there is no probe {variant!r}; choose one of {known}")
        return _probe(VARIANTS[variant], checkpoint_format, dtype, scratch)
    folder = _fetched(model)
    if (folder / "probe.json").is_file():
        from reference_engine.probe import load_probe_config

        return _probe(load_probe_config(folder), checkpoint_format, dtype, scratch)
    if checkpoint_format == "gguf":
        return Checkpoint(_converted(folder, dtype), folder, folder.name)
    return Checkpoint(folder, folder, folder.name)


def _fetched(model: str) -> Path:
    from reference_engine.pretrained import ModelNotFetched, fetch

    try:
        return fetch(model).resolve()
    except ModelNotFetched as error:
        raise TargetUnusable(str(error)) from error


def _probe(
    config: ProbeConfig, checkpoint_format: CheckpointFormat, dtype: str, scratch: Path
) -> Checkpoint:
    from reference_engine.probe import export_probe

    folder = export_probe(config, scratch / config.name, dtype)
    if checkpoint_format == "safetensors":
        return Checkpoint(folder, folder, config.name, config)
    return Checkpoint(_converted(folder, dtype, scratch), folder, config.name, config)


def _converted(folder: Path, dtype: str, where: Path | None = None) -> Path:
    """``folder`` as a GGUF file in ``where`` or, kept for the next time, in the cache folder."""
    from harness.targets.gguf_file import NotConvertible, write_gguf

    target = (where or cache_folder() / "gguf") / f"{folder.name}-{dtype}.gguf"
    weights = folder / "model.safetensors"
    if target.is_file() and weights.is_file() and _at_least_as_new(target, weights):
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        return write_gguf(folder, target, dtype)
    except NotConvertible as error:
        raise TargetUnusable(str(error)) from error


def _at_least_as_new(made: Path, source: Path) -> bool:
    return made.stat().st_mtime >= source.stat().st_mtime

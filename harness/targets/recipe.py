"""Recipes: how a known server is installed, started, waited for and told what to serve.

A recipe is a TOML file, either one of those beside this module (named by its stem) or the user's
own (named by its path). It knows command lines and nothing of the checks: a check never learns
which server it talks to. Variants change arguments, not the command, so that a difference between
two runs has one cause.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Final, Literal, TypeVar

from harness.targets.recipe_table import RecipeInvalid, RecipeTable

CheckpointFormat = Literal["safetensors", "gguf"]
_Named = TypeVar("_Named")
PLACEHOLDERS: Final = ("python", "venv", "wheels", "model", "model_name", "dtype", "host", "port")


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to run the server. ``dtype`` is the precision of weights and activations."""

    name: str
    title: str
    dtype: str
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Device:
    """What differs between hardware: how to install, and arguments that every variant gets."""

    name: str
    install: tuple[tuple[str, ...], ...]
    install_environment: Mapping[str, str]
    disk_gb: float
    install_minutes: float
    memory_gb: float
    tried: bool
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Recipe:
    """A known server.

    ``command`` may contain the placeholders of `PLACEHOLDERS` in braces; an install step and the
    values of an environment too.
    ``model_id`` is the id the server answers to (the same placeholders). ``identify`` prints the
    server's version in one line. ``needs_venv`` is False for servers that the user brings.
    """

    name: str
    title: str
    homepage: str
    checkpoint: CheckpointFormat
    command: tuple[str, ...]
    model_id: str
    identify: tuple[str, ...]
    environment: Mapping[str, str]
    ready_path: str
    ready_timeout_s: float
    stop_timeout_s: float
    devices: Mapping[str, Device]
    variants: Mapping[str, Variant]
    notes: tuple[str, ...] = ()

    def device(self, name: str | None = None) -> Device:
        """The device named, or the first one. Raises RecipeInvalid if the recipe lacks it."""
        return _choose(self.devices, name, f"recipe {self.name}", "device")

    def variant(self, name: str | None = None) -> Variant:
        """The variant named, or the first one. Raises RecipeInvalid if the recipe lacks it."""
        return _choose(self.variants, name, f"recipe {self.name}", "variant")

    def venv(self, device: Device) -> Path:
        """The virtual environment that the install steps fill."""
        suffix = "" if device.name == next(iter(self.devices)) else f"-{device.name}"
        return servers_folder() / (self.name + suffix)


def cache_folder() -> Path:
    """Where isobatch keeps what can be made again: ``$XDG_CACHE_HOME/isobatch``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "isobatch"


def servers_folder() -> Path:
    """Where servers are installed, one virtual environment each."""
    return cache_folder() / "servers"


def recipe_names() -> tuple[str, ...]:
    """The recipes that come with isobatch."""
    folder = resources.files(__package__) / "recipes"
    return tuple(
        sorted(f.name.removesuffix(".toml") for f in folder.iterdir() if f.name.endswith(".toml"))
    )


def load_recipe(name: str) -> Recipe:
    """The recipe of that name, or the TOML file at that path. Raises RecipeInvalid."""
    if name.endswith(".toml"):
        try:
            text = Path(name).read_text("utf-8")
        except OSError as error:
            raise RecipeInvalid(f"cannot read the recipe {name}: {error.strerror}") from error
        return parse_recipe(text, name=Path(name).stem, source=name)
    if name not in recipe_names():
        known = ", ".join(recipe_names())
        raise RecipeInvalid(f"there is no recipe {name!r}; choose one of {known}, or a .toml file")
    text = (resources.files(__package__) / "recipes" / f"{name}.toml").read_text("utf-8")
    return parse_recipe(text, name=name, source=f"{name}.toml")


def parse_recipe(text: str, *, name: str, source: str) -> Recipe:
    """The recipe in ``text``. Raises RecipeInvalid, which names ``source`` and the wrong entry."""
    try:
        table = RecipeTable(tomllib.loads(text), source)
    except tomllib.TOMLDecodeError as error:
        raise RecipeInvalid(f"{source} is not TOML: {error}") from error
    recipe = Recipe(
        name=name,
        title=table.text("title"),
        homepage=table.text("homepage"),
        checkpoint=_checkpoint(table.text("checkpoint"), source),
        command=table.words("command"),
        model_id=table.text("model_id"),
        identify=table.words("identify"),
        environment=table.mapping("environment"),
        ready_path=table.text("ready_path"),
        ready_timeout_s=table.number("ready_timeout_s"),
        stop_timeout_s=table.number("stop_timeout_s", 15.0),
        devices={n: _device(n, t) for n, t in table.tables("devices")},
        variants={n: _variant(n, t) for n, t in table.tables("variants")},
        notes=table.words("notes", ()),
    )
    table.refuse_unknown()
    return recipe


def _checkpoint(text: str, source: str) -> CheckpointFormat:
    match text:
        case "safetensors" | "gguf":
            return text
    raise RecipeInvalid(f"{source}: checkpoint must be 'safetensors' or 'gguf'")


def _device(name: str, table: RecipeTable) -> Device:
    device = Device(
        name=name,
        install=table.steps("install"),
        install_environment=table.mapping("install_environment"),
        disk_gb=table.number("disk_gb"),
        install_minutes=table.number("install_minutes"),
        memory_gb=table.number("memory_gb"),
        tried=table.flag("tried"),
        arguments=table.words("arguments", ()),
        environment=table.mapping("environment"),
    )
    table.refuse_unknown()
    return device


def _variant(name: str, table: RecipeTable) -> Variant:
    variant = Variant(
        name=name,
        title=table.text("title"),
        dtype=table.text("dtype"),
        arguments=table.words("arguments", ()),
        environment=table.mapping("environment"),
    )
    table.refuse_unknown()
    return variant


def _choose(named: Mapping[str, _Named], name: str | None, owner: str, kind: str) -> _Named:
    if name is None:
        return next(iter(named.values()))
    if name not in named:
        raise RecipeInvalid(f"{owner} has no {kind} {name!r}; choose one of {', '.join(named)}")
    return named[name]

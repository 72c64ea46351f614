"""Named workloads: the TOML files beside this module, and recipes of the user's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Final

from workloads.recipe import Recipe


class _Shipped(Mapping[str, Recipe]):
    """The recipes that ship with the package, each read when asked for."""

    def __getitem__(self, name: str) -> Recipe:
        if name not in set(self):
            raise KeyError(name)
        text = resources.files(__name__).joinpath(f"{name}.toml").read_text("utf-8")
        return Recipe.from_toml(name, text)

    def __iter__(self) -> Iterator[str]:
        files = (f.name for f in resources.files(__name__).iterdir())
        return iter(sorted(n.removesuffix(".toml") for n in files if n.endswith(".toml")))

    def __len__(self) -> int:
        return sum(1 for _ in self)


PRESETS: Final[Mapping[str, Recipe]] = _Shipped()


def load_preset(name_or_path: str) -> Recipe:
    """A preset by name, or a recipe by the path of its TOML file.

    Raises ValueError with one sentence.
    """
    if name_or_path in PRESETS:
        return PRESETS[name_or_path]
    path = Path(name_or_path)
    if path.suffix == ".toml":
        try:
            return Recipe.from_toml(path.stem, path.read_text("utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"{path} cannot be read: {error}") from None
    known = ", ".join(PRESETS)
    raise ValueError(f"no preset {name_or_path!r}; known: {known}, or the path of a .toml file")

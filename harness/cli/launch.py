"""`isobatch launch RECIPE`: install, start and stop servers that others wrote."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.errors import UserError

if TYPE_CHECKING:
    from types import FrameType

    from harness.targets.recipe import Device, Recipe
    from harness.targets.start import RecipeServer


def command(
    recipe: Annotated[
        str | None, typer.Argument(help="A recipe's name (see --list) or a TOML file.")
    ] = None,
    variant: Annotated[
        str | None, typer.Option(help="Which variant; default: the recipe's first.")
    ] = None,
    model: Annotated[
        str,
        typer.Option(help="probe:VARIANT, a model's folder, or a name such as smollm2."),
    ] = "probe:eos",
    device: Annotated[
        str | None, typer.Option(help="cpu or cuda; default: the recipe's first.")
    ] = None,
    port: Annotated[int | None, typer.Option(help="Default: a free one.")] = None,
    list_recipes: Annotated[
        bool, typer.Option("--list", help="List recipes, their variants and what they need.")
    ] = False,
    install_only: Annotated[
        bool, typer.Option("--install", help="Install the server if it is not, and end.")
    ] = False,
) -> None:
    """Start a known inference server on a model, until Ctrl-C.

    Each server is installed into a virtual environment of its own, which no other tool uses. The
    last line printed when it is ready is the command that checks it.
    """
    from harness.targets.recipe import load_recipe
    from harness.targets.recipe_table import RecipeInvalid

    if list_recipes:
        _show_recipes()
        return
    if recipe is None:
        raise UserError("name a recipe; `isobatch launch --list` shows them")
    try:
        chosen = load_recipe(recipe)
        if install_only:
            _install(chosen, chosen.device(device))
        else:
            _serve(chosen, variant, model, device, port)
    except RecipeInvalid as error:
        raise UserError(str(error)) from None


def _install(recipe: Recipe, device: Device) -> None:
    from harness.targets.installation import install

    print(f"installed: {install(recipe, device)}")


def _serve(
    recipe: Recipe, variant: str | None, model: str, device: str | None, port: int | None
) -> None:
    from harness.targets.start import served_by_recipe

    signal.signal(signal.SIGTERM, _interrupt)
    with served_by_recipe(recipe, model=model, variant=variant, device=device, port=port) as server:
        _announce(server)
        while (status := server.exit_status()) is None:
            time.sleep(0.5)
        raise UserError(f"{recipe.title} ended by itself with status {status}; see {server.log}")


def _announce(server: RecipeServer) -> None:
    probe = server.checkpoint.probe
    oracle = f" --probe {server.probe_variant}" if probe else ""
    print(f"{server.version} is ready after {server.ready_after_s:.1f} s; Ctrl-C stops it")
    print(f"isobatch check {server.url} --model {server.model_id}{oracle}", flush=True)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _show_recipes() -> None:
    from harness.targets.installation import is_installed
    from harness.targets.recipe import load_recipe, recipe_names

    for name in recipe_names():
        recipe = load_recipe(name)
        print(f"{name}: {recipe.title}, {recipe.homepage}")
        for device in recipe.devices.values():
            state = "installed" if is_installed(recipe, device) else "not installed"
            needs = f"{device.disk_gb:g} GB, about {device.install_minutes:g} minutes to install"
            tried = "" if device.tried else ", not tried by this project"
            place = f"{needs}{tried} ({state})" if device.install else f"nothing to install{tried}"
            print(f"  on {device.name}: {place}")
        for variant in recipe.variants.values():
            print(f"  --variant {variant.name:<16} {variant.title}")

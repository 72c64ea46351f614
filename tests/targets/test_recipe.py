"""Recipes are read strictly: a typo is one sentence, and what comes with isobatch is complete."""

import pytest

from harness.targets.recipe import PLACEHOLDERS, load_recipe, parse_recipe, recipe_names
from harness.targets.recipe_table import RecipeInvalid

MINIMAL = """
title = "A server"
homepage = "https://example.org"
checkpoint = "safetensors"
model_id = "{model_name}"
command = ["server", "--port", "{port}"]
identify = ["server", "--version"]
ready_path = "/health"
ready_timeout_s = 5

[devices.cpu]
tried = true
disk_gb = 0
install_minutes = 0
memory_gb = 1
install = []

[variants.default]
title = "as it comes"
dtype = "float32"

[variants.small]
title = "small"
dtype = "bfloat16"
arguments = ["--small"]
"""


def test_variants_and_devices_are_found_by_name_and_the_first_is_the_default() -> None:
    recipe = parse_recipe(MINIMAL, name="a", source="a.toml")
    assert recipe.variant().name == "default"
    assert recipe.variant("small").arguments == ("--small",)
    assert recipe.device().name == "cpu"


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('title = "A server"', "", "a.toml: title must be a string"),
        ("ready_timeout_s = 5", "ready_timeout_s = -5", "ready_timeout_s must be a number, not"),
        ("ready_timeout_s = 5", "ready_timeout = 5", "ready_timeout_s must be a number"),
        ("tried = true", "tried = 1", r"\[devices.cpu\]: tried must be true or false"),
        ("install = []", 'install = ["pip"]', "install must be a list of commands"),
        ('arguments = ["--small"]', 'argument = ["x"]', r"small\] has unknown entries: argument"),
        ('"safetensors"', '"pickle"', "checkpoint must be 'safetensors' or 'gguf'"),
        ("[variants", "[[variants", "is not TOML"),
    ],
)
def test_a_typo_is_one_sentence(old: str, new: str, complaint: str) -> None:
    with pytest.raises(RecipeInvalid, match=complaint):
        parse_recipe(MINIMAL.replace(old, new, 1), name="a", source="a.toml")


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(RecipeInvalid, match=r"no recipe 'vlm'; choose one of .*vllm"):
        load_recipe("vlm")
    with pytest.raises(RecipeInvalid, match="has no variant 'tiny'"):
        parse_recipe(MINIMAL, name="a", source="a.toml").variant("tiny")
    with pytest.raises(RecipeInvalid, match="cannot read the recipe absent"):
        load_recipe("absent.toml")


@pytest.mark.parametrize("name", recipe_names())
def test_a_shipped_recipe_is_complete(name: str) -> None:
    """Every word is known, the model and port are passed on, and there is a choice of variants."""
    recipe = load_recipe(name)
    words = " ".join([*recipe.command, recipe.model_id])
    assert "{model}" in words
    assert "{port}" in words
    assert "{host}" in words
    assert len(recipe.variants) >= 3
    every_word = [words, *recipe.identify]
    every_word += [w for v in recipe.variants.values() for w in v.arguments]
    every_word += [w for d in recipe.devices.values() for step in d.install for w in step]
    for text in every_word:
        for placeholder in PLACEHOLDERS:
            text = text.replace("{" + placeholder + "}", "")
        assert "{" not in text.replace("{d.name}", "").replace("{d.version}", ""), text

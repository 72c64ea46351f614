"""The server that `isobatch check` judges: one that runs already, or one started from a recipe."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from harness.cli.errors import UserError

if TYPE_CHECKING:
    from harness.targets.http import HttpTarget

DEFAULT_MODEL = "probe:eos"
LONGEST_REQUEST_S = 180.0
"""What a check asks for is short: a stream that still goes on after this will not end."""


@dataclass(frozen=True, slots=True)
class ServerUnderTest:
    """Where it is, the model id to ask for, and what is known of it.

    ``probe`` is the folder of the checkpoint that a launched server serves, if it is a probe;
    ``reference`` the folder if it is none.
    ``facts`` go into the run's document.
    """

    url: str
    model: str | None
    probe: str | None = None
    reference: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def given(cls, url: str | None, model: str | None) -> Self:
        """A running server. Raises UserError without a URL."""
        if url is None:
            raise UserError("give the server's URL, or --launch RECIPE to start one")
        return cls(url, model)

    @classmethod
    def launched(
        cls,
        stack: ExitStack,
        recipe: str,
        variant: str | None,
        device: str | None,
        url: str | None,
        model: str | None,
    ) -> Self:
        """A server started now and stopped when ``stack`` closes.

        Raises UserError, TargetUnusable.
        """
        from harness.targets.recipe import load_recipe
        from harness.targets.recipe_table import RecipeInvalid
        from harness.targets.start import served_by_recipe

        if url is not None:
            raise UserError("give either a URL or --launch RECIPE, not both")
        try:
            server = stack.enter_context(
                served_by_recipe(
                    load_recipe(recipe),
                    model=model or DEFAULT_MODEL,
                    variant=variant,
                    device=device,
                )
            )
        except RecipeInvalid as error:
            raise UserError(str(error)) from None
        folder = str(server.checkpoint.folder)
        return cls(
            server.url,
            server.model_id,
            probe=folder if server.checkpoint.probe is not None else None,
            reference=folder if server.checkpoint.probe is None else None,
            facts=server.describe(),
        )

    def target(
        self, api_key: str | None, headers: Mapping[str, str], params: Mapping[str, Any]
    ) -> HttpTarget:
        """A new target for it."""
        from harness.client.limits import Limits
        from harness.targets.http import HttpTarget

        return HttpTarget(
            self.url,
            model=self.model,
            api_key=api_key,
            headers=headers,
            extra_params=params,
            limits=Limits(total_s=LONGEST_REQUEST_S),
        )

"""The OpenAPI document is committed, true, and covers every route; schemathesis tries it out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from reference_engine.server.openapi import COMMITTED, openapi_document, render
from tests.server.conftest import Running
from tests.server.served_process import served_process

SCHEMA = schemathesis.openapi.from_dict(openapi_document())
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


def test_the_committed_document_is_the_one_that_the_tables_make() -> None:
    assert COMMITTED.read_text() == render(openapi_document()), (
        "run: python -c 'from reference_engine.server.openapi import write; write()'"
    )


async def test_every_route_is_documented(running: Running) -> None:
    async with running.client.get(running.url + "/openapi.json") as response:
        document = await response.json()
    from reference_engine.server.app import create_app

    routes = {
        resource.canonical
        for resource in create_app(running.served).router.resources()
        if not resource.canonical.startswith(("/debug", "/openapi"))
    }
    assert set(document["paths"]) == routes


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server over the fake engine in a process of its own."""
    with served_process("tests.server.fake_server", "0", "30") as served:
        yield served.url


@pytest.mark.slow
@SCHEMA.parametrize()
@settings(
    max_examples=60,
    derandomize=True,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
def test_no_server_error_and_no_undocumented_status(case: Any, url: str) -> None:
    case.call_and_validate(base_url=url, checks=CHECKS)


def test_the_document_names_a_field_for_every_row_of_the_tables() -> None:
    document = json.loads(COMMITTED.read_text())
    body = document["paths"]["/v1/completions"]["post"]["requestBody"]
    fields = body["content"]["application/json"]["schema"]["properties"]
    assert {"prompt", "max_tokens", "stop", "seed", "logit_bias", "cache_salt"} <= set(fields)
    assert fields["temperature"]["anyOf"][0] == {"type": "number", "minimum": 0, "maximum": 2}

"""What the server says about itself."""

from __future__ import annotations

import dataclasses
import json
from importlib.metadata import version
from pathlib import Path

from reference_engine.server.metrics import ENGINE_METRICS
from reference_engine.server.run import served_name
from tests.server.conftest import MAX_CONTEXT_TOKENS, MODEL, Running


async def test_the_model_card(running: Running) -> None:
    async with running.client.get(running.url + "/v1/models") as response:
        [card] = (await response.json())["data"]
    assert card["id"] == MODEL
    assert card["max_model_len"] == MAX_CONTEXT_TOKENS
    assert card["dtype"] == "float32"
    async with running.client.get(f"{running.url}/v1/models/{MODEL}") as response:
        assert await response.json() == card
    async with running.client.get(f"{running.url}/v1/models/other") as response:
        assert response.status == 404
        assert (await response.json())["error"]["code"] == "model_not_found"


async def test_a_cache_smaller_than_the_context_is_the_limit_that_is_told(running: Running) -> None:
    facts = running.served.facts
    assert facts is not None
    running.served.facts = dataclasses.replace(facts, max_request_tokens=40)
    async with running.client.get(running.url + "/v1/models") as response:
        [card] = (await response.json())["data"]
    assert card["max_model_len"] == 40


async def test_version_and_health(running: Running) -> None:
    async with running.client.get(running.url + "/version") as response:
        assert await response.json() == {"version": version("isobatch")}
    async with running.client.get(running.url + "/health") as response:
        assert response.status == 200
        assert await response.json() == {"status": "ready"}


def test_the_served_name_is_the_probes_or_the_folders(tmp_path: Path) -> None:
    folder = tmp_path / "some-model"
    folder.mkdir()
    assert served_name(folder) == "some-model"
    (folder / "probe.json").write_text(json.dumps({"config": {"name": "a-probe"}}))
    assert served_name(folder) == "a-probe"


async def test_metrics_are_read_as_prometheus_reads_them(running: Running) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    await running.post("/v1/completions", prompt=[1, 50], max_tokens=5)
    async with running.client.get(running.url + "/metrics") as response:
        assert response.headers["Content-Type"].startswith("text/plain")
        families = list(text_string_to_metric_families(await response.text()))
    samples = {
        sample.name: sample.value
        for family in families
        for sample in family.samples
        if not sample.labels
    }
    assert samples["isobatch_time_to_first_token_seconds_count"] == 1
    assert samples["isobatch_inter_token_latency_seconds_count"] == 4
    assert samples["isobatch_generation_tokens_total"] == 5
    assert samples["isobatch_num_requests_running"] == 0
    assert samples["isobatch_live_requests"] == 0
    assert "isobatch_num_preemptions_total" in samples
    assert "isobatch_prefix_cache_hits_total" in samples


def test_every_engine_metric_is_a_number_that_the_engine_has() -> None:
    from reference_engine.audit import EngineStats

    known = {field.name for field in dataclasses.fields(EngineStats)}
    assert {metric.attribute for metric in ENGINE_METRICS} <= known
    names = [metric.name for metric in ENGINE_METRICS]
    assert len(names) == len(set(names))

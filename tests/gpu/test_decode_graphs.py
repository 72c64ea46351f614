"""Decode graphs, run without capture on a CPU: the same function on the same buffers."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import torch

from reference_engine.decode_graphs import DecodeGraphs
from reference_engine.engine import Engine, EngineConfig
from reference_engine.kv_store import PagedStore
from reference_engine.request import Request, SamplingParams
from reference_engine.solo import solo
from tests.engine.families import exact
from tests.engine.tiny import VOCAB, drain, tiny_model
from tests.gpu.drawn import (
    assert_drawn_runs_are_solo,
    assert_happened,
    assert_solo,
    crowded_run,
)
from tests.gpu.test_flash import BACKENDS

CONFIG = EngineConfig(page_size=8, num_pages=200, token_budget=64, max_num_seqs=24)


def requests(count: int) -> list[Request]:
    return [
        Request(
            f"r{i}",
            tuple(3 + (i * 31 + j * j * 7) % (VOCAB - 3) for j in range(1 + (7 * i) % 23)),
            SamplingParams(max_tokens=3 + i % 4, logprobs=2, ignore_eos=True),
        )
        for i in range(count)
    ]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 8, 9, 17, 24])
def test_a_graph_of_every_bucket_has_the_bits_of_the_plain_path(count: int) -> None:
    """At bucket sizes and one beside them; and every page but the trash holds the same bits."""
    plain = Engine(tiny_model(), CONFIG)
    graphs = Engine(tiny_model(), replace(CONFIG, decode_graphs=True))
    assert drain(plain, requests(count)) == drain(graphs, requests(count))
    assert graphs.stats().graph_steps_total > 0
    assert plain.stats().graph_steps_total == 0
    trash = CONFIG.num_pages * CONFIG.page_size
    for layer in range(2):
        stores = [engine.parts["store"] for engine in (plain, graphs)]
        pairs = [store.rows(layer) for store in stores if isinstance(store, PagedStore)]
        for before, after in zip(*pairs, strict=True):
            assert torch.equal(before[:, :trash], after[:, :trash])


HARD = ("preemptions", "prefix_hits", "cancelled", "graph_steps", "padding_tokens_spent")


def test_graphs_hold_the_contract_in_a_crowd() -> None:
    """Preemption, prefix hits, forks and a cancelled request: every answer is that of `solo`."""
    assert_happened(assert_solo(crowded_run(decode_graphs=True)), *HARD)


@pytest.mark.slow
def test_graphs_hold_the_contract_in_drawn_runs() -> None:
    """The same in drawn runs, with windows and experts too."""
    assert_happened(assert_drawn_runs_are_solo(60, decode_graphs=True), *HARD)


@pytest.mark.parametrize("version", ["2", "3"])
def test_flash_attention_runs_from_fixed_tables(version: str) -> None:
    """What the library is told in a graph is what it is told outside of one, window or not."""
    from reference_engine.model import LoadedModel

    for name in ("llama", "mistral-window"):
        import copy

        from tests.engine.families import original

        model = LoadedModel(copy.deepcopy(original(name)), attention=BACKENDS[version])
        config = EngineConfig(page_size=256, num_pages=9, token_budget=48, max_num_seqs=4)
        engine = Engine(model, replace(config, decode_graphs=True))
        answers = drain(engine, requests(5))
        assert engine.stats().graph_steps_total > 0
        for request in requests(5):
            assert answers[request.request_id, 0].token_ids == solo(model, request)[0].token_ids


def test_a_buffer_that_is_not_overwritten_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The replay reads the buffers and nothing else: stale ones change the answer."""
    fill, calls = DecodeGraphs._fill, Counter[str]()

    def first_step_only(self, inputs, sequences):  # type: ignore[no-untyped-def]
        calls["fill"] += 1
        if calls["fill"] == 1:
            fill(self, inputs, sequences)

    monkeypatch.setattr(DecodeGraphs, "_fill", first_step_only)
    [request] = requests(1)
    got = drain(Engine(tiny_model(), replace(CONFIG, decode_graphs=True)), [request])
    assert got[request.request_id, 0] != solo(tiny_model(), request)[0]


def test_a_model_that_cannot_be_captured_is_refused_by_name() -> None:
    from reference_engine.decode_graphs import CudaCapture

    model = exact("mixtral")
    store = Engine(model, CONFIG).parts["store"]
    assert isinstance(store, PagedStore)
    with pytest.raises(ValueError, match="mixtral has mixture-of-experts layers"):
        DecodeGraphs(
            model,
            store,
            sizes=(1,),
            page_size=8,
            widths=(4,),
            capture=CudaCapture(torch.device("cpu")),
        )


def test_graphs_are_off_on_a_cpu_unless_asked_for() -> None:
    assert Engine(tiny_model(), CONFIG)._graphs is None

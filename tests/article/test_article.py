"""The article's claims, as far as they are arithmetic, hold on the engine; its page is complete."""

from pathlib import Path

import numpy as np
import pytest

from harness.article.article_run import FEW_REQUESTS, find_out, metric_rows, write_article
from harness.article.experiments import LLAMA_2_7B, padding
from harness.article.findings import Findings
from harness.article.masks import padded_mask
from harness.article.policies import ragged_lengths
from harness.article.trial import request
from harness.results import RunFolder, read_result
from reference_engine.model import LoadedModel, load_model
from reference_engine.probe import VARIANTS, Rule, export_probe


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return load_model(export_probe(VARIANTS["plain"], tmp_path_factory.mktemp("m") / "probe"))


@pytest.fixture(scope="module")
def found(model: LoadedModel) -> Findings:
    return find_out(model, "probe", lambda _line: None, thorough=False)


def test_padding_wastes_what_the_formula_says(model: LoadedModel) -> None:
    """(n - 1)(B - 1): 693 rows for a prompt of 100 joining 7 streams, counted in the engine."""
    counted = padding(model, streams=8, prompt_tokens=100, repeats=1)
    assert (counted.ragged_rows, counted.padded_rows, counted.wasted) == (107, 800, 693)


def test_the_cache_takes_what_the_formula_says(found: Findings) -> None:
    """16 KiB a layer and 512 KiB in all for Llama-2-7B; and ours is what the engine allocates."""
    assert (LLAMA_2_7B.per_layer, LLAMA_2_7B.per_token) == (16 * 1024, 512 * 1024)
    ours = found.cache_sizes[0]
    assert ours.measured == ours.per_token


def test_chunks_fit_the_budget_and_change_nothing(found: Findings) -> None:
    """n tokens in m-token pieces: as few pieces as fit, never more rows than the budget."""
    for chunk in found.chunked:
        assert sum(chunk.chunks) == chunk.prompt_tokens
        assert len(chunk.chunks) == -(-chunk.prompt_tokens // chunk.budget)
        assert chunk.peak_rows <= chunk.budget
        assert chunk.same_answer


def test_every_policy_answers_everything_and_pays_for_padding(found: Findings) -> None:
    """Continuous computes no row for nobody: as many as one at a time, in fewer steps."""
    alone, static, dynamic, continuous = found.policies
    assert continuous.rows == alone.rows
    assert continuous.steps < alone.steps
    assert static.rows > continuous.rows
    assert dynamic.rows > continuous.rows
    assert {p.useful_tokens for p in found.policies} == {
        sum(o for _, o in ragged_lengths(FEW_REQUESTS))
    }


def test_the_engine_answers_rightly_while_it_is_measured(
    found: Findings, model: LoadedModel
) -> None:
    """A fast wrong engine would be no finding: the continuous run's tokens are the rule's."""
    rule = Rule(VARIANTS["plain"])
    for number, (prompt, output) in enumerate(ragged_lengths(FEW_REQUESTS)):
        asked = request(f"r{number}", prompt, output, model)
        right = rule.generate(asked.prompt_ids, output, ignore_eos=True)
        assert found.continuous.answers[f"r{number}"] == list(right.token_ids)


def test_padding_sees_nothing_and_is_seen_by_nobody() -> None:
    """The padded mask: the ragged masks with empty rows and columns between them."""
    _, mask = padded_mask((2, 3))
    assert mask.shape == (6, 6)
    assert not mask[0].any()
    assert not mask[:, 0].any()
    assert np.array_equal(mask[1:3, 1:3], np.tril(np.ones((2, 2), bool)))
    assert np.array_equal(mask[3:, 3:], np.tril(np.ones((3, 3), bool)))


def test_the_page_has_every_claim_and_the_document_every_number(
    found: Findings, model: LoadedModel, tmp_path: Path
) -> None:
    """One file, no outside reference; the metrics hold what the page says."""
    with RunFolder.create(tmp_path, kind="article", command=["isobatch", "article"]) as run:
        write_article(run, model, found)
    page = (run.path / "article.html").read_text()
    assert page.count("<svg ") == 4 + 5 + 4
    for claim in ("= 38 rows", "512 KiB", "Same answer", "one at a time", "[", "first token took"):
        assert claim in page
    assert "NO" not in page.split("Same answer")[1].split("</table>")[0]
    rows = {(m["id"], m["statistic"]) for m in read_result(run.path)["metrics"]}
    assert ("article.padding_rows_wasted", "value") in rows
    assert ("article.policy_rate", "continuous") in rows
    assert len(metric_rows(found)) >= len(rows)

"""The whole engine on the kernels of CUDA, interpreted where there is no CUDA device."""

from __future__ import annotations

from functools import cache

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed; the extra `gpu` brings it")

from reference_engine.attention.exact import AttentionStep
from reference_engine.attention.paged_triton import PagedTritonAttention
from reference_engine.batch import BatchBuilder, BatchSequence
from reference_engine.engine import Engine, EngineConfig
from reference_engine.model import LoadedModel
from reference_engine.request import Request, SamplingParams
from reference_engine.row_kernels import choose_kernels
from reference_engine.self_test import compare_backend
from reference_engine.solo import solo
from reference_engine.triton_rows import TritonKernels, TritonWeight
from tests.engine.test_mask import HEAD_DIM, _filled_store, _plain_attention
from tests.engine.tiny import VOCAB, drain
from tests.gpu.conftest import HAS_GPU

DEVICE = torch.device("cuda" if HAS_GPU else "cpu")


@cache
def triton_model() -> LoadedModel:
    """One narrow layer with every reduction in Triton: an interpreter is slow."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=256,
        initializer_range=0.5,
        eos_token_id=2,
    )
    model = LlamaForCausalLM(config).eval().to(DEVICE)
    return LoadedModel(model, kernels=TritonKernels(), attention=PagedTritonAttention(DEVICE))


@cache
def answers_alone() -> tuple[tuple[Request, object], ...]:
    requests = [
        Request(
            f"r{i}",
            tuple(3 + (i * 31 + j * j * 7) % (VOCAB - 3) for j in range(length)),
            SamplingParams(max_tokens=tokens, logprobs=1, ignore_eos=True),
        )
        for i, (length, tokens) in enumerate(((2, 5), (3, 4), (9, 1)))
    ]
    return tuple((request, solo(triton_model(), request)[0]) for request in requests)


@pytest.mark.slow  # interpreted
@pytest.mark.parametrize(
    "config",
    [
        EngineConfig(page_size=8, num_pages=40, token_budget=64),
        EngineConfig(page_size=2, num_pages=6, token_budget=5, poison_freed_pages=True),
    ],
    ids=["one-batch", "chunks-and-preemption"],
)
def test_an_engine_on_triton_has_the_bits_of_its_solo(config: EngineConfig) -> None:
    engine = Engine(triton_model(), config)
    answers = drain(engine, [request for request, _ in answers_alone()])
    for request, expected in answers_alone():
        assert answers[request.request_id, 0] == expected
    if config.num_pages < 10:
        stats = engine.stats()
        assert stats.preemptions_total > 0, "nobody was preempted"
        assert stats.prefill_chunks_total > 3, "no prompt was cut"


def test_every_linear_and_norm_of_the_model_is_in_triton() -> None:
    from reference_engine.exact_modules import ExactLinear, ExactRMSNorm

    kinds = [m for m in triton_model()._model.modules() if isinstance(m, ExactLinear)]
    assert len(kinds) == 8
    assert all(type(m.matrix) is TritonWeight for m in kinds)
    norms = [m for m in triton_model()._model.modules() if isinstance(m, ExactRMSNorm)]
    assert len(norms) == 3
    assert all(m.kernels.name == "triton" for m in norms)


@pytest.mark.parametrize(("window", "softcap"), [(None, None), (5, 30.0), (66, None)])
def test_paged_triton_attention_is_the_dense_mask(
    window: int | None, softcap: float | None
) -> None:
    """A chunk across a key block and a decode, on shuffled pages, against fp64."""
    batch = BatchBuilder(16).build(
        [BatchSequence((1, 2, 3), 63, [[3, 1, 2, 5, 4, 6]]), BatchSequence((1,), 5, [[7]])]
    )
    store, queries, keys, values = _filled_store(batch)
    step = AttentionStep(batch, store, PagedTritonAttention(torch.device("cpu")))
    if HAS_GPU:
        pytest.skip("the store of this test is on the CPU; the interpreter covers it")
    got = step.attend(
        0, queries, keys, values, scaling=HEAD_DIM**-0.5, window=window, softcap=softcap
    )
    expected = _plain_attention(batch, store, queries, window, softcap, HEAD_DIM**-0.5)
    torch.testing.assert_close(got.double(), expected, rtol=1e-5, atol=1e-5)


def test_the_start_up_test_of_a_backend_finds_company_that_matters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from reference_engine.self_test import InexactArithmetic

    generator = torch.Generator().manual_seed(0)

    def inexact(self, plan, source, layer, queries, **settings):  # type: ignore[no-untyped-def]
        out = queries.transpose(0, 1) * settings["scaling"]
        return out if queries.shape[1] == 1 else out * (1 + 2**-23)

    monkeypatch.setattr(PagedTritonAttention, "attend", inexact)
    with pytest.raises(InexactArithmetic, match="triton attention with 1 key heads of 16"):
        compare_backend(triton_model(), 2, 1, 16, generator)


def test_a_cpu_is_given_torch_and_cuda_triton() -> None:
    assert choose_kernels(torch.device("cpu")).name == "torch"
    assert choose_kernels(torch.device("cuda", 0)).name == "triton"


@pytest.mark.parametrize("width", [1, 33, 64])
def test_layer_norm_agrees_with_torch_and_rows_stand_alone(width: int) -> None:
    generator = torch.Generator().manual_seed(width)
    x, scale, shift = (torch.randn(n, width, generator=generator) for n in (5, 1, 1))
    on_device = [t.to(DEVICE) for t in (x, scale[0], shift[0])]
    kernels = TritonKernels()
    got = kernels.layer_norm(*on_device, 1e-5)
    expected = torch.nn.functional.layer_norm(x, (width,), scale[0], shift[0], 1e-5)
    torch.testing.assert_close(got.cpu(), expected, rtol=1e-5, atol=1e-5)
    alone = kernels.layer_norm(on_device[0][4:], *on_device[1:], 1e-5)
    assert torch.equal(alone[0], got[4])

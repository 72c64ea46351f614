"""A Hugging Face folder of the llama or Qwen2 architecture as a GGUF file.

GGUF's llama layout interleaves the rotary pairs, so the rows of q and k are permuted (llama.cpp's
own converter does the same); Qwen2's does not. Neither has sliding windows in llama.cpp. The
tokenizer must be byte-level BPE, as its `tokenizer.json` says.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# What most tensors are stored as, by its name in `gguf.GGMLQuantizationType`, and the file's type
# in `gguf.LlamaFileType`. Q8_0, Q5_0 and Q4_0 scale every 32 numbers of so many bits together.
_TENSOR_TYPES: Final = {
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "q8_0": "Q8_0",
    "q5_0": "Q5_0",
    "q4_0": "Q4_0",
}
_FILE_TYPES: Final = {
    "float32": "ALL_F32",
    "float16": "MOSTLY_F16",
    "bfloat16": "MOSTLY_BF16",
    "q8_0": "MOSTLY_Q8_0",
    "q5_0": "MOSTLY_Q5_0",
    "q4_0": "MOSTLY_Q4_0",
}
GGUF_DTYPES: Final = tuple(_TENSOR_TYPES)
_LAYER_NAMES: Final = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_OTHER_NAMES: Final = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}


class NotConvertible(ValueError):
    """The folder holds something this converter does not write; the message says what."""


def write_gguf(folder: Path, target: Path, dtype: str) -> Path:
    """Write ``folder`` to ``target`` in ``dtype``, one of `GGUF_DTYPES`; ``target``.

    Raises NotConvertible for another architecture, a sliding window, another kind of tokenizer or
    another dtype.
    """
    import gguf

    if dtype not in GGUF_DTYPES:
        raise NotConvertible(f"dtype {dtype!r} is none of {', '.join(GGUF_DTYPES)}")
    config = json.loads((folder / "config.json").read_text("utf-8"))
    architecture = _architecture(folder, config)
    partial = target.with_suffix(".partial")
    writer = gguf.GGUFWriter(partial, architecture)
    writer.add_name(folder.name)
    writer.add_file_type(getattr(gguf.LlamaFileType, _FILE_TYPES[dtype]))
    _add_shape(writer, config)
    _add_tokenizer(writer, folder, config)
    kind = getattr(gguf.GGMLQuantizationType, _TENSOR_TYPES[dtype])
    for name, tensor in _tensors(folder, config):
        # llama.cpp wants vectors in fp32 whatever the file's type.
        stored = kind if tensor.ndim > 1 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(name, gguf.quants.quantize(tensor, stored), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return partial.rename(target)


def _architecture(folder: Path, config: Mapping[str, Any]) -> str:
    """What GGUF calls it. Raises NotConvertible."""
    kind = str(config.get("model_type"))
    if kind == "mistral" or (kind == "qwen2" and config.get("use_sliding_window")):
        raise NotConvertible(
            f"{folder.name} has sliding windows, which llama.cpp does not have for {kind} models; "
            "choose a model without"
        )
    if kind not in ("llama", "qwen2") or config.get("attention_bias"):
        raise NotConvertible(
            f"{folder} is no plain llama or qwen2 model; convert it with llama.cpp's "
            "convert_hf_to_gguf.py and give the .gguf file"
        )
    return kind


def _add_shape(writer: Any, config: Mapping[str, Any]) -> None:
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    rope = config.get("rope_parameters") or {}
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    writer.add_rope_freq_base(float(rope.get("rope_theta") or config["rope_theta"]))
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])


def _add_tokenizer(writer: Any, folder: Path, config: Mapping[str, Any]) -> None:
    import gguf

    document = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    model = document["model"]
    pre_tokenizer = document.get("pre_tokenizer") or {}
    if model.get("type") != "BPE" or pre_tokenizer.get("type") != "ByteLevel":
        raise NotConvertible(f"the tokenizer of {folder} is not byte-level BPE")
    added = {token["id"]: token for token in document["added_tokens"]}
    names = {index: token for token, index in model["vocab"].items()}
    names.update({index: token["content"] for index, token in added.items()})
    tokens = [names.get(index, f"[PAD{index}]") for index in range(config["vocab_size"])]
    special = {index for index, token in added.items() if token["special"]}
    kinds = [_token_kind(index, special, added, names) for index in range(len(tokens))]
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([getattr(gguf.TokenType, kind) for kind in kinds])
    # An empty list cannot be stored; a merge of two whole tokens never applies.
    writer.add_token_merges(merges or [f"{tokens[-2]} {tokens[-1]}"])
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])
    if config.get("pad_token_id") is not None:
        writer.add_pad_token_id(config["pad_token_id"])
    writer.add_add_bos_token(_adds_bos(document, tokens[config["bos_token_id"]]))
    template = folder / "chat_template.jinja"
    if template.is_file():
        writer.add_chat_template(template.read_text("utf-8"))


def _token_kind(
    index: int, special: set[int], added: Mapping[int, Any], names: Mapping[int, str]
) -> str:
    if index in special:
        return "CONTROL"
    if index in added:
        return "USER_DEFINED"
    return "NORMAL" if index in names else "UNUSED"


def _adds_bos(document: Mapping[str, Any], bos: str) -> bool:
    template = (document.get("post_processor") or {}).get("single", [])
    return any(part.get("SpecialToken", {}).get("id") == bos for part in template)


def _tensors(folder: Path, config: Mapping[str, Any]) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Each tensor under its GGUF name, in fp32."""
    from safetensors import safe_open

    heads = {
        "attn_q": config["num_attention_heads"],
        "attn_k": config["num_key_value_heads"],
    }
    if config["model_type"] != "llama":
        heads = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as weights:
            for name in weights.keys():  # noqa: SIM118 (not a mapping)
                array = weights.get_tensor(name).float().numpy()
                renamed = _gguf_name(name)
                kind = renamed.split(".")[-2]
                yield renamed, _interleaved(array, heads[kind]) if kind in heads else array


def _gguf_name(name: str) -> str:
    stem, _, ending = name.rpartition(".")
    if stem in _OTHER_NAMES:
        return f"{_OTHER_NAMES[stem]}.{ending}"
    _, _, rest = stem.partition("model.layers.")
    layer, _, part = rest.partition(".")
    if part not in _LAYER_NAMES:
        raise NotConvertible(f"no GGUF name is known for the tensor {name}")
    return f"blk.{layer}.{_LAYER_NAMES[part]}.{ending}"


def _interleaved(rows: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Rows of each head from halves (rotate-half) to pairs: [heads * head_dim, hidden]."""
    halves = rows.reshape(heads, 2, rows.shape[0] // heads // 2, rows.shape[1])
    return halves.swapaxes(1, 2).reshape(rows.shape)

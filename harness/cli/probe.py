"""`isobatch probe`: build probe checkpoints and ask the integer rule for answers."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli import probe_proof, probe_readout, probe_sensitivity
from harness.cli.errors import UserError

if TYPE_CHECKING:
    from reference_engine.probe import ProbeConfig

app = typer.Typer()

Variant = Annotated[
    str, typer.Option("--variant", help="Which probe; `isobatch list` names the variants.")
]


@app.command("export")
def export(
    directory: Annotated[
        Path, typer.Argument(help="The folder to write, made if missing; or a file NAME.gguf.")
    ],
    variant: Variant = "eos",
    dtype: Annotated[
        str,
        typer.Option(help="How weights are stored: float32, bfloat16, float16; a .gguf also q8_0."),
    ] = "float32",
    force: Annotated[
        bool, typer.Option("--force", help="Write into a folder that already has files.")
    ] = False,
) -> None:
    """Write a probe checkpoint as a Hugging Face folder that any engine loads, or as a GGUF file.

    The same variant and dtype give the same bytes every time.
    """
    from reference_engine.probe import ExportRefused, export_probe

    config = _variant(variant)
    if directory.suffix == ".gguf":
        _export_gguf(config, directory, dtype, force)
        return
    if directory.is_file():
        raise UserError(f"{directory} is a file; name a folder")
    if directory.is_dir() and any(directory.iterdir()) and not force:
        raise UserError(f"{directory} is not empty; name another folder or add --force")
    try:
        folder = export_probe(config, directory, dtype)
    except ExportRefused as error:
        raise UserError(f"{error}") from None
    size_mb = (folder / "model.safetensors").stat().st_size / 1e6
    print(f"{folder}: {config.name} in {dtype}, {size_mb:.1f} MB of weights")
    print(f"serve it under the name {config.name}, up to {config.max_context_tokens} tokens")


def _export_gguf(config: ProbeConfig, target: Path, dtype: str, force: bool) -> None:
    """The probe as one file for llama.cpp. Raises UserError."""
    from harness.targets.gguf_file import GGUF_DTYPES, NotConvertible, write_gguf
    from reference_engine.probe import ExportRefused, export_probe

    if target.exists() and not force:
        raise UserError(f"{target} exists; name another file or add --force")
    with tempfile.TemporaryDirectory() as scratch:
        try:
            whole = "float32" if dtype in GGUF_DTYPES else dtype
            folder = export_probe(config, Path(scratch) / config.name, whole)
            write_gguf(folder, target, dtype)
        except (ExportRefused, NotConvertible) as error:
            raise UserError(f"{error}") from None
        except OSError as error:
            raise UserError(f"cannot write {target}: {error.strerror}") from None
    print(f"{target}: {config.name} in {dtype}, {target.stat().st_size / 1e6:.1f} MB")


@app.command("expect")
def expect(
    prompt_ids: Annotated[
        str | None, typer.Option(help="Token ids, comma-separated; BOS (1) comes first.")
    ] = None,
    text: Annotated[
        str | None, typer.Option(help="A prompt as text instead; BOS is added.")
    ] = None,
    tokens: Annotated[int, typer.Option(min=1, help="How many tokens at most.")] = 16,
    variant: Variant = "eos",
    ignore_eos: Annotated[
        bool, typer.Option("--ignore-eos", help="Go on after EOS, as servers do on request.")
    ] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Add the sums and symbols behind each token.")
    ] = False,
) -> None:
    """Print, as JSON, what a right server answers to a prompt at temperature 0."""
    from reference_engine.probe import Rule, decode_tokens, encode_text

    config = _variant(variant)
    if (prompt_ids is None) == (text is None):
        raise UserError("give the prompt once: --prompt-ids 1,17,42 or --text 'some text'")
    ids = encode_text(config, text) if text is not None else _ids(prompt_ids or "")
    if len(ids) + tokens > config.max_context_tokens:
        raise UserError(
            f"{len(ids)} prompt tokens and {tokens} more exceed the probe's context of "
            f"{config.max_context_tokens}; ask for fewer"
        )
    rule = Rule(config)
    try:
        answer = rule.generate(ids, tokens, ignore_eos=ignore_eos)
    except ValueError as error:
        raise UserError(f"{error}") from None
    document: dict[str, Any] = {
        "model": config.name,
        "prompt_ids": ids,
        "token_ids": list(answer.token_ids),
        "text": decode_tokens(config, answer.token_ids).decode("utf-8", errors="replace"),
        "finish_reason": answer.finish_reason,
    }
    if explain:
        document["steps"] = [
            step.to_json() for step in rule.explain([*ids, *answer.token_ids[:-1]], len(ids) - 1)
        ]
    print(json.dumps(document))


app.command("sensitivity")(probe_sensitivity.command)
app.command("prove")(probe_proof.command)
app.command("readout")(probe_readout.command)


def _variant(name: str) -> ProbeConfig:
    from reference_engine.probe import VARIANTS

    if name not in VARIANTS:
        raise UserError(f"no probe variant {name!r}: choose from {', '.join(VARIANTS)}")
    return VARIANTS[name]


def _ids(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise UserError(
            f"--prompt-ids {text!r} is not a list of numbers; write them as 1,17,42"
        ) from None

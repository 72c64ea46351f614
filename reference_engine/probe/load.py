"""Recognise an exported probe by its ``probe.json``."""

from __future__ import annotations

import json
from pathlib import Path

from reference_engine.probe.config import FORMAT, ProbeConfig
from reference_engine.probe.export import PROBE_FILE


class NotAProbe(ValueError):
    """The folder holds no probe checkpoint; the message says which file was looked for."""


def load_probe_config(directory: str | Path) -> ProbeConfig:
    """The configuration of the probe exported into ``directory``. Raises NotAProbe."""
    path = Path(directory) / PROBE_FILE
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise NotAProbe(f"no probe in {directory}: {path}: {error.strerror}") from None
    except ValueError as error:
        raise NotAProbe(f"{path} is not JSON: {error}") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise NotAProbe(
            f"{path} is not a probe description of format {FORMAT}; export the probe again"
        )
    try:
        return ProbeConfig.from_json(document["config"])
    except (KeyError, ValueError) as error:
        raise NotAProbe(f"{path}: {error}") from None

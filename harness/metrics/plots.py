"""The pictures of a measured run as files: distributions, and throughput with open streams."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.metrics.samples import samples
from harness.transcript import RequestTranscript

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_all(requests: Sequence[RequestTranscript], folder: Path) -> list[Path]:
    """Write ``ttft``, ``gap`` and ``streams`` as .svg and .png; those that have samples.

    Raises OSError if the folder cannot be written.
    """
    from harness.report.theme import LIGHT, VARIABLES, standalone_svg

    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, figure in _figures(requests):
        svg = folder / f"{name}.svg"
        svg.write_text(standalone_svg(figure, name), encoding="utf-8")
        png = folder / f"{name}.png"
        _recolour(figure, {ink: LIGHT[variable] for ink, variable in VARIABLES.items()})
        figure.savefig(png, dpi=150, facecolor=LIGHT["--paper"])
        written += [svg, png]
    return written


def _figures(requests: Sequence[RequestTranscript]) -> Iterator[tuple[str, Figure]]:
    from harness.report.distribution_figure import distribution_figure
    from harness.report.throughput_figure import throughput_figure

    found = samples(requests)
    ttft = {n: found[n] for n in ("ttft.response", "ttft.service") if found[n]}
    if ttft:
        yield "ttft", distribution_figure(ttft, axis_label="time to first token, ms")
    if found["chunk_gap"]:
        gaps = {"chunk_gap": found["chunk_gap"]}
        yield "gap", distribution_figure(gaps, axis_label="gap between chunks, ms")
    chunks = [
        (chunk.t_s, chunk.tokens or 1)
        for request in requests
        for choice in request.choices.values()
        for chunk in choice.chunks
    ]
    streams = [(r.t_sent_s, r.t_end_s) for r in requests if r.t_sent_s is not None and r.t_end_s]
    if chunks:
        yield "streams", throughput_figure(chunks, [(s, e) for s, e in streams if s is not None])


def _recolour(figure: Figure, inks: dict[str, str]) -> None:
    """Replace the inks that stand for a role by the colours of the light scheme."""
    from matplotlib.colors import to_hex

    for artist in figure.findobj():
        for name in ("color", "facecolor", "edgecolor", "markerfacecolor", "markeredgecolor"):
            get, put = getattr(artist, f"get_{name}", None), getattr(artist, f"set_{name}", None)
            if get is None or put is None:
                continue
            try:
                ink = to_hex(get())
            except (ValueError, TypeError):
                continue
            if re.fullmatch("#01[0-9a-f]{4}", ink) and ink in inks:
                put(inks[ink])

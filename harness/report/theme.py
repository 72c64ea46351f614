"""One look for every picture, in the light and in the dark.

Context: matplotlib writes colours into the SVG, and a page has two colour schemes. Choice: figures
are drawn with *inks*, colours that stand for a role, and the finished SVG has each ink replaced by
a CSS variable. Inline in a page the variables come from `page.css`; in a file of its own the SVG
carries both sets of values in a style element. Rejected: drawing everything twice (double the
size, and two pictures that can differ), or one palette for both (grey on grey in one of them).
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from markupsafe import Markup

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK: Final = "#010203"
MUTED: Final = "#010204"
GRID: Final = "#010205"
PAPER: Final = "#010206"
GHOST: Final = "#010207"
ACCENT: Final = "#010208"
WARM: Final = "#010209"
STREAMS: Final = tuple(f"#0103{index:02x}" for index in range(10))

VARIABLES: Final[Mapping[str, str]] = {
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--grid",
    PAPER: "--paper",
    GHOST: "--ghost",
    ACCENT: "--accent",
    WARM: "--warm",
    **{ink: f"--stream-{index}" for index, ink in enumerate(STREAMS)},
}

LIGHT: Final[Mapping[str, str]] = {
    "--paper": "#ffffff",
    "--ink": "#16202c",
    "--muted": "#5b6875",
    "--grid": "#dfe4ea",
    "--ghost": "#eef1f5",
    "--accent": "#0f6fc5",
    "--warm": "#d9480f",
    "--stream-0": "#3269d6",
    "--stream-1": "#e2711d",
    "--stream-2": "#1b9a77",
    "--stream-3": "#c2378f",
    "--stream-4": "#8a5cd6",
    "--stream-5": "#c29a00",
    "--stream-6": "#0b9cc4",
    "--stream-7": "#d1495b",
    "--stream-8": "#5c8a1f",
    "--stream-9": "#7a6a58",
}
DARK: Final[Mapping[str, str]] = {
    "--paper": "#11161d",
    "--ink": "#e8edf3",
    "--muted": "#9aa7b5",
    "--grid": "#2a333e",
    "--ghost": "#1b222b",
    "--accent": "#5aaef5",
    "--warm": "#ff9159",
    "--stream-0": "#6f9cf5",
    "--stream-1": "#ff9d4d",
    "--stream-2": "#45c9a1",
    "--stream-3": "#ee74bf",
    "--stream-4": "#b592f5",
    "--stream-5": "#e8c547",
    "--stream-6": "#4bc6e8",
    "--stream-7": "#f2808f",
    "--stream-8": "#98c65a",
    "--stream-9": "#b8a694",
}

_FONT: Final = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', sans-serif"
_MATPLOTLIB_FONT: Final = "'DejaVu Sans', sans-serif"
_UNUSED_ID: Final = re.compile(r' id="[\w.]+_\d+"')
_METADATA: Final = re.compile(r"<metadata>.*?</metadata>", re.DOTALL)


def stream_ink(index: int) -> str:
    """The ink of the ``index``-th request of a picture; ten, then they repeat."""
    return STREAMS[index % len(STREAMS)]


def short(label: str, limit: int = 28) -> str:
    """A label that fits into a picture: printable, on one line, cut where it is too long."""
    printable = "".join(c if c.isprintable() else " " for c in label)
    return (
        printable if len(printable) <= limit else f"{printable[: limit - 1]}\N{HORIZONTAL ELLIPSIS}"
    )


@contextmanager
def drawing() -> Iterator[type[Figure]]:
    """The figure class to draw with while our inks and sizes are set; pyplot stays out of it."""
    import matplotlib
    from matplotlib.figure import Figure

    settings = {
        "svg.fonttype": "none",
        "text.parse_math": False,
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans"],
        "font.size": 9,
        "text.color": INK,
        "axes.edgecolor": GRID,
        "axes.labelcolor": MUTED,
        "axes.titlecolor": INK,
        "axes.titlesize": 10,
        "axes.titlelocation": "left",
        "axes.facecolor": "none",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": GRID,
        "grid.linewidth": 0.6,
        "xtick.color": MUTED,
        "ytick.color": MUTED,
        "xtick.labelcolor": MUTED,
        "ytick.labelcolor": MUTED,
        "figure.facecolor": "none",
        "savefig.facecolor": "none",
        "legend.frameon": False,
        "legend.labelcolor": INK,
        "lines.linewidth": 1.8,
    }
    with matplotlib.rc_context(settings):
        yield Figure


def inline_svg(figure: Figure, name: str, description: str) -> Markup:
    """The figure as an ``svg`` element for a page that defines the variables.

    ``name`` keeps element ids apart from those of other pictures on the page; ``description``
    is what a screen reader says.
    """
    text = _svg(figure, name)
    text = text[text.index("<svg ") :]
    label = Markup('role="img" aria-label="{}"').format(description)
    return Markup(text.replace("<svg ", f"<svg {label} ", 1))


def standalone_svg(figure: Figure, name: str) -> str:
    """The figure as a file of its own, which follows the reader's colour scheme."""
    style = (
        f"<style>svg{{{_declarations(LIGHT)}}}"
        f"@media(prefers-color-scheme:dark){{svg{{{_declarations(DARK)}}}}}</style>"
    )
    text = _svg(figure, name)
    start = text.index(">", text.index("<svg ")) + 1
    return f"{text[:start]}\n{style}{text[start:]}"


def theme_css() -> Markup:
    """The variables of both colour schemes, for the head of a page."""
    light, dark = _declarations(LIGHT), _declarations(DARK)
    return Markup(
        f":root{{color-scheme:light dark;{light}}}"
        f"@media(prefers-color-scheme:dark){{:root:not([data-theme=light]){{{dark}}}}}"
        f":root[data-theme=dark]{{{dark}}}"
    )


def _declarations(values: Mapping[str, str]) -> str:
    return "".join(f"{name}:{value};" for name, value in values.items())


def _svg(figure: Figure, name: str) -> str:
    """The SVG text: the same every time, inks replaced, text left as text."""
    import matplotlib

    file = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name, "svg.id": name}):
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    text = file.getvalue()
    for ink, variable in VARIABLES.items():
        text = text.replace(ink, f"var({variable})")
    return _METADATA.sub("", _UNUSED_ID.sub("", text)).replace(_MATPLOTLIB_FONT, _FONT)

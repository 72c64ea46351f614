"""Finding the runs of a folder, without the copies that a generated site keeps of them."""

from __future__ import annotations

from pathlib import Path

from harness.results.document import RESULT_FILE


def run_files(folder: Path) -> list[Path]:
    """Every ``result.json`` under ``folder`` that no generated site (a folder with an
    ``index.html``) holds, in order of path."""
    sites = [page.parent for page in folder.rglob("index.html") if page.parent != folder]
    return sorted(
        file
        for file in folder.rglob(RESULT_FILE)
        if not any(file.is_relative_to(site) for site in sites)
    )

"""``index.json``: what a folder of results holds, one line a run, with the digest of its document.

It is derived, never edited: `isobatch results index` writes it anew, `isobatch results verify`
holds it to the runs.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any, Final

from harness.results.atomic import write_atomically
from harness.results.document import read_result
from harness.results.run_files import run_files

INDEX_FILE: Final = "index.json"
FORMAT: Final = "isobatch.results-index/1"


def build_index(folder: Path) -> dict[str, Any]:
    """The index of all runs under ``folder``, oldest first. Raises ResultInvalid, OSError."""
    runs = [_entry(folder, file) for file in run_files(folder)]
    return {"format": FORMAT, "runs": sorted(runs, key=lambda run: run["started_at"])}


def write_index(folder: Path) -> Path:
    """Write the index beside the runs. Raises ValueError where there is no run, OSError."""
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder")
    found = build_index(folder)
    if not found["runs"]:
        raise ValueError(f"there is no run in {folder}")
    text = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
    write_atomically(folder / INDEX_FILE, text.encode())
    return folder / INDEX_FILE


def index_differs(folder: Path) -> bool:
    """Whether a stored index is not that of the runs. False where there is none."""
    try:
        stored = json.loads((folder / INDEX_FILE).read_bytes())
    except FileNotFoundError:
        return False
    except ValueError:
        return True
    return bool(stored != build_index(folder))


def _entry(folder: Path, file: Path) -> dict[str, Any]:
    document = read_result(file)
    server = document["server"]
    return {
        "run_id": document["run_id"],
        "path": file.parent.relative_to(folder).as_posix(),
        "kind": document["kind"],
        "status": document["status"],
        "started_at": document["started_at"],
        "server": {name: server[name] for name in ("name", "version", "model", "dtype")},
        "verdicts": dict(sorted(Counter(v["verdict"] for v in document["verdicts"]).items())),
        "metrics": len(document["metrics"]),
        "command": document["command"],
        "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
    }

"""The result document ``isobatch.result/1``: its shape in Python, and reading it back.

The document stays a plain JSON object, so what a later version adds survives being read and
written by this one. `result.schema.json` beside this file is the contract; the typed dictionaries
here are its Python spelling, and a test holds the two together. A number that has no value is
null, never 0.
"""

import json
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Final, Literal, NotRequired, TypedDict, cast

from jsonschema import Draft202012Validator

FORMAT: Final = "isobatch.result/1"
RESULT_FILE: Final = "result.json"

Status = Literal["running", "complete", "interrupted", "crashed"]
Window = Literal["steady", "whole"]


class ResultInvalid(ValueError):
    """The document breaks the schema; the message names the place and the rule."""


class Tool(TypedDict):
    """Which isobatch wrote the document. ``commit`` is None outside a git checkout."""

    name: str
    version: str
    suite_version: str
    commit: str | None
    commit_dirty: bool | None


class Environment(TypedDict):
    """The machine that the client ran on."""

    python: str
    platform: str
    cpu_model: str | None
    cpu_count: int | None
    memory_bytes: int | None
    packages: dict[str, str]
    variables: dict[str, str]


class Server(TypedDict):
    """The server under test. ``sources`` says of each field: given, discovered or unknown."""

    name: str | None
    version: str | None
    url: str | None
    model: str | None
    dtype: str | None
    quantisation: str | None
    flags: list[str]
    hardware: str | None
    sources: dict[str, str]


class WorkloadRef(TypedDict):
    """A workload of the run: the file that holds it, and the digest of its JSON form."""

    name: str
    origin: str
    sha256: str
    seed: int | None
    requests: int
    path: str | None


class ClientHealth(TypedDict):
    """Whether the client's own measurements can be believed, and why not."""

    valid: bool | None
    reasons: list[str]
    numbers: dict[str, float | None]


class FailureRow(TypedDict):
    """One broken property; ``workload_path`` is the smallest workload that shows it."""

    sentence: str
    detail: str
    request_key: str | None
    expected: Any
    actual: Any
    first_difference: int | None
    guess: str | None
    workload_path: str | None
    seen: int
    tried: int


class VerdictRow(TypedDict):
    """The conclusion of one check; ``evidence`` counts what shows the feature was exercised."""

    check_id: str
    chapter: str
    verdict: str
    sentence: str
    reason: str
    evidence: dict[str, float]
    failures: list[FailureRow]
    requests: int
    first_failure_requests: int | None
    duration_s: float


class MetricRow(TypedDict):
    """One number with the id of its definition; ``low`` and ``high`` bound it at ``confidence``."""

    id: str
    statistic: str
    unit: str
    value: float | None
    count: int
    low: float | None
    high: float | None
    confidence: float | None
    window: Window | None
    workload_sha256: str | None
    note: NotRequired[str]


class RawFile(TypedDict):
    """Rows kept beside the document. ``sha256`` covers the first ``bytes`` bytes of the file."""

    name: str
    path: str
    media_type: str
    rows: int
    bytes: int
    sha256: str


class GateSection(TypedDict):
    """What a gate concluded; ``metrics`` hold each guarded metric's interval and outcome."""

    outcome: str
    paired: bool
    pairs: int
    reasons: list[str]
    broken_checks: list[str]
    metrics: list[dict[str, Any]]


class ResultDocument(TypedDict):
    """One run. Times are RFC 3339 in UTC; ``duration_s`` is on the monotonic clock."""

    format: str
    run_id: str
    kind: str
    status: Status
    error: str | None
    command: list[str]
    started_at: str
    ended_at: str | None
    duration_s: float | None
    tool: Tool
    environment: Environment
    server: Server
    workloads: list[WorkloadRef]
    client_health: ClientHealth
    determinism_grade: str | None
    verdicts: list[VerdictRow]
    metrics: list[MetricRow]
    raw: list[RawFile]
    gate: NotRequired[GateSection]
    oracle: NotRequired[dict[str, str]]


@cache
def schema() -> dict[str, Any]:
    """The JSON Schema of the document, as the package carries it."""
    text = resources.files("harness.results").joinpath("result.schema.json").read_text("utf-8")
    return cast(dict[str, Any], json.loads(text))


@cache
def _validator() -> Draft202012Validator:
    return Draft202012Validator(schema(), format_checker=Draft202012Validator.FORMAT_CHECKER)


def validate(document: Any) -> ResultDocument:
    """The same object, known to keep the schema. Raises ResultInvalid for the first breach."""
    found = sorted(
        _validator().iter_errors(document), key=lambda e: (list(map(str, e.path)), e.message)
    )
    if found:
        place = "/".join(str(part) for part in found[0].absolute_path) or "the document"
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise ResultInvalid(f"{place}: {_shortened(found[0].message)}{more}")
    return cast(ResultDocument, document)


def _shortened(message: str, limit: int = 200) -> str:
    return message if len(message) <= limit else message[: limit - 3] + "..."


def encode(document: ResultDocument) -> bytes:
    """The document as it is written: checked, indented, NaN and infinity refused."""
    validate(document)
    try:
        text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        raise ResultInvalid(f"a number has no JSON form ({error}); undefined is null") from None
    return (text + "\n").encode()


def read_result(path: Path) -> ResultDocument:
    """Read a result document, or the one in a run folder.

    Raises ResultInvalid when it is not one, OSError when it cannot be read.
    """
    file = path / RESULT_FILE if path.is_dir() else path
    try:
        document = json.loads(file.read_bytes(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ResultInvalid(f"{file} is not JSON: {error}") from None
    try:
        return validate(document)
    except ResultInvalid as error:
        raise ResultInvalid(f"{file}: {error}") from None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")

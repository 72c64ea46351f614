"""The document and its schema agree, keep what they do not know, and refuse what is wrong."""

import json
import typing
from pathlib import Path
from typing import Any

import pytest

from harness.results import document as doc
from harness.results.document import ResultInvalid, encode, read_result, schema, validate
from harness.results.exporters import EXPORTERS
from harness.results.run_folder import RunFolder


@pytest.fixture
def result(tmp_path: Path) -> dict[str, Any]:
    with RunFolder.create(tmp_path, kind="check", command=["isobatch", "check"]) as run:
        pass
    return json.loads((run.path / "result.json").read_bytes())


SHAPES = [
    (doc.ResultDocument, ()),
    (doc.Tool, ("properties", "tool")),
    (doc.Environment, ("properties", "environment")),
    (doc.Server, ("properties", "server")),
    (doc.WorkloadRef, ("properties", "workloads", "items")),
    (doc.ClientHealth, ("properties", "client_health")),
    (doc.FailureRow, ("$defs", "failure")),
    (doc.VerdictRow, ("$defs", "verdict")),
    (doc.MetricRow, ("$defs", "metric")),
    (doc.RawFile, ("$defs", "raw")),
    (doc.GateSection, ("properties", "gate")),
]


@pytest.mark.parametrize(("shape", "place"), SHAPES, ids=lambda v: getattr(v, "__name__", ""))
def test_typed_dictionary_and_schema_name_the_same_fields(
    shape: Any, place: tuple[str, ...]
) -> None:
    """The Python spelling cannot drift from the published contract."""
    node = schema()
    for step in place:
        node = node[step]
    assert set(typing.get_type_hints(shape)) == set(node["properties"])
    assert shape.__required_keys__ == set(node["required"])


def test_the_schema_is_itself_valid() -> None:
    """A broken schema would accept anything."""
    doc.Draft202012Validator.check_schema(schema())


def test_unknown_fields_survive(result: dict[str, Any], tmp_path: Path) -> None:
    """What a later version wrote is still there after this one read and wrote the document."""
    result["later"] = {"a": [1, None]}
    result["tool"]["build"] = "x"
    (tmp_path / "result.json").write_bytes(encode(validate(result)))
    again = read_result(tmp_path)
    assert again == result


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        (("format",), "isobatch.result/2", "format"),
        (("status",), "done", "status"),
        (("started_at",), 5, "started_at"),
        (("raw",), [{"name": "x"}], "raw/0"),
        (("workloads",), [{"path": "../x"}], "workloads/0"),
        (("server", "sources"), {"name": "guessed"}, "server/sources/name"),
        (("client_health", "valid"), "yes", "client_health/valid"),
    ],
)
def test_a_breach_is_named_with_its_place(
    result: dict[str, Any], path: tuple[str, ...], value: Any, named: str
) -> None:
    """The message says where the document is wrong."""
    node = result
    for step in path[:-1]:
        node = node[step]
    node[path[-1]] = value
    with pytest.raises(ResultInvalid, match=f"^{named}"):
        validate(result)


def test_not_a_number_is_refused_on_write_and_on_read(
    result: dict[str, Any], tmp_path: Path
) -> None:
    """NaN is not JSON; an undefined number is null."""
    result["duration_s"] = float("nan")
    with pytest.raises(ResultInvalid, match="undefined is null"):
        encode(typing.cast(doc.ResultDocument, result))
    (tmp_path / "result.json").write_text(json.dumps(result))
    with pytest.raises(ResultInvalid, match="NaN is not a JSON number"):
        read_result(tmp_path)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"[]", b"3"])
def test_garbage_is_refused_in_one_sentence(content: bytes, tmp_path: Path) -> None:
    """Whatever the file holds, the reader raises ResultInvalid and names the file."""
    file = tmp_path / "result.json"
    file.write_bytes(content)
    with pytest.raises(ResultInvalid, match=r"result\.json"):
        read_result(file)


FIRST_DOCUMENT = Path(__file__).parent / "fixtures" / "result-1.json"


def test_the_first_document_is_readable_for_ever() -> None:
    """A file written by 0.1.0 reads, keeps what this version does not know, and exports."""
    document = read_result(FIRST_DOCUMENT)
    assert document["tool"]["version"] == "0.1.0"
    assert json.loads(encode(document))["future_field"] == {"kept": True}
    for export in EXPORTERS.values():
        assert export(document)

"""A failure as something to act on: curl lines that anyone can run, and text for a bug report."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any, Final

from harness.client.endpoint import Endpoint
from harness.client.openai_request import CHAT, COMPLETIONS, Caller
from workloads.workload import Workload, WorkloadRequest

_MOST_PROMPT_SHOWN: Final = 400


def curl_lines(workload: Workload, url: str, model: str) -> str:
    """A shell script that sends the workload's requests as nearly at the same moments as curl can.

    What curl cannot do (start at another request's n-th token, hang up after n tokens) is said in
    a comment above the line.
    """
    endpoint = Endpoint.parse(url)
    caller = Caller(endpoint, model)
    lines: list[str] = []
    elapsed_s = 0.0
    for request in workload.requests:
        if request.due_s > elapsed_s:
            lines.append(f"sleep {request.due_s - elapsed_s:g}")
            elapsed_s = request.due_s
        lines += _comments(request)
        lines.append(_curl(request, caller, endpoint))
    lines.append("wait")
    return "\n".join(lines) + "\n"


def _comments(request: WorkloadRequest) -> list[str]:
    said = [f"# request {request.key}"]
    if request.after is not None:
        said.append(f"#   begins at token {request.after.tokens} of {request.after.key}")
        said.append("sleep 0.2")
    if request.cancel_after_tokens is not None:
        said.append(f"#   hangs up after {request.cancel_after_tokens} tokens")
    return said


def _curl(request: WorkloadRequest, caller: Caller, endpoint: Endpoint) -> str:
    path = COMPLETIONS if request.messages is None else CHAT
    body = json.dumps(caller.body(request), ensure_ascii=False)
    limit = "" if request.cancel_after_s is None else f" --max-time {request.cancel_after_s:g}"
    headers = {"Content-Type": "application/json", **request.headers}
    fields = " ".join(f"-H {shlex.quote(f'{name}: {value}')}" for name, value in headers.items())
    return f"curl -sN{limit} {shlex.quote(endpoint.url + path)} {fields} -d {shlex.quote(body)} &"


def markdown(document: Mapping[str, Any], server: Mapping[str, Any] | None = None) -> str:
    """A block for a bug report upstream, from the JSON file of a failure.

    ``server`` is the part of a result document that describes the server, where there is one.
    Raises ValueError when the document holds no failure.
    """
    failure = document.get("failure")
    if not isinstance(failure, Mapping):
        raise ValueError("the file holds a workload but no failure")
    server = server or {}
    workload = Workload.from_json(document)
    url, model = server.get("url") or "http://127.0.0.1:8000", server.get("model") or "MODEL"
    facts = [
        f"{name}: {value}" for name, value in server.items() if isinstance(value, str) and value
    ]
    lines = [
        f"### {failure['sentence']}",
        "",
        f"This does not hold ({failure['check_id']}, failed {failure['seen']} of "
        f"{failure['tried']} times): {failure['detail']}.",
        "",
        f"- expected: `{_cut(failure['expected'])}`",
        f"- actual: `{_cut(failure['actual'])}`",
    ]
    if failure.get("first_difference") is not None:
        lines.append(f"- first difference: at {failure['first_difference']}")
    if failure.get("guess"):
        lines.append(f"- it looks as if {failure['guess']}")
    if facts:
        lines.append(f"- server: {'; '.join(facts)}")
    for number, earlier in enumerate(failure.get("earlier") or (), start=1):
        steps = curl_lines(Workload.from_json(earlier), url, model)
        lines += ["", f"Before that, step {number}:", "", "```sh", steps.rstrip(), "```"]
    script = curl_lines(workload, url, model).rstrip()
    lines += ["", "The smallest requests that show it:", "", "```sh", script, "```", ""]
    return "\n".join(lines)


def _cut(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False) if not isinstance(value, str) else value
    shown = text if len(text) <= _MOST_PROMPT_SHOWN else text[:_MOST_PROMPT_SHOWN] + " ..."
    return shown.replace("`", "'").replace("\n", "\\n")

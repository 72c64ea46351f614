"""The twelve guarantees of the load generator: a sentence, the tests, the public issues answered.

``python -m harness.load.guarantees`` prints the table for the documentation. Each guarantee's
first test is paired with a run in which the guarantee is broken on purpose and the test fails:
`tests/load/test_guarantees.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Guarantee:
    """One promise. ``tests`` are node ids; ``answers`` are issues where a tool broke it."""

    number: int
    sentence: str
    tests: tuple[str, ...]
    answers: tuple[str, ...]


_BROKEN: Final = "tests/load/test_guarantees.py::test_each_guarantee_can_be_seen_to_break"


def _guarantee(
    number: int, sentence: str, tests: tuple[str, ...], answers: tuple[str, ...]
) -> Guarantee:
    return Guarantee(number, sentence, (f"{_BROKEN}[{number}]", *tests), answers)


GUARANTEES: Final = (
    _guarantee(
        1,
        "Event stream parsing does not depend on how TCP cut the bytes.",
        ("tests/client/test_sse.py::test_events_do_not_depend_on_the_cut",),
        ("vllm-project/vllm#51172",),
    ),
    _guarantee(
        2,
        "Time is taken once a socket read, before any parsing (the kernel's arrival time where it "
        "has one); JSON is parsed off the hot path.",
        ("tests/client/test_stamped_socket.py::test_a_late_reader_sees_when_the_bytes_arrived",),
        ("tenstorrent/tt-inference-server#259", "ai-dynamo/aiperf#1424"),
    ),
    _guarantee(
        3,
        "One seeded, absolute arrival schedule, made before the run, tested as a distribution; "
        "latency counts from the schedule.",
        (
            "tests/workloads/test_arrivals.py::test_poisson_gaps_are_exponential",
            "tests/workloads/test_arrivals.py::test_constant_is_exact_over_a_long_run",
            "tests/load/test_split.py::test_the_parts_are_the_whole_with_the_same_schedule",
        ),
        ("vllm-project/vllm#21104", "vllm-project/vllm#45502", "vllm-project/vllm#54101"),
    ),
    _guarantee(
        4,
        "Three token ledgers kept apart: the server's usage, the client's count, chunks. The "
        "headline is the server's (a row says where it is another's), a mismatch is flagged, the "
        "requested length is never used.",
        (
            "tests/metrics/test_metrics.py"
            "::test_three_ledgers_are_kept_apart_and_a_mismatch_is_flagged",
        ),
        (
            "kubernetes-sigs/inference-perf#580",
            "vllm-project/vllm#435",
            "vllm-project/vllm-omni#4459",
        ),
    ),
    _guarantee(
        5,
        "ignore_eos and min_tokens are sent and verified; a token-id prompt's length equals the "
        "server's prompt_tokens.",
        (
            "tests/load/test_guarantees.py::test_answers_that_are_not_as_long_as_planned_are_counted",
        ),
        ("vllm-project/guidellm#477", "vllm-project/guidellm#75"),
    ),
    _guarantee(
        6,
        "Success is 2xx, a terminal event and no error event; everything else is a typed failure "
        "and kept. A clean end without a terminal event is a failure.",
        ("tests/client/test_hostile_servers.py::test_bad_answers_are_typed",),
        ("vllm-project/guidellm#444",),
    ),
    _guarantee(
        7,
        "Connect, first-token, idle and total time limits: a dead or half-open server, or Ctrl-C, "
        "ends the run in bounded time with partial results on disk.",
        (
            "tests/load/test_interrupt.py::test_interrupted_runs_keep_what_ended",
            "tests/client/test_hostile_servers.py"
            "::test_keep_alive_comments_do_not_hold_a_request_for_ever",
        ),
        ("vllm-project/vllm#51030",),
    ),
    _guarantee(
        8,
        "No hidden client limit; connection reuse and connect time are reported; a reset on a "
        "reused idle connection is retried once, counted, and only if no byte came back.",
        (
            "tests/client/test_hostile_servers.py"
            "::test_a_reset_on_a_reused_idle_connection_is_retried_once_and_counted",
            "tests/client/test_hostile_servers.py"
            "::test_a_reset_after_the_first_byte_is_not_retried",
        ),
        (
            "vllm-project/guidellm#487",
            "Azure/azure-openai-benchmark#8",
            "vllm-project/vllm#39963",
            "vllm-project/vllm#21981",
        ),
    ),
    _guarantee(
        9,
        "The run watches itself (loop lag, send lag, CPU share, collector pauses); past a stated "
        "limit it is invalid, with the reason and what to change.",
        ("tests/load/test_client_health.py::test_each_limit_gives_its_reason_and_advice",),
        ("ai-dynamo/aiperf#1424",),
    ),
    _guarantee(
        10,
        "Warm-up at the run's own concurrency, excluded, with other prompts; the steady window "
        "follows a stated rule.",
        (
            "tests/metrics/test_metrics.py"
            "::test_the_steady_window_is_from_the_first_end_to_the_last_send",
        ),
        ("vllm-project/vllm#54227", "sgl-project/sglang#13934"),
    ),
    _guarantee(
        11,
        "Results do not depend on the number of workers, processes or Ray actors.",
        ("tests/load/test_workers.py::test_results_do_not_depend_on_the_number_of_workers",),
        ("kubernetes-sigs/inference-perf#319", "kubernetes-sigs/inference-perf#346"),
    ),
    _guarantee(
        12,
        "Self-calibration: `isobatch selftest` prints the tool's own error and cost against a "
        "server whose send times are known; every bench result stores it.",
        ("tests/load/test_selftest.py::test_a_bench_result_carries_its_calibration",),
        ("tenstorrent/tt-inference-server#259",),
    ),
)


def table() -> str:
    """The table in Markdown."""
    lines = ["| # | guarantee | tests | broken in |", "|---|---|---|---|"]
    for g in GUARANTEES:
        tests = "<br>".join(f"`{t}`" for t in g.tests)
        answers = ", ".join(_link(a) for a in g.answers)
        lines.append(f"| {g.number} | {g.sentence} | {tests} | {answers} |")
    return "\n".join(lines) + "\n"


def page() -> str:
    """The whole page of the documentation."""
    return (
        "# What the load generator guarantees\n\n"
        "Generated by `python -m harness.load.guarantees > harness/load/GUARANTEES.md`. Each "
        "guarantee is held by tests; the first of each also breaks the guarantee on purpose and "
        "must then fail. The last column names public reports of a tool in use that broke it.\n\n"
        + table()
    )


def _link(issue: str) -> str:
    repository, number = issue.split("#")
    return f"[{issue}](https://github.com/{repository}/issues/{number})"


if __name__ == "__main__":
    print(page(), end="")

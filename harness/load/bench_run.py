"""What ``isobatch bench`` does: ask the server, build the workload, measure, write the folder."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.load.bench_load import Load
from harness.load.client_health import ClientHealth
from harness.load.measurement import Measurement, measure
from harness.load.probe_prompts import probe_alphabet, spelling_for
from harness.load.progress import Progress
from harness.load.request_rows import RequestRows
from harness.load.selftest import calibrate
from harness.load.text_tokens import load_tokenizer
from harness.load.worker import WorkerTask
from harness.load.worker_run import ONE_WORKER, WorkerPlan, measure_with_workers
from harness.metrics.slo import Slo
from harness.results.document import MetricRow
from harness.results.row_file import RowFormat
from harness.results.run_folder import RunFolder, RunFolderError
from harness.results.server_identity import discover_server
from harness.targets.http import HttpTarget
from harness.targets.target import TargetUnusable
from harness.targets.wording import Wording, find_wording
from harness.transcript import Ending, RequestTranscript
from workloads.prompts import Prompts, TokenAlphabet, Words
from workloads.workload import Workload


@dataclass(frozen=True, slots=True)
class BenchPlan:
    """Everything that was asked for. ``facts`` are what is known of the server from elsewhere.

    ``extra_params`` go into every request and win over the load's own; None takes a field out.
    """

    url: str
    load: Load
    seed: int = 0
    model: str | None = None
    api_key: str | None = None
    prompts: str = "auto"
    objectives: tuple[Slo, ...] = ()
    extra_params: Mapping[str, Any] | None = None
    warmup: bool = True
    workers: WorkerPlan = ONE_WORKER
    calibrate: bool = True
    page: bool = True
    tokenizer: Path | None = None
    out: Path = Path("runs")
    rows: RowFormat = "plain"
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class BenchOutcome:
    """What came of it."""

    folder: Path
    model: str
    load: Load
    rows: list[MetricRow]
    health: ClientHealth
    complete: int
    failed: int
    first_error: str | None
    page: Path | None = None
    wording: Wording = field(default_factory=Wording)

    @property
    def nothing(self) -> str:
        """The sentence for a run without a single whole answer."""
        return f"no request succeeded: {self.first_error or 'all were cancelled'}"

    def to_json(self) -> dict[str, Any]:
        """For machines; the run folder has more."""
        return {
            "folder": str(self.folder),
            "model": self.model,
            "load": self.load.name,
            "wording": self.wording.to_json(),
            "client_health": self.health.to_json(),
            "metrics": self.rows,
        }


class BenchInterrupted(KeyboardInterrupt):
    """The user stopped the run; ``outcome`` is what there was until then."""

    def __init__(self, outcome: BenchOutcome) -> None:
        super().__init__("interrupted")
        self.outcome = outcome


class BenchNotWritten(RunFolderError):
    """The disk refused a part of the run; ``outcome`` is all that was measured."""

    def __init__(self, outcome: BenchOutcome, refusal: RunFolderError) -> None:
        super().__init__(str(refusal))
        self.outcome = outcome


def bench(plan: BenchPlan, *, quiet: bool = False) -> BenchOutcome:
    """Measure and write the run folder. Raises TargetUnusable, and UserError for the folder.

    Raises BenchInterrupted after Ctrl-C, when what had ended by then is written, and
    BenchNotWritten when the run was measured but the disk refused some of it.
    """
    import uvloop

    if plan.tokenizer is not None:
        load_tokenizer(plan.tokenizer)  # a bad one is said now, not after the run
    model = uvloop.run(model_of(plan))
    prompts = prompts_for(model, plan.prompts)
    workload = with_params(plan, plan.load.workload(prompts, plan.seed))
    before = with_params(plan, plan.load.warmup(prompts, plan.seed))
    warmup = before if plan.warmup else None
    wording = uvloop.run(wording_for(plan, model, before))
    with RunFolder.create(plan.out, kind="bench", command=sys.argv, rows=plan.rows) as folder:
        folder.add_workload(workload, name=plan.load.name)
        folder.set_server(**discover_server(plan.url, api_key=plan.api_key, model=model))
        folder.set_server(url=plan.url, model=model, sources={"url": "given"})
        folder.set_server(**plan.facts, wording=wording.to_json())
        rows = RequestRows(folder, "requests", plan.tokenizer)
        if plan.workers == ONE_WORKER:
            with Progress(len(workload.requests), quiet=quiet) as progress:
                run = _measure(plan, model, wording, workload, warmup, progress, rows)
                measured = uvloop.run(run)
        else:
            task = WorkerTask(
                plan.url, model, workload, warmup, plan.api_key,
                tokenizer=plan.tokenizer, wording=wording,
            )  # fmt: skip
            measured = measure_with_workers(plan.workers, task, rows.add_row)
        if plan.calibrate and not measured.interrupted:
            streams = workload.concurrency or _most_in_flight(measured.requests)
            measured.health.calibration = uvloop.run(calibrate(streams))
        outcome = _outcome(folder, plan, model, workload, measured)
        outcome.wording = wording
        try:
            _write(folder, outcome, rows)
        except RunFolderError as error:
            raise BenchNotWritten(outcome, error) from error
        if measured.interrupted:
            raise BenchInterrupted(outcome)
        if outcome.complete == 0:
            folder.in_vain(outcome.nothing)
    if plan.page and measured.requests:
        from harness.report.page import write_run_page

        outcome.page = write_run_page(folder.path)
    return outcome


def target_of(plan: BenchPlan, model: str | None, wording: Wording | None = None) -> HttpTarget:
    """A target for the plan; create it inside the loop that uses it."""
    target = HttpTarget(plan.url, model=model, api_key=plan.api_key, keep_raw=False)
    target.wording = wording or Wording()
    return target


def with_params(plan: BenchPlan, workload: Workload) -> Workload:
    """The workload with the plan's own fields in every request."""
    given = plan.extra_params
    if not given:
        return workload
    requests = [replace(r, params={**r.params, **given}) for r in workload.requests]
    return replace(workload, requests=tuple(requests))


async def wording_for(plan: BenchPlan, model: str, like: Workload) -> Wording:
    """How this server wants requests like those of ``like``, which is not what is measured."""
    target = target_of(plan, model)
    given = {name: value for name, value in (plan.extra_params or {}).items() if value is not None}
    try:
        sample = like.requests[0]
        return await find_wording(target, sample, spelling_for(model, plan.prompts), given)
    finally:
        await target.close()


async def model_of(plan: BenchPlan) -> str:
    """The model to ask for. Raises TargetUnusable."""
    target = target_of(plan, plan.model)
    await target.discover()
    return target.model or ""


async def _measure(
    plan: BenchPlan,
    model: str,
    wording: Wording,
    workload: Workload,
    warmup: Workload | None,
    progress: Progress,
    rows: RequestRows,
) -> Measurement:
    target = target_of(plan, model, wording)
    try:
        return await measure(
            target, workload, warmup=warmup, on_end=progress.ended, on_settled=rows.add
        )
    finally:
        await target.close()


def prompts_for(model: str, choice: str) -> Prompts:
    """Prompts the server can take: the probe's alphabet for a probe, words for others.

    ``choice`` is ``auto``, ``text`` or ``FIRST:LAST`` token ids. Raises TargetUnusable.
    """
    if choice == "text":
        return Words()
    if choice == "auto":
        return probe_alphabet(model) or Words()
    try:
        first, last = (int(part) for part in choice.split(":"))
    except ValueError:
        raise TargetUnusable(
            f"--prompts {choice!r}: expected auto, text or FIRST:LAST token ids"
        ) from None
    return TokenAlphabet(tuple(range(first, last + 1)))


def _write(folder: RunFolder, outcome: BenchOutcome, rows: RequestRows) -> None:
    """Put all into the document, refused or not: the last one may still find room."""
    try:
        folder.add_metrics(outcome.rows)
    finally:
        folder.set_client_health(outcome.health.to_json())
    rows.check()


def _outcome(
    folder: RunFolder, plan: BenchPlan, model: str, workload: Workload, measured: Measurement
) -> BenchOutcome:
    failures = [r for r in measured.requests if r.ending not in (Ending.COMPLETE, Ending.CANCELLED)]
    return BenchOutcome(
        folder=folder.path,
        model=model,
        load=plan.load,
        rows=measured.metrics(workload, plan.objectives),
        health=measured.health,
        complete=sum(r.ending is Ending.COMPLETE for r in measured.requests),
        failed=len(failures),
        first_error=_first_error(failures),
    )


def _most_in_flight(requests: list[RequestTranscript]) -> int:
    """The largest number of requests that were under way at once."""
    changes = [(r.t_sent_s, 1) for r in requests if r.t_sent_s is not None]
    changes += [(r.t_end_s, -1) for r in requests if r.t_sent_s is not None and r.t_end_s]
    most = now = 0
    for _, change in sorted(changes):
        now += change
        most = max(most, now)
    return most


def _first_error(failures: list[RequestTranscript]) -> str | None:
    return f"{failures[0].ending.value}: {failures[0].error}" if failures else None

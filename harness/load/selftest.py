"""The tool's own error and cost, measured on a server whose send times are known.

The paced server tells when it sent each event, on the clock that all processes of one machine
share. It is asked after the measurement, in which the client keeps no raw events: it reads them as
in a bench, so its cost is a bench's cost. Three errors are known exactly, whatever the server's own
punctuality:

- arrival: the time the client gives an event, minus the time it was sent;
- TTFT: the client's ``ttft.service``, minus the server's time from the request's arrival (by the
  kernel's stamp) to the first send;
- gap: each ``chunk_gap``, minus the gap between the two sends.

Cost is this process's CPU time, the parsing after the run included, over the events received.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any, Final

from harness.client.plain_call import get
from harness.load.client_health import HealthWatch
from harness.load.paced.process import paced_server
from harness.load.paced.truth import Sends
from harness.targets.http import HttpTarget
from harness.transcript import Ending, Transcript
from workloads.presets import load_preset
from workloads.prompts import TokenAlphabet

LEVELS: Final = (1, 32, 128, 256, 512, 1024)
OUTPUT_TOKENS: Final = 51
GOOD_ERROR_S: Final = 0.001


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, p99 (nearest rank) and largest absolute value of errors in seconds."""

    p50_s: float
    p99_s: float
    max_s: float

    @classmethod
    def of(cls, errors: Sequence[float]) -> Spread:
        """The spread of at least one error."""
        ordered = sorted(abs(e) for e in errors)
        last = len(ordered) - 1
        return cls(ordered[last // 2], ordered[min(last, int(0.99 * len(ordered)))], ordered[last])


@dataclass(frozen=True, slots=True)
class Level:
    """What was measured at one concurrency."""

    streams: int
    requests: int
    events: int
    events_per_s: float
    ttft_mean_s: float
    ttft: Spread
    gap: Spread
    arrival: Spread
    cpu_s: float
    cpu_us_per_event: float
    cpu_share: float | None
    loop_lag_p99_s: float | None
    failed: int

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def run_selftest(
    levels: Sequence[int] = LEVELS,
    *,
    on_level: Callable[[Level], None] | None = None,
    rounds: int | None = None,
) -> list[Level]:
    """Measure each level against a paced server in a process of its own."""
    import uvloop

    with paced_server() as url:
        return uvloop.run(_levels(url, levels, on_level, rounds))


def best_rate(levels: Sequence[Level]) -> float | None:
    """The highest event rate whose TTFT and gap errors stay under 1 ms at p99, None if none."""
    good = [
        x.events_per_s
        for x in levels
        if x.ttft.p99_s < GOOD_ERROR_S and x.gap.p99_s < GOOD_ERROR_S and not x.failed
    ]
    return max(good, default=None)


async def _levels(
    url: str,
    levels: Sequence[int],
    on_level: Callable[[Level], None] | None,
    rounds: int | None,
) -> list[Level]:
    done = []
    target = HttpTarget(url, keep_raw=False)
    await target.run(_workload(8, 8))
    for streams in levels:
        level = await measure_level(target, streams, rounds)
        done.append(level)
        if on_level is not None:
            on_level(level)
        await asyncio.sleep(0)
    await target.close()
    return done


async def measure_level(target: HttpTarget, streams: int, rounds: int | None = None) -> Level:
    """Run ``streams`` at once, ``rounds`` times over, and compare with what was sent.

    ``target`` is a paced server's; as a bench's it keeps nothing raw (``keep_raw=False``).
    """
    if rounds is None:
        rounds = max(2, min(8, 256 // streams))
    workload = _workload(streams * rounds, streams)
    started_s = time.process_time()
    watch = HealthWatch()
    async with watch:
        transcript = await target.run(workload, on_drained=watch.stop)
    cpu_s = time.process_time() - started_s
    told = await get(target.pool, target.caller(), "/paced/sends", target.limits)
    if told.status != 200:
        raise RuntimeError(f"no times of sending: {told.error or told.status}")
    return _level(streams, transcript, Sends.of_lines(told.body), cpu_s, watch)


def _workload(requests: int, streams: int) -> Any:
    recipe = load_preset("paced").resized(requests=requests, concurrency=streams)
    return replace(recipe, name="selftest").build(TokenAlphabet(tuple(range(100, 200))), seed=0)


def _level(
    streams: int,
    transcript: Transcript,
    sends: Mapping[str, Sends],
    cpu_s: float,
    watch: HealthWatch,
) -> Level:
    whole = [r for r in transcript.requests.values() if r.ending is Ending.COMPLETE]
    if not whole:
        first = next(iter(transcript.requests.values()))
        raise RuntimeError(f"no request succeeded: {first.error}")
    ttft: list[float] = []
    gaps: list[float] = []
    arrivals: list[float] = []
    for request in whole:
        told = sends[request.response_id or ""]
        sent = told.sent_s
        got = [c.t_s + transcript.t_origin_s for c in request.first.chunks]
        arrivals += [g - s for g, s in zip(got, sent, strict=True)]
        asked_s = (request.t_sent_s or 0.0) + transcript.t_origin_s
        ttft.append((got[0] - asked_s) - (sent[0] - told.arrived_s))
        gaps += [
            (g1 - g0) - (s1 - s0)
            for (g0, g1), (s0, s1) in zip(pairwise(got), pairwise(sent), strict=True)
        ]
    services = [(r.t_first_s or 0.0) - (r.t_sent_s or 0.0) for r in whole]
    return Level(
        streams=streams,
        requests=len(transcript.requests),
        events=len(arrivals),
        events_per_s=len(arrivals) / transcript.duration_s,
        ttft_mean_s=sum(services) / len(services),
        ttft=Spread.of(ttft),
        gap=Spread.of(gaps),
        arrival=Spread.of(arrivals),
        cpu_s=cpu_s,
        cpu_us_per_event=cpu_s / len(arrivals) * 1e6,
        cpu_share=watch.health.cpu_share,
        loop_lag_p99_s=watch.health.loop_lag_p99_s,
        failed=len(transcript.requests) - len(whole),
    )


async def calibrate(streams: int) -> dict[str, float]:
    """This machine's client error right now at about ``streams`` streams, in a few numbers.

    Takes about two seconds. A result stores them beside the client's health.
    """
    with paced_server() as url:
        target = HttpTarget(url, keep_raw=False)
        await target.run(_workload(8, 8))
        level = await measure_level(target, max(1, min(streams, 256)), rounds=2)
        await target.close()
    return {
        "calibration_streams": float(level.streams),
        "calibration_ttft_error_p50_s": level.ttft.p50_s,
        "calibration_ttft_error_p99_s": level.ttft.p99_s,
        "calibration_gap_error_p50_s": level.gap.p50_s,
        "calibration_gap_error_p99_s": level.gap.p99_s,
        "calibration_cpu_us_per_event": level.cpu_us_per_event,
    }

"""A sweep ends, finds the knee, and its points are distinct and in order."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.load.sweep import Ladder, Point, knee, sweep


def server(capacity: float, per_stream: float):
    """Throughput grows by ``per_stream`` up to ``capacity``."""
    asked: list[int] = []

    def measure(streams: int) -> Point:
        asked.append(streams)
        rate = min(capacity, per_stream * streams)
        return Point(streams, rate, 0.1, None, streams / rate)

    return measure, asked


@settings(max_examples=60)
@given(st.floats(1.0, 1e5), st.floats(1.0, 1e3), st.integers(1, 2000), st.integers(1, 14))
def test_it_ends_with_distinct_points_in_order(
    capacity: float, per_stream: float, most_streams: int, most: int
):
    measure, asked = server(capacity, per_stream)
    points = sweep(measure, Ladder(most_streams, most))
    streams = [p.streams for p in points]
    assert streams == sorted(set(streams)) == sorted(asked)
    assert 1 <= len(points) <= most
    assert streams[-1] <= max(most_streams, 1)


@pytest.mark.parametrize("knee_streams", [4, 16, 48, 100])
def test_the_knee_is_where_throughput_stops_growing(knee_streams: int):
    measure, _ = server(knee_streams * 10.0, 10.0)
    points = sweep(measure, Ladder(1024, 14))
    found = knee(points)
    assert knee_streams * 0.6 <= found.streams <= knee_streams * 1.4
    assert found.output_tokens_per_s >= 0.7 * knee_streams * 10.0
    assert points[-1].streams <= 8 * knee_streams, "it does not go far beyond saturation"


def test_without_saturation_the_last_point_is_the_knee():
    measure, _ = server(1e9, 10.0)
    points = sweep(measure, Ladder(64, 14))
    assert knee(points).streams == 64


def test_a_server_that_fails_ends_the_sweep():
    def measure(streams: int) -> Point:
        return Point(streams, 10.0 * streams, 0.1, None, 0.1, failed=int(streams >= 8))

    points = sweep(measure)
    assert max(p.streams for p in points) == 8

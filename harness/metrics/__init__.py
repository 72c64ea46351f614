"""Metrics: definitions with ids, computed from transcripts and from nothing else."""

from harness.metrics.definitions import DEFINITIONS, Definition
from harness.metrics.samples import samples
from harness.metrics.slo import Slo
from harness.metrics.summary import metric_rows

__all__ = ["DEFINITIONS", "Definition", "Slo", "metric_rows", "samples"]

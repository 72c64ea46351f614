"""Faults: small, named defects at the places where real engines had them. See `seam`."""

from reference_engine.faults import (
    answers,
    batch,
    chunks,
    endings,
    pages,
    prefix,
    routing,
    sampling,
    scheduling,
    texts,
)
from reference_engine.faults.seam import FAULTS, Fault, FaultRun, install

__all__ = [
    "FAULTS",
    "Fault",
    "FaultRun",
    "answers",
    "batch",
    "chunks",
    "endings",
    "install",
    "pages",
    "prefix",
    "routing",
    "sampling",
    "scheduling",
    "texts",
]

"""Faults: small, named defects at the places where real engines had them. See `seam`."""

from reference_engine.faults import answers, batch, pages, routing, texts
from reference_engine.faults.seam import FAULTS, Fault, FaultRun, install

__all__ = [
    "FAULTS",
    "Fault",
    "FaultRun",
    "answers",
    "batch",
    "install",
    "pages",
    "routing",
    "texts",
]

"""Faults: small, named defects at the places where real engines had them. See `seam`."""

from reference_engine.faults import batch, pages
from reference_engine.faults.seam import FAULTS, Fault, FaultRun, install

__all__ = ["FAULTS", "Fault", "FaultRun", "batch", "install", "pages"]

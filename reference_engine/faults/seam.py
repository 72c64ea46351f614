"""What a fault is, and the one place where it is put into an engine.

A conformance suite that has never failed proves little. The engine can be built with one fault
switched on; the suite must then fail, and name the right chapter.

**The seam.** An engine is a handful of parts (`Engine.parts`: ``scheduler``, ``pages``, ``pool``,
``prefixes``, ``batch``, ``attention``, ``store``, ``sampler``, ``generation``, ``engine``; the
server adds its own, named ``server_...``). A fault
names *hook points*, each ``part.method``, and for each gives a wrapper: a function that takes the
healthy bound method and a `FaultRun`, and returns what replaces it on that one object. `install`
is the only place where this happens, once, when the engine is built. A healthy engine contains no
test for faults and pays nothing.

A wrapper calls ``run.executed()`` whenever the defect really changes what is done, so that a check
that passes can tell a harmless fault from one that never ran.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

Healthy = Callable[..., Any]


@dataclass(slots=True)
class FaultRun:
    """One fault switched on in one engine; ``memory`` is what its wrappers tell each other."""

    fault: Fault
    executions: int = 0
    memory: dict[str, Any] = field(default_factory=dict)

    def executed(self) -> None:
        """The defect has just changed something."""
        self.executions += 1


Wrapper = Callable[[Healthy, FaultRun], Healthy]


@dataclass(frozen=True, slots=True)
class Fault:
    """One defect.

    ``does`` says what it changes, ``imitates`` which public bug had it, ``group`` the root cause
    in the bug catalogue's terms. ``hooks`` maps hook points to wrappers.
    """

    name: str
    title: str
    does: str
    imitates: tuple[str, ...]
    group: str
    hooks: Mapping[str, Wrapper]


def install(fault: Fault, parts: Mapping[str, object], run: FaultRun | None = None) -> FaultRun:
    """Put the fault's wrappers on those of its parts that are in ``parts``."""
    run = run or FaultRun(fault)
    for point, wrapper in fault.hooks.items():
        part_name, method = point.split(".")
        part = parts.get(part_name)
        if part is not None:
            setattr(part, method, wrapper(getattr(part, method), run))
    return run


FAULTS: Final[dict[str, Fault]] = {}
"""Every fault by name. Filled by the modules of this package as they are imported."""


def fault(
    name: str, title: str, *, imitates: tuple[str, ...], group: str
) -> Callable[[Callable[[], Mapping[str, Wrapper]]], Fault]:
    """Define a fault: the docstring of the decorated function says what it does."""

    def define(hooks: Callable[[], Mapping[str, Wrapper]]) -> Fault:
        if name in FAULTS:
            raise ValueError(f"two faults are called {name!r}")
        does = " ".join((hooks.__doc__ or "").split())
        FAULTS[name] = Fault(name, title, does, imitates, group, hooks())
        return FAULTS[name]

    return define


def owner(healthy: Healthy) -> Any:
    """The part whose bound method ``healthy`` is."""
    return healthy.__self__  # type: ignore[attr-defined]

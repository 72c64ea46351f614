"""Our server with an injected delay: every step lasts a given share longer.

Run as ``python slowed_server.py SHARE MODEL_DIR [serve options]``. The delay is put on the engine
from outside, so that the product carries no switch for it.
"""

import sys
import time

from harness.cli import main
from reference_engine.engine import Engine

share = float(sys.argv[1])
healthy_step = Engine.step


def slowed_step(self):  # type: ignore[no-untyped-def]
    started_s = time.perf_counter()
    events = healthy_step(self)
    time.sleep(share * (time.perf_counter() - started_s))
    return events


Engine.step = slowed_step  # type: ignore[method-assign]
main(["serve", *sys.argv[2:]])

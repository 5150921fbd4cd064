"""One side of a pair: measures a workload with a variant on, as `suite/side.py` does for a commit."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.overhead.variants import VARIANTS
from benchmarks.suite import workers
from benchmarks.suite.figures import Scale
from benchmarks.suite.server import Place
from benchmarks.suite.side import Driver, SideServer, run_side


class ObservedServer(SideServer):
    """The shared server. The workers of its places have a variant on."""

    def __init__(self, folder: Path, side: str, variant: str, collector: str) -> None:
        super().__init__(folder, side)
        self._variant, self._collector = variant, collector

    @contextmanager
    def place(self, name: str, *queues: Any) -> Iterator[Place]:
        with super().place(name, *queues) as place:
            place.settings = VARIANTS[self._variant].applied(self._variant, place.settings, self._collector)
            yield place


def main(root: str, folder: str, side: str, variant: str, workload: str, collector: str, scale: str) -> None:
    """Measure a workload with a variant on."""
    chosen = VARIANTS[variant]

    def measure(driver: Driver) -> None:
        if chosen.silent:  # the worker processes inherit it
            with open(os.devnull, "w") as nothing:
                os.dup2(nothing.fileno(), 2)
        if chosen.handlers:
            workers.HANDLERS = chosen.handlers
        # after the replacements, because the workloads import the replaced names
        from benchmarks.overhead import served
        from benchmarks.suite.workloads import endpoint

        {"endpoint": endpoint, "served": served}[workload].measure(
            ObservedServer(Path(folder), side, variant, collector), Scale(**json.loads(scale))
        )

    run_side(root, folder, side, measure)


if __name__ == "__main__":
    main(*sys.argv[1:])

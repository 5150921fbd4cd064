"""Measure one workload with the code of one checkout, one round at a time.

This file is one side of `--against`. `against.py` runs it as a process for each side, always from the newer checkout, so
that it also works with commits that are older than this file. `PYTHONPATH` names the side's own checkout. All imports
below, those of `benchmarks` included, therefore load the code of that side.

The process and `against.py` exchange lines of JSON. The process sends an event, then waits for the answer:

    {"event": "case", "case": ..., "units": {NAME: UNIT}}   answers: {"measure": NAME}, and at the end {"next": true}
    {"event": "load", "gap": SECONDS}                       answer: {"gap": SECONDS}
    {"event": "done"} or {"event": "error", "error": ...}   last event

`{"measure": NAME}` is answered with `{"figure": NUMBER}` or `{"error": TEXT}`.

The workloads stay as they are. Before they are imported, `replace_turns` puts a `take_turns` in place that measures on
request, and `remove_peers` leaves only the lines of rowpost. Names that this file imports from `benchmarks.suite` must
exist in both checkouts. If you rename one of them, accept the old name here as well.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType
from typing import Any

import rowpost
from benchmarks.suite import figures, peers
from benchmarks.suite.figures import Contender, Line, Round, Scale
from benchmarks.suite.server import Place, Server
from benchmarks.suite.workers import make_ready


class Driver:
    """The connection to `against.py`: the process's own standard input and output, which no child process inherits."""

    def __init__(self) -> None:
        self._reader = os.fdopen(os.dup(0))
        self._writer = os.fdopen(os.dup(1), "w", buffering=1)
        with open(os.devnull) as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(2, 1)

    def tell(self, message: dict[str, Any]) -> None:
        self._writer.write(json.dumps(message) + "\n")

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send a message and return the answer. Exit if the driver has closed the connection."""
        self.tell(message)
        line = self._reader.readline()
        if not line:
            sys.exit("the comparison was stopped")
        return json.loads(line)


class SideServer(Server):
    """The server that both sides share. Each side has databases of its own."""

    def __init__(self, folder: Path, side: str) -> None:
        super().__init__(folder)
        self._side = side

    def place(self, name: str, *queues: Any) -> AbstractContextManager[Place]:
        return super().place(f"{name}_{self._side}", *queues)


def replace_turns(driver: Driver) -> None:
    """Make the workloads measure a round only when the driver requests it."""

    def take_turns(case: str, contenders: Sequence[Contender], rounds: int) -> list[Line]:
        errors: dict[str, str] = {}

        def measure(contender: Contender) -> dict[str, Any]:
            if contender.name not in errors:
                try:
                    result = contender.measure()
                    return {"figure": result.figure if isinstance(result, Round) else float(result)}
                except Exception as error:  # noqa: BLE001 the other figures are still measured
                    traceback.print_exc()
                    errors[contender.name] = f"{type(error).__name__}: {error}"
            return {"error": errors[contender.name]}

        by_name = {each.name: each for each in contenders}
        for each in contenders:
            if each.warm:
                measure(each)
        answer = driver.ask({"event": "case", "case": case, "units": {each.name: each.unit for each in contenders}})
        while "measure" in answer:
            answer = driver.ask(measure(by_name[answer["measure"]]))
        return [Line(case, each.name, unit=each.unit) for each in contenders]

    figures.take_turns = take_turns


def remove_peers() -> None:
    """Leave only rowpost's own lines in the workloads."""

    def pgmq_script() -> str:
        raise peers.PeerFailed("peers are not measured with --against")

    peers.PEERS = ()
    peers.pgmq_script = pgmq_script


def share_load(latency: ModuleType, driver: Driver) -> None:
    """Make both sides send at the same rate under half load.

    Each side would otherwise use half of the rate that it measured itself. An error of that one measurement would then
    shift all of its latencies, and no number of pairs would reveal it.
    """
    send_paced: Callable[..., None] = latency.send_paced
    shared: list[float] = []

    def send_at_shared_rate(queue: Any, number: int, gap: float) -> None:
        if gap not in (0.0, latency.GAP):
            if not shared:
                shared.append(driver.ask({"event": "load", "gap": gap})["gap"])
            gap = shared[0]
        send_paced(queue, number, gap)

    latency.send_paced = send_at_shared_rate


def check_origin(root: Path) -> None:
    """Raise RuntimeError if the imported code is not that of the checkout `root`."""
    for module in (rowpost, figures):
        if not Path(module.__file__).resolve().is_relative_to(root.resolve()):
            raise RuntimeError(
                f"{module.__name__} was imported from {module.__file__}, not from {root}: check PYTHONPATH"
            )


def main(root: str, folder: str, side: str, workload: str, scale: str) -> None:
    """Measure one workload. `folder` is the data folder of the running server, `scale` the arguments of Scale as JSON."""

    def measure(driver: Driver) -> None:
        # after the replacements, because the workloads import the replaced names
        from benchmarks.suite.workloads import WORKLOADS, latency

        share_load(latency, driver)
        WORKLOADS[workload].measure(SideServer(Path(folder), side), Scale(**json.loads(scale)))

    run_side(root, folder, side, measure)


def run_side(root: str, folder: str, side: str, measure: Callable[[Driver], object]) -> None:
    """Prepare this process as a side, and let it measure. Errors go to the driver."""
    driver = Driver()
    try:
        check_origin(Path(root))
        make_ready(Path(tempfile.mkdtemp(prefix=f"notes-{side}-", dir=folder)))
        replace_turns(driver)
        remove_peers()
        measure(driver)
    except Exception as error:  # noqa: BLE001 the driver reports it
        traceback.print_exc()
        driver.tell({"event": "error", "error": f"{type(error).__name__}: {error}"})
    else:
        driver.tell({"event": "done"})


if __name__ == "__main__":
    main(*sys.argv[1:])

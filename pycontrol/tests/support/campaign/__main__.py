"""Run the campaign; see the package. Exits with 1 if anything was lost, doubled or stuck."""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.support.campaign import failover, fuzz, injected, kinds, surroundings, ticks
from tests.support.campaign.endpoints import MODES
from tests.support.campaign.kinds import Result


@dataclass(frozen=True)
class Kind:
    """A kind of faults. `times` is what the whole campaign does."""

    run: Callable[..., Result]
    times: int


KINDS = {
    "kills": Kind(kinds.kills, 200),
    "crashes": Kind(kinds.crashes, 50),
    "restarts": Kind(kinds.restarts, 25),
    "wires": Kind(kinds.wires, 40),
    "pressure": Kind(kinds.pressure, 60),
    "failovers": Kind(failover.failovers, 20),
    "ticks": Kind(ticks.ticks, 10_000),
    "errors": Kind(injected.errors, 3000),
    "settings": Kind(surroundings.settings, 1_000),  # all of them: a server has some hundred
    "functions": Kind(fuzz.functions, 1_000_000),
    "workers": Kind(fuzz.workers, 10_000),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.campaign", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=list(KINDS), default=list(KINDS), help="kinds of faults")
    parser.add_argument(
        "--modes", nargs="+", choices=MODES, default=MODES, help="modes of --only kills, crashes, restarts"
    )
    parser.add_argument("--share", type=float, default=1.0, help="share of the whole campaign, such as 0.1")
    parser.add_argument("--seed", type=int, default=2026, help="decides what is struck and when")
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no further kind after so long")
    given = parser.parse_args()
    began, found = time.monotonic(), 0
    for name in given.only:
        kind, at = KINDS[name], time.monotonic()
        if at - began > given.minutes * 60:
            print(f"{name}: NOT RUN, {given.minutes:.0f} minutes are over", flush=True)
            found += 1
            continue
        modes = {} if given.modes == MODES else {"modes": given.modes}
        result = kind.run(max(1, round(kind.times * given.share)), random.Random(f"{given.seed} {name}"), **modes)
        print(f"{name}: {time.monotonic() - at:.0f} s, {'nothing found' if not result.wrong else 'FOUND'}", flush=True)
        for what, times in sorted(result.done.items()):
            print(f"  {times:7} {what}", flush=True)
        for sentence in result.wrong:
            print(f"  WRONG {sentence}", flush=True)
        found += len(result.wrong)
    print(f"seed {given.seed}, share {given.share}: {found or 'nothing'} found")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

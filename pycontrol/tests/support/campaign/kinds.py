"""The kinds of faults, each with what it strikes, how often, and how its ledger is compared."""

from __future__ import annotations

import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.campaign import strikes
from tests.support.campaign.endpoints import MODES
from tests.support.campaign.proxy import Proxy
from tests.support.campaign.site import Site, Stuck
from tests.support.campaign.strikes import Strike
from tests.support.postgres import Server

__all__ = ["Result", "compare", "crashes", "kills", "pressure", "restarts", "site_of", "wires"]

OPTIONS = "-c max_connections=60 -c max_prepared_transactions=20 -c log_min_messages=fatal"
#: for a disk that can be filled; a segment of the write-ahead log has 16 MB
LARGEST_FILE = 17 * 1024 * 1024


@dataclass
class Result:
    """What a kind of faults did, and what it found.

    Attributes:
        done: how often, by name.
        wrong: broken promises, in sentences.
    """

    done: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


@contextmanager
def site_of(
    mode: str, *, proxied: bool = False, largest_file: int | None = None
) -> Iterator[tuple[Site, Proxy | None]]:
    """A site that is built, and taken away afterwards. `largest_file` is how many bytes a file of its server may have."""
    with tempfile.TemporaryDirectory(prefix="rowpost-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "server").mkdir()
        server = Server(folder / "server" / "d", OPTIONS, largest_file)
        proxy = None
        try:
            server.create()
            server.start()
            site = Site(folder, mode, server)
            site.build()
            if proxied:
                proxy = Proxy(folder / "proxy", server.socket_folder / ".s.PGSQL.5432")
                site.through = str(proxy.folder)
                site.write_environment()
            yield site, proxy
        finally:
            if proxy is not None:
                proxy.close()
            server.stop()


def strike(
    mode: str,
    kinds: Sequence[Strike],
    times: int,
    dice: random.Random,
    result: Result,
    pause: tuple[float, float] = (0.02, 0.4),
) -> None:
    """Strike one site so many times, and compare its ledger."""
    with site_of(mode, largest_file=LARGEST_FILE if strikes.fill_disk in kinds else None) as (site, _):
        if strikes.rotate_password in kinds:
            site.change_password("first")
            site.write_environment()
        struck = 0
        try:
            with site.at_work():
                while struck < times:
                    time.sleep(dice.uniform(*pause))
                    name = dice.choice(kinds)(site, dice)
                    site.start()
                    if name is not None:
                        struck += 1
                        result.done[f"{name}, {mode}"] += 1
        except Stuck as stuck:
            result.wrong.append(f"{mode}: {stuck}")
        if strikes.kill_application in kinds and site.applications is not None:
            result.wrong += [f"{mode}: {failure}" for failure in site.applications.failures]
        compare(site, result)


def compare(site: Site, result: Result) -> None:
    """Compare the ledger of a site that has settled, or is stuck: what is still in the queue is not lost."""
    ledger = site.ledger()
    result.done[f"orders, {site.mode}"] += len(ledger.sent)
    if site.applications is not None:
        for number, what in site.applications.interrupted:
            became = "committed" if number in ledger.sent else "rolled back"
            result.done[f"application killed within its transaction, last noted: {what}; {became}"] += 1
    result.done["in the error queue"] += sum(ledger.failed.values())
    if site.mode == "none":
        result.done["lost in mode none, as it may"] += sum(
            1 for each in ledger.sent if not ledger.handled[each] and not ledger.failed[each]
        )
    result.wrong += [f"{site.mode}: {sentence}" for sentence in ledger.wrong(site.mode, may_lose=site.killed)]
    if not ledger.handled:
        result.wrong.append(f"{site.mode}: nothing was handled")


# ---------------------------------------------------------------------- the kinds
def kills(times: int, dice: random.Random, modes: Sequence[str] = MODES) -> Result:
    """Kill workers, supervisors, helpers, groups and applications: so many in each mode."""
    result = Result()
    processes = [strikes.kill_worker] * 6 + [
        strikes.kill_supervisor,
        strikes.kill_helper,
        strikes.kill_group,
        strikes.terminate_sessions,
    ]
    for mode in modes:
        applications = [strikes.kill_application] * 40 if mode == "joined" else []
        strike(mode, [*processes, *applications], times, dice, result)
    return result


def crashes(times: int, dice: random.Random, modes: Sequence[str] = MODES) -> Result:
    """Kill the server, or one process of it: so many over all modes."""
    result = Result()
    for mode, share in zip(modes, _shares(times, len(modes)), strict=True):
        strike(mode, [strikes.crash_server], share, dice, result, pause=(0.1, 1.0))
    return result


def restarts(times: int, dice: random.Random, modes: Sequence[str] = MODES) -> Result:
    """Stop and start the server."""
    result = Result()
    for mode, share in zip(modes, _shares(times, len(modes)), strict=True):
        strike(mode, [strikes.restart_server], share, dice, result, pause=(0.1, 1.0))
    return result


def pressure(times: int, dice: random.Random, modes: Sequence[str] = MODES) -> Result:
    """Pause processes, exhaust connections, fill the disk, deploy under load, hold a sender's transaction open, change the password."""
    result = Result()
    kinds = [
        strikes.pause_worker,
        strikes.exhaust_connections,
        strikes.fill_disk,
        strikes.redeploy,
        strikes.hold_sender_open,
        strikes.rotate_password,
    ]
    for mode, share in zip(modes, _shares(times, len(modes)), strict=True):
        strike(mode, kinds, share, dice, result)
    return result


def wires(times: int, dice: random.Random, modes: Sequence[str] = MODES) -> Result:
    """Cut connections after a COMMIT and before its reply, and between them delay the network and let it fall silent."""
    result = Result()
    for mode, share in zip(modes, _shares(times, len(modes)), strict=True):
        with site_of(mode, proxied=True) as (site, proxy):
            try:
                with site.at_work():
                    while proxy.cut < share:
                        time.sleep(dice.uniform(0.1, 0.6))
                        site.start()
                        match dice.randrange(4):
                            case 0:
                                proxy.delay = dice.uniform(0.0, 0.05)
                            case 1:
                                proxy.silent = True
                                time.sleep(dice.uniform(0.1, 1.5))
                                proxy.silent = False
                                result.done[f"silence, {mode}"] += 1
                            case _:
                                proxy.delay, proxy.cuts = 0.0, 1
                    proxy.delay, proxy.cuts = 0.0, 0
            except Stuck as stuck:
                result.wrong.append(f"{mode}: {stuck}")
            result.done[f"COMMIT without a reply, {mode}"] += proxy.cut
            site.killed += proxy.cut
            compare(site, result)
    return result


def _shares(times: int, parts: int) -> list[int]:
    """Divide by the modes, each at least one."""
    return [max(1, times // parts + (place < times % parts)) for place in range(parts)]

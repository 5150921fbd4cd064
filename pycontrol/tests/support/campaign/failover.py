"""Failovers to a synchronous standby while an endpoint works and orders are sent."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psycopg

from tests.support.campaign.endpoints import MODES
from tests.support.campaign.kinds import OPTIONS, Result, compare
from tests.support.campaign.site import Site, Stuck
from tests.support.postgres import Server

__all__ = ["failovers"]


def failovers(times: int, dice: random.Random, modes: Sequence[str] = MODES) -> Result:
    """Kill a primary at a random moment after `apply`, and promote its synchronous standby."""
    result = Result()
    for number in range(times):
        mode = modes[number % len(modes)]
        with tempfile.TemporaryDirectory(prefix="rowpost-", ignore_cleanup_errors=True) as name:
            folder = Path(name)
            folder.chmod(0o755)
            (folder / "servers").mkdir()
            primary, standby = (Server(folder / "servers" / each, OPTIONS) for each in "ps")
            try:
                _one(folder, mode, primary, standby, dice, result)
            except Stuck as stuck:
                result.wrong.append(f"{mode}: {stuck}")
            finally:
                primary.stop()
                standby.stop()
        result.done[f"failover, {mode}"] += 1
    return result


def _one(folder: Path, mode: str, primary: Server, standby: Server, dice: random.Random, result: Result) -> None:
    primary.create()
    primary.start()
    standby.copy(primary)
    standby.start()
    with psycopg.connect(primary.url(), autocommit=True) as admin:
        admin.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        admin.execute("SELECT pg_reload_conf()")
    both = f"{primary.socket_folder},{standby.socket_folder}&target_session_attrs=read-write"
    site = Site(folder, mode, primary, both)
    site.build()
    with site.at_work():
        time.sleep(dice.uniform(0.0, 3.0))
        site.killed += 3
        primary.kill()
        standby.promote()
        site.server = standby
    compare(site, result)

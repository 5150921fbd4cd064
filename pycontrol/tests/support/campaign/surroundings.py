"""Settings of a database that are not what rowpost was built with, one at a time; see `tests.support.session_settings`."""

from __future__ import annotations

import random
import tempfile
from contextlib import closing
from pathlib import Path

import psycopg

from tests.support.campaign.kinds import Result
from tests.support.postgres import Server
from tests.support.session_settings import Journey, read_settings, values_of

__all__ = ["settings"]


def settings(times: int, dice: random.Random) -> Result:
    """Send messages through a database under each value of each setting, or of so many settings that the dice choose."""
    result = Result()
    with tempfile.TemporaryDirectory(prefix="rowpost-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "server").mkdir()
        server = Server(folder / "server" / "d")
        try:
            server.create()
            server.start()
            with psycopg.connect(server.url(), autocommit=True) as admin:
                admin.execute("CREATE DATABASE shop")
                found = read_settings(admin)
            with closing(Journey(server.url("shop"))) as journey:
                for setting in found if times >= len(found) else dice.sample(found, times):
                    result.done["settings"] += 1
                    for value in values_of(setting):
                        result.done["values"] += 1
                        result.wrong += journey.under(setting.name, value)
        finally:
            server.stop()
    return result

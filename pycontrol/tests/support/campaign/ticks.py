"""Kill three supervisors of the same schedules, each with a host name of its own, and let the server's clock jump.

Each tick must be sent once, and its handler's row be there once. The clock is that of the kind's own server: Debian's
libfaketime reads its offset from a file. Without it, the kind kills only, and says so.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import psycopg
import yaml

from tests.support.campaign.kinds import OPTIONS, Result
from tests.support.campaign.ticking import SCHEDULES
from tests.support.postgres import Server

__all__ = ["ticks"]

FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")
SUPERVISORS = 3
#: seconds that the clock jumps: on by up to so many, and back by up to so many
ON_S, BACK_S = 6.0, 4.0
STUCK_S = 120.0
COUNT = "SELECT count(*) FROM ticks"
#: of each schedule: rows, different ids, different ticks, seconds from the first to the last, and whether the first and last tick are those
#: between which the schedule has moved
LEDGER = """
    SELECT s.schedule_name, count(t.id), count(DISTINCT t.id), count(DISTINCT t.due),
        extract(epoch FROM max(t.due) - min(t.due))::integer,
        min(t.due) AT TIME ZONE 'UTC' = (SELECT f.first + interval '1 second' FROM first AS f WHERE f.schedule_name = s.schedule_name),
        max(t.due) AT TIME ZONE 'UTC' = s.sent_due
    FROM rowpost.schedule AS s LEFT JOIN ticks AS t ON t.schedule = s.schedule_name
    GROUP BY s.schedule_name, s.sent_due
"""


class _Site:
    """A server whose clock can jump, and supervisors of the endpoint."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._clock, self._offset = folder, folder / "clock", 0.0
        self.jumps = FAKETIME.exists()
        self._set_clock()
        faked = {
            "LD_PRELOAD": str(FAKETIME),
            "FAKETIME_TIMESTAMP_FILE": str(self._clock),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        (folder / "server").mkdir()
        self.server = Server(folder / "server" / "d", OPTIONS, variables=faked if self.jumps else None)
        self._running: list[subprocess.Popen[bytes] | None] = [None] * SUPERVISORS

    def build(self) -> None:
        self.server.create()
        self.server.start()
        with psycopg.connect(self.server.url(), autocommit=True) as admin:
            admin.execute("CREATE DATABASE queues")
        worker = {"handler": "tests.support.campaign.ticking:ticking", "limit": 2, "peek_delay": 0.1}
        environment = {
            "environment": "ticks",
            "engine": "postgresql",
            "url": self.server.url("queues"),
            "queues": {"Ticking": {"worker": worker}, "error": {}},
            "supervisor": {"breaker_seconds": 1.0, "stop_timeout": 20.0, "delayed_lateness": 0.1},
        }
        (self._folder / "ticks.yml").write_text(yaml.safe_dump(environment, sort_keys=False))
        subprocess.run(self._command("apply", "--yes"), check=True, env=self._variables, capture_output=True)
        self.run("CREATE TABLE ticks (id text NOT NULL, schedule text NOT NULL, due timestamptz NOT NULL)")
        second = "UPDATE rowpost.schedule SET ticked_to = date_trunc('second', ticked_to)"
        self.run(second)
        self.run("CREATE TABLE first AS SELECT s.schedule_name, s.ticked_to AS first FROM rowpost.schedule AS s")

    @property
    def _variables(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

    def _command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "rowpost", "--env", str(self._folder / "ticks.yml"), *arguments]

    def run(self, statement: str) -> list[tuple]:
        with psycopg.connect(self.server.url("queues"), autocommit=True) as database:
            cursor = database.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def start(self) -> None:
        """Start the supervisors that do not run, each with a host name of its own where this user may give one."""
        for number, process in enumerate(self._running):
            if process is None or process.poll() is not None:
                with (self._folder / f"supervisor-{number}.log").open("a") as log:
                    self._running[number] = subprocess.Popen(
                        [*_hosted(f"host-{number}"), *self._command("run", "--json")],
                        env=self._variables,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                    )

    def stop(self) -> None:
        for process in filter(None, self._running):
            with suppress(ProcessLookupError):
                process.terminate()
        for process in filter(None, self._running):
            with suppress(subprocess.TimeoutExpired):
                process.wait(30)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def hosts(self) -> int:
        """Return how many host names have reported."""
        return int(self.run("SELECT count(DISTINCT host_name) FROM rowpost.supervisor")[0][0])

    def jump(self, seconds: float) -> None:
        self._offset += seconds
        self._set_clock()

    def _set_clock(self) -> None:
        new = self._clock.with_suffix(".new")
        new.write_text(f"{self._offset:+.3f}s\n")
        new.chmod(0o644)
        new.replace(self._clock)

    def victims(self) -> list[psutil.Process]:
        """Return the supervisors that run, and the processes below them."""
        found = []
        for process in filter(None, self._running):
            with suppress(psutil.NoSuchProcess):
                supervisor = psutil.Process(process.pid)
                found += [supervisor, *supervisor.children(recursive=True)]
        return found


def _hosted(name: str) -> list[str]:
    rename = ["unshare", "--uts", "sh", "-c", f'hostname {name} && exec "$@"', "sh"]
    with suppress(FileNotFoundError):
        if subprocess.run([*rename, "true"], check=False, capture_output=True).returncode == 0:
            return rename
    return []


def _kill_one(site: _Site, dice: random.Random) -> str:
    if victims := site.victims():
        with suppress(psutil.NoSuchProcess):
            dice.choice(victims).kill()
    return "processes killed"


def _kill_group(site: _Site, dice: random.Random) -> str:
    running = [each for each in site._running if each is not None and each.poll() is None]
    if running:
        with suppress(ProcessLookupError):
            os.killpg(dice.choice(running).pid, signal.SIGKILL)
    return "supervisors killed with their workers"


def _end_sessions(site: _Site, dice: random.Random) -> str:
    name = dice.choice(["rowpost schedules", "rowpost worker%", "rowpost%"])
    site.run(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'queues' AND pid <> pg_backend_pid() "
        f"AND application_name LIKE '{name}'"
    )
    return "sessions ended"


def _jump_on(site: _Site, dice: random.Random) -> str:
    site.jump(dice.uniform(0.5, ON_S))
    return "clock jumps on"


def _jump_back(site: _Site, dice: random.Random) -> str:
    site.jump(-dice.uniform(0.5, BACK_S))
    return "clock jumps back"


def ticks(times: int, dice: random.Random) -> Result:
    """Strike until so many ticks are handled; then let the rest be handled, and compare."""
    result = Result()
    with _site() as site:
        strikes: list[Callable[[_Site, random.Random], str]] = [_kill_one, _kill_one, _kill_group, _end_sessions]
        if site.jumps:
            strikes += [_jump_on, _jump_on, _jump_back, _jump_back]
        else:
            result.done["clock jumps: NOT RUN, libfaketime is not installed"] = 1
        site.start()
        _until(site, lambda: site.hosts(), lambda hosts: hosts >= 1)
        while site.run(COUNT)[0][0] < times:
            time.sleep(dice.uniform(0.3, 1.5))
            result.done[dice.choice(strikes)(site, dice)] += 1
            site.start()
            result.done["host names"] = max(result.done["host names"], site.hosts())
        site.run("UPDATE rowpost.schedule SET is_paused = true")
        try:
            _until(site, lambda: site.run('SELECT count(*) FROM public."Ticking"')[0][0], lambda left: left == 0)
        except AssertionError as stuck:
            result.wrong.append(str(stuck))
        site.stop()
        _compare(site, result)
    return result


def _compare(site: _Site, result: Result) -> None:
    rows = site.run(LEDGER)
    result.done["ticks"] = sum(row[1] for row in rows)
    if len(rows) != SCHEDULES:
        result.wrong.append(f"{len(rows)} schedules instead of {SCHEDULES}")
    for name, total, ids, dues, seconds, first, last in rows:
        if not total == ids == dues == (seconds or 0) + 1 or not first or not last:
            result.wrong.append(
                f"{name}: {total} rows, {ids} ids, {dues} ticks in {seconds} s; first {first}, last {last}"
            )
    failed = site.run("SELECT count(*) FROM public.error")[0][0]
    if failed:
        result.wrong.append(f"{failed} messages in the error queue")


def _until(site: _Site, read: Callable[[], int], done: Callable[[int], bool]) -> None:
    """Wait, with the supervisors running. Raises AssertionError if nothing changes for two minutes."""
    before, end = read(), time.monotonic() + STUCK_S
    while not done(now := read()):
        if now != before:
            before, end = now, time.monotonic() + STUCK_S
        assert time.monotonic() < end, f"stuck at {now}"
        site.start()
        time.sleep(0.2)


@contextmanager
def _site() -> Iterator[_Site]:
    with tempfile.TemporaryDirectory(prefix="rowpost-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)
        site = _Site(Path(name))
        try:
            site.build()
            yield site
        finally:
            site.stop()
            site.server.stop()

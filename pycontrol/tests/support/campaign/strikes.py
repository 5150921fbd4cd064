"""What strikes a site while it works. Each strike returns its name, or None if there was nothing to strike."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress

import psutil
import psycopg

from rowpost.database.connection import connect_url
from rowpost.transport.queue import Queue
from tests.support.campaign.site import LIMIT, Site, send_orders

__all__ = [
    "Strike", "crash_server", "exhaust_connections", "fill_disk", "hold_sender_open", "kill_application", "kill_group", "kill_helper",
    "kill_supervisor", "kill_worker", "pause_worker", "redeploy", "restart_server", "rotate_password", "terminate_sessions",
]  # fmt: skip

Strike = Callable[[Site, random.Random], str | None]

#: how long a supervisor may take to start workers on a busy machine
WORKER_S = 30.0
SERVICES = "application_name LIKE 'rowpost %' AND application_name <> 'rowpost campaign'"


# ---------------------------------------------------------------------- processes
def kill_worker(site: Site, dice: random.Random) -> str | None:
    """Kill one worker process: a process below the fork server. Waits for one, or supervisors that start would be killed instead."""
    end = time.monotonic() + WORKER_S
    while (victim := _one(site, dice, workers=True)) is None:
        if time.monotonic() > end:
            return None
        time.sleep(0.05)
    site.killed += 1
    return _kill(victim, "worker")


def kill_application(site: Site, dice: random.Random) -> str | None:
    """Kill an application that sends orders in transactions of its own."""
    way = site.applications and site.applications.kill_one(dice)
    return None if way is None else f"application with {way}"


def kill_helper(site: Site, dice: random.Random) -> str | None:
    """Kill the fork server or the resource tracker of the supervisor."""
    victim = _one(site, dice, workers=False)
    return None if victim is None else _kill(victim, "helper")


def kill_supervisor(site: Site, dice: random.Random) -> str | None:
    """Kill the supervisor alone; its workers end by themselves, while a new supervisor starts its own."""
    found = site.processes()
    if found is None:
        return None
    name = _kill(found[0], "supervisor")
    site.start()
    return name


def kill_group(site: Site, dice: random.Random) -> str | None:
    """Kill the supervisor and all that it has started, at once."""
    found = site.processes()
    if found is None:
        return None
    site.killed += LIMIT
    with suppress(ProcessLookupError):
        os.killpg(found[0].pid, signal.SIGKILL)
    psutil.wait_procs([found[0], *found[1]], timeout=10)
    site.start()
    return "group"


def pause_worker(site: Site, dice: random.Random) -> str | None:
    """Stop one process for a while, as a debugger or a busy machine does."""
    found = site.processes()
    if found is None:
        return None
    victim = dice.choice([found[0], *found[1]])
    with suppress(psutil.NoSuchProcess):
        victim.suspend()
        time.sleep(dice.uniform(0.1, 2.0))
        victim.resume()
        return "pause"
    return None


def _one(site: Site, dice: random.Random, *, workers: bool) -> psutil.Process | None:
    found = site.processes()
    if found is None:
        site.start()
        return None
    supervisor, below = found
    with suppress(psutil.NoSuchProcess):
        wanted = [each for each in below if (each.ppid() != supervisor.pid) is workers]
        return dice.choice(wanted) if wanted else None
    return None


def _kill(victim: psutil.Process, name: str) -> str | None:
    try:
        victim.kill()
        psutil.wait_procs([victim], timeout=10)
    except psutil.NoSuchProcess:
        return None
    return name


# ---------------------------------------------------------------------- server
def terminate_sessions(site: Site, dice: random.Random) -> str | None:
    """End a session of the endpoint, or all of them."""
    some = "LIMIT 1" if dice.random() < 0.7 else ""
    with psycopg.connect(site.server.url(), autocommit=True) as admin:
        ended = admin.execute(
            f"SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity WHERE {SERVICES} ORDER BY random() {some}) AS s"
        ).fetchall()
    site.killed += len(ended)
    return "session" if ended else None


def crash_server(site: Site, dice: random.Random) -> str:
    """Kill the server with all of its processes, or one session of it, after which PostgreSQL restarts all others."""
    site.killed += LIMIT
    if dice.random() < 0.5:
        backends = psutil.Process(site.server.pid).children()
        victim = dice.choice(backends)
        with suppress(psutil.NoSuchProcess):
            victim.kill()
        _until_it_answers(site)
        return "server process"
    site.server.kill()
    time.sleep(dice.uniform(0.0, 1.0))
    site.server.start()
    return "server"


def restart_server(site: Site, dice: random.Random) -> str:
    """Stop the server in an orderly way, or at once, and start it again."""
    site.killed += LIMIT
    site.server.stop(dice.choice(["fast", "immediate"]))
    time.sleep(dice.uniform(0.0, 2.0))
    site.server.start()
    return "restart"


def _until_it_answers(site: Site) -> None:
    end = time.monotonic() + 30.0
    while time.monotonic() < end:
        with suppress(psycopg.Error), psycopg.connect(site.server.url(), autocommit=True) as admin:
            admin.execute("SELECT 1")
            return
        time.sleep(0.05)


# ---------------------------------------------------------------------- shortages
def exhaust_connections(site: Site, dice: random.Random) -> str:
    """Take every connection that the server has, for a while, while sessions of the endpoint end."""
    hogs: list[psycopg.Connection] = []
    with psycopg.connect(site.server.url(), autocommit=True) as admin:
        with suppress(psycopg.OperationalError):
            for _ in range(1000):
                hogs.append(psycopg.connect(site.server.url("shop")))
                if len(hogs) % 5 == 0:
                    ended = admin.execute(
                        f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {SERVICES}"
                    ).fetchall()
                    site.killed += len(ended)
        time.sleep(dice.uniform(0.2, 1.5))
    for each in hogs:
        each.close()
    return "connections"


def fill_disk(site: Site, dice: random.Random) -> str:
    """Let the table of Billing reach the size that no file may exceed, so that nothing can be sent to it, and clean it up after a while."""
    with psycopg.connect(site.server.url("queues"), autocommit=True) as database:
        rows = "SELECT gen_random_uuid(), repeat('x', 1500), NULL FROM generate_series(1, 20000)"
        try:
            database.execute(f'INSERT INTO public."Billing" (id, headers, body) {rows}')
        except psycopg.Error as error:
            assert "extend" in str(error), error
            time.sleep(dice.uniform(0.2, 1.5))
        else:
            raise AssertionError("the server has no limit for the size of a file")
        database.execute('VACUUM (TRUNCATE) public."Billing"')
    return "disk"


# ---------------------------------------------------------------------- what people do
def redeploy(site: Site, dice: random.Random) -> str:
    """Deploy under load: another queue each time, and on top a statement that locks the queue's table for a moment."""
    site.write_environment(f"Extra{dice.randrange(10**6)}")
    site.rowpost("apply", "--yes")
    with suppress(psycopg.Error), psycopg.connect(site.server.url("queues")) as database:
        database.execute("SET lock_timeout = '2s'")
        database.execute('LOCK TABLE public."Sales" IN ACCESS EXCLUSIVE MODE')
        time.sleep(dice.uniform(0.0, 0.5))
    return "apply"


def rotate_password(site: Site, dice: random.Random) -> str:
    """Change the password of the service's login, and end its sessions."""
    site.change_password(f"secret{dice.randrange(10**9)}")
    with psycopg.connect(site.server.url(), autocommit=True) as admin:
        site.killed += len(
            admin.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {SERVICES}").fetchall()
        )
    return "password"


def hold_sender_open(site: Site, dice: random.Random) -> str:
    """Send orders in a transaction that stays open for a while, and then commits or rolls back."""
    with (
        connect_url("postgresql", site.server.url("queues"), "campaign sender") as database,
        suppress(KeyError),
        database.transaction(),
    ):
        send_orders(database, Queue("Sales", database), site.next_numbers(3))
        time.sleep(dice.uniform(0.1, 2.0))
        if dice.random() < 0.5:
            raise KeyError("rolled back")
    return "open sender"

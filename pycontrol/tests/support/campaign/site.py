"""A site: a server of its own, an endpoint run by `rowpost run` in processes of its own, and a sender."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import psutil
import psycopg
import yaml

from rowpost.database.connection import connect_url
from rowpost.errors import RowpostError
from rowpost.outbox.cleanup import send_left_behind
from rowpost.transport.queue import Queue
from rowpost.wire.message import OutgoingMessage
from tests.support.campaign.applications import Applications
from tests.support.campaign.endpoints import SHOP_URL
from tests.support.campaign.ledger import Ledger
from tests.support.crashing import TYPE
from tests.support.postgres import Server

__all__ = ["Site", "Stuck"]

HEADERS = {"NServiceBus.EnclosedMessageTypes": TYPE}
LIMIT = 3
SETTLE_S = 120.0
TABLES = "CREATE TABLE business (number integer NOT NULL); CREATE TABLE sent (number integer NOT NULL);"
NUMBER = "(substring(convert_from(body, 'UTF8') from '[0-9]+'))::integer"


class Stuck(AssertionError):
    """Messages that are not handled although nothing hinders it any more."""


class Site:
    """One endpoint in one mode on one server.

    Args:
        folder: belongs to this site.
        server: runs, and has no databases yet.
        through: the host in the URL of the endpoint's processes; None for the server's own socket.
    """

    def __init__(self, folder: Path, mode: str, server: Server, through: str | None = None) -> None:
        self.folder, self.mode, self.server = folder, mode, server
        self.through = through or str(server.socket_folder)
        self._numbers = count()
        self._service: subprocess.Popen[str] | None = None
        self._log = folder / "service.log"
        self.environment = folder / "site.yml"
        self.password_file: Path | None = None
        #: orders whose commit the sender has seen
        self.acknowledged: set[int] = set()
        #: exit codes of services that nobody had killed
        self.ended: list[int] = []
        #: processes of the service that were killed: each may have had one message in hand
        self.killed = 0
        #: in the mode joined: what sends in the place of a sender
        self.applications: Applications | None = None

    # ------------------------------------------------------------------ building
    def build(self) -> None:
        """Make the databases, deploy, and write the environment."""
        with psycopg.connect(self.server.url(), autocommit=True) as admin:
            for name in ("queues", "shop"):
                admin.execute(f"CREATE DATABASE {name}")
        for name in ("queues", "shop"):
            with psycopg.connect(self.server.url(name), autocommit=True) as database:
                database.execute(TABLES)
        self.write_environment()
        self.rowpost("apply", "--yes")

    def write_environment(self, *more: str) -> None:
        """Write the environment; `more` are queues beside the site's own."""
        handler = f"tests.support.campaign.endpoints:{self.mode}"
        shop = f"postgresql://postgres@/shop?host={self.through}"
        environment = {
            "environment": "campaign",
            "engine": "postgresql",
            "url": f"postgresql://{'postgres' if self.password_file is None else 'app'}@/queues?host={self.through}",
            "queues": {
                "Sales": {
                    "delayed": True,
                    "lease": True,
                    "worker": {"handler": handler, "limit": LIMIT, "peek_delay": 0.1},
                },
                **{name: {} for name in ("Billing", "error", *more)},
            },
            "supervisor": {"breaker_seconds": 1.0, "stop_timeout": 20.0},
            "participants": {"shop": {"url": shop}},
            "outbox": {"shop": {"url": shop}},
        }
        if self.password_file is not None:
            environment["password_file"] = str(self.password_file)
        self.environment.write_text(yaml.safe_dump(environment, sort_keys=False))

    def rowpost(self, *arguments: str) -> None:
        """Run one command of rowpost to its end. Raises CalledProcessError."""
        subprocess.run(
            self._command(*arguments),
            check=True,
            env=self._variables(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "rowpost", "--env", str(self.environment), *arguments]

    def _variables(self) -> dict[str, str]:
        shop = f"postgresql://postgres@/shop?host={self.through}"
        return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), SHOP_URL: shop}

    # ------------------------------------------------------------------ the service
    def start(self) -> None:
        """Start the endpoint's processes if they do not run."""
        if self._service is not None:
            if self._service.poll() is None:
                return
            if self._service.returncode != -signal.SIGKILL:
                self.ended.append(self._service.returncode)
        with self._log.open("a") as log:
            self._service = subprocess.Popen(
                self._command("run", "--json"),
                env=self._variables(),
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )

    def stop(self) -> None:
        """Stop the endpoint's processes as an operator does, and kill what does not end."""
        if self._service is None:
            return
        with suppress(ProcessLookupError):
            self._service.send_signal(signal.SIGCONT)
            self._service.terminate()
        try:
            self._service.wait(30)
        except subprocess.TimeoutExpired:
            self.ended.append(-1)
        with suppress(ProcessLookupError):
            os.killpg(self._service.pid, signal.SIGKILL)
        self._service = None

    def processes(self) -> tuple[psutil.Process, list[psutil.Process]] | None:
        """Return the supervisor and the processes below it; None if the supervisor has ended."""
        try:
            supervisor = psutil.Process(self._service.pid) if self._service else None
            return None if supervisor is None else (supervisor, supervisor.children(recursive=True))
        except psutil.NoSuchProcess:
            return None

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Run the service and a sender in the block; afterwards heal, wait until nothing is left, and stop."""
        self.start()
        sender: Sender | Applications = Sender(self)
        if self.mode == "joined":
            sender = self.applications = Applications(self.folder, lambda: self.server.url("queues"))
        sender.start()
        try:
            yield
            sender.end()
            self.settle()
        finally:
            sender.end()
            self.stop()

    # ------------------------------------------------------------------ the end
    def settle(self, seconds: float = SETTLE_S) -> None:
        """Wait until every message is handled or failed, with the service running. Raises Stuck if so long none of them is."""
        end, fewest, said = time.monotonic() + seconds, None, "nothing was asked"
        while time.monotonic() < end:
            self.start()
            try:
                left = self._left()
                if not left:
                    return
                said = ", ".join(f"{number} {name}" for name, number in left.items())
                if fewest is None or left.total() < fewest:
                    end, fewest = time.monotonic() + seconds, left.total()
            except (psycopg.Error, RowpostError) as error:
                said = f"{type(error).__name__}: {error}"
            time.sleep(0.1)
        raise Stuck(f"no message left in {seconds:.0f} s: {said}. The service's last lines:\n{self.last_lines()}")

    def events(self, name: str) -> int:
        """Return how many events of this name the service has printed."""
        lines = self._log.read_text(errors="replace").split("\n")
        return sum(1 for line in lines if line.startswith("{") and json.loads(line).get("event") == name)

    def change_password(self, password: str) -> None:
        """Give the login of the service this password, and write it into the file that the environment names."""
        with psycopg.connect(self.server.url(), autocommit=True) as admin:
            if self.password_file is None:
                (self.server.folder / "pg_hba.conf").write_text(
                    "local replication all trust\nlocal all postgres trust\nlocal all all scram-sha-256\n"
                )
                admin.execute("CREATE ROLE app SUPERUSER LOGIN")
                admin.execute("SELECT pg_reload_conf()")
                self.password_file = self.folder / "password"
            admin.execute(f"ALTER ROLE app PASSWORD '{password}'")
        self.password_file.write_text(password)

    def last_lines(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-15:])

    def _left(self) -> Counter[str]:
        with (
            connect_url("postgresql", self.server.url("queues")) as database,
            connect_url("postgresql", self.server.url("shop")) as shop,
        ):
            waiting = {
                "in Sales": 'SELECT count(*) FROM public."Sales"',
                "delayed": 'SELECT count(*) FROM public."Sales.Delayed"',
                "leased": 'SELECT count(*) FROM public."Sales.Leased"',
                "prepared": "SELECT count(*) FROM pg_prepared_xacts",
            }
            counted = {name: database.driver_connection.execute(text).fetchone()[0] for name, text in waiting.items()}
            if self.mode == "outbox" and not counted["in Sales"]:
                send_left_behind(database, shop, {"Sales"}, error_queue="error", older_than=0)
                counted["not dispatched"] = len(shop.call("list_undispatched", seconds=0, count=1000))
        return +Counter(counted)

    def ledger(self) -> Ledger:
        """Read what became of each order."""
        acknowledged = self.acknowledged if self.applications is None else self.applications.acknowledged
        with (
            psycopg.connect(self.server.url("queues"), autocommit=True) as database,
            psycopg.connect(self.server.url("shop"), autocommit=True) as shop,
        ):

            def numbers(connection: psycopg.Connection, statement: str) -> Counter[int]:
                return Counter(row[0] for row in connection.execute(statement).fetchall())

            here, there = (numbers(each, "SELECT number FROM business") for each in (database, shop))
            disagree = (
                {number for number in here | there if here[number] != there[number]}
                if self.mode == "transaction_scope"
                else set()
            )
            return Ledger(
                acknowledged=acknowledged,
                sent=set(numbers(database, "SELECT number FROM sent")),
                handled=there if self.mode == "outbox" else here,
                forwarded=numbers(database, f'SELECT {NUMBER} FROM public."Billing"'),
                failed=numbers(database, f"SELECT {NUMBER} FROM public.error"),
                disagree=disagree,
                waiting=set(
                    numbers(
                        database,
                        " UNION ALL ".join(
                            f'SELECT {NUMBER} FROM public."{name}"'
                            for name in ("Sales", "Sales.Delayed", "Sales.Leased")
                        ),
                    )
                ),
            )

    def next_numbers(self, many: int) -> list[int]:
        return [next(self._numbers) for _ in range(many)]


class Sender(threading.Thread):
    """Sends orders on the server's own socket, each batch in a transaction that also notes their numbers in the table `sent`."""

    def __init__(self, site: Site, batch: int = 5, pause: float = 0.02) -> None:
        super().__init__(daemon=True, name="sender")
        self._site, self._batch, self._pause = site, batch, pause
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.is_set():
            try:
                with connect_url("postgresql", self._site.server.url("queues"), "campaign sender") as database:
                    queue = Queue("Sales", database)
                    while not self._ended.wait(self._pause):
                        numbers = self._site.next_numbers(self._batch)
                        send_orders(database, queue, numbers)
                        self._site.acknowledged.update(numbers)
            except (psycopg.Error, RowpostError):
                self._ended.wait(0.05)

    def end(self) -> None:
        """Stop sending, and wait for the last batch."""
        self._ended.set()
        if self.is_alive():
            self.join(30)


def send_orders(database, queue: Queue, numbers: list[int]) -> None:
    """Send orders and note their numbers, in one transaction."""
    with database.transaction():
        database.driver_connection.execute("INSERT INTO sent SELECT unnest(%s::integer[])", (numbers,))
        queue.send_many(OutgoingMessage(b'{"Number":%d}' % number, HEADERS) for number in numbers)

"""The fixture `stage`: starts the two endpoints of a scenario, asker and answerer, on one database.

A scenario is one test. It runs once per engine and per pair:

    nservicebus-asks        the asker is NServiceBus, the answerer is rowpost
    nservicebus-answers     the other way round
    stand-in-asks           without .NET: `stand_in.py` says what this shows, and what it does not
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.support import schema
from tests.support.interop.dotnet import VARIABLE, build, connection_string, missing
from tests.support.interop.line_process import LineProcess
from tests.support.workers import eventually

__all__ = ["PYCONTROL", "Row", "Stage", "nsb_dll", "stage"]

PYCONTROL = Path(__file__).resolve().parents[3]
PAIRS = {"nservicebus-asks": "asker", "nservicebus-answers": "answerer", "stand-in-asks": "asker"}
WAIT_S = 60.0
_numbers = count(1)


@pytest.fixture(scope="session")
def nsb_dll(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built endpoint in C#. Skips where there is no .NET SDK, unless ROWPOST_TEST_NSERVICEBUS names a built one."""
    given = os.environ.get(VARIABLE)
    if given:
        assert Path(given).is_file(), (
            f"{VARIABLE} names {given}, which does not exist: build it with `make test/dotnet`"
        )
        return Path(given)
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    return build(tmp_path_factory.mktemp("nsb"))


@dataclass(frozen=True)
class Row:
    """One row of a queue's table.

    Attributes:
        row_version: its place in the queue.
        raw_headers: the text of the column.
    """

    row_version: int
    raw_headers: str
    body: bytes | None

    @property
    def headers(self) -> dict[str, str | None]:
        """The headers; none if their text is no JSON."""
        try:
            return json.loads(self.raw_headers)
        except ValueError:
            return {}


class Stage:
    """Two endpoints and their database.

    Attributes:
        asker, answerer: the names of the endpoints, new for each test.
        theirs: which of the two is NServiceBus, or the stand-in.
    """

    def __init__(
        self, target: Any, database: Any, sql: Any, folder: Path, theirs: str, other: list[str] | None
    ) -> None:
        number = next(_numbers)
        self.asker, self.answerer = f"Asker{number}", f"Answerer{number}"
        self.theirs, self.target, self.database, self.sql = theirs, target, database, sql
        self._folder, self._nservicebus = folder, other
        self.processes: list[LineProcess] = []
        for queue in ("error", "audit"):
            sql.empty(queue)
        sql.run(f"DELETE FROM {sql.table('SubscriptionRouting')}")

    # ------------------------------------------------------------------ processes
    def start(self, role: str, *, name: str | None = None, **options: Any) -> LineProcess:
        """Start the endpoint of a role and wait until it runs. A list as an option's value gives the option several times."""
        name = name or getattr(self, role)
        engine, url = self.target.settings.engine, self.target.url
        given = {"engine": engine, **options}
        if role == self.theirs and self._nservicebus is not None and schema.current() is not None:
            given["schema"] = schema.current()
        words = [
            f"{key}={value}"
            for key, values in given.items()
            for value in (values if isinstance(values, list) else [values])
        ]
        if role == self.theirs and self._nservicebus is not None:
            sagas = f"sagas={self._folder / 'sagas' / name}"
            command = [*self._nservicebus, name, connection_string(engine, url), *words, sagas]
        else:
            module = "stand_in" if role == self.theirs else "rowpost_endpoint"
            command = ["-m", f"tests.support.interop.{module}", name, url, *words]
        process = LineProcess(f"{role} {name}", command, self._folder, {**os.environ, "PYTHONPATH": str(PYCONTROL)})
        self.processes.append(process)
        return process.started()

    def both(self, **options: Any) -> tuple[LineProcess, LineProcess]:
        """Start asker and answerer with the same options."""
        answerer = self.start("answerer", **options)
        return self.start("asker", **options), answerer

    def close(self) -> None:
        for process in self.processes:
            process.kill()

    # ------------------------------------------------------------------ the database
    def rows(self, queue: str) -> list[Row]:
        """The rows of a queue. NServiceBus's queues have no procedures here, so the table is read."""
        found = self.sql.run(
            f"SELECT {self.sql.ROW_VERSION}, {self._column('Headers')}, {self._column('Body')} FROM {self.sql.table(queue)} ORDER BY 1"
        )
        return [Row(*row) for row in found]

    def wait_for_rows(self, queue: str, about: Callable[[Row], object] = lambda row: True) -> list[Row]:
        """Wait until a queue has rows that the function accepts. Return those."""
        return eventually(lambda: [each for each in self.rows(queue) if about(each)], f"a message in {queue}", WAIT_S)  # type: ignore[return-value]

    def wait_until_expired(self, queue: str) -> None:
        """Wait until the server's clock is past the time of a row that expires."""

        def past() -> bool:
            expires = [
                row[0]
                for row in self.sql.run(f"SELECT {self._column('Expires')} FROM {self.sql.table(queue)}")
                if row[0] is not None
            ]
            return any(each.replace(tzinfo=UTC) < self.sql.utc_now() for each in expires)

        eventually(past, f"an expired message in {queue}", WAIT_S)

    def _column(self, name: str) -> str:
        return name.lower() if self.target.settings.engine == "postgresql" else name

    def wait_until(self, condition: Callable[[], object]) -> None:
        """Wait for a condition on the database."""
        eventually(condition, "the condition", WAIT_S)

    def insert(self, queue: str, headers: str | dict[str, str | None], body: bytes | None) -> None:
        """Insert a row as another system may."""
        self.sql.insert_minimal(queue, headers if isinstance(headers, str) else json.dumps(headers), body)


@pytest.fixture(params=PAIRS)
def stage(request: pytest.FixtureRequest, target: Any, database: Any, sql: Any, tmp_path: Path) -> Iterator[Stage]:
    """A stage for one pair; the processes that it started are killed after the test."""
    other = None
    if not request.param.startswith("stand-in"):
        if target.babelfish:
            pytest.skip("NServiceBus is run with SQL Server, not with Babelfish")
        other = ["dotnet", str(request.getfixturevalue("nsb_dll"))]
    made = Stage(target, database, sql, tmp_path, PAIRS[request.param], other)
    try:
        yield made
    finally:
        made.close()

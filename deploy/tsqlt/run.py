#!/usr/bin/env python3
"""Runs the tSQLt test classes of sql/tests on a server, in a database of its own that is dropped afterwards.

    export ROWPOST_TEST_SQLSERVER='Server=...;UID=...;PWD=...'
    python deploy/tsqlt/run.py [--junit report.xml] [CLASS ...]
    python deploy/tsqlt/run.py --tsqlt tSQLt.zip --sha256 <its checksum>                       # says what it would change
    python deploy/tsqlt/run.py --tsqlt tSQLt.zip --sha256 <its checksum> --install-framework   # changes it, and takes it back

With --tsqlt and --install-framework the real tSQLt (https://tsqlt.org) is installed from a file or an https:// address,
after its checksum was compared: the release's .zip, or its tSQLt.class.sql when the server was prepared before. It
needs SQL Server with CLR; preparing the server needs a sysadmin. Without it shim.sql stands in, which any T-SQL engine
can run.

The login must be allowed to create databases. rowpost is deployed with one queue, Sample, and one saga, SampleSaga. A test that an engine cannot
run says so in its first comment (-- Babelfish: why); it is reported as skipped, with the reason.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import re
import sys
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen
from xml.etree import ElementTree

from rowpost.database.connection import Connection, connect_url
from rowpost.deploy.apply import apply
from rowpost.deploy.plan import plan
from rowpost.deploy.runner import SqlserverRunner, is_babelfish
from rowpost.deploy.sql_text import split_batches
from rowpost.errors import RowpostError
from rowpost.settings.environment import QueueSettings, SagaSettings, Settings

__all__ = [
    "CHANGES",
    "Outcome",
    "ServerState",
    "Test",
    "TestClass",
    "install_shim",
    "install_tsqlt",
    "junit",
    "load",
    "read_classes",
    "run_classes",
    "run_test",
    "sample_settings",
    "taken_back",
]

HERE = Path(__file__).resolve().parent
TESTS = HERE.parents[1] / "sql" / "tests"
SAMPLE = "Sample"
#: a second table of subscriptions
SAMPLE_SUBSCRIPTIONS = "SampleRouting"
#: its second correlation is the first one again, as in the offline compiler
SAMPLE_SAGA = SagaSettings("SampleSaga", "Sample", transitional="Sample", transitional_type="string")
SERVER = "ROWPOST_TEST_SQLSERVER"
DROP_SECONDS = 20
DOWNLOAD_SECONDS = 60
#: makes what runs the batches of tests on a connection; the project's own tests set another one on Babelfish
make_runner: Callable[[Connection], SqlserverRunner] = SqlserverRunner
CLASS = re.compile(r"EXEC tSQLt\.NewTestClass @ClassName = N'(\w+)';")
TEST = re.compile(r"^CREATE OR ALTER PROCEDURE (\w+)\.\[(test [^\]]+)\]\nAS\n(?:-- Babelfish: (.+)\n)?", re.MULTILINE)


#: what tSQLt's PrepareServer.sql does beyond the database of the tests
CHANGES = """Installing tSQLt changes the server, and not only the database of the tests:
- the server's option `clr enabled` becomes 1: assemblies of all databases may run,
- master gets the asymmetric key tSQLtAssemblyKey, and the server a login of that name from it,
- this login gets UNSAFE ASSEMBLY (before SQL Server 2017: EXTERNAL ACCESS ASSEMBLY).
With --install-framework all of it is done, and what was not there before is taken back at the end. Nothing was changed.
"""


@dataclass(frozen=True)
class ServerState:
    """What the installation of tSQLt changes on a server: the option `clr enabled`, and whether its key and login are there."""

    clr: int
    key: bool
    login: bool


def taken_back(before: ServerState, after: ServerState) -> list[str]:
    """Return the statements that bring a server from the state after the installation to the one before."""
    return [
        statement
        for wanted, statement in (
            (after.login and not before.login, "DROP LOGIN tSQLtAssemblyKey;"),
            (
                after.key and not before.key,
                "EXEC master.sys.sp_executesql N'DROP ASYMMETRIC KEY tSQLtAssemblyKey;';",
            ),
            (after.clr != before.clr, f"EXEC sys.sp_configure 'clr enabled', {before.clr}; RECONFIGURE;"),
        )
        if wanted
    ]


@dataclass(frozen=True)
class Test:
    """One test; `limit` says why Babelfish cannot run it."""

    class_name: str
    name: str
    limit: str | None = None

    def __str__(self) -> str:
        return f"{self.class_name}.[{self.name}]"


@dataclass(frozen=True)
class TestClass:
    """One file of tests."""

    path: Path
    name: str
    text: str
    tests: tuple[Test, ...]


@dataclass(frozen=True)
class Outcome:
    """What became of a test: Success, Failure, Error or Skipped. `seconds` on the caller's clock."""

    test: Test
    result: str
    message: str = ""
    seconds: float = 0.0


def read_classes(folder: Path = TESTS) -> list[TestClass]:
    """The test classes below a folder: tests, and [SetUp] before each. Raises ValueError for a file that is none, or a name that is there twice."""
    classes = []
    for path in sorted(folder.rglob("test_*.sql")):
        text = path.read_text(encoding="utf-8-sig")
        names = CLASS.findall(text)
        tests = tuple(Test(*match) for match in TEST.findall(text))
        expected = f"{path.parent.name}_{path.stem.removeprefix('test_')}"
        if names != [expected] or {test.class_name for test in tests} != {expected}:
            raise ValueError(f"{path}: not one test class named {expected} with its tests")
        procedures = text.count("CREATE OR ALTER PROCEDURE") - text.count(f"PROCEDURE {expected}.[SetUp]\nAS\n")
        if len(tests) != len({test.name for test in tests}) or len(tests) != procedures:
            raise ValueError(f"{path}: a procedure that is no test, or two tests of one name")
        classes.append(TestClass(path, expected, text, tests))
    return classes


def install_shim(database: Connection) -> None:
    """Installs shim.sql."""
    _run_script(database, (HERE / "shim.sql").read_text(encoding="utf-8"))


def install_tsqlt(
    database: Connection, source: str, sha256: str, download: Callable[[str], bytes] | None = None
) -> None:
    """Installs the real tSQLt from its .zip or from tSQLt.class.sql, a file or an https:// address.

    Raises:
        ValueError: the file has another checksum, or is not a tSQLt.
        OSError: it cannot be read.
    """
    content = (download or _download)(source) if source.startswith("https://") else Path(source).read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != sha256.lower():
        raise ValueError(f"{source} has the SHA-256 {found}, not {sha256.lower()}: it is not installed")
    for script in _tsqlt_scripts(source, content):
        _run_script(database, script, bare=True)  # its #procedures would end with the call of sp_executesql around them


def _download(address: str) -> bytes:
    with urlopen(address, timeout=DOWNLOAD_SECONDS) as answer:  # noqa: S310 -- https only, and the checksum decides
        return answer.read()


def _tsqlt_scripts(source: str, content: bytes) -> Iterator[str]:
    if not zipfile.is_zipfile(io.BytesIO(content)):
        yield content.decode("utf-8-sig")
        return
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {Path(name).name.lower(): name for name in archive.namelist()}
        if "tsqlt.class.sql" not in members:
            raise ValueError(f"{source} holds no tSQLt.class.sql")
        for wanted in ("prepareserver.sql", "tsqlt.class.sql"):
            if wanted in members:
                yield archive.read(members[wanted]).decode("utf-8-sig")


def load(database: Connection, classes: Iterable[TestClass]) -> None:
    """Creates what the classes share, the classes and their tests."""
    _run_script(database, (TESTS / "set_up.sql").read_text(encoding="utf-8"))
    for each in classes:
        _run_script(database, each.text)


def _run_script(database: Connection, text: str, *, bare: bool = False) -> None:
    runner = make_runner(database)
    for batch in split_batches(text.replace("\r\n", "\n"), "sqlserver"):
        runner.run(batch, bare)


def run_test(database: Connection, test: Test, *, babelfish: bool) -> Outcome:
    """Runs one test. A test that breaks the connection is an Error."""
    if babelfish and test.limit:
        return Outcome(test, "Skipped", f"Babelfish: {test.limit}")
    started, said = time.monotonic(), ""
    try:
        # tSQLt prints its report as messages, and raises an error when a test has failed: its table has the truth
        _execute(database, f"EXEC tSQLt.Run @TestName = N'[{test.class_name}].[{test.name}]';")
    except RowpostError as error:
        said = str(error)
    seconds = time.monotonic() - started
    try:
        database.rollback()
        rows = _execute(database, "SELECT r.TestCase, r.Result, r.Msg FROM tSQLt.TestResult AS r;")
    except RowpostError as error:
        return Outcome(test, "Error", said or str(error), seconds)
    if [row[0] for row in rows] != [test.name]:
        return Outcome(test, "Error", said or f"{len(rows)} results instead of one", seconds)
    return Outcome(test, rows[0][1], rows[0][2] or "", seconds)


def _execute(database: Connection, statement: str) -> list[tuple]:
    with database.translated():
        return database.dialect.script(database.driver_connection, statement)


def junit(outcomes: Sequence[Outcome]) -> str:
    """The outcomes as a JUnit report."""
    root = ElementTree.Element("testsuites")
    for name in dict.fromkeys(outcome.test.class_name for outcome in outcomes):
        own = [outcome for outcome in outcomes if outcome.test.class_name == name]
        counts = {tag: str(sum(o.result == result for o in own)) for tag, result in
                  (("failures", "Failure"), ("errors", "Error"), ("skipped", "Skipped"))}  # fmt: skip
        suite = ElementTree.SubElement(root, "testsuite", name=name, tests=str(len(own)), **counts)
        for outcome in own:
            case = ElementTree.SubElement(
                suite, "testcase", classname=name, name=outcome.test.name, time=f"{outcome.seconds:.3f}"
            )
            if outcome.result != "Success":
                tag = {"Failure": "failure", "Skipped": "skipped"}.get(outcome.result, "error")
                ElementTree.SubElement(case, tag, message=_printable(outcome.message))
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True)


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() or character == "\n" else "?" for character in text)


def sample_settings(url: str) -> Settings:
    """Return the environment in which the classes run: the sample queue, the sample saga, a second table of subscriptions."""
    return Settings(
        engine="sqlserver", url=url, default_schema="dbo", subscription_table=SAMPLE_SUBSCRIPTIONS,
        queues=(QueueSettings(SAMPLE, lease=True),), sagas=(SAMPLE_SAGA,),
    )  # fmt: skip


@contextmanager
def _server_as_before(server: str) -> Iterator[None]:
    """Takes back at the end what the block has changed on the server; says what it could not take back."""
    with connect_url("sqlserver", server, "rowpost tSQLt") as admin:
        before = _server_state(admin)
        try:
            yield
        finally:
            for statement in taken_back(before, _server_state(admin)):
                try:
                    _execute(admin, statement)
                except RowpostError as error:
                    sys.stderr.write(f"This is left over on the server; run it by hand: {statement} ({error})\n")
                else:
                    sys.stdout.write(f"Taken back: {statement}\n")


def _server_state(admin: Connection) -> ServerState:
    statement = (
        "SELECT CAST(c.value AS int), (SELECT COUNT(*) FROM master.sys.asymmetric_keys AS k WHERE k.name = N'tSQLtAssemblyKey'),"
        " SUSER_ID(N'tSQLtAssemblyKey') FROM sys.configurations AS c WHERE c.name = N'clr enabled';"
    )
    ((clr, keys, login),) = _execute(admin, statement)
    return ServerState(clr, keys > 0, login is not None)


@contextmanager
def _scratch_database(server: str) -> Iterator[str]:
    """Makes a database with rowpost and the sample queue; yields its connection string."""
    name = f"rowpost_tsqlt_{os.getpid()}"
    url = re.sub(r"(?i)(^|;)\s*database\s*=[^;]*", "", server).strip(";") + f";Database={name}"
    with connect_url("sqlserver", server, "rowpost tSQLt") as admin:
        _execute(admin, f"CREATE DATABASE {name};")
        try:
            with connect_url("sqlserver", url, "rowpost tSQLt") as database:
                apply(database, plan(sample_settings(url)))
            yield url
        finally:
            _drop(admin, name)


def _drop(admin: Connection, name: str) -> None:
    """Drops a database; waits for sessions that are closing still."""
    deadline = time.monotonic() + DROP_SECONDS
    while True:
        try:
            _execute(admin, f"DROP DATABASE {name};")
        except RowpostError as error:
            if time.monotonic() > deadline:
                sys.stderr.write(f"The database {name} is left over: {error}\n")
                return
            time.sleep(0.2)
        else:
            return


def run_classes(url: str, classes: Iterable[TestClass]) -> Iterator[Outcome]:
    """Runs classes, each on a connection of its own."""
    for each in classes:
        with connect_url("sqlserver", url, "rowpost tSQLt") as database:
            load(database, [each])
            babelfish = is_babelfish(database)
            for test in each.tests:
                yield run_test(database, test, babelfish=babelfish)


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when every test that ran succeeded, 1 when one did not, 2 when tSQLt is not installed without --install-framework."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("classes", nargs="*", help="run these classes only")
    parser.add_argument("--tsqlt", metavar="FILE|URL", help="install the real tSQLt from this file or https:// address")
    parser.add_argument("--sha256", default="", help="the checksum that the file must have")
    parser.add_argument(
        "--install-framework", action="store_true", help="with --tsqlt: change the server, and take it back at the end"
    )
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write a JUnit report")
    options = parser.parse_args(arguments)
    server = os.environ.get(SERVER)
    if not server:
        parser.error(f"set {SERVER} to an ODBC connection string; a driver is found when it names none")
    if options.tsqlt and not options.install_framework:
        sys.stdout.write(CHANGES)
        return 2
    classes = [each for each in read_classes() if not options.classes or each.name in options.classes]
    kept = _server_as_before(server) if options.tsqlt else nullcontext()
    with kept, _scratch_database(server) as url:
        with connect_url("sqlserver", url, "rowpost tSQLt") as database:
            if options.tsqlt:
                install_tsqlt(database, options.tsqlt, options.sha256)
            else:
                install_shim(database)
        outcomes = []
        for outcome in run_classes(url, classes):
            outcomes.append(outcome)
            if outcome.result != "Success":
                sys.stdout.write(f"{outcome.result}: {outcome.test}: {outcome.message}\n")
    if options.junit:
        options.junit.write_text(junit(outcomes), encoding="utf-8")
    succeeded = sum(outcome.result == "Success" for outcome in outcomes)
    skipped = sum(outcome.result == "Skipped" for outcome in outcomes)
    sys.stdout.write(f"{len(outcomes)} tests: {succeeded} succeeded, {skipped} skipped\n")
    return 0 if succeeded + skipped == len(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())

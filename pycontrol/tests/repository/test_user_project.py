"""A project outside of the repository: rowpost from its wheel in an environment of its own, the project's tests, and its programs.

The project is `tests/data/user_project`. Nothing of the checkout or of the tests' environment is visible there.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import psycopg
import pytest

from tests.support.documents import ROOT
from tests.support.program import Program
from tests.support.releases import NotInstalled, install_with
from tests.support.workers import eventually

pytestmark = pytest.mark.dist

PROJECT = Path(__file__).parents[1] / "data" / "user_project"
#: what pip says if it knows no version of a package at all
NO_INDEX = "(from versions: none)"
_numbers = count(1)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder that other users may enter, unlike pytest's: if root starts the embedded server, another user runs it."""
    with tempfile.TemporaryDirectory(prefix="rowpost-", ignore_cleanup_errors=True) as name:
        made = Path(name)
        made.chmod(0o755)
        yield made


@pytest.fixture(scope="module")
def installed(folder: Path) -> Path:
    """The program of an environment with rowpost's wheel, and with what the project needs beside it."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder]
    subprocess.run(build, cwd=ROOT, check=True, timeout=120, stdout=subprocess.DEVNULL)
    (wheel,) = folder.glob("*.whl")
    declared = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = [*declared["project"]["dependencies"], *declared["dependency-groups"]["dev"]]
    try:
        return install_with(wheel, folder / "venv", *(each for each in wanted if each != "rowpost"))
    except NotInstalled as error:
        if NO_INDEX not in str(error):
            raise
        pytest.skip(f"pip reaches no index: {str(error).splitlines()[-1]}")


@pytest.fixture
def project(folder: Path) -> Path:
    """The project in an empty folder."""
    made = folder / f"shop{next(_numbers)}"
    return shutil.copytree(PROJECT, made, ignore=shutil.ignore_patterns("__pycache__"))


@pytest.fixture
def call(installed, project):
    """Calls a program of the environment in the project, without this process's variables, and returns what it wrote."""

    def call(program: str, *arguments: str, **variables: str) -> str:
        path = os.pathsep.join([str(installed.parent), os.defpath])
        bare = {"PATH": path, "HOME": str(project), "TMPDIR": str(project)}
        done = subprocess.run(
            [installed.with_name(program), *arguments], cwd=project, env={**bare, **variables},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout
        return done.stdout

    return call


def test_nothing_of_the_checkout_is_visible_in_the_project(installed, call):
    code = "import importlib.util, rowpost; print(rowpost.__file__); print(importlib.util.find_spec('django'))"

    package, django = call("python", "-c", code).splitlines()

    assert Path(package).is_relative_to(installed.parents[1])
    assert django == "None"


@pytest.mark.parametrize("server", ["embedded", "given"])
def test_the_projects_own_tests_pass(call, project, embedded_url, server):
    data = project / "data"
    variables = {"ROWPOST_DATA": str(data)} if server == "embedded" else {"ROWPOST_TEST_URL": embedded_url}

    said = call("pytest", **variables)

    assert re.search(r"^=+ \d+ passed in [^,]*=+$", said, re.MULTILINE), said  # none skipped, and no warning
    assert data.exists() is (server == "embedded")


# ------------------------------------------------------------------ rowpost apply and rowpost run
ORDERS = [
    {"OrderId": 1, "Card": "good", "Address": "ada"},
    {"OrderId": 1, "Card": "good", "Address": "ada"},
    {"OrderId": 2, "Card": "stolen", "Address": "ada"},
    {"OrderId": 3, "Card": "vip", "Address": "ada"},
    {"OrderId": 4, "Card": "busy", "Address": "ada"},
    {"OrderId": 5, "Card": "closed", "Address": "ada"},
    {"OrderId": 6, "Card": "broken", "Address": "nobody"},
    {"OrderId": 7, "Card": "good", "Address": "forbidden"},
    {"OrderId": 8, "Card": "good", "Address": "down"},
]
CHARGED, MAILED = [1, 4, 5, 7, 8], [1, 2, 3, 4, 5]
QUEUES = tuple(
    f"{name}{table}" for name in ("Ordering", "Charging", "Mailing", "Auditing") for table in ("", ".Delayed")
)


def test_rowpost_runs_the_projects_endpoints(installed, project, call, new_database):
    url, journal = new_database("embedded"), project / "journal"
    rowpost = Program(project / "shop.yml", project, installed=installed, SHOP_URL=url, SHOP_JOURNAL=str(journal))
    call("python", "-m", "shop.tables", SHOP_URL=url)
    applied = rowpost("apply")
    orders = "\n".join(map(json.dumps, ORDERS))
    sent = rowpost("send", "Ordering", "--type", "Shop.PlaceOrder", "--lines", stdin=orders)
    audited = rowpost("send", "Auditing", "--body", "receipt")
    down = project / "network-down"
    down.touch()

    with psycopg.connect(url, autocommit=True) as database, rowpost.started("run", "--json") as running:

        def rows(*tables: str) -> int:
            return sum(database.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0] for table in tables)

        def numbers(table: str) -> list[int]:
            return [row[0] for row in database.execute(f"SELECT order_id FROM {table} ORDER BY 1").fetchall()]

        eventually(lambda: journal.exists() and "alarm Mailing" in journal.read_text(), "the critical error is told")
        down.unlink()
        eventually(lambda: (rows(*QUEUES), rows("error", "errors.vip")) == (0, 5), "all is handled or has failed", 120)
        running.process.terminate()
        ran = running.ended()
        placed, charged, mailed = map(numbers, ("placed", "charged", "mailed"))
        surrounded = database.execute("SELECT by, order_id FROM surrounded ORDER BY by, order_id").fetchall()
        errors = (rows("error"), rows("errors.vip"))
        stamped = database.execute("""SELECT DISTINCT headers::json ->> 'Shop.Tenant' FROM error""").fetchall()

    assert [each.code for each in (applied, sent, audited, ran)] == [0, 0, 0, 0], ran.err
    assert stamped == [("north",)]
    assert (placed, charged, mailed) == ([*range(1, 9)], CHARGED, MAILED)
    assert surrounded == [*(("charging", each) for each in CHARGED), *(("mailing", each) for each in MAILED)]
    assert errors == (4, 1)
    events = [line for line in ran.lines if "event" in line]
    reasons = Counter(event["reason"] for event in events if event["event"] == "Discarded")
    assert reasons == {"the order is there already": 1, "the card is stolen": 1}
    delays = Counter(event["queue"] for event in events if event["event"] == "Delayed")
    assert delays == {"Charging": 1, "Mailing": 3, "Auditing": 1}
    check_processes(journal, supervisor=running.process.pid)


def check_processes(journal: Path, supervisor: int) -> None:
    """Check that each worker process has begun once, has started once what its handlers share, and has stopped it."""
    noted = [tuple(line.rsplit(" ", 2)) for line in journal.read_text(encoding="utf-8").splitlines()]
    of_charging = [(what, pid) for name, what, pid in noted if name in ("charging", "terminal")]
    for pid in {pid for _, pid in of_charging}:
        assert [what for what, other in of_charging if other == pid] == ["began", "opened", "ended", "closed"]
    began = [pid for name, what, pid in noted if (name, what) == ("mailing", "began")]
    assert len(began) == len(set(began))
    assert {pid for name, what, pid in noted if name == "mailer"} <= set(began)
    assert {int(pid) for name, _, pid in noted if name == "alarm"} == {supervisor}
    assert [name for name, what, _ in noted if what == "receipt"] == ["audit"] * 4
    by_process = Counter((name, what, int(pid)) for name, what, pid in noted if what in ("opened", "closed"))
    opened = {(name, pid) for name, what, pid in by_process if what == "opened"}
    closed = {(name, pid) for name, what, pid in by_process if what == "closed"}
    assert set(by_process.values()) == {1}
    assert opened == closed
    assert {name for name, _ in opened} == {"terminal", "mailer"}
    assert supervisor not in {pid for _, pid in opened}

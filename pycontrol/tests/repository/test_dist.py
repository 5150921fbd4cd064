"""Wheel and sdist: the same source makes the same bytes, nothing is missing, and the wheel works without the checkout."""

import os
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

import pytest

from rowpost.version import __version__
from tests.support.documents import ROOT
from tests.support.program import Program, environment_file
from tests.support.releases import install

pytestmark = pytest.mark.dist

SDIST, WHEEL = f"rowpost-{__version__}.tar.gz", f"rowpost-{__version__}-py3-none-any.whl"
YEAR = 365 * 24 * 3600.0  # seconds


def make_dist(folder: Path, **variables: str) -> dict[str, bytes]:
    """Run `make dist` in a folder, with the Python of the tests, and return what it built."""
    python = Path(sys.executable)
    made = [
        "make",
        "dist",
        f"VENV={python.parents[1]}",
        f"BIN={python.parent}",
        "-o",
        str(python.parents[1] / ".developer"),
    ]
    done = subprocess.run(
        made, cwd=folder, env={**os.environ, **variables}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {path.name: path.read_bytes() for path in (folder / "dist").iterdir()}


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist of the checkout, as it is now."""
    folder = tmp_path_factory.mktemp("sdist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder], cwd=ROOT, check=True, timeout=120
    )
    return folder / SDIST


#: Python 3.11 has filters from 3.11.4 on
SAFELY = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


@pytest.fixture
def unpack(sdist: Path, tmp_path: Path):
    """Unpacks the sdist into a folder: `unpack("first")`."""

    def into(name: str) -> Path:
        with tarfile.open(sdist) as archive:
            archive.extractall(tmp_path / name, **SAFELY)
        return tmp_path / name / SDIST.removesuffix(".tar.gz")

    return into


def spoil(folder: Path) -> None:
    """Give a checkout what another one has on another day: other times and modes, and files that git ignores."""
    for path in folder.rglob("*"):
        os.utime(path, (time.time() - YEAR,) * 2)
        path.chmod(path.stat().st_mode & 0o700)  # git knows whether a file is executable, and nothing else
    for name in (
        ".venv/bin/python",
        "build/x",
        "dist/rowpost-0.0.1.whl",
        ".ruff_cache/x",
        "tsqlt.xml",
        "__pycache__/x.pyc",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("ignored")


def test_two_builds_in_different_folders_at_different_times_are_equal_to_the_byte(unpack, tmp_path):
    first, second = unpack("first"), unpack("elsewhere/second")
    spoil(second)

    one = make_dist(first)
    time.sleep(2.1)  # the times in a wheel count two seconds
    other = make_dist(second, TZ="Asia/Tokyo")

    del other["rowpost-0.0.1.whl"]
    assert set(one) == {SDIST, WHEEL}
    assert {name: hash(content) for name, content in one.items()} == {
        name: hash(content) for name, content in other.items()
    }


def test_the_sdist_holds_all_that_git_knows_and_makes_itself_again(sdist, unpack):
    try:
        known = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True
        )
    except FileNotFoundError:
        pytest.skip("git is not installed")
    if known.returncode:
        pytest.skip(f"not a git checkout: {known.stderr.strip()}")
    files = {name for name in known.stdout.splitlines() if (ROOT / name).is_file()}

    root = unpack("again")

    assert {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()} == files | {"PKG-INFO"}
    assert make_dist(root)[SDIST] == sdist.read_bytes()


@pytest.fixture(scope="module")
def elsewhere(sdist: Path, lasting_database, tmp_path_factory: pytest.TempPathFactory) -> Program:
    """The wheel, built from the sdist and installed into an empty environment, in a folder with a handler."""
    folder = tmp_path_factory.mktemp("elsewhere")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "source", **SAFELY)
    (source,) = (folder / "source").iterdir()
    wheel = folder / WHEEL
    wheel.write_bytes(make_dist(source)[WHEEL])
    shutil.rmtree(folder / "source")
    (folder / "shop.py").write_text("def place_order(message, connection):\n    connection.execute('SELECT 1')\n")
    queues = 'queues: {Sales: {worker: {handler: "shop:place_order"}}, error: {}}\n'
    environment = environment_file(folder, rest=queues)
    return Program(
        environment, folder, installed=install(wheel, folder / "venv"), SHOP_URL=lasting_database("embedded")
    )


def test_the_installed_package_is_the_wheels_own(elsewhere: Program):
    python = elsewhere.installed.with_name("python")
    code = "import rowpost, rowpost.database.sql_folder as sql; print(rowpost.__file__); print(sql.sql_folder())"

    done = subprocess.run(
        [python, "-c", code], cwd=elsewhere.folder, env=elsewhere.variables, capture_output=True, text=True
    )

    package, sql = map(Path, done.stdout.splitlines())
    assert package.is_relative_to(elsewhere.folder / "venv"), done.stderr
    assert sql == package.parent / "sql"


def test_the_wheel_has_every_module_and_script_of_the_checkout(elsewhere: Program):
    with zipfile.ZipFile(elsewhere.folder / WHEEL) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    folders = {ROOT / "pycontrol" / "rowpost": "rowpost", ROOT / "pycontrol" / "pyspark_rowpost": "pyspark_rowpost",
               ROOT / "sql": "rowpost/sql", ROOT / "deploy" / "environments": "rowpost/environments"}  # fmt: skip

    found = {
        f"{name}/{path.relative_to(folder).as_posix()}"
        for folder, name in folders.items()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }

    assert names == found


def test_plan_apply_and_run_work_from_the_installed_wheel(elsewhere: Program):
    default = elsewhere("--env", "local", "plan", "--sql")
    planned = elsewhere("plan", "--exit-code")
    applied = elsewhere("apply")
    sent = elsewhere("send", "Sales", "--body", "{}")
    ran = elsewhere("run", "--until-idle")
    verified = elsewhere("verify")

    assert [each.code for each in (default, planned, applied, sent, ran, verified)] == [0, 1, 0, 0, 0, 0], ran.err
    assert "1 handled" in ran.out


def test_the_demo_works_from_the_installed_wheel(elsewhere: Program):
    shown = elsewhere("demo", "--orders", "100", "--workers", "2", "--yes", "--json")

    assert shown.code == 0, shown.err
    assert shown.json["correct"]


def test_spark_doctor_works_from_the_installed_wheel(elsewhere: Program):
    assert elsewhere("apply").code == 0

    checked = elsewhere("spark", "doctor", "--json")

    assert checked.code == 0, checked.out + checked.err

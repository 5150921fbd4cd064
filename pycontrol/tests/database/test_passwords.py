"""Passwords that are read from a file or from a program whenever a connection opens."""

import json
import os
import pickle
import subprocess
import sys
import threading
import time
from contextlib import suppress
from itertools import count
from pathlib import Path

import psutil
import psycopg
import pytest

from rowpost.database.connection import connect, connect_url, database_url
from rowpost.database.dialects.sqlserver.odbc import connection_string
from rowpost.errors import LoginRefused, PasswordUnavailable, SettingsError
from rowpost.settings import password
from rowpost.settings.environment import load_settings
from rowpost.settings.password import PasswordSource, SecretUrl, with_its_password
from tests.support.program import Program
from tests.support.standby import password_server

__all__ = ["password_server"]

NUMBERS = count(1)
FIRST, SECOND = "fir}st; p'ass", "second"
ODBC = "Driver={x};Server=db01;Database=shop;UID=app"


@pytest.fixture
def server(password_server):
    """A server with the login app, which has a new database, and whose password can be changed: `server.change(password)`."""
    name = f"shop{next(NUMBERS)}"

    def change(password):
        with psycopg.connect(password_server.url, autocommit=True) as admin:
            admin.execute(psycopg.sql.SQL("ALTER ROLE app PASSWORD {}").format(password))

    with psycopg.connect(password_server.url, autocommit=True) as admin:
        admin.execute("DO $$ BEGIN CREATE ROLE app LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
        admin.execute(f"CREATE DATABASE {name} OWNER app")
    change(FIRST)
    password_server.change = change
    password_server.login_url = password_server.url.replace("postgres@/postgres", f"app@/{name}")
    return password_server


@pytest.fixture
def environment(server, tmp_path):
    """Writes an environment whose password comes from there, and returns its path."""

    def write(**keys):
        lines = ["engine: postgresql", f"url: {json.dumps(server.login_url)}", "queues: {Sales: {}}"]
        lines += [f"{key}: {json.dumps(value)}" for key, value in keys.items()]
        path = tmp_path / "rotating.yml"
        path.write_text("\n".join(lines))
        return path

    return write


def who(settings):
    with connect(settings) as database:
        return database.driver_connection.execute("SELECT current_user").fetchone()[0]


# ------------------------------------------------------------------ a password that changes
def test_a_new_connection_uses_the_files_password_of_now(server, environment, tmp_path):
    file = tmp_path / "password"
    file.write_text(FIRST + "\n")
    settings = load_settings(environment(password_file="password"))
    before = who(settings)

    server.change(SECOND)
    with pytest.raises(LoginRefused):
        who(settings)
    file.write_text(SECOND)

    assert (before, who(settings)) == ("app", "app")


def test_other_packages_get_the_url_with_the_password_of_now(server, environment, tmp_path):
    file = tmp_path / "password"
    file.write_text(FIRST)
    settings = load_settings(environment(password_file="password"))
    as_text = psycopg.conninfo.make_conninfo(server.login_url)
    first = database_url(settings)
    server.change(SECOND)
    file.write_text(SECOND)

    for url in (database_url(settings), with_its_password(SecretUrl(as_text, PasswordSource(file)))):
        with psycopg.connect(url) as connection:
            assert connection.info.user == "app"
    assert psycopg.conninfo.conninfo_to_dict(first)["password"] == FIRST
    file.write_text(r"it's a \ word")
    text = with_its_password(SecretUrl("host=x", PasswordSource(file)))
    assert psycopg.conninfo.conninfo_to_dict(text)["password"] == file.read_text()
    assert with_its_password(SecretUrl(ODBC, PasswordSource(file))) == ODBC + ";PWD={" + file.read_text() + "}"


def test_a_program_is_asked_at_each_connection_and_starts_without_a_shell(server, environment, tmp_path):
    program = [sys.executable, "-c", "import sys; print(sys.argv[1])", FIRST]
    settings = load_settings(environment(password_command=program))

    assert who(settings) == "app"
    assert who(pickle.loads(pickle.dumps(settings))) == "app"  # as a worker process gets them


def test_the_second_connection_of_a_connection_asks_again(server, tmp_path):
    file = tmp_path / "password"
    file.write_text(FIRST)
    url = SecretUrl(server.login_url, PasswordSource(file))
    with connect_url("postgresql", url) as database:
        server.change(SECOND)
        file.write_text(SECOND)
        with database.open_second() as second:
            assert second.driver_connection.execute("SELECT 1").fetchone() == (1,)


def test_a_script_and_a_plan_of_it_run_no_program_and_show_no_path_of_a_secret(environment, tmp_path):
    marker = tmp_path / "ran"
    path = environment(password_command=["touch", str(marker)])

    planned = Program(path, tmp_path)("plan", "--sql")

    assert planned.code == 0
    assert not marker.exists()
    assert "touch" not in planned.out + planned.err


# ------------------------------------------------------------------ what goes wrong
@pytest.mark.parametrize(
    ("source", "text"),
    [
        (lambda folder: {"password_file": "missing"}, "No such file or directory"),
        (lambda folder: {"password_file": "."}, "directory"),
        (lambda folder: {"password_file": "empty"}, "must hold one line"),
        (lambda folder: {"password_file": "two"}, "must hold one line"),
        (lambda folder: {"password_command": ["no-such-program"]}, "cannot be started"),
        (
            lambda folder: {"password_command": [sys.executable, "-c", "print('geheim'); raise SystemExit(3)"]},
            "exit code 3",
        ),
        (lambda folder: {"password_command": [sys.executable, "-c", "pass"]}, "must hold one line"),
    ],
)
def test_a_source_that_cannot_be_read_is_named_without_what_it_says(environment, tmp_path, source, text):
    (tmp_path / "empty").write_text("")
    (tmp_path / "two").write_text("geheim\ngeheim\n")
    settings = load_settings(environment(**source(tmp_path)))

    with pytest.raises(PasswordUnavailable, match=text) as raised:
        connect(settings)

    assert "geheim" not in str(raised.value)


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ('url: "postgresql://app:x@db01/shop"\npassword_file: p', "url: has a password of its own"),
        ('url: "postgresql://app@db01/shop?password=x"\npassword_file: p', "url: has a password of its own"),
        (
            'url: "postgresql://app@db01/shop"\npassword_file: p\npassword_command: [q]',
            "password_file: cannot be together",
        ),
        ('url: "postgresql://app@db01/shop"\npassword_command: q', "password_command"),
        ('url: "postgresql://app@db01/shop"\npassword_command: []', "password_command: must be a list of texts"),
    ],
)
def test_an_environment_that_names_two_passwords_is_refused(tmp_path, lines, text):
    path = tmp_path / "two.yml"
    path.write_text(f"engine: postgresql\n{lines}\nqueues: {{Sales: {{}}}}\n")

    with pytest.raises(SettingsError, match=text):
        load_settings(path)


def test_the_embedded_engine_takes_no_password(tmp_path):
    path = tmp_path / "embedded.yml"
    path.write_text("engine: embedded\npassword_file: p\nqueues: {Sales: {}}\n")

    with pytest.raises(SettingsError, match="password_file: the embedded engine has no password_file"):
        load_settings(path)


# ------------------------------------------------------------------ files and programs without an end
POSIX = pytest.mark.skipif(os.name != "posix", reason="needs named pipes")


def program(text: str) -> PasswordSource:
    return PasswordSource(command=(sys.executable, "-c", f"import os, sys, time\n{text}"))


def test_a_byte_order_mark_is_no_part_of_a_password(tmp_path):
    file = tmp_path / "password"
    file.write_bytes(b"\xef\xbb\xbfpw\r\n")

    assert PasswordSource(file).read() == "pw"
    assert program(r"sys.stdout.buffer.write(b'\xef\xbb\xbfpw\n')").read() == "pw"


@pytest.mark.parametrize(
    "text",
    ["while True: os.write(1, b'x' * 65536)", "print('x' * 65537)", "os.write(1, b'x' * 70000); time.sleep(3600)"],
)
def test_a_program_that_writes_more_than_a_password_is_ended(text):
    with pytest.raises(PasswordUnavailable, match="is longer than 64 KiB"):
        program(text).read()


def test_a_password_of_64_kib_and_much_on_stderr_are_no_trouble(tmp_path):
    file = tmp_path / "password"
    file.write_text("x" * 65536)

    assert PasswordSource(file).read() == program("os.write(2, b'e' * 10**6); os.write(1, b'x' * 65536)").read()
    file.write_text("x" * 65537)
    with pytest.raises(PasswordUnavailable, match="is longer than 64 KiB"):
        PasswordSource(file).read()


@pytest.mark.parametrize(
    "text",
    ["time.sleep(3600)", "os.close(1); time.sleep(3600)", "print('pw', flush=True); os.fork() or time.sleep(3600)"],
)
def test_a_program_that_does_not_end_is_ended_with_what_it_started(monkeypatch, text):
    monkeypatch.setattr(password, "TIME_LIMIT_S", 0.3)
    started = []
    popen = subprocess.Popen
    monkeypatch.setattr(
        subprocess, "Popen", lambda *given, **options: started.append(popen(*given, **options)) or started[0]
    )

    with pytest.raises(PasswordUnavailable, match="did not end within"):
        program(text).read()

    assert started[0].returncode is not None
    with pytest.raises(ProcessLookupError):
        _signal_group_until_gone(started[0].pid)


def _signal_group_until_gone(group: int) -> None:
    """Raise ProcessLookupError when no process of a group is left; a killed one may wait for init to take it."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        os.killpg(group, 0)
        if all(each.status() == psutil.STATUS_ZOMBIE for each in psutil.process_iter() if _group_of(each.pid) == group):
            raise ProcessLookupError
        time.sleep(0.02)


def _group_of(pid: int) -> int:
    with suppress(ProcessLookupError):
        return os.getpgid(pid)
    return 0


def test_an_interrupt_ends_the_program(monkeypatch):
    def interrupted(start):
        raise KeyboardInterrupt

    started, popen = [], subprocess.Popen
    monkeypatch.setattr(
        subprocess, "Popen", lambda *given, **options: started.append(popen(*given, **options)) or started[0]
    )
    monkeypatch.setattr(password, "_is_late", interrupted)

    with pytest.raises(KeyboardInterrupt):
        program("time.sleep(3600)").read()

    assert started[0].returncode is not None


def test_who_is_to_end_does_not_wait_for_a_program(monkeypatch):
    monkeypatch.setattr(password, "_hurries", False)
    monkeypatch.setattr(password, "_HURRIED_LIMIT_S", 0.0)
    threading.Timer(0.2, password.hurry).start()

    with pytest.raises(PasswordUnavailable, match="did not end within"):
        program("time.sleep(3600)").read()


@POSIX
def test_a_pipe_is_read_when_somebody_writes_a_line_to_it(tmp_path, monkeypatch):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_text("pw\n"))
    writer.start()

    assert PasswordSource(pipe).read() == "pw"

    writer.join()
    monkeypatch.setattr(password, "TIME_LIMIT_S", 0.2)
    with pytest.raises(PasswordUnavailable, match="nobody wrote a line"):
        PasswordSource(pipe).read()
    with pytest.raises(PasswordUnavailable, match="is longer than 64 KiB"):
        PasswordSource(Path("/dev/zero")).read()


# ------------------------------------------------------------------ the other places
def test_sql_server_gets_the_password_in_braces(tmp_path):
    file = tmp_path / "password"
    file.write_text(FIRST)

    text = connection_string(SecretUrl(ODBC, PasswordSource(file)), "rowpost")

    assert text == ODBC + ";PWD={fir}}st; p'ass};APP={rowpost}"


def test_outboxes_and_participants_have_sources_of_their_own(tmp_path):
    path = tmp_path / "others.yml"
    path.write_text(
        'engine: postgresql\nurl: "postgresql://app@db01/shop"\nqueues: {Sales: {}}\n'
        'outbox: {business: {url: "postgresql://app@db02/business", password_file: business}}\n'
        'participants: {stock: {url: "postgresql://app@db03/stock", password_command: [token, stock]}}\n'
    )

    settings = load_settings(path)

    assert settings.outboxes[0].url.password == PasswordSource(tmp_path / "business")
    assert dict(settings.participants)["stock"].password == PasswordSource(None, ("token", "stock"))

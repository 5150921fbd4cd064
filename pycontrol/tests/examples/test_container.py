"""The example of a container, without a container engine: its files agree, and its commands do what they say.

The commands are those of the Dockerfile and of compose.yaml. Each runs as process 1 of a PID namespace, with the files
that the Dockerfile copies where it copies them, and a PostgreSQL server that asks for the password of the secret.
"""

import re
import shlex
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest
import yaml
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from rowpost.cli.exits import ExitCode
from rowpost.settings.environment import load_settings
from tests.support.containers import Container, Image, can_have_own_pids
from tests.support.documents import ROOT, blocks, typed_lines
from tests.support.postgres import Server
from tests.support.workers import eventually

FOLDER = ROOT / "examples" / "container"
COMPOSE = yaml.safe_load((FOLDER / "compose.yaml").read_text(encoding="utf-8"))
SERVICES = COMPOSE["services"]
SETTINGS = load_settings(FOLDER / "shop.yml")
#: an address of this machine on which no other server listens at the port of PostgreSQL
ADDRESS, PORT = "127.0.54.32", 5432
METRICS = 9464
PASSWORD = "it's a; password"
needs_namespaces = pytest.mark.skipif(
    not can_have_own_pids(), reason="this user may not make a PID namespace with unshare"
)


@pytest.fixture(scope="module")
def image() -> Image:
    return Image(FOLDER / "Dockerfile")


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    """The server of compose.yaml, after its first start. Yields a URL of its administrator."""
    for host, port in ((ADDRESS, PORT), ("0.0.0.0", METRICS)):  # the ports are those of the example
        try:
            socket.create_server((host, port)).close()
        except OSError as error:
            pytest.skip(f"the port {port} is needed, and another program has it: {error}")
    wanted = SERVICES["database"]["environment"]
    user, name = wanted["POSTGRES_USER"], wanted["POSTGRES_DB"]
    with tempfile.TemporaryDirectory(prefix="rowpost-", ignore_cleanup_errors=True) as folder:
        server = Server(Path(folder) / "p", f"-c listen_addresses={ADDRESS} -c port={PORT}")
        server.create()
        (server.folder / "pg_hba.conf").write_text("local all postgres trust\nhost all all all scram-sha-256\n")
        server.start()
        with psycopg.connect(server.url(), autocommit=True) as admin:
            admin.execute(sql.SQL(f"CREATE ROLE {user} SUPERUSER LOGIN PASSWORD {{}}").format(PASSWORD))
            admin.execute(f"CREATE DATABASE {name} OWNER {user}")
        with psycopg.connect(server.url(name), autocommit=True) as admin:
            admin.execute(f"SET ROLE {user}")
            admin.execute((FOLDER / "tables.sql").read_bytes())
        yield server.url(name)
        server.stop()


@pytest.fixture(scope="module")
def container(image: Image, database: str, tmp_path_factory) -> Container:
    """Containers of the image, with what the job of compose.yaml has deployed."""
    folder = tmp_path_factory.mktemp("rootfs")
    made = Container(
        image, folder, {"database": ADDRESS, "localhost": "127.0.0.1"}, {"database_password": f"{PASSWORD}\n"}
    )
    code, said = made.run(*SERVICES["deploy"]["command"])
    assert code == 0, said
    return made


@pytest.fixture
def worker(container: Container) -> Iterator[subprocess.Popen[str]]:
    """A running container of the worker, which is killed after the test. Its child is process 1."""
    process = container.start()
    eventually(container.healthy, "the worker is healthy")
    yield process
    process.kill()
    process.communicate()


def send_as_the_readme_does(container: Container) -> None:
    """Run the command of the README that the worker's container executes."""
    (line,) = [line for block in blocks(FOLDER / "README.md") for line in typed_lines(block) if " exec worker " in line]
    program, *words = shlex.split(line.partition(" exec worker ")[2])
    code, said = container.run(*words)
    assert [program] == container.image.entrypoint
    assert code == 0, said


# ------------------------------------------------------------------ the files
def test_process_1_is_rowpost_and_no_shell(image: Image):
    assert image.entrypoint == ["rowpost"]
    assert image.command[0] == "run"
    assert "entrypoint" not in SERVICES["worker"]
    assert "command" not in SERVICES["worker"]


def test_the_health_check_asks_where_the_worker_answers(image: Image):
    assert image.command[image.command.index("--metrics") + 1] == f"0.0.0.0:{METRICS}"
    assert f"127.0.0.1:{METRICS}/health/live" in image.health[-1]


def test_an_engine_waits_longer_for_a_worker_than_the_worker_for_its_handlers():
    allowed = int(re.fullmatch(r"(\d+)s", SERVICES["worker"]["stop_grace_period"])[1])

    # handlers are interrupted at stop_timeout, and killed two seconds later
    assert allowed >= SETTINGS.supervisor.stop_timeout + 2 + 5


def test_the_job_ends_before_the_worker_starts_and_starts_when_the_database_can_be_reached():
    assert SERVICES["worker"]["depends_on"] == {"deploy": {"condition": "service_completed_successfully"}}
    assert SERVICES["deploy"]["depends_on"] == {"database": {"condition": "service_healthy"}}
    assert "healthcheck" in SERVICES["database"]
    assert "restart" not in SERVICES["deploy"]


def test_the_environment_finds_the_database_and_the_secret_of_compose(image: Image):
    known, database = conninfo_to_dict(SETTINGS.url), SERVICES["database"]["environment"]
    environment = yaml.safe_load((FOLDER / "shop.yml").read_text(encoding="utf-8"))
    (secret,) = COMPOSE["secrets"]

    assert (known["host"], known["user"], known["dbname"]) == (
        "database", database["POSTGRES_USER"], database["POSTGRES_DB"],
    )  # fmt: skip
    assert environment["password_file"] == database["POSTGRES_PASSWORD_FILE"] == f"/run/secrets/{secret}"
    assert [SERVICES[name]["secrets"] for name in SERVICES] == [[secret]] * len(SERVICES)
    assert image.variables["ROWPOST_ENV"] in [f"{place}{file.name}" for file, place in image.copies]


def test_the_files_that_compose_names_exist_and_the_secret_stays_out_of_images_and_commits():
    secret = Path(COMPOSE["secrets"]["database_password"]["file"]).name
    build = SERVICES["worker"]["build"]

    assert SERVICES["deploy"]["build"] == build
    assert (FOLDER / build["context"]).resolve() == ROOT
    assert ROOT / build["dockerfile"] == FOLDER / "Dockerfile"
    for mounted in SERVICES["database"]["volumes"]:
        source = mounted.partition(":")[0]
        assert source in COMPOSE["volumes"] or (FOLDER / source).is_file()
    for ignoring in (".dockerignore", ".gitignore"):
        assert secret in (ROOT / ignoring).read_text().replace("**/", "").split()


# ------------------------------------------------------------------ the commands
@needs_namespaces
def test_a_worker_handles_a_message_and_is_healthy_while_it_runs(container: Container, database: str, worker):
    send_as_the_readme_does(container)

    with psycopg.connect(database, autocommit=True) as admin:
        eventually(lambda: admin.execute("SELECT order_id FROM placed").fetchall() == [(42,)], "the message is handled")
        admin.execute("DELETE FROM placed")
    worker.kill()
    worker.wait()
    eventually(lambda: not container.healthy(), "a worker that does not run is not healthy")


@needs_namespaces
def test_sigterm_lets_the_running_handler_finish_and_ends_process_1_with_0(container: Container, database: str, worker):
    (first,) = psutil.Process(worker.pid).children()
    with psycopg.connect(database, autocommit=True) as admin, psycopg.connect(database) as other:
        other.execute("LOCK TABLE placed")
        send_as_the_readme_does(container)
        waiting = "SELECT count(*) FROM pg_locks WHERE relation = 'placed'::regclass AND NOT granted"
        eventually(lambda: admin.execute(waiting).fetchone()[0], "a handler works")
        first.send_signal(signal.SIGTERM)
        said = worker.stdout.readline()
        while "stopping: running handlers finish" not in said:
            said = worker.stdout.readline()
        at_work = worker.poll() is None
        other.rollback()
        code = worker.wait(30)
        handled = admin.execute("DELETE FROM placed RETURNING order_id").fetchall()

    assert at_work
    assert code == 0, worker.stdout.read()
    assert handled == [(42,)]


@needs_namespaces
def test_the_job_changes_nothing_the_second_time_and_fails_without_the_secret(container: Container):
    again = container.run(*SERVICES["deploy"]["command"])
    with container.without_secrets():
        failed, why = container.run(*SERVICES["deploy"]["command"])

    assert again[0] == 0
    assert "0 applied" in again[1]
    assert failed == ExitCode.UNAVAILABLE
    assert "/run/secrets/database_password" in why

"""mode=log refuses to read on where it would lose messages: each refusal says what happened and what to do."""

import json
import re
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
import pytest
from pyspark.errors import PySparkException
from typer.testing import CliRunner

from rowpost.cli.app import app
from rowpost.database.connection import connect_url
from rowpost.database.dialects.slots import Slot, judge_slot, slot_name
from rowpost.errors import SettingsError
from rowpost.spark.source.checkpoint import finalize
from rowpost.spark.source.connection import log_url
from rowpost.spark.source.options import read_options
from tests.support.postgres import major_version
from tests.support.spark.logs import LogRun, drop_slots, log_server, numbered, pass_through, slots
from tests.support.spark.outages import own_server
from tests.support.spark.queues import Queues
from tests.support.standby import Pair

OK, FINDING, USAGE, NOT_FOUND = 0, 1, 2, 6
KEEP = "64MB"
KEEPS_SLOTS = 17  # the first PostgreSQL whose standbys keep slots


@pytest.fixture(scope="module")
def served(spark):
    with log_server(spark, f"-c max_slot_wal_keep_size={KEEP} -c wal_keep_size=0 -c min_wal_size=32MB -c max_wal_size=64MB") as made:
        yield made


@pytest.fixture
def begun(queues, run):
    """A queue of which a stream has read three messages."""
    queue = queues.make(publication=True)
    run(queue)
    queues.send(queue, numbered(0, 3))
    assert run(queue) == [0, 1, 2]
    return queue


@pytest.fixture
def cli(queues):
    """Run a command of `rowpost`. Returns the exit code, stdout and stderr."""

    def call(*arguments, environment=None):
        ended = CliRunner().invoke(app, ["--env", environment or queues.environment, *arguments])
        return ended.exit_code, ended.stdout, ended.stderr

    return call


@contextmanager
def refused(text):
    with pytest.raises(PySparkException, match=text):
        yield


# ------------------------------------------------------------------------------------------------ the slot
def test_a_slot_that_was_dropped_is_refused(queues, begun, run):
    drop_slots(queues)
    queues.send(begun, numbered(3, 5))

    with refused(r"slot rowpost_postgres_\w+ of this stream does not exist.*start with a new checkpoint"):
        run(begun)


def test_a_slot_that_was_created_again_is_refused_because_messages_in_between_are_lost(queues, begun, run, connection):
    (name,) = slots(queues)
    drop_slots(queues)
    pass_through(queues, begun, numbered(3, 5))
    connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (name,))
    pass_through(queues, begun, numbered(5, 7))

    with refused(r"has read the log up to .* but its slot .* begins at .*failOnDataLoss=false"):
        run(begun)
    assert run(begun, failOnDataLoss=False) == [0, 1, 2, 5, 6]


def test_a_planned_batch_whose_slot_was_created_again_is_refused(queues, run, tmp_path):
    """Spark asks for the start of the first batch again if the run was killed before it committed the batch."""
    queue = queues.make(publication=True)
    with psycopg.connect(queues.url, autocommit=True) as connection:
        connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (f"rowpost_postgres_{queue}",))
    pass_through(queues, queue, numbered(0, 3))
    assert run(queue) == [0, 1, 2]
    for path in (tmp_path / "checkpoint" / "commits").iterdir():
        path.unlink()
    drop_slots(queues)

    with refused("planned batch ends at .* dropped and created again"):
        run(queue, out="another sink, which has not the batch")


def test_a_slot_that_another_stream_has_confirmed_further_is_refused(queues, begun, run, connection):
    (name,) = slots(queues)
    queues.send(begun, numbered(3, 5))
    connection.execute("SELECT pg_replication_slot_advance(%s, pg_current_wal_lsn())", (name,))

    with refused("another stream uses it. Messages in between are lost"):
        run(begun)


def test_another_slot_than_that_of_the_checkpoint_is_refused(begun, run):
    with refused("belongs to the slot rowpost_postgres_.* and the stream reads mine"):
        run(begun, slot="mine")


def test_a_slot_whose_log_the_server_has_removed_is_refused_and_found(queues, begun, run, connection, cli):
    (name,) = slots(queues)
    connection.execute("CREATE TABLE IF NOT EXISTS other (t text)")
    end = time.monotonic() + 120
    while connection.execute("SELECT wal_status FROM pg_replication_slots").fetchone() != ("lost",):
        assert time.monotonic() < end
        connection.execute("INSERT INTO other SELECT repeat(md5(n::text), 30) FROM generate_series(1, 50000) AS n")
        connection.execute("SELECT pg_switch_wal()")
        connection.execute("CHECKPOINT")

    with refused(f"server has removed log that this stream has not read: its slot {name} is"):
        run(begun)
    code, out, _ = cli("doctor", "--json")
    (check,) = [each for each in json.loads(out)["checks"] if each["name"] == f"replication slot {name}"]
    assert code == FINDING
    assert check["state"] == "bad"
    assert check["advice"].endswith(f"SELECT pg_drop_replication_slot('{name}');")


def test_a_slot_that_another_connection_reads_is_waited_for_then_named(queues, begun, run, monkeypatch):
    from rowpost.database.dialects import replication
    from rowpost.database.dialects.replication import LogStream

    monkeypatch.setattr(replication, "RELEASE_TIMEOUT_S", 0.2)
    (name,) = slots(queues)
    with LogStream(queues.url, "somebody else") as other:
        other.start(name, 0, [f"rowpost_log:{begun}"])
        queues.send(begun, numbered(3, 5))
        with refused("Another connection reads the log by this stream's slot.*needs a slot of its own"):
            run(begun, connectRetrySeconds=0.1)

    assert run(begun) == [0, 1, 2, 3, 4]


def test_a_slot_is_not_created_while_a_transaction_is_open_and_the_transaction_is_named(queues, run):
    queue, other = queues.make(publication=True), queues.make()
    with connect_url("postgresql", queues.url, "nightly job") as database:
        database.begin()
        database.call("send_message", other, headers="{}")
        with refused(r"was not created within 1 seconds.*process \d+ \(nightly job\) since"):
            run(queue, watermarkTimeoutSeconds=1)
        assert slots(queues) == {}
        database.rollback()

    assert run(queue) == []


# ------------------------------------------------------------------------------------------------ the queue and the server
def test_a_queue_without_a_publication_is_refused(queues, run):
    with refused(r"has no publication of its inserts.*`publication: true`.*rowpost apply"):
        run(queues.make())
    assert slots(queues) == {}


@pytest.mark.parametrize("what", ["queue", "publication"])
def test_a_queue_or_publication_that_was_dropped_and_made_again_is_refused(queues, begun, run, connection, what):
    connection.execute(f'DROP TABLE public."{begun}"' if what == "queue" else f'DROP PUBLICATION "rowpost_log:{begun}"')
    pass_through(queues, queues.make(begun, publication=True), numbered(3, 5))

    with refused("or its publication, was dropped and created again"):
        run(begun)


def test_a_checkpoint_of_other_queues_is_refused(queues, run):
    one, two = (queues.make(publication=True) for _ in range(2))
    run(subscribe=f"{one},{two}", slot="mine")

    with refused(f"belongs to a stream of the queues {one}, {two}, and this one reads {one}"):
        run(one, slot="mine")


@pytest.mark.parametrize("mode", ["tail", "drain"])
def test_a_checkpoint_of_another_mode_is_refused(queues, begun, run, mode):
    with refused("cannot use the checkpoint's offset"):
        run(begun, mode=mode)


def test_another_server_is_refused(spark, begun, run, tmp_path):
    with log_server(spark) as (_, others):
        others.make(begun, publication=True)
        with refused("belongs to the log of another server"):
            run(begun, environment=others.environment)


def test_a_server_without_a_log_for_decoding_is_refused(spark, tmp_path):
    with own_server(spark) as (_, queues):
        queue = queues.make(publication=True)
        with refused(r"needs wal_level=logical, and the server has replica.*ALTER SYSTEM.*rds.logical_replication"):
            LogRun(queues, tmp_path)(queue)


def test_sql_server_is_refused(tmp_path):
    file = tmp_path / "sqlserver.yml"
    file.write_text('engine: sqlserver\nurl: "Server=sql01;Database=shop"\n')

    with pytest.raises(SettingsError, match="reads the log of PostgreSQL, and this environment's server is a SQL Server"):
        log_url(str(file))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"mode": "log", "startingOffsets": "latest"}, "must be earliest with mode=log"),
        ({"mode": "log", "startingOffsets": "7"}, "must be earliest with mode=log"),
        ({"mode": "log", "slot": "Mine"}, "lower-case letters, digits and underscores"),
        ({"mode": "log", "slot": "x'; DROP TABLE q; --"}, "lower-case letters, digits and underscores"),
        ({"slot": "mine"}, "slot is for mode=log"),
        ({"mode": "logs"}, "must be tail or drain or log"),
    ],
)
def test_options_that_the_log_cannot_have_are_refused(options, says):
    with pytest.raises(SettingsError, match=says):
        read_options({"queue": "a", **options}, stream=True)


def test_a_pattern_is_refused():
    with pytest.raises(SettingsError, match="subscribePattern cannot be combined with mode=log"):
        read_options({"subscribePattern": "a.*", "mode": "log"}, stream=True)


# ------------------------------------------------------------------------------------------------ failover
class LogPair(Pair):
    """A pair whose log is decoded. `keeps_slots`: the standby keeps the failover slots of its primary."""

    def __init__(self, folder, keeps_slots):
        super().__init__(folder)
        more = "-c wal_level=logical"
        if keeps_slots:
            more += " -c sync_replication_slots=on -c hot_standby_feedback=on -c primary_slot_name=standby"
        for server in (self._primary, self._standby):
            server._more = more
        self.keeps_slots = keeps_slots

    def start(self):
        self._primary.create()
        self._primary.start()
        if self.keeps_slots:
            with psycopg.connect(self.url, autocommit=True) as primary:
                primary.execute("SELECT pg_create_physical_replication_slot('standby')")
        self._standby.copy(self._primary)
        configured = self._standby.folder / "postgresql.auto.conf"
        configured.write_text(re.sub(r"(primary_conninfo = ')", r"\1dbname=postgres ", configured.read_text()))
        self._standby.start()


@contextmanager
def failing_over(spark, tmp_path, *, keeps_slots):
    with ExitStack() as opened:
        pair = LogPair(Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="rowpost-", ignore_cleanup_errors=True))), keeps_slots)
        opened.callback(pair.stop)
        pair.start()
        hosts = ",".join(re.search("host=(.+)", each)[1] for each in (pair.url, pair.url.replace("/psocket", "/ssocket")))
        url = f"postgresql://postgres@/postgres?host={hosts}&target_session_attrs=read-write"
        queues = Queues(url, tmp_path, spark=spark, named_url=f'"{url}"')
        yield pair, queues, LogRun(queues, tmp_path)


def test_a_failover_to_a_standby_that_does_not_keep_slots_is_refused(spark, tmp_path):
    with failing_over(spark, tmp_path, keeps_slots=False) as (pair, queues, run):
        queue = queues.make(publication=True)
        run(queue)
        queues.send(queue, numbered(0, 5))
        assert run(queue) == list(range(5))

        pair.fail_over()

        with refused("does not exist: .* failed over to a standby that did not keep it"):
            run(queue)


@pytest.mark.skipif(major_version() < KEEPS_SLOTS, reason="standbys keep slots from PostgreSQL 17 on")
def test_a_stream_continues_after_a_failover_to_a_standby_that_keeps_slots(spark, tmp_path):
    with failing_over(spark, tmp_path, keeps_slots=True) as (pair, queues, run):
        queue = queues.make(publication=True)
        run(queue)
        sent = 0
        with psycopg.connect(pair.url, autocommit=True) as primary, psycopg.connect(pair._standby.url(), autocommit=True) as standby:
            end, kept = time.monotonic() + 120, None
            while kept != (True,):  # a standby keeps a slot for good when the slot has been confirmed after it began to keep it
                assert time.monotonic() < end
                pass_through(queues, queue, numbered(sent, sent + 5))
                sent += 5
                primary.execute("SELECT pg_log_standby_snapshot()")  # the server writes one by itself every 15 seconds
                pass_through(queues, queue, numbered(sent, sent + 1))
                sent += 1
                assert run(queue) == list(range(sent))
                finalize({"queue": queue, "environment": queues.environment}, tmp_path / "checkpoint")
                time.sleep(0.5)  # the standby looks after 0.2 seconds, later more rarely
                kept = standby.execute("SELECT synced AND NOT temporary FROM pg_replication_slots WHERE slot_type = 'logical'").fetchone()
        pass_through(queues, queue, numbered(sent, sent + 5))

        pair.fail_over()
        pass_through(queues, queue, numbered(sent + 5, sent + 7))

        assert run(queue) == list(range(sent + 7))


@pytest.mark.parametrize(("read", "left_at", "says"), [("0/300", 0x200, "up to 0/200 only"), ("0/300", None, "does not have that history")])
def test_a_server_that_was_promoted_without_what_the_stream_has_read_is_refused(read, left_at, says):
    from datetime import datetime

    from rowpost.database.dialects.slots import LogState
    from rowpost.spark.source.log_slot import check_timeline
    from rowpost.spark.source.queue_stream import StreamRefused

    offset = {"log": read, "slot": "s", "system": "1", "timeline": 1, "queues": {}}
    state = LogState("1", 2, 0x900, "logical", datetime(2026, 1, 1), "shop", None, {})

    with pytest.raises(StreamRefused, match=says):
        check_timeline(offset, state, left_at)
    check_timeline({**offset, "log": "0/200"}, state, 0x200)


# ------------------------------------------------------------------------------------------------ rights, doctor, commands
def test_a_login_with_the_attribute_replication_reads_and_one_without_is_told(queues, run, connection, tmp_path):
    queue = queues.make(publication=True)
    for name, attribute in (("logreader", "REPLICATION"), ("nobody", "")):
        connection.execute(f"DROP ROLE IF EXISTS {name}")
        connection.execute(f"CREATE ROLE {name} LOGIN {attribute}")
    found = {}
    for name in ("nobody", "logreader"):
        file = tmp_path / f"{name}.yml"
        file.write_text(f'engine: postgresql\nurl: "{queues.url.replace("postgres@", f"{name}@")}"\n')
        found[name] = str(file)

    with refused(r"may not read the server's log: .*ALTER ROLE <login> REPLICATION"):
        run(queue, environment=found["nobody"])
    run(queue, environment=found["logreader"])
    pass_through(queues, queue, numbered(0, 3))
    assert run(queue, environment=found["logreader"]) == [0, 1, 2]
    with refused(r"may not read the server's log: .*ALTER ROLE <login> REPLICATION"):
        run(queue, environment=found["nobody"])
    with connect_url("postgresql", queues.url.replace("postgres@", "logreader@")) as reader, pytest.raises(Exception, match="permission denied"):
        reader.driver_connection.execute(f'SELECT * FROM public."{queue}"')


@pytest.mark.parametrize("role", ["rowpost_endpoint", "rowpost_operator", "rowpost_reader"])
def test_no_role_of_rowpost_may_read_the_log_or_change_the_publication(queues, connection, role):
    queue = queues.make(publication=True)

    for statement in ("SELECT pg_create_logical_replication_slot('x', 'pgoutput')", f'DROP PUBLICATION "rowpost_log:{queue}"'):
        with pytest.raises(psycopg.errors.InsufficientPrivilege), connection.transaction():
            connection.execute(f"SET LOCAL ROLE {role}")
            connection.execute(statement)


MIB = 1 << 20


@pytest.mark.parametrize(
    ("changed", "state", "says"),
    [
        ({"process": 77}, "ok", "in use by process 77; it holds back 5.0 MiB"),
        ({}, "ok", "not in use; it holds back 5.0 MiB of log; max_slot_wal_keep_size is 10GB"),
        ({"held_bytes": 2048 * MIB}, "note", "2,048.0 MiB"),
        ({"held_bytes": 2048 * MIB, "process": 77}, "ok", "2,048.0 MiB"),
        ({"days": 3}, "note", "not in use for 3 days"),
        ({"status": "unreserved"}, "bad", "may remove its log at any moment"),
        ({"status": "lost"}, "bad", "has removed log"),
        ({"reason": "wal_removed"}, "bad", "(wal_removed)"),
    ],
)
def test_the_doctor_judges_a_slot_by_what_it_holds_back_and_for_how_long(changed, state, says):
    from datetime import timedelta

    days = changed.pop("days", None) if (changed := dict(changed)) else None
    slot = Slot(**{"name": "s", "plugin": "pgoutput", "confirmed": 1, "status": "reserved", "process": None, "held_bytes": 5 * MIB,
                   "inactive": None if days is None else timedelta(days=days), **changed})  # fmt: skip

    check = judge_slot(slot, "10GB")

    assert check.state == state
    assert says in check.found
    assert ("pg_drop_replication_slot('s')" in check.advice) == (state == "note" or slot.is_lost)
    assert "fills the disk" in judge_slot(Slot("s", "pgoutput", 1, "reserved", None, 1), "-1").found


def test_the_doctors_name_the_slots_of_the_database(queues, begun, cli):
    (name,) = slots(queues)

    for command in (("doctor",), ("spark", "doctor")):
        _, out, _ = cli(*command, "--json")
        (check,) = [each for each in json.loads(out)["checks"] if each["name"] == f"replication slot {name}"]
        assert check["state"] == "ok"
        assert f"max_slot_wal_keep_size is {KEEP}" in check["found"]


def test_names_of_slots_have_only_the_characters_that_slots_may_have():
    assert slot_name("shop", ["audit"]) == "rowpost_shop_audit"
    names = {
        slot_name(*each)
        for each in [
            ("shop", ["Audit"]),
            ("shop", ["audit", "error"]),
            ("shop", ["audit_error"]),
            ("a" * 63, ["b" * 60]),
            ("a" * 63, ["b" * 59]),
            ("é", ["a"]),
        ]
    }
    assert len(names) == 6
    assert all(re.fullmatch(r"[a-z0-9_]{1,63}", each) for each in names)


def test_a_slot_is_created_listed_and_dropped_by_commands_that_also_only_print_the_statement(queues, run, cli):
    queue = queues.make(publication=True)
    name = f"rowpost_postgres_{queue}"

    printed = cli("spark", "slot", "create", queue, "--print")
    before = slots(queues)
    created = cli("spark", "slot", "create", queue)
    pass_through(queues, queue, numbered(0, 3))
    listed = cli("spark", "slot", "list", "--json")
    read = run(queue)
    drop_printed = cli("spark", "slot", "drop", name, "--print")
    still = list(slots(queues))
    dropped = cli("spark", "slot", "drop", name, "--yes")

    kept = ", failover => true" if major_version() >= KEEPS_SLOTS else ""
    assert printed[:2] == (OK, f"SELECT pg_create_logical_replication_slot('{name}', 'pgoutput'{kept});\n")
    assert before == {}
    assert created[0] == OK and name in created[1]
    assert json.loads(listed[1])[0]["slot"] == name
    assert read == [0, 1, 2]
    assert drop_printed[:2] == (OK, f"SELECT pg_drop_replication_slot('{name}');\n")
    assert (still, dropped[0], slots(queues)) == ([name], OK, {})
    assert cli("spark", "slot", "drop", name, "--yes")[0] == NOT_FOUND
    assert "has no publication" in cli("spark", "slot", "create", queues.make())[2]


@pytest.mark.parametrize("options", [("--log", "--drain"), ("--slot", "mine"), ("--log", "--fail-when-held")])
def test_options_of_the_archive_that_do_not_fit_are_refused(queues, cli, tmp_path, options):
    assert cli("spark", "archive", "audit", str(tmp_path / "out"), *options)[0] == USAGE


def test_the_archive_reads_the_log_once_each_and_confirms_it(queues, cli, tmp_path):
    from rowpost.spark.jobs.archive import read_archive

    queue = queues.make(publication=True)
    command = ("spark", "archive", queue, str(tmp_path / "out"), "--log", "--slot", "mine", "--max-rows", "40")
    assert cli(*command)[0] == OK
    before = slots(queues)
    pass_through(queues, queue, numbered(0, 100))

    code, out, _ = cli(*command)
    again = cli(*command)

    done = json.loads(out.strip().splitlines()[-1])
    rows = [int(bytes(row.body)) for row in read_archive(queues.spark, str(tmp_path / "out")).collect()]
    assert (code, done["mode"], done["messages"], done["batches"]) == (OK, "log", 100, 3)
    assert json.loads(again[1].strip().splitlines()[-1])["messages"] == 0
    assert sorted(rows) == list(range(100))
    assert slots(queues).keys() == before.keys() == {"mine"} and slots(queues) != before

"""Queue tables, their names, and the findings of `check_queue`."""

import pytest

from rowpost.cli.exits import ExitCode, exit_code
from rowpost.deploy.entries import describe_queue
from rowpost.errors import DatabaseError, InvalidQueueName, QueueNameConflict, QueueNotFound
from rowpost.settings.environment import QueueSettings
from rowpost.wire.address import DEFAULT_SCHEMA
from tests.support.nservicebus_tables import TABLES
from tests.support.unregistered import send_unregistered
from tests.support.wake_up import postgresql_only

__all__ = ["postgresql_only"]

COLUMNS = {
    "sqlserver": {
        "Id": "uniqueidentifier not null",
        "CorrelationId": "varchar(255)",
        "ReplyToAddress": "varchar(255)",
        "Recoverable": "bit not null",
        "Expires": "datetime",
        "Headers": "nvarchar(-1) not null",
        "Body": "varbinary(-1)",
        "RowVersion": "bigint not null",
    },
    "postgresql": {
        "id": "uuid not null",
        "expires": "timestamp without time zone",
        "headers": "text not null",
        "body": "bytea",
        "seq": "bigint not null",
    },
}
STRANGE_NAMES = [
    "Special_]_Characters",
    "[SpecialCharacters]",
    "it's",
    'double"quote',
    "semi;colon",
    "per%cent",
    "cur{ly}",
    "dollar$1$$",
    "-- comment",
    "/* comment */",
    "🚀 rocket",
    "dots.and.dots",
    "tilde~name",
    "x'); DROP TABLE victim; --",
    "GO",
]


@pytest.mark.promise("queue-table-columns")
def test_a_new_table_has_exactly_the_columns_of_the_nservicebus_transport(make_queue, target, sql):
    queue = make_queue()

    columns = sql.columns(queue.name)

    expected = COLUMNS[sql.database.engine]
    if target.babelfish:  # its catalog folds names
        expected = {name.lower(): kind for name, kind in expected.items()}
    assert columns == expected


def test_a_new_queue_has_no_findings(make_queue, database):
    queue = make_queue()

    assert database.call("check_queue", queue_name=queue.name) == []


def test_the_heap_layout_is_deployed_and_has_no_findings(make_queue, database):
    queue = make_queue(clustered=False)
    queue.send(b"x")

    assert database.call("check_queue", queue_name=queue.name) == []
    assert [message.body for message in queue.receive()] == [b"x"]


@pytest.mark.promise("body-string")
def test_body_string_shows_the_body_as_text_and_enabling_it_twice_is_no_error(make_queue, target, sql):
    queue = make_queue(body_string=True)
    text = '{"OrderId":42}' if sql.database.engine == "sqlserver" else '{"Name":"é漢🚀"}'
    queue.send(text.encode())

    target.deploy(QueueSettings(queue.name, body_string=True))

    assert sql.column_values(queue.name, "BodyString") == [text]
    assert queue.receive()[0].body == text.encode()


def test_a_body_that_is_no_text_is_stored_beside_body_string_all_the_same(make_queue, not_on_babelfish):
    not_on_babelfish("casts to varchar only what is text")
    queue = make_queue(body_string=True)

    queue.send(b"\xff\x00\xfe")

    assert queue.receive()[0].body == b"\xff\x00\xfe"


def test_body_string_is_added_to_a_queue_that_exists(make_queue, target, sql):
    queue = make_queue()
    queue.send(b"before")

    target.deploy(QueueSettings(queue.name, body_string=True))

    assert sql.column_values(queue.name, "BodyString") == ["before"]


@pytest.mark.parametrize("name", STRANGE_NAMES)
@pytest.mark.promise("special-characters-in-names")
def test_a_name_with_special_characters_is_never_executed(make_queue, database, sql, name, not_on_babelfish):
    if not name.isascii() or set(name) & set("]'\""):
        not_on_babelfish("cannot create procedures whose names hold quotes or brackets, and miscounts beyond ASCII")
    sql.run("DROP TABLE IF EXISTS victim")
    sql.run("CREATE TABLE victim (id integer)")

    queue = make_queue(name)
    queue.send(b"1", {"a": "b"})
    database.call("send_message", queue_name=queue.name, headers="", body=b"2")
    send_unregistered(database, name, b"3")

    assert queue.peek() == 3
    assert [message.body for message in queue.receive(5)] == [b"1", b"2", b"3"]
    assert database.call("check_queue", queue_name=queue.name) == []
    assert sql.value("SELECT COUNT(*) FROM victim") == 0


@pytest.mark.promise("special-characters-in-names")
def test_a_schema_with_an_at_sign_and_brackets_holds_a_queue(make_queue, sql, not_on_babelfish):
    not_on_babelfish("cannot create procedures whose names hold brackets")
    sql.run(f"CREATE SCHEMA {sql.database.dialect.quote('db@]x')}")

    queue = make_queue("Orders@[db@]]x]")
    queue.send(b"x")

    assert [message.body for message in queue.receive()] == [b"x"]


@pytest.mark.parametrize(("engine", "longest"), [("postgresql", "n" * 63), ("sqlserver", "n" * 128)])
def test_the_longest_name_works_and_one_more_is_refused(make_queue, database, engine, longest):
    if database.engine != engine:
        pytest.skip(f"the limit of {engine}")
    queue = make_queue(longest)
    queue.send(b"x")

    assert [message.body for message in queue.receive()] == [b"x"]
    with pytest.raises(InvalidQueueName, match=str(len(longest))):
        make_queue(longest + "n")


def test_names_that_differ_only_at_their_ends_are_two_queues(make_queue, database):
    length = 63 if database.engine == "postgresql" else 128
    first, second = make_queue("e" * (length - 1) + "1"), make_queue("e" * (length - 1) + "2")

    first.send(b"1")

    assert (first.peek(), second.peek()) == (1, 0)


def test_names_that_differ_only_in_case_are_two_queues_or_a_clear_conflict(make_queue, database, sql):
    first = make_queue("CaseMatters")

    if database.engine == "postgresql":
        second = make_queue("casematters")
        first.send(b"1")
        assert (first.peek(), second.peek()) == (1, 0)
    else:
        with pytest.raises(QueueNameConflict, match="CaseMatters"):
            make_queue("casematters")


def test_a_queue_in_another_schema_has_procedures_of_its_own(make_queue, sql):
    sql.run("CREATE SCHEMA eu")
    here, there = make_queue("Orders"), make_queue("Orders@[eu]")

    here.send(b"here")
    there.send(b"there")

    assert [m.body for m in here.receive(5)] == [b"here"]
    assert [m.body for m in there.receive(5)] == [b"there"]


def test_the_registry_lists_queues_with_their_places(queue, database):
    rows = {row[0]: row for row in database.call("list_queues")}

    name, key, catalog, schema, table, kind, body_string, clustered, _delayed, _lease, _depth = rows["Sales"]
    assert (name, key, catalog, schema, table) == ("Sales", "Sales", None, DEFAULT_SCHEMA[database.engine], "Sales")
    assert (kind, bool(body_string), bool(clustered)) == ("own", False, True)


@pytest.mark.promise("queue-check-findings")
def test_a_clustered_index_where_the_registry_says_heap_is_one_finding(make_queue, target, database, not_on_babelfish):
    not_on_babelfish("has no clustered indexes")
    queue = make_queue(clustered=True)
    target.deploy(QueueSettings(queue.name, clustered=False))

    found = [row[1] for row in database.call("check_queue", queue_name=queue.name)]

    assert found == ([] if database.engine == "postgresql" else ["row_version_index_clustered"])


@pytest.mark.promise("queue-check-findings")
def test_columns_that_lose_text_are_findings(make_queue, database, sql, not_on_babelfish):
    not_on_babelfish("cannot make a column varchar and NOT NULL")
    queue = make_queue()
    if database.engine == "postgresql":
        sql.run(f"ALTER TABLE {sql.table(queue.name)} ALTER COLUMN headers TYPE varchar(100)")
        expected = {"column_shrunk"}
    else:
        sql.run(f"ALTER TABLE {sql.table(queue.name)} ALTER COLUMN Headers varchar(max) NOT NULL")
        sql.run(f"ALTER TABLE {sql.table(queue.name)} ALTER COLUMN Body varbinary(100)")
        expected = {"headers_varchar", "column_shrunk"}

    findings = database.call("check_queue", queue_name=queue.name)
    for finding in findings:
        sql.run(finding[3])

    assert {row[1] for row in findings} == expected
    assert database.call("check_queue", queue_name=queue.name) == []


@pytest.mark.promise("queue-check-findings")
@pytest.mark.parametrize("column", ["Id", "Expires", "Headers", "Body", "RowVersion"])
def test_the_remedies_for_a_missing_column_bring_the_queue_back(make_queue, database, sql, column):
    queue = make_queue()
    table = sql.table(queue.name)
    queue.send(b"before")
    if database.engine == "sqlserver" and column in ("Expires", "RowVersion"):
        sql.run(f"DROP INDEX Index_{column} ON {table}")
    name = "seq" if database.engine == "postgresql" and column == "RowVersion" else column
    sql.run(f"ALTER TABLE {table} DROP COLUMN {name}")

    findings = database.call("check_queue", queue_name=queue.name)
    for finding in findings:
        sql.run(finding.remedy)
    queue.send(b"after")

    assert "column_missing" in {finding.finding for finding in findings}
    assert database.call("check_queue", queue_name=queue.name) == []
    assert [message.body for message in queue.receive(2)] == [b"" if column == "Body" else b"before", b"after"]


@pytest.mark.promise("queue-check-findings")
def test_a_further_column_that_each_insert_must_fill_is_a_finding_with_its_remedy(
    make_queue, database, sql, not_on_babelfish
):
    not_on_babelfish("takes no NULL in ALTER COLUMN")
    queue = make_queue()
    text = "text" if database.engine == "postgresql" else "nvarchar(20)"
    add = "ADD COLUMN" if database.engine == "postgresql" else "ADD"
    for column in (f"tenant {text} NOT NULL", f"note {text} NULL", f"made {text} DEFAULT 'x' NOT NULL"):
        sql.run(f"ALTER TABLE {sql.table(queue.name)} {add} {column}")

    (finding,) = database.call("check_queue", queue_name=queue.name)
    sql.run(finding.remedy)
    queue.send(b"x")

    assert (finding.finding, "tenant" in finding.detail) == ("column_mandatory", True)
    assert database.call("check_queue", queue_name=queue.name) == []
    assert [message.body for message in queue.receive()] == [b"x"]


def test_a_row_version_that_the_server_does_not_fill_is_a_finding(make_queue, database, sql):
    if database.engine != "postgresql":
        pytest.skip("SQL Server cannot take the identity from a column")
    queue = make_queue()
    queue.send(b"first")
    sql.run(
        f"ALTER TABLE {sql.table(queue.name)} ALTER COLUMN seq DROP IDENTITY IF EXISTS, ALTER COLUMN seq DROP DEFAULT"
    )

    (finding,) = database.call("check_queue", queue_name=queue.name)
    sql.run(finding.remedy)
    queue.send(b"second")

    assert (finding.finding, "seq" in finding.detail) == ("column_mandatory", True)
    assert [message.body for message in queue.receive(2)] == [b"first", b"second"]


def test_a_missing_procedure_and_a_missing_table_are_findings(make_queue, database, sql):
    queue = make_queue()
    key = describe_queue(QueueSettings(queue.name), database.engine).key
    kind = "FUNCTION" if database.engine == "postgresql" else "PROCEDURE"
    sql.run(f"DROP {kind} rowpost.{database.dialect.quote(f'peek_queue:{key}')}")
    sql.run(f"DROP TABLE {sql.table(queue.name)}")

    found = {row[1] for row in database.call("check_queue", queue_name=queue.name)}

    assert found == {"procedure_missing", "table_missing"}


def test_a_queue_whose_table_is_gone_is_named(make_queue, sql):
    queue = make_queue()
    sql.run(f"DROP TABLE {sql.table(queue.name)}")

    with pytest.raises(QueueNotFound, match=queue.name):
        queue.send(b"x")


def test_checking_a_queue_that_is_not_registered_is_refused(database):
    with pytest.raises(QueueNotFound, match="Nowhere"):
        database.call("check_queue", queue_name="Nowhere")


def test_a_table_made_by_nservicebus_is_adopted_and_works(target, database, sql, make_queue):
    install(sql, "Legacy")
    existing = sql.insert_minimal("Legacy", headers="", body=b'{"$type":"Shop.PlaceOrder"}')

    queue = make_queue("Legacy", kind="adopted")
    queue.send(b"ours")

    assert [message.body for message in queue.receive(5)] == [b'{"$type":"Shop.PlaceOrder"}', b"ours"]
    assert existing
    found = {row[1] for row in database.call("check_queue", queue_name="Legacy")}
    on_sqlserver = set() if target.babelfish else {"lock_escalation"}
    on_postgresql = {"row_version_32_bit", "expires_index_missing", "settings_missing"}
    assert found == (on_postgresql if database.engine == "postgresql" else on_sqlserver)


def test_a_reply_address_nobody_registered_is_served_with_the_callers_own_right(database, sql, not_on_babelfish):
    not_on_babelfish("cannot create tables whose names hold brackets")
    install(sql, "Foreign]Queue")

    send_unregistered(database, "Foreign]Queue", b"reply", {"a": "b"})

    assert sql.column_values("Foreign]Queue", "Body") == [b"reply"]


def test_a_table_that_is_no_queue_is_refused_as_a_destination(database, sql):
    from rowpost.errors import NotAQueueTable

    sql.run("DROP TABLE IF EXISTS no_queue")
    sql.run("CREATE TABLE no_queue (id integer)")

    with pytest.raises(NotAQueueTable, match="no_queue"):
        send_unregistered(database, "no_queue", b"")


def test_an_address_that_leads_nowhere_is_named(database):
    with pytest.raises(QueueNotFound, match="error"):
        send_unregistered(database, "error] VALUES (NEWID(),1); DROP TABLE Victim", b"")


def install(sql, name: str) -> None:
    """Make a queue's table as the installer of NServiceBus does."""
    sql.run(f"DROP TABLE IF EXISTS {sql.table(name)}")
    engine = sql.database.engine
    table = TABLES[engine]["without delayed table"]
    for statement in table.statements(sql.database.dialect, DEFAULT_SCHEMA[engine], name):
        sql.run(statement)


def test_a_queue_whose_numbers_are_used_up_says_so_and_check_says_how_many_are_left(
    postgresql_only, database, sql, make_queue
):
    install(sql, "Legacy")
    queue = make_queue("Legacy", kind="adopted")
    queue.send(b"x")
    sql.run("SELECT setval(pg_get_serial_sequence('\"Legacy\"', 'seq'), 2147483647 - 1000)")

    def key_finding():
        found = database.call("check_queue", queue_name="Legacy")
        return next((row.detail, row.remedy) for row in found if row.finding == "row_version_32_bit")

    left, widen = key_finding()
    sql.run("SELECT setval(pg_get_serial_sequence('\"Legacy\"', 'seq'), 2147483647)")

    with pytest.raises(DatabaseError, match=r"used up.*rowpost queue check") as refused:
        queue.send(b"x")
    none, _ = key_finding()
    sql.run(widen)
    queue.send(b"y")

    assert ("and 1,000 are left" in left, "and 0 are left" in none, exit_code(refused.value)) == (
        True,
        True,
        ExitCode.FAILED,
    )
    assert [message.body for message in queue.receive(5)] == [b"x", b"y"]

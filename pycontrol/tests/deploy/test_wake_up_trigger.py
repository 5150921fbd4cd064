"""`wake_up: everybody`: a trigger on each queue's table notifies a waiting supervisor of a plain INSERT (PostgreSQL)."""

from dataclasses import replace
from datetime import timedelta

import pytest

from rowpost.deploy.apply import apply, difference
from rowpost.deploy.plan import plan
from rowpost.deploy.queues import drop_queue, forget_queue
from rowpost.deploy.release import Release, go_back
from rowpost.deploy.review import read_definition, review
from rowpost.deploy.verify import verify
from rowpost.errors import DeployError
from rowpost.settings.environment import QueueSettings, Settings, SupervisorSettings
from rowpost.transport.delayed import move_due
from rowpost.transport.queue import Queue
from rowpost.wire.message import OutgoingMessage
from tests.support.wake_up import INSERT, NotificationListener, postgresql_only

__all__ = ["postgresql_only"]

MINUTE = 60_000
EVERYBODY = SupervisorSettings(wake_up="everybody")


def everybody(shop, **changed):
    return plan(replace(shop.settings, **{"supervisor": EVERYBODY} | changed))


def triggers(sql, table="Sales"):
    """Trigger and state of the table: O is enabled, D disabled."""
    return sql.run(
        f"SELECT t.tgname, t.tgenabled::text FROM pg_trigger AS t WHERE t.tgrelid = '\"{table}\"'::regclass AND NOT t.tgisinternal"
    )


def wait_for_messages(database, queue="Sales"):
    """Request a wake-up as a supervisor does that has found nothing."""
    assert database.call("watch_queue", queue, count=100, wake_up_ttl_ms=MINUTE)[0].waiting == 0


@pytest.fixture
def heard(shop, postgresql_only):
    listener = NotificationListener(shop.settings.url)
    yield listener.heard
    listener.connection.close()


# ------------------------------------------------------------------ what a deployment does
def test_apply_makes_the_trigger_and_a_second_apply_has_nothing_to_do(shop, database, sql, postgresql_only):
    result = apply(database, everybody(shop))

    assert "tables/queue/create_trigger.sql:Sales" in result.applied
    assert [triggers(sql, name) for name in ("Sales", "Billing")] == [[("rowpost_wake_up", "O")]] * 2
    assert difference(database, everybody(shop)).is_empty
    assert apply(database, everybody(shop)).applied == ()
    assert verify(database, everybody(shop)) == []


@pytest.mark.parametrize("wake_up", [True, False])
def test_without_everybody_there_is_no_trigger(shop, database, sql, postgresql_only, wake_up):
    apply(database, everybody(shop, supervisor=SupervisorSettings(wake_up=wake_up)))

    assert triggers(sql) == []
    assert not sql.run("SELECT proname FROM pg_proc WHERE proname LIKE 'notify_inserts%'")


def test_going_back_drops_the_trigger_and_keeps_the_messages(shop, database, sql, postgresql_only):
    apply(database, everybody(shop))
    Queue("Sales", database).send(b"x")

    found = difference(database, shop.plan())
    result = apply(database, shop.plan())

    assert sorted(each.script_name for each in found.dropped) == [
        f"tables/queue/create_trigger.sql:{name}" for name in ("Billing", "Sales")
    ]
    assert sorted(result.dropped) == [f"tables/queue/create_trigger.sql:{name}" for name in ("Billing", "Sales")]
    assert (triggers(sql), Queue("Sales", database).peek()) == ([], 1)
    assert not sql.run("SELECT proname FROM pg_proc WHERE proname LIKE 'notify_inserts%'")
    assert verify(database, shop.plan()) == []
    assert difference(database, shop.plan()).is_empty


def test_by_queue_the_trigger_comes_and_goes_with_its_queue(shop, database, sql, postgresql_only):
    apply(database, everybody(shop), by_queue=True)
    made = triggers(sql)
    apply(database, shop.plan(), by_queue=True)

    assert (made, triggers(sql)) == ([("rowpost_wake_up", "O")], [])
    assert verify(database, shop.plan()) == []


def test_another_environment_of_the_database_does_not_drop_the_trigger(shop, database, sql, postgresql_only):
    other = plan(replace(shop.settings, environment="other"))
    apply(database, everybody(shop))

    result = apply(database, other)

    assert triggers(sql) == [("rowpost_wake_up", "O")]
    assert ("the trigger of the queue Sales", "the environment shop declares it") in {
        (each.subject, each.reason) for each in result.kept
    }
    assert verify(database, other) == []


def test_a_queue_that_is_no_longer_declared_keeps_its_trigger(shop, database, sql, postgresql_only):
    apply(database, everybody(shop))
    less = everybody(shop, queues=(QueueSettings("Billing"),))

    result = apply(database, less)

    assert (result.dropped, result.undeclared) == ((), ("Sales",))
    assert triggers(sql) == [("rowpost_wake_up", "O")]
    assert verify(database, less) == []


def test_an_external_queue_gets_no_trigger(shop, database, sql, postgresql_only):
    sql.run('CREATE TABLE "Theirs" (id uuid, expires timestamp, headers text, body bytea, seq bigserial)')

    apply(database, everybody(shop, queues=(QueueSettings("Theirs", "external"),)))

    assert triggers(sql, "Theirs") == []


def test_a_forgotten_and_a_dropped_queue_leave_nothing_of_the_trigger(shop, database, sql, postgresql_only):
    apply(database, everybody(shop))

    forget_queue(database, "Sales")
    drop_queue(database, "Billing")

    assert triggers(sql) == []
    assert not sql.run("SELECT proname FROM pg_proc WHERE proname LIKE 'notify_inserts%'")
    assert not [row for row in database.call("list_features") if row.feature.startswith("wake_up:")]
    assert [each.kind for each in verify(database, shop.plan()) if each.kind == "unmanaged_object"] == []


def test_going_back_to_this_release_keeps_the_trigger(shop, database, sql, postgresql_only, folder):
    apply(database, everybody(shop))

    go_back(database, Release(folder, ""), "shop", undo=())

    assert triggers(sql) == [("rowpost_wake_up", "O")]
    assert verify(database, everybody(shop)) == []


# ------------------------------------------------------------------ what was done by hand
@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ('DROP TRIGGER rowpost_wake_up ON "Sales"', "object_gone"),
        ('DROP FUNCTION rowpost."notify_inserts:Sales" CASCADE', "object_gone"),
        ('ALTER TABLE "Sales" DISABLE TRIGGER rowpost_wake_up', "trigger_changed"),
        ('ALTER TABLE "Sales" DISABLE TRIGGER USER', "trigger_changed"),
        ('ALTER FUNCTION rowpost."notify_inserts:Sales" RESET search_path', "trigger_changed"),
        ('CREATE OR REPLACE TRIGGER rowpost_wake_up AFTER DELETE ON "Sales" FOR EACH STATEMENT EXECUTE FUNCTION rowpost."notify_inserts:Sales"()', "trigger_changed"),
    ],
)  # fmt: skip
def test_verify_finds_a_trigger_that_was_changed_by_hand_and_apply_makes_it_again(
    shop, database, sql, postgresql_only, statement, kind
):
    apply(database, everybody(shop))
    before = sql.run(
        "SELECT pg_get_triggerdef(oid), tgenabled::text FROM pg_trigger WHERE tgname = 'rowpost_wake_up' ORDER BY 1"
    )
    sql.run(statement)

    found = verify(database, everybody(shop))
    apply(database, everybody(shop))

    assert [(each.kind, each.subject, each.remedy) for each in found] == [
        (kind, 'rowpost."notify_inserts:Sales"', "rowpost apply")
    ]
    assert (
        sql.run(
            "SELECT pg_get_triggerdef(oid), tgenabled::text FROM pg_trigger WHERE tgname = 'rowpost_wake_up' ORDER BY 1"
        )
        == before
    )
    assert verify(database, everybody(shop)) == []


def test_a_trigger_that_was_dropped_by_hand_can_be_taken_back(shop, database, sql, postgresql_only):
    apply(database, everybody(shop))
    sql.run('DROP TRIGGER rowpost_wake_up ON "Sales"')

    apply(database, shop.plan())

    assert verify(database, shop.plan()) == []


# ------------------------------------------------------------------ what plan says
def test_plan_says_what_is_made_for_which_purpose_and_what_waits(shop, database, postgresql_only):
    apply(database, shop.plan())

    found = review(difference(database, everybody(shop)), "postgresql", read_definition(database))

    assert (
        "wake_up: 2 objects, to notify waiting supervisors of every INSERT into a queue, of .NET endpoints too."
        in found.summary
    )
    assert "Locks: SHARE ROW EXCLUSIVE on the table while its trigger is made." in found.summary
    assert found.pauses


def test_plan_says_what_waits_while_the_trigger_is_dropped(shop, database, postgresql_only):
    apply(database, everybody(shop))

    found = review(difference(database, shop.plan()), "postgresql", read_definition(database))

    assert found.summary[0] == "2 no longer declared."
    assert "Locks: ACCESS EXCLUSIVE on the table while its trigger is dropped." in found.summary
    assert found.pauses


def test_on_sql_server_a_plan_with_it_is_refused():
    settings = Settings(
        environment="production", engine="sqlserver", queues=(QueueSettings("Sales"),), supervisor=EVERYBODY
    )

    with pytest.raises(DeployError) as caught:
        plan(settings)

    assert str(caught.value) == (
        "The environment production has `wake_up: everybody`, which only PostgreSQL can do, because SQL Server has no NOTIFY: write "
        "`wake_up: true`, and a shorter `peek_delay` at the workers of queues whose messages must not wait."
    )


# ------------------------------------------------------------------ who is notified
@pytest.fixture
def sender(shop, login, sql, database, postgresql_only):
    """The connection of a login that may insert into the queue's table, and nothing else."""
    apply(database, everybody(shop))
    name = login.make("dotnet")
    sql.run(f'GRANT INSERT ON "Sales" TO {name}')
    connection = login.open(name)
    yield connection.driver_connection
    connection.close()


def test_an_insert_of_a_login_with_insert_only_notifies_a_waiting_supervisor(sender, database, heard):
    wait_for_messages(database)

    sender.execute(INSERT.format("Sales"))

    assert heard() == ["Sales"]


def test_an_insert_notifies_nobody_while_nobody_waits(sender, database, heard):
    wait_for_messages(database)
    database.call("watch_queue", "Sales", count=100)  # takes the request back

    sender.execute(INSERT.format("Sales"))

    assert (heard(), Queue("Sales", database).peek()) == ([], 1)


def test_an_insert_that_is_rolled_back_notifies_nobody(sender, database, heard):
    wait_for_messages(database)

    sender.execute("BEGIN")
    sender.execute(INSERT.format("Sales"))
    sender.execute("ROLLBACK")

    assert heard() == []


def test_objects_of_the_senders_own_search_path_are_not_used(sender, sql, database, heard):
    """A sender's own function must not run with the rights of the trigger's owner."""
    sql.run("CREATE SCHEMA mine")
    sql.run("GRANT USAGE ON SCHEMA mine TO PUBLIC")
    sql.run(
        "CREATE FUNCTION mine.pg_notify(text, text) RETURNS void LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''not mine''; END'"
    )
    sender.execute("SET search_path = mine, public, pg_catalog")
    wait_for_messages(database)

    sender.execute(INSERT.format("Sales"))

    assert heard() == ["Sales"]


@pytest.mark.parametrize("send", [
    lambda queue: queue.send(b"x"),
    lambda queue: queue.send_many([OutgoingMessage(b"x")] * 10),
])  # fmt: skip
def test_rowposts_own_sends_notify_once(sender, database, heard, send):
    wait_for_messages(database)

    send(Queue("Sales", database))

    assert heard() == ["Sales"]


def test_the_mover_notifies_once_of_what_it_moves_and_not_at_all_of_nothing(sender, database, heard):
    wait_for_messages(database)
    move_due(database, "Sales")
    nothing = heard()
    database.call(
        "delay_message",
        "Sales",
        headers="{}",
        body=b"x",
        delay_ms=int(timedelta(seconds=-1) / timedelta(milliseconds=1)),
    )
    move_due(database, "Sales")

    assert (nothing, heard()) == ([], ["Sales"])


def test_a_sender_that_prepares_its_transaction_switches_the_notification_off(sender, database, heard):
    """PREPARE TRANSACTION refuses a transaction that has notified."""
    wait_for_messages(database)
    sender.execute("SET rowpost.wake_up = off")

    sender.execute(INSERT.format("Sales"))

    assert heard() == []

"""Counting failed attempts, on every engine that can be reached."""

from uuid import uuid4


def test_attempts_count_up_across_connections(database, open_database):
    row_id, other = uuid4(), open_database()

    counts = [d.call("record_failure", queue_key="Sales", id=row_id)[0][0] for d in (database, other, database)]

    assert counts == [1, 2, 3]


def test_a_forgotten_failure_counts_from_one_again(database):
    row_id = uuid4()
    database.call("record_failure", queue_key="Sales", id=row_id)

    database.call("forget_failure", queue_key="Sales", id=row_id)

    assert database.call("record_failure", queue_key="Sales", id=row_id) == [(1,)]


def test_messages_and_queues_are_counted_apart(database):
    row_id = uuid4()
    database.call("record_failure", queue_key="Sales", id=row_id)

    assert database.call("record_failure", queue_key="Billing", id=row_id) == [(1,)]
    assert database.call("record_failure", queue_key="Sales", id=uuid4()) == [(1,)]


def test_a_rolled_back_count_never_was(database):
    row_id = uuid4()
    database.begin()
    database.call("record_failure", queue_key="Sales", id=row_id)
    database.rollback()

    assert database.call("record_failure", queue_key="Sales", id=row_id) == [(1,)]


def test_counts_nobody_touched_for_a_week_are_dropped_by_and_by(database, sql):
    stale = uuid4()
    database.call("record_failure", queue_key="Sales", id=stale)
    eight_days_ago = (
        "now() AT TIME ZONE 'UTC' - interval '8 days'"
        if database.engine == "postgresql"
        else "DATEADD(DAY, -8, SYSUTCDATETIME())"
    )
    sql.run(f"UPDATE rowpost.failure SET failed_at = {eight_days_ago} WHERE id = ?", stale)

    database.call("record_failure", queue_key="Sales", id=uuid4())

    assert sql.value("SELECT COUNT(*) FROM rowpost.failure WHERE id = ?", stale) == 0

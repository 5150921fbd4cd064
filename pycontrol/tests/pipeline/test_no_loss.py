"""No message is lost when an operation fails after a handler has run, whichever operation, mode and error it is."""

import pytest

from rowpost.database.connection import connect_url
from rowpost.errors import DatabaseError, DatabaseUnavailable, LockTimeout, LoginRefused
from rowpost.outbox.declaration import Outbox
from tests.support import desk as desks
from tests.support.desk import Desk
from tests.support.faults import driver_errors
from tests.support.probe import probe_for


@pytest.fixture
def desk(queue, sql, target):
    sql.run("DROP TABLE IF EXISTS business")
    sql.run("CREATE TABLE business (number integer NOT NULL)")
    made = Desk(queue, sql, target)
    made.empty()
    return made


#: the errors, and how many operations in a row they make fail; the first two are tried in every mode
ERRORS = {
    "lock timeout": (LockTimeout, 1),
    "our defect": (RuntimeError, 1),
    "disk full": (DatabaseError, 1),
    "login refused": (LoginRefused, 1),
    "unavailable": (DatabaseUnavailable, 1),
    "disk full for a time": (DatabaseError, 3),
}


def errors(count=2):
    return pytest.mark.parametrize(("error", "burst"), list(ERRORS.values())[:count], ids=list(ERRORS)[:count])


def every_operation(desk, make_handler, error, burst, **how):
    """Let each operation fail in turn by an error of rowpost's, and compare the ledger."""
    desks.every_operation(desk, make_handler, lambda _: error("injected"), burst, reported=error.__name__, **how)


@errors()
@pytest.mark.promise("failed-bookkeeping-loses-nothing")
def test_a_plain_handlers_messages_are_not_lost(desk, error, burst):
    every_operation(desk, desk.plain, error, burst, sends=False)


@errors(len(ERRORS))
@pytest.mark.promise("failed-bookkeeping-loses-nothing")
def test_an_endpoints_messages_are_not_lost(desk, error, burst, not_on_babelfish):
    if error is DatabaseUnavailable:  # the session that is said to be lost lives, and another one looks for its message
        not_on_babelfish("accepts READPAST and ignores it: the search would wait for the session")
    every_operation(desk, desk.endpoint, error, burst)


@errors()
@pytest.mark.parametrize("mode", ["receive_only", "transaction_scope"])
@pytest.mark.promise("failed-bookkeeping-loses-nothing")
def test_the_messages_of_another_mode_are_not_lost(desk, error, burst, mode):
    resends = mode == "receive_only"  # it sends before it removes the message
    every_operation(desk, lambda faults: desk.endpoint(faults, transaction_mode=mode), error, burst, resends=resends)


@errors()
@pytest.mark.promise("failed-bookkeeping-loses-nothing")
def test_the_messages_of_a_batch_are_not_lost(desk, error, burst):
    desk.batch = 3
    every_operation(desk, desk.endpoint, error, burst)


@errors()
@pytest.mark.parametrize("pessimistic", [False, True])
@pytest.mark.promise("failed-bookkeeping-loses-nothing")
def test_the_messages_of_an_outbox_are_not_lost(desk, error, burst, business_url, target, pessimistic):
    def make(faults):
        for table in ("rowpost.outbox", "rowpost.outbox_operations"):
            desk.business.run(f"DELETE FROM {table}")
        outbox = Outbox("business", pessimistic, business_url)
        return desk.endpoint(faults, transaction_mode="receive_only", outbox=outbox)

    with connect_url(target.settings.engine, business_url) as database:
        desk.business = probe_for(database, babelfish=target.babelfish)
        every_operation(desk, make, error, burst)


#: as many as the drivers have for each engine; two of them in every run, all of them in `make test/faults`
DRIVERS = ("connection lost", "serialisation failure")


@pytest.mark.parametrize("kind", DRIVERS)
@pytest.mark.parametrize("burst", [1, 3])
@pytest.mark.promise("failed-bookkeeping-loses-nothing")
def test_an_endpoints_messages_are_not_lost_by_an_error_of_the_driver(desk, kind, burst):
    desks.every_operation(desk, desk.endpoint, driver_errors(desk.sql.database.engine)[kind], burst)

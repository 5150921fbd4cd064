"""Every procedure of the contract, called by every kind of login for a queue of its own and for somebody else's.

The expected answer of each cell follows from the contract, so that a procedure that is added is tested without a line here. A procedure
that the role rowpost_endpoint may execute says in the contract for which queue it operations (`acts_for`), or why it needs none (`open`).
"""

from dataclasses import replace

import pytest

from rowpost.database.contract import load_contract
from rowpost.deploy.apply import apply
from rowpost.deploy.entries import describe_queue
from rowpost.deploy.grants import grant, grant_role, grant_tables
from rowpost.deploy.plan import plan
from rowpost.endpoint.endpoint import MODES, Endpoint
from rowpost.errors import PermissionDenied, QueueNotGranted, RowpostError
from rowpost.pipeline.pipeline import Pipeline
from rowpost.recoverability.outcome import Kind
from rowpost.recoverability.policy import Recoverability
from rowpost.settings.environment import QueueSettings
from rowpost.transport.queue import Queue
from tests.support.logins import logins
from tests.support.procedure_calls import CALLS, ID, SAGA

OWN, FOREIGN = "MatrixOwn", "MatrixForeign"
SAGAS = {OWN: replace(SAGA, name="MatrixOwnSaga"), FOREIGN: replace(SAGA, name="MatrixForeignSaga")}
#: run as their caller, who needs the right of the queue's own procedure, or on the table itself
TO_A_TABLE = {"send_unregistered", "send_to_subscriber"}
#: for logins that may receive from any queue
OF_RECEIVERS = {"report_supervisor"}
AS_CALLER = {"send_message": "send", "receive_messages": "receive", **dict.fromkeys(TO_A_TABLE)}
KINDS = ("nobody", "endpoint", "sender", "reader", "body_reader", "operator")
CELLS = [
    (procedure, queue)
    for procedure in load_contract().procedures
    for queue in (
        (OWN, FOREIGN)
        if procedure.scope != "database" or procedure.acts_for or procedure.name in {*AS_CALLER, "unsubscribe"}
        else (None,)
    )
]


@pytest.fixture(scope="module")
def deployed(target):
    """Two queues and two sagas, and a subscription of each queue."""
    with target.connect() as database:
        apply(
            database,
            plan(
                replace(
                    target.settings,
                    queues=tuple(QueueSettings(name, lease=True) for name in (OWN, FOREIGN)),
                    sagas=tuple(SAGAS.values()),
                )
            ),
        )
        for name in (OWN, FOREIGN):
            database.call_atomically("subscribe", endpoint=f"{name}.Reader", topic="Matrix", queue_address=name)


@pytest.fixture
def login(target, sql, deployed):
    """Makes one login of each kind."""
    with logins(sql, target.url) as made:

        def make(kind):
            name = made.make(kind)
            if kind in ("endpoint", "sender"):
                received = [OWN] if kind == "endpoint" else []
                grant(
                    sql.database,
                    name,
                    receive_from=received,
                    send_to=[OWN],
                    sagas=[SAGAS[OWN].name] if received else [],
                    tables=target.babelfish,
                )
                if target.babelfish and received:  # it has no ownership chaining
                    table = describe_queue(QueueSettings(OWN), "sqlserver").placeholders(sql.database.dialect)
                    sql.run(grant_tables(sql.database.dialect, table["leased_table"], name))
            elif kind != "nobody":
                sql.run(grant_role(sql.database.dialect, f"rowpost_{kind}", name))
            return made.open(name)

        yield make


class _UndoneError(Exception):
    pass


def arguments_for(procedure, queue, target):
    """The call of a procedure for one of the two queues."""
    arguments = dict(CALLS[procedure.scope][procedure.name])
    if queue is None:
        return arguments
    if procedure.acts_for:
        arguments[procedure.acts_for] = queue
        if procedure.name == "take_subscription":  # of a queue to which the caller may send
            arguments["queue_address"] = queue
    elif procedure.name == "unsubscribe":
        arguments |= {"endpoint": f"{queue}.Reader", "topic": "Matrix"}
    elif "queue_name" in arguments:
        arguments["queue_name"] = queue
    if procedure.name in TO_A_TABLE:
        arguments |= {"table_name": queue, "schema_name": target.settings.default_schema}
    if arguments.get("row_version") == "the first":
        arguments["row_version"] = 1
    if arguments.get("token") == "of the lease":
        arguments["token"] = ID
    return arguments


def is_refused(database, procedure, queue, target):
    """Return the error that refuses the call for want of a right, or None. Whatever the call does is undone."""
    name = {"queue": queue, "saga": SAGAS[queue].name if queue else None}.get(procedure.scope)
    try:
        with database.transaction():
            database.call(procedure.name, name, **arguments_for(procedure, queue, target))
            raise _UndoneError
    except PermissionDenied as error:
        return error
    except (_UndoneError, RowpostError):
        return None


def is_allowed(kind, procedure, queue):
    """Whether the contract lets a login of this kind call a procedure for this queue."""
    if kind in ("operator", "reader", "body_reader"):
        return kind in procedure.roles and procedure.name not in TO_A_TABLE
    sides = {"endpoint": ("receive", "send"), "sender": ("send",), "nobody": ()}[kind]
    side = procedure.side
    if procedure.scope == "database":
        if "endpoint" not in procedure.roles or kind == "nobody":
            return False
        if queue is None:
            return kind == "endpoint" or procedure.name not in OF_RECEIVERS
        side = AS_CALLER.get(procedure.name, "receive")
    return queue == OWN and side in sides


def test_every_procedure_that_endpoints_may_call_acts_for_a_queue_or_says_why_it_needs_none():
    for procedure in load_contract().procedures:
        is_open = procedure.scope == "database" and "endpoint" in procedure.roles
        assert (bool(procedure.acts_for) + bool(procedure.open)) == is_open, procedure.name
        if procedure.acts_for:
            assert procedure.acts_for in [parameter.name for parameter in procedure.parameters]
            assert 24 in procedure.errors


def test_nothing_that_a_reader_may_call_returns_bodies_or_states_and_a_body_reader_may_call_it_too():
    for procedure in load_contract().procedures:
        if "reader" in procedure.roles:
            shown = {column.name for column in procedure.result if column.type == "binary"} | (
                {"data", "operations"} & {column.name for column in procedure.result}
            )
            assert (shown, "body_reader" in procedure.roles) == (set(), True), procedure.name


@pytest.mark.promise("execute-rights-suffice")
@pytest.mark.parametrize("kind", KINDS)
def test_a_login_reaches_its_own_queue_and_no_other(target, login, kind):
    wrong = []

    with login(kind) as database:
        for procedure, queue in CELLS:
            refused, allowed = is_refused(database, procedure, queue, target), is_allowed(kind, procedure, queue)
            if allowed != (refused is None) and not is_excused(target, kind, procedure):
                wrong.append((procedure.scope, procedure.name, queue, "allowed" if refused is None else str(refused)))

    assert wrong == []


def is_excused(target, kind, procedure):
    """Whether Babelfish cannot show the cell: without ownership chaining, logins have rights on tables there."""
    return target.babelfish and procedure.name in TO_A_TABLE


# ------------------------------------------------------------------ what the refusals prevent
def test_an_endpoint_cannot_take_the_events_of_another(target, login, sql):
    """It may neither subscribe in another's name, nor move another's subscription to its own queue, nor end it."""
    before = sorted(map(tuple, sql.database.call("list_subscriptions")))

    with login("endpoint") as database:
        for call in (
            lambda: database.call_atomically("subscribe", endpoint=FOREIGN, topic="Other", queue_address=OWN),
            lambda: database.call_atomically(
                "subscribe", endpoint=f"{FOREIGN}.Reader", topic="Matrix", queue_address=OWN
            ),
            lambda: database.call_atomically("subscribe", endpoint="Mine", topic="Matrix", queue_address="Nowhere"),
            lambda: database.call_atomically("unsubscribe", endpoint=f"{FOREIGN}.Reader", topic="Matrix"),
        ):
            with pytest.raises(QueueNotGranted, match="rowpost queue grant"):
                call()
        database.call_atomically("subscribe", endpoint="Mine", topic="Matrix", queue_address=OWN)
        database.call_atomically("unsubscribe", endpoint="Mine", topic="Matrix")

    assert sorted(map(tuple, sql.database.call("list_subscriptions"))) == before


def test_a_decision_of_another_queue_stays(target, login, sql):
    sql.run("DELETE FROM rowpost.decision")
    for queue in (OWN, FOREIGN):
        sql.database.call_atomically(
            "record_decision", queue_key=queue, transaction_id=f"tx-{queue}", participants="[]"
        )

    with login("endpoint") as database:
        for queue in (OWN, FOREIGN):
            database.call_atomically("forget_decision", transaction_id=f"tx-{queue}")

    assert [row.transaction_id for row in sql.database.call("list_decisions")] == [f"tx-{FOREIGN}"]
    sql.run("DELETE FROM rowpost.decision")


def test_what_one_login_staged_another_neither_sends_nor_drops_and_an_operator_may(target, login, sql):
    sql.run("DELETE FROM rowpost.staged_message")
    sql.run("DELETE FROM rowpost.ledger")
    sql.run("DELETE FROM rowpost.job")
    sql.database.call_atomically("begin_job", **CALLS["database"]["begin_job"])
    sql.database.call_atomically("stage_messages", **CALLS["database"]["stage_messages"])
    sql.database.call_atomically("claim_ledger", **CALLS["database"]["claim_ledger"])

    with login("endpoint") as database:
        with pytest.raises(RowpostError, match="by another login"):
            database.call_atomically("claim_ledger", job_key="job-1", part=1, parts=2)
        database.call_atomically("settle_ledger", job_key="job-1", part=0, messages=9, digest="forged")
        for procedure in ("begin_job", "seal_job"):
            with pytest.raises(RowpostError, match="login"):
                database.call_atomically(procedure, **CALLS["database"][procedure])
        ended = database.call_atomically("end_job", job_key="job-1", run="run-1", done=True)[0].ended
        seen = [database.call_atomically(each, **CALLS["database"][each]) for each in ("list_jobs", "forget_job")]
        sent = database.call_atomically("send_staged", OWN, job_key="job-1", attempts=["run-1/0"])
        dropped = [database.call_atomically("drop_staged", job_key=key) for key in ("job-1", None)]
    assert (ended, seen) == (False, [[], []])
    assert (sent[0].sent, [rows[0].dropped for rows in dropped]) == (0, [0, 0])
    assert sql.value("SELECT COUNT(*) FROM rowpost.ledger WHERE parts = 2 AND messages IS NULL") == 1

    with login("operator") as database:
        assert len(database.call_atomically("list_jobs", count=10)) == 1
        assert database.call_atomically("drop_staged", job_key="job-1")[0].dropped == 1
        assert [row.state for row in database.call_atomically("forget_job", job_key="job-1")] == ["running"]


@pytest.mark.parametrize("mode", MODES)
def test_a_worker_replies_only_where_its_own_login_may_send(target, sql, deployed, mode):
    """A sender chooses the reply address. What the worker may not reach it does not get, and the reason is in the error queue."""
    for name in (OWN, FOREIGN, "error"):
        sql.empty(name)
    endpoint = Endpoint(OWN, transaction_mode=mode, recoverability=Recoverability(0, 0))
    endpoint.handles("Ask", bytes)(
        lambda message, context: context.reply(b"secret", headers={"NServiceBus.EnclosedMessageTypes": "Told"})
    )
    asked = {"NServiceBus.EnclosedMessageTypes": "Ask", "NServiceBus.ReplyToAddress": FOREIGN}
    Queue(OWN, sql.database).send(b"", asked)

    with logins(sql, target.url) as made:
        name = made.make("worker")
        grant(sql.database, name, receive_from=[OWN], send_to=["error"], tables=target.babelfish)
        with made.open(name) as database:
            outcome = Pipeline(database, OWN, endpoint, reconnect=lambda: made.open(name)).process_one()

    (failed,) = Queue("error", sql.database).browse(10)
    assert (outcome.kind, Queue(FOREIGN, sql.database).peek(), Queue(OWN, sql.database).peek()) == (
        Kind.MOVED_TO_ERROR,
        0,
        0,
    )
    assert "PermissionDenied" in failed.headers["NServiceBus.ExceptionInfo.ExceptionType"]
    sql.empty("error")

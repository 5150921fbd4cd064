"""Endpoints for tests of recoverability and delayed delivery, for this process and for worker processes.

The handlers write rows into the table `handled`. `note` writes in the transaction of the message; `note_call` writes on a
second connection, so that the row survives a failure and a test can count the calls.
"""

import os
import signal
import time
from datetime import timedelta

from rowpost.endpoint.endpoint import Endpoint
from rowpost.recoverability.discard import Discard
from rowpost.recoverability.policy import Decision, Recoverability

TYPE = "Shop.Messages.PlaceOrder"
SOON = timedelta(milliseconds=50)


def _mark(connection) -> str:
    return "%s" if type(connection).__module__.startswith("psycopg") else "?"


def note(context, what: str = "") -> None:
    """Insert a row into `handled`, in the transaction of the message."""
    mark = _mark(context.connection)
    body = what.encode() or context.body
    context.connection.execute(
        f"INSERT INTO handled (id, body) VALUES ({mark}, {mark})", (str(context.message_id), body)
    )


def note_call(context) -> None:
    """Insert a row into `handled` on a second connection. It has the id of the queue's row, and survives a rollback."""
    beside = context.database.second_connection().driver_connection
    mark = _mark(beside)
    row = str(context.incoming.id)
    beside.execute(f"INSERT INTO handled (id, body) VALUES ({mark}, {mark})", (row, str(time.time()).encode()))


def endpoint(handler, **options) -> Endpoint:
    """Return an endpoint with one handler of raw bytes. The settings give the name of its queue."""
    made = Endpoint("Recovery", **options)
    made.handles(TYPE)(handler)
    return made


def _fail(body, context):
    note_call(context)
    context.headers["Added.ByHandler"] = "must not be seen"
    context.incoming.headers["Added.ByHandler"] = "must not be seen"
    try:
        raise KeyError("the order's number")
    except KeyError as error:
        raise ValueError(f"no such order: {body.decode()}") from error


def _note(body, context):
    note(context)


def _hang(body, context):
    """Hang on messages that begin with `bad`."""
    note_call(context)
    if body.startswith(b"bad"):
        time.sleep(60)
    note(context, "done")


def _die(body, context):
    """Kill this process on messages that begin with `bad`."""
    note_call(context)
    if body.startswith(b"bad"):
        os.kill(os.getpid(), signal.SIGKILL)
    note(context, "done")


def _leave(body, context):
    """End the process without an error."""
    os._exit(0)


def _exhaust(body, context):
    """Allocate memory until the limit is reached."""
    import resource

    note_call(context)
    resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
    hoard = []
    while True:
        hoard.append(bytearray(2**26))


def _fail_until_file(body, context):
    """Fail until the file exists whose name is the body."""
    note_call(context)
    if not os.path.exists(body.decode()):
        raise ValueError("not yet")


def _policy_of_types(failure):
    """Retry a KeyError twice with a short delay, and move every other error to the error queue."""
    return SOON if isinstance(failure.error, KeyError) and failure.delayed < 2 else Decision.ERROR


def _raise_by_body(body, context):
    note_call(context)
    raise KeyError("key") if body == b"key" else ValueError("value")


def _broken_policy(failure):
    if failure.attempts == 1:
        raise RuntimeError("the policy is broken")
    return Decision.ERROR


def _discard(body, context):
    context.discard("nobody sells it any more")


defaults = endpoint(_fail, recoverability=Recoverability(delay_increase=SOON))
two_by_two = endpoint(_fail, recoverability=Recoverability(1, 1, SOON))
once = endpoint(_fail, recoverability=Recoverability(0, 0))
giving_up = endpoint(_fail, recoverability=Recoverability(policy=lambda failure: Discard("nobody needs it")))
no_delays = endpoint(_fail, recoverability=Recoverability(2, 0))
noting = endpoint(_note)
typed = Endpoint("Recovery")
typed.handles(TYPE, dict)(lambda message, context: note(context))
hopeless = endpoint(_fail, recoverability=Recoverability(unrecoverable=(ValueError,)))
by_policy = endpoint(_raise_by_body, recoverability=Recoverability(policy=_policy_of_types))
broken_policy = endpoint(_raise_by_body, recoverability=Recoverability(policy=_broken_policy))
hanging = endpoint(_hang, time_limit=timedelta(milliseconds=300), recoverability=Recoverability(1, 0))
dying = endpoint(_die, recoverability=Recoverability(1, 0))
dying_later = endpoint(_die, recoverability=Recoverability(0, 1, SOON))
leaving = endpoint(_leave, recoverability=Recoverability(1, 0))
exhausting = endpoint(_exhaust, recoverability=Recoverability(1, 0))
flaky = endpoint(_fail_until_file, recoverability=Recoverability(1000, 0))
none_mode = endpoint(_fail, transaction_mode="none")
discarding = Endpoint("Recovery")
discarding.handles("Shop.Old", bytes)(_discard)

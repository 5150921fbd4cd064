"""Handlers for tests of workers, controlled by the bodies of messages. Worker processes import this module.

Each writes into the table `handled` on the guarded connection, so that the rows that a test counts were committed together
with the message.
"""

import logging
import os
import signal
import sys
import threading
import time
from contextlib import redirect_stderr
from datetime import timedelta
from pathlib import Path

from rowpost.endpoint.endpoint import Endpoint
from rowpost.recoverability.policy import Recoverability
from rowpost.transport.queue import Queue
from tests.support.unregistered import send_unregistered


def _mark(connection) -> str:
    return "%s" if type(connection).__module__.startswith("psycopg") else "?"


def _note(message, connection) -> None:
    mark = _mark(connection)
    connection.execute(f"INSERT INTO handled (id, body) VALUES ({mark}, {mark})", (str(message.id), message.body))


def note(message, connection):
    """Record the message's id."""
    _note(message, connection)


def note_process(message, connection):
    """Record the numbers of the process and of the session."""
    call = "pg_backend_pid()" if _mark(connection) == "%s" else "@@SPID"
    (session,) = connection.execute(f"SELECT {call}").fetchone()
    mark = _mark(connection)
    connection.execute(
        f"INSERT INTO handled (id, body) VALUES ({mark}, {mark})",
        (str(message.id), f"{os.getpid()} {session}".encode()),
    )


def slow(message, connection):
    """Take as many seconds as the body says."""
    _note(message, connection)
    time.sleep(float(message.body))


def slow_then_note(message, connection):
    """Work for five milliseconds."""
    time.sleep(0.005)
    _note(message, connection)


def wait_for_file(message, connection):
    """Create the file <body>.<pid>, and continue when the file <body> exists."""
    _note(message, connection)
    path = message.body.decode()
    Path(f"{path}.{os.getpid()}").touch()
    end = time.monotonic() + 30.0
    while not os.path.exists(path) and time.monotonic() < end:
        time.sleep(0.01)


def fail(message, connection):
    """Write, change the headers, then raise."""
    _note(message, connection)
    message.headers["Added.ByHandler"] = "must not be seen"
    try:
        raise KeyError("the order's number")
    except KeyError as error:
        raise ValueError(f"no such order: {message.body.decode()}") from error


def fail_bad(message, connection):
    """Raise for messages that begin with `bad`; record the others."""
    _note(message, connection)
    if message.body.startswith(b"bad"):
        raise ValueError("bad order")


def fail_once(message, connection):
    """Raise and create the file that the body names, if it does not exist."""
    path = Path(message.body.decode())
    if not path.exists():
        path.touch()
        raise ValueError("not yet")
    _note(message, connection)


def exit_process(message, connection):
    """A handler that calls sys.exit."""
    raise SystemExit("leaving")


def reply(message, connection):
    """Send to the message's reply address."""
    _note(message, connection)
    send_unregistered(connection, message.reply_to, b"reply")


def forward(message, connection):
    """Send to the queue that the body names, then record the message."""
    Queue(message.body.decode(), connection).send(b"forwarded")
    _note(message, connection)


def forward_then_fail(message, connection):
    """Send and write, then raise."""
    forward(message, connection)
    raise ValueError("after all")


def forward_then_die(message, connection):
    """Send and write, then kill the process before the commit, unless the file exists."""
    name, path = message.body.decode().split("|")
    Queue(name, connection).send(b"forwarded")
    _note(message, connection)
    if not os.path.exists(path):
        Path(path).touch()
        os.kill(os.getpid(), signal.SIGKILL)


def die(message, connection):
    """Kill its own process on messages that begin with `bad`."""
    if message.body.startswith(b"bad"):
        os.kill(os.getpid(), signal.SIGKILL)
    _note(message, connection)


def commit(message, connection):
    _note(message, connection)
    connection.execute("COMMIT")


def roll_back(message, connection):
    _note(message, connection)
    connection.execute("ROLLBACK")


def commit_then_fail(message, connection):
    _note(message, connection)
    connection.execute("COMMIT")
    raise ValueError("after the commit")


def close(message, connection):
    _note(message, connection)
    connection.close()


def swallow(message, connection):
    """Ignore an error of the database that aborted the transaction."""
    _note(message, connection)
    try:
        connection.execute("INSERT INTO no_such_table VALUES (1)")
    except Exception:
        return


def cross(message, connection):
    """Update two rows in the order that the body gives; two of these handlers deadlock."""
    first, second = (int(digit) for digit in message.body.decode())
    mark = _mark(connection)
    connection.execute(f"UPDATE account SET amount = amount + 1 WHERE id = {mark}", (first,))
    time.sleep(0.3)
    connection.execute(f"UPDATE account SET amount = amount + 1 WHERE id = {mark}", (second,))
    _note(message, connection)


def log(message, connection):
    """Log at three levels, in a thread and in a forked process too, and with the stack of an error. The body names a file for stderr."""
    _note(message, connection)
    with Path(message.body.decode()).open("a") as file, redirect_stderr(file):
        _log_at_all_levels()


def _log_at_all_levels():
    logger = logging.getLogger("shop.orders")
    logger.debug("not sent")
    logger.info("order %s", 17, extra={"order_id": 17, "customer": "Ada", "tags": ["a"]})
    thread = threading.Thread(target=logger.warning, args=("in a thread",))
    thread.start()
    thread.join()
    child = os.fork()
    if child == 0:
        logger.error("in a forked process %s", "x" * 100_000)
        sys.stderr.flush()
        os._exit(0)
    os.waitpid(child, 0)
    try:
        raise KeyError("the order's number")
    except KeyError:
        logger.exception("caught")
    logger.info("%d", "cannot be formatted")
    logger.info("long %s", "x" * 100_000)


def log_many(message, connection):
    """Log from two threads at once, more than a pipe holds or takes in one piece."""
    _note(message, connection)
    threads = [threading.Thread(target=_log_lines, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _log_lines(name):
    for number in range(200):
        logging.getLogger(name).info("%d %s", number, "é" * 16_000)


def square(number):
    return number * number


def compute_in_processes(message, connection):
    """Start processes in the way that the body names, and use what they return."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import Manager, Pool, Process, get_context

    match message.body.decode():
        case "process":
            process = Process(target=square, args=(3,))
            process.start()
            process.join()
            assert process.exitcode == 0
        case "pool":
            with Pool(2) as pool:
                assert pool.map(square, [1, 2, 3]) == [1, 4, 9]
        case "spawn_pool":
            with get_context("spawn").Pool(1) as pool:
                assert pool.map(square, [3]) == [9]
        case "executor":
            with ProcessPoolExecutor(2) as executor:
                assert list(executor.map(square, [1, 2, 3])) == [1, 4, 9]
        case "manager":
            with Manager() as manager:
                assert dict(manager.dict({"a": 1})) == {"a": 1}
    _note(message, connection)


def _wait_as_started(path):
    Path(f"{path}.{os.getpid()}").touch()
    time.sleep(300)


def wait_in_processes(message, connection):
    """Start two processes in the way that the body names; each creates the file of its process id, and does not end."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import Process

    how, path = message.body.decode().split("|")
    if how == "executor":
        with ProcessPoolExecutor(2) as executor:
            list(executor.map(_wait_as_started, [path, path]))
    processes = [Process(target=_wait_as_started, args=(path,)) for _ in range(2)]
    for process in processes:
        process.start()
    processes[0].join()


def clean_up(message, connection):
    """Wait as `wait_for_file`, and create the file <body>-cleaned at the end, however it comes."""
    try:
        wait_for_file(message, connection)
    finally:
        Path(f"{message.body.decode()}-cleaned").touch()


def resist(message, connection):
    """Wait as `wait_for_file`. If it is interrupted, create the file <body>-resisted and wait again."""
    try:
        wait_for_file(message, connection)
    except KeyboardInterrupt:
        Path(f"{message.body.decode()}-resisted").touch()
        time.sleep(300)


def sleep_in_database(message, connection):
    """Create the file <body>.<pid>, and wait for a statement of PostgreSQL."""
    _note(message, connection)
    Path(f"{message.body.decode()}.{os.getpid()}").touch()
    connection.execute("SELECT pg_sleep(300)")


#: its handler ends the process
dying = Endpoint(
    "Dying",
    recoverability=Recoverability(immediate_retries=0, delayed_retries=0),
    error_headers=lambda headers, error: {**headers, "Shop.Seen": type(error).__name__},
)
dying.handles("Shop.Die")(lambda body, context: os._exit(1))

#: its handler waits as `wait_for_file`, and ends early if the process stops
loop = Endpoint("Loop", recoverability=Recoverability(immediate_retries=0, delayed_retries=0))


@loop.handles("Shop.Wait")
def wait_until_stopped(body, context):
    path = body.decode()
    Path(f"{path}.{os.getpid()}").touch()
    end = time.monotonic() + 30.0
    while not context.stopping and time.monotonic() < end:
        time.sleep(0.01)
    _note(context.incoming, context.connection)


#: leases its messages; a lease expires soon
leased = Endpoint(
    "Leased",
    receive="lease",
    lease_time=timedelta(seconds=1),
    recoverability=Recoverability(immediate_retries=1000, delayed_retries=0),
)
#: the same, and its first failed attempt is the last one
leased_once = Endpoint("Leased", receive="lease", lease_time=timedelta(seconds=1), recoverability=Recoverability(0, 0))


def hold_by_lease(body, context):
    """Create the file <body>.<pid>, and commit when the file <body> exists."""
    path = body.decode()
    context.progress(0.25, "waits for the file")
    Path(f"{path}.{os.getpid()}").touch()
    end = time.monotonic() + 30.0
    while not os.path.exists(path) and time.monotonic() < end:
        time.sleep(0.01)
    with context.commit() as connection:
        _note(context.incoming, connection)


def note_by_lease(body, context):
    """Work for a moment, then commit."""
    time.sleep(0.002)
    with context.commit() as connection:
        _note(context.incoming, connection)


for each in (leased, leased_once):
    each.handles("Shop.Hold")(hold_by_lease)
    each.handles("Shop.Note")(note_by_lease)

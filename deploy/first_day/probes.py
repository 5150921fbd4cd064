"""The steps about single properties of a server: long names, an owner without a login, an open registration, level 130.

Each step makes what it needs, drops it, and says so if it proved nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from deploy.first_day.ended import Failed, NotPossible, ProvedNothing
from deploy.first_day.scratch import PROGRAM, Place, drop, query, with_parts
from deploy.first_day.server import CLUSTERED, LONG, SECOND, deployed, plan_of

from rowpost.database.connection import Connection, connect_url
from rowpost.deploy.apply import apply
from rowpost.deploy.grants import grant
from rowpost.deploy.verify import verify
from rowpost.errors import LockTimeout, RowpostError
from rowpost.transport.queue import Queue

__all__ = ["level", "long_name", "owner", "registration"]

LEVEL = 130
LOCK_TIMEOUT_MS = 2000
TOPIC = "FirstDay.Happened"
#: what an endpoint and an operator do, with a queue or none: a subscription, an event, an attempt, a delay, metrics, maintenance
WORK: tuple[tuple[str, str | None, Mapping[str, object]], ...] = (
    ("subscribe", None, {"endpoint": SECOND, "topic": TOPIC, "queue_address": f"{SECOND}@[dbo]"}),
    ("publish_message", None, {"topics": [TOPIC], "headers": "{}", "body": b"event"}),
    ("delay_message", CLUSTERED, {"headers": "{}", "body": b"delayed", "delay_ms": 0}),
    ("move_due_messages", CLUSTERED, {"count": 10}),
    ("queue_metrics", SECOND, {}),
    ("maintain_queue", SECOND, {}),
    ("outbox_status", None, {}),
    ("check_queue", None, {}),
    ("has_rows", None, {"script_name": "tables/004_queue.sql"}),
)


def _work(database: Connection) -> list[str]:
    """Do `WORK`, then receive the event and send it on in one transaction. Return what was done. Raises Failed."""
    done: list[str] = []
    for procedure, queue, arguments in WORK:
        try:
            database.call(procedure, queue, **arguments)
        except RowpostError as error:
            raise Failed(f"{procedure}: {error}", done) from error
        done.append(procedure)
    with database.transaction():
        bodies = [message.body for message in Queue(SECOND, database).receive()]
        for body in bodies:
            Queue("error", database).send(body)
    if bodies != [b"event"]:
        raise Failed(f"the event was not received: {bodies}", done)
    return [*done, "received the event and sent it on"]


def long_name(place: Place) -> Sequence[str]:
    """Let an endpoint's own login receive from a queue with a long name, and count a failed attempt.

    HAS_PERMS_BY_NAME takes a sysname, and the name of the queue's procedure is longer. If the server cut it, an endpoint could do
    nothing for which it must be allowed to receive from the queue.
    """
    deployed(place)
    length = len(f"rowpost.[receive_messages:{LONG}]")
    with place.login("endpoint") as (login, url):
        with place.admin() as admin:
            grant(admin, login, receive_from=[LONG], send_to=[SECOND], tables=place.babelfish)
            Queue(LONG, admin).send(b"long")
        with connect_url("sqlserver", url, PROGRAM) as endpoint:
            received = Queue(LONG, endpoint).receive()
            if len(received) != 1:
                raise Failed(f"{len(received)} messages were received instead of one")
            if not _refused(endpoint, SECOND, received[0].id):
                raise ProvedNothing("the endpoint's login may act for every queue")
            if refused := _refused(endpoint, LONG, received[0].id):
                raise Failed(f"an endpoint may not act for a queue whose procedure has {length} characters: {refused}")
    return [f"an endpoint's login receives from a queue of {len(LONG)} characters; its procedure has {length}"]


def _refused(endpoint: Connection, queue: str, message: UUID) -> str:
    """Return why the endpoint may not count a failed attempt; an empty text: it may."""
    try:
        endpoint.call("record_failure", queue_key=queue, id=message)
    except RowpostError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def registration(place: Place) -> Sequence[str]:
    """Publish while another session has registered a queue and subscribed an endpoint, and has not committed."""
    deployed(place)
    queue = {
        **dict.fromkeys(("queue_key", "queue_name", "table_name"), "Open"),
        "schema_name": "dbo",
        "kind": "external",
    }
    with place.member() as registrar, place.member() as publisher:
        query(publisher, f"DELETE FROM dbo.[{SECOND}];")
        for procedure, _, arguments in WORK[:2]:  # compiles the plan, so that no lock of a compilation is counted
            publisher.call(procedure, None, **arguments)
        query(publisher, f"SET LOCK_TIMEOUT {LOCK_TIMEOUT_MS};")
        registrar.begin()
        try:
            registrar.call("register_queue", **queue, body_string=False, clustered=True, delayed=False)
            registrar.call("subscribe", endpoint="Open", topic="FirstDay.Other", queue_address="Open@[dbo]")
            held = [table for table in ("rowpost.queue", "dbo.SubscriptionRouting") if _is_held(publisher, table)]
            publisher.call("publish_message", topics=[TOPIC], headers="{}", body=b"beside")
        except LockTimeout as error:
            raise Failed(f"a publish waited {LOCK_TIMEOUT_MS} ms for another session's registration") from error
        finally:
            registrar.rollback()
        stored = query(publisher, f"SELECT COUNT(*) FROM dbo.[{SECOND}];")[0][0]
    if stored != 2:
        raise Failed(f"{stored} of 2 events were stored")
    if len(held) < 2:
        raise ProvedNothing(f"a scan would not wait either: the open registration locks {held or 'no row'}")
    return ["a publish waits for no open registration and for no open subscription; a scan of either table would wait"]


def _is_held(database: Connection, table: str) -> bool:
    """Return whether a read of the whole table waits for another session's row, with READ_COMMITTED_SNAPSHOT too."""
    try:
        query(database, f"SELECT COUNT(*) FROM {table} AS t WITH (READCOMMITTEDLOCK);")
    except LockTimeout:
        return True
    return False


def owner(place: Place) -> Sequence[str]:
    """Let the owner of a database have no login, as after a restore on another server: publish, metrics and maintenance must work.

    The database is detached and attached again, which needs no file of a backup. Meanwhile its owner's login is dropped.
    """
    if place.babelfish:
        raise NotPossible("Babelfish detaches no database")
    with place.login("owner") as (login, _), place.database("owner") as (name, url):
        with connect_url("sqlserver", url, PROGRAM) as admin:
            apply(admin, plan_of(url))
            query(admin, "CREATE PROCEDURE dbo.as_owner WITH EXECUTE AS OWNER AS SELECT 1;")
            query(admin, f"CREATE USER {place.name} FOR LOGIN {place.name};")
            query(admin, f"ALTER ROLE db_owner ADD MEMBER {place.name};")
        with place.server() as admin:
            _lose_owner(admin, name, login)
        with connect_url("sqlserver", url, PROGRAM) as admin:
            try:
                query(admin, "EXEC dbo.as_owner;")
            except RowpostError as error:
                refused = f"a module that runs as the owner is refused: {error}"
            else:
                raise ProvedNothing("a module that runs as the owner still runs: the database has another owner now")
        with connect_url("sqlserver", with_parts(place.url, database=name), PROGRAM) as member:
            return [refused, *_work(member)]


def _lose_owner(admin: Connection, name: str, login: str) -> None:
    rows = query(admin, "SELECT f.physical_name FROM sys.master_files AS f WHERE f.database_id = DB_ID(?);", name)
    files = ", ".join("(FILENAME = N'{}')".format(str(path).replace("'", "''")) for (path,) in rows)
    try:
        query(admin, f"ALTER AUTHORIZATION ON DATABASE::{name} TO {login};")
        query(admin, f"ALTER DATABASE {name} SET SINGLE_USER WITH ROLLBACK IMMEDIATE;")
        query(admin, f"EXEC master.sys.sp_detach_db @dbname = N'{name}';")
    except RowpostError as error:
        raise NotPossible(f"the server does not detach a database: {error}") from error
    drop(admin, "LOGIN", login)
    try:
        query(admin, f"CREATE DATABASE {name} ON {files} FOR ATTACH;")
    except RowpostError as error:
        raise Failed(
            f"the detached database cannot be attached. These files are left over: {files}. {error}"
        ) from error
    query(admin, f"ALTER DATABASE {name} SET MULTI_USER;")


def level(place: Place) -> Sequence[str]:
    """Deploy in a database at compatibility level 130, the lowest that rowpost supports, and handle a message there."""
    with place.database("level") as (name, url):
        with place.server() as admin:
            try:
                query(admin, f"ALTER DATABASE {name} SET COMPATIBILITY_LEVEL = {LEVEL};")
            except RowpostError as error:
                raise NotPossible(f"the server does not set compatibility level {LEVEL}: {error}") from error
            statement = "SELECT CAST(d.compatibility_level AS int) FROM sys.databases AS d WHERE d.name = ?;"
            found = query(admin, statement, name)[0][0]
        with connect_url("sqlserver", url, PROGRAM) as database:
            apply(database, plan_of(url))
            if findings := verify(database, plan_of(url)):
                raise Failed(f"the deployment does not match its plan: {findings[0].subject}: {findings[0].detail}")
            seen = _work(database)
        if found != LEVEL:
            raise ProvedNothing(f"the database has compatibility level {found}", seen)
        return [f"compatibility level {found}", *seen]

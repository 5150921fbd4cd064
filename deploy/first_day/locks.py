"""The steps about locks: rows that are skipped, deadlocks, and escalation. They use real sessions of the member of db_owner."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from deploy.first_day.ended import Failed, ProvedNothing
from deploy.first_day.scratch import Place, query, require_view
from deploy.first_day.server import CLUSTERED, HEAP, SECOND, deployed

from rowpost.database.connection import Connection
from rowpost.errors import Deadlock, LockTimeout, RowpostError
from rowpost.transport.queue import Queue
from rowpost.wire.message import OutgoingMessage

__all__ = ["contest_problem", "deadlocks", "escalation", "judge_locks", "no_proof", "readpast", "table_locks"]

LOCK_TIMEOUT_MS = 2000
#: more than any call may take, so that a call that locks too much is seen
ROWS = 6000
WORKERS = 8
MESSAGES = 4000
GIVE_UP_SECONDS = 120
#: modes of locks on a table that leave its rows to others
INTENT = {"IS", "IU", "IX", "Sch-S"}
#: wide rows, of which a page of 8 KB holds one: locks of pages count as those of rows do
BODY = "CAST(REPLICATE(CAST('x' AS varchar(max)), 5000) AS varbinary(max))"
MANY = f"FROM (SELECT TOP ({ROWS}) 1 AS one FROM sys.all_columns AS a CROSS JOIN sys.all_columns AS b) AS n;"
STAGED = (
    "INSERT INTO rowpost.staged_message (job_key, attempt, headers, body, staged_at)"
    f" SELECT N'first day', N'1', N'', {BODY}, SYSUTCDATETIME() {MANY}"
)
SPOOLED = (
    "INSERT INTO rowpost.spool (queue_key, owned_by, confirmed, taken_at) VALUES (N'{0}', N'first day', 1, SYSUTCDATETIME());"
    " INSERT INTO rowpost.spooled_message (queue_key, id, recoverable, headers, body, row_version)"
    f" SELECT N'{{0}}', NEWID(), 1, N'', {BODY}, 1 {MANY}"
)


@dataclass(frozen=True)
class Remover:
    """A procedure that removes many rows, with the arguments of a call that removes the most that one may.

    Attributes:
        table: from which it removes them; empty for the queue.
        fill: what to run before, in the same transaction; `{0}` is the queue.
        of_queue: whether it is a procedure of one queue.
    """

    procedure: str
    arguments: Mapping[str, object]
    table: str = ""
    fill: str = ""
    of_queue: bool = True


REMOVERS = (
    Remover("receive_messages", {"count": 500}),
    Remover("purge_queue", {"count": 4000}),
    Remover("purge_expired", {"count": 4000}),
    Remover("move_to_spool", {"owner": "first day", "count": 4000, "take_over": True}),
    Remover("drop_spool", {"owner": "first day", "upto": 2**62}, "spooled_message", SPOOLED),
    Remover("send_staged", {"job_key": "first day", "attempts": '["1"]'}, "staged_message", STAGED),
    Remover("drop_staged", {"job_key": "first day"}, "staged_message", STAGED, of_queue=False),
)
WAITS = "SELECT COALESCE(SUM(w.waiting_tasks_count), 0) FROM sys.dm_exec_session_wait_stats AS w WHERE w.session_id = @@SPID AND w.wait_type LIKE N'LCK[_]M%';"
HELD = """
SELECT l.resource_type, l.request_mode, CASE WHEN l.resource_type = N'OBJECT' THEN l.resource_associated_entity_id END, COUNT(*)
FROM sys.dm_tran_locks AS l
WHERE l.request_session_id = ? AND l.resource_database_id = DB_ID() AND l.request_status = N'GRANT'
GROUP BY l.resource_type, l.request_mode, CASE WHEN l.resource_type = N'OBJECT' THEN l.resource_associated_entity_id END;
"""
PROMOTIONS = """
SELECT COALESCE(SUM(s.index_lock_promotion_count), 0)
FROM sys.dm_db_index_operational_stats(DB_ID(), NULL, NULL, NULL) AS s
INNER JOIN sys.tables AS t ON s.object_id = t.object_id;
"""
FILL = """
INSERT INTO dbo.[{0}] (Id, Recoverable, Expires, Headers, Body)
SELECT NEWID(), 1, DATEADD(MINUTE, -1, GETUTCDATE()), N'', {1}
{2}
"""
_NUMBER = re.compile(r"\((\d+)\) \(SQL\w+\)")


def readpast(place: Place) -> Sequence[str]:
    """Hold the oldest message in one session; another one must receive the next message without waiting for a lock."""
    deployed(place)
    seen = []
    for queue in (CLUSTERED, HEAP):
        with place.member() as holder, place.member() as other:
            _empty(holder, queue)
            Queue(queue, other).receive()  # compiles the plan, so that no lock of a compilation is counted
            first, second = Queue(queue, holder), Queue(queue, other)
            ids = [first.send(b"oldest"), first.send(b"next")]
            query(other, f"SET LOCK_TIMEOUT {LOCK_TIMEOUT_MS};")
            before = _lock_waits(other)
            holder.begin()
            held = [message.id for message in first.receive()]
            try:
                found = [message.id for message in second.receive()]
                waiting = second.peek()
            except LockTimeout as error:
                raise Failed(
                    f"{queue}: a receive waited {LOCK_TIMEOUT_MS} ms for the row that another session holds", seen
                ) from error
            finally:
                holder.rollback()
            waits = _lock_waits(other)
            back = [message.id for message in second.receive()]
        if (held, found, waiting, back) != (ids[:1], ids[1:], 0, ids[:1]):
            raise Failed(
                f"{queue}: held {len(held)}, received {found == ids[1:]}, counted {waiting}, after the rollback {back == ids[:1]}",
                seen,
            )
        if waits != before:
            raise Failed(
                f"{queue}: the receive waited for {waits - before} locks, though for less than {LOCK_TIMEOUT_MS} ms",
                seen,
            )
        counted = (
            "no lock wait in sys.dm_exec_session_wait_stats"
            if waits is not None
            else "sys.dm_exec_session_wait_stats is not readable"
        )
        seen.append(
            f"{queue}: the held row is skipped by a receive and a peek, and comes back after a rollback; {counted}"
        )
    return seen


def _lock_waits(database: Connection) -> int | None:
    try:
        return int(query(database, WAITS)[0][0])
    except RowpostError:
        return None


def _empty(database: Connection, queue: str) -> None:
    query(database, f"DELETE FROM dbo.[{queue}];")


def deadlocks(place: Place) -> Sequence[str]:
    """Let workers receive from one queue and send to another one, while others purge expired messages. Count deadlocks and messages."""
    deployed(place)
    count = place.scaled(MESSAGES)
    with place.member() as database:
        for queue in (CLUSTERED, SECOND):
            _empty(database, queue)
        expired = [OutgoingMessage(b"expired", {}, time_to_be_received=timedelta(milliseconds=1))] * (count // 10)
        Queue(CLUSTERED, database).send_many([*expired, *[OutgoingMessage(b"x" * 500, {})] * count])
    contest = _Contest(place, count)
    contest.run()
    with place.member() as database:
        stored = query(database, f"SELECT COUNT(*) FROM dbo.[{SECOND}];")[0][0]
    seen = [
        f"{WORKERS} workers and 2 purgers, {count} messages and {count // 10} expired ones",
        f"received {len(contest.received)} times, {len(set(contest.received))} different messages, {stored} stored in {SECOND}",
        f"errors by number: {dict(contest.errors) or 'none'}",
    ]
    if contest.broken:
        raise Failed(f"a worker ended: {contest.broken[0]}", seen)
    wrong = contest_problem(contest.errors, contest.received, stored, count)
    if wrong:
        raise Failed(wrong, seen)
    if len(contest.workers) < 2 or not contest.purged:
        raise ProvedNothing(f"{len(contest.workers)} workers received, {contest.purged} messages were purged", seen)
    return seen


def contest_problem(errors: Mapping[str, int], received: Sequence[object], stored: int, count: int) -> str:
    """Return what went wrong with the workers; an empty text: nothing.

    Args:
        errors: errors of transactions that were run again, by their numbers.
        received: the ids of all messages that were received.
        stored: messages in the second queue.
        count: messages that were sent.
    """
    if errors.get("1205"):
        return f"{errors['1205']} deadlocks (1205)"
    if not len(received) == len(set(received)) == stored == count:
        return "not every message was handled exactly once"
    return ""


class _Contest:
    """Workers and purgers on one queue, each in a thread with a connection of its own."""

    def __init__(self, place: Place, count: int) -> None:
        self.place, self.count = place, count
        self.received: list[UUID] = []
        self.errors: Counter[str] = Counter()
        self.broken: list[str] = []
        self.workers: set[int] = set()
        self.purged = 0
        self._done = threading.Event()
        self._lock = threading.Lock()

    def run(self) -> None:
        """Run until every message is received, a worker ends with an error, or the time is over."""
        threads = [threading.Thread(target=self._guarded, args=(self._work,), daemon=True) for _ in range(WORKERS)]
        threads += [threading.Thread(target=self._guarded, args=(self._purge,), daemon=True) for _ in range(2)]
        for thread in threads:
            thread.start()
        if not self._done.wait(GIVE_UP_SECONDS):
            self.broken.append(f"not all messages were received within {GIVE_UP_SECONDS} s")
            self._done.set()
        for thread in threads:
            thread.join(GIVE_UP_SECONDS)

    def _guarded(self, work) -> None:
        try:
            with self.place.member() as database:
                while not self._done.is_set():
                    self._try(work, database)
        except Exception as error:  # noqa: BLE001 -- the step reports it
            self.broken.append(f"{type(error).__name__}: {error}")
            self._done.set()

    def _try(self, work, database: Connection) -> None:
        try:
            work(database)
        except Deadlock as error:
            found = _NUMBER.search(str(error.__cause__))
            with self._lock:
                self.errors[found[1] if found else type(error).__name__] += 1

    def _work(self, database: Connection) -> None:
        with database.transaction():
            rows = [message for message in Queue(CLUSTERED, database).receive(5) if not message.expired]
            if rows:
                Queue(SECOND, database).send_many([OutgoingMessage(message.body, {}) for message in rows])
        if not rows:
            self._done.wait(0.01)
        with self._lock:
            self.received += [message.id for message in rows]
            self.workers |= {threading.get_ident()} if rows else set()
            if len(self.received) >= self.count:
                self._done.set()

    def _purge(self, database: Connection) -> None:
        purged = database.call("purge_expired", CLUSTERED, count=100)[0][0]
        with self._lock:
            self.purged += purged
        database.call("peek_queue", CLUSTERED, count=1000)
        self._done.wait(0.01)


def escalation(place: Place) -> Sequence[str]:
    """Let each procedure that removes many rows do so in an open transaction; another session must see no lock of a whole table."""
    deployed(place)
    seen = []
    with place.admin() as admin, place.member() as database:
        require_view(admin, "sys.dm_tran_locks")
        session = query(database, "SELECT @@SPID;")[0][0]
        tables = dict(query(admin, "SELECT t.object_id, t.name FROM sys.tables AS t;"))
        for queue in (CLUSTERED, HEAP):
            _empty(database, queue)
            query(database, FILL.format(queue, BODY, MANY))
            for remover in REMOVERS:
                procedure, table = remover.procedure, remover.table or queue
                database.begin()
                try:
                    if remover.fill:
                        query(database, remover.fill.format(queue))
                    before = _promotions(admin)  # here: filling the table may escalate
                    database.call(procedure, queue if remover.of_queue else None, **remover.arguments)
                    held, after = query(admin, HELD, session), _promotions(admin)
                finally:
                    database.rollback()
                counts = Counter({f"{kind} {mode}": 0 for kind, mode, *_ in held})
                for kind, mode, _, number in held:
                    counts[f"{kind} {mode}"] += number
                seen.append(
                    f"{procedure} on {queue}: {', '.join(f'{number} {name}' for name, number in sorted(counts.items()))}"
                )
                judge_locks(f"{procedure} on {queue}", held, tables, table, seen)
                if before is not None and after is not None and after > before:
                    raise Failed(
                        f"{procedure} on {queue}: sys.dm_db_index_operational_stats counts {after - before} lock escalations",
                        seen,
                    )
    why = no_proof(place.facts)
    if why:
        raise ProvedNothing(why, seen)
    return [
        *seen,
        "no escalation in sys.dm_db_index_operational_stats"
        if after is not None
        else "sys.dm_db_index_operational_stats is not readable",
    ]


def no_proof(facts: Mapping[str, str]) -> str:
    """Return why this server would not escalate in any case, from what the run knows of it; an empty text: it would."""
    flags = {"1211", "1224"} & set(re.findall(r"\d+", facts.get("trace flags", "")))
    if flags:
        return f"the trace flag {min(flags)} disables lock escalation"
    if facts.get("optimized locking") == "1":
        return "with optimized locking a transaction holds few locks of rows"
    return ""


def judge_locks(what: str, held: Sequence[tuple], tables: Mapping[int, str], queue: str, seen: Iterable[str]) -> None:
    """Judge the locks that a session holds after a procedure. Raises Failed, and ProvedNothing if the view shows none of the queue."""
    if not any(kind == "OBJECT" and tables.get(table) == queue for kind, _, table, _ in held):
        raise ProvedNothing(f"{what}: sys.dm_tran_locks shows no lock on the queue", seen)
    whole = table_locks(held, tables)
    if whole:
        raise Failed(f"{what}: locks a whole table: {', '.join(whole)}", seen)


def table_locks(held: Iterable[tuple], tables: Mapping[int, str]) -> list[str]:
    """Return the locks that keep others from a whole table, as "mode name".

    Args:
        held: rows of (resource type, mode, object id or None, number).
        tables: the names of the database's tables by their object ids; other objects do not count.
    """
    return [
        f"{mode} {tables[table]}"
        for kind, mode, table, _ in held
        if kind == "OBJECT" and table in tables and mode not in INTENT
    ]


def _promotions(database: Connection) -> int | None:
    try:
        return int(query(database, PROMOTIONS)[0][0])
    except RowpostError:
        return None

"""The step about plans: run each procedure often enough to cache its plan, then read the plans from the server.

A plan of a procedure is found by sys.dm_exec_procedure_stats, which is small, and not by sys.dm_exec_query_stats alone, which
holds every statement of the server. A statement with OPTION (RECOMPILE) has no plan in the cache: its plan comes from
SET STATISTICS XML.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from uuid import UUID

from deploy.first_day.scratch import Place, query, require_view
from deploy.first_day.server import CLUSTERED, HEAP, SAGA, deployed
from deploy.first_day.showplan import Rule, problems, statements
from deploy.first_day.verdicts import Failed

from rowpost.database.connection import Connection
from rowpost.transport.queue import Queue
from rowpost.wire.message import OutgoingMessage

__all__ = ["RULES", "judge_plans", "plans"]

MESSAGES = 300
CALLS = 3
CACHED = """
SELECT o.name, CAST(p.query_plan AS nvarchar(max)), s.executions, s.max_reads
FROM sys.dm_exec_procedure_stats AS c
INNER JOIN sys.objects AS o ON c.object_id = o.object_id
OUTER APPLY sys.dm_exec_query_plan(c.plan_handle) AS p
OUTER APPLY
(
    SELECT MAX(q.execution_count) AS executions, MAX(q.max_logical_reads) AS max_reads
    FROM sys.dm_exec_query_stats AS q
    WHERE q.plan_handle = c.plan_handle
) AS s
WHERE c.database_id = DB_ID() AND o.schema_id = SCHEMA_ID(N'rowpost');
"""
#: enough rows that a walk through them costs more than the seek
FILLED = (
    "INSERT INTO rowpost.outbox (endpoint, message_id, handled_at) SELECT TOP (5000) N'first day', CAST(NEWID() AS nvarchar(36)),"
    " DATEADD(MINUTE, -5, SYSUTCDATETIME()) FROM sys.all_columns AS a CROSS JOIN sys.all_columns AS b;",
    "INSERT INTO rowpost.outbox_operations (endpoint, message_id, operations)"
    " SELECT TOP (3) o.endpoint, o.message_id, N'[]' FROM rowpost.outbox AS o ORDER BY o.message_id;",
    "INSERT INTO rowpost.staged_message (job_key, attempt, headers, staged_at)"
    " SELECT TOP (2000) N'other', N'1', N'', SYSUTCDATETIME() FROM sys.all_columns AS a CROSS JOIN sys.all_columns AS b;",
    f"INSERT INTO dbo.[{SAGA}] (Id, Metadata, Data, PersistenceVersion, SagaTypeVersion, Concurrency, Correlation_OrderId)"
    " SELECT TOP (2000) n.id, N'{}', N'{}', '1.0.0', '1.0.0', 1, CAST(n.id AS nvarchar(36))"
    " FROM (SELECT NEWID() AS id FROM sys.all_columns AS a CROSS JOIN sys.all_columns AS b) AS n;",
)
BY_ROW_VERSION = (
    "receive_messages",
    "receive_message",
    "peek_queue",
    "browse_messages",
    "purge_queue",
    "move_to_spool",
)


def _rules() -> dict[str, Rule]:
    found = {}
    for queue in (CLUSTERED, HEAP):
        for name in BY_ROW_VERSION:
            found[f"{name}:{queue}"] = Rule(((queue, "Index_RowVersion"),))
        # the numbers that the index on Expires gives are sorted into the key of a table variable, and the DELETE sorts nothing
        found[f"purge_expired:{queue}"] = Rule(
            ((queue, "Index_Expires"), (queue, "Index_RowVersion")), may_sort="INSERT INTO @expired"
        )
        found[f"move_due_messages:{queue}"] = Rule(((f"{queue}.Delayed", ""),), only="DELETE FROM oldest")
    found["drop_staged"] = Rule((("staged_message", "staged_message_key"),), only="s.job_key = @job_key")
    # from the few unsent operations to their records by the key, and not by a walk through the records of a week
    found["list_undispatched"] = Rule((("outbox", "outbox_key"),), sort=True, first="outbox_operations")
    found["outbox_status"] = Rule((("outbox", "outbox_key"),), only="FORCE ORDER", sort=True, first="outbox_operations")
    return found


#: by the name of the procedure in the schema rowpost
RULES: Mapping[str, Rule] = _rules()
#: a statement with OPTION (RECOMPILE), so that a later page seeks its first id
SAGAS = f"list_sagas:{SAGA}"
SAGA_RULE = Rule(((SAGA, ""),))


def plans(place: Place) -> Sequence[str]:
    """Judge the plans of the procedures that read queues, staged messages, the outbox and sagas."""
    deployed(place)
    with place.member() as database, place.admin() as admin:
        _exercise(database)
        actual = _actual_plans(
            database, f"EXEC rowpost.[{SAGAS}] @count = 10, @after_id = '00000000-0000-0000-0000-000000000001';"
        )
        require_view(admin, "sys.dm_exec_procedure_stats", "sys.dm_exec_query_stats")
        cached = query(admin, CACHED)
    sagas = [plan for plan in actual if any(read.table == SAGA for each in statements(plan) for read in each.reads)]
    found: dict[str, list[str]] = {}
    for name, plan, *_ in cached:
        found.setdefault(name, []).append(plan or "")
    seen = [
        f"{name}: {executions} executions, at most {reads} logical reads"
        for name, _, executions, reads in sorted(cached, key=lambda row: row[0])
    ]
    wrong = judge_plans({**RULES, SAGAS: SAGA_RULE}, {**found, SAGAS: sagas})
    if wrong:
        raise Failed(
            f"{len(wrong)} procedures have another plan than intended",
            [*(f"{name}: {text}" for name, text in wrong.items()), *seen],
        )
    return [f"{len(RULES) + 1} procedures: each has one plan, which seeks and does not sort", *seen]


def judge_plans(rules: Mapping[str, Rule], found: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return what is wrong by procedure: the plans of each are judged by its rule, and every procedure must have one plan only."""
    wrong = {}
    for name, rule in rules.items():
        try:
            texts = problems(rule, found.get(name, ()))
        except ValueError as error:
            texts = [f"the plan cannot be read: {error}"]
        if texts:
            wrong[name] = "; ".join(texts)
    for name in found.keys() - rules.keys():
        if len(found[name]) > 1:
            wrong[name] = f"{len(found[name])} plans are in the cache instead of one"
    return dict(sorted(wrong.items()))


def _exercise(database: Connection) -> None:
    """Call each procedure with other values than the time before, first on a short queue and then on a longer one."""
    for statement in FILLED:
        query(database, statement)
    for name in (CLUSTERED, HEAP):
        queue = Queue(name, database)
        for number in range(CALLS):
            queue.send_many([OutgoingMessage(b"x" * 500, {})] * (MESSAGES * number + 5))
            above = queue.receive(1)[0].row_version
            queue.receive(2, above)
            queue.receive_one(above + 3)
            queue.peek(10 * number + 1)
            queue.browse(5, above if number else None)
            for procedure, values in (
                ("purge_expired", {"count": 100 * number + 1}),
                ("purge_queue", {"count": 1}),
                ("move_to_spool", {"owner": "first day", "count": number + 1, "take_over": True}),
                ("move_due_messages", {"count": 100}),
            ):
                database.call_atomically(procedure, name, **values)
    for number in range(CALLS):
        database.call("drop_staged", job_key=f"job {number}", seconds=number)
        database.call("list_undispatched", seconds=number, count=10 + number)
        database.call("outbox_status")
        database.call("list_sagas", SAGA, count=10, after_id=UUID(int=number))


def _actual_plans(database: Connection, statement: str) -> list[str]:
    """Run a statement, and return the plans with which it was executed."""
    query(database, "SET STATISTICS XML ON;")
    with database.translated(), closing(database.driver_connection.cursor()) as cursor:
        cursor.execute(statement)
        found = []
        while True:
            rows = cursor.fetchall() if cursor.description else []
            found += [row[0] for row in rows if isinstance(row[0], str) and row[0].startswith("<ShowPlanXML")]
            if not cursor.nextset():
                break
    query(database, "SET STATISTICS XML OFF;")
    return found

"""Make and remove queues one at a time.

Each change is a deployment of its own: the same lock, the same journal, one transaction.

    create_queue(database, "Sales")                                   makes table and procedures
    create_queue(database, "Billing", kind="adopted")                 gives procedures to a table that is there
    create_queue(database, "Legacy.Orders@[nsb]", kind="external")    a queue that rowpost only sends to
    forget_queue(database, "Billing")                                 takes the procedures away; messages stay
    drop_queue(database, "Sales")                                     and the table with every message in it
"""

from __future__ import annotations

from rowpost.database.connection import Connection
from rowpost.deploy.apply import ApplyResult, Progress, apply
from rowpost.deploy.deployment import changing
from rowpost.deploy.entries import SCHEDULE, QueueEntry, describe_queue
from rowpost.deploy.plan import build_plan
from rowpost.deploy.scripts import load_scripts
from rowpost.deploy.state import check_not_newer, read_state
from rowpost.deploy.steps import Rendering
from rowpost.errors import DeployError, QueueNotFound
from rowpost.settings.queue import QueueKind, QueueSettings
from rowpost.wire.address import parse_address

__all__ = ["create_queue", "drop_queue", "forget_queue"]


def create_queue(
    database: Connection,
    name: str,
    *,
    kind: QueueKind = "own",
    body_string: bool = False,
    clustered: bool = True,
    delayed: bool = True,
    lease: bool = False,
    progress: Progress | None = None,
) -> ApplyResult:
    """Make a queue, or bring one that is there up to date: its result says what was missing.

    A table that is there stays as it is.

    Args:
        kind: own; adopted: give procedures to a table made elsewhere, which stays as it is; or external: register a
            queue that is not ours, which gets the procedures that send, and those that operators use for single
            messages.
        lease: make the table of leases, for an endpoint with `receive="lease"`.

    Raises:
        InvalidQueueName, QueueNameConflict: no such queue can be made.
        SchemaMissing: rowpost apply has not run here.
        DeployError: the server refused; nothing was changed.
    """
    entry = describe_queue(QueueSettings(name, kind, body_string, clustered, delayed, lease=lease), database.engine)
    part = build_plan(f"queue {entry.name}", load_scripts(database.engine), [entry], whole=False)
    return apply(database, part, progress)


def forget_queue(database: Connection, name: str) -> None:
    """Take a queue's procedures and its entry away; its table and its messages stay.

    Raises:
        QueueNotFound: no such queue is registered.
        DeployError: a handler holds a message by a lease.
    """
    _leave(database, name, drop=False)


def drop_queue(database: Connection, name: str) -> None:
    """Take a queue away, and drop its table with every message in it.

    Raises:
        QueueNotFound: no such queue is registered.
        DeployError: the queue is external: its table is not ours to drop. Or a handler holds a message by a lease.
    """
    _leave(database, name, drop=True)


def _check_not_leased(database: Connection, entry: QueueEntry) -> None:
    """Refuse to take a queue away while a handler holds a message of it.

    Raises DeployError.
    """
    held = database.call("list_leases", entry.name, count=1) if entry.lease else []
    if held:
        raise DeployError(
            f"The queue {entry.name!r} is not dropped: {held[0].owner} holds the message {held[0].id} by a lease since "
            f"{held[0].leased_at:%Y-%m-%d %H:%M:%S} UTC. Stop the endpoint, wait until its handler has ended or the "
            "lease has expired, and run the command again."
        )


def _leave(database: Connection, name: str, drop: bool) -> None:
    canonical = parse_address(name).qualified(database.engine).short(database.engine).format()
    with changing(database, f"queue {name}") as (running, scripts):
        state = read_state(database)
        check_not_newer(scripts.schema_version, state)
        entry = next((each for each in state.queues if each.name == canonical), None)
        if entry is None:
            raise QueueNotFound(f"No queue named {canonical!r} is registered. rowpost queue list shows those that are.")
        if drop and entry.kind == "external":
            raise DeployError(f"The queue {canonical!r} is external: its table is not ours to drop. Forget it instead.")
        _check_not_leased(database, entry)
        rendering = Rendering(scripts)
        for stem in ("forget", "drop") if drop else ("forget",):
            running.run_script(rendering.removal(entry, stem))
        gone = [each.forget_call for each in state.journal if each.key == entry.key]
        gone += [
            ("forget_feature", None, {"environment": environment, "feature": each.text})
            for environment, each in state.declared
            if each.queue_key == entry.key and each.name != SCHEDULE
        ]
        running.write(gone)

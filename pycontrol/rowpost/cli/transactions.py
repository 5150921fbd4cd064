"""rowpost transactions list, resolve: what is in doubt after a crash in the middle of a transaction over databases."""

from __future__ import annotations

import os
import sys
from datetime import UTC

import typer

from rowpost.cli.command import command
from rowpost.cli.exits import ExitCode, Refused
from rowpost.cli.printing import table
from rowpost.cli.session import Session
from rowpost.endpoint.endpoint import Endpoint
from rowpost.endpoint.resolve import resolve_handler
from rowpost.errors import HandlerNotFound
from rowpost.settings.secrets import resolve_participants
from rowpost.transactions.recovery import list_in_doubt, recover

__all__ = ["app"]

app = typer.Typer(help="Look after transactions over several databases.", no_args_is_help=True)


@command(app, "list")
def list_transactions(session: Session) -> ExitCode:
    """List transactions that are prepared at a participant; exit code 1 if one of ours waits for recovery.

    decided: the queue's database has committed, resolve commits it. abandoned: it has not and never will, resolve
    rolls it back. running: its worker is just at it. foreign: another queue's database decides.
    """
    participants = _participants(session)
    with session.deployed() as database:
        found, unreachable = list_in_doubt(database, participants)
        decisions = database.call("list_decisions")
    if session.as_json:
        session.document(
            {
                "in_doubt": [
                    {"participant": x.participant, "gid": x.gid, "state": x.state, "owner": x.owner,
                     "prepared_at": x.prepared_at.astimezone(UTC).isoformat()}
                    for x in found
                ],
                "unreachable": unreachable,
                "decisions": [row.transaction_id for row in decisions],
            }
        )  # fmt: skip
    elif found:
        rows = [(x.participant, x.state, f"{x.prepared_at.astimezone(UTC):%Y-%m-%d %H:%M:%S}", x.gid) for x in found]
        table(session.out, ("participant", "state", "prepared (UTC)", "transaction"), rows)
    else:
        session.out.print("Nothing is in doubt." if not unreachable else "Nothing is in doubt where it could be asked.")
    _tell(session, unreachable)
    waiting = unreachable or any(x.state in ("decided", "abandoned") for x in found)
    return ExitCode.FINDING if waiting else ExitCode.OK


@command(app)
def resolve(session: Session) -> ExitCode:
    """Commit what was decided, roll back what was abandoned; exit code 1 if something could not be reached.

    Workers do the same at their start, and supervisors every 30 seconds for participants of the environment.
    """
    participants = _participants(session)
    with session.deployed() as database:
        result = recover(database, participants)
    if session.as_json:
        session.document(
            {"committed": result.committed, "rolled_back": result.rolled_back, "running": [x.gid for x in result.left],
             "forgotten": result.forgotten, "unreachable": result.unreachable}
        )  # fmt: skip
    else:
        done = f"{len(result.committed)} committed, {len(result.rolled_back)} rolled back, {len(result.left)} still running."
        session.out.print(done)
    _tell(session, result.unreachable)
    return ExitCode.FINDING if result.unreachable else ExitCode.OK


def _tell(session: Session, unreachable: dict[str, str]) -> None:
    for problem in unreachable.values():
        session.note(problem)


def _participants(session: Session) -> dict[str, str]:
    """Those of the environment, and those of its endpoints. Raises Refused when there is none."""
    settings = session.settings
    if settings.engine != "postgresql":
        raise Refused("On SQL Server the server itself ends such transactions: see sys.dm_tran_active_transactions.")
    sys.path.insert(0, os.getcwd())  # handlers lie where the program is started
    sources = [dict(settings.participants)]
    for queue in settings.queues:
        if queue.worker is None:
            continue
        try:
            handler = resolve_handler(queue.worker.handler)
        except HandlerNotFound as error:
            session.note(f"the participants of {queue.name} are not known: {error}")
            continue
        if isinstance(handler, Endpoint):
            sources.append(handler.participants)
    found = resolve_participants(*sources)
    if not found:
        raise Refused(
            f"{settings.environment} has no participants: name them below `participants`, or in an Endpoint.", ExitCode.SETTINGS
        )
    return found

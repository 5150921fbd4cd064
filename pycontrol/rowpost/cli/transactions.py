"""rowpost transactions list, resolve: distributed transactions that a crash left prepared."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC
from functools import partial

import typer

from rowpost.cli.command import command
from rowpost.cli.current_folder import import_from_current_folder
from rowpost.cli.exits import ExitCode, Refused
from rowpost.cli.session import Session
from rowpost.endpoint.hosting import endpoints_of
from rowpost.errors import HandlerNotFound
from rowpost.operations.reading import decisions
from rowpost.settings.secrets import resolve_participants
from rowpost.transactions.recovery import list_in_doubt, recover

__all__ = ["app"]

app = typer.Typer(help="Inspect and resolve transactions over several databases.", no_args_is_help=True)


@command(app, "list")
def list_transactions(session: Session) -> ExitCode:
    """List the transactions that are prepared at participants. Exit code 1 if one of them needs `resolve`.

    decided: the queue's database has committed, and resolve commits it. abandoned: the queue's database has not
    committed and cannot any more, and resolve rolls it back. running: a worker is committing it. foreign: the database
    of another queue decides about it.
    """
    participants = _participants(session)
    with session.deployed() as database:
        found, unreachable = list_in_doubt(database, participants)
        decided = decisions(database)
    document = {
        "in_doubt": [
            {"participant": x.participant, "gid": x.gid, "state": x.state, "owner": x.owner,
             "prepared_at": x.prepared_at.astimezone(UTC).isoformat()}
            for x in found
        ],
        "unreachable": unreachable,
        "decisions": decided,
    }  # fmt: skip
    rows = [(x.participant, x.state, f"{x.prepared_at.astimezone(UTC):%Y-%m-%d %H:%M:%S}", x.gid) for x in found]
    none = f"No transaction is in doubt{' at the participants that could be reached' if unreachable else ''}."
    columns = ("participant", "state", "prepared (UTC)", "transaction")
    session.listing(document, columns, rows, none=none, instead=True)
    _note_problems(session, unreachable)
    waiting = unreachable or any(x.state in ("decided", "abandoned") for x in found)
    return ExitCode.FINDING if waiting else ExitCode.OK


@command(app)
def resolve(session: Session) -> ExitCode:
    """Commit decided transactions and roll back abandoned ones. Exit code 1 if a participant could not be reached.

    Workers do the same when they start, and supervisors do it every 30 seconds for the environment's participants.
    """
    participants = _participants(session)
    with session.deployed() as database:
        result = recover(database, participants)
    running = [x.gid for x in result.left]
    document = {"committed": result.committed, "rolled_back": result.rolled_back, "running": running,
                "forgotten": result.forgotten, "unreachable": result.unreachable}  # fmt: skip
    ended = f"{len(result.committed)} committed, {len(result.rolled_back)} rolled back"
    session.answer(document, f"{ended}, {len(running)} still running.", on_stdout=True)
    _note_problems(session, result.unreachable)
    return ExitCode.FINDING if result.unreachable else ExitCode.OK


def _note_problems(session: Session, unreachable: dict[str, str]) -> None:
    for problem in unreachable.values():
        session.note(problem)


def _note_unread(session: Session, queue: str, error: HandlerNotFound) -> None:
    session.note(f"cannot read the participants of {queue}: {error}")


def _participants(session: Session) -> dict[str, str]:
    """Return the participants of the environment and of its endpoints. Raises Refused if there are none."""
    settings = session.settings
    if settings.engine != "postgresql":
        raise Refused(
            "On SQL Server, the server itself resolves such transactions: see sys.dm_tran_active_transactions."
        )
    import_from_current_folder()
    sources: list[Mapping[str, str]] = [dict(settings.participants)]
    unknown = partial(_note_unread, session)
    sources += [endpoint.participants for _, endpoint in endpoints_of(settings, unknown)]
    found = resolve_participants(*sources)
    if not found:
        raise Refused(
            f"The environment {settings.environment} has no participants. Declare them below `participants` or in an "
            "Endpoint.",
            ExitCode.SETTINGS,
        )
    return found

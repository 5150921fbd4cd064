"""rowpost doctor: everything that this environment needs, on this machine and on its server."""

from __future__ import annotations

from importlib.util import find_spec

from rowpost.cli.current_folder import import_from_current_folder
from rowpost.cli.exits import ExitCode
from rowpost.cli.printing import table
from rowpost.cli.session import Session
from rowpost.database.connection import connect
from rowpost.database.requirements import Check, check_drivers, check_server
from rowpost.deploy.entries import QueueEntry, SubscriptionEntry, describe_queue, describe_subscriptions
from rowpost.deploy.taken import dotted
from rowpost.endpoint.hosting import needed_queues, with_sagas
from rowpost.errors import RowpostError
from rowpost.settings.environment import Settings
from rowpost.version import __version__, install_command

__all__ = ["doctor", "print_checks"]


def doctor(session: Session) -> ExitCode:
    """Check what the environment needs:

    Python, drivers, server, clock, schema, queues, Spark. Exit code 1 if a check fails.
    """
    settings = session.settings
    import_from_current_folder()
    checks = [
        Check("rowpost", "ok", __version__),
        Check("environment", "ok", f"{settings.environment}: {settings.target}"),
        *check_drivers(settings.engine),
        *check_server(with_sagas(settings), needed_queues(settings)),
        *_dotted(settings),
        *_spark(),
    ]
    return print_checks(session, checks)


def print_checks(session: Session, checks: list[Check]) -> ExitCode:
    """Print a table, or JSON with --json. Return the exit code: whether a check failed."""
    bad = [check for check in checks if check.state == "bad"]
    if session.as_json:
        session.document({"healthy": not bad, "bad": len(bad), "checks": [check.__dict__ for check in checks]})
    else:
        table(
            session.out,
            ("check", "state", "found", "what to do"),
            [(c.name, c.state, c.found, c.advice) for c in checks],
        )
    return ExitCode.FINDING if bad else ExitCode.OK


def _dotted(settings: Settings) -> list[Check]:
    """Check names with a dot: a schema of the database may be meant by what stands before it."""
    engine = settings.engine
    entries: list[QueueEntry | SubscriptionEntry] = [describe_subscriptions(settings.subscription_table, engine)]
    entries += [describe_queue(each, engine) for each in settings.queues]
    entries = [each for each in entries if "." in each.table_name]
    if not entries:
        return []
    try:
        with connect(settings, "rowpost doctor") as database:
            found = list(dotted(database, entries))
    except RowpostError:
        return []  # check_server says what is wrong
    said = "the name has a dot, and what stands before it is a schema of the database"
    return [
        Check(each.title, "note", said, f"if a schema is meant, write {meant.format()}; if not, nothing is to be done")
        for each, meant in found
    ]


def _spark() -> list[Check]:
    """Check what Spark needs without starting it. What it lacks is a note: queues and workers need no Spark."""
    if find_spec("pyspark") is None:
        advice = f"needed only for rowpost spark; install it: {install_command('spark')}"
        return [Check("Spark", "note", "pyspark is not installed", advice)]
    from rowpost.spark.doctor import check_environment

    found = [
        Check(f"Spark: {each.name}", "note" if each.state == "bad" else each.state, each.found, each.advice)
        for each in check_environment()
    ]
    return [*found, Check("Spark: session", "note", "not started", "run: rowpost spark doctor")]

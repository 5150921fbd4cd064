"""Execute an act on many messages in the foreground: a progress line, and Ctrl-C that cancels in order."""

from __future__ import annotations

from rowpost.cli.exits import ExitCode, Interrupted
from rowpost.cli.formats import format_exact_count
from rowpost.cli.interrupts import defer_interrupts
from rowpost.cli.printing import visible
from rowpost.cli.session import Session
from rowpost.transport.bulk_acts import BulkAct, Counts

__all__ = ["execute", "print_result"]

#: this many refused messages are listed one by one
SHOWN_REFUSALS = 20
DONE = {"retry": "retried", "discard": "discarded", "move": "moved", "edit": "edited"}
DOING = {"retry": "Retrying", "discard": "Discarding", "move": "Moving", "edit": "Editing"}


def execute(session: Session, act: BulkAct) -> ExitCode:
    """Execute an act to its end and print what became of it.

    The first Ctrl-C cancels the act after the transaction that is open. Then the act can be gone on with.

    Returns:
        1 if messages could not be changed, or somebody cancelled the act, else 0.

    Raises:
        Interrupted: Ctrl-C cancelled it.
    """
    kind = act.name.removesuffix("-all")
    with session.progress() as bar, defer_interrupts() as interrupts:
        task = bar.add_task(f"Counting the messages of act {act.counts.number}", total=None)

        def show(counts: Counts) -> None:
            if counts.total is None:
                bar.update(task, completed=counts.read)
            else:
                bar.update(task, description=f"{DOING[kind]} (act {counts.number})", total=counts.total, completed=counts.finished)

        state = act.run(show, lambda: "cancelled" if interrupts.pending else None)
        by_key, interrupts.pending = interrupts.pending, False
    if by_key and state == "cancelled":
        raise Interrupted(
            f"act {act.counts.number} {DONE[kind]} {format_exact_count(act.counts.done)}; the rest is still in {act.queue}. To go on: rowpost acts resume {act.counts.number}"
        )
    print_result(session, kind, act, state)
    return ExitCode.FINDING if act.refusals or state != "done" else ExitCode.OK


def print_result(session: Session, kind: str, act: BulkAct | None, state: str = "done") -> None:
    """Print what became of an act; None: no message matched, so that there was none."""
    counts = Counts(0, 0) if act is None else act.counts
    refusals = [] if act is None else act.refusals
    if session.as_json:
        refused = [{"row_version": row, "reason": reason} for row, reason in refusals]
        session.document(
            {
                "act": None if act is None else counts.number,
                "state": state,
                DONE[kind]: counts.done,
                "gone": counts.gone,
                "refused": refused,
                "refused_count": counts.refused,
            }
        )
        return
    session.note(f"{DONE[kind].capitalize()} {format_exact_count(counts.done)}." + ("" if act is None else f" This is act {counts.number}."))
    if state != "done":
        session.note(
            f"The act was {state}: {format_exact_count((counts.total or counts.finished) - counts.finished)} are left. To go on: rowpost acts resume {counts.number}"
        )
    if counts.gone:
        session.note(f"{format_exact_count(counts.gone)} had already been removed by another process.")
    for row, reason in refusals[:SHOWN_REFUSALS]:
        session.note(visible(f"Message {row} was not moved: {reason}"))
    if counts.refused > len(refusals):
        session.note(f"... and {format_exact_count(counts.refused - len(refusals))} more.")

"""Execute a bulk operation in the foreground: a progress line, and Ctrl-C that cancels in order."""

from __future__ import annotations

from rowpost.cli.exits import CommandInterrupted, ExitCode
from rowpost.cli.formats import format_exact_count
from rowpost.cli.interrupts import defer_interrupts
from rowpost.cli.printing import visible
from rowpost.cli.session import Session
from rowpost.operations.bulk import BulkCounts, BulkOperation, BulkWords

__all__ = ["execute", "print_result"]

#: this many refused messages are listed one by one
SHOWN_REFUSALS = 20


def execute(session: Session, operation: BulkOperation) -> ExitCode:
    """Execute an operation to its end and print what became of it.

    The first Ctrl-C cancels the operation after the transaction that is open. Then the operation can be gone on with.

    Returns:
        1 if messages could not be changed, or somebody cancelled the operation, else 0.

    Raises:
        CommandInterrupted: Ctrl-C cancelled it.
    """
    with session.progress() as bar, defer_interrupts() as interrupts:
        task = bar.add_task(f"Counting the messages of operation {operation.counts.number}", total=None)

        def show(counts: BulkCounts) -> None:
            if counts.total is None:
                bar.update(task, completed=counts.read)
            else:
                bar.update(
                    task,
                    description=f"{operation.words.doing} (operation {counts.number})",
                    total=counts.total,
                    completed=counts.finished,
                )

        state = operation.run(show, lambda: "cancelled" if interrupts.pending else None)
        by_key, interrupts.pending = interrupts.pending, False
    if by_key and state == "cancelled":
        raise CommandInterrupted(
            f"operation {operation.counts.number} {operation.words.done} {format_exact_count(operation.counts.done)}; "
            f"the rest is still in {operation.queue}. To go on: rowpost operations resume {operation.counts.number}"
        )
    print_result(session, operation.words, operation, state)
    return ExitCode.FINDING if operation.refusals or state != "done" else ExitCode.OK


def print_result(session: Session, words: BulkWords, operation: BulkOperation | None, state: str = "done") -> None:
    """Print what became of an operation; None: no message matched, so that there was none."""
    counts = BulkCounts(0, 0) if operation is None else operation.counts
    refusals = [] if operation is None else operation.refusals
    if session.as_json:
        refused = [{"row_version": row, "reason": reason} for row, reason in refusals]
        session.document(
            {
                "operation": None if operation is None else counts.number,
                "state": state,
                words.done: counts.done,
                "gone": counts.gone,
                "refused": refused,
                "refused_count": counts.refused,
            }
        )
        return
    session.note(
        f"{words.done.capitalize()} {format_exact_count(counts.done)}."
        + ("" if operation is None else f" This is operation {counts.number}.")
    )
    if state != "done":
        session.note(
            f"The operation was {state}: {format_exact_count((counts.total or counts.finished) - counts.finished)} are "
            f"left. To go on: rowpost operations resume {counts.number}"
        )
    if counts.gone:
        session.note(f"{format_exact_count(counts.gone)} had already been removed by another process.")
    for row, reason in refusals[:SHOWN_REFUSALS]:
        session.note(visible(f"Message {row} was not moved: {reason}"))
    if counts.refused > len(refusals):
        session.note(f"... and {format_exact_count(counts.refused - len(refusals))} more.")

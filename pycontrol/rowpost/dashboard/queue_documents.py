"""The documents of queues, from what the monitor has measured and what the environment says about them."""

from __future__ import annotations

from datetime import UTC, datetime

from rowpost.dashboard.monitor import MeasuredQueue, MeasuredQueues
from rowpost.operations.documents import QueueDocument, QueuePage, document_of
from rowpost.operations.reading import control_document
from rowpost.settings.descriptor import DESCRIBED
from rowpost.settings.environment import Settings
from rowpost.transport.maintenance import Metrics

__all__ = ["queue_document", "queue_page"]

QUEUES = 200
#: the figures of a queue that is measured, null for the others
_MEASURED = ("oldest_age_ms", "expired", "table_bytes", "index_bytes", "dead_rows", "leased")


def queue_document(state: MeasuredQueue, settings: Settings) -> QueueDocument:
    """Return the document of one queue, with what the environment says about it."""
    declared = settings.queue(state.name)
    figures = {name: _figure(state.metrics, name) for name in _MEASURED}
    described = {name: getattr(declared, name, "") or None for name in DESCRIBED}
    return document_of(
        QueueDocument, state, queue=state.name, control=control_document(state.control), **figures, **described
    )


def _figure(metrics: Metrics | None, name: str) -> int | None:
    return None if metrics is None else getattr(metrics, name)


def queue_page(
    snapshot: MeasuredQueues, settings: Settings, part: str = "", after: str = "", sort: str = "name"
) -> QueuePage:
    """Return up to 200 queues whose names contain a text.

    Args:
        after: only names after this one, if they are sorted by name.
        sort: name, waiting or age; the latter two show the 200 highest.
    """
    found = [state for name, state in sorted(snapshot.queues.items()) if part.casefold() in name.casefold()]
    if sort == "waiting":
        found.sort(key=lambda state: -(state.waiting or 0))
    elif sort == "age":
        found.sort(key=lambda state: -((state.metrics and state.metrics.oldest_age_ms) or 0))
    else:
        found = [state for state in found if state.name > after]
    shown = found[:QUEUES]
    more = shown[-1].name if len(found) > QUEUES and sort == "name" else None
    at = datetime.fromtimestamp(snapshot.at, UTC).isoformat(timespec="milliseconds")
    return QueuePage(at, [queue_document(state, settings) for state in shown], more)

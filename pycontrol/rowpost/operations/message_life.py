"""Put together what queues, delayed messages, failures, audit, outboxes and sagas know of one message, or of one
conversation.

    life = message_life(database, settings, "5f9c…")
    for fact in life.facts:
        print(fact.at, fact.kind, fact.text)

Everything is read, nothing is locked or changed. Of each queue the newest messages are looked through, so that no queue
is scanned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from typing import Any

from rowpost.database.connection import Connection, connect
from rowpost.deploy.plan import business_settings
from rowpost.errors import FeatureMissing, PermissionDenied, QueueNotFound, RowpostError
from rowpost.sagas.instances import find_instance
from rowpost.settings.environment import Settings
from rowpost.transport.delayed_messages import DelayedMessage, DelayedMessages
from rowpost.transport.directory import local_or_as_given
from rowpost.transport.failed_message import FailedMessage
from rowpost.transport.leases import LeasedMessage, leased_messages
from rowpost.transport.message_search import LOOK_THROUGH, FoundMessage, row_id, search
from rowpost.transport.supervisors import supervisors_of
from rowpost.wire.conversation import ConversationStep
from rowpost.wire.headers import (
    CONVERSATION_ID,
    ENCLOSED_MESSAGE_TYPES,
    EXCEPTION_TYPE,
    INVOKED_SAGAS,
    MESSAGE_ID,
    MESSAGE_INTENT,
    ORIGINATING_ENDPOINT,
    PROCESSING_ENDED,
    PROCESSING_ENDPOINT,
    PROCESSING_MACHINE,
    PROCESSING_STARTED,
    RELATED_TO,
    SAGA_ID,
    SAGA_TYPE,
    TIME_OF_FAILURE,
    TIME_SENT,
)
from rowpost.wire.message import Headers, parse_timestamp
from rowpost.wire.message_types import first_type, without_assembly

__all__ = ["Conversation", "Fact", "FactKind", "MessageLife", "conversation", "message_life"]

#: delayed messages of each queue that are read, those that are due next
DELAYED = 1000
MILLISECONDS = 1000


class FactKind(StrEnum):
    """What a fact is about."""

    SENT = "sent"
    WAITING = "waiting"
    IN_FLIGHT = "in flight"
    DELAYED = "delayed"
    ATTEMPTS = "attempts"
    FAILED = "failed"
    HANDLED = "handled"
    OUTBOX = "outbox"
    SAGA = "saga"
    CAUSED = "caused"


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that is known of a message.

    Attributes:
        place: the queue, the endpoint or the saga that knows it.
        text: what is known.
        at: when, in UTC; None if there is no time.
        row_version: of the row in the queue `place`; None for other kinds.
        related: id of another message, of a delayed message or of a saga's instance that the fact names; empty if there
            is none.
    """

    kind: FactKind
    place: str
    text: str
    at: datetime | None = None
    row_version: int | None = None
    related: str = ""


@dataclass(frozen=True, slots=True)
class MessageLife:
    """What is known of a message.

    Attributes:
        message_id: the message's id, also if the id of a row was asked for.
        message_type: the first of its types; empty if it is unknown.
        conversation_id: empty if it is unknown.
        facts: in the order of time; those without a time last.
        unfinished: queues with older messages that were not looked through.
        unseen: queues and other places that the login may not read, or that did not answer.
    """

    message_id: str
    message_type: str
    conversation_id: str
    facts: tuple[Fact, ...]
    unfinished: tuple[str, ...]
    unseen: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Conversation:
    """The messages of a conversation, in the order in which they were sent.

    `unfinished` and `unseen` as in MessageLife.
    """

    conversation_id: str
    steps: tuple[ConversationStep, ...]
    unfinished: tuple[str, ...]
    unseen: tuple[str, ...]


def message_life(
    database: Connection, settings: Settings, wanted: str, *, look_through: int | None = LOOK_THROUGH
) -> MessageLife:
    """Return what the environment's databases know of a message.

    Args:
        wanted: the id of the message, or of its row.
        look_through: messages of each queue at most; None: all.

    Raises:
        InvalidCount: the id is no id.
    """
    queues = _own_queues(database)
    found = search(database, [row.queue_name for row in queues], wanted, look_through=look_through)
    unseen = list(found.unseen)
    held = [
        each for each in _leased(database, queues, unseen) if wanted in each.headers.values() or _holds(each, wanted)
    ]
    later = [each for each in _delayed(database, queues, unseen) if wanted in each[1].headers.values()]
    own = [each for each in found.messages if _is(each, wanted)]
    message_id = next(
        (each.headers.get(MESSAGE_ID) or wanted for each in own),
        next((each.message_id for each in held if _holds(each, wanted)), wanted),
    )
    headers: Headers = next(
        (each.headers for each in own),
        next(
            (each.headers for each in held if _holds(each, wanted)),
            next((each.headers for _, each in later if each.message_id == wanted), {}),
        ),
    )
    rows = {
        wanted.lower(),
        *(str(each.message.id) for each in own),
        *(each.id for each in held if _holds(each, wanted)),
    }
    facts = [
        *_sent(headers),
        *(_of_row(database, each, settings) for each in own),
        *(
            _caused(each.queue, each.headers)
            for each in found.messages
            if not _is(each, wanted) and each.headers.get(RELATED_TO) == message_id
        ),
        *(
            _of_delayed(queue, each, message_id)
            for queue, each in later
            if message_id in (each.message_id, each.headers.get(RELATED_TO))
        ),
        *(
            _of_lease(each, message_id)
            for each in held
            if message_id in (each.message_id, each.headers.get(RELATED_TO))
        ),
        *_attempts(database, rows, unseen),
        *_in_flight(database, rows, unseen),
        *_outboxes(settings, _endpoints(own, queues), message_id, unseen),
        *_sagas(database, own),
    ]
    return MessageLife(
        message_id,
        _type(headers),
        headers.get(CONVERSATION_ID) or "",
        tuple(sorted(facts, key=lambda fact: (fact.at is None, fact.at))),
        tuple(found.unfinished),
        tuple(dict.fromkeys(unseen)),
    )


def conversation(
    database: Connection, conversation_id: str, *, look_through: int | None = LOOK_THROUGH
) -> Conversation:
    """Return the messages of a conversation in the queues of a database, with their audit copies.

    Raises InvalidCount as message_life.
    """
    queues = _own_queues(database)
    found = search(database, [row.queue_name for row in queues], conversation_id, look_through=look_through)
    unseen = list(found.unseen)
    steps = [
        _step(each.queue, each.headers)
        for each in found.messages
        if each.headers.get(CONVERSATION_ID) == conversation_id
    ]
    steps += [
        _step(queue, each.headers, "delayed")
        for queue, each in _delayed(database, queues, unseen)
        if each.headers.get(CONVERSATION_ID) == conversation_id
    ]
    steps += [
        _step(each.queue, each.headers, "in flight")
        for each in _leased(database, queues, unseen)
        if each.headers.get(CONVERSATION_ID) == conversation_id
    ]
    ordered = sorted(steps, key=lambda step: (step.time_sent is None, step.time_sent))
    return Conversation(conversation_id, tuple(ordered), tuple(found.unfinished), tuple(dict.fromkeys(unseen)))


# ---------------------------------------------------------------------------------------------- queues
def _own_queues(database: Connection) -> list[Any]:
    return [row for row in database.call("list_queues") if row.kind != "external"]


def _delayed(database: Connection, queues: Iterable[Any], unseen: list[str]) -> Iterator[tuple[str, DelayedMessage]]:
    for row in queues:
        if row.delayed:
            try:
                found = DelayedMessages(row.queue_name, database).browse(DELAYED, max_body_bytes=0)
            except (PermissionDenied, QueueNotFound, FeatureMissing):
                unseen.append(f"{row.queue_name}, delayed messages")
                continue
            yield from ((row.queue_name, each) for each in found)


def _leased(database: Connection, queues: Iterable[Any], unseen: list[str]) -> Iterator[LeasedMessage]:
    for row in queues:
        if row.lease:
            try:
                yield from leased_messages(database, row.queue_name)
            except (PermissionDenied, QueueNotFound):
                unseen.append(f"{row.queue_name}, leased messages")


def _holds(leased: LeasedMessage, wanted: str) -> bool:
    return leased.message_id == wanted or leased.id == wanted.lower()


def _of_lease(leased: LeasedMessage, message_id: str) -> Fact:
    if leased.message_id != message_id:
        return _caused(leased.queue, leased.headers)
    progress = f"; {leased.progress}" if leased.progress else ""
    return Fact(
        FactKind.IN_FLIGHT,
        leased.queue,
        f"leased by {leased.owner} then, until {leased.due:%Y-%m-%d %H:%M:%S} UTC unless renewed{progress}",
        leased.since,
    )


def _is(found: FoundMessage, wanted: str) -> bool:
    return found.headers.get(MESSAGE_ID) == wanted or str(found.message.id) == wanted.lower()


def _sent(headers: Headers) -> Iterator[Fact]:
    if headers.get(TIME_SENT):
        sender = headers.get(ORIGINATING_ENDPOINT) or "an unknown endpoint"
        cause = f", because of the message {headers[RELATED_TO]}" if headers.get(RELATED_TO) else ""
        yield Fact(
            FactKind.SENT,
            sender,
            f"{headers.get(MESSAGE_INTENT) or 'Send'} by {sender}{cause}",
            _time(headers, TIME_SENT),
            related=headers.get(RELATED_TO) or "",
        )


def _of_row(database: Connection, found: FoundMessage, settings: Settings) -> Fact:
    headers, row = found.headers, found.message.row_version
    if headers.get(PROCESSING_ENDED):
        who = (
            f"{headers.get(PROCESSING_ENDPOINT) or 'an endpoint'} on "
            f"{headers.get(PROCESSING_MACHINE) or 'an unknown machine'}"
        )
        took = _took_ms(headers)
        return Fact(
            FactKind.HANDLED,
            found.queue,
            f"handled by {who}" + ("" if took is None else f" in {took:,.1f} ms"),
            _time(headers, PROCESSING_ENDED),
            row,
        )
    if found.queue == settings.supervisor.error_queue or headers.get(EXCEPTION_TYPE):
        failed = FailedMessage(found.message, partial(local_or_as_given, database))
        why = f"{failed.exception_type or 'no exception'}: {failed.exception_message}".rstrip(": ")
        return Fact(
            FactKind.FAILED,
            found.queue,
            f"failed in {failed.failed_in or 'an unknown queue'}: {why}",
            _time(headers, TIME_OF_FAILURE),
            row,
        )
    return Fact(
        FactKind.WAITING,
        found.queue,
        "expired, not removed yet" if found.message.expired else "waiting",
        row_version=row,
    )


def _caused(queue: str, headers: Headers) -> Fact:
    what = f"{_type(headers) or 'a message'} to {headers.get(PROCESSING_ENDPOINT) or queue}"
    return Fact(
        FactKind.CAUSED,
        queue,
        f"its handler sent {what}",
        _time(headers, TIME_SENT),
        related=headers.get(MESSAGE_ID) or "",
    )


def _of_delayed(queue: str, delayed: DelayedMessage, message_id: str) -> Fact:
    if delayed.message_id == message_id:
        return Fact(FactKind.DELAYED, queue, "delayed, due then", delayed.due, related=delayed.key)
    return _caused(queue, delayed.headers)


# ---------------------------------------------------------------------------------------------- other tables
def _attempts(database: Connection, rows: Iterable[str], unseen: list[str]) -> Iterator[Fact]:
    try:
        for row in filter(None, map(row_id, sorted(rows))):
            for failure in database.call("list_failures", id=row):
                yield Fact(
                    FactKind.ATTEMPTS,
                    failure.queue_name,
                    f"{failure.attempts} failed attempts, the last one then",
                    failure.failed_at.replace(tzinfo=UTC),
                )
    except PermissionDenied:
        unseen.append("failed attempts")


def _in_flight(database: Connection, rows: set[str], unseen: list[str]) -> Iterator[Fact]:
    try:
        supervisors = supervisors_of(database)
    except PermissionDenied:
        unseen.append("workers")
        return
    for each in supervisors:
        for worker in each.workers if not each.gone else ():
            if worker.message in rows:
                seconds = (worker.message_seconds or 0.0) + each.silent
                yield Fact(
                    FactKind.IN_FLIGHT,
                    worker.queue,
                    f"a handler has run for {seconds:,.1f} s in process {worker.process_id} on {each.host}",
                )


def _endpoints(own: Iterable[FoundMessage], queues: Iterable[Any]) -> list[str]:
    """Return the endpoints whose outboxes may know the message: those that it names, and those that are named as own
    queues.
    """
    named = (each.headers.get(PROCESSING_ENDPOINT) for each in own)
    return list(dict.fromkeys([*filter(None, named), *(row.queue_name for row in queues)]))


def _outboxes(settings: Settings, endpoints: Sequence[str], message_id: str, unseen: list[str]) -> Iterator[Fact]:
    for outbox in settings.outboxes:
        try:
            with connect(business_settings(settings, outbox), application_name="rowpost message") as business:
                for endpoint in endpoints:
                    for row in business.call("read_handled", endpoint=endpoint, message_id=message_id):
                        sent = "its messages are sent" if row.sent else "its messages are not sent yet"
                        yield Fact(
                            FactKind.OUTBOX,
                            outbox.name,
                            f"handled by {endpoint} according to the outbox; {sent}",
                            row.handled_at.replace(tzinfo=UTC),
                        )
        except RowpostError:
            unseen.append(f"the outbox {outbox.name}")


def _sagas(database: Connection, own: Iterable[FoundMessage]) -> Iterator[Fact]:
    invoked = {pair for each in own for pair in _invoked(each.headers)}
    if not invoked:
        return
    try:
        tables = {row.saga_name: row.correlation_name for row in database.call("list_saga_types")}
    except (FeatureMissing, PermissionDenied):
        tables = {}
    for saga, instance in sorted(invoked):
        yield Fact(
            FactKind.SAGA, saga, f"for the instance {instance}{_state(database, tables, instance)}", related=instance
        )


def _invoked(headers: Headers) -> Iterator[tuple[str, str]]:
    """Yield the sagas that a message names, with the ids of their instances."""
    for text in filter(None, (headers.get(INVOKED_SAGAS) or "").split(";")):
        name, _, instance = text.rpartition(":")
        yield name, instance
    if headers.get(SAGA_ID) and headers.get(SAGA_TYPE):
        yield without_assembly(headers[SAGA_TYPE] or ""), headers[SAGA_ID] or ""


def _state(database: Connection, tables: dict[str, str], instance: str) -> str:
    """Say whether an instance goes on.

    Its table's name is its declaration's, so that it is looked for in all of them.
    """
    try:
        for table, correlation in tables.items():
            found = find_instance(database, table, correlation, instance)
            if found is not None:
                return f", {correlation} {found['instance']}, which goes on"
    except PermissionDenied:
        return ""
    return ", which is complete" if tables else ""


# ---------------------------------------------------------------------------------------------- headers
def _step(queue: str, headers: Headers, state: str = "") -> ConversationStep:
    failed, handled = bool(headers.get(EXCEPTION_TYPE)), bool(headers.get(PROCESSING_ENDED))
    return ConversationStep(
        headers.get(MESSAGE_ID),
        headers.get(RELATED_TO),
        _type(headers) or None,
        headers.get(MESSAGE_INTENT),
        headers.get(ORIGINATING_ENDPOINT),
        headers.get(PROCESSING_ENDPOINT) or queue,
        _time(headers, TIME_SENT),
        failed,
        _took_ms(headers),
        state or ("" if failed or handled else "waiting"),
    )


def _type(headers: Headers) -> str:
    return first_type(headers.get(ENCLOSED_MESSAGE_TYPES))


def _time(headers: Headers, name: str) -> datetime | None:
    try:
        return parse_timestamp(headers.get(name) or "")
    except ValueError:
        return None


def _took_ms(headers: Headers) -> float | None:
    started, ended = _time(headers, PROCESSING_STARTED), _time(headers, PROCESSING_ENDED)
    return None if started is None or ended is None else (ended - started).total_seconds() * MILLISECONDS

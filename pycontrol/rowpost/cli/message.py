"""rowpost send, publish and receive, and the headers of a message that is sent by hand."""

from __future__ import annotations

import os
import socket
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from rowpost.cli.command import QueueArgument
from rowpost.cli.exits import CommandInterrupted, ExitCode, Refused
from rowpost.cli.formats import parse_duration
from rowpost.cli.printing import message_document, print_message, visible
from rowpost.cli.session import Session
from rowpost.database.connection import Connection
from rowpost.errors import MessageCorrupt
from rowpost.operations.subscriptions import subscriptions
from rowpost.transport.directory import Directory
from rowpost.transport.dispatch import dispatch
from rowpost.transport.queue import Queue
from rowpost.wire.address import parse_address
from rowpost.wire.headers import (
    CONTENT_TYPE,
    CONVERSATION_ID,
    CORRELATION_ID,
    DELIVER_AT,
    ENCLOSED_MESSAGE_TYPES,
    MESSAGE_ID,
    MESSAGE_INTENT,
    ORIGINATING_ENDPOINT,
    ORIGINATING_MACHINE,
    REPLY_TO_ADDRESS,
    TIME_SENT,
)
from rowpost.wire.message import Message, OutgoingMessage, decode_headers, format_timestamp, moment_after
from rowpost.wire.message_types import split_enclosed_types, type_key
from rowpost.wire.outgoing import AddressedMessage

__all__ = ["Envelope", "content_type", "publish", "read_header_options", "read_headers_file", "receive", "send"]

#: messages that one call of receive_messages returns at most
RECEIVE_BATCH = 500

FileArgument = Annotated[str, typer.Argument(metavar="FILE|-", help="The file with the body, or - for standard input.")]
BodyOption = Annotated[str | None, typer.Option("--body", help="The body as text instead of a file.")]
HeaderOption = Annotated[
    list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header. May be repeated.")
]
HeadersOption = Annotated[
    Path | None, typer.Option("--headers", metavar="FILE", help="A JSON file with headers: an object of strings.")
]
SenderOption = Annotated[str, typer.Option("--from", metavar="ENDPOINT", help="The originating endpoint.")]


def send(
    session: Session,
    queue: QueueArgument,
    file: FileArgument = "-",
    body: BodyOption = None,
    type_name: Annotated[
        str | None,
        typer.Option("--type", "-t", metavar="TYPE", help="The message type, such as Shop.Messages.PlaceOrder."),
    ] = None,
    header: HeaderOption = None,
    headers: HeadersOption = None,
    reply_to: Annotated[str | None, typer.Option("--reply-to", metavar="QUEUE", help="The reply queue.")] = None,
    sender: SenderOption = "rowpost",
    time_to_be_received: Annotated[
        timedelta | None,
        typer.Option(
            "--time-to-be-received",
            metavar="DURATION",
            parser=parse_duration,
            help="Expire after this time, such as 90s, 5m, 1h30m or 60d.",
        ),
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Send only the headers that are given, without the defaults.")
    ] = False,
    lines: Annotated[
        bool, typer.Option("--lines", help="Send every line of the file as one message, all in one transaction.")
    ] = False,
    delay: Annotated[
        timedelta | None,
        typer.Option(
            "--delay", metavar="DURATION", parser=parse_duration, help="Handle it after this time, such as 90s or 2h."
        ),
    ] = None,
) -> None:
    """Send a message with the headers that an NServiceBus endpoint needs. With --raw, send only the given headers."""
    given = _given(header, headers)
    if reply_to is not None:
        with session.connected() as database:
            reply_to = database.canonical(parse_address(session.name(reply_to)))
    envelope = Envelope(
        given, raw=raw, type_name=type_name, sender=sender, reply_to=reply_to, machine=socket.gethostname()
    )
    if delay is not None:
        if lines or time_to_be_received is not None:
            other = "--lines" if lines else "--time-to-be-received"
            raise Refused(f"--delay cannot be combined with {other}. Leave one of them out.", ExitCode.USAGE)
        _send_later(session, queue, envelope, _read_body(session, file, body), delay)
        return
    make = partial(_outgoing, envelope, time_to_be_received)
    if lines:
        if body is not None:
            raise Refused("--lines reads the bodies from a file: remove --body.", ExitCode.USAGE)
        _send_lines(session, queue, file, make)
    else:
        _send_one(session, queue, make(_read_body(session, file, body)))


def publish(
    session: Session,
    event_type: Annotated[
        str,
        typer.Argument(
            metavar="TYPE",
            help="The event's type, such as Shop.Messages.OrderPlaced; with its base types: 'Shop.A;Shop.B'.",
        ),
    ],
    file: FileArgument = "-",
    body: BodyOption = None,
    header: HeaderOption = None,
    headers: HeadersOption = None,
    sender: SenderOption = "rowpost",
) -> None:
    """Publish an event: each subscriber of its types gets a copy. All of them are stored in one transaction."""
    given = _given(header, headers)
    topics = tuple(split_enclosed_types(event_type))
    if not topics:
        raise Refused("The type is empty. Name the event's type, such as Shop.Messages.OrderPlaced.", ExitCode.USAGE)
    machine = socket.gethostname()
    envelope = Envelope(given, type_name=";".join(topics), sender=sender, machine=machine, intent="Publish")
    content = _read_body(session, file, body)
    event = envelope.headers(content, message_id=str(uuid.uuid4()), now=datetime.now(UTC))
    with session.deployed() as database:
        keys = {type_key(topic) for topic in topics}
        subscribers = {each.queue for each in subscriptions(database) if type_key(each.topic) in keys}
        _dispatch(session, database, AddressedMessage(event, content, topics=topics), "nothing was published")
    document = {"message_id": event[MESSAGE_ID], "topics": topics, "subscribers": len(subscribers)}
    who = f"{len(subscribers)} subscribers" if subscribers else "no subscriber, so that nobody gets it"
    session.answer(document, f"Published {event[MESSAGE_ID]} to {who}.")


def _given(header: Iterable[str] | None, headers: Path | None) -> dict[str, str | None]:
    """Return the headers that a caller gives, by options and in a file."""
    return {**(read_headers_file(headers) if headers else {}), **read_header_options(header or ())}


def _send_later(session: Session, name: str, envelope: Envelope, body: bytes, delay: timedelta) -> None:
    headers = envelope.headers(body, message_id=str(uuid.uuid4()), now=datetime.now(UTC))
    headers.setdefault(DELIVER_AT, format_timestamp(moment_after(delay)))
    with session.deployed() as database:
        queue = session.queue(name, database)
        _dispatch(session, database, AddressedMessage(headers, body, queue.name, delay=delay), "nothing was sent")
    message_id, due = headers.get(MESSAGE_ID), headers[DELIVER_AT]
    document = {"queue": queue.name, "message_id": message_id, "deliver_at": due, "body_bytes": len(body)}
    session.answer(document, f"Sent {message_id or 'it'} to {queue.name}, to be handled at {due}.")


def _dispatch(session: Session, database: Connection, addressed: AddressedMessage, interrupted: str) -> None:
    try:
        with session.unit(database):
            dispatch(database, [[addressed]], Directory(), own_queue=None)
    except KeyboardInterrupt:
        raise CommandInterrupted(interrupted) from None


def _outgoing(envelope: Envelope, time_to_be_received: timedelta | None, body: bytes) -> OutgoingMessage:
    headers = envelope.headers(body, message_id=str(uuid.uuid4()), now=datetime.now(UTC))
    return OutgoingMessage(body, headers, uuid.uuid4(), time_to_be_received)


def _read_body(session: Session, file: str, body: str | None) -> bytes:
    if body is not None:
        if file != "-":
            raise Refused("The body is given twice: remove the file or --body.", ExitCode.USAGE)
        return body.encode("utf-8", "surrogateescape")
    with _open_body(session, file) as stream:
        return stream.read()


def _open_body(session: Session, file: str) -> BinaryIO:
    if file != "-":
        try:
            return open(file, "rb")
        except OSError as error:
            raise typer.BadParameter(f"{file}: {error.strerror}", param_hint="FILE") from error
    if sys.stdin.isatty():
        session.note("Type the body. End it with Ctrl-D.")
    return open(sys.stdin.fileno(), "rb", closefd=False)


def _send_one(session: Session, name: str, message: OutgoingMessage) -> None:
    with session.deployed() as database:
        queue = session.queue(name, database)
        try:
            with session.unit(database):
                queue.send(
                    message.body, message.headers, id=message.id, time_to_be_received=message.time_to_be_received
                )
        except KeyboardInterrupt:
            raise CommandInterrupted(f"nothing was sent to {queue.name}") from None
    message_id = decode_headers(message.raw_headers).get(MESSAGE_ID)
    size = len(message.body or b"")
    document = {"queue": queue.name, "id": str(message.id), "message_id": message_id, "body_bytes": size}
    session.answer(document, f"Sent {message_id or message.id} to {queue.name}.")


def _send_lines(session: Session, name: str, file: str, make: partial[OutgoingMessage]) -> None:
    with _open_body(session, file) as stream, session.deployed() as database:
        queue = session.queue(name, database)
        size = os.fstat(stream.fileno()).st_size if file != "-" else None
        try:
            with session.progress() as bar, session.unit(database):
                task = bar.add_task(f"Sending to {queue.name} (bytes read)", total=size)
                sent = queue.send_many(
                    (make(line) for line in _read_lines(stream)),
                    progress=lambda _: bar.update(task, completed=stream.tell() if size is not None else None),
                )
        except KeyboardInterrupt:
            raise CommandInterrupted(f"nothing was sent to {queue.name}") from None
    session.answer({"queue": queue.name, "sent": sent}, f"Sent {sent:,} messages to {queue.name}.")


def _read_lines(stream: BinaryIO) -> Iterator[bytes]:
    while line := stream.readline():
        line = line.rstrip(b"\r\n")
        if line:
            yield line


def receive(
    session: Session,
    queue: QueueArgument,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Maximum number of messages.")] = 1,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FOLDER",
            file_okay=False,
            help="Write bodies and headers to files in this folder.",
        ),
    ] = None,
) -> None:
    """Receive messages and print them. A message is removed only after it was printed."""
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
    received = 0
    with session.deployed() as database:
        source = session.queue(queue, database)
        try:
            while received < count:
                wanted = min(count - received, RECEIVE_BATCH)
                with session.unit(database) as interrupts:
                    messages = source.receive(wanted)
                    _show(session, source, messages, output)
                received += len(messages)
                if len(messages) < wanted:
                    break
                interrupts.check()
        except KeyboardInterrupt:
            done = f"{received:,} received from {source.name}"
            raise CommandInterrupted(f"{done}; other messages that were printed are still in the queue") from None
    if not session.as_json:
        session.note(f"Received {received:,} from {source.name}." if received else f"{source.name} is empty.")


def _show(session: Session, queue: Queue, messages: Sequence[Message], output: Path | None) -> None:
    for message in messages:
        files = {} if output is None else _write(output, message)
        if session.as_json:
            document = message_document(queue.name, message)
            if files:
                document = {key: value for key, value in document.items() if not key.startswith("body_base")}
                document.pop("body", None)
            session.document({**document, **files})
        elif files:
            session.out.print(visible(files["body_file"]), soft_wrap=True)
        else:
            print_message(session.out, message)
    sys.stdout.flush()


def _write(folder: Path, message: Message) -> dict[str, str]:
    """Write body and headers to two files and flush them to disk, because the receive commits afterwards."""
    stem = f"{message.row_version:012d}-{message.id}"
    files = {"body_file": folder / f"{stem}.body", "headers_file": folder / f"{stem}.headers.json"}
    for path, content in zip(files.values(), (message.body, message.raw_headers.encode()), strict=True):
        with path.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    return {name: str(path) for name, path in files.items()}


# ---------------------------------------------------------------------------------------------- headers
@dataclass(frozen=True)
class Envelope:
    """What all messages of one call share. `given` headers replace the defaults; `raw` adds no defaults.

    `intent` is the value of the header MessageIntent.
    """

    given: Mapping[str, str | None]
    raw: bool = False
    type_name: str | None = None
    sender: str = "rowpost"
    reply_to: str | None = None
    machine: str = ""
    intent: str = "Send"

    def headers(self, body: bytes, message_id: str, now: datetime) -> dict[str, str | None]:
        """Return the headers of one message."""
        if self.raw:
            return {**self._named(), **self.given}
        message_id = self.given.get(MESSAGE_ID) or message_id
        return {
            MESSAGE_ID: message_id,
            MESSAGE_INTENT: self.intent,
            CONTENT_TYPE: content_type(body),
            CONVERSATION_ID: message_id,
            CORRELATION_ID: message_id,
            ORIGINATING_ENDPOINT: self.sender,
            ORIGINATING_MACHINE: self.machine,
            TIME_SENT: format_timestamp(now),
            **self._named(),
            **self.given,
        }

    def _named(self) -> dict[str, str]:
        named = {ENCLOSED_MESSAGE_TYPES: self.type_name, REPLY_TO_ADDRESS: self.reply_to}
        return {name: value for name, value in named.items() if value is not None}


def content_type(body: bytes) -> str:
    """Guess a body's content type from its first character.

    >>> content_type(b' {"OrderId": 42}'), content_type(b"<order/>"), content_type(b"\\x00")
    ('application/json', 'text/xml', 'application/octet-stream')
    """
    first = body[:64].removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    return {b"{": "application/json", b"[": "application/json", b"<": "text/xml"}.get(first, "application/octet-stream")


def read_header_options(options: Iterable[str]) -> dict[str, str]:
    """Parse NAME=VALUE options. Raises typer.BadParameter.

    >>> read_header_options(["Shop.Region=EU", "Shop.Note=a=b"])
    {'Shop.Region': 'EU', 'Shop.Note': 'a=b'}
    """
    headers: dict[str, str] = {}
    for option in options:
        name, equals, value = option.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{option!r} is not a header: write NAME=VALUE", param_hint="--header")
        if name in headers:
            raise typer.BadParameter(f"the header {name!r} is given twice", param_hint="--header")
        headers[name] = value
    return headers


def read_headers_file(path: Path) -> dict[str, str | None]:
    """Read a JSON object of strings and nulls, as `receive --output` writes it. Raises typer.BadParameter."""
    try:
        return decode_headers(path.read_text(encoding="utf-8-sig").strip())
    except (OSError, UnicodeDecodeError, MessageCorrupt) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise typer.BadParameter(f"{path}: {reason}", param_hint="--headers") from error

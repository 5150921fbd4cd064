"""rowpost send and receive."""

from __future__ import annotations

import os
import socket
import sys
import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from rowpost.cli.command import command
from rowpost.cli.durations import parse_duration
from rowpost.cli.exits import ExitCode, Interrupted, Refused
from rowpost.cli.outgoing import Envelope, read_header_options, read_headers_file
from rowpost.cli.printing import message_document, print_message, visible
from rowpost.cli.queue import QueueArgument
from rowpost.cli.session import Session
from rowpost.transport.queue import Queue
from rowpost.wire.headers import MESSAGE_ID
from rowpost.wire.message import Message, OutgoingMessage

__all__ = ["register"]

#: what one receive_messages takes
RECEIVE_BATCH = 500


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    command(app, "send")(send)
    command(app, "receive")(receive)


def send(
    session: Session,
    queue: QueueArgument,
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="The body: a file, or - for standard input.")] = "-",
    body: Annotated[str | None, typer.Option("--body", help="The body as text, instead of a file.")] = None,
    type_name: Annotated[
        str | None,
        typer.Option("--type", "-t", metavar="TYPE", help="The message's type, such as Shop.Messages.PlaceOrder."),
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header; may be repeated.")
    ] = None,
    headers: Annotated[
        Path | None, typer.Option("--headers", metavar="FILE", help="Headers from a file: a JSON object of texts.")
    ] = None,
    reply_to: Annotated[str | None, typer.Option("--reply-to", metavar="QUEUE", help="Where replies shall go.")] = None,
    sender: Annotated[str, typer.Option("--from", metavar="ENDPOINT", help="The originating endpoint.")] = "rowpost",
    time_to_be_received: Annotated[
        timedelta | None,
        typer.Option(
            "--time-to-be-received",
            metavar="SPAN",
            parser=parse_duration,
            help="Expires after it: 90s, 5m, 1h30m, 60d.",
        ),
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Add no header: only those that are given.")] = False,
    lines: Annotated[
        bool, typer.Option("--lines", help="Every line of the file is a message; all are sent or none.")
    ] = False,
) -> None:
    """Send a message; it gets the headers that an NServiceBus endpoint needs, unless --raw."""
    given = {**(read_headers_file(headers) if headers else {}), **read_header_options(header or ())}
    envelope = Envelope(
        given, raw=raw, type_name=type_name, sender=sender, reply_to=reply_to, machine=socket.gethostname()
    )
    make = partial(_outgoing, envelope, time_to_be_received)
    if lines:
        if body is not None:
            raise Refused("--lines reads a file: leave --body out.", ExitCode.USAGE)
        _send_lines(session, queue, file, make)
    else:
        _send_one(session, queue, make(_read_body(session, file, body)))


def _outgoing(envelope: Envelope, time_to_be_received: timedelta | None, body: bytes) -> OutgoingMessage:
    headers = envelope.headers(body, message_id=str(uuid.uuid4()), now=datetime.now(UTC))
    return OutgoingMessage(body, headers, uuid.uuid4(), time_to_be_received)


def _read_body(session: Session, file: str, body: str | None) -> bytes:
    if body is not None:
        if file != "-":
            raise Refused("Give the body once: as a file, or with --body.", ExitCode.USAGE)
        return body.encode("utf-8", "surrogateescape")
    with _opened(session, file) as stream:
        return stream.read()


def _opened(session: Session, file: str) -> BinaryIO:
    if file != "-":
        try:
            return open(file, "rb")
        except OSError as error:
            raise typer.BadParameter(f"{file}: {error.strerror}", param_hint="FILE") from error
    if sys.stdin.isatty():
        session.note("Type the body; Ctrl-D ends it.")
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
            raise Interrupted(f"nothing was sent to {queue.name}") from None
    message_id = message.headers.get(MESSAGE_ID)
    if session.as_json:
        size = len(message.body)
        session.document({"queue": queue.name, "id": str(message.id), "message_id": message_id, "body_bytes": size})
    else:
        session.note(f"Sent {message_id or message.id} to {queue.name}.")


def _send_lines(session: Session, name: str, file: str, make: partial[OutgoingMessage]) -> None:
    with _opened(session, file) as stream, session.deployed() as database:
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
            raise Interrupted(f"nothing was sent to {queue.name}") from None
    if session.as_json:
        session.document({"queue": queue.name, "sent": sent})
    else:
        session.note(f"Sent {sent:,} messages to {queue.name}.")


def _read_lines(stream: BinaryIO) -> Iterator[bytes]:
    while line := stream.readline():
        line = line.rstrip(b"\r\n")
        if line:
            yield line


def receive(
    session: Session,
    queue: QueueArgument,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="How many at most.")] = 1,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FOLDER", file_okay=False, help="Write bodies and headers into files here."
        ),
    ] = None,
) -> None:
    """Take messages out of a queue and print them; each is printed before it is gone."""
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
            raise Interrupted(f"{done}; whatever else was printed is still in the queue") from None
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
    """Body and headers as two files, safe on the disk before the receive commits."""
    stem = f"{message.row_version:012d}-{message.id}"
    files = {"body_file": folder / f"{stem}.body", "headers_file": folder / f"{stem}.headers.json"}
    for path, content in zip(files.values(), (message.body, message.raw_headers.encode()), strict=True):
        with path.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    return {name: str(path) for name, path in files.items()}

"""Random input: for the functions that read what others wrote, and for workers."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg

from rowpost.deploy.sql_text import SqlTextError, split_batches
from rowpost.errors import RowpostError
from rowpost.recoverability.policy import Host, failure_headers
from rowpost.settings.environment import load_settings
from rowpost.wire.address import parse_address, queue_key
from rowpost.wire.json_serializer import JsonSerializer
from rowpost.wire.message import decode_headers, encode_headers, format_timestamp, parse_timestamp, storable
from rowpost.wire.message_types import split_enclosed_types
from tests.support.campaign.kinds import Result, site_of
from tests.support.campaign.site import Stuck
from tests.support.crashing import TYPE

__all__ = ["functions", "workers"]

PIECES = [
    "", "@", "[", "]", "]]", "[]", "@[dbo]", '"', '""', '"."', ".", "'", ";", "--", "\0", "\\u0000", "\\ud800", "\ud800", "é", "漢", "\U0001f680",
    "{", "}", "{}", "[[", ":", ",", "null", "true", "1e999", "-0", "9" * 30, " ", "\n", "\r\n", "\t", "GO\n", "$$", "$a$", "/*", "*/", "\\", "%", "x" * 300,
    "NServiceBus.MessageId", "2026-01-01 00:00:00:000000 Z", "!!python/object", "&a", "*a", "? ", "|\n", "- ", "<<: *a", "\ufeff", "\x85", "\u2028",
]  # fmt: skip
ENVIRONMENT = """environment: shop
engine: postgresql
url: postgresql://a:${SECRET}@h/d
features: [spark]
queues:
  Sales: {delayed: true, worker: {handler: "shop.app:sales", limit: 3, peek_delay: 0.5}}
  "Orders@[eu]": {}
  error: {}
supervisor: {breaker_seconds: 1.0, error_queue: error}
participants: {shop: {url: "postgresql://h/s"}}
"""


def mutated(text: str, dice: random.Random) -> str:
    """Change a text in one to four places."""
    for _ in range(dice.randrange(1, 5)):
        at = dice.randrange(len(text) + 1)
        to = min(len(text), at + dice.randrange(4))
        match dice.randrange(5):
            case 0:
                text = text[:at] + text[to:]
            case 1:
                text = text[:at] + dice.choice(PIECES) + text[at:]
            case 2:
                text = text[:at] + dice.choice(PIECES) + text[to:]
            case 3:
                text = text[:to] + text[at:to] * dice.randrange(1, 4) + text[to:]
            case _:
                text = (
                    text[:at]
                    + chr(dice.choice((dice.randrange(128), dice.randrange(0x3000), dice.randrange(0x10000))))
                    + text[to:]
                )
    return text


# ---------------------------------------------------------------------- functions
def _address(text: str) -> None:
    address = parse_address(text)
    assert address.catalog is not None or parse_address(address.format()) == address, address
    queue_key(address, "postgresql")


NOW = datetime(2026, 1, 1, tzinfo=UTC)


def _headers(text: str) -> None:
    headers = decode_headers(text)
    kept = storable(headers)
    assert decode_headers(encode_headers(kept)) == kept
    encode_headers(
        failure_headers(headers, ValueError(text), queue="Sales", host=Host("Sales", "here"), at=NOW, message_id="1")
    )


def _timestamp(text: str) -> None:
    try:
        assert format_timestamp(parse_timestamp(text)) == text
    except ValueError:
        return


def _types(text: str) -> None:
    list(split_enclosed_types(text))


@dataclass
class _Line:
    product: str
    count: int = 1
    price: float | None = None


def _body(text: str) -> None:
    JsonSerializer().decode(text.encode("utf-8", "surrogatepass"), _Line)


def _sql(text: str) -> None:
    for engine in ("postgresql", "sqlserver"):
        with suppress(SqlTextError):
            split_batches(text, engine)


def _environment(text: str, folder: Path) -> None:
    path = folder / "x.yml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    load_settings(path, offline=True)


#: each with examples, and how many of a thousand inputs it gets; an environment takes milliseconds
READERS: dict[str, tuple[Callable[[str], Any], int, list[str]]] = {
    "address": (
        _address,
        250,
        ["Sales", "Sales@[dbo]", "Sales@dbo@[cat]", '"public"."Sales"', "Sales@[a]]b]", "Sales.EU-1"],
    ),
    "headers": (
        _headers,
        240,
        ["", '{"NServiceBus.MessageId":"a","Shop.Note":null}', json.dumps({"a": "\u0000b", "c": "\\ud800"})],
    ),
    "time": (_timestamp, 170, ["2026-04-29 21:56:55:590807 Z", "0001-01-01 00:00:00:000000 Z"]),
    "types": (_types, 170, ["Shop.A, Shop, Version=1.0.0.0;Shop.B", TYPE, "A;;B"]),
    "body": (_body, 130, ['{"Product":"a","Count":2,"Price":1.5}', '{"product":"x"}', "\ufeff{}"]),
    "SQL text": (_sql, 30, ["SELECT 'a''b';\nGO\nSELECT $x$;$x$; -- a\n", "CREATE FUNCTION f() AS $$ BEGIN; END $$;"]),
    "environment": (_environment, 10, [ENVIRONMENT]),
}


def functions(times: int, dice: random.Random) -> Result:
    """Give random input to the functions that read what others wrote: each returns, or raises one of rowpost's errors."""
    result = Result()
    with TemporaryDirectory() as name:
        for what, (read, share, examples) in READERS.items():
            if read is _environment:
                read = lambda text: _environment(text, Path(name))  # noqa: E731
            for _ in range(times * share // 1000):
                text = mutated(dice.choice(examples), dice)
                result.done[what] += 1
                try:
                    read(text)
                except RowpostError:
                    continue
                except Exception as error:
                    result.wrong.append(f"{what} {text!r}: {type(error).__name__}: {error}"[:300])
                    if len(result.wrong) > 20:
                        return result
    return result


# ---------------------------------------------------------------------- workers
def workers(times: int, dice: random.Random) -> Result:
    """Put rows with random headers and bodies into a queue: each is handled, in the error queue or discarded with an event."""
    result = Result()
    with site_of("sends_atomic_with_receive") as (site, _):
        with psycopg.connect(site.server.url("queues"), autocommit=True) as database:
            insert = 'INSERT INTO public."Sales" (id, headers, body) VALUES (gen_random_uuid(), %s, %s)'
            with database.cursor() as cursor:
                for number in range(times):
                    body = f'{{"Number":{number}}}'
                    body = mutated(body, dice) if dice.random() < 0.3 else body
                    cursor.execute(insert, (_stored(_hostile_headers(dice)), body.encode("utf-8", "replace")))
        site.start()
        try:
            site.settle()
        except Stuck as stuck:
            result.wrong.append(str(stuck))
        finally:
            site.stop()
        with psycopg.connect(site.server.url("queues"), autocommit=True) as database:
            for what, text in {
                "rows handled": "SELECT count(*) FROM business",
                "rows in the error queue": "SELECT count(*) FROM public.error",
            }.items():
                result.done[what] = database.execute(text).fetchone()[0]
        result.done["rows discarded with an event"] = site.events("Discarded")
        result.done["rows"] = times
        told = (
            result.done["rows handled"]
            + result.done["rows in the error queue"]
            + result.done["rows discarded with an event"]
        )
        if told != times:
            result.wrong.append(f"{times} rows, and {told} of them handled, in the error queue or discarded")
        if site.ended:
            result.wrong.append(f"the service ended by itself: {site.ended}. Its last lines:\n{site.last_lines()}")
    return result


def _hostile_headers(dice: random.Random) -> str:
    headers = {
        "NServiceBus.MessageId": "a",
        "NServiceBus.EnclosedMessageTypes": TYPE,
        "NServiceBus.TimeSent": "2026-04-29 21:56:55:590807 Z",
    }
    for _ in range(dice.randrange(3)):
        name = dice.choice([*headers, *NAMES])
        headers[name] = mutated(headers.get(name) or "1", dice)
    text = json.dumps(headers, ensure_ascii=dice.random() < 0.5)
    return mutated(text, dice) if dice.random() < 0.3 else text


NAMES = [
    "NServiceBus.CorrelationId", "NServiceBus.ConversationId", "NServiceBus.ContentType", "NServiceBus.FLRetries", "NServiceBus.Retries",
    "NServiceBus.Retries.Timestamp", "NServiceBus.ReplyToAddress", "NServiceBus.MessageIntent", "NServiceBus.ControlMessage",
    "NServiceBus.TimeToBeReceived", "NServiceBus.ExceptionInfo.Message", "NServiceBus.FailedQ", "traceparent", "ServiceControl.Retry.UniqueMessageId",
]  # fmt: skip


def _stored(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", "")

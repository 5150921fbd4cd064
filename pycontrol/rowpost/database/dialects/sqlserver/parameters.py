"""The values of calls for SQL Server: what a procedure's parameters are there, and how many calls fit into one round
trip.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rowpost.database.contract import Parameter
from rowpost.database.dialects.protocol import Statement

__all__ = ["Call", "batched", "is_plain", "physical", "values_of"]

Call = tuple[Statement, dict[str, Any]]

_BATCH_TEXT, _BATCH_PARAMETERS = 3500, 2000  # characters (nvarchar holds 4000), and marks (the server takes 2100)


def physical(parameter: Parameter) -> tuple[tuple[str, str], ...]:
    """One parameter of the contract as the procedure's own."""
    if parameter.type == "messages":
        return (("messages", "text"), ("bodies", "binary"))
    return ((parameter.name, parameter.type),)


def _message_block(messages: Sequence[Any]) -> list[Any]:
    """Rows as one JSON array, and their bodies as one block of bytes that it points into."""
    entries, bodies, start = [], [], 1
    for ordinal, message in enumerate(messages):
        entry: dict[str, Any] = {"ordinal": ordinal, "headers": message.raw_headers}
        if message.body is not None:
            entry["body_start"], entry["body_length"] = start, len(message.body)
            bodies.append(message.body)
            start += len(message.body)
        for name in ("id", "time_to_be_received_ms", "correlation_id", "reply_to_address"):
            value = getattr(message, name, None)
            if value is not None:
                entry[name] = str(value) if name == "id" else value
        entries.append(entry)
    return [json.dumps(entries, ensure_ascii=False, separators=(",", ":")), b"".join(bodies)]


def values_of(statement: Statement, arguments: dict[str, Any]) -> list[Any]:
    """Return the values of a call's own parameters, in their order; None for those that were not given."""
    values: list[Any] = []
    for name, kind in statement.parameters:
        value: Any = arguments.get(name)
        if kind == "messages":
            values += _message_block(value)
        elif kind == "strings":
            values.append(None if value is None else json.dumps(list(value), ensure_ascii=False))
        else:
            values.append(value)
    return values


def batched(calls: Sequence[Call]) -> list[list[Call]]:
    """Divide calls into round trips: each has as many as the server's limit of parameters and a text of one page of
    nvarchar hold.
    """
    batches: list[list[Call]] = []
    text = marks = 0
    for call in calls:
        text, marks = text + len(call[0].text) + 1, marks + len(call[0].sizes)
        if not batches or text > _BATCH_TEXT or marks > _BATCH_PARAMETERS:
            batches.append([])
            text, marks = len(call[0].text) + 1, len(call[0].sizes)
        batches[-1].append(call)
    return batches


def is_plain(calls: Sequence[Call]) -> bool:
    """Whether all values are null, counts or flags: such calls need no parameters, so that BEGIN can be in their
    batch.
    """
    return all(
        arguments.get(name) is None or kind in ("integer", "boolean")
        for each, arguments in calls
        for name, kind in each.parameters
    )

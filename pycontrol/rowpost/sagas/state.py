"""Convert a saga's state to and from the JSON in its table, also after its class has changed.

Fields are named as in messages: `order_id` is `OrderId`, as NServiceBus.Persistence.Sql writes it. A field that is new
in the class gets its default. A stored field that the class does not have is an error, because storing the state again
would lose it. The class declares its new name (`renamed`) or that it may be dropped (`removed`).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from rowpost.errors import InvalidMessage, InvalidSagaState, MessageNotDeserialized
from rowpost.wire.dotnet_values import property_name
from rowpost.wire.json_serializer import JsonSerializer

__all__ = ["decode_state", "encode_state"]

_JSON = JsonSerializer()
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


def encode_state(state: Any, of: str) -> str:
    """Return the state as JSON; `of` names the saga in errors. Raises InvalidSagaState."""
    try:
        text = _JSON.encode(state).decode()
    except InvalidMessage as error:
        raise InvalidSagaState(f"The state of {of} cannot be stored: {error}") from error
    if _NUL.search(text):
        raise InvalidSagaState(f"The state of {of} cannot be stored: a string in it contains the character NUL.")
    return text


def decode_state(text: str, cls: type, of: str, renamed: Mapping[str, str], removed: Collection[str]) -> Any:
    """Return the stored JSON as an instance of the state's class. Raises InvalidSagaState."""
    try:
        stored = msgspec.json.decode(
            text, type=dict[str, msgspec.Raw]
        )  # raw values: read and written again, numbers keep every digit
    except msgspec.MsgspecError as error:
        raise InvalidSagaState(f"The stored state of {of} is no JSON object: {error}") from error
    new_names = {property_name(old): property_name(new) for old, new in renamed.items()}
    gone = {property_name(name) for name in removed}
    fields = {new_names.get(name, name): value for name, value in stored.items() if name not in gone}
    known = {spelt for field in dataclasses.fields(cls) for spelt in (field.name, property_name(field.name))}
    unknown = sorted(fields.keys() - known)
    if unknown:
        raise InvalidSagaState(
            f"The stored state of {of} has the fields {', '.join(unknown)}, which {cls.__name__} does not have; "
            "storing it again "
            "would lose them. Declare in the saga's class: renamed={'old': 'new'} or removed=('old',)."
        )
    try:
        return _JSON.decode(msgspec.json.encode(fields), cls)
    except MessageNotDeserialized as error:
        raise InvalidSagaState(f"The stored state of {of} does not fit its class: {error}") from error

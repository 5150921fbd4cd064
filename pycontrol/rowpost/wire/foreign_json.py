"""JSON that System.Text.Json would not write, in the form in which it would: of NServiceBus 3 and 4, and of
Newtonsoft.Json.

NServiceBus 3 and 4 send a list of messages as one body, of which a transport's row has one. Newtonsoft.Json with
TypeNameHandling writes the type of each object as its first property, `$type`, and wraps lists and bytes, whose
elements are then `$values` and `$value`.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec

__all__ = ["decode_exactly", "encode_exactly", "plain_json"]

_TYPE, _LIST, _VALUE = "$type", "$values", "$value"
#: JSON whose numbers keep every digit, also when they are written again
decode_exactly = msgspec.json.Decoder(float_hook=Decimal).decode
encode_exactly = msgspec.json.Encoder(decimal_format="number").encode


def plain_json(text: bytes) -> bytes:
    """Return the JSON of the one message in a body, without the names of types below it.

    Raises:
        ValueError: the body is a list of no message, or of several.
        msgspec.MsgspecError: it is no JSON.
    """
    found = decode_exactly(text)
    if isinstance(found, list):
        if len(found) != 1:
            raise ValueError(
                f"The array holds {len(found)} messages, and a row of a queue holds one. Send each message by itself"
            )
        (found,) = found
    if not isinstance(found, dict):
        return encode_exactly(found)
    return encode_exactly({name: each if name == _TYPE else _without_types(each) for name, each in found.items()})


def _without_types(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_types(each) for each in value]
    if not isinstance(value, dict):
        return value
    names = value.keys() - {_TYPE}
    if _TYPE in value and names in ({_LIST}, {_VALUE}):
        return _without_types(value[names.pop()])
    return {name: _without_types(each) for name, each in value.items() if name != _TYPE}

"""Bodies to and from typed messages, by content type. JSON by default. Bytes and None pass as they are."""

from __future__ import annotations

from typing import Any, Protocol

from rowpost.errors import MessageNotDeserialized, SettingsError
from rowpost.wire.json_serializer import JsonSerializer
from rowpost.wire.message_types import without_assembly

__all__ = ["Serializer", "Serializers", "named_in_body"]


class Serializer(Protocol):
    """Turn messages into bodies and back, for one content type."""

    content_type: str

    def encode(self, message: Any) -> bytes:
        """Return the body. Raises InvalidMessage where the message cannot be written."""

    def decode(self, body: bytes, cls: type) -> Any:
        """Return the message. Raises MessageNotDeserialized where the body is no such message."""


class Serializers:
    """Serializers by content type; the first is the default. Raises SettingsError if one has no content type."""

    def __init__(self, *serializers: Serializer) -> None:
        for each in serializers:
            if not each.content_type:
                raise SettingsError(f"The serializer {type(each).__name__} has no content_type. Give it one.")
        self.default = serializers[0] if serializers else JsonSerializer()
        self._by_type = {s.content_type: s for s in (serializers or (self.default,))}

    def find(self, content_type: str | None) -> Serializer:
        """Return the serializer of a content type; parameters such as a charset do not count.

        Raises:
            MessageNotDeserialized: there is none.
        """
        if not content_type:
            return self.default
        found = self._by_type.get(content_type) or self._by_type.get(content_type.partition(";")[0].strip())
        if found is None:
            raise MessageNotDeserialized(
                f"No serializer for the content type {content_type!r}; this endpoint has {', '.join(self._by_type)}."
            )
        return found


def named_in_body(body: bytes, serializer: Serializer) -> list[str]:
    """Return the type that a foreign sender's message without headers names in its body, if any:

    JSON as `$type`, XML by its root.
    """
    try:
        named = serializer.decode(body, dict).get("$type")
    except MessageNotDeserialized:  # then it names no type
        return []
    return [without_assembly(named)] if isinstance(named, str) else []

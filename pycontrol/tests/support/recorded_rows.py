"""Rows that a real NServiceBus wrote. `tests/wire/recorded/README.md` says what each one is."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rowpost.wire.message_types import split_enclosed_types

__all__ = ["DIFFERENT", "FOLDER", "NAME", "differences", "form", "recorded", "recorded_headers"]

FOLDER = Path(__file__).parents[1] / "wire" / "recorded"


def recorded(name: str) -> dict[str, Any]:
    """A recorded file: of a row, `headers` is the text in its column, `body` the text of its bytes."""
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def recorded_headers(name: str) -> dict[str, str]:
    """The headers of a recorded row."""
    return json.loads(recorded(name)["headers"])


#: names that only one side writes, whatever the situation
DIFFERENT = {
    "NServiceBus.Version": "the version of the .NET library; rowpost is none",
}
#: a quoted name of PostgreSQL
NAME = r'"(?:[^"]|"")+"'
FORMS = {
    "guid": r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    "time": r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{6} Z",
    "host": r"[0-9a-f]{32}",
    "address": rf"{NAME}\.{NAME}",
    "boolean": "True|False",
    "duration": r"\d\d:\d\d:\d\d(\.\d{7})?",
    "number": r"\d+",
}
#: values that are equal, not only of the same form
SAME = ("NServiceBus.MessageIntent", "NServiceBus.ContentType", "NServiceBus.TimeToBeReceived", "NServiceBus.Retries",
        "NServiceBus.OpenTelemetry.StartNewTrace", "NServiceBus.IsSagaTimeoutMessage")  # fmt: skip


def form(name: str, value: str | None) -> object:
    """What two values of a header must have in common."""
    if name in SAME or value is None:
        return value
    if name.endswith(("MessageTypes", "SagaType")):
        return list(split_enclosed_types(value))
    return next((what for what, pattern in FORMS.items() if re.fullmatch(pattern, value)), "text")


def differences(ours: Mapping[str, str | None], theirs: Mapping[str, str | None]) -> dict[str, object]:
    """The headers that only one of them has, and those whose values have another form."""
    names = (ours.keys() | theirs.keys()) - DIFFERENT.keys()
    found = {
        name: (name in ours and form(name, ours[name]), name in theirs and form(name, theirs[name])) for name in names
    }
    return {name: pair for name, pair in found.items() if pair[0] != pair[1]}

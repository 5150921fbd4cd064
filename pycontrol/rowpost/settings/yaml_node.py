"""Decode the mappings of a YAML file into typed settings, strictly.

`Node` is one mapping of the file, with its file and its path of keys, so that every error can name both. `decode` turns
a node into a frozen dataclass: msgspec checks types and ranges, which stand with the dataclass's fields, and defaults
are the dataclass's own. A key without a value counts as a key that is not there.

    @dataclass(frozen=True)
    class SupervisorSettings:
        error_queue: str = "error"
        stop_timeout: Seconds = 30.0

    supervisor = decode(root.child("supervisor"), SupervisorSettings)

Keys are decoded one by one, because msgspec's own errors do not name the keys of a mapping, and do not suggest one.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from math import inf, isfinite
from pathlib import Path
from reprlib import Repr
from types import MappingProxyType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from rowpost.errors import SettingsError

__all__ = ["LONGEST_S", "VARIABLE", "Count", "Kept", "Node", "Seconds", "Texts", "decode", "did_you_mean", "shorten"]

T = TypeVar("T")

#: the longest time in seconds, 23 days: an operating system waits for at most 2,147,483 s at once
LONGEST_S = 2_000_000.0
#: the longest time in seconds for which something is kept: a hundred years
LONGEST_KEPT_S = 36_525 * 86_400.0
#: a number of seconds, fractions allowed
Seconds = Annotated[float, Meta(ge=0.0, le=LONGEST_S)]
#: a number of seconds for which something is kept
Kept = Annotated[float, Meta(ge=1.0, le=LONGEST_KEPT_S)]
#: a whole number that is at least 1, and that databases store
Count = Annotated[int, Meta(ge=1, le=2_147_483_647)]
#: a list of texts that is not empty
Texts = Annotated[tuple[str, ...], Meta(min_length=1)]

#: an environment variable that the text of a URL refers to
VARIABLE = re.compile(r"\$\{([^}]*)\}")

_SHOWN_CHARACTERS = 80
_WANTED: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number of seconds",
    str: "a text",
    tuple: "a list of texts, such as [one, two]",
    UnionType: "a text or a whole number",
}
_OUT_OF_RANGE = re.compile(r"Expected `\w+` (>=|<=) (.+)")
NO_VALUES: Mapping[str, Any] = MappingProxyType({})
_repr = Repr()
_repr.maxlevel, _repr.maxstring, _repr.maxother, _repr.maxlong = 2, _SHOWN_CHARACTERS, _SHOWN_CHARACTERS, 40


class Node:
    """One mapping of a YAML file.

    Attributes:
        file: the file.
        path: the keys that lead to the mapping, joined by dots; empty for the whole file.
        name: the last of these keys.
        all: the mapping as YAML reads it.
        values: the same, without the keys that have no value.
        taken: the keys that were read.

    Raises:
        SettingsError: a key is not a text.
    """

    def __init__(self, file: Path, path: str, values: Mapping[Any, Any], name: str = "") -> None:
        self.file, self.path, self.name = file, path, name
        for key in values:
            if not isinstance(key, str):
                # YAML 1.1 reads No, On, 1 and 2026-01-01 as values of other types than text.
                raise self.error(_repr.repr(key), f"YAML reads this key as {type(key).__name__}: put it into quotes")
        self.values = {key: value for key, value in values.items() if value is not None}
        self.all = values
        self.taken: set[str] = set()

    def error(self, key: str, problem: str) -> SettingsError:
        """Return a SettingsError about one key of this mapping, or about the mapping itself if `key` is empty."""
        where = shorten(".".join(part for part in (self.path, key) if part), 2 * _SHOWN_CHARACTERS)
        return SettingsError(f"{self.file}: {where}: {problem}" if where else f"{self.file}: {problem}")

    def wrong(self, key: str, wanted: str) -> SettingsError:
        """Return a SettingsError that says what the value of a key must be. It never shows the value of `url`."""
        shown = "" if key == "url" else f", not {_repr.repr(self.values[key])}"
        return self.error(key, f"must be {wanted}{shown}")

    def child(self, key: str) -> Node | None:
        """Return the mapping at `key`; None if the key is not there."""
        self.taken.add(key)
        return self._below(key, key, self.values[key]) if key in self.values else None

    def children(self, key: str) -> Iterator[Node]:
        """Yield the mappings below `key`, in the file's order. A mapping without values may be left empty."""
        group = self.child(key)
        if group is not None:
            for name, value in group.all.items():
                yield group._below(name, name, {} if value is None else value)

    def items(self, key: str) -> Iterator[Node]:
        """Yield the mappings of the list at `key`, named by their places from 1; none if the key is not there."""
        self.taken.add(key)
        values = self.values.get(key, [])
        if not isinstance(values, list):
            raise self.wrong(key, "a list of mappings, each after a dash")
        for number, value in enumerate(values, 1):
            yield self._below(f"{key}.{number}", str(number), value)

    def check_keys(self, known: Collection[str] = (), hint: str = "") -> None:
        """Raise SettingsError for a key that is neither in `known` nor the key of a child that was read."""
        allowed = {*known, *self.taken}
        for key in self.all:
            if key not in allowed:
                listed = f"known here are {', '.join(sorted(allowed))}" if allowed else "no key is known here"
                raise self.error(key, "unknown key" + (did_you_mean(key, allowed) or f": {hint or listed}"))

    def take(self, key: str, hint: Any) -> Any:
        """Return the value of a key that must be there, checked by msgspec against a type hint.

        Raises SettingsError.
        """
        self.taken.add(key)
        if key not in self.values:
            raise self.error(key, "missing: write a value")
        value = self.values[key]
        try:
            found = msgspec.convert(value, hint, strict=True)
        except msgspec.ValidationError as error:
            raise self._refusal(key, hint, str(error)) from None
        if isinstance(found, float) and not isfinite(found):
            raise self.wrong(key, _WANTED[float])
        for text in found if isinstance(found, tuple) else (found,):
            if isinstance(text, str):
                self._check_text(key, text, _wanted(hint))
        return found

    def _check_text(self, key: str, text: str, wanted: str) -> None:
        if not text.strip():
            raise self.wrong(key, wanted)
        if key != "url" and VARIABLE.search(text):
            raise self.error(key, "${...} is replaced in url only: write the value itself")

    def _refusal(self, key: str, hint: Any, said: str) -> SettingsError:
        """Translate an error of msgspec into the words of settings."""
        value, kind = self.values[key], _kind(hint)
        shown = _repr.repr(value)
        if kind is tuple and isinstance(value, list) and get_origin(get_args(hint)[0]) is Literal:
            allowed = get_args(get_args(hint)[0])
            value = next(each for each in value if each not in allowed)
            return self.error(
                key, f"{_repr.repr(value)} is not one of {', '.join(allowed)}{did_you_mean(value, allowed)}"
            )
        if get_origin(hint) is Literal:
            allowed = get_args(hint)
            return self.error(key, f"{shown} is not one of {', '.join(allowed)}{did_you_mean(value, allowed)}")
        bound = _OUT_OF_RANGE.match(said)
        if bound and value == value and value not in (inf, -inf):  # noqa: PLR0124 -- NaN differs from itself, and is no number of seconds
            is_low = bound[1] == ">="
            problem = {int: ("too large", "too small"), float: ("s is too long", "s is too short")}[kind][is_low]
            joint = " " if kind is float else " is "
            return self.error(
                key, f"{shown}{joint}{problem}: write {bound[2].removesuffix('.0')} or {'more' if is_low else 'less'}"
            )
        if "matching regex" in said:
            return self.error(key, f"{shown} is not {hint.__metadata__[0].description}")
        return self.wrong(key, _wanted(hint))

    def _below(self, key: str, name: str, value: Any) -> Node:
        if not isinstance(value, dict):
            raise self.error(key, f"must be a mapping of keys and values, such as {{}}, not {_repr.repr(value)}")
        return Node(self.file, ".".join(part for part in (self.path, key) if part), value, name)


def decode(
    node: Node, cls: type[T], *, given: Mapping[str, Any] = NO_VALUES, defaults: Mapping[str, Any] = NO_VALUES
) -> T:
    """Decode a mapping into a frozen dataclass.

    Args:
        node: the mapping. Children that were read before belong to it, and are not fields to decode.
        cls: the dataclass; its type hints are checked by msgspec.
        given: fields that the file does not hold.
        defaults: values for keys that are missing, instead of the dataclass's own.

    Raises:
        SettingsError: an unknown or missing key, or a value of another type or out of its range.
    """
    fields_of: Any = cls
    hints = {key: hint for key, hint in _hints(fields_of).items() if key not in given and key not in node.taken}
    node.check_keys(hints)
    required = {field.name for field in dataclasses.fields(fields_of) if _is_required(field)} - defaults.keys()
    found = {key: node.take(key, hint) for key, hint in hints.items() if key in node.values or key in required}
    return cls(**{**defaults, **given, **found})


def did_you_mean(word: Any, known: Iterable[str]) -> str:
    """Return the nearest known word as a question that continues a message; an empty text if none is near."""
    near = difflib.get_close_matches(
        shorten(str(word)) if isinstance(word, str) else "", sorted(known), n=1, cutoff=0.6
    )
    return f": did you mean {near[0]}?" if near else ""


def shorten(text: str, characters: int = _SHOWN_CHARACTERS) -> str:
    """Cut a text of a file for a message.

    >>> shorten("partitions", 8)
    'parti...'
    """
    return text if len(text) <= characters else f"{text[: characters - 3]}..."


@cache
def _hints(cls: Any) -> dict[str, Any]:
    """Return the type hints of a dataclass's fields.

    Of a hint that allows None, what else it allows: YAML's null is no value.
    """
    hints = get_type_hints(cls, include_extras=True)
    return {field.name: _without_none(hints[field.name]) for field in dataclasses.fields(cls)}


def _without_none(hint: Any) -> Any:
    kinds = (
        [each for each in get_args(hint) if each is not type(None)] if get_origin(hint) in (Union, UnionType) else []
    )
    return kinds[0] if len(kinds) == 1 else hint


def _kind(hint: Any) -> Any:
    """Return the plain type behind a hint: bool, int, float, str or tuple."""
    if get_origin(hint) is Annotated:
        return _kind(get_args(hint)[0])
    return str if get_origin(hint) is Literal else get_origin(hint) or hint


def _wanted(hint: Any) -> str:
    """Return what the value of a key must be, in words. Of `bool | Literal["all"]`: true, false or all."""
    words = (
        [word for each in get_args(hint) if get_origin(each) is Literal for word in get_args(each)]
        if bool in get_args(hint)
        else []
    )
    return ", ".join(["true", "false", *words[:-1]]) + f" or {words[-1]}" if words else _WANTED[_kind(hint)]


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING

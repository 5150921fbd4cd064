"""Reading a YAML file of settings, an environment's or another's: find it, parse it strictly, take typed values, fill in secrets.

Pure apart from reading the file and the process environment. Every complaint is a SettingsError with the file, the
path of the key and what to write instead; none ever shows a secret's value.
"""

from __future__ import annotations

import difflib
import math
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

from rowpost.errors import SettingsError

__all__ = ["Section", "expand_secrets", "find_environment", "read_values"]

_REQUIRED = object()
VARIABLE = re.compile(r"\$\{([^}]*)\}")
PACKAGE = Path(__file__).resolve().parents[1]


class Section:
    """A mapping of the file, read key by key; `finish` refuses whatever key nobody asked for."""

    def __init__(self, file: Path, path: str, values: Mapping[str, Any], name: str = "") -> None:
        self.file, self.path, self.name = file, path, name
        self._values = values
        self._known: set[str] = set()

    def __iter__(self) -> Iterator[str]:
        """The keys, in the file's order."""
        return iter(self._values)

    def error(self, key: str, problem: str) -> SettingsError:
        """A SettingsError about one key of this section, or about the section itself."""
        where = ".".join(part for part in (self.path, key) if part)
        return SettingsError(f"{self.file}: {where}: {problem}" if where else f"{self.file}: {problem}")

    def text(self, key: str, default: Any = _REQUIRED) -> Any:
        """A string that is not empty."""
        value = self._take(key, default)
        if value is default:
            return value
        if not isinstance(value, str) or not value.strip():
            raise self._wrong(key, value, "a text")
        if key != "url" and VARIABLE.search(value):
            raise self.error(key, "${...} is replaced in url only: write the value itself")
        return value

    def choice(self, key: str, allowed: tuple[str, ...], default: Any = _REQUIRED) -> str:
        """One of a few words."""
        value = self._take(key, default)
        if value not in allowed:
            near = _did_you_mean(value, allowed)
            raise self.error(key, f"{value!r} is not one of {', '.join(allowed)}{near}")
        return value

    def flag(self, key: str, default: bool) -> bool:
        """true or false."""
        value = self._take(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, value, "true or false")
        return value

    def whole(self, key: str, default: int, at_least: int) -> int:
        """A whole number."""
        value = self._take(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong(key, value, "a whole number")
        if value < at_least:
            raise self.error(key, f"{value} is too small: write {at_least} or more")
        return value

    def seconds(self, key: str, default: float, at_least: float) -> float:
        """A number of seconds, fractions allowed."""
        value = self._take(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise self._wrong(key, value, "a number of seconds")
        if value < at_least:
            raise self.error(key, f"{value} s is too short: write {at_least} or more")
        return float(value)

    def value(self, key: str, default: Any) -> Any:
        """A value as YAML reads it."""
        return self._take(key, default)

    def section(self, key: str) -> Section | None:
        """A mapping below this one; None when it is not there."""
        value = self._take(key, None)
        return None if value is None else self._below(key, key, value)

    def sections(self, key: str) -> Iterator[Section]:
        """The mappings below `key`, in the file's order; one without values may be left empty."""
        group = self.section(key)
        if group is None:
            return
        for name, value in group._values.items():
            yield group._below(name, name, {} if value is None else value)

    def texts(self, key: str, default: Any = _REQUIRED) -> Any:
        """A list of strings that are not empty."""
        value = self._take(key, default)
        if value is default:
            return value
        if not isinstance(value, list) or not value or not all(isinstance(each, str) and each for each in value):
            raise self._wrong(key, value, "a list of texts, such as [one, two]")
        return value

    def listed(self, key: str) -> Iterator[Section]:
        """The mappings of a list, named by their places from 1; none where the key is not there."""
        values = self._take(key, [])
        if not isinstance(values, list):
            raise self._wrong(key, values, "a list of mappings, each after a dash")
        for number, value in enumerate(values, 1):
            yield self._below(f"{key}.{number}", str(number), value)

    def finish(self, hint: str = "") -> None:
        """Refuse the keys that nobody asked for."""
        for key in self._values:
            if key not in self._known:
                known = f"known here are {', '.join(sorted(self._known))}" if self._known else "no key is known here"
                raise self.error(key, "unknown key" + (_did_you_mean(key, self._known) or f": {hint or known}"))

    def _below(self, key: str, name: str, value: Any) -> Section:
        if not isinstance(value, dict):
            raise self._wrong(key, value, "a mapping of keys and values, such as {}")
        section = Section(self.file, ".".join(part for part in (self.path, key) if part), value, name)
        for inner in value:
            if not isinstance(inner, str):
                # YAML 1.1 reads No, On, 1 and 2026-01-01 as something else than text
                raise section.error(str(inner), f"YAML reads this key as {type(inner).__name__}: put it into quotes")
        return section

    def _take(self, key: str, default: Any) -> Any:
        self._known.add(key)
        value = self._values.get(key)
        if value is None:
            if default is _REQUIRED:
                raise self.error(key, "missing: write a value")
            return default
        return value

    def _wrong(self, key: str, value: Any, wanted: str) -> SettingsError:
        shown = "" if key == "url" else f", not {value!r}"
        return self.error(key, f"must be {wanted}{shown}")


def find_environment(environment: str | Path) -> Path:
    """The file of an environment: a path as given, else `<name>.yml` in $ROWPOST_ENVIRONMENTS or ./deploy/environments.

    `local`, the embedded default, is also found in the package itself.
    """
    text = os.fspath(environment)
    if isinstance(environment, Path) or text.endswith((".yml", ".yaml")) or "/" in text or os.sep in text:
        if not Path(text).is_file():
            raise SettingsError(f"{text}: no such environment file: check the path")
        return Path(text)
    folders = _search_folders()
    for folder in [*folders, *(_packaged_folders() if text == "local" else [])]:
        path = folder / f"{text}.yml"
        if path.is_file():
            return path
    names = sorted({path.stem for folder in folders if folder.is_dir() for path in folder.glob("*.yml")})
    raise SettingsError(
        f"{text}: no such environment in {' or '.join(map(str, folders))}{_did_you_mean(text, names)}: "
        f"write {text}.yml there, or name the folder in ROWPOST_ENVIRONMENTS"
    )


def read_values(path: Path) -> dict[str, Any]:
    """Parse the file; refuses what YAML would silently accept (a key given twice) and what is not a mapping."""
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), Loader=_StrictLoader)  # noqa: S506 - a SafeLoader
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: cannot be read: {error}") from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        raise SettingsError(f"{path}: line {line}: {error.problem}") from error
    except yaml.YAMLError as error:
        raise SettingsError(f"{path}: is not YAML: {type(error).__name__}") from error
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise SettingsError(f"{path}: must be a mapping of keys and values, such as engine: embedded")
    return values


def expand_secrets(section: Section, key: str, template: str, engine: str) -> str:
    """Replace `${VARIABLE}` from the process environment; a value is escaped for the place where it stands.

    A variable that is the whole text is taken as it is. In a PostgreSQL url a value before the host is
    percent-encoded; in an ODBC connection string a value with special characters is put into braces.
    """

    def value_of(match: re.Match[str]) -> str:
        name = match.group(1)
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise section.error(key, f"${{{name}}} is not a variable's name: write letters, digits and underscores")
        value = os.environ.get(name)
        if not value:
            state = "not set" if value is None else "empty"
            raise section.error(key, f"the environment variable {name} is {state}: export {name}=... and try again")
        if match.group(0) == template:
            return value
        if engine == "sqlserver":
            return _odbc_value(template, match, value)
        return quote(value, safe="") if "@" in template[match.end() :] else value

    return VARIABLE.sub(value_of, template)


def _odbc_value(template: str, match: re.Match[str], value: str) -> str:
    alone = template[: match.start()].rstrip().endswith("=") and template[match.end() :].lstrip()[:1] in ("", ";")
    if alone and (re.search(r"[;{}=]", value) or value != value.strip()):
        return "{" + value.replace("}", "}}") + "}"
    return value


def _search_folders() -> list[Path]:
    named = os.environ.get("ROWPOST_ENVIRONMENTS")
    return [*([Path(named).expanduser()] if named else []), Path("deploy/environments")]


def _packaged_folders() -> list[Path]:
    return [PACKAGE / "environments", PACKAGE.parent.parent / "deploy" / "environments"]


def _did_you_mean(word: Any, known: Any) -> str:
    near = difflib.get_close_matches(str(word), sorted(known), n=1, cutoff=0.6)
    return f": did you mean {near[0]}?" if near else ""


class _StrictLoader(yaml.SafeLoader):
    """Safe YAML in which a key given twice is an error, not the last one's win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str | int | float | bool) and key in seen:
                raise yaml.MarkedYAMLError(problem=f"{key} is declared twice", problem_mark=key_node.start_mark)
            if isinstance(key, str | int | float | bool):
                seen.add(key)
        return super().construct_mapping(node, deep)

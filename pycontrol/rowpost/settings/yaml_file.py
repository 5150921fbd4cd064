"""Read a YAML file of settings: find it, parse it strictly, and replace variables in URLs.

`find_environment` finds the file of an environment, `read_root` parses a file and returns its root as a `Node`, and
`expand_secrets` replaces `${VARIABLE}` in a URL. Every error is a SettingsError that names the file and the place in
it. No error shows the value of a secret.

YAML accepts more than a settings file may hold. Refused are keys that are given twice, tags, values that Python cannot
read, and files that are nested too deeply. Errors show values only in part: a few aliases can describe gigabytes.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import yaml

from rowpost.errors import SettingsError
from rowpost.settings.password import PasswordSource, SecretUrl
from rowpost.settings.secrets import in_place
from rowpost.settings.target import unknown_parameters
from rowpost.settings.yaml_node import VARIABLE, Node, did_you_mean, shorten

__all__ = ["expand_secrets", "find_environment", "is_packaged", "read_root", "user_path", "with_password"]

_LONGEST_PROBLEM = 300  # characters
#: a password in a URL, or in an ODBC connection string
_PASSWORD = re.compile(r"(?i)^postgres(?:ql)?://[^/@]*:[^/@]*@|[?&]password=|(?:^|;)\s*(?:pwd|password)\s*=")
PACKAGE = Path(__file__).resolve().parents[1]


def user_path(text: str) -> Path:
    """Return a path with ~ replaced by the user's home directory. Raises SettingsError if there is none."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise SettingsError(
            f"{text}: the variable HOME is not set, and this user has no home directory: write the path without ~"
        ) from None


def find_environment(environment: str | Path) -> Path:
    """Return the file of an environment.

    A path is returned as it is. A name leads to `<name>.yml` in $ROWPOST_ENVIRONMENTS or ./deploy/environments. The
    package itself contains `local`, the embedded default.

    Raises:
        SettingsError: there is no such file.
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
    meant = did_you_mean(text, names)
    raise SettingsError(
        f"{text}: no such environment in {' or '.join(map(str, folders))}{f'{meant} If not,' if meant else ':'} "
        f"write {text}.yml there, or name the folder in ROWPOST_ENVIRONMENTS"
    )


def is_packaged(path: Path) -> bool:
    """Return whether a file is one that the package contains, so that it belongs to no project."""
    return path.resolve().parent in [folder.resolve() for folder in _packaged_folders()]


def read_root(path: Path) -> Node:
    """Parse a YAML file that holds a mapping. An empty file is an empty mapping.

    Raises:
        SettingsError: the file cannot be read, or is not YAML, or holds something else than a mapping.
    """
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), Loader=_StrictLoader)  # noqa: S506 - a SafeLoader
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: cannot be read: {error}") from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        raise SettingsError(f"{path}: line {line}: {shorten(str(error.problem), _LONGEST_PROBLEM)}") from error
    except yaml.YAMLError as error:
        raise SettingsError(f"{path}: is not YAML: {type(error).__name__}") from error
    except RecursionError:
        raise SettingsError(f"{path}: is nested too deeply: settings have at most five levels") from None
    if values is None:
        values = {}
    if not isinstance(values, dict):
        raise SettingsError(f"{path}: must be a mapping of keys and values, such as engine: embedded")
    return Node(path, "", values)


def expand_secrets(node: Node, key: str, template: str, engine: str, *, offline: bool = False) -> str:
    """Replace `${VARIABLE}` from the process environment, and escape each value for its place in the text, as
    `secrets.in_place` says.

    Args:
        node: the part of the file that contains the text.
        key: the text's key.
        template: the text.
        engine: the engine of the database that it leads to.
        offline: nobody will connect to it, so that a variable without a value stays as it is written.

    Raises:
        SettingsError: a variable is not set or empty, its name is not one, or its value cannot stand there. Or a
            PostgreSQL URL has a parameter that its library does not know.
    """
    if engine == "postgresql" and (unknown := unknown_parameters(template)):
        raise node.error(key, unknown)

    def value_of(match: re.Match[str]) -> str:
        name = match.group(1)
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise node.error(key, f"${{{name}}} is not a variable's name: write letters, digits and underscores")
        value = os.environ.get(name)
        if not value and offline:
            return match.group(0)
        if not value:
            state = "not set" if value is None else "empty"
            raise node.error(key, f"the environment variable {name} is {state}: export {name}=... and try again")
        try:
            return in_place(template, match, value, engine)
        except SettingsError as error:
            raise node.error(key, str(error)) from None

    return VARIABLE.sub(value_of, template)


def _search_folders() -> list[Path]:
    named = os.environ.get("ROWPOST_ENVIRONMENTS")
    return [*([user_path(named)] if named else []), Path("deploy/environments")]


def _packaged_folders() -> list[Path]:
    return [PACKAGE / "environments", PACKAGE.parent.parent / "deploy" / "environments"]


class _StrictLoader(yaml.SafeLoader):
    """Safe YAML in which a key that is given twice, and a value that Python cannot read, are errors with a line."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, LookupError, AttributeError, TypeError) as error:  # for example the date 2026-13-45
            problem = "a value cannot be read as YAML's type for it: put it into quotes"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark) from error

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str | int | float | bool) and key in seen:
                raise yaml.MarkedYAMLError(problem=f"{key} is declared twice", problem_mark=key_node.start_mark)
            if isinstance(key, str | int | float | bool):
                seen.add(key)
        return super().construct_mapping(node, deep)


def with_password(node: Node, url: str, file: str | None, command: tuple[str, ...]) -> str:
    """Return a URL with the source of its password, as the keys `password_file` and `password_command` name it.

    A file's path counts from the YAML file.

    Raises:
        SettingsError: both are given, the program is missing, or the URL has a password of its own.
    """
    if file is None and not command:
        return url
    if file is not None and command:
        raise node.error("password_file", "cannot be together with password_command: remove one of them")
    if _PASSWORD.search(url):
        raise node.error(
            "url", "has a password of its own, beside password_file or password_command: remove one of them"
        )
    path = None if file is None else (node.file.parent / user_path(file)).absolute()
    return SecretUrl(url, PasswordSource(path, command))

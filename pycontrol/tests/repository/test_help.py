"""Nothing on the command line is left unexplained."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from rowpost.cli.app import app
from rowpost.cli.exits import EXIT_CODES, ExitCode


def commands(group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    """Every command below a group, by its path."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        yield (*path, name), command


ALL = dict(commands(typer.main.get_command(app)))


def test_the_commands_are_those_that_are_documented():
    assert {" ".join(path) for path in ALL} == {
        "apply", "demo", "plan", "receive", "run", "send", "verify", "version",
        "queue", "queue adopt", "queue browse", "queue check", "queue create", "queue drop", "queue grant",
        "queue list", "queue maintain", "queue metrics", "queue peek", "queue purge",
        "errors", "errors discard", "errors edit", "errors list", "errors retry", "errors retry-all", "errors show",
        "sagas", "sagas correlate", "sagas drop", "sagas drop-correlation", "sagas history", "sagas list", "sagas show",
        "transactions", "transactions list", "transactions resolve",
        "outbox", "outbox clean", "outbox status",
        "spark", "spark archive", "spark compact", "spark conversations", "spark doctor", "spark failures", "spark load",
        "spark metrics", "spark replay", "spark retain", "spark verify",
        "subscriptions", "subscriptions add", "subscriptions list", "subscriptions remove",
    }  # fmt: skip


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_command_and_every_parameter_has_help(path: tuple[str, ...]):
    command = ALL[path]

    without = [parameter.name for parameter in command.params if not getattr(parameter, "help", None)]

    assert command.help
    assert without == []


@pytest.mark.parametrize("path", [path for path in ALL if not hasattr(ALL[path], "commands")], ids=" ".join)
def test_every_command_takes_an_environment_and_speaks_json(path: tuple[str, ...]):
    options = {option for parameter in ALL[path].params for option in parameter.opts}

    assert {"--env", "--json"} <= options


def test_the_help_names_every_exit_code():
    epilog = typer.main.get_command(app).epilog

    assert set(EXIT_CODES) == set(ExitCode)
    assert all(f"**{code.value}** {meaning}" in epilog for code, meaning in EXIT_CODES.items())


# ---------------------------------------------------------------------------------------------- what the docs name
ROOT = Path(__file__).parents[3]
PAGES = [
    ROOT / name for name in ("README.md", "CONTRIBUTING.md", "Makefile", "deploy/runbook.md", "deploy/rowpost@.service")
] + sorted((ROOT / "docs").glob("*.md"))
GROUPS = {path[0] for path in ALL if len(path) == 2}
CALL = re.compile(r"\browpost(?: --env \S+)?((?: [a-z]+(?:-[a-z]+)*)+)([^`|;\n]*)")


def calls() -> Iterator[tuple[str, tuple[str, ...], list[str]]]:
    """Every call of the program in a page: where, the command's path, the options behind it."""
    for page in PAGES:
        for match in CALL.finditer(page.read_text(encoding="utf-8")):
            words = tuple(match[1].split())
            path = words[:2] if words[0] in GROUPS else words[:1]
            if path in ALL or words[0] in GROUPS:
                yield f"{page.name}: {match[0].strip()}", path, re.findall(r"(?<=\s)--?[a-z][a-z-]*", match[2])


def test_pages_name_no_command_and_no_option_that_is_not_there():
    wrong = [
        where
        for where, path, options in calls()
        if path not in ALL
        or not set(options) <= {option for parameter in ALL[path].params for option in parameter.opts}
    ]

    assert len(list(calls())) > 30
    assert wrong == []

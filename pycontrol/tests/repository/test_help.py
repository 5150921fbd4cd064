"""Every command and option has help, and the pages show exactly the commands that exist."""

import re
from collections.abc import Iterator

import pytest
import typer

from rowpost.cli.app import app
from rowpost.cli.exits import ExitCode
from tests.support.documents import ROOT, calls, calls_of_script, pages


def commands(group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    """Every command below a group, by its path."""
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        yield (*path, name), command


ALL = dict(commands(typer.main.get_command(app)))


def test_every_command_and_every_parameter_has_help():
    without = [
        (*path, each.name)
        for path, command in ALL.items()
        for each in (command, *command.params)
        if not getattr(each, "help", None)
    ]

    assert without == []


def test_every_command_takes_an_environment_and_speaks_json():
    options = {
        path: {option for each in command.params for option in each.opts}
        for path, command in ALL.items()
        if not hasattr(command, "commands")
    }

    assert {path: found for path, found in options.items() if not {"--env", "--json"} <= found} == {}


def test_the_help_names_every_exit_code():
    epilog = typer.main.get_command(app).epilog

    assert all(f"**{code.value}** {code.meaning}" in epilog for code in ExitCode)


# ---------------------------------------------------------------------------------------------- what the pages show
def resolve(arguments: list[str]) -> tuple[tuple[str, ...], list[str]]:
    """The path of the command that the arguments call, and the options among them."""
    words = [word for word in arguments if not word.startswith("-")]
    if arguments[:1] == ["--env"]:
        words = words[1:]
    depth = 1
    while depth < len(words) and hasattr(ALL.get(tuple(words[:depth])), "commands"):
        depth += 1
    return tuple(words[:depth]), [word.partition("=")[0] for word in arguments if re.match(r"--?[a-z]", word)]


def options_of(path: tuple[str, ...]) -> set[str]:
    return {option for parameter in ALL[path].params for option in (*parameter.opts, *parameter.secondary_opts)}


def mistakes(arguments: list[str]) -> list[str]:
    """What a call names that the program does not have."""
    if all(word.startswith("-") for word in arguments):
        return [word for word in arguments if word not in TOP_OPTIONS]
    path, options = resolve(arguments)
    if path not in ALL:
        return [" ".join(path)]
    return [option for option in options if option not in options_of(path) | {"--env", "--json", "--help"}]


TOP_OPTIONS = {option for parameter in typer.main.get_command(app).params for option in parameter.opts} | {
    "--help",
    "-h",
}
CALLS = [call for page in pages() for call in calls(page) if call[1] != ["…"]] + [
    call
    for name in ("Makefile", "deploy/rowpost@.service", "deploy/Containerfile")
    for call in calls_of_script(ROOT / name)
]


def test_pages_show_no_command_and_no_option_that_does_not_exist():
    wrong = {where: found for where, arguments in CALLS if (found := mistakes(arguments))}

    assert len(CALLS) > 100
    assert wrong == {}


def test_every_command_is_shown_in_a_page():
    shown = {resolve(arguments)[0] for _, arguments in CALLS if not all(word.startswith("-") for word in arguments)}

    missing = [
        " ".join(path) for path, command in ALL.items() if not hasattr(command, "commands") and path not in shown
    ]

    assert missing == []


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["queue", "freeze", "Sales"], ["queue freeze"]),
        (["pause"], ["pause"]),
        (["plan", "--bundle", "x.zip"], ["--bundle"]),
        (["--env", "production", "plan", "--exit-code"], []),
        (["--install-completion"], []),
        (["--nothing"], ["--nothing"]),
    ],
)
def test_a_call_of_what_does_not_exist_is_found(arguments, found):
    assert mistakes(arguments) == found

"""Options that several commands share are the fields of a dataclass."""

from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from rowpost.cli.command import command
from rowpost.cli.exits import Refused
from rowpost.cli.session import Session


@dataclass(frozen=True)
class Limits:
    rows: Annotated[int, typer.Option("--rows", help="How many rows.")] = 10
    all: Annotated[bool, typer.Option("--all", help="All of them.")] = False

    def __post_init__(self) -> None:
        if self.all and self.rows != 10:
            raise Refused("--all and --rows cannot be combined.", 2)


def program() -> tuple[typer.Typer, list[tuple]]:
    app, received = typer.Typer(), []

    def show(
        session: Session,
        name: Annotated[str, typer.Argument()],
        limits: Limits,
        last: Annotated[bool, typer.Option("--last")] = False,
    ) -> None:
        """Show rows."""
        received.append((name, limits, last))

    command(app)(show)
    return app, received


def test_a_command_receives_the_options_of_a_group_as_one_value():
    app, received = program()

    result = CliRunner().invoke(app, ["Sales", "--rows", "3", "--last"])

    assert result.exit_code == 0
    assert received == [("Sales", Limits(rows=3), True)]


def test_the_options_of_a_group_are_in_the_help_where_the_group_is_a_parameter():
    app, _ = program()

    said = CliRunner().invoke(app, ["--help"]).output

    assert said.index("--rows") < said.index("--all") < said.index("--last")
    assert "Show rows." in said


def test_a_group_refuses_options_that_contradict_each_other():
    app, received = program()

    result = CliRunner().invoke(app, ["Sales", "--rows", "3", "--all"])

    assert result.exit_code == 2
    assert "--all and --rows cannot be combined." in result.stderr
    assert received == []

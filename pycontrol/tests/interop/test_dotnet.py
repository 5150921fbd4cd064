"""What can be checked of the endpoint in C# without .NET: its messages, its versions, how it is reached, and what is said where it cannot run."""

import dataclasses
import importlib
import os
import re
import shutil

import pytest
import yaml

from rowpost.wire import message_types
from rowpost.wire.message_types import type_name
from tests.support.documents import ROOT
from tests.support.interop import dotnet
from tests.support.interop.line_process import LineProcess

CLASS = re.compile(r"public (?:class|interface) (\w+)([^{]*)\{((?:[^{}]|\{ get; set; \})*)\}")
PROPERTY = re.compile(r"(\w+) \{ get; set; \}")
WORKFLOW = ROOT / ".github" / "workflows" / "nservicebus.yml"


def of_csharp() -> dict[str, set[str]]:
    """The properties of each class and interface of Messages.cs."""
    text = (dotnet.SOURCE / "Messages.cs").read_text(encoding="utf-8")
    return {
        name: set(PROPERTY.findall(body))
        for name, _, body in CLASS.findall(text)
        if name not in ("IHaveNumber", "Line")
    }


@pytest.fixture
def of_python(monkeypatch) -> dict[str, set[str]]:
    """The same of `tests.support.interop.messages`, with the names that stand on the wire."""
    # a name belongs to the class that was declared last, and other tests declare some of these names too
    monkeypatch.setattr(message_types, "_classes", dict(message_types._classes))
    messages = importlib.import_module("tests.support.interop.messages")
    classes = [getattr(messages, name) for name in messages.__all__]
    pascal = lambda name: "".join(word.capitalize() for word in name.split("_"))  # noqa: E731
    return {
        type_name(cls).rpartition(".")[2]: {pascal(field.name) for field in dataclasses.fields(cls)} for cls in classes
    }


def test_both_sides_have_the_same_messages(of_python):
    assert len(of_python) > 10
    assert of_csharp() == of_python


def test_every_message_that_a_handler_in_csharp_takes_has_a_handler_in_python():
    handled = {
        name
        for path in dotnet.SOURCE.glob("*.cs")
        for name in re.findall(r"(?:IHandleMessages|IAmStartedByMessages)<(\w+)>", path.read_text())
    }
    python = (ROOT / "pycontrol" / "tests" / "support" / "interop" / "rowpost_endpoint.py").read_text(encoding="utf-8")

    assert handled
    assert {name for name in handled if f"shop.{name}" not in python} == set()


def test_the_workflow_builds_the_versions_of_the_project():
    project = (dotnet.SOURCE / "interop.csproj").read_text(encoding="utf-8")
    defaults = dict(re.findall(r"<(Nsb\w*Version) [^>]*>([\d.]+)<", project))
    text = WORKFLOW.read_text(encoding="utf-8")

    assert set(defaults) == {"NsbVersion", "NsbPgVersion", "NsbSqlVersion"}
    assert dict(re.findall(r"-p:(Nsb\w*Version)=([\d.]+)", text)) == defaults


def test_the_workflow_runs_the_scenarios_on_both_engines_and_skips_none():
    jobs = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))["jobs"]

    assert set(jobs) == {"postgresql", "sqlserver"}
    for job in jobs.values():
        steps = [step.get("run", "") for step in job["steps"]]
        assert any("make test/dotnet" in step for step in steps)
    # with the variable, an endpoint that cannot be started is a failure, and no skip
    assert dotnet.VARIABLE in (ROOT / "Makefile").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("engine", "url", "expected"),
    [
        ("postgresql", "postgresql://u:p%3Bw@db:5433/shop", 'Host=db;Port=5433;Username=u;Password="p;w";Database=shop'),
        ("postgresql", "postgresql://postgres:@/shop?host=/tmp/data", "Username=postgres;Database=shop;Host=/tmp/data"),
        ("postgresql", "host=db dbname='a \"b'", 'Host=db;Database="a ""b"'),
        ("sqlserver", "Server=localhost,1433;UID=sa;PWD=Rowpost-2026;Encrypt=no;Database=t",
         "Server=localhost,1433;User ID=sa;Password=Rowpost-2026;Encrypt=False;Database=t"),
        ("sqlserver", "Driver={ODBC Driver 18 for SQL Server};Server=db;Trusted_Connection=yes;", "Server=db;Integrated Security=True"),
        ("sqlserver", "Server=db;PWD={a;b}}c};TrustServerCertificate=yes", 'Server=db;Password="a;b}c";TrustServerCertificate=True'),
    ],
)  # fmt: skip
def test_a_url_as_a_connection_string_of_dotnet(engine, url, expected):
    found = dotnet.connection_string(engine, url)

    assert sorted(found.split(";")) == sorted(expected.split(";"))


@pytest.mark.parametrize(
    ("engine", "url"),
    [("postgresql", "postgresql://db/shop?sslmode=require"), ("sqlserver", "Server=db;MARS_Connection=yes")],
)
def test_an_option_that_is_not_translated_is_refused_by_name(engine, url):
    with pytest.raises(ValueError, match=r"sslmode|mars_connection"):
        dotnet.connection_string(engine, url)


def test_without_an_sdk_the_build_says_what_to_install(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(shutil, "which", lambda name: None)

    assert dotnet.main([str(tmp_path)]) == 1
    assert ".NET SDK 10" in capsys.readouterr().err


@pytest.fixture
def sdk(tmp_path, monkeypatch):
    """Puts a script in the place of `dotnet`; it runs in a shell."""

    def place(script: str) -> None:
        program = tmp_path / "sdk" / "dotnet"
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)

    return place


def test_a_build_gets_a_copy_of_the_sources_and_the_options(sdk, tmp_path):
    sdk(
        f'echo "$@" > {tmp_path}/arguments; mkdir {tmp_path}/made/bin; touch {tmp_path}/made/source/obj {tmp_path}/made/bin/nsb.dll'
    )
    before = sorted(dotnet.SOURCE.iterdir())

    made = dotnet.build(tmp_path / "made", "-p:NsbVersion=10.2.8")

    arguments = (tmp_path / "arguments").read_text().split()
    assert made.is_file()
    assert arguments[:2] == ["build", str(tmp_path / "made" / "source" / "interop.csproj")]
    assert arguments[-1] == "-p:NsbVersion=10.2.8"
    assert {path.name for path in before} <= {path.name for path in (tmp_path / "made" / "source").iterdir()}
    assert sorted(dotnet.SOURCE.iterdir()) == before


def test_a_build_that_fails_shows_what_the_compiler_said(sdk, tmp_path, capsys):
    sdk("echo 'Setup.cs(8,1): error CS1002: ; expected'; exit 3")

    assert dotnet.main([str(tmp_path / "made")]) == 1
    assert "exit code 3:\nSetup.cs(8,1): error CS1002" in capsys.readouterr().err


def test_the_endpoint_in_csharp_reports_what_it_cannot_start(nsb_dll, tmp_path):
    started = LineProcess("nsb", ["dotnet", nsb_dll, "Alone", "Host=/none/such;Username=nobody"], tmp_path)

    (failed,) = started.wait_for("failed")

    assert failed["failed"]
    assert started.process.wait(30) == 1

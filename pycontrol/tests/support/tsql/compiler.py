"""Compiles all T-SQL offline with Microsoft's own parser and schema compiler: no server, three seconds.

    PYTHONPATH=pycontrol python -m tests.support.tsql.compiler sql

Every batch is parsed, everything that defines something becomes part of one model (SQL Server 2019), and each reference
to a table, column, procedure, function, parameter or variable must resolve. Templates are rendered as the deployment
renders them, for a queue named Sample. Batches that define nothing (grants, guards) are checked as a procedure's body.
A second model holds the scripts as the tests adapt them to Babelfish. What the server itself brings is declared in
server_catalog.sql, what those scripts ask of PostgreSQL in tests/support/babelfish/catalog.sql; nothing is filtered but
the open-ended parameters of sp_executesql.

Not seen: the inside of dynamic SQL, columns of temporary tables, arguments of the server's own functions.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rowpost.database.contract import Procedure, load_contract
from rowpost.database.dialects import sqlserver
from rowpost.deploy.contract_sql import drop_procedures, role_grants, template_rows
from rowpost.deploy.scripts import Script
from rowpost.deploy.sql_text import PLACEHOLDER, SqlTextError, expand, render, split_batches
from rowpost.wire.address import SUBSCRIPTION_TABLE
from tests.support import babelfish
from tests.support.tsql.runtime import UnsupportedMachine, prepare_runtime

__all__ = ["Finding", "Source", "compile_sets", "compile_tree", "of_python", "operations", "read_sources", "tree_sets"]

REPOSITORY = Path(__file__).resolve().parents[4]
CATALOG = Path(__file__).with_name("server_catalog.sql")
BABELFISH = babelfish.STAND_INS / "catalog.sql"
SHIM = REPOSITORY / "deploy" / "tsqlt" / "shim.sql"
OPERATIONS = REPOSITORY / "deploy" / "operations"
SAMPLE = "Sample"
SAMPLES = {
    "saga_table": f"[dbo].[{SAMPLE}Saga]",
    "saga_key": f"{SAMPLE}Saga",
    "subscription_table": f"[dbo].[{SAMPLE}Routing]",
    "subscription_key": SUBSCRIPTION_TABLE,  # procedures call those of the default table
}
#: tSQLt makes a schema of each test class
TEST_CLASS = re.compile(r"EXEC tSQLt\.NewTestClass @ClassName = N'(\w+)'")
#: a schema that a script makes below IF, which T-SQL allows in dynamic SQL only
OWN_SCHEMA = re.compile(r"EXEC \(N'(CREATE SCHEMA \w+) AUTHORIZATION dbo;'\)")
#: the constants of a module that are whole statements
STATEMENT = re.compile(
    r"\s*(SELECT|SET|DECLARE|IF|EXEC|WITH|INSERT|UPDATE|DELETE)\b[^;]+;\s*\Z|\s*SELECT\b.*;\s*\Z", re.DOTALL
)
TIMEOUT = 300  # seconds


@dataclass(frozen=True)
class Source:
    """A file of T-SQL; `path` only names it in findings. `ruled` says that it must keep the rules of rules.py, too."""

    path: str
    text: str
    ruled: bool = False


@dataclass(frozen=True, order=True)
class Finding:
    """One thing that the compiler reported. `path` and `line` are empty and 0 where it named no place."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path or '(no place)'}:{self.line}: {self.message}"


def read_sources(*roots: Path, ruled: bool = False) -> list[Source]:
    """The .sql files below folders (PostgreSQL's left out), and single files."""
    paths = [p for root in roots for p in (sorted(root.rglob("*.sql")) if root.is_dir() else [root])]
    wanted = [p for p in paths if "postgresql" not in p.parts]
    return [Source(_label(path), path.read_text(encoding="utf-8-sig"), ruled) for path in wanted]


def tree_sets(root: Path) -> list[list[Source]]:
    """The sql folder with the operations scripts as SQL Server gets it, which must keep the rules, and as Babelfish does."""
    sources = read_sources(root, ruled=True)
    scripts = [Script(source.path.removeprefix(f"{_label(root)}/"), source.text) for source in sources]
    adapted = [
        Source(source.path, babelfish.adapt(script).text) for source, script in zip(sources, scripts, strict=True)
    ]
    return [[*sources, *operations(), *of_python()], [*read_sources(BABELFISH), *adapted]]


def of_python() -> list[Source]:
    """The statements that stand in the dialect's Python, each as a procedure whose parameter is what `?` stands for."""
    found = []
    for module in pkgutil.iter_modules(sqlserver.__path__):
        values = vars(importlib.import_module(f"{sqlserver.__name__}.{module.name}"))
        for name, text in sorted(values.items()):
            if isinstance(text, str) and STATEMENT.match(text) and "{" not in text:
                head = f"CREATE OR ALTER PROCEDURE dbo.[{module.name}.{name}]\n    @value nvarchar(4000)\nAS\n"
                found.append(Source(f"{module.name}.{name}", f"{head}{text.replace('?', '@value')}\nGO\n", ruled=True))
    return found


def operations() -> list[Source]:
    """The operations scripts, for the queue that the compiler knows."""
    named = re.compile(r"\bdbo\.\[?(?:audit|Sales)\b(?!_)\]?|(?<=:)error(?=\])")
    return [
        Source(
            each.path,
            named.sub(lambda found: SAMPLE if found[0] == "error" else f"dbo.[{SAMPLE}]", each.text),
            ruled=True,
        )
        for each in read_sources(OPERATIONS)
    ]


def compile_tree(root: Path) -> tuple[int, list[Finding]]:
    """Compiles the sql folder for both servers; returns how many files, and findings."""
    sets = tree_sets(root)
    return len(sets[0]), sorted({finding for found in compile_sets(sets) for finding in found})


def compile_sets(sets: Iterable[Iterable[Source]]) -> list[list[Finding]]:
    """Compiles each set of sources as one database; one process for all of them.

    Raises:
        UnsupportedMachine: not Linux on x86-64.
        RuntimeError: a wheel could not be fetched, or the compiler itself failed.
    """
    runtime = prepare_runtime()
    early: list[list[Finding]] = []
    batches = []
    for sources in sets:
        found: list[Finding] = []
        batches.append([batch for source in _complete(list(sources)) for batch in _batches(source, found)])
        early.append(found)
    request = {"runtime": [str(p) for p in (runtime.assemblies, runtime.dotnet, runtime.config)], "sets": batches}
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.tsql.model"],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=TIMEOUT,
        check=False,
        env={**os.environ, **runtime.environment, "PYTHONPATH": str(REPOSITORY / "pycontrol")},
    )
    if done.returncode:
        raise RuntimeError(f"the T-SQL compiler failed:\n{done.stderr.strip()[-4000:]}")
    answers = json.loads(done.stdout)
    return [
        sorted({*found, *(Finding(*each) for each in answer)}) for found, answer in zip(early, answers, strict=True)
    ]


def _complete(sources: list[Source]) -> list[Source]:
    """With the server's catalog, and with tSQLt's shim where tests are among them."""
    texts = [source.text for source in sources]
    needs_shim = any("tSQLt." in text for text in texts) and not any("CREATE SCHEMA tSQLt" in text for text in texts)
    return [*read_sources(CATALOG), *(read_sources(SHIM) if needs_shim else []), *sources]


def _batches(source: Source, found: list[Finding]) -> list[dict[str, str | int | bool]]:
    text = expand(source.text, _fragments(source.path))
    names = {name: _sample(name) for name in PLACEHOLDER.findall(text)}
    try:
        text = render(text, names, "sqlserver")
        batches = split_batches(text, "sqlserver")
    except SqlTextError as error:
        found.append(Finding(source.path, error.line, error.problem))
        return []
    classes = [f"CREATE SCHEMA [{name}];" for name in TEST_CLASS.findall(source.text)] + OWN_SCHEMA.findall(source.text)
    found_batches = [*((1, text) for text in classes), *((batch.line, batch.text) for batch in batches)]
    return [{"path": source.path, "line": line, "text": text, "ruled": source.ruled} for line, text in found_batches]


def _fragments(path: str) -> dict[str, str]:
    """What the deployment renders from the contract, with every procedure that a database, queue or saga may have."""
    contract = load_contract()
    scope = Path(path).parent.name if Path(path).parent.name in ("queue", "saga") else "database"
    granted: list[Procedure] = [each for each in contract.procedures if each.scope == scope]
    return {
        "procedure_grants": role_grants("sqlserver", granted),
        "queue_procedures": template_rows(contract.templates()),
        "drop_queue_procedures": drop_procedures("sqlserver", contract.templates()),
        "drop_saga_procedures": drop_procedures("sqlserver", contract.saga_templates()),
    }


def _sample(placeholder: str) -> str:
    """{queue_table} is [dbo].[Sample], {delayed_table} is [dbo].[Sample.delayed], a column's type nvarchar(200), the others as in SAMPLES or
    Sample."""
    if placeholder.endswith("_type"):
        return "nvarchar(200)"
    if placeholder.endswith("_column"):
        return f"Correlation_{SAMPLE}"
    table = re.fullmatch(r"(\w+)_table", placeholder)
    if placeholder in SAMPLES or not table:
        return SAMPLES.get(placeholder, SAMPLE)
    return f"[dbo].[{SAMPLE}]" if table.group(1) == "queue" else f"[dbo].[{SAMPLE}.{table.group(1)}]"


def _label(path: Path) -> str:
    path = path.resolve()
    return path.relative_to(REPOSITORY).as_posix() if path.is_relative_to(REPOSITORY) else str(path)


def main(arguments: list[str]) -> int:
    """Prints findings; 0 when there are none."""
    if len(arguments) != 1 or not Path(arguments[0]).is_dir():
        sys.stderr.write("usage: python -m tests.support.tsql.compiler FOLDER\n")
        return 2
    try:
        files, findings = compile_tree(Path(arguments[0]))
    except UnsupportedMachine as reason:
        sys.stderr.write(f"not compiled: {reason}\n")
        return 3
    sys.stdout.write("".join(f"{finding}\n" for finding in findings))
    sys.stdout.write(f"{files} files compiled, {len(findings)} findings\n")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

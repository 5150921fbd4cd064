"""The generated pages of the documentation: `python -m tests.support.pages` writes them.

docs/reference/errors.md       from sql/contract.yml and the dialects' sets of error numbers
docs/reference/behaviour.md    from behaviour.yml, the `promise` markers of the tests, and behaviour.json
docs/for-dbas.md               the tables between its marks, from the contract and the headers of the .sql files
docs/reference/dashboard-api.json  from the operations of the dashboard's interface
docs/reference/nservicebus-tests.md  from nservicebus-tests.yml
docs/engines.md                from docs/reference/engines.json, which `pytest --engines-report=FILE` writes, and from the changes for Babelfish
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import yaml

from rowpost.dashboard.api import openapi
from rowpost.database.contract import load_contract
from rowpost.database.dialects.postgresql import errors as postgresql_errors
from rowpost.database.dialects.sqlserver import errors as sqlserver_errors
from rowpost.database.sql_folder import sql_folder
from rowpost.deploy.scripts import load_scripts
from tests.support import babelfish, nservicebus_tests
from tests.support.behaviour import behaviour_page, prune_recorded, recorded
from tests.support.engines_report import WITHOUT_TARGET
from tests.support.sql_headers import read_header

__all__ = ["main", "pages"]

REPOSITORY = Path(__file__).resolve().parents[3]
DOCS = REPOSITORY / "docs"
MADE = "<!-- made by `python -m tests.support.pages` in pycontrol/; edits are lost -->"


def pages() -> dict[Path, str]:
    """Return the contents of each page by its path."""
    return {
        DOCS / "reference" / "errors.md": errors_page(),
        DOCS / "for-dbas.md": with_tables((DOCS / "for-dbas.md").read_text(encoding="utf-8")),
        DOCS / "engines.md": engines_page(),
        DOCS / "reference" / "dashboard-api.json": json.dumps(openapi(), indent=2) + "\n",
        DOCS / "reference" / "behaviour.md": behaviour_page(MADE, engines(read_results() | recorded())),
        nservicebus_tests.DATA.with_suffix(".md"): nservicebus_tests.page(MADE),
    }


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def errors_page() -> str:
    ours = [
        (str(number), f"{51000 + number}", f"RP{number:03}", f"`{entry.name}`", entry.meaning)
        for number, entry in load_contract().errors.items()
    ]
    theirs = [
        ("`Deadlock`: the transaction was rolled back and can be run again", sqlserver_errors.TRY_AGAIN, postgresql_errors.TRY_AGAIN),
        ("`DatabaseUnavailable`: the server is down, restarts, fails over, or has no free connection", sqlserver_errors.UNAVAILABLE,
         postgresql_errors.UNAVAILABLE | {"08xxx"}),
        ("`LoginRefused`", sqlserver_errors.LOGIN_REFUSED, postgresql_errors.LOGIN_REFUSED),
        ("`SettingsError`: a firewall, or (without a number) a certificate that this machine does not trust", sqlserver_errors.FIREWALL, set()),
        ("`PermissionDenied`", sqlserver_errors.PERMISSION, {"42501"}),
        ("`SchemaMissing`, or `QueueNotFound` for a queue's own procedure or table", {2812, 208}, {"42883", "3F000", "42P01"}),
        ("`InvalidCount`: a number is out of the range of its type", {8115}, {"22003"}),
        ("`InvalidMessage`: a null or a character that cannot be stored", {515}, {"23502", "22021"}),
    ]  # fmt: skip
    rows = [(name, ", ".join(map(str, sorted(a))), ", ".join(sorted(b))) for name, a, b in theirs]
    return (
        f"{MADE}\n# Errors\n\n## Raised by rowpost's procedures\n\n"
        + table(("Number", "SQL Server", "PostgreSQL", "Python", "Meaning"), ours)
        + "\n\n## Raised by the servers\n\nrowpost translates these errors of the servers. Every other error is a `DatabaseError` with the"
        " text of the server. `UnsupportedServer` is raised for PostgreSQL before 14, for SQL Server before 2016 SP1, for databases below compatibility level 130 when they are deployed to, and for a pooler that"
        " shares sessions or allows no transactions.\n\n" + table(("Python", "SQL Server", "PostgreSQL"), rows) + "\n"
    )


def with_tables(text: str) -> str:
    """Replace the text between the marks of a page by newly made tables."""
    made = {
        "procedures": procedures_table(),
        "rights": rights_table(),
        "tables": tables_table(),
        "features": features_table(),
    }
    for name, content in made.items():
        pattern = rf"(<!-- made: {name} -->\n).*?(<!-- end -->)"
        text = re.sub(pattern, lambda found, new=content: f"{found[1]}{new}\n{found[2]}", text, flags=re.DOTALL)
    return text


def procedures_table() -> str:
    rows = []
    for procedure in load_contract().procedures:
        path = f"procedures/{procedure.folder}/{procedure.name}.sql"
        name = procedure.name + ("" if procedure.scope == "database" else f":<{procedure.scope}>")
        locks = [_locking(sql_folder() / path, "sqlserver"), _locking(sql_folder() / "postgresql" / path, "postgresql")]
        rows.append((f"`{name}`", procedure.feature, procedure.purpose, procedure.side, *locks))
    return table(("Procedure", "Feature", "Purpose", "Side", "Locks, SQL Server", "Locks, PostgreSQL"), rows)


def _locking(path: Path, engine: str) -> str:
    comment = read_header(path, engine).comment
    found = re.search(r"^Locking:\s*(.*?)(?=^\w[\w ]*:|\Z)", comment, re.MULTILINE | re.DOTALL)
    return " ".join(found[1].split()) if found else "-"


def rights_table() -> str:
    rows = []
    for procedure in load_contract().procedures:
        scope, template = procedure.scope, procedure.scope != "database"
        mark = {
            role: "yes" if role in procedure.roles else "" for role in ("endpoint", "operator", "reader", "body_reader")
        }
        if template and procedure.side in ("send", "receive"):
            mark["endpoint"] = f"granted per {scope}"
        elif mark["endpoint"]:
            mark["endpoint"] = "for its own queues" if procedure.acts_for else f"yes: {procedure.open}"
        rows.append((f"`{procedure.name}`" + (f" of a {scope}" if template else ""), *mark.values()))
    return table(("Procedure", "rowpost_endpoint", "rowpost_operator", "rowpost_reader", "rowpost_body_reader"), rows)


def tables_table() -> str:
    rows = []
    for path in sorted((sql_folder() / "tables").glob("*_*.sql")):
        text = path.read_text(encoding="utf-8")
        found = re.search(r"((?:^--.*\n)+)(?:IF .*\n)?(?:BEGIN\n)? *CREATE TABLE ([\w.]+)", text, re.MULTILINE)
        if found:
            feature = load_contract().feature_of(f"tables/{path.name}")
            rows.append(
                (
                    f"`{found[2]}`",
                    feature,
                    " ".join(line.lstrip("- ") for line in found[1].splitlines()),
                    f"`{path.name}`",
                )
            )
    return table(("Table", "Feature", "What it holds", "Made by"), rows)


def features_table() -> str:
    of = load_contract()
    rows = [
        (
            f"`{name}`", each.purpose, str(sum(p.feature == name for p in of.procedures if p.scope == "database")),
            str(sum(p.feature == name for p in of.procedures if p.scope == "queue")),
            ", ".join(f"`{path}`" for path, entry in of.tables.items() if entry.feature == name) or "-",
        )
        for name, each in of.features.items()
    ]  # fmt: skip
    return table(("Feature", "What it is for", "Procedures", "Procedures per queue", "Scripts of tables"), rows)


def read_results() -> dict[str, dict[str, dict[str, int]]]:
    """Return the recorded counts of outcomes by engine and test file."""
    return json.loads((DOCS / "reference" / "engines.json").read_text(encoding="utf-8"))


def engines(results: dict[str, object]) -> list[str]:
    """Return the engines' names in the order of the pages: PostgreSQL, Babelfish, SQL Server."""
    shared = [name for name in results if name != WITHOUT_TARGET]
    return sorted(shared, key=lambda name: (not name.startswith("PostgreSQL"), not name.startswith("Babelfish"), name))


def engines_page() -> str:
    results = read_results()
    names = engines(results)
    compiled = [] if any(name.startswith("SQL Server") for name in names) else ["SQL Server"]
    features = sorted({feature for each in results.values() for feature in each})
    rows = [
        (feature, *(_outcome(results[engine].get(feature)) for engine in names), *("compiled" for _ in compiled))
        for feature in features
    ]
    hand = "No SQL Server was available. Its T-SQL is *compiled* offline with Microsoft's compiler, and executed on Babelfish where a column says so. "
    return (
        f"{MADE}\n# What was run on which engine\n\nThis page counts the tests of each file of `pycontrol/tests/`."
        " `tsqlt` are the classes of `sql/tests`, executed with the shim. *Run* counts tests that passed. A dash means that no"
        " run is recorded. The column of PostgreSQL 18 is of a whole run on 2026-11-23, and that of PostgreSQL 15 of one on 2026-11-22. The column"
        f" of Babelfish is of one run of all files on 2026-11-23, which took two hours.\n{hand if compiled else ''}"
        "`compose.yaml` and `.github/workflows/engines.yml` run all tests on SQL Server"
        " 2017, 2019, 2022 and 2025 and PostgreSQL 14 to 18 if a container engine is available.\n\n"
        + table(("Tests", *names, *compiled), rows)
        + f"\n\n{_versions()}"
        + "\n\n## Babelfish\n\nBabelfish is an engine for rowpost's tests. It is not supported, and `rowpost apply` refuses it."
        " To run procedures there, the tests change some statements of some, and replace others as a whole. What is changed or"
        " replaced was never executed as SQL Server gets it. Babelfish has no CURRENT_TRANSACTION_ID, no DATEFORMAT that counts, and no REVERT: a"
        " function stands in for the first, the others were never executed. A test that passes on Babelfish does not show that the procedure"
        f" runs on SQL Server.\n\n{_execution()}\n"
    )


def _versions() -> str:
    """Return what tests each version: the images of the workflow, and the versions for which there is none."""
    jobs = yaml.safe_load((REPOSITORY / ".github/workflows/engines.yml").read_text(encoding="utf-8"))["jobs"]
    servers, matrix = jobs["postgresql"]["strategy"]["matrix"]["version"], jobs["sqlserver"]["strategy"]["matrix"]
    variants = f"all tests, with the collations {' and '.join(matrix['collation'])}, and with READ_COMMITTED_SNAPSHOT {' and '.join(matrix['snapshot'])}"
    by_hand = "by hand: [the first day](guides/sql-server-first-day.md)"
    rows = [
        ("SQL Server 2016 (from Service Pack 1)", "none: 2017 is the first version with an image for Linux", by_hand),
        *(
            (f"SQL Server {each}", f"`mcr.microsoft.com/mssql/server:{each}-latest`", variants)
            for each in matrix["version"]
        ),
        ("Azure SQL Database and Managed Instance", "none: they are services", by_hand),
        *((f"PostgreSQL {each}", f"`postgres:{each}`", "all tests") for each in servers),
    ]
    return (
        "## What tests each version\n\nThe workflow `engines.yml` starts these images. `compose.yaml` has the same ones. For SQL Server 2016, a rule of"
        " `make lint/rules` refuses functions that came later, and the step `level` of the first day deploys at its compatibility level, 130.\n\n"
        + table(("Version", "Image", "Tests"), rows)
    )


def _execution() -> str:
    """Return how each procedure of sql/ is executed on Babelfish, as a sentence of counts and a table."""
    scripts = load_scripts("sqlserver")
    adapted = babelfish.adapted_procedures()
    names = sorted(
        each.name
        for each in (*scripts.database, *scripts.queue.procedures, *scripts.saga.procedures)
        if each.name.startswith("procedures/")
    )
    rows = []
    for name in names:
        lack = adapted.get(name, "")
        how = "as shipped" if not lack else "never" if (babelfish.STAND_INS / name).is_file() else "with changes"
        rows.append((f"`{name.removeprefix('procedures/').removesuffix('.sql')}`", how, lack))
    counts = Counter(how for _, how, _ in rows)
    return (
        f"Of {len(rows)} procedures, {counts['as shipped']} are executed as shipped, {counts['with changes']} with changes, and"
        f" {counts['never']} never: another procedure stands in.\n\n"
        + table(("Procedure", "Executed", "What Babelfish lacks"), rows)
    )


def _outcome(counts: dict[str, int] | None) -> str:
    if not counts:
        return "-"
    words = [f"run: {counts['passed']}"] if counts.get("passed") else []
    words += [f"**{counts['failed']} failed**"] if counts.get("failed") else []
    words += [f"{counts['skipped']} skipped"] if counts.get("skipped") else []
    return ", ".join(words)


def main() -> None:
    prune_recorded()
    for path, text in pages().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

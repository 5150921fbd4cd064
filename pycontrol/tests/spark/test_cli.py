"""The commands of rowpost spark. They share the tests' Spark session."""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rowpost.cli.app import app
from rowpost.version import install_command
from tests.support.spark.archives import ArchiveMaker
from tests.support.spark.messages import NOON, audit_row, error_row

OK, FINDING, USAGE, SETTINGS, UNAVAILABLE, NOT_FOUND, FAILED = 0, 1, 2, 3, 4, 6, 7


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    made = ArchiveMaker(tmp_path_factory.mktemp("cli"))
    for number in range(2):
        made.batch(
            number,
            [audit_row(f"m{number}{n}", ConversationId=f"c{number}") for n in range(3)]
            + [error_row(f"e{number}", at=NOON)],
        )
    return made.path


@pytest.fixture
def out(made, tmp_path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "out"))


@pytest.fixture
def cli(spark):
    """Run a command. Returns its exit code, the JSON of its last line, and its stderr."""

    def call(*arguments: object):
        ended = CliRunner().invoke(app, ["spark", *map(str, arguments)])
        lines = ended.stdout.strip().splitlines()
        last = json.loads(lines[-1]) if lines and lines[-1].startswith("{") else None
        return ended.exit_code, last, ended.stderr

    return call


def test_metrics_prints_and_writes(spark, cli, made, tmp_path):
    code, counts, _ = cli("metrics", made, "--out", tmp_path / "flow")

    assert code == OK
    assert (counts["rows"], counts["messages"], counts["failed"], counts["skipped"]) == (1, 6, 2, 0)
    assert spark.read.parquet(str(tmp_path / "flow")).first().messages == 6


def test_failures_prints_and_lists(cli, made, tmp_path):
    code, counts, _ = cli("failures", made, "--csv", tmp_path / "f.csv")

    assert (code, counts["groups"], counts["messages"]) == (OK, 1, 2)
    assert "builtins.ValueError,Sales,Shop.PlaceOrder" in (tmp_path / "f.csv").read_text()


def test_times_are_printed_in_utc_and_say_so_whatever_the_zone_of_the_machine_is(spark, made, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "250")
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        metrics = CliRunner().invoke(app, ["spark", "metrics", str(made)]).stdout
        failures = CliRunner().invoke(app, ["spark", "failures", str(made), "--csv", str(tmp_path / "f.csv")]).stdout
    finally:
        monkeypatch.delenv("TZ")
        time.tzset()

    assert "hour (UTC)" in metrics and "2024-05-17 12:00" in metrics
    assert "last seen (UTC)" in failures and "2024-05-17 12:00" in failures
    assert "2024-05-17T12:00:00.000000Z" in (tmp_path / "f.csv").read_text()


def test_conversations_sums_up_and_draws_one(spark, cli, made, tmp_path):
    code, counts, _ = cli("conversations", made, "--out", tmp_path / "c")
    assert (code, counts["conversations"], counts["deepest"], counts["failed"]) == (OK, 2, 1, 2)
    assert spark.read.parquet(str(tmp_path / "c" / "conversations")).count() == 2

    code, counts, _ = cli("conversations", made, "--id", "c0", "--mermaid", "--json")
    assert (code, counts["messages"]) == (OK, 3) and counts["tree"].startswith("sequenceDiagram")

    code, counts, said = cli("conversations", made, "--id", "none")
    assert (code, counts) == (NOT_FOUND, None) and "'none'" in said


def test_retain_shows_and_then_does(cli, out, tmp_path):
    policy = tmp_path / "policy.yml"
    policy.write_text("rules:\n  - {message_type: Shop.*, older_than: 30d, action: delete}\n")

    code, counts, said = cli("retain", out, policy)
    assert (code, counts["planned"], counts["deleted"], counts["applied"]) == (OK, 8, 0, False) and "--apply" in said

    assert cli("retain", out, policy, "--apply")[1]["deleted"] == 8
    code, counts, _ = cli("retain", out, policy, "--apply")
    assert (code, counts["planned"], counts["deleted"]) == (OK, 0, 0)


def test_compact_and_verify(cli, out):
    day = next(out.glob("queue=audit/day=*"))
    (day / "1f0c2a9e-0000-0000-0000-000000000000-9-1.zstd.parquet").write_bytes(b"PAR1")

    code, counts, _ = cli("verify", out)
    assert (code, counts["messages"], counts["duplicates"], counts["findings"], counts["leftovers"]) == (OK, 8, 0, 0, 1)

    code, counts, said = cli("compact", out)
    assert (code, counts["files_before"], counts["files_after"]) == (OK, 2, 1) and "Delta table" in said
    code, counts, _ = cli("verify", out, "--sweep", "--json")
    assert (code, counts["messages"], counts["swept"], counts["details"], counts["notes"]) == (OK, 8, 1, [], [])


def test_erase_and_its_proof(cli, out, tmp_path):
    (tmp_path / "ids").write_text("m00\n")

    assert cli("verify", out, "--absent", tmp_path / "ids")[0] == FINDING
    assert cli("erase", out, "--reason", "request 17")[0] == USAGE
    code, receipt, said = cli("erase", out, "--ids", tmp_path / "ids", "--reason", "request 17")
    assert (code, receipt["erased"], receipt["reason"]) == (OK, 1, "request 17") and "Time travel" in said

    code, counts, _ = cli("verify", out, "--absent", tmp_path / "ids")
    assert (code, counts["messages"]) == (OK, 7)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("metrics", "nowhere"), NOT_FOUND, "nowhere"),
        (("verify", "nowhere"), NOT_FOUND, "nowhere"),
        (("metrics",), USAGE, "--live"),
        (("metrics", "--live", "audit"), USAGE, "--out"),
        (("failures", "x", "--queue", "y"), USAGE, "--queue"),
        (("replay", "x", "--job", "k"), USAGE, "--to-original"),
        (("replay", "x", "Sales", "--job", "k", "--ramp", "1,two"), USAGE, "1,two"),
        (("archive", "audit", "x", "--once", "--every", "1s"), USAGE, "--every"),
        (("archive", "audit", "x", "--shared"), USAGE, "--drain"),
        (("verify", ".", "--conf", "novalue"), USAGE, "KEY=VALUE"),
        (("verify", ".", "--conf", "spark.x.password=marker"), USAGE, "secret"),
        (("compact", ".", "--older-than", "soon"), USAGE, "soon"),
        (("adopt", "."), USAGE, "removed. Archives of plain Parquet files"),
        (("load", "orders.parquet", "Sales", "--map", "orders.yml", "--job", "k"), USAGE, "removed. Write the rows"),
        (("quality", ".", "--expect", "expect.yml"), USAGE, "removed. Check decoded messages"),
        (("targets", ".", "--targets", "targets.yml"), USAGE, "removed. Compare the metrics"),
        (("metrics", ".", "--plot", "flow.png"), USAGE, "removed. Draw the metrics"),
        (("archive", "Sales", ".", "--log"), USAGE, "removed. Archive the audit queue"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_meant_is_refused_in_words(cli, arguments, code, says):
    ended, counts, said = cli(*arguments)

    assert (ended, counts) == (code, None)
    assert says in said and "Traceback" not in said and "marker" not in said


def test_a_bad_policy_is_a_mistake_in_settings(cli, out, tmp_path):
    (tmp_path / "p.yml").write_text("rules: [{action: burn}]")

    code, _, said = cli("retain", out, tmp_path / "p.yml")

    assert code == SETTINGS and "burn" in said


def test_an_empty_folder_is_no_archive(cli, tmp_path):
    assert cli("verify", tmp_path)[0] == NOT_FOUND


def test_no_other_command_imports_spark():
    code = "import sys, rowpost.cli.app; print([m for m in sys.modules if m.partition('.')[0] in ('pyspark', 'pyarrow', 'matplotlib', 'py4j')])"

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_without_the_extra_a_command_says_what_to_install(tmp_path):
    """Runs in a separate process in which pyspark cannot be imported."""
    code = (
        "import sys\nfor name in ('pyspark', 'pyarrow'): sys.modules[name] = None\n"
        "sys.argv = ['rowpost', 'spark', 'verify', '.']\nfrom rowpost.cli import main\nmain()\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)

    assert ended.returncode == UNAVAILABLE
    assert install_command("spark") in ended.stderr and "Traceback" not in ended.stderr


def test_schemas_are_proposed_checked_and_used_to_decode(cli, out, tmp_path):
    folder, tables = tmp_path / "schemas", tmp_path / "tables"

    assert cli("schemas", out)[0] == USAGE
    assert cli("schemas", out, "--check", folder)[0] == SETTINGS
    code, counts, _ = cli("schemas", out, "--propose", folder)
    assert (code, counts["types"], counts["written"]) == (OK, 1, 1)
    assert cli("schemas", out, "--check", folder, "--json")[:2] == (OK, {"changes": 0, "types": 0, "details": []})

    code, counts, _ = cli("decode", out, tables, "--schemas", folder)
    assert (code, counts["added"], counts["rescued"], counts["errors"], counts["without_schema"]) == (OK, 8, 0, 0, 0)
    code, counts, _ = cli("decode", out, tables, "--schemas", folder, "--json")
    assert (code, counts["added"], counts["tables"][0]["message_type"]) == (OK, 0, "Shop.PlaceOrder")

    (folder / "Shop.PlaceOrder.ddl").write_text("Missing INT")
    code, counts, _ = cli("schemas", out, "--check", folder, "--json")
    assert (code, [(each["kind"], each["field"]) for each in counts["details"]]) == (
        FINDING,
        [("never seen", "Missing")],
    )

    (folder / "Shop.PlaceOrder.ddl").write_text("Missing INTT")
    code, _, said = cli("decode", out, tables, "--schemas", folder)
    assert code == SETTINGS and "did you mean INT?" in said and "Traceback" not in said


def test_erase_and_retain_name_the_copies_that_they_do_not_find(cli, out, tmp_path):
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "Shop.PlaceOrder.ddl").write_text("Number BIGINT")
    cli("decode", out, tmp_path / "tables", "--schemas", tmp_path / "schemas")
    (tmp_path / "ids").write_text("m00\n")

    code, receipt, _ = cli("erase", out, "--ids", tmp_path / "ids", "--reason", "request 17")
    assert (code, receipt["copies_erased"]) == (OK, 1)
    shutil.rmtree(tmp_path / "tables")
    code, receipt, said = cli("erase", out, "--ids", tmp_path / "ids", "--reason", "request 17")
    assert code == FINDING and str(tmp_path / "tables") in said

    (tmp_path / "policy.yml").write_text("rules:\n  - {message_type: Shop.*, action: redact}\n")
    code, counts, said = cli("retain", out, tmp_path / "policy.yml", "--apply")
    assert (code, counts["redacted"], counts["copies_missing"]) == (FINDING, 7, [str(tmp_path / "tables")])
    assert str(tmp_path / "tables") in said


def test_metrics_of_days_and_a_wrong_unit(cli, out):
    code, counts, _ = cli("metrics", out, "--by", "day")
    assert (code, counts["rows"], counts["messages"]) == (OK, 1, 6)
    code, _, said = cli("metrics", out, "--by", "week")
    assert code == USAGE and "week" in said

"""What a DBA calls: metrics and maintenance, comparing with a saved release, going back to it, rights. On every engine."""

import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rowpost.database.connection import connect_url
from tests.support.logins import Logins, logins
from tests.support.probe import Probe, probe_for
from tests.support.program import Program, environment_file, rowpost
from tests.support.workers import eventually

__all__ = ["rowpost"]

PEEK = "procedures/queue/peek_queue.sql"
OWNERSHIP = "tables/008_queue_ownership.sql"


@pytest.fixture
def sql(rowpost: Program, target) -> Iterator[Probe]:
    """Plain SQL in the program's database."""
    with connect_url(rowpost.engine, rowpost.variables["SHOP_URL"]) as database:
        yield probe_for(database, babelfish=target.babelfish)


@pytest.fixture
def login(rowpost: Program, sql: Probe) -> Iterator[Logins]:
    with logins(sql, rowpost.variables["SHOP_URL"]) as made:
        yield made


@pytest.fixture
def earlier(rowpost: Program, tmp_path: Path) -> Callable[..., Path]:
    """Saves this release with peek_queue written in another way, as an earlier one may have had it."""

    def save(*, without: str = "") -> Path:
        assert rowpost("plan", "--release-archive", tmp_path / "now.zip").code == 0
        with zipfile.ZipFile(tmp_path / "now.zip") as now, zipfile.ZipFile(tmp_path / "earlier.zip", "w") as changed:
            for name in now.namelist():
                text = now.read(name)
                if name.endswith(PEEK):
                    text = text.replace(b"/*\n", b"/*\nAs it was.\n", 1)
                if not without or not name.endswith(without):
                    changed.writestr(name, text)
        return tmp_path / "earlier.zip"

    return save


def out_of_reach(program: Program) -> Program:
    elsewhere = program.with_environment(program.environment)
    nowhere = {"sqlserver": "Server=nowhere.invalid;Database=x", "postgresql": "postgresql://nowhere.invalid/x"}
    elsewhere.variables["SHOP_URL"] = nowhere[program.engine]
    return elsewhere


# ---------------------------------------------------------------------------------------------- metrics, upkeep
def test_metrics_shows_every_own_queue_and_one_when_it_is_named(rowpost: Program):
    rowpost("send", "Sales", "--body", "x")

    every = rowpost("queue", "metrics", "--json")
    one = rowpost("queue", "metrics", "Sales", "--json")
    shown = rowpost("queue", "metrics")

    assert (every.code, one.code, shown.code) == (0, 0, 0)
    assert {each["queue"] for each in every.json} == {"Billing", "Sales", "audit", "error"}
    (sales,) = one.json
    assert 0 <= sales["oldest_age_ms"] < 3_600_000
    assert sales["expired"] == 0
    assert "enqueued_per_second" not in sales
    assert shown.out.split()[:2] == ["queue", "depth"]


def test_metrics_over_a_time_shows_rates_where_the_engine_counts(rowpost: Program, target):
    (sales,) = rowpost("queue", "metrics", "Sales", "--over", "0.2", "--json").json

    rates = (sales["enqueued_per_second"], sales["dequeued_per_second"])
    assert rates == (None, None) if target.babelfish else all(rate >= 0 for rate in rates)


@pytest.mark.parametrize("command", ["metrics", "maintain"])
def test_upkeep_of_an_unknown_queue_is_not_found(rowpost: Program, command: str):
    ended = rowpost("queue", command, "Nowhere")

    assert ended.code == 6
    assert "Nowhere" in ended.err


@pytest.mark.parametrize(
    "command", [("send", "{}", "--body", "x"), ("receive", "{}"), ("queue", "metrics", "{}")], ids=lambda each: each[0]
)
@pytest.mark.parametrize("typed", ["Biling", "BILLING2"])
def test_a_name_that_is_like_one_that_exists_is_told(rowpost: Program, command: tuple[str, ...], typed: str):
    ended = rowpost(*(each.format(typed) for each in command))

    assert ended.code == 6
    assert ("Did you mean 'Billing'?" in ended.err) is (typed == "Biling")


COMPOSED, DECOMPOSED = "Caf\u00e9", "Cafe\u0301"


@pytest.mark.parametrize(
    "command",
    [
        ("send", "{}", "--body", "x"),
        ("queue", "peek", "{}"),
        ("delayed", "list", "{}"),
        ("errors", "list", "-q", "{}"),
        ("run", "-q", "{}"),
    ],
    ids=lambda each: "-".join(each[:2]),
)
@pytest.mark.parametrize("typed", ["Biling", DECOMPOSED])
def test_nobody_who_misspelt_a_queue_is_advised_to_make_a_second_one(
    rowpost: Program, command: tuple[str, ...], typed: str
):
    worked = f"queues: {{Billing: {{worker: {{handler: 'a:b'}}}}, {COMPOSED}: {{worker: {{handler: 'a:b'}}}}}}\n"
    environment = environment_file(rowpost.folder, rowpost.engine, worked, "worked")
    rowpost = rowpost.with_environment(environment)
    rowpost("queue", "create", COMPOSED)

    ended = rowpost(*(each.format(typed) for each in command))

    assert ended.code in (3, 6)
    assert f"Did you mean '{'Billing' if typed == 'Biling' else COMPOSED}'?" in ended.err
    assert not any(advice in ended.err for advice in ("rowpost queue create", "delayed: true", "worker:"))


def test_maintain_does_what_is_needed_and_a_second_time_nothing(rowpost: Program, sql: Probe, target):
    if target.babelfish:
        pytest.skip("Babelfish: nothing to look after from T-SQL, as the next test shows")
    table = sql.table("Sales")
    sql.run(
        f"ALTER TABLE {table} RESET (vacuum_truncate)"
        if rowpost.engine == "postgresql"
        else f"ALTER TABLE {table} SET (LOCK_ESCALATION = TABLE)"
    )

    first = rowpost("queue", "maintain", "Sales", "--json")
    second = rowpost("queue", "maintain", "Sales", "--json")

    assert (first.code, second.code) == (0, 0)
    assert [(step["queue"], step["action"], step["state"]) for step in first.json["steps"]][:1] == [
        ("Sales", "settings", "done")
    ]
    assert "settings" not in {step["action"] for step in second.json["steps"]}


def test_maintain_tells_scripts_by_its_exit_code_that_something_waits_for_a_person(
    rowpost: Program, sql: Probe, login, target
):
    shop = rowpost
    if rowpost.engine == "postgresql":
        if sql.value("SELECT current_setting('server_version_num')::integer") >= 170000:
            sql.run(f"REVOKE MAINTAIN ON {sql.table('audit')} FROM rowpost_operator")
        sql.run(f"ALTER TABLE {sql.table('audit')} SET (autovacuum_enabled = off)")
        sql.run(
            f"INSERT INTO {sql.table('audit')} (id, headers) SELECT gen_random_uuid(), '' FROM generate_series(1, 12000)"
        )
        sql.run(f"DELETE FROM {sql.table('audit')}")
        dead = f"SELECT pg_stat_get_dead_tuples('{sql.table('audit')}'::regclass)"
        eventually(lambda: sql.value(dead) >= 12000, "the statistics know of the dead rows")
        name = login.make("cli_operator")
        sql.run(f"GRANT rowpost_operator TO {name}")
        shop = rowpost.with_environment(rowpost.environment)
        shop.variables["SHOP_URL"] = login.url(name)
    elif not target.babelfish:
        pytest.skip("SQL Server's heaps wait on Standard edition only")

    waits = shop("queue", "maintain", "audit", "--json")
    shown = shop("queue", "maintain", "audit")

    assert (waits.code, shown.code) == (1, 1)
    assert [(step["action"], step["state"]) for step in waits.json["steps"]] == [("vacuum", "waits")]
    assert "VACUUM" in shown.out


# ---------------------------------------------------------------------------------------------- releases
def test_plan_from_a_saved_release_shows_what_changed_and_connects_to_nothing(
    rowpost: Program, earlier, tmp_path: Path
):
    offline = out_of_reach(rowpost)
    saved = earlier()

    same = offline("plan", "--from", tmp_path / "now.zip", "--exit-code")
    changed = offline("plan", "--from", saved, "--exit-code")
    document = offline("plan", "--from", saved, "--json").json

    assert (same.code, changed.code) == (0, 1), same.err + changed.err
    assert "-As it was." in changed.out
    assert {item["name"].rpartition(":")[0] for item in document["review"]["items"]} == {PEEK}
    assert document["review"]["counts"] == {"changed": 4}


def test_plan_from_a_file_that_is_no_release_is_refused_by_name(rowpost: Program, tmp_path: Path):
    (tmp_path / "what.zip").write_bytes(b"no zip")

    refused = rowpost("plan", "--from", tmp_path / "what.zip")

    assert refused.code == 7
    assert "what.zip" in refused.err


def test_apply_to_a_saved_release_goes_back_when_somebody_says_yes_and_apply_comes_forward_again(
    rowpost: Program, earlier
):
    saved = earlier()

    unasked = rowpost("apply", "--to", saved)
    agreed = rowpost("apply", "--to", saved, "--yes", "--json")
    found = rowpost("verify", "--json")
    forward = rowpost("apply", "--json")

    assert (unasked.code, agreed.code) == (2, 0), agreed.err
    assert {name.rpartition(":")[0] for name in agreed.json["applied"]} == {PEEK}
    assert agreed.json["undone"] == []
    assert {finding["kind"] for finding in found.json["findings"]} == {"not_applied"}
    assert sorted(forward.json["applied"]) == sorted(agreed.json["applied"])
    assert rowpost("verify").code == 0


def test_tables_do_not_go_back_without_a_script_of_their_own(rowpost: Program, earlier):
    refused = rowpost("apply", "--to", earlier(without=OWNERSHIP), "--tables", "--yes")
    aimless = rowpost("apply", "--tables")

    assert (refused.code, aimless.code) == (7, 2)
    assert OWNERSHIP in refused.err
    assert "--to" in aimless.err
    assert rowpost("verify").code == 0


# ---------------------------------------------------------------------------------------------- rights
def test_a_grant_that_is_applied_gives_a_login_its_queues_and_no_others(rowpost: Program, login: Logins, target):
    name = login.make("cli_shop")
    shop = rowpost.with_environment(rowpost.environment)
    shop.variables["SHOP_URL"] = login.url(name)
    # Babelfish chains no ownership: there a login needs the rights on tables too
    tables = ("--tables",) if target.babelfish else ()
    wanted = ("queue", "grant", "--login", name, "--receive-from", "Sales", "--send-to", "Billing", *tables)

    before = shop("send", "Billing", "--body", "x")
    printed = rowpost(*wanted)
    granted = rowpost(*wanted, "--apply")
    ends = [
        shop("send", "Billing", "--body", "x"),
        shop("receive", "Sales"),
        shop("receive", "Billing"),
        shop("send", "Sales", "--body", "x"),
    ]

    assert (before.code, printed.code, granted.code) == (5, 0, 0), granted.err
    assert granted.out.splitlines()[: len(printed.out.splitlines())] == printed.out.splitlines()
    assert [each.code for each in ends] == [0, 0, 5, 5]

"""What an earlier version deployed and this one does not know: the publications of streams that read the server's log."""

import tempfile
from pathlib import Path

import pytest

from rowpost.database.connection import connect_url
from rowpost.deploy.apply import apply, difference
from rowpost.deploy.verify import verify
from rowpost.errors import SettingsError
from rowpost.settings.environment import load_settings
from tests.support.postgres import Server
from tests.support.wake_up import postgresql_only

__all__ = ["postgresql_only"]

SCRIPT = "tables/queue/create_publication.sql:Sales"


@pytest.mark.parametrize("by_queue", [False, True])
def test_apply_drops_the_publication_that_an_earlier_version_made(shop, database, sql, postgresql_only, by_queue):
    apply(database, shop.plan())
    sql.run('CREATE PUBLICATION "rowpost_log:Sales" FOR TABLE "Sales" WITH (publish = \'insert\')')
    database.call(
        "record_script",
        script_name=SCRIPT,
        script_kind="once",
        script_hash="0",
        object_kind="publication",
        object_name='"rowpost_log:Sales"',
    )
    database.call("record_feature", environment=shop.settings.environment, feature="publication:Sales")

    found = difference(database, shop.plan())
    result = apply(database, shop.plan(), by_queue=by_queue)

    assert [entry.script_name for entry in found.dropped] == [SCRIPT]
    assert result.dropped == (SCRIPT,)
    assert sql.run("SELECT pubname::text FROM pg_publication") == []
    assert "publication:Sales" not in {row.feature for row in database.call("list_features")}
    assert difference(database, shop.plan()).is_empty
    assert verify(database, shop.plan()) == []


def test_the_setting_of_an_earlier_version_is_refused_in_a_sentence(tmp_path):
    file = tmp_path / "shop.yml"
    file.write_text("engine: embedded\nqueues:\n  Sales: {publication: true}\n")

    with pytest.raises(SettingsError, match=r"queues\.Sales\.publication: is gone.*remove the line"):
        load_settings(str(file))


@pytest.fixture
def logical_server():
    """A server whose log can be decoded."""
    with tempfile.TemporaryDirectory(prefix="rowpost-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)
        server = Server(Path(name) / "p", "-c wal_level=logical")
        server.create()
        server.start()
        yield server
        server.stop()


def test_doctor_names_a_slot_that_is_left_with_the_statement_that_drops_it(logical_server):
    with connect_url("postgresql", logical_server.url()) as database:
        for name in ("rowpost_shop_audit", "of_somebody_else"):
            database.driver_connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (name,))

        found = [
            each for each in database.dialect.checks(database.driver_connection, [], roles=True) if "slot" in each.name
        ]

    assert [(each.name, each.state, each.advice) for each in found] == [
        (
            "replication slot rowpost_shop_audit",
            "note",
            "an administrator runs: SELECT pg_drop_replication_slot('rowpost_shop_audit');",
        )
    ]

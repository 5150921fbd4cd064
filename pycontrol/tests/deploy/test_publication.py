"""`publication: true` at a queue: a deployment makes a publication of its inserts, which streams with mode=log read (PostgreSQL)."""

from dataclasses import replace

import pytest

from rowpost.deploy.apply import apply, difference
from rowpost.deploy.plan import plan
from rowpost.deploy.queues import drop_queue, forget_queue
from rowpost.deploy.review import read_definition, review
from rowpost.deploy.verify import verify
from rowpost.errors import SettingsError
from rowpost.settings.environment import QueueSettings, load_settings
from tests.support.wake_up import postgresql_only

__all__ = ["postgresql_only"]

SCRIPT = "tables/queue/create_publication.sql"


def with_publication(shop, *names):
    return plan(replace(shop.settings, queues=tuple(replace(each, publication=each.name in names) for each in shop.settings.queues)))


def publications(sql):
    """Each publication with its table and what it publishes."""
    return sql.run(
        "SELECT p.pubname::text, r.prrelid::regclass::text, p.pubinsert, p.pubupdate OR p.pubdelete OR p.pubtruncate"
        " FROM pg_publication AS p LEFT JOIN pg_publication_rel AS r ON r.prpubid = p.oid ORDER BY 1"
    )


def test_apply_makes_the_publication_of_inserts_and_a_second_apply_has_nothing_to_do(shop, database, sql, postgresql_only):
    result = apply(database, with_publication(shop, "Sales"))

    assert f"{SCRIPT}:Sales" in result.applied
    assert publications(sql) == [("rowpost_log:Sales", '"Sales"', True, False)]
    assert difference(database, with_publication(shop, "Sales")).is_empty
    assert apply(database, with_publication(shop, "Sales")).applied == ()
    assert verify(database, with_publication(shop, "Sales")) == []


def test_without_the_setting_there_is_no_publication(shop, database, sql, postgresql_only):
    apply(database, shop.plan())

    assert publications(sql) == []


@pytest.mark.parametrize("by_queue", [False, True])
def test_a_publication_that_is_no_longer_declared_is_dropped(shop, database, sql, postgresql_only, by_queue):
    apply(database, with_publication(shop, "Sales", "Billing"), by_queue=by_queue)

    result = apply(database, with_publication(shop, "Billing"), by_queue=by_queue)

    assert result.dropped == (f"{SCRIPT}:Sales",)
    assert [row[0] for row in publications(sql)] == ["rowpost_log:Billing"]
    assert verify(database, with_publication(shop, "Billing")) == []


def test_another_environment_of_the_database_does_not_drop_the_publication(shop, database, sql, postgresql_only):
    apply(database, with_publication(shop, "Sales"))

    result = apply(database, plan(replace(shop.settings, environment="other")))

    assert ("the publication of the queue Sales", "the environment shop declares it") in {(each.subject, each.reason) for each in result.kept}
    assert len(publications(sql)) == 1


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ('DROP PUBLICATION "rowpost_log:Sales"', "object_gone"),
        ("ALTER PUBLICATION \"rowpost_log:Sales\" SET (publish = 'insert, delete')", "publication_changed"),
        ('ALTER PUBLICATION "rowpost_log:Sales" DROP TABLE "Sales"', "publication_changed"),
    ],
)
def test_a_publication_that_was_changed_by_hand_is_found_and_made_again(shop, database, sql, postgresql_only, statement, kind):
    apply(database, with_publication(shop, "Sales"))
    sql.run(statement)

    found = verify(database, with_publication(shop, "Sales"))
    apply(database, with_publication(shop, "Sales"))

    assert [(each.kind, each.remedy) for each in found] == [(kind, "rowpost apply")]
    assert publications(sql) == [("rowpost_log:Sales", '"Sales"', True, False)]
    assert verify(database, with_publication(shop, "Sales")) == []


@pytest.mark.parametrize("leave", [forget_queue, drop_queue])
def test_a_queue_that_goes_takes_its_publication_along(shop, database, sql, postgresql_only, leave):
    apply(database, with_publication(shop, "Sales", "Billing"))

    leave(database, "Sales")

    assert [row[0] for row in publications(sql)] == ["rowpost_log:Billing"]


def test_a_dba_reads_the_statement_and_its_lock_before(shop, database, postgresql_only):
    wanted = with_publication(shop, "Sales")
    apply(database, shop.plan())

    found = review(difference(database, wanted), "postgresql", read_definition(database))

    (item,) = [each for each in found.items if each.name == f"{SCRIPT}:Sales"]
    assert (item.feature, item.state) == ("publication", "added")
    assert "SHARE UPDATE EXCLUSIVE on the table while its publication is made" in found.locks
    assert 'CREATE PUBLICATION "rowpost_log:Sales" FOR TABLE "public"."Sales" WITH (publish = \'insert\');' in wanted.script


def test_the_setting_is_read_and_refused_for_sql_server(tmp_path):
    file = tmp_path / "shop.yml"
    text = 'engine: {engine}\nurl: "{url}"\nqueues:\n  audit: {{publication: true}}\n  Sales: {{partitions: {{by: Customer}}, publication: true}}\n'
    file.write_text(text.format(engine="postgresql", url="postgresql://db01/shop"))

    found = load_settings(str(file))

    assert {queue.name: queue.publication for queue in found.queues} == {"audit": True, "Sales": True, "Sales.p1": True, "Sales.p2": True}
    assert QueueSettings("audit").publication is False
    file.write_text(text.format(engine="sqlserver", url="Server=sql01;Database=shop"))
    with pytest.raises(SettingsError, match=r"publication.*is for PostgreSQL"):
        load_settings(str(file))

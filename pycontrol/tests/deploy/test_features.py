"""What an environment declares is what is deployed: features come with their objects and rights, and go when they are empty."""

import re
from dataclasses import replace

import pytest

from rowpost.database.contract import CORE, FEATURES_OF_QUEUES, ROLES, load_contract
from rowpost.deploy.apply import apply, difference
from rowpost.deploy.contract_sql import drop_empty_table
from rowpost.deploy.deployment import deployment
from rowpost.deploy.grants import grant, grant_statements
from rowpost.deploy.plan import business_settings, plan
from rowpost.deploy.queues import create_queue
from rowpost.deploy.release import go_back, open_release, write_release_archive
from rowpost.deploy.review import read_definition, review
from rowpost.deploy.scripts import Script
from rowpost.deploy.state import read_state
from rowpost.deploy.verify import verify
from rowpost.errors import DeployError, FeatureMissing, QueueNotFound
from rowpost.settings.environment import (
    FEATURES,
    OutboxSettings,
    QueueSettings,
    SagaSettings,
    Settings,
    SupervisorSettings,
)

every_engine = pytest.mark.parametrize("engine", ["postgresql", "sqlserver"])
SPARK_TABLES = {"018_spool", "019_spooled_message", "020_ledger", "021_staged_message", "031_job", "032_job_part"}


def names(planned):
    return {step.script_name.partition(":")[0].removesuffix(".sql") for step in planned.steps}


def offline(engine, **settings):
    return plan(Settings(engine=engine, **{"queues": (QueueSettings("Sales"),), **settings}))


def declaring(shop, *features, queues=None, **more):
    return plan(replace(shop.settings, features=features, queues=queues or shop.settings.queues, **more))


def objects(database):
    """The scripts whose objects exist, with their features."""
    feature_of = load_contract().feature_of
    return {
        (entry.script_name, feature_of(entry.script_name))
        for entry in read_state(database).journal
        if entry.living_fingerprint
    }


def features(database):
    return {feature for _, feature in objects(database)}


@every_engine
def test_the_core_has_no_object_of_any_feature(engine):
    planned = offline(engine, features=())

    found = {load_contract().feature_of(step.script_name) for step in planned.steps}

    assert found == {CORE, "delayed"} | ({"maintenance"} if engine == "postgresql" else set())


@every_engine
@pytest.mark.parametrize("feature", FEATURES)
def test_a_feature_brings_its_objects_and_no_other(engine, feature):
    core = names(offline(engine, features=()))

    more = names(offline(engine, features=(feature,))) - core

    assert {load_contract().feature_of(f"{name}.sql") for name in more} == (
        {feature} if feature not in offline(engine, features=()).features else set()
    )


@every_engine
def test_the_rights_and_the_check_of_queues_name_only_what_is_deployed(engine):
    script = offline(engine, features=()).script

    absent = {
        each.name for each in load_contract().procedures if each.feature in ("outbox", "spark", "transactions")
    } - {"send_staged"}

    assert {name for name in absent if re.search(rf"\b{name}\b", re.sub(r"(?m)^\s*(--|/?\*).*$", "", script))} <= {
        "read_range"
    }


@every_engine
def test_sections_of_the_settings_declare_their_features(engine):
    planned = offline(
        engine, features=(), sagas=(SagaSettings("Policy", "OrderId"),), outboxes=(OutboxSettings("shop", "postgresql://x/y"),),
        participants=(("other", "x"),),
    )  # fmt: skip

    assert planned.features >= {"sagas", "outbox", "transactions"}
    assert "spark" not in planned.features


def test_every_table_and_every_feature_is_in_the_contract():
    contract = load_contract()
    saga = SagaSettings("P", "A", transitional="B", transitional_type="string")

    scripts = {name.removeprefix("tables/") for name in names(offline("postgresql", sagas=(saga,), subscription_table="Subscribers", supervisor=SupervisorSettings(wake_up="everybody"), roles="cluster", queues=(QueueSettings("Sales", lease=True), QueueSettings("Sales@[app]"))))
               if name.startswith("tables/") and not name.endswith("grants")}  # fmt: skip

    assert scripts == set(contract.tables)
    assert {*FEATURES, CORE, ROLES, *FEATURES_OF_QUEUES} == set(contract.features)
    assert {table.feature for table in contract.tables.values()} <= set(contract.features)


def test_a_business_database_gets_the_outbox_alone():
    outbox = OutboxSettings("shop", "postgresql://app@db/shop")

    planned = plan(business_settings(Settings(environment="p", outboxes=(outbox,)), outbox))

    assert planned.features == {"outbox", "maintenance", "roles"}
    assert planned.environment == "p, outbox shop"


def test_only_what_is_declared_is_deployed_and_verified(shop, database):
    apply(database, declaring(shop, "spark"))

    assert features(database) - {"maintenance"} == {CORE, "delayed", "spark"}
    assert verify(database, declaring(shop, "spark")) == []
    assert difference(database, declaring(shop, "spark")).is_empty


def test_a_feature_that_is_declared_later_is_added(shop, database):
    apply(database, declaring(shop))

    result = apply(database, declaring(shop, "outbox"))

    assert "tables/015_outbox.sql" in result.applied
    assert database.call("outbox_status")[0].undispatched == 0
    assert verify(database, declaring(shop, "outbox")) == []


def test_a_feature_that_this_environment_declared_goes_if_its_tables_are_empty(shop, database):
    apply(database, declaring(shop, "spark"))

    diff = difference(database, declaring(shop))
    result = apply(database, declaring(shop))

    assert {entry.script_name for entry in diff.dropped} == set(result.dropped)
    assert {f"tables/{name}.sql" for name in SPARK_TABLES} < set(result.dropped)
    assert "spark" not in features(database)
    assert verify(database, declaring(shop)) == []
    assert difference(database, declaring(shop)).is_empty


def test_the_plan_shows_what_goes_and_verify_names_it(shop, database):
    apply(database, declaring(shop, "spark"))

    found = review(difference(database, declaring(shop)), database.engine, read_definition(database))

    going = [item for item in found.items if item.state == "undeclared"]
    assert {item.feature for item in going} == {"spark"}
    assert all(item.purpose for item in going)
    assert found.counts["undeclared"] == len(going) > len(SPARK_TABLES)
    assert len([finding for finding in verify(database, declaring(shop)) if finding.kind == "not_declared"]) == len(
        going
    )


def test_a_table_with_rows_keeps_its_whole_feature_and_the_plan_says_what_to_do(shop, database):
    apply(database, declaring(shop, "spark"))
    database.call("claim_ledger", job_key="job-1", part=0, parts=1)

    result = apply(database, declaring(shop))

    (kept,) = result.kept
    assert result.dropped == ()
    assert "tables/020_ledger.sql" in kept.reason
    assert "delete the rows" in kept.remedy
    assert verify(database, declaring(shop)) == []


def test_a_feature_that_was_kept_for_its_rows_goes_when_they_are_gone(shop, database, sql):
    apply(database, declaring(shop, "spark"))
    database.call("claim_ledger", job_key="job-1", part=0, parts=1)
    apply(database, declaring(shop))

    sql.run("DELETE FROM rowpost.ledger")
    result = apply(database, declaring(shop))

    assert "tables/020_ledger.sql" in result.dropped


def test_rows_that_come_after_the_plan_keep_the_table(shop, database):
    apply(database, declaring(shop, "spark"))
    database.call("claim_ledger", job_key="job-1", part=0, parts=1)
    table = next(
        step.object_name for step in declaring(shop, "spark").steps if step.script_name == "tables/020_ledger.sql"
    )

    with (
        pytest.raises(DeployError, match="has rows by now"),
        deployment(database, declaring(shop, "spark").scripts) as running,
    ):
        running.run_script(Script("tables/020_ledger.sql", drop_empty_table(database.engine, table)))

    assert ("tables/020_ledger.sql", "spark") in objects(database)


def test_what_another_environment_declares_stays(shop, database):
    apply(database, declaring(shop, "spark"))
    apply(database, declaring(shop, "spark", environment="reports"))

    result = apply(database, declaring(shop))
    then = apply(database, declaring(shop, environment="reports"))

    assert [kept.reason for kept in result.kept] == ["the environment reports declares it"]
    assert result.dropped == ()
    assert "tables/018_spool.sql" in then.dropped


def test_what_nobody_declared_on_record_stays_and_is_named(shop, database, sql):
    apply(database, declaring(shop, *FEATURES))
    sql.run("DELETE FROM rowpost.declared_feature")  # as a release without this record leaves it

    diff = difference(database, declaring(shop))
    result = apply(database, declaring(shop))

    named = {kept.subject for kept in diff.kept}
    assert named >= {"the feature outbox", "the feature sagas", "the feature spark", "the feature transactions"}
    assert all("run rowpost apply once more" in kept.remedy for kept in diff.kept)
    assert result.dropped == ()
    assert verify(database, declaring(shop)) == []


def test_what_nobody_declared_goes_after_it_was_declared_once(shop, database, sql):
    apply(database, declaring(shop, "spark"))
    sql.run("DELETE FROM rowpost.declared_feature")

    apply(database, declaring(shop, "spark"))
    result = apply(database, declaring(shop))

    assert "tables/018_spool.sql" in result.dropped


def test_what_something_may_need_that_cannot_be_imported_stays(shop, database):
    apply(database, declaring(shop, "outbox"))

    result = apply(database, replace(declaring(shop), uncertain=(("outbox", "the handler shop:sales"),)))

    assert [kept.reason for kept in result.kept] == ["the handler shop:sales cannot be imported here and may need it"]
    assert "outbox" in features(database)


def test_a_saga_that_is_registered_keeps_its_feature(shop, database):
    saga = SagaSettings("Policy", "OrderId")
    apply(database, declaring(shop, sagas=(saga,)))

    result = apply(database, declaring(shop))

    assert result.undeclared == ("Policy",)
    assert "sagas" in features(database)
    assert verify(database, declaring(shop)) == []


def without_delayed(shop):
    return tuple(replace(queue, delayed=False) for queue in shop.settings.queues)


def test_a_delayed_table_goes_with_its_procedures_if_it_is_empty(shop, database):
    apply(database, declaring(shop))

    result = apply(database, declaring(shop, queues=without_delayed(shop)))

    assert {name for name in result.dropped if name.endswith(":Sales")} == {
        "tables/queue/create_delayed.sql:Sales", "procedures/delayed/delay_message.sql:Sales",
        "procedures/delayed/move_due_messages.sql:Sales", "procedures/delayed/receive_due_messages.sql:Sales",
        "procedures/delayed/read_delayed_bodies.sql:Sales",
        *(f"procedures/delayed/{name}_delayed.sql:Sales" for name in ("browse", "reschedule", "cancel")),
    }  # fmt: skip
    assert verify(database, declaring(shop, queues=without_delayed(shop))) == []
    assert database.call("watch_queue", "Sales", count=1)[0].next_due_ms is None


def test_a_delayed_table_with_messages_stays(shop, database):
    apply(database, declaring(shop))
    database.call("delay_message", "Sales", headers="{}", delay_ms=3_600_000)

    result = apply(database, declaring(shop, queues=without_delayed(shop)))

    assert [kept.subject for kept in result.kept] == ["the delayed table of the queue Sales"]
    assert not [name for name in result.dropped if name.endswith(":Sales")]
    assert database.call("watch_queue", "Sales", count=1)[0].next_due_ms > 0
    assert verify(database, declaring(shop, queues=without_delayed(shop))) == []


def leasing(shop, *, lease):
    return tuple(replace(queue, lease=lease and queue.name == "Sales") for queue in shop.settings.queues)


def test_a_table_of_leases_comes_and_goes_with_its_procedures_if_it_is_empty(shop, database):
    apply(database, declaring(shop, queues=leasing(shop, lease=True)))
    (before,) = database.call("queue_metrics", "Sales")
    made = {name for name, feature in objects(database) if feature == "lease"}

    result = apply(database, declaring(shop, queues=leasing(shop, lease=False)))

    assert before.leased == 0
    assert {name for name in result.dropped if name.endswith(":Sales")} == made
    assert len(made) == 8
    assert verify(database, declaring(shop, queues=leasing(shop, lease=False))) == []
    assert database.call("queue_metrics", "Sales")[0].leased is None


def test_a_table_of_leases_with_messages_stays(shop, database):
    wanted, without = (declaring(shop, queues=leasing(shop, lease=lease)) for lease in (True, False))
    apply(database, wanted)
    database.call("send_message", "Sales", headers="")
    leased = database.call_atomically("lease_messages", "Sales", count=1, owner="h/1/1", seconds=60)[0]

    result = apply(database, without)

    assert [kept.subject for kept in result.kept] == ["the table of leases of the queue Sales"]
    assert verify(database, without) == []
    database.call("end_lease", "Sales", token=leased[5])


def test_a_queue_made_by_hand_stays_with_its_delayed_table(shop, database):
    apply(database, declaring(shop))
    create_queue(database, "Mine")

    result = apply(database, declaring(shop))

    assert "Mine" in result.undeclared
    assert {name for name, feature in objects(database) if name.endswith(":Mine") and feature == "delayed"}


def test_a_queue_made_by_hand_has_the_procedures_of_the_deployed_features(shop, database):
    apply(database, declaring(shop))

    create_queue(database, "Mine")

    assert "spark" not in features(database)
    assert verify(database, declaring(shop)) == []


def test_the_grants_of_a_login_name_only_procedures_that_exist(shop, database, login):
    apply(database, declaring(shop))
    name = login.make("shop_worker")

    statements = grant(database, name, receive_from=["Sales"], send_to=["Billing"])

    assert statements == grant_statements(
        replace(shop.settings, features=()), name, receive_from=["Sales"], send_to=["Billing"]
    )
    assert not [each for each in statements if "send_staged" in each]


@pytest.mark.parametrize(("procedure", "queue", "arguments", "error", "line"), [
    ("outbox_status", None, {}, FeatureMissing, "features: [outbox]"),
    ("list_decisions", None, {}, FeatureMissing, "features: [transactions]"),
    ("list_saga_types", None, {}, FeatureMissing, "features: [sagas]"),
    ("drop_staged", None, {"job_key": "j"}, FeatureMissing, "features: [spark]"),
    ("clean_jobs", None, {"staged_seconds": 0, "ledger_seconds": 0, "count": 1}, FeatureMissing, "features: [spark]"),
    ("describe_stream", "Sales", {}, QueueNotFound, "features: [spark]"),
    ("delay_message", "Sales", {"headers": "{}", "delay_ms": 1}, QueueNotFound, "`Sales: {delayed: true}`"),
])  # fmt: skip
def test_a_missing_feature_is_one_sentence_with_the_line_and_the_command(
    shop, database, procedure, queue, arguments, error, line
):
    apply(database, declaring(shop, queues=without_delayed(shop)))

    with pytest.raises(error) as caught:
        database.call(procedure, queue, **arguments)

    said = str(caught.value)
    assert line in said
    assert said.endswith("run: rowpost apply")
    assert ". " not in said


def test_a_release_archive_brings_back_only_the_features_that_are_deployed(shop, database, tmp_path):
    apply(database, declaring(shop, "outbox"))
    before = objects(database)
    write_release_archive(tmp_path / "this.zip")

    with open_release(tmp_path / "this.zip") as release:
        go_back(database, release)

    assert objects(database) == before


def test_the_script_for_hand_records_what_it_declares(shop):
    script = declaring(shop, "spark").script

    assert re.search(r"record_feature.*'shop'.*'spark'", script)
    assert re.search(r"record_feature.*'delayed:Sales'", script)
    assert re.search(r"^-- spark: \d+ objects, to archive", script, re.MULTILINE)


def test_a_table_with_a_percent_sign_in_its_name_is_named_in_the_refusal_to_drop_it():
    statement = drop_empty_table("sqlserver", "[dbo].[100%]")

    assert "The table [dbo].[100%%] has rows" in statement  # THROW reads one % as the start of a placeholder
    assert "DROP TABLE [dbo].[100%];" in statement

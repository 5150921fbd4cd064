"""Subscriptions in a schema of their own: written there, read from every table on record, an earlier deployment's served."""

from dataclasses import replace

import pytest

from rowpost.deploy.apply import apply, difference
from rowpost.deploy.grants import grant
from rowpost.deploy.plan import plan
from rowpost.deploy.subscriptions import forget_table
from rowpost.deploy.verify import verify
from rowpost.endpoint.endpoint import Endpoint
from rowpost.errors import DeployError, InvalidSubscription, SettingsError
from rowpost.settings.environment import QueueSettings, load_settings
from rowpost.transport.queue import Queue
from rowpost.wire.address import parse_address

EVENT = "Shop.Messages.OrderPlaced"
QUEUE = "Sales@[nsb]"
TABLE = "SubscriptionRouting@[nsb]"


class Nsb:
    """A database whose environment has its queues, and its subscriptions, in the schema nsb."""

    def __init__(self, shop, database, sql):
        self.engine, self.database, self.sql = shop.engine, database, sql
        #: findings that say nothing here: Babelfish gives a schema of AUTHORIZATION dbo to another owner
        self.beside = {"owner_differs"} if shop.babelfish else set()
        self.settings = replace(
            shop.settings, default_schema="nsb", subscription_table=TABLE, queues=(QueueSettings(QUEUE),)
        )
        #: the environment as an earlier rowpost knew it: subscriptions in the engine's default schema
        self.earlier = replace(self.settings, subscription_table="SubscriptionRouting")
        self.address = database.canonical(parse_address(QUEUE))
        sql.run(shop.spelt("CREATE SCHEMA nsb", "CREATE SCHEMA nsb AUTHORIZATION dbo"))

    def findings(self, settings):
        return [
            each.kind
            for each in verify(self.database, plan(settings))
            if not each.remark and each.kind not in self.beside
        ]

    def table(self, schema):
        if self.engine == "sqlserver":
            return f"[{'dbo' if schema == 'default' else schema}].SubscriptionRouting"
        return f'{"public" if schema == "default" else schema}."SubscriptionRouting"'

    def rows(self, schema):
        return {tuple(row) for row in self.sql.run(f"SELECT endpoint, topic, queueaddress FROM {self.table(schema)}")}

    def insert(self, schema, endpoint, address):
        """As an endpoint of NServiceBus subscribes."""
        self.sql.run(
            f"INSERT INTO {self.table(schema)} (queueaddress, endpoint, topic) VALUES (?, ?, ?)",
            address,
            endpoint,
            EVENT,
        )

    def subscribe(self, settings, address=None):
        endpoint = Endpoint("Sales@[nsb]") if address is None else None
        if endpoint is None:
            key = (
                {}
                if settings is self.earlier
                else {"table_key": next(row.table_key for row in self.database.call("list_subscription_tables"))}
            )
            self.database.call_atomically("subscribe", endpoint="Sales", topic=EVENT, queue_address=address, **key)
            return
        endpoint.handles(EVENT, dict, subscribe=True)(print)
        endpoint.subscribe(self.database, settings.subscription_table)

    def publish(self, database=None):
        rows = (database or self.database).call("publish_message", topics=[EVENT], headers="{}")
        return {(row.queue_address, bool(row.stored)) for row in rows}, self.waiting()

    def waiting(self):
        return len(Queue(QUEUE, self.database).browse(10))


@pytest.fixture
def nsb(shop, database, sql):
    return Nsb(shop, database, sql)


@pytest.mark.promise("each-message-once")
def test_endpoints_subscribe_in_the_environment_s_schema_and_events_reach_them(nsb):
    apply(nsb.database, plan(nsb.settings))

    nsb.subscribe(nsb.settings)

    assert nsb.rows("nsb") == {("Sales", EVENT, nsb.address)}
    assert nsb.rows("default") == set()
    assert nsb.publish() == ({(nsb.address, True)}, 1)


def test_a_row_that_an_endpoint_of_nservicebus_wrote_there_is_served(nsb):
    apply(nsb.database, plan(nsb.settings))

    nsb.insert("nsb", "Net.Sales", nsb.address)
    nsb.insert("default", "Net.Other", "Elsewhere")

    assert nsb.publish() == ({(nsb.address, True), ("Elsewhere", False)}, 1)


@pytest.mark.promise("each-message-once")
def test_what_an_earlier_deployment_subscribed_is_copied_served_once_and_not_deleted(nsb):
    apply(nsb.database, plan(nsb.earlier))
    nsb.subscribe(nsb.earlier)
    nsb.insert("default", "Net.Other", "Elsewhere")
    before = nsb.rows("default")

    apply(nsb.database, plan(nsb.settings))

    assert nsb.rows("default") == before
    # a publisher of NServiceBus finds rowpost's endpoints, and no stale row of another
    assert nsb.rows("nsb") == {("Sales", EVENT, nsb.address)}
    assert nsb.publish() == ({(nsb.address, True), ("Elsewhere", False)}, 1)
    listed = {(row.endpoint, row.queue_address) for row in nsb.database.call("list_subscriptions")}
    assert listed == {("Sales", nsb.address), ("Net.Other", "Elsewhere")}


def test_the_end_of_a_subscription_is_one_in_every_table(nsb):
    apply(nsb.database, plan(nsb.earlier))
    nsb.subscribe(nsb.earlier, nsb.address)
    apply(nsb.database, plan(nsb.settings))

    nsb.database.call_atomically("unsubscribe", endpoint="Sales", topic=EVENT)

    assert nsb.rows("nsb") | nsb.rows("default") == set()
    assert nsb.publish() == (set(), 0)


def test_a_subscription_that_moves_leaves_no_copy_at_its_old_queue(nsb):
    apply(nsb.database, plan(nsb.earlier))
    nsb.subscribe(nsb.earlier, "Old")
    apply(nsb.database, plan(nsb.settings))

    nsb.subscribe(nsb.settings, nsb.address)

    assert nsb.rows("nsb") | nsb.rows("default") == {("Sales", EVENT, nsb.address)}
    assert nsb.publish() == ({(nsb.address, True)}, 1)


@pytest.mark.parametrize("by_queue", [False, True])
def test_a_deployment_with_a_table_of_its_own_is_complete_and_clean(nsb, by_queue):
    apply(nsb.database, plan(nsb.settings), by_queue=by_queue)

    assert difference(nsb.database, plan(nsb.settings)).is_empty
    assert nsb.findings(nsb.settings) == []


def test_another_environment_leaves_the_table_and_goes_on_to_serve_it(nsb, shop):
    apply(nsb.database, plan(nsb.settings))
    nsb.subscribe(nsb.settings)

    found = apply(nsb.database, shop.plan())

    assert set(found.undeclared) == {TABLE, QUEUE}
    assert nsb.publish() == ({(nsb.address, True)}, 1)
    assert difference(nsb.database, plan(nsb.settings)).is_empty


def test_a_table_that_was_dropped_by_hand_is_found_and_made_again(nsb):
    apply(nsb.database, plan(nsb.settings))
    nsb.sql.run(f"DROP TABLE {nsb.table('nsb')}")

    found = nsb.findings(nsb.settings)
    apply(nsb.database, plan(nsb.settings))

    assert found == ["object_gone"]
    nsb.subscribe(nsb.settings)
    assert nsb.publish() == ({(nsb.address, True)}, 1)


def test_a_login_that_has_no_right_on_the_tables_subscribes_and_publishes(nsb, login, shop):
    apply(nsb.database, plan(nsb.settings))
    name = login.make("seller")
    grant(nsb.database, name, receive_from=[QUEUE], send_to=[QUEUE] if shop.babelfish else [], tables=shop.babelfish)

    with login.open(name) as database:
        key = database.call("list_subscription_tables")[0].table_key
        database.call_atomically("subscribe", endpoint="Sales", topic=EVENT, queue_address=nsb.address, table_key=key)
        published = nsb.publish(database)

    assert published == ({(nsb.address, True)}, 1)
    assert nsb.rows("nsb") == {("Sales", EVENT, nsb.address)}


def test_a_table_that_no_deployment_has_made_is_refused_in_a_sentence(nsb):
    apply(nsb.database, plan(nsb.earlier))

    with pytest.raises(
        InvalidSubscription, match=r"no table of subscriptions is registered as 'nsb\.Subscr.*Run rowpost apply"
    ):
        nsb.subscribe(nsb.settings)


def test_a_table_that_is_forgotten_is_read_no_longer_and_keeps_its_rows(nsb):
    apply(nsb.database, plan(nsb.settings))
    nsb.subscribe(nsb.settings)
    rows = nsb.rows("nsb")

    forget_table(nsb.database, TABLE)

    assert nsb.publish() == (set(), 0)
    assert nsb.rows("nsb") == rows
    assert nsb.findings(nsb.earlier) == []
    apply(nsb.database, plan(nsb.settings))
    assert nsb.publish() == ({(nsb.address, True)}, 1)


def test_a_table_that_is_not_on_record_cannot_be_forgotten(nsb):
    apply(nsb.database, plan(nsb.settings))

    with pytest.raises(DeployError, match=r"'Others' is on record here\. Known: SubscriptionRouting@\[nsb\]"):
        forget_table(nsb.database, "Others")


@pytest.mark.parametrize(
    ("line", "engine", "expected"),
    [
        ("", "postgresql", "SubscriptionRouting@[nsb]"),
        ("subscription_table: Subscribers", "postgresql", "Subscribers@[nsb]"),
        ("subscription_table: SubscriptionRouting@[public]", "postgresql", "SubscriptionRouting"),
        ("subscription_table: Subs@[app]@[bus]", "sqlserver", "Subs@[app]@[bus]"),
    ],
)
def test_the_table_is_that_of_the_default_schema_or_the_one_that_the_environment_names(
    tmp_path, line, engine, expected
):
    path = environment_of(tmp_path, line, engine)

    assert load_settings(path).subscription_table == expected


def environment_of(folder, line, engine):
    path = folder / "site.yml"
    url = "postgresql://app@db/shop" if engine == "postgresql" else "Server=db;Database=shop"
    path.write_text(f'engine: {engine}\nurl: "{url}"\ndefault_schema: nsb\n{line}\n')
    return path


def test_on_postgresql_a_table_in_another_database_is_refused(tmp_path):
    path = environment_of(tmp_path, "subscription_table: Subs@[app]@[bus]", "postgresql")

    with pytest.raises(SettingsError, match=r"site\.yml.*subscription_table.*into another database"):
        load_settings(path)


def test_on_sql_server_a_table_in_another_database_is_not_made_but_read_and_written_there(tmp_path):
    made = plan(load_settings(environment_of(tmp_path, "subscription_table: Subs@[app]@[bus]", "sqlserver")))

    texts = {
        step.script_name.partition(":")[0]: step.text
        for step in made.steps
        if step.owner == "subscriptions Subs@[app]@[bus]"
    }

    assert set(texts) == {"procedures/pubsub/_read_subscriptions.sql", "procedures/pubsub/_write_subscription.sql"}
    assert all("[bus].[app].[Subs]" in text for text in texts.values())

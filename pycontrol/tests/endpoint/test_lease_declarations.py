"""What an endpoint with `receive="lease"` may declare."""

from datetime import timedelta

import pytest

from rowpost.endpoint.endpoint import Endpoint
from rowpost.errors import SettingsError
from rowpost.outbox.declaration import Outbox
from tests.support.sagas import make_ledger


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"transaction_mode": "receive_only"}, "the transaction mode receive_only"),
        ({"transaction_mode": "none"}, "the transaction mode none"),
        ({"transaction_mode": "transaction_scope"}, "the transaction mode transaction_scope"),
        ({"batch": 20}, "batch=20"),
        ({"send_only": True}, "send_only=True"),
        ({"instance": "web1"}, "instance='web1'"),
    ],
)
def test_what_contradicts_a_lease_is_refused_with_the_reason(options, reason):
    with pytest.raises(SettingsError, match=reason):
        Endpoint("Sales", receive="lease", **options)
    if "send_only" in options:
        return
    endpoint = Endpoint("Sales", **options)
    with pytest.raises(SettingsError, match=reason):
        endpoint.handles("Shop.Report", receive="lease")


def test_with_an_outbox_all_messages_are_leased_or_none_and_none_waits_for_another():
    options = {"transaction_mode": "receive_only", "outbox": "shop"}

    assert Endpoint("Sales", receive="lease", **options).leases
    with pytest.raises(
        SettingsError, match="an outbox: with an outbox, an endpoint leases all of its messages or none"
    ):
        Endpoint("Sales", **options).handles("Shop.Report", receive="lease")
    with pytest.raises(SettingsError, match="a pessimistic outbox: no transaction of the business database is open"):
        Endpoint("Sales", receive="lease", **(options | {"outbox": Outbox("shop", pessimistic=True)}))


@pytest.mark.parametrize("batch", [None, "adaptive", "off"])
def test_a_batch_that_is_no_number_fits_a_lease(batch):
    assert Endpoint("Sales", receive="lease", batch=batch).leases


def test_an_unknown_way_to_receive_is_refused():
    with pytest.raises(SettingsError, match="transaction, lease"):
        Endpoint("Sales", receive="peek")
    with pytest.raises(SettingsError, match="transaction, lease"):
        Endpoint("Sales").handles("Shop.Report", receive="peek")


def test_a_type_of_an_endpoint_that_leases_all_messages_cannot_be_received_otherwise():
    with pytest.raises(SettingsError, match="all messages are leased"):
        Endpoint("Sales", receive="lease").handles("Shop.Report", receive="transaction")


@pytest.mark.parametrize("time", [timedelta(0), timedelta(milliseconds=999), timedelta(days=1, seconds=1)])
def test_a_lease_lasts_from_a_second_to_a_day(time):
    with pytest.raises(SettingsError, match="from one second to one day"):
        Endpoint("Sales", receive="lease", lease_time=time)


@pytest.mark.parametrize(
    ("time", "seconds"), [(None, 60), (timedelta(milliseconds=1500), 2), (timedelta(days=1), 86_400)]
)
def test_the_time_of_a_lease_is_whole_seconds(time, seconds):
    assert Endpoint("Sales", receive="lease", lease_time=time).lease_seconds == seconds


def test_a_saga_cannot_be_leased():
    leasing, mixed, hosting = Endpoint("Sales", receive="lease"), Endpoint("Sales"), Endpoint("Sales")
    mixed.handles("Shop.Report", receive="lease")(lambda body, context: None)
    hosting.saga(make_ledger("pessimistic", "Ledger"))

    with pytest.raises(SettingsError, match="cannot host the saga"):
        leasing.saga(make_ledger("pessimistic", "Ledger"))
    with pytest.raises(SettingsError, match="cannot host the saga"):
        mixed.saga(make_ledger("pessimistic", "Ledger"))
    with pytest.raises(SettingsError, match="sagas"):
        hosting.handles("Shop.Report", receive="lease")


def test_an_endpoint_says_whether_it_leases_all_messages_or_some():
    all_of_them, some, none = Endpoint("Sales", receive="lease"), Endpoint("Sales"), Endpoint("Sales")
    some.handles("Shop.Report", receive="lease")(lambda body, context: None)

    assert [(each.leases, each.needs_leases) for each in (all_of_them, some, none)] == [
        (True, True),
        (False, True),
        (False, False),
    ]

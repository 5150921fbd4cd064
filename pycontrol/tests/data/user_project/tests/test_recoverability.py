"""What becomes of a message whose handler fails: by a policy, and by settings."""

from datetime import timedelta

import pytest

from rowpost import Discard, Endpoint, ErrorQueue, Failure, Queue
from shop.charging import charging
from shop.mailing import ServerDown, mailing
from shop.messages import ChargeCard, SendMail


def waiting(shop, *names: str) -> list[int]:
    return [Queue(name, shop).peek(10) for name in names]


@pytest.fixture
def vip_queue(rowpost_database):
    rowpost_database(Endpoint("errors.vip"))


# ------------------------------------------------------------------ the policy of Charging
def test_a_policy_discards_a_message_with_a_reason(shop):
    with charging.open(shop) as bus:
        bus.send(ChargeCard(1, card="stolen"), to="Charging")

    outcome = charging.process_one(shop)

    assert (outcome.kind.value, outcome.discard) == ("discarded", Discard("the card is stolen"))
    assert waiting(shop, "Charging", "error") == [0, 0]


def test_a_policy_moves_a_message_to_an_error_queue_of_its_own(shop, process, vip_queue):
    assert process(charging, ChargeCard(1, card="vip")) == ["moved_to_error"]
    assert waiting(shop, "Charging", "error", "errors.vip") == [0, 0, 1]


def test_an_error_queue_that_is_missing_is_the_endpoints(shop, process):
    assert process(charging, ChargeCard(1, card="vip")) == ["moved_to_error"]
    assert waiting(shop, "Charging", "error") == [0, 1]


def test_a_policy_retries_at_once(process):
    assert process(charging, ChargeCard(1, card="busy")) == ["failed", "failed", "handled"]


def test_a_policy_retries_later(process):
    assert process(charging, ChargeCard(1, card="closed")) == ["delayed", "handled"]


def test_a_policy_gives_up(shop, process):
    assert process(charging, ChargeCard(1, card="broken")) == ["failed", "failed", "moved_to_error"]

    (failed,) = ErrorQueue(shop).list()
    assert failed.exception_type.endswith("ValueError")


# ------------------------------------------------------------------ the settings of Mailing
def test_settings_retry_at_once_and_then_later_in_rounds(shop, process):
    rounds = ["failed", "delayed"] * 3 + ["failed", "moved_to_error"]

    assert process(mailing, SendMail(1, address="down")) == rounds
    assert waiting(shop, "Mailing", "error") == [0, 1]


def test_delays_double_up_to_the_longest():
    failures = [Failure(ServerDown(), attempts=2, delayed=rounds, headers={}) for rounds in range(4)]

    delays = [mailing.recoverability.decide(failure).delay for failure in failures]

    assert delays == [timedelta(milliseconds=each) for each in (20, 40, 60, 0)]


@pytest.mark.parametrize("address", ["nobody", "forbidden"])
def test_what_no_retry_helps_moves_to_the_error_queue(shop, process, address):
    assert process(mailing, SendMail(1, address=address)) == ["moved_to_error"]
    assert waiting(shop, "Mailing", "error") == [0, 1]

"""The double for requests that users test their programs with."""

from concurrent.futures import CancelledError
from dataclasses import dataclass
from datetime import timedelta

import pytest

from rowpost import RequestTest
from rowpost.endpoint.endpoint import Endpoint
from rowpost.errors import NoReply, UnexpectedReply

TIME = timedelta(seconds=20)


@dataclass(frozen=True)
class Order:
    number: int


@dataclass(frozen=True)
class Accepted:
    number: int


@pytest.fixture
def web():
    return Endpoint("Web", send_only=True, instance="web1")


def page(web, number):
    """Stands for the program under test."""
    return web.callbacks().request(Order(number), "Sales", timeout=TIME, reply=Accepted)


def test_a_program_gets_the_replies_that_a_test_gives(web):
    with RequestTest(web) as requests:
        requests.when(Order, Accepted(1), lambda order: order.number == 1)
        requests.when(Order, Accepted(0))

        replies = [page(web, number) for number in (1, 2)]

    assert replies == [Accepted(1), Accepted(0)]
    assert requests.sent == [Order(1), Order(2)]


def test_an_error_that_a_test_gives_is_raised(web):
    with RequestTest(web) as requests:
        requests.when(Order, NoReply("too late"))

        with pytest.raises(NoReply, match="too late"):
            page(web, 1)


def test_a_request_without_an_answer_is_told_at_once(web):
    with RequestTest(web), pytest.raises(NoReply, match="no answer to Order"):
        page(web, 1)


def test_an_answer_of_another_class_than_the_program_expects_is_an_error_that_names_both(web):
    with RequestTest(web) as requests:
        requests.when(Order, 7)

        with pytest.raises(UnexpectedReply, match="expects a reply of Accepted, and got int"):
            page(web, 1)


def test_a_future_without_an_answer_waits_and_can_be_cancelled(web):
    with RequestTest(web):
        future = web.callbacks().submit(Order(1), "Sales")

        waiting = not future.done()
        future.cancel()

    assert waiting
    with pytest.raises(CancelledError):
        future.result(0)


def test_after_the_test_the_endpoint_has_its_own_callbacks_again(web):
    with RequestTest(web) as requests:
        inside = web.callbacks()

    assert inside is requests
    assert web._callbacks is None


def test_a_bus_asks_the_double_too(web):
    with RequestTest(web) as requests:
        requests.when(Order, Accepted(1))

        with web.open() as bus:
            assert bus.request(Order(1), "Sales", timeout=TIME) == Accepted(1)
    web.close()

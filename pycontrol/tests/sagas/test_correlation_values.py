"""A correlation value that the column cannot store is refused where it is known what it is of."""

from datetime import datetime

import pytest

from rowpost.errors import InvalidCorrelation
from rowpost.sagas.correlation import correlation_text


@pytest.mark.parametrize(
    ("value", "kind", "problem"),
    [
        (2**63, "integer", "needs more than 64 bits"),
        (-(2**63) - 1, "integer", "needs more than 64 bits"),
        (datetime(2026, 1, 1), "timestamp", "has no time zone"),
        ("x" * 201, "string", "has 201 characters; the maximum is 200"),
        ("a\0b", "string", "cannot store"),
        ("\ud800", "string", "cannot store"),
    ],
)
def test_a_value_that_cannot_be_stored_is_refused_by_the_name_of_what_it_is_of(value, kind, problem):
    with pytest.raises(InvalidCorrelation, match=rf"^PlaceOrder\.order_id .*{problem}"):
        correlation_text(value, kind, "PlaceOrder.order_id")


@pytest.mark.parametrize("value", [2**63 - 1, -(2**63)])
def test_the_largest_and_the_smallest_number_are_taken(value):
    assert correlation_text(value, "integer", "PlaceOrder.order_id") == str(value)

"""What handlers share: made at its first use, once, and ended with the endpoint; plain and async."""

import pytest

from shop.charging import charging
from shop.journal import noted
from shop.mailing import mailing
from shop.messages import ChargeCard, SendMail


@pytest.mark.parametrize(
    ("endpoint", "message", "name"), [(charging, ChargeCard, "terminal"), (mailing, SendMail, "mailer")]
)
def test_a_resource_starts_once_and_stops_with_the_endpoint(process, endpoint, message, name):
    assert noted() == []

    assert process(endpoint, message(1), message(2), message(3)) == ["handled"] * 3
    assert noted() == [f"{name} opened"]

    endpoint.close()
    assert noted() == [f"{name} opened", f"{name} closed"]

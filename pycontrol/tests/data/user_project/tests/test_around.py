"""Functions around handlers: in the message's transaction, plain and async."""

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from shop.charging import charging
from shop.mailing import mailing
from shop.messages import ChargeCard, SendMail
from shop.tables import Charged, Mailed, Surrounded


@pytest.mark.parametrize(
    ("endpoint", "message", "row", "by"),
    [(charging, ChargeCard(1), Charged, "charging"), (mailing, SendMail(1), Mailed, "mailing")],
)
def test_what_a_function_around_a_handler_writes_commits_with_the_message(
    process, session: Session, endpoint, message, row, by
):
    assert process(endpoint, message) == ["handled"]
    assert session.get(row, 1) is not None
    assert [(each.order_id, each.by) for each in session.scalars(select(Surrounded))] == [(1, by)]


@pytest.mark.parametrize(
    ("endpoint", "message"), [(charging, ChargeCard(1, card="vip")), (mailing, SendMail(1, address="nobody"))]
)
def test_an_error_of_the_handler_undoes_it(process, session: Session, endpoint, message):
    assert process(endpoint, message) == ["moved_to_error"]
    assert session.scalars(select(Surrounded)).all() == []

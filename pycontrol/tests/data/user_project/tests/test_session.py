"""SQLAlchemy on both sides: the application's own session, and that of a handler."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from rowpost import Queue
from shop.mailing import mailing
from shop.messages import PlaceOrder, SendMail
from shop.ordering import ordering
from shop.tables import Mailed, Placed


def test_what_is_sent_commits_with_the_applications_session(shop, session: Session):
    session.add(Placed(order_id=1, card="good"))
    with ordering.open(session) as bus:
        bus.send(PlaceOrder(2), to="Ordering")
    assert Queue("Ordering", shop).peek() == 0

    session.commit()
    assert Queue("Ordering", shop).peek() == 1


def test_a_session_that_is_rolled_back_has_sent_nothing(shop, session: Session):
    session.add(Placed(order_id=1, card="good"))
    with ordering.open(session) as bus:
        bus.send(PlaceOrder(2), to="Ordering")
    session.rollback()

    assert Queue("Ordering", shop).peek() == 0
    assert session.get(Placed, 1) is None


def test_what_a_handler_adds_commits_with_its_message(shop, session: Session, process):
    assert process(ordering, PlaceOrder(1), PlaceOrder(1)) == ["handled", "discarded"]
    assert [placed.order_id for placed in session.scalars(select(Placed))] == [1]
    assert [Queue(name, shop).peek() for name in ("Charging", "Mailing")] == [1, 1]


def test_the_session_of_an_async_handler_commits_with_its_message(session: Session, process):
    assert process(mailing, SendMail(1), SendMail(2, address="nobody")) == ["handled", "moved_to_error"]
    assert [mailed.order_id for mailed in session.scalars(select(Mailed))] == [1]

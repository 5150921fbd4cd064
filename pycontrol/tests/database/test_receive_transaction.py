"""The transaction in which messages are received does not outlive its block, and what it received is in the queue again."""

import pytest

from rowpost.database.receive_transaction import ReceiveTransaction
from rowpost.errors import DatabaseError


def test_an_exception_rolls_back_and_the_message_is_in_its_queue(queue, database):
    queue.send(b"x")

    with pytest.raises(ZeroDivisionError), ReceiveTransaction(database):
        database.call("receive_messages", queue.name, count=1, begin=True)
        1 / 0  # noqa: B018

    assert not database.in_transaction
    assert queue.peek() == 1


def test_a_transaction_that_is_left_open_is_rolled_back_and_told(queue, database):
    queue.send(b"x")

    with pytest.raises(DatabaseError, match="neither committed nor rolled back"), ReceiveTransaction(database):
        database.call("receive_messages", queue.name, count=1, begin=True)

    assert not database.in_transaction
    assert queue.peek() == 1


def test_a_transaction_that_was_committed_ends_the_block_and_it_may_be_entered_again(queue, database):
    queue.send(b"x")
    transaction = ReceiveTransaction(database)

    for _ in range(2):
        with transaction:
            database.call("receive_messages", queue.name, count=1, begin=True)
            database.commit()

    assert queue.peek() == 0

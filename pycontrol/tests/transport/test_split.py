"""Messages of one send are divided into calls of send_messages: by number and by bytes, in their order, none twice and none left out."""

from rowpost.transport.queue import BATCH_BYTES, BATCH_MESSAGES, Row, split


def rows(count: int, body: bytes) -> list[Row]:
    return [Row(f'{{"Number":"{number}"}}', body, None, None) for number in range(count)]


def test_a_call_takes_a_bounded_number_of_messages():
    given = rows(2 * BATCH_MESSAGES + 1, b"")

    batches = list(split(given))

    assert [len(batch) for batch in batches] == [BATCH_MESSAGES, BATCH_MESSAGES, 1]
    assert [row for batch in batches for row in batch] == given


def test_a_call_takes_a_bounded_number_of_bytes_but_always_one_message():
    given = [*rows(3, bytes(BATCH_BYTES // 3)), *rows(1, bytes(2 * BATCH_BYTES)), *rows(1, b"{}")]

    batches = list(split(given))

    assert [len(batch) for batch in batches] == [2, 1, 1, 1]
    assert [row for batch in batches for row in batch] == given


def test_no_messages_are_no_call():
    assert list(split([])) == []

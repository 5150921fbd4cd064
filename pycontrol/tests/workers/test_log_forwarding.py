"""What workers log reaches the supervisor, with queue, worker and message."""

import json
import logging
from dataclasses import replace

import pytest

from rowpost.cli.run.event_text import event_document
from rowpost.settings.log import LogSettings
from rowpost.wire.headers import MESSAGE_ID
from rowpost.workers import events
from rowpost.workers.worker.log_forwarding import LogForwarder
from tests.support.workers import Running


def logged(running: Running) -> list[tuple[str, str, str]]:
    return [(logging.getLevelName(e.level), e.logger, e.text) for e in running.seen(events.Logged)]


def run_once(shop, handler: str, **log: str) -> Running:
    running = Running(replace(shop.settings(handler, limit=1), log=LogSettings(**log)))
    with running:
        running.until(lambda: shop.handled() == 1, "the message is handled")
        running.idle()
    return running


def test_records_of_handlers_arrive_with_their_message_whole_and_in_order(shop, tmp_path):
    stderr = tmp_path / "stderr"
    shop.queue.send(str(stderr).encode(), {MESSAGE_ID: "own-id"})

    running = run_once(shop, "log")

    found = logged(running)
    assert [each[2].split("\n")[0][:12] for each in found] == ["order 17", "in a thread", "caught", "long xxxxxxx"]
    assert [each[0] for each in found] == ["INFO", "WARNING", "ERROR", "INFO"]
    assert {each[1] for each in found} == {"shop.orders"}
    assert found[2][2].endswith('KeyError: "the order\'s number"')
    assert found[3][2].endswith("characters more)")
    assert len(found[3][2]) < 17_000
    seen = running.seen(events.Logged)
    started = {e.pid for e in running.seen(events.WorkerStarted)}
    assert {(e.queue, e.message_id) for e in seen} == {(shop.name, "own-id")}
    assert {e.pid for e in seen} <= started
    assert [e.at for e in seen] == sorted(e.at for e in seen)
    assert [e.extra for e in seen] == [{"order_id": 17, "customer": "Ada", "tags": "['a']"}, {}, {}, {}]
    assert json.loads(json.dumps(event_document(seen[0])))["extra"] == seen[0].extra
    said = stderr.read_text()
    assert "in a forked process" in said
    assert "cannot be formatted" in said


@pytest.mark.parametrize(("level", "count"), [("debug", 5), ("warning", 2), ("critical", 0)])
def test_a_worker_sends_what_the_level_asks_for(shop, tmp_path, level, count):
    shop.queue.send(str(tmp_path / "stderr").encode())

    running = run_once(shop, "log", level=level)

    assert len([e for e in running.seen(events.Logged) if e.logger == "shop.orders"]) == count


def test_threads_of_a_handler_that_log_at_once_lose_and_mix_nothing(shop):
    shop.queue.send(b"")

    running = run_once(shop, "log_many")

    for name in "ab":
        assert [e.text for e in running.seen(events.Logged) if e.logger == name] == [
            f"{n} {'é' * 16_000}" for n in range(200)
        ]


def test_without_a_receiver_of_events_a_record_goes_to_the_logger_that_the_worker_used(caplog):
    event = events.Logged(
        queue="Sales",
        at=0.0,
        pid=7,
        level=logging.ERROR,
        logger="shop.orders",
        text="no 100 %",
        message_id="own-id",
        extra={"order_id": 7},
    )

    events.log_event(event)

    (record,) = caplog.records
    assert (record.name, record.levelno, record.getMessage()) == ("shop.orders", logging.ERROR, "no 100 %")
    assert (record.rowpost_queue, record.rowpost_worker, record.rowpost_message_id, record.order_id) == (
        "Sales",
        7,
        "own-id",
        7,
    )


def test_an_extra_that_this_programs_own_records_have_costs_no_record(caplog):
    factory = logging.getLogRecordFactory()

    def with_tenant(*args, **kwargs):
        record = factory(*args, **kwargs)
        record.tenant = "this program's"
        return record

    logging.setLogRecordFactory(with_tenant)
    try:
        extra = {"tenant": "the worker's", "order_id": 7}
        events.log_event(
            events.Logged(
                queue="Sales", at=0.0, pid=7, level=30, logger="shop", text="late", message_id=None, extra=extra
            )
        )
    finally:
        logging.setLogRecordFactory(factory)

    (record,) = caplog.records
    assert (record.getMessage(), record.tenant, record.order_id) == ("late", "this program's", 7)


def test_values_of_extra_are_what_json_can_hold_and_not_without_limit():
    class Broken:
        def __str__(self):
            raise ValueError

    sent = []
    forwarder = LogForwarder(sent.append, lambda: None)
    values = {
        "number": 7,
        "ratio": 0.5,
        "none": None,
        "yes": True,
        "nan": float("nan"),
        "huge": 10**5000,
        "long": "x" * 5000,
        "broken": Broken(),
    }
    forwarder.emit(logging.makeLogRecord({"msg": "m", **values}))
    forwarder.emit(logging.makeLogRecord({"msg": "m", **{f"k{number}": number for number in range(100)}}))

    first, second = (each.extra for each in sent)
    kept = {"number": 7, "ratio": 0.5, "none": None, "yes": True, "nan": "nan"}
    assert {key: first[key] for key in kept} == kept
    assert (len(first["long"]), len(second)) == (1000, 50)
    assert "ValueError" in first["huge"] and "ValueError" in first["broken"]
    assert json.loads(json.dumps(first)) == first

"""Sagas of either side: the asker hosts the saga, the other side answers its request."""


def test_a_saga_asks_gets_its_reply_and_ends_at_its_timeout(stage):
    asker, answerer = stage.both()

    asker.send("StartOrder", {"OrderId": 42, "Payments": stage.answerer}, local=1)

    assert answerer.wait_for("handled", "TakePayment")[0]["body"] == {"OrderId": 42}
    assert asker.wait_for("handled", "PaymentDone")[0]["body"] == {"OrderId": 42}
    assert asker.wait_for("timeout", 42) == [{"timeout": 42, "paid": True}]
    assert stage.rows("error") == []


def test_the_replies_to_two_sagas_reach_each_its_own(stage):
    asker, answerer = stage.both()

    asker.send("StartOrder", {"OrderId": 1, "Payments": stage.answerer}, local=1)
    asker.send("StartOrder", {"OrderId": 2, "Payments": stage.answerer}, local=1)

    ended = asker.wait_for("timeout", count=2)
    assert sorted((each["timeout"], each["paid"]) for each in ended) == [(1, True), (2, True)]
    assert len(answerer.handled("TakePayment")) == 2

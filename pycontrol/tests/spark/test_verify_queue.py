"""`verify DIR QUEUE` compares an archive with a queue, and knows what was erased and retained."""

from deltalake import DeltaTable

from tests.support.spark.messages import audit_row

OK, FINDING = 0, 1


def test_messages_that_were_erased_or_retained_are_not_missed_although_the_queue_has_them(
    queues, cli, archive_without_spark, tmp_path
):
    queue, out, policy = queues.make(), tmp_path / "out", tmp_path / "policy.yml"
    policy.write_text("rules:\n  - message_type: Shop.Old\n    action: delete\n")
    for count, kind in ((3, "Shop.Person"), (2, "Shop.Old"), (4, "Shop.Paid")):
        queues.send(queue, [b"1"] * count, audit_row(EnclosedMessageTypes=kind)[5])
    archive_without_spark(queue, out)
    cli("erase", out, "--where", "message_type = 'Shop.Person'", "--reason", "a test")
    cli("retain", out, policy, "--apply")
    queues.send(queue, [b"new"])

    code, counts, _ = cli("verify", out, queue, "--json")
    DeltaTable(str(out)).delete("message_type = 'Shop.Paid'")  # by another program
    lost_code, lost, _ = cli("verify", out, queue, "--json")

    assert (code, counts["removed"], counts["missed"], counts["not_archived_yet"]) == (OK, 5, 0, 1)
    assert (lost_code, lost["removed"], lost["missed"], lost["not_archived_yet"]) == (FINDING, 5, 4, 1)
    (found,) = lost["details"]
    assert found["kind"] == "missed" and "new archive" not in found["advice"]


def test_a_drain_has_missed_nothing_that_is_in_the_queue(queues, cli, archive_without_spark, tmp_path):
    queue, out = queues.make(), tmp_path / "out"
    queues.send(queue, [b"1", b"2"])
    with queues.connect() as database, database.transaction():
        database.driver_connection.execute(f'SELECT 1 FROM public."{queue}" ORDER BY seq LIMIT 1 FOR UPDATE')
        assert archive_without_spark(queue, out, "--drain")["messages"] == 1

    code, counts, _ = cli("verify", out, queue)

    assert (code, counts["missed"], counts["not_archived_yet"]) == (OK, 0, 1)

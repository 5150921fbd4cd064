"""Both twins of a procedure promise the same atomicity, locking and order.

The sections of the two headers are compared by content, after the engines' different words for the same thing are made
equal. What still differs is listed in `DIFFERENT`, with the reason. An entry that is no longer needed fails too.
"""

import re

from tests.support.sql_headers import headers

SECTION = re.compile(r"^(Atomicity|Locking|Order):\s*(.*?)(?=^[A-Z]\w*:|\Z)", re.MULTILINE | re.DOTALL)
#: the engines' words for the same thing, and the word that both are replaced by
SAME_THING = (
    (r"\b(?:application|advisory) lock", "lock"),
    (r"@(\w+)", r"p_\1"),
    (r"\b(?i:RowVersion)\b", "seq"),
    (r"\bExpires\b", "expires"),
    (r"\bNULL\b", "null"),
    (r" \((?:READPAST|SKIP LOCKED)\)", ""),
    (r"\((?:error 1222|55P03)\)", "(timeout)"),
)
NO_SHARED_LOCKS = "PostgreSQL's reads take no row locks; SQL Server's do unless READ_COMMITTED_SNAPSHOT is on"
NOTIFY = "only PostgreSQL has NOTIFY, whose lock is held during the commit"
WAKE_UP = "only PostgreSQL stores a wake-up request, in a sequence"
INPUT = "the messages come as JSON on SQL Server and as arrays on PostgreSQL"
TWO_STATEMENTS = "SQL Server has no statement that deletes from one table and inserts into another in a given order"
ESCALATION = "only SQL Server replaces many row locks by a lock on the table"
DUE_ORDER = "PostgreSQL sorts the rows of one due time without reading all that are due"
DIFFERENT = {
    ("delayed/browse_delayed", "Locking"): NO_SHARED_LOCKS,
    ("delayed/read_delayed_bodies", "Locking"): NO_SHARED_LOCKS,
    ("delayed/move_due_messages", "Order"): DUE_ORDER,
    ("delayed/receive_due_messages", "Order"): DUE_ORDER,
    (
        "monitoring/maintain_queue",
        "Atomicity",
    ): "PostgreSQL cannot run VACUUM in a function, so the caller runs the statements",
    ("monitoring/maintain_queue", "Locking"): "index rebuilds and VACUUM take different locks",
    ("lease/list_leases", "Locking"): NO_SHARED_LOCKS,
    ("monitoring/queue_metrics", "Locking"): NO_SHARED_LOCKS,
    ("queue/browse_messages", "Locking"): NO_SHARED_LOCKS,
    ("queue/read_bodies", "Locking"): NO_SHARED_LOCKS,
    ("queue/search_messages", "Locking"): NO_SHARED_LOCKS,
    ("schedule/watch_schedules", "Locking"): NO_SHARED_LOCKS,
    ("operations/list_operations", "Locking"): NO_SHARED_LOCKS,
    ("outbox/clean_outbox", "Locking"): NO_SHARED_LOCKS,
    (
        "outbox/clean_dispatches",
        "Locking",
    ): "on SQL Server the row has an entry in each of two indexes, with a lock of its own",
    ("stream/clean_jobs", "Locking"): NO_SHARED_LOCKS,
    ("queue/peek_queue", "Atomicity"): "PostgreSQL's text also says that no transaction id is assigned",
    ("queue/peek_queue", "Locking"): NO_SHARED_LOCKS,
    ("queue/purge_expired", "Locking"): ESCALATION,
    ("queue/purge_queue", "Locking"): ESCALATION,
    ("queue/receive_messages", "Order"): "each text gives the engine's reason why rows are not sorted",
    ("queue/send_message", "Locking"): NOTIFY,
    ("queue/send_messages", "Locking"): NOTIFY,
    ("queue/send_messages", "Order"): INPUT,
    ("queue/watch_queue", "Atomicity"): WAKE_UP,
    ("queue/watch_queue", "Locking"): NO_SHARED_LOCKS,
    ("queue/watch_queue", "Order"): WAKE_UP,
    ("saga/list_sagas", "Locking"): NO_SHARED_LOCKS,
    ("stream/describe_backlog", "Locking"): NO_SHARED_LOCKS,
    ("stream/find_row_version", "Locking"): NO_SHARED_LOCKS,
    ("stream/sample_range", "Locking"): NO_SHARED_LOCKS,
    ("stream/describe_spool", "Locking"): NO_SHARED_LOCKS,
    ("stream/move_to_spool", "Atomicity"): TWO_STATEMENTS,
    ("stream/move_to_spool", "Locking"): "outside of a transaction, SQL Server commits each of its two statements",
    ("stream/move_to_spool", "Order"): TWO_STATEMENTS,
    ("stream/read_range", "Locking"): NO_SHARED_LOCKS,
    (
        "stream/read_range",
        "Order",
    ): "SQL Server's text adds a remark on the column Recoverable, which PostgreSQL does not have",
    ("stream/read_spool", "Locking"): NO_SHARED_LOCKS,
    ("stream/send_staged", "Atomicity"): TWO_STATEMENTS,
    ("stream/stage_messages", "Order"): INPUT,
    (
        "transaction/probe_transaction",
        "Locking",
    ): "APPLOCK_TEST takes no lock; PostgreSQL can test a lock only by taking it",
}


def sections(comment: str) -> dict[str, str]:
    """Return the text of each section, in words that both engines share."""
    found = {}
    for name, text in SECTION.findall(comment):
        words = " ".join(text.split())
        for pattern, shared in SAME_THING:
            words = re.sub(pattern, shared, words)
        found[name] = words
    return found


def different_sections(key: str) -> set[tuple[str, str]]:
    """Return the sections of one procedure that the twins word differently, or that one of them does not have."""
    here, there = (sections(headers(engine)[key].comment) for engine in ("sqlserver", "postgresql"))
    return {(key, name) for name in here.keys() | there.keys() if here.get(name) != there.get(name)}


def test_the_twins_promise_the_same():
    assert set().union(*map(different_sections, headers("sqlserver"))) == DIFFERENT.keys()


def test_a_listed_difference_is_of_a_procedure_that_exists():
    assert {key for key, _ in DIFFERENT} - headers("sqlserver").keys() == set()


def test_a_listed_difference_is_a_section_that_both_twins_have():
    missing = [
        (key, name, engine)
        for key, name in DIFFERENT
        for engine in ("sqlserver", "postgresql")
        if name not in sections(headers(engine)[key].comment)
    ]

    assert missing == []


def test_engines_words_for_the_same_thing_are_equal_and_others_are_not():
    here = sections(
        "Receives.\nLocking: waits for an application lock, at most @ms\n    (error 1222).\nOrder: by RowVersion."
    )
    there = sections("Receives.\nLocking: waits for an advisory lock, at most p_ms (55P03).\nOrder: by id.")

    assert here["Locking"] == there["Locking"] == "waits for an lock, at most p_ms (timeout)."
    assert here["Order"] != there["Order"]

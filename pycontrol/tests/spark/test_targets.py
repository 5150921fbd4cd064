"""Which share of the messages is within its target, and what is left of the error budget."""

from datetime import timedelta

import pytest

from rowpost.errors import SettingsError
from rowpost.spark.archive.targets import read_targets
from rowpost.spark.jobs import targets
from tests.support.spark.archives import ArchiveMaker
from tests.support.spark.messages import NOON, audit_row, error_row, raw

NOW = NOON + timedelta(days=20)


@pytest.fixture
def measure(spark, tmp_path):
    """Write messages to an archive and targets to a file, and measure them by name and endpoint."""

    def call(text: str, *rows: tuple, window: str = "30d"):
        made = ArchiveMaker(spark, tmp_path / "made")
        made.batch(0, rows)
        (tmp_path / "t.yml").write_text(f"window: {window}\ntargets:\n{text}")
        found, left = targets.run(spark, str(made.path), read_targets(tmp_path / "t.yml"), NOW)
        return {(row["target"], row["endpoint"]): row for row in found}, left

    return call


def test_the_error_budget_of_a_target(measure):
    rows = [audit_row(f"m{n}", waited=0, took=1.0) for n in range(998)] + [audit_row(f"s{n}", waited=2.0, took=0.001) for n in range(2)]

    found, _ = measure("""
  - {name: exact, endpoint: Sales, message_type: Shop.*, critical_time: 2s, share: 99.8%}
  - {name: strict, endpoint: Sales, critical_time: 2s, share: 99.9%}
  - {name: all, critical_time: 2s, share: 100%}
  - {name: handler, processing_time: 500ms, share: 0.1%}
""", *rows)  # fmt: skip

    def told(name: str) -> tuple:
        row = found[name, "Sales"]
        return row["messages"], row["outside"], row["messages_left"], row["breach"], row["budget_used"] and round(row["budget_used"], 6)

    assert told("exact") == (1000, 2, 0, False, 1.0)
    assert told("strict") == (1000, 2, -1, True, 2.0)
    assert told("all") == (1000, 2, -2, True, None)
    assert (told("handler"), found["handler", "Sales"]["share"]) == ((1000, 998, 1, False, round(998 / 999, 6)), 0.002)


def test_a_failed_message_is_outside_and_a_message_counts_once_for_each_endpoint(measure):
    found, _ = measure("  - {name: t, critical_time: 10s, share: 50%}\n",
        audit_row("a"), audit_row("a"), audit_row("a", ProcessingEndpoint="Billing"),
        error_row("b"), error_row("c"), audit_row("c"), audit_row("d", TimeSent=None),
    )  # fmt: skip

    sales, billing = found["t", "Sales"], found["t", "Billing"]
    assert (sales["messages"], sales["inside"], sales["outside"], sales["failed"], sales["breach"]) == (3, 1, 2, 2, True)
    assert (billing["messages"], billing["inside"], billing["breach"]) == (1, 1, False)


def test_messages_outside_of_the_window_and_without_a_time_are_counted(measure):
    found, left = measure("  - {name: t, critical_time: 10s, share: 50%}\n  - {name: none, endpoint: Nobody, critical_time: 1s, share: 50%}\n",
        audit_row("in"), audit_row("old", sent=NOON - timedelta(days=11)), audit_row("late", sent=NOW + timedelta(minutes=1)),
        audit_row("negative", waited=-5.0), raw("{}"),
    )  # fmt: skip

    assert found["t", "Sales"]["messages"] == 2
    assert left == {"too_old": 1, "late": 1, "skipped": 1, "clamped": 1}
    assert (found["none", None]["messages"], found["none", None]["breach"]) == (0, False)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("targets: []", "is empty"),
        ("target: []", "did you mean targets?"),
        ("targets: [{name: a, critcal_time: 2s, share: 99%}]", "targets.1.critcal_time: unknown key: did you mean critical_time?"),
        ("targets: [{name: a, share: 99%}]", "targets.1: has 0 limits"),
        ("targets: [{name: a, critical_time: 2s, processing_time: 1s, share: 99%}]", "has 2 limits"),
        ("targets: [{name: a, critical_time: 2s}]", "targets.1.share: missing"),
        ("targets: [{name: a, critical_time: 2, share: 99%}]", "targets.1.critical_time: must be a duration"),
        ("targets: [{name: a, critical_time: 2s, share: 0.99}]", "targets.1.share: must be a share"),
        ("targets: [{critical_time: 2s, share: 99%}]", "targets.1.name: missing"),
        ("targets: [{name: a, critical_time: 2s, share: 1%}, {name: a, critical_time: 2s, share: 2%}]", "two targets are named 'a'"),
        ("window: ever\ntargets: []", "window: must be a duration"),
    ],
)
def test_a_wrong_file_of_targets_is_refused_with_its_place(tmp_path, text, says):
    path = tmp_path / "targets.yml"
    path.write_text(text)

    with pytest.raises(SettingsError) as error:
        read_targets(path)

    assert says in str(error.value) and "targets.yml" in str(error.value)

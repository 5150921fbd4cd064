"""The Spark guide lists the columns of all schemas."""

from pathlib import Path

import pytest

from rowpost.spark.archive import schemas

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "spark-columns.md"


def as_table(schema) -> str:
    """Format a schema as in the guide."""
    own = [column for column in schema if column.metadata]
    lines = ["| Column | Type | |", "|---|---|---|"]
    lines += [f"| `{c.name}` | {c.dataType.simpleString()} | {c.metadata['comment']} |" for c in own]
    return "\n".join(lines)


@pytest.mark.parametrize("name", ["ARCHIVE", "FLOW_HOURLY", "EDGES", "CONVERSATIONS", "FAILURE_GROUPS"])
def test_the_guide_shows_every_column_with_its_type_and_meaning(name):
    assert as_table(getattr(schemas, name)) in GUIDE.read_text(encoding="utf-8")


def test_the_guide_names_the_columns_of_a_message():
    named = ", ".join(f"`{column.name}`" for column in schemas.MESSAGE)

    assert named in GUIDE.read_text(encoding="utf-8")


@pytest.mark.parametrize("page", sorted(GUIDE.parent.glob("spark*.md")), ids=lambda page: page.stem)
def test_no_page_of_the_guide_is_longer_than_a_reader_takes_in_at_once(page):
    assert len(page.read_text(encoding="utf-8").split()) <= 2500

"""The configuration of sqlfluff, which `make lint` runs over sql/, finds mistakes."""

from pathlib import Path

import pytest
from sqlfluff.core import FluffConfig, Linter

pytestmark = pytest.mark.lint
REPOSITORY = Path(__file__).resolve().parents[3]
PROCEDURE = """SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.try_out
AS
SET NOCOUNT, XACT_ABORT ON;

{statement}
GO
"""


@pytest.mark.parametrize(
    ("statement", "rule"),
    [
        ("select q.queue_key FROM rowpost.queue AS q;", "CP01"),
        ("SELECT q.QueueKey FROM rowpost.queue AS q;", "CP02"),
        ("SELECT MAX(q.queue_key) AS last_key, max(q.kind) AS kind FROM rowpost.queue AS q;", "CP03"),
        ("DECLARE @x INT = 1;", "CP05"),
        ("SELECT q.queue_key FROM rowpost.queue AS q WHERE q.kind = null;", "CP04"),
        ("SELECT q.queue_key FROM rowpost.queue q;", "AL01"),
        ("SELECT * FROM rowpost.queue AS q;", "AM04"),
        ("SELECT kind FROM rowpost.queue AS q INNER JOIN rowpost.failure AS f ON q.queue_key = f.queue_key;", "RF02"),
        ("SELECT q.queue_key FROM rowpost.queue AS q ORDER BY q.queue_key, q.kind DESC;", "AM03"),
        ("SELECT FROM WHERE;", "PRS"),
    ],
)
def test_a_breach_of_the_house_style_is_seen(statement, rule):
    linter = Linter(config=FluffConfig.from_path(str(REPOSITORY / "sql" / "procedures")))

    linted = linter.lint_string(PROCEDURE.format(statement=statement))

    assert rule in {violation.rule_code() for violation in linted.get_violations()}

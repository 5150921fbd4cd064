"""Run a script as a DBA does: with psql, or batch by batch as sqlcmd does."""

import re
import subprocess

from rowpost.deploy.runner import BatchError, SqlserverRunner
from rowpost.deploy.sql_text import split_batches
from tests.support.babelfish import HandRunner

__all__ = ["run_by_hand"]


def run_by_hand(shop, database, psql, script, tmp_path):
    """Run a script in the shop's database."""
    if shop.engine == "postgresql":
        path = tmp_path / "plan.sql"
        path.write_text(script, encoding="utf-8")
        command = [psql, "-q", "-X", "-v", "ON_ERROR_STOP=1", "-f", path, shop.settings.url]
        return subprocess.run(command, capture_output=True, text=True, check=False)
    runner = HandRunner(database) if shop.babelfish else SqlserverRunner(database)
    try:
        for batch in split_batches(script, "sqlserver"):
            runner.run(batch, bare=bool(re.search(r"\b(BEGIN|COMMIT) TRANSACTION;", batch.text)))
    except BatchError as error:
        runner.rollback()
        return subprocess.CompletedProcess("sqlcmd", 1, stderr=str(error))
    return subprocess.CompletedProcess("sqlcmd", 0, stderr="")

"""No rendered name of a procedure is longer than the engine's limit, also for the longest key of a queue."""

import pytest

from rowpost.database.contract import load_contract
from rowpost.wire.address import IDENTIFIER_LIMIT, Address, queue_key


@pytest.mark.parametrize("engine", ["sqlserver", "postgresql"])
def test_the_longest_key_fits_into_every_name(engine):
    limit = IDENTIFIER_LIMIT[engine]
    keys = {
        queue_key(Address("q" * length, schema), engine)
        for length in range(1, limit + 1)
        for schema in (None, "s" * 20)
    }

    too_long = {
        f"{each.name}:{key}"
        for each in load_contract().templates()
        for key in keys
        if len(f"{each.name}:{key}".encode()) > limit
    }

    assert too_long == set()

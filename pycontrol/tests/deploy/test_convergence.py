"""After an `apply`, `verify` finds nothing, whatever was declared before. Random environments, one after the other, in one database.

ROWPOST_CONVERGENCE_PAIRS sets how many pairs of environments are tried. Each failure names the seed of its database.
"""

import os
from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from rowpost.database.connection import connect_url
from rowpost.deploy.apply import apply
from rowpost.deploy.plan import plan
from rowpost.deploy.verify import verify
from rowpost.errors import DeployError
from rowpost.settings.environment import FEATURES, QueueSettings, SagaSettings

PAIRS = int(os.environ.get("ROWPOST_CONVERGENCE_PAIRS", "12"))
#: pairs that follow one another in one database
CHAIN = 6
QUEUES = ("Sales", "Billing", "it's", "Sales@[app]")
#: for Babelfish, whose QUOTENAME doubles the quote, and whose schemas have other owners than dbo
PLAIN = ("Sales", "Billing", "Other", "Fourth")
#: what apply refuses, because it would lose data, and the words that say what to do
REFUSED = "correlate by another property, or change the column"


def environment(random, target, url):
    """An environment with some queues, sagas and features."""
    queues = [
        QueueSettings(
            name, delayed=random.random() < 0.5, body_string=random.random() < 0.3, clustered=random.random() < 0.5
        )
        for name in (PLAIN if target.babelfish else QUEUES)
        if random.random() < 0.5
    ]
    sagas = [
        SagaSettings(
            f"Saga{number}",
            random.choice(("OrderId", "Number")),
            random.choice(("string", "integer", "uuid")) if random.random() < 0.2 else "string",
            "Second" if random.random() < 0.3 else None,
        )
        for number in range(2)
        if random.random() < 0.5
    ]
    features = tuple(feature for feature in FEATURES if random.random() < 0.5)
    table = random.choice(("SubscriptionRouting", "Subscribers" if target.babelfish else "SubscriptionRouting@[app]"))
    return replace(
        target.settings, url=url, queues=tuple(queues), sagas=tuple(sagas), features=features, subscription_table=table
    )


@pytest.mark.promise("converges")
@pytest.mark.parametrize("seed", range(-(-PAIRS // CHAIN)))
def test_verify_is_clean_after_each_apply_whatever_was_declared_before(target, new_database, seed):
    engine = target.settings.engine
    random, outcomes, before = Random(seed), Counter(), None
    url = new_database("sqlserver" if engine == "sqlserver" else target.label)
    with connect_url(engine, url) as database:
        database.driver_connection.execute("CREATE SCHEMA app")
        for step in range(min(CHAIN, PAIRS) + 1):
            wanted = environment(random, target, url)
            try:
                apply(database, plan(wanted))
            except DeployError as error:
                assert REFUSED in str(error), f"seed {seed}, step {step}"
                outcomes["refused"] += 1
            else:
                before = wanted
                outcomes["applied"] += 1
            found = [] if before is None else verify(database, plan(before))
            assert found == [], f"seed {seed}, step {step}: {before}"

    assert outcomes["applied"] > 0

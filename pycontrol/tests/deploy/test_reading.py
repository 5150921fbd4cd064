"""plan --sql --review: each template once, the names of each queue, and nothing that the script does not do."""

import re

import pytest

from rowpost.database.dialects.choice import dialect_for
from rowpost.deploy.plan import plan
from rowpost.deploy.reading import read_entry, read_plan
from rowpost.deploy.sql_text import render
from rowpost.errors import DeployError
from rowpost.settings.environment import QueueSettings, SagaSettings, Settings

URLS = {"postgresql": "postgresql://app@127.0.0.1:1/shop", "sqlserver": "Server=127.0.0.1,1"}
QUEUES = (
    QueueSettings("Sales"), QueueSettings("Billing"), QueueSettings("it's ]\"odd"),
    QueueSettings("Legacy.Orders@[nsb]", "external"), QueueSettings("Plain", delayed=False),
)  # fmt: skip
every_engine = pytest.mark.parametrize("engine", ["postgresql", "sqlserver"])


def offline(engine, queues=QUEUES, features=("spark",)):
    sagas = (SagaSettings("OrderPolicy", "order_id", "integer"),)
    return plan(Settings(engine=engine, url=URLS[engine], queues=queues, sagas=sagas, features=features))


@every_engine
def test_the_templates_that_are_read_are_what_the_script_runs_with_each_entry_s_names(engine):
    planned = offline(engine)

    text = read_plan(planned)

    assert f"Plan {planned.hash}:" in text
    by_title = {entry.title: entry for entry in planned.entries}
    for step in planned.steps:
        if step.owner is None:
            assert step.text.strip() in text, step.script_name
        else:
            names = by_title[step.owner].placeholders(dialect_for(engine))
            assert text.count(step.template.strip()) == 1, step.script_name
            if "EXEC (N'ALTER" in step.template and "'" in step.owner:
                continue  # the name stands in a string in a string
            assert render(step.template, names, engine) == step.text


@every_engine
def test_queues_of_one_kind_have_one_hash_and_others_another(engine):
    text = read_plan(offline(engine))

    hashes = dict(re.findall(r"^-- queue (.+): templates (\w+)$", text, re.MULTILINE))
    assert hashes["Sales"] == hashes["Billing"] == hashes["it's ]\"odd"]
    assert len({hashes["Sales"], hashes["Plain"], hashes["Legacy.Orders@[nsb]"]}) == 3
    assert all(f"-- templates {each}\n" in text for each in hashes.values())


@every_engine
def test_another_queue_takes_two_lines(engine):
    few = read_plan(offline(engine))
    more = read_plan(offline(engine, (*QUEUES, QueueSettings("Another"))))

    assert len(more.splitlines()) - len(few.splitlines()) == 2


@every_engine
def test_one_queue_is_read_whole_as_it_runs(engine):
    planned = offline(engine)

    text = read_entry(planned, "Sales")

    own = [step for step in planned.steps if step.owner == "queue Sales"]
    assert all(step.text.strip() in text for step in own)
    assert "{queue" not in text
    assert "Billing" not in text


def test_a_queue_that_the_environment_does_not_have_is_named_with_those_that_it_has():
    with pytest.raises(DeployError, match=r"no queue 'Nowhere'\. It has: Sales, Billing"):
        read_entry(offline("postgresql"), "Nowhere")

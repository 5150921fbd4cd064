"""The contract's file is decoded strictly: a mistake in it is an error that names the procedure and the key."""

import pytest

from rowpost.database.contract import parse_contract
from rowpost.errors import ContractError
from tests.support.at_once import run_at_once

HEAD = """
version: 1
roles: {send: [endpoint], receive: [endpoint], operate: [operator], read: [reader], deploy: []}
errors: {1: {name: QueueNotFound, meaning: "No such queue."}}
procedures:
  queue/peek_queue:
"""
PEEK = "{purpose: Count., scope: queue, side: receive, parameters: [], result: [{name: waiting, type: integer}]}"


def test_a_contract_becomes_values():
    contract = parse_contract(f"{HEAD}    {PEEK}")

    (procedure,) = contract.procedures
    assert (procedure.folder, procedure.name, procedure.queues, procedure.roles) == ("queue", "peek_queue", "own", ())
    assert [(column.name, column.type) for column in procedure.result] == [("waiting", "integer")]
    assert contract.errors[1].name == "QueueNotFound"


@pytest.mark.parametrize(
    ("was", "becomes", "expected"),
    [
        ("purpose:", "purpse:", ("procedures.queue/peek_queue", "`purpse`")),
        ("scope: queue", "scope: table", ("procedures.queue/peek_queue", "'table'", "scope")),
        ("type: integer", "type: int", ("procedures.queue/peek_queue", "'int'", "result[0].type")),
        ("side: receive, ", "", ("procedures.queue/peek_queue", "`side`")),
        ("scope: queue", "scope: queue, name: other", ("procedures.queue/peek_queue", "`name`")),
        (
            "queue/peek_queue",
            "queue/peek_queue_of_a_shopx",
            ("procedures.queue/peek_queue_of_a_shopx", "21 characters", "room for 20"),
        ),
        ("version: 1", "version: one", ("the top level", "version")),
        ("version: 1", "version: 1\nowner: me", ("the top level", "`owner`")),
        ("version: 1", "version: [1", ("is not YAML", "line 3")),
    ],
)
def test_a_mistake_in_the_contract_names_file_and_key(was, becomes, expected):
    with pytest.raises(ContractError) as caught:
        parse_contract(f"{HEAD}    {PEEK}".replace(was, becomes))

    assert str(caught.value).startswith("sql/contract.yml: ")
    assert all(part in str(caught.value) for part in expected), str(caught.value)


def test_threads_that_need_the_contract_at_once():
    run_at_once(
        """
import importlib
from rowpost.database import contract

for _ in range(10):
    importlib.reload(contract)
    found = set()
    at_once(lambda: found.add(id(contract.load_contract())))
    assert len(found) == 1
"""
    )

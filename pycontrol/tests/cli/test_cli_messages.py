"""rowpost message show and conversation, as processes."""

from uuid import uuid4

import pytest

from tests.support.program import Program, rowpost

__all__ = ["rowpost"]


@pytest.fixture
def sent(rowpost: Program) -> str:
    """The id of the only message, which waits in Sales."""
    assert rowpost("queue", "purge", "Sales", "--yes").code == 0
    return rowpost("send", "Sales", "--body", "{}", "--type", "Shop.PlaceOrder", "--json").json["message_id"]


def test_a_message_is_shown_with_where_it_is(rowpost: Program, sent: str):
    shown, document = rowpost("message", "show", sent), rowpost("message", "show", sent, "--json").json

    assert (shown.code, f"message {sent}  Shop.PlaceOrder" in shown.out, "waiting" in shown.out) == (0, True, True)
    assert [(fact["kind"], fact["place"]) for fact in document["facts"]] == [("sent", "rowpost"), ("waiting", "Sales")]


def test_an_unknown_message_is_a_finding(rowpost: Program):
    shown = rowpost("message", "show", str(uuid4()), "--all")

    assert (shown.code, shown.err) == (1, "Nothing is known of it.\n")


def test_a_conversation_is_shown_as_a_tree_and_as_a_diagram(rowpost: Program, sent: str):
    tree, diagram = rowpost("message", "conversation", sent), rowpost("message", "conversation", sent, "--mermaid")
    document = rowpost("message", "conversation", sent, "--json").json

    assert (tree.code, tree.out) == (0, "PlaceOrder  rowpost → Sales  waiting\n")
    assert diagram.out.startswith("sequenceDiagram\n")
    assert [step["message_id"] for step in document["steps"]] == [sent]


def test_what_is_no_conversation_is_named(rowpost: Program):
    unknown, wrong = rowpost("message", "conversation", str(uuid4())), rowpost("message", "show", "ü")

    assert (unknown.code, "was found" in unknown.err) == (6, True)
    assert (wrong.code, "Use the id of a message" in wrong.err) == (2, True)

"""How requests are split, and which declarations of a gathering saga cannot work."""

from dataclasses import dataclass

import pytest

from rowpost.errors import SettingsError
from rowpost.sagas.scatter_gather import ScatterGather, split


@dataclass(frozen=True)
class Ask:
    number: int


@dataclass(frozen=True)
class Told:
    number: int


def tree(items, at_most):
    """Leaves are groups of items, all others lists of what is below them."""
    return tuple(items) if len(items) <= at_most else [tree(group, at_most) for group in split(items, at_most)]


def everybody(node):
    return [node, *(each for child in node for each in everybody(child))] if isinstance(node, list) else [node]


@pytest.mark.parametrize("at_most", [2, 3, 100])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 99, 100, 101, 1000, 10_001])
def test_all_items_are_there_in_their_order_and_nobody_waits_for_more_than_allowed(count, at_most):
    members = everybody(tree(range(count), at_most))

    assert [item for leaf in members if isinstance(leaf, tuple) for item in leaf] == list(range(count))
    assert max(map(len, members)) <= at_most
    assert all(map(len, members)) or count == 0


@pytest.mark.parametrize(("count", "height"), [(100, 1), (101, 2), (10_000, 2), (10_001, 3)])
def test_the_tree_is_as_flat_as_can_be(count, height):
    def height_of(node):
        return 1 + max(map(height_of, node)) if isinstance(node, list) else 1

    assert height_of(tree(range(count), 100)) == height


@pytest.mark.parametrize("options", [{"at_most": 1}, {"at_most": 0}, {"at_once": 0}, {"concurrency": "none"}])
def test_what_splits_nothing_or_asks_nobody_is_refused(options):
    with pytest.raises(SettingsError):

        class Wrong(ScatterGather[Ask, Told], **options):
            pass


def test_messages_that_are_not_named_are_asked_for():
    with pytest.raises(SettingsError, match=r"ScatterGather\[Request, Response\]"):

        class Wrong(ScatterGather):
            pass


def test_two_gatherings_of_the_same_messages_have_messages_of_their_own():
    class One(ScatterGather[Ask, Told]):
        pass

    class Other(ScatterGather[Ask, Told]):
        pass

    assert One.Part is not Other.Part
    assert {method.cls for method in One.declaration.methods} == {One.Part, One.Gathered, Told}

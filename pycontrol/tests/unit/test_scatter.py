"""Scatter-gather in chunks: nobody waits for more than was allowed, and nothing is left out."""

import pytest

from rowpost.errors import InvalidMessage
from rowpost.scatter import scatter


def everybody(chunk):
    return [chunk, *(each for child in chunk.children for each in everybody(child))]


@pytest.mark.parametrize("at_most", [2, 3, 100])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 99, 100, 101, 1000, 10_001])
def test_all_items_are_there_in_their_order_and_nobody_waits_for_more_than_allowed(count, at_most):
    tree = scatter(range(count), at_most=at_most)

    assert [item for leaf in tree.leaves for item in leaf.items] == list(range(count))
    assert max(chunk.awaits for chunk in everybody(tree)) <= at_most
    assert all(chunk.awaits > 0 for chunk in everybody(tree)) or count == 0


def test_every_member_has_a_name_of_its_own_which_is_the_same_each_time():
    names = [chunk.name for chunk in everybody(scatter(range(1000), at_most=7))]

    assert len(set(names)) == len(names)
    assert names == [chunk.name for chunk in everybody(scatter(range(1000), at_most=7))]


@pytest.mark.parametrize(("count", "height"), [(100, 1), (101, 2), (10_000, 2), (10_001, 3)])
def test_the_tree_is_as_flat_as_can_be(count, height):
    def height_of(chunk):
        return 1 + max(map(height_of, chunk.children), default=0)

    assert height_of(scatter(range(count), at_most=100)) == height


def test_ten_thousand_items_make_a_hundred_chunks_of_a_hundred():
    tree = scatter(range(10_000), at_most=100)

    assert {leaf.awaits for leaf in tree.leaves} == {100}
    assert tree.awaits == 100


@pytest.mark.parametrize("at_most", [1, 0, -1])
def test_a_chunk_that_splits_nothing_is_refused(at_most):
    with pytest.raises(InvalidMessage):
        scatter(range(10), at_most=at_most)

"""The commands of the examples' READMEs, as a reader types them, with the output that each promises."""

import pytest

from tests.support.console import Console, console
from tests.support.documents import ROOT, blocks

__all__ = ["console"]

#: how many lines of output each promises at least
READMES = {"django_shop": 3, "from_celery": 2, "from_procrastinate": 2, "orders": 5}


@pytest.mark.parametrize("name", READMES)
def test_the_readme_does_what_it_says(name: str, console: Console):
    shown = [each for each in blocks(ROOT / "examples" / name / "README.md") if each.language == "console"]

    assert sum(console.type(block) for block in shown) >= READMES[name]

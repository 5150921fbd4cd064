"""The generated pages are up to date."""

import pytest

from tests.support.pages import REPOSITORY, pages


@pytest.mark.parametrize("path", pages(), ids=lambda path: path.relative_to(REPOSITORY).as_posix())
def test_a_made_page_is_up_to_date(path):
    made = pages()[path]

    assert path.read_text(encoding="utf-8") == made, "run: cd pycontrol && python -m tests.support.pages"

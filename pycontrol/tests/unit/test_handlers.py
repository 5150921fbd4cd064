"""From `module:function` to a function, with an error that says what is wrong."""

import sys

import pytest

from rowpost.errors import HandlerNotFound
from rowpost.handlers import resolve_handler


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes a module which the test can then name."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(name: str, text: str) -> None:
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)

    yield write


def test_a_handler_is_the_function_that_the_text_names(module):
    module("shop_one", "def place_order(message, connection):\n    return (message, connection)\n")

    handler = resolve_handler("shop_one:place_order")

    assert handler("m", "c") == ("m", "c")


def test_dots_after_the_colon_reach_into_a_class(module):
    module("shop_two", "class Orders:\n    @staticmethod\n    def place(message, connection):\n        return 42\n")

    assert resolve_handler("shop_two:Orders.place")(None, None) == 42


@pytest.mark.parametrize("text", ["", "shop", "shop:", ":place", "shop.place"])
def test_a_text_of_another_form_is_refused(text):
    with pytest.raises(HandlerNotFound, match="module:function"):
        resolve_handler(text)


def test_a_missing_module_is_named():
    with pytest.raises(HandlerNotFound, match="'no_such_shop'"):
        resolve_handler("no_such_shop:place")


def test_a_missing_package_of_a_dotted_module_is_named():
    with pytest.raises(HandlerNotFound, match="no module 'no_such_shop'"):
        resolve_handler("no_such_shop.handlers:place")


def test_a_module_that_imports_something_missing_names_that(module):
    module("shop_three", "import no_such_library\n")

    with pytest.raises(HandlerNotFound, match="imports 'no_such_library'"):
        resolve_handler("shop_three:place")


def test_a_module_that_fails_while_imported_says_how(module):
    module("shop_four", "raise ValueError('no licence')\n")

    with pytest.raises(HandlerNotFound, match="ValueError: no licence") as caught:
        resolve_handler("shop_four:place")
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_missing_function_is_named(module):
    module("shop_five", "place_order = print\n")

    with pytest.raises(HandlerNotFound, match="'place_orders'"):
        resolve_handler("shop_five:place_orders")


def test_a_name_that_cannot_be_called_is_refused(module):
    module("shop_six", "place_order = 'not a function'\n")

    with pytest.raises(HandlerNotFound, match="is a str: it must be a function"):
        resolve_handler("shop_six:place_order")

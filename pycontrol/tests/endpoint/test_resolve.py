"""From `module:function` to a function, with an error that says what is wrong."""

import functools
import sys
from dataclasses import dataclass
from functools import reduce

import pytest

from rowpost.endpoint.endpoint import Endpoint
from rowpost.endpoint.resolve import resolve_endpoint, resolve_function, resolve_handler
from rowpost.errors import HandlerNotFound, SettingsError
from rowpost.recoverability.policy import Recoverability
from rowpost.sagas import Saga, handles, starts
from rowpost.settings.worker import FunctionRetries


@dataclass
class Placed:
    id: str


@dataclass
class State:
    id: str


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes a module which the test can then name."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(name: str, text: str) -> None:
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)

    yield write


TAKES = ("message", "connection")


def test_a_handler_is_the_function_that_the_text_names(module):
    module("shop_one", "def place_order(message, connection):\n    return (message, connection)\n")

    handler = resolve_function("shop_one:place_order", TAKES)

    assert handler("m", "c") == ("m", "c")


def test_a_function_becomes_an_endpoint_with_the_queues_name_and_the_attempts_of_its_worker(module):
    module("shop_wrapped", "def place_order(message, connection):\n    pass\n")

    endpoint = resolve_handler("shop_wrapped:place_order", "Sales", retries=FunctionRetries(3), error_queue="failed")

    assert (endpoint.name, endpoint.error_queue, endpoint.audit_queue) == ("Sales", "failed", None)
    assert (endpoint.recoverability.immediate_retries, endpoint.recoverability.delayed_retries) == (2, 0)
    usual = resolve_handler("shop_wrapped:place_order", "Sales").recoverability
    assert (usual.immediate_retries, usual.delayed_retries) == (5, 0)


def test_an_endpoint_is_what_it_is_whatever_the_queue(module):
    module(
        "shop_endpoint",
        "from rowpost import Endpoint\nsales = Endpoint('Sales')\ndef place(message, connection): ...\n",
    )

    assert resolve_handler("shop_endpoint:sales", "Other") is resolve_endpoint("shop_endpoint:sales")
    with pytest.raises(SettingsError, match=r"below queues\.Sales\.worker would be ignored"):
        resolve_handler("shop_endpoint:sales", "Sales", retries=FunctionRetries(3))
    with pytest.raises(HandlerNotFound, match="cannot be run: it is a function, not an Endpoint"):
        resolve_endpoint("shop_endpoint:place")
    with pytest.raises(HandlerNotFound, match="is an Endpoint"):
        resolve_function("shop_endpoint:sales", TAKES)


def test_dots_after_the_colon_reach_into_a_class(module):
    module("shop_two", "class Orders:\n    @staticmethod\n    def place(message, connection):\n        return 42\n")

    assert resolve_function("shop_two:Orders.place", TAKES)(None, None) == 42


@pytest.mark.parametrize("text", ["", "shop", "shop:", ":place", "shop.place"])
def test_a_text_of_another_form_is_refused(text):
    with pytest.raises(HandlerNotFound, match="module:function"):
        resolve_function(text, TAKES)


def test_a_missing_module_is_named():
    with pytest.raises(HandlerNotFound, match="'no_such_shop'"):
        resolve_function("no_such_shop:place", TAKES)


def test_a_missing_package_of_a_dotted_module_is_named():
    with pytest.raises(HandlerNotFound, match="no module 'no_such_shop'"):
        resolve_function("no_such_shop.handlers:place", TAKES)


def test_a_module_that_imports_something_missing_names_that(module):
    module("shop_three", "import no_such_library\n")

    with pytest.raises(HandlerNotFound, match="imports 'no_such_library'"):
        resolve_function("shop_three:place", TAKES)


def test_a_module_that_fails_while_imported_says_how(module):
    module("shop_four", "raise ValueError('no licence')\n")

    with pytest.raises(HandlerNotFound, match="ValueError: no licence") as caught:
        resolve_function("shop_four:place", TAKES)
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_module_that_cannot_be_imported_is_named_with_file_and_line(module, tmp_path):
    module("shop_syntax", "def place(message, connection):\n    return (1\n")
    module("shop_below", "import os\n\nimport shop_syntax\n")
    module("shop_exits", "import sys\nsys.exit('give me arguments')\n")

    with pytest.raises(HandlerNotFound, match=rf"SyntaxError.*{tmp_path / 'shop_syntax.py'}, line 2: return \(1"):
        resolve_function("shop_syntax:place", TAKES)
    with pytest.raises(HandlerNotFound, match=rf"SyntaxError.*{tmp_path / 'shop_syntax.py'}, line 2"):
        resolve_function("shop_below:place", TAKES)
    with pytest.raises(HandlerNotFound, match=rf"SystemExit: give me arguments.*{tmp_path / 'shop_exits.py'}, line 2"):
        resolve_function("shop_exits:place", TAKES)


def test_a_missing_function_is_named(module):
    module("shop_five", "place_order = print\n")

    with pytest.raises(HandlerNotFound, match="'place_orders'"):
        resolve_function("shop_five:place_orders", TAKES)


def test_a_name_that_cannot_be_called_is_refused(module):
    module("shop_six", "place_order = 'not a function'\n")

    with pytest.raises(HandlerNotFound, match="is a str: it must be a function"):
        resolve_function("shop_six:place_order", TAKES)


UNRUN = """
import functools, asyncio

async def coroutine(message, connection):
    pass

def generator(message, connection):
    yield

async def async_generator(message, connection):
    yield

class Later:
    async def __call__(self, message, connection):
        pass

    async def method(self, message, connection):
        pass

later = Later()
partly = functools.partial(functools.partial(coroutine, None), None)

@functools.wraps(coroutine)
def runs(message, connection):
    return asyncio.run(coroutine(message, connection))
"""


@pytest.mark.parametrize("name", ["coroutine", "generator", "async_generator", "later", "later.method", "partly"])
def test_a_handler_that_calling_does_not_run_is_refused(module, name):
    module("shop_unrun", UNRUN)

    with pytest.raises(HandlerNotFound, match=f"'shop_unrun:{name}' is (async|a generator): calling it runs nothing"):
        resolve_function(f"shop_unrun:{name}", TAKES)


def test_a_plain_function_that_runs_an_async_one_is_accepted(module):
    module("shop_runs", UNRUN)

    assert resolve_function("shop_runs:runs", TAKES)("m", "c") is None


@pytest.mark.parametrize("name", ["generator", "async_generator"])
def test_an_endpoint_and_a_saga_refuse_generators_too(module, name):
    module("shop_refused", UNRUN)
    import shop_refused

    with pytest.raises(SettingsError, match="is a generator"):
        Endpoint("Sales").handles("Shop.Order")(getattr(shop_refused, name))
    with pytest.raises(SettingsError, match="is a generator"):
        handles(dict)(getattr(shop_refused, name))


class Later:
    async def __call__(self, message, context):
        pass


async def later(message, context):
    pass


@pytest.mark.parametrize("function", [later, Later(), Later().__call__, functools.partial(later)])
def test_an_endpoint_accepts_async_handlers_but_not_in_a_distributed_transaction(function):
    assert Endpoint("Sales").handles("Shop.Order")(function) is function
    with pytest.raises(SettingsError, match="in the mode transaction_scope handlers are plain functions"):
        Endpoint("Sales", transaction_mode="transaction_scope").handles("Shop.Order")(function)


SIGNATURES = """
import functools

class Depends:
    pass

def one(message): ...
def three(message, connection, session): ...
def injected(message, connection, session=Depends()): ...
def keyword(message, *, connection): ...
def none(): ...

class Made:
    def __init__(self, message, connection): ...
    def method(self, message, connection): ...
    def short(self, message): ...
    def __call__(self, message): ...

made = Made(None, None)
bound_short = made.short
partly_all = functools.partial(three, 1, 2, 3)

def good(message, connection): ...
def optional(message, connection, retries=3, *, log=print): ...
def anything(*args, **options): ...
bound = made.method
partly = functools.partial(three, session=1)
named = functools.partial(lambda session, message, connection: None, "s")

@functools.wraps(three)
def wrapper(message, connection):
    three(message, connection, 1)
"""
WRONG = ["one", "three", "injected", "keyword", "none", "Made", "Made.method", "made", "bound_short", "partly_all"]
RIGHT = ["good", "optional", "anything", "bound", "partly", "named", "wrapper"]


@pytest.mark.parametrize("name", WRONG)
def test_a_handler_that_cannot_be_called_with_a_message_is_refused_with_the_form_that_can(module, name):
    module("shop_signatures", SIGNATURES)
    import shop_signatures

    with pytest.raises(HandlerNotFound, match=rf"'shop_signatures:{name}' .*(\(message, connection\)|Use a function)"):
        resolve_function(f"shop_signatures:{name}", TAKES)
    with pytest.raises(SettingsError, match=r"of Sales .*(\(message, context\)|Use a function)"):
        Endpoint("Sales").handles("Shop.Order")(reduce(getattr, name.split("."), shop_signatures))


@pytest.mark.parametrize("name", RIGHT)
def test_a_handler_that_can_be_called_with_a_message_is_taken(module, name):
    module("shop_signatures", SIGNATURES)

    handler = resolve_function(f"shop_signatures:{name}", TAKES)

    assert handler("m", "c") is None
    assert Endpoint("Sales").handles("Shop.Order")(handler) is handler


def test_a_builtin_function_without_a_description_of_its_arguments_is_taken():
    assert resolve_function("builtins:print", TAKES) is print


def test_the_other_functions_of_an_endpoint_and_of_a_saga_are_checked_as_well():
    def wrong(*, message): ...

    with pytest.raises(SettingsError, match=r"recoverability policy of Sales .*wrong\(failure\)"):
        Endpoint("Sales", recoverability=Recoverability(policy=wrong))
    with pytest.raises(SettingsError, match=r"not_audited of Sales .*wrong\(headers\)"):
        Endpoint("Sales", audit_queue="audit", not_audited=wrong)
    with pytest.raises(SettingsError, match=r"check 'Disk' of Sales .*wrong\(\)"):
        Endpoint("Sales").check("Disk")(wrong)
    with pytest.raises(SettingsError, match=r"\(self, message, context\)"):
        handles(dict)(wrong)
    with pytest.raises(SettingsError, match=r"Policy.not_found .*\(message, context\)"):

        class Policy(Saga[State], correlate={Placed: "id"}):
            @starts(Placed)
            def placed(self, message, context): ...

            def not_found(self, message, context): ...

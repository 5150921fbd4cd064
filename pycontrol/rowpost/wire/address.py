"""Addresses of queues: table@[schema]@[catalog], and what follows from them.

In the canonical form, the table part is never bracketed and holds no `@`; schema and
catalog stand in brackets, with `]` doubled; the default schema and this database may be left out.
"""

import hashlib
import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache

from rowpost.errors import InvalidQueueName

__all__ = [
    "DEFAULT_SCHEMA",
    "IDENTIFIER_LIMIT",
    "SUBSCRIPTION_TABLE",
    "TEMPLATE_NAME_LIMIT",
    "Address",
    "Naming",
    "endpoint_name",
    "parse_address",
    "queue_key",
]

DEFAULT_SCHEMA = {"sqlserver": "dbo", "postgresql": "public"}
#: the table of subscriptions, in the default schema of whoever uses it
SUBSCRIPTION_TABLE = "SubscriptionRouting"
#: characters on SQL Server, bytes of UTF-8 on PostgreSQL
IDENTIFIER_LIMIT = {"sqlserver": 128, "postgresql": 63}
#: characters of a whole address, which the registry keeps
ADDRESS_LIMIT = 400
#: Characters of the longest template's name. A contract with a longer name is refused. It is a constant, because
#: another value would change the keys of queues with long names that are deployed already.
TEMPLATE_NAME_LIMIT = 20
#: Characters of a key, which stands behind the name of a template and a colon. On SQL Server, HAS_PERMS_BY_NAME takes
#: 128 characters at most of this text, in which a bracket of the key is doubled.
_KEY_LIMIT = {
    "sqlserver": IDENTIFIER_LIMIT["sqlserver"] - len("rowpost.[receive_messages:]"),
    "postgresql": IDENTIFIER_LIMIT["postgresql"] - TEMPLATE_NAME_LIMIT - len(":"),
}
_HASH_LENGTH = 12
_SHOWN = 80  # characters of a name in a message
#: delimits the bodies of PL/pgSQL functions
_DOLLAR_QUOTE = "$rowpost$"


@dataclass(frozen=True, slots=True)
class Address:
    """A queue's place. `schema` and `catalog` are None for the default schema and the connection's database.

    >>> parse_address("Sales@[my]]schema]@[nsb]")
    Address(table='Sales', schema='my]schema', catalog='nsb')
    >>> Address("Sales", "my]schema", "nsb").format()
    'Sales@[my]]schema]@[nsb]'
    """

    table: str
    schema: str | None = None
    catalog: str | None = None

    def format(self) -> str:
        """Return the canonical text.

        Parsed again, it is the same address, but for a table with an @ in another catalog, which no form can name.
        """
        if self.catalog is None and ("@" in self.table or (self.schema is None and _POSTGRESQL.fullmatch(self.table))):
            return ".".join(_quote(part) for part in (self.schema, self.table) if part is not None)
        text = self.table
        if self.schema is not None or self.catalog is not None:
            text += "@" + _bracket(self.schema or "")
        if self.catalog is not None:
            text += "@" + _bracket(self.catalog)
        return text

    def short(self, engine: str) -> "Address":
        """Return the same address without a schema that is the engine's default."""
        if self.catalog is None and self.schema == DEFAULT_SCHEMA[engine]:
            return Address(self.table)
        return self

    def qualified(self, engine: str) -> "Address":
        """Return the same address with its schema named, checked against the engine's limits.

        Raises:
            InvalidQueueName: a part is empty, too long for the engine, or has a control character; the whole is too
                long.
        """
        address = Address(self.table, self.schema or DEFAULT_SCHEMA[engine], self.catalog)
        for part, value in (("name", address.table), ("schema", address.schema), ("catalog", address.catalog)):
            if value is not None:
                _check(engine, part, value)
        if _length(address.format(), engine) > ADDRESS_LIMIT:
            raise InvalidQueueName(
                f"The address {_shown(address.format())!r} has more than {ADDRESS_LIMIT} characters."
            )
        if address.catalog is not None and engine == "postgresql":
            raise InvalidQueueName(
                f"The queue {self.format()!r} names the catalog {address.catalog!r}: PostgreSQL cannot reach into "
                "another database. Leave the catalog out."
            )
        return address


def _bracket(name: str) -> str:
    return "[" + name.replace("]", "]]") + "]"


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _check(engine: str, part: str, value: str) -> None:
    length, unit = (_utf8_length(value), "bytes") if engine == "postgresql" else (_utf16_length(value), "characters")
    limit = IDENTIFIER_LIMIT[engine]
    problem = None
    if not value:
        problem = "is empty"
    elif length > limit:
        problem = f"has {length} {unit}, and {limit} is the most this engine keeps apart"
    elif any(unicodedata.category(c) in ("Cc", "Cs") for c in value):
        problem = "holds a control character"
    elif _DOLLAR_QUOTE in value:
        problem = f"holds {_DOLLAR_QUOTE}, which delimits rowpost's functions"
    elif value != value.strip():
        problem = "starts or ends with a space"
    if problem:
        raise InvalidQueueName(f"The {part} of the queue {_shown(value)!r} {problem}. Choose another one.")


def _shown(value: str) -> str:
    return value if len(value) <= _SHOWN else value[: _SHOWN - 3] + "..."


def _utf8_length(value: str) -> int:
    return len(value.encode("utf-8", "surrogatepass"))


def _utf16_length(value: str) -> int:
    return len(value.encode("utf-16-le", "surrogatepass")) // 2


_POSTGRESQL = re.compile(r'(?:"((?:[^"]|"")+)"\.)?"((?:[^"]|"")+)"')
_BRACKETED = re.compile(r"\[((?:[^\]]|\]\])*(?=\](?:@|\Z))|[^@]*(?=\]\Z))\]")  # at the end, a ] may stand alone


def _part(text: str, position: int, whole: str) -> tuple[str, int]:
    """Read one schema or catalog at `position`: bracketed, or plain up to the next `@`."""
    if text.startswith("[", position):
        match = _BRACKETED.match(text, position)
        if match is None:
            raise InvalidQueueName(
                f"The address {whole!r} opens a bracket that is not closed before an @ or at its end. Write ] as ]]."
            )
        return match[1].replace("]]", "]"), match.end()
    end = text.find("@", position)
    end = len(text) if end < 0 else end
    return text[position:end], end


@lru_cache(maxsize=4096)
def parse_address(text: str) -> Address:
    """Read table, table@schema or table@schema@catalog, with or without brackets.

    The PostgreSQL transport's `"schema"."table"` is read as well.

    Raises:
        InvalidQueueName: empty, an unclosed bracket, or more than three parts.
    """
    quoted = _POSTGRESQL.fullmatch(text)
    if quoted is not None:
        schema, table = (part and part.replace('""', '"') for part in quoted.groups())
        return Address(table, schema)
    table, at, rest = text.partition("@")
    if not table:
        raise InvalidQueueName(f"The address {text!r} has no table name before its first @.")
    if not at:
        return Address(table)
    schema, position = _part(rest, 0, text)
    catalog = None
    if position < len(rest):
        catalog, position = _part(rest, position + 1, text)
        if position < len(rest):
            raise InvalidQueueName(f"The address {text!r} has more parts than table@[schema]@[catalog].")
    return Address(table, schema or None, catalog or None)


def endpoint_name(queue: str) -> str:
    """Return the name of an endpoint by that of its queue: without schema and catalog; as it is if it cannot be read.

    >>> endpoint_name("Billing@[receiver]"), endpoint_name("Shop.Web")
    ('Billing', 'Shop.Web')
    """
    try:
        return parse_address(queue).table
    except InvalidQueueName:
        return queue


@dataclass(frozen=True, slots=True)
class Naming:
    """Where a name without a schema leads: into the default schema of an environment.

    The schema of a login never decides.

    Attributes:
        engine: postgresql or sqlserver.
        schema: the environment's default schema; None for the engine's own.

    >>> Naming("postgresql", "nsb").canonical("Sales"), Naming("postgresql", "nsb").canonical("Sales@[public]")
    ('Sales@[nsb]', 'Sales')
    """

    engine: str
    schema: str | None = None

    def canonical(self, text: str) -> str:
        """Return a name as the registry has it: with its schema, unless that is the engine's own default.

        Raises InvalidQueueName.
        """
        address = parse_address(text)
        return (
            Address(address.table, address.schema or self.schema, address.catalog)
            .qualified(self.engine)
            .short(self.engine)
            .format()
        )

    def resolve(self, text: str) -> str:
        """Return a name that somebody wrote, with the schema that is meant; as it is if it names one.

        Raises InvalidQueueName.
        """
        if self.schema is None or self.schema == DEFAULT_SCHEMA[self.engine]:
            return text
        address = parse_address(text)
        return text if address.schema is not None else Address(address.table, self.schema, address.catalog).format()

    def explicit(self, canonical: str) -> str:
        """Return a name of the registry in a form that `resolve` leaves as it is."""
        if self.schema is None or self.schema == DEFAULT_SCHEMA[self.engine]:
            return canonical
        return parse_address(canonical).qualified(self.engine).format()


def queue_key(address: Address, engine: str) -> str:
    """Return the name that a queue's procedures bear after their colon: readable, stable, free of collisions.

    A table in the default schema keeps its name. All others, and names that are long or hold a `~`, are cut and bear
    a hash of the whole address behind a `~`, so that no two addresses share a key.

    >>> queue_key(Address("Sales"), "sqlserver")
    'Sales'
    >>> queue_key(Address("Sales", "eu"), "sqlserver")
    'eu.Sales~653604d5d46f'
    """
    full = address.qualified(engine)
    limit = _KEY_LIMIT[engine]
    plain = full.catalog is None and full.schema == DEFAULT_SCHEMA[engine] and "~" not in full.table
    if plain and _key_length(full.table, engine) <= limit:
        return full.table
    digest = hashlib.sha256(full.format().encode()).hexdigest()[:_HASH_LENGTH]
    readable = full.table if full.schema == DEFAULT_SCHEMA[engine] else f"{full.schema}.{full.table}"
    while _key_length(readable, engine) > limit - _HASH_LENGTH - 1:
        readable = readable[:-1]
    return f"{readable}~{digest}"


def _key_length(text: str, engine: str) -> int:
    return _length(text, engine) + (text.count("]") if engine == "sqlserver" else 0)


def _length(text: str, engine: str) -> int:
    return _utf8_length(text) if engine == "postgresql" else _utf16_length(text)

"""A message with a field of every type, as the recorded messages `send-values` and `send-xml-values` have it."""

from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from random import Random
from uuid import UUID

from rowpost.wire.message_types import message_type

__all__ = ["RECORDED", "Colour", "Line", "Values", "generated_values"]


class Colour(Enum):
    RED = 0
    DARK_GREEN = 1


@dataclass
class Line:
    sku: str | None = None
    count: int = 0
    price: Decimal = Decimal(0)


@message_type("Shop.Messages.Values")
@dataclass
class Values:
    """As the recorded message has them."""

    order_id: int
    echo: bool = False
    amount: Decimal | None = None
    at: datetime | None = None
    when: datetime | None = None
    day: date | None = None
    clock: time | None = None
    span: timedelta | None = None
    id: UUID | None = None
    data: bytes | None = None
    ratio: float | None = None
    big: int | None = None
    yes: bool | None = None
    text: str | None = None
    numbers: list[int] | None = None
    map: dict[str, str | None] | None = None
    colour: Colour | None = None
    line: Line | None = None
    lines: list[Line] | None = field(default_factory=list)


RECORDED = Values(
    1, False, Decimal("19.9"), datetime(2026, 11, 22, 10, 0, 0, 123456), datetime(2026, 11, 22, 10, tzinfo=timezone(timedelta(hours=2))),
    date(2026, 11, 22), time(10, 5, 1, 500000), timedelta(days=1, seconds=3601), UUID("01234567-89ab-cdef-0123-456789abcdef"), b"abc",
    1e-7, 4611686018427387904, True, "Ž€🙂\u2028<&>'+\"", [1, 2], {"a b": "c"}, Colour.DARK_GREEN, Line("x", 2, Decimal(3)), [],
)  # fmt: skip


def generated_values(random: Random) -> Values:
    """A message with a value of each type; the edges of its range are likely."""
    whole = lambda bits: random.choice((0, -1, 1, random.getrandbits(bits), -random.getrandbits(bits)))  # noqa: E731
    moment = datetime(
        random.randint(1, 9999),
        random.randint(1, 12),
        random.randint(1, 28),
        random.randint(0, 23),
        0,
        0,
        random.choice((0, 5)),
    )
    offset = timezone(timedelta(minutes=random.randint(-14 * 60, 14 * 60)))
    return Values(
        whole(30), random.random() < 0.5, Decimal(whole(90)).scaleb(-random.randint(0, 28)), moment, moment.replace(year=2026, tzinfo=offset),
        moment.date(), moment.time(), timedelta(microseconds=whole(59)), UUID(int=random.getrandbits(128)), random.randbytes(random.randint(0, 9)),
        random.choice((0.0, random.gauss(0, 1), random.gauss(0, 1) * 10 ** random.randint(-300, 300))), whole(63),
        True, "".join(map(chr, random.choices((*range(256), 0x2028, 0x1F642), k=9))), [whole(31)], {"k": None, "ž": "v"},
        random.choice(list(Colour)), Line("x", whole(31), Decimal(whole(60)).scaleb(-2)), [Line()],
    )  # fmt: skip

"""Read plans of SQL Server: the XML of Microsoft's *Showplan Schema*, as statements with their operators. Pure functions.

`statements` reads a plan. `problems` compares the cached plans of one procedure with a `Rule`. Only operators that read are
judged: the objects below an IndexScan or a TableScan element. What a DELETE maintains is no read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

__all__ = ["Read", "Rule", "Statement", "problems", "statements"]

_NS = "{http://schemas.microsoft.com/sqlserver/2004/07/showplan}"
_LOOKUPS = ("RID Lookup", "Key Lookup")


@dataclass(frozen=True)
class Read:
    """How an operator reads a table: `operator` is its physical name, `seeks` whether it has a seek predicate."""

    operator: str
    table: str
    index: str
    seeks: bool
    lookup: bool = False

    def __str__(self) -> str:
        return f"{self.operator} of {self.table}{f'.{self.index}' if self.index else ''}"


@dataclass(frozen=True)
class Statement:
    """One statement of a plan. `reads` are in the order of the plan: the outer input of a join comes first."""

    text: str
    operators: tuple[str, ...]
    reads: tuple[Read, ...]
    conversions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rule:
    """What the plans of a procedure must be like.

    Attributes:
        seeks: (table, index) pairs; each must be read by a seek, and the tables by nothing else. An empty index is any index.
        only: a text of the statement that is judged; empty for all statements that read one of the tables.
        sort: whether a Sort is allowed.
        may_sort: a text of the statement that may sort although others of the procedure may not; empty for none.
        first: the table that the statement must read first; empty for any.
    """

    seeks: tuple[tuple[str, str], ...]
    only: str = ""
    sort: bool = False
    may_sort: str = ""
    first: str = ""


def statements(plan: str) -> tuple[Statement, ...]:
    """Return the statements of a plan, without those that have no query plan (SET, THROW, DECLARE). Raises ValueError: no showplan."""
    try:
        root = ElementTree.fromstring(plan)  # noqa: S314 -- the server's own document
    except ElementTree.ParseError as error:
        raise ValueError(f"not XML: {error}") from error
    if root.tag != f"{_NS}ShowPlanXML":
        raise ValueError(f"no showplan: its root is {root.tag}")
    found = (each for each in root.iter() if each.tag in (f"{_NS}StmtSimple", f"{_NS}StmtCond", f"{_NS}StmtCursor"))
    return tuple(statement for each in found for statement in _statement(each))


def _statement(element: ElementTree.Element) -> Iterator[Statement]:
    plans = element.findall(f"{_NS}QueryPlan") + element.findall(f"{_NS}Condition/{_NS}QueryPlan")
    operators = [operator for plan in plans for operator in plan.iter(f"{_NS}RelOp")]
    if operators:
        conversions = tuple(
            each.get("Expression", "")
            for plan in plans
            for each in plan.iter(f"{_NS}PlanAffectingConvert")
            if each.get("ConvertIssue") == "Seek Plan"
        )
        yield Statement(
            element.get("StatementText", ""),
            tuple(operator.get("PhysicalOp", "") for operator in operators),
            tuple(read for operator in operators for read in _reads(operator)),
            conversions,
        )


def _reads(operator: ElementTree.Element) -> Iterator[Read]:
    physical = operator.get("PhysicalOp", "")
    for kind in ("IndexScan", "TableScan"):
        for access in operator.findall(f"{_NS}{kind}"):
            seeks = access.find(f"{_NS}SeekPredicates") is not None and "Seek" in physical
            lookup = physical in _LOOKUPS or access.get("Lookup") in ("1", "true")
            for each in access.findall(f"{_NS}Object"):
                yield Read(physical, _name(each.get("Table")), _name(each.get("Index")), seeks, lookup)


def _name(quoted: str | None) -> str:
    return quoted[1:-1].replace("]]", "]") if quoted else ""


def problems(rule: Rule, plans: Sequence[str]) -> list[str]:
    """Return what is wrong with the cached plans of one procedure; an empty list: nothing."""
    if not plans:
        return ["no plan is in the cache"]
    found = [f"{len(plans)} plans are in the cache instead of one"] if len(plans) > 1 else []
    for plan in plans:
        judged = [each for each in statements(plan) if _concerns(rule, each)]
        found += [problem for each in judged for problem in _of_statement(rule, each)]
        reads = [read for each in judged for read in each.reads]
        for table, index in rule.seeks:
            if not any(read.seeks and read.table == table and index in ("", read.index) for read in reads):
                found.append(f"no seek of {table}{f'.{index}' if index else ''}")
    return list(dict.fromkeys(found))


def _concerns(rule: Rule, statement: Statement) -> bool:
    tables = {table for table, _ in rule.seeks}
    return rule.only in statement.text and any(read.table in tables for read in statement.reads)


def _of_statement(rule: Rule, statement: Statement) -> Iterator[str]:
    tables = {table for table, _ in rule.seeks}
    for read in statement.reads:
        intended = read.lookup or (read.seeks and {(read.table, read.index), (read.table, "")} & set(rule.seeks))
        if read.table in tables and not intended:
            yield str(read)
    allowed = rule.sort or (rule.may_sort and rule.may_sort in statement.text)
    if not allowed and "Sort" in statement.operators:
        yield "a Sort"
    if "Parallelism" in statement.operators:
        yield "a parallel plan"
    if rule.first and statement.reads[0].table != rule.first:
        yield f"reads {statement.reads[0].table} first and not {rule.first}"
    yield from (f"a conversion that may prevent a seek: {each}" for each in statement.conversions)

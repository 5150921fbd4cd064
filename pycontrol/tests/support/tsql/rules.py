"""What SQL Server refuses, or does badly, although the parser and the schema compiler take it: one class a rule.

A rule is excused in the file concerned by a comment `-- rule NAME: reason`. An excuse that excuses nothing is a finding.
The bodies of sql/tests run alone, on tables of a few rows: the rules about other sessions and about many rows
(`in_tests` is False) do not apply there.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from tests.support.tsql.schema import Table, column_name, read_table, read_tables, table_name
from tests.support.tsql.tree import Node, kind, walk

__all__ = ["MOST_ROWS", "RULES", "Batch", "Rule", "check_rules"]

#: locks escalate at 5,000 on one table, and an index has locks of its own
MOST_ROWS = 4000
#: the name that the templates are rendered for
SAMPLE = "Sample"
EXCUSE = re.compile(r"-- rule (\w+):[ ]*(.*)")
Wrong = Iterator[tuple[Node, str]]


@dataclass
class Batch:
    """One batch of a file, and the tables of its set."""

    path: str
    line: int
    text: str
    tree: Node
    tables: dict[str, Table] = field(default_factory=dict)

    def all(self, *kinds: str) -> Iterator[Node]:
        """The nodes of some classes."""
        return (node for node in walk(self.tree) if kind(node) in kinds)


class Rule:
    """A rule: its name in excuses, its reason, and the public document that says so (title, section)."""

    name: ClassVar[str]
    reason: ClassVar[str]
    document: ClassVar[str]
    in_tests: ClassVar[bool] = True

    def check(self, batch: Batch) -> Wrong:
        """What breaks the rule."""
        raise NotImplementedError


class LiteralOption(Rule):
    name = "literal_option"
    reason = "the server's grammar takes a literal here; Microsoft's parser also takes a variable"
    document = "SET LOCK_TIMEOUT (Transact-SQL), Syntax"

    def check(self, batch: Batch) -> Wrong:
        for node in batch.all("GeneralSetCommand"):
            if kind(node.Parameter) == "VariableReference" and node.CommandType == "LockTimeout":
                yield node, f"{node.Parameter.Name} stands where SET takes a literal"


class BigintLiteral(Rule):
    name = "bigint_literal"
    reason = "a whole number outside int is numeric: a comparison converts, and an index is read without its order"
    document = "int, bigint, smallint, and tinyint (Transact-SQL), Converting integer data; Data type precedence (Transact-SQL)"

    def check(self, batch: Batch) -> Wrong:
        for node in batch.all(
            "BooleanComparisonExpression", "BooleanTernaryExpression", "AssignmentSetClause", "InPredicate"
        ):
            sides = [
                node.FirstExpression,
                node.SecondExpression,
                node.ThirdExpression,
                node.Expression,
                *(node.Values or []),
            ]
            sides += [node.Column, node.NewValue]
            names = {column_name(side) for side in sides}
            if any(_big(side) for side in sides) and any(
                table.types.get(n) == "bigint" for n in names for table in batch.tables.values()
            ):
                yield node, "a literal outside int meets a bigint column: use a variable of type bigint"


def _big(node: Node | None) -> bool:
    if kind(node) in ("UnaryExpression", "ParenthesisExpression") and node is not None:
        return _big(node.Expression)
    if kind(node) == "CoalesceExpression" and node is not None:
        return any(_big(each) for each in node.Expressions)
    literal = kind(node) in ("IntegerLiteral", "NumericLiteral") and node is not None
    return literal and node is not None and node.Value.isdigit() and int(node.Value) > 2**31 - 1


@dataclass
class Change:
    """A DELETE or UPDATE with what bounds its rows, seen through the CTE that it changes."""

    node: Node
    table: str
    tops: list[Node]
    wheres: list[Node]


def _changes(batch: Batch) -> Iterator[Change]:
    for statement in batch.all("DeleteStatement", "UpdateStatement"):
        node = statement.DeleteSpecification or statement.UpdateSpecification
        if kind(node.Target) != "NamedTableReference":
            continue  # a table variable
        ctes = statement.WithCtesAndXmlNamespaces
        queries = {
            c.ExpressionName.Value.lower(): c.QueryExpression for c in (ctes.CommonTableExpressions if ctes else [])
        }
        specifications = [node]
        target = node.Target.SchemaObject
        query = queries.get(target.Identifiers[-1].Value.lower())
        if query is not None:
            specifications.append(query)
        sources = [reference for each in specifications for reference in _sources(each)]
        named = [reference for reference in sources if _alias(reference) == target.Identifiers[-1].Value.lower()]
        real = named or ([r for r in sources if query is not None] or [node.Target])
        table = table_name(real[0].SchemaObject) if kind(real[0]) == "NamedTableReference" else "@"
        if not table.startswith("@") and "#" not in table:
            yield Change(
                node,
                table,
                [s.TopRowFilter.Expression for s in specifications if s.TopRowFilter],
                [s.WhereClause.SearchCondition for s in specifications if s.WhereClause],
            )


def _sources(query: Node) -> list[Node]:
    """The tables of a FROM clause, those of subqueries left out."""
    waiting = list(query.FromClause.TableReferences) if query.FromClause else []
    found = []
    while waiting:
        node = waiting.pop(0)
        if node.FirstTableReference is not None:
            waiting = [node.FirstTableReference, node.SecondTableReference, *waiting]
        else:
            found.append(node)
    return found


def _alias(reference: Node) -> str:
    named = reference.Alias or (reference.SchemaObject and reference.SchemaObject.Identifiers[-1])
    return named.Value.lower() if named else ""


def _conditions(node: Node | None) -> Iterator[Node]:
    """The parts of a condition that must all be true."""
    if kind(node) == "BooleanBinaryExpression" and node is not None and node.BinaryExpressionType == "And":
        yield from _conditions(node.FirstExpression)
        yield from _conditions(node.SecondExpression)
    elif kind(node) == "BooleanParenthesisExpression" and node is not None:
        yield from _conditions(node.Expression)
    elif node is not None:
        yield node


def _fixed(wheres: Iterable[Node]) -> set[str]:
    """The columns that a condition compares with one value."""
    found = set()
    for each in (c for where in wheres for c in _conditions(where)):
        if kind(each) == "BooleanComparisonExpression" and each.ComparisonType == "Equals":
            for one, other in (
                (each.FirstExpression, each.SecondExpression),
                (each.SecondExpression, each.FirstExpression),
            ):
                if column_name(one) and not any(column_name(node) for node in walk(other)):
                    found.add(column_name(one))
    return found


class BoundedChange(Rule):
    name = "bounded_change"
    reason = (
        f"a statement that locks 5,000 rows locks the table, which READPAST does not skip: at most {MOST_ROWS} rows"
    )
    document = "Transaction locking and row versioning guide, Lock escalation"
    in_tests = False

    def check(self, batch: Batch) -> Wrong:
        for change in _changes(batch):
            fixed = _fixed(change.wheres)
            table = batch.tables.get(change.table)
            unique = table is not None and table.is_unique(fixed)
            if not unique and not any(self._bounded(batch, top) for top in change.tops):
                yield change.node, f"nothing keeps this change of {change.table} below {MOST_ROWS} rows"

    def _bounded(self, batch: Batch, top: Node) -> bool:
        top = top.Expression if kind(top) == "ParenthesisExpression" else top
        if kind(top) == "IntegerLiteral":
            return int(top.Value) <= MOST_ROWS
        for node in batch.all("BooleanTernaryExpression"):
            if node.TernaryExpressionType == "NotBetween" and node.FirstExpression.Name == top.Name and top.Name:
                return kind(node.ThirdExpression) == "IntegerLiteral" and int(node.ThirdExpression.Value) <= MOST_ROWS
        for node in batch.all("DeclareVariableElement"):
            if node.VariableName.Value == top.Name and kind(node.Value) == "IntegerLiteral":
                return int(node.Value.Value) <= MOST_ROWS
        return False


class OrderedTop(Rule):
    name = "ordered_top"
    reason = (
        "without an index of this order, TOP reads and sorts every row that qualifies; a heap's index ends with its key"
    )
    document = "SQL Server and Azure SQL index architecture and design guide, Nonclustered index architecture"
    in_tests = False

    def check(self, batch: Batch) -> Wrong:
        for query in batch.all("QuerySpecification"):
            if query.TopRowFilter is None or query.OrderByClause is None:
                continue
            elements = query.OrderByClause.OrderByElements
            keys = tuple(column_name(element.Expression) for element in elements)
            tables = {
                _alias(r): batch.tables.get(table_name(r.SchemaObject))
                for r in _sources(query)
                if kind(r) == "NamedTableReference"
            }
            parts = elements[0].Expression.MultiPartIdentifier
            owner = (
                parts.Identifiers[0].Value.lower() if parts and len(parts.Identifiers) > 1 else next(iter(tables), "")
            )
            table = tables.get(owner)
            if table is not None and not self._given(table, keys, {e.SortOrder for e in elements}, query.WhereClause):
                yield query, f"no index gives the order of {', '.join(keys)}"

    def _given(self, table: Table, keys: tuple[str, ...], orders: set[str], where: Node | None) -> bool:
        fixed = _fixed([where.SearchCondition] if where else [])
        used = {column_name(node) for node in walk(where)} if where else set()
        mixed = "Descending" in orders and len(orders) > 1
        for index in table.orders():
            rest = tuple(key for key in index.keys if key not in fixed)
            wanted = tuple(key for key in keys if key not in fixed)
            if rest[: len(wanted)] == wanted and not mixed and (not index.filtered or index.keys[0] in used):
                return True
        return False


class ReadpastLevel(Rule):
    name = "readpast_level"
    reason = "READPAST raises an error under SERIALIZABLE, and under SNAPSHOT without a hint that takes locks"
    document = "Table hints (Transact-SQL), READPAST"
    in_tests = False

    def check(self, batch: Batch) -> Wrong:
        if any(node.Level == "ReadCommitted" for node in batch.all("SetTransactionIsolationLevelStatement")):
            return
        for node in batch.all("NamedTableReference"):
            hints = {hint.HintKind for hint in node.TableHints}
            if "ReadPast" in hints and "ReadCommittedLock" not in hints:
                yield (
                    node,
                    "READPAST without READCOMMITTEDLOCK, and without SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
                )


class CatalogCollation(Rule):
    name = "catalog_collation"
    reason = "the catalog's names may have another collation than the database: the two do not compare or concatenate"
    document = "Contained database collations, Contained databases; CREATE DATABASE (Transact-SQL), CATALOG_COLLATION"
    TEXTS: ClassVar[set[str]] = {"name", "type_desc", "definition", "program_name", "collation_name"}
    #: functions whose result has the collation of their arguments
    KEEP: ClassVar[set[str]] = {"QUOTENAME", "SUBSTRING", "REPLACE", "LOWER", "UPPER", "LTRIM", "RTRIM", "ISNULL"}

    def check(self, batch: Batch) -> Wrong:
        aliases = {_alias(r): r for r in batch.all("NamedTableReference")}
        for node in batch.all("BooleanComparisonExpression", "FunctionCall", "BinaryExpression", "InPredicate"):
            if kind(node) == "FunctionCall":
                parts = node.Parameters if node.FunctionName.Value.upper() == "CONCAT" else []
            else:
                parts = [node.FirstExpression, node.SecondExpression, node.Expression, *(node.Values or [])]
                if node.Subquery is not None and kind(node.Subquery.QueryExpression) == "QuerySpecification":
                    parts += [e.Expression for e in node.Subquery.QueryExpression.SelectElements]
            columns = [column for part in parts for column in self._columns(part)]
            catalog = [c for c in columns if self._of_catalog(c, aliases) and column_name(c) in self.TEXTS]
            if catalog and any(not self._of_catalog(c, aliases) for c in columns):
                yield (
                    node,
                    f"{column_name(catalog[0])} of the catalog meets the database's text without COLLATE DATABASE_DEFAULT",
                )

    def _columns(self, part: Node | None) -> Iterator[Node]:
        """The columns whose collation an expression has, those with a COLLATE left out."""
        if part is None or part.Collation is not None:
            return
        if column_name(part):
            yield part
        elif kind(part) in ("LeftFunctionCall", "RightFunctionCall") or (
            kind(part) == "FunctionCall" and part.FunctionName.Value.upper() in self.KEEP
        ):
            yield from self._columns(part.Parameters[0])

    def _of_catalog(self, column: Node, aliases: dict[str, Node]) -> bool:
        source = aliases.get(column.MultiPartIdentifier.Identifiers[0].Value.lower())
        return source is not None and table_name(source.SchemaObject).startswith(("sys.", "sys~."))


class ThrowPercent(Rule):
    name = "throw_percent"
    reason = "% is reserved in the message of THROW: a name with % garbles it"
    document = "THROW (Transact-SQL), Remarks"

    def check(self, batch: Batch) -> Wrong:
        for node in batch.all("ThrowStatement"):
            if kind(node.Message) == "StringLiteral" and (
                SAMPLE in node.Message.Value or "%" in node.Message.Value.replace("%%", "")
            ):
                yield node, "a name that is rendered into the message, or a single %, is not escaped"
            elif kind(node.Message) == "VariableReference" and self._unescaped(batch, node.Message.Name):
                yield node, f"{node.Message.Name} holds a text whose % is not doubled: REPLACE(…, N'%', N'%%')"

    def _unescaped(self, batch: Batch, name: str) -> bool:
        values = [(n.VariableName and n.VariableName.Value, n.Value) for n in batch.all("DeclareVariableElement")]
        values += [(n.Variable.Name, n.Expression) for n in batch.all("SetVariableStatement", "SelectSetVariable")]
        numbers = {
            n.VariableName.Value
            for n in batch.all("DeclareVariableElement", "ProcedureParameter")
            if n.DataType.Name.Identifiers[-1].Value.lower() in ("bit", "int", "bigint")
        }
        texts = [value for variable, value in values if variable == name and value is not None]
        if any(_escapes(text) and any(n.Name == name for n in walk(text)) for text in texts):
            return False  # escaped as a whole
        return any(each not in numbers for text in texts for each in _unescaped_parts(text))


def _escapes(node: Node) -> bool:
    return (
        kind(node) == "FunctionCall"
        and node.FunctionName.Value.upper() == "REPLACE"
        and [p.Value for p in node.Parameters[1:]] == ["%", "%%"]
    )


def _unescaped_parts(node: Node) -> Iterator[str]:
    if _escapes(node):
        return
    if kind(node) == "VariableReference":
        yield node.Name
    elif column_name(node):
        yield column_name(node)
    elif kind(node) == "StringLiteral" and SAMPLE in node.Value:
        yield node.Value
    for value in node.fields.values():
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, Node) and kind(child) not in ("BooleanComparisonExpression", "MultiPartIdentifier"):
                yield from _unescaped_parts(child)


class OutputInto(Rule):
    name = "output_into"
    reason = "OUTPUT without INTO is refused on a table with an enabled trigger, and an adopted table may have one"
    document = "OUTPUT clause (Transact-SQL), Triggers"
    in_tests = False

    def check(self, batch: Batch) -> Wrong:
        for node in batch.all("DeleteSpecification", "UpdateSpecification", "InsertSpecification"):
            if node.OutputClause is not None and kind(node.Target) == "NamedTableReference":
                yield node, "OUTPUT without INTO"


class ThrowOnly(Rule):
    name = "throw_only"
    reason = "RAISERROR does not honour XACT_ABORT, and PRINT reaches no caller as a result"
    document = "RAISERROR (Transact-SQL); PRINT (Transact-SQL)"

    def check(self, batch: Batch) -> Wrong:
        for node in batch.all("RaiseErrorStatement", "PrintStatement"):
            yield node, f"{kind(node).removesuffix('Statement')} instead of THROW or a result"


class SetOptions(Rule):
    name = "set_options"
    reason = "sqlcmd and SQL Server Agent start with QUOTED_IDENTIFIER OFF, which a filtered index refuses"
    document = "SET QUOTED_IDENTIFIER (Transact-SQL), Remarks; CREATE INDEX (Transact-SQL), Required SET options for filtered indexes"
    NEEDED: ClassVar[set[str]] = {"AnsiNulls", "QuotedIdentifier"}

    def check(self, batch: Batch) -> Wrong:
        statements = [s for b in batch.tree.Batches for s in b.Statements]
        if batch.line == 1 and statements and ("deploy/operations" in batch.path or "procedures/" in batch.path):
            on = {o for s in statements if kind(s) == "PredicateSetStatement" and s.IsOn for o in s.Options.split(", ")}
            if not on >= self.NEEDED or any(kind(s) != "PredicateSetStatement" for s in statements):
                yield statements[0], "the first batch of the file must be SET ANSI_NULLS ON; SET QUOTED_IDENTIFIER ON;"


class AsOwner(Rule):
    name = "as_owner"
    reason = (
        "the owner's login may be unknown, as after a restore (15517), or its domain silent (15404), and dbo has every "
        "right: a user WITHOUT LOGIN is in the database and has the rights that it was granted"
    )
    document = "EXECUTE AS Clause (Transact-SQL), Remarks; CREATE USER (Transact-SQL), WITHOUT LOGIN"

    def check(self, batch: Batch) -> Wrong:
        for node in batch.all("ExecuteAsClause"):
            user = node.Literal.Value if node.Literal else node.ExecuteAsOption
            if user.casefold() in ("owner", "self", "dbo"):
                yield node, f"EXECUTE AS {user}"


class VariantArgument(Rule):
    name = "variant_argument"
    reason = "sql_variant takes no (max) type and no xml: error 206, and the text needs AssertEqualsString"
    document = "sql_variant (Transact-SQL), Restrictions"
    #: the procedures that take sql_variant
    PROCEDURES: ClassVar[set[str]] = {"tsqlt.assertequals", "tsqlt.assertnotequals"}

    def check(self, batch: Batch) -> Wrong:
        large = {
            n.VariableName.Value.lower()
            for n in batch.all("DeclareVariableElement", "ProcedureParameter")
            if kind(n.DataType) == "XmlDataTypeReference"
            or any(kind(size) == "MaxLiteral" for size in n.DataType.Parameters or [])
        }
        for node in batch.all("ExecutableProcedureReference"):
            reference = node.ProcedureReference and node.ProcedureReference.ProcedureReference
            if reference is not None and table_name(reference.Name) in self.PROCEDURES:
                for value in (p.ParameterValue for p in node.Parameters):
                    if kind(value) == "VariableReference" and value.Name.lower() in large:
                        yield node, f"{value.Name} is declared as a (max) type or xml"


class LaterFunction(Rule):
    name = "later_function"
    reason = "SQL Server 2016 is supported and does not have it: error 195, and the batch is not created"
    document = "the function's page (Transact-SQL), Applies to"
    LATER: ClassVar[set[str]] = {
        "STRING_AGG", "CONCAT_WS", "TRANSLATE", "TRIM", "APPROX_COUNT_DISTINCT", "GREATEST", "LEAST", "DATETRUNC",
        "GENERATE_SERIES", "JSON_OBJECT", "JSON_ARRAY", "JSON_PATH_EXISTS", "BIT_COUNT", "DATE_BUCKET",
    }  # fmt: skip

    def check(self, batch: Batch) -> Wrong:
        for node in batch.all("FunctionCall"):
            if node.CallTarget is None and node.FunctionName.Value.upper() in self.LATER:
                yield node, f"{node.FunctionName.Value} came after SQL Server 2016"


class KeyedJoin(Rule):
    name = "keyed_join"
    reason = (
        "if several rows of the other table may match one row, the server sorts or aggregates before it changes that "
        "row once, and takes the rows in another order"
    )
    document = "UPDATE (Transact-SQL), Best practices; Showplan operators reference, Distinct Sort"
    in_tests = False

    def check(self, batch: Batch) -> Wrong:
        variables = {
            f"@{n.Body.VariableName.Value.lstrip('@').lower()}": read_table(n.Body.Definition)
            for n in batch.all("DeclareTableVariableStatement")
        }
        for node in batch.all("DeleteSpecification", "UpdateSpecification"):
            if kind(node.Target) != "NamedTableReference" or len(_sources(node)) < 2:
                continue
            target = node.Target.SchemaObject.Identifiers[-1].Value.lower()
            for source in _sources(node):
                if kind(source) == "VariableTableReference":
                    alias = _alias(source) or source.Variable.Name.lower()
                    table = variables.get(source.Variable.Name.lower())
                elif kind(source) == "NamedTableReference":
                    alias, table = _alias(source), batch.tables.get(table_name(source.SchemaObject))
                else:
                    continue
                fixed = self._equated(node, alias)
                if alias != target and table is not None and not table.is_unique(fixed):
                    yield node, f"no key of {alias} makes its rows unique by {', '.join(sorted(fixed)) or 'nothing'}"

    def _equated(self, node: Node, alias: str) -> set[str]:
        """The columns of a source that a join or the condition compares for equality."""
        waiting, conditions = list(node.FromClause.TableReferences), []
        while waiting:
            each = waiting.pop()
            if each.FirstTableReference is not None:
                waiting += [each.FirstTableReference, each.SecondTableReference]
                conditions.append(each.SearchCondition)
        if node.WhereClause is not None:
            conditions.append(node.WhereClause.SearchCondition)
        equal = [
            c
            for condition in conditions
            for c in _conditions(condition)
            if kind(c) == "BooleanComparisonExpression" and c.ComparisonType == "Equals"
        ]
        sides = [side for c in equal for side in (c.FirstExpression, c.SecondExpression) if column_name(side)]
        return {column_name(s) for s in sides if s.MultiPartIdentifier.Identifiers[0].Value.lower() == alias}


class LockEscalation(Rule):
    name = "lock_escalation"
    reason = (
        f"locks of pages count too: {MOST_ROWS} rows of a page each hold {2 * MOST_ROWS} locks, and 5,000 lock the "
        "table, which others wait for"
    )
    document = (
        "Transaction locking and row versioning guide, Lock escalation; ALTER TABLE (Transact-SQL), LOCK_ESCALATION"
    )
    in_tests = False

    def check(self, batch: Batch) -> Wrong:
        for change in _changes(batch):
            table = batch.tables.get(change.table)
            if table is not None and table.wide and table.escalates and not table.is_unique(_fixed(change.wheres)):
                yield change.node, f"{change.table} has (max) columns and no LOCK_ESCALATION = DISABLE"


class NamedConstraint(Rule):
    name = "named_constraint"
    reason = "the server's own name ends with a number that differs in each database, so that no script can name it"
    document = "CREATE TABLE (Transact-SQL), Arguments, constraint_name"
    in_tests = False

    def check(self, batch: Batch) -> Wrong:
        for statement in batch.all("CreateTableStatement", "AlterTableAddTableElementStatement"):
            for node in walk(statement):
                constraint = (
                    kind(node).endswith("ConstraintDefinition") and kind(node) != "NullableConstraintDefinition"
                )
                if constraint and node.ConstraintIdentifier is None:
                    yield node, f"{kind(node).removesuffix('ConstraintDefinition').lower()} constraint without a name"


RULES: tuple[Rule, ...] = (
    LiteralOption(),
    BigintLiteral(),
    BoundedChange(),
    OrderedTop(),
    ReadpastLevel(),
    CatalogCollation(),
    ThrowPercent(),
    OutputInto(),
    ThrowOnly(),
    SetOptions(),
    AsOwner(),
    VariantArgument(),
    LaterFunction(),
    KeyedJoin(),
    LockEscalation(),
    NamedConstraint(),
)


def check_rules(batches: list[Batch], all_trees: Iterable[Node]) -> Iterator[tuple[str, int, str]]:
    """Yields path, line and message of what breaks a rule, and of excuses that excuse nothing or give no reason."""
    tables = read_tables(all_trees)
    excuses: dict[str, dict[str, tuple[int, str]]] = defaultdict(dict)
    for batch in batches:
        for match in EXCUSE.finditer(batch.text):
            line = batch.line + batch.text.count("\n", 0, match.start())
            excuses[batch.path][match[1]] = line, match[2].strip()
    used = set()
    for batch in batches:
        batch.tables = tables
        for rule in RULES:
            if not rule.in_tests and "tests/" in batch.path:
                continue
            for node, said in rule.check(batch):
                if excuses[batch.path].get(rule.name, (0, ""))[1]:
                    used.add((batch.path, rule.name))
                else:
                    yield batch.path, batch.line + node.StartLine - 1, f"rule {rule.name}: {said} ({rule.reason})"
    for path, excused in excuses.items():
        for name, (line, reason) in excused.items():
            if (path, name) not in used:
                said = "excuses nothing" if reason else "gives no reason"
                yield path, line, f"rule {name}: the exception {said}"

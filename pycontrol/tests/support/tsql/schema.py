"""The tables of a set of batches as rules need them: types of columns, keys of indexes, and which of them are unique."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.support.tsql.tree import Node, kind, walk

__all__ = ["Index", "Table", "column_name", "read_table", "read_tables", "table_name"]


@dataclass(frozen=True)
class Index:
    """Key columns in lower case, in order, with what follows from them."""

    keys: tuple[str, ...]
    unique: bool = False
    filtered: bool = False


@dataclass
class Table:
    """A table. `clustered` is the key of the clustered index that it is created with; empty for a heap.

    A nonclustered index of a heap holds its key and the row identifier, which is in no useful order. On a table with a
    clustered index it holds the clustered key after its own. `wide` says whether a column is of a (max) type, `escalates`
    whether many locks on rows and pages may become one on the table.
    """

    types: dict[str, str] = field(default_factory=dict)
    indexes: list[Index] = field(default_factory=list)
    clustered: tuple[str, ...] = ()
    identity: str = ""
    wide: bool = False
    escalates: bool = True

    def is_unique(self, fixed: set[str]) -> bool:
        """Whether values of these columns determine at most one row."""
        return self.identity in fixed or any(i.unique and set(i.keys) <= fixed for i in self.indexes)

    def orders(self) -> list[Index]:
        """The orders in which its indexes give the rows."""
        return [
            Index((*i.keys, *(k for k in self.clustered if k not in i.keys)), i.unique, i.filtered)
            for i in self.indexes
        ]


def read_tables(trees: Iterable[Node]) -> dict[str, Table]:
    """All tables that CREATE TABLE and CREATE INDEX describe, by schema.name in lower case."""
    tables: dict[str, Table] = {}
    indexes, settings = [], []
    for node in (node for tree in trees for node in walk(tree)):
        if kind(node) == "CreateTableStatement":
            tables[table_name(node.SchemaObjectName)] = read_table(node.Definition)
        elif kind(node) == "CreateIndexStatement":
            indexes.append(node)
        elif kind(node) == "AlterTableSetStatement":
            settings.append(node)
    for node in settings:
        table = tables.get(table_name(node.SchemaObjectName))
        if table is not None and any(option.Value == "Disable" for option in node.Options):
            table.escalates = False
    for node in indexes:
        table = tables.get(table_name(node.OnName))
        if table is not None:
            keys = tuple(column_name(column.Column) for column in node.Columns)
            table.indexes.append(Index(keys, bool(node.Unique), node.FilterPredicate is not None))
    return tables


def read_table(definition: Node) -> Table:
    """The table that a definition describes, of a table or of a table variable."""
    table = Table()
    for column in definition.ColumnDefinitions:
        name = column.ColumnIdentifier.Value.lower()
        if column.DataType is not None and column.DataType.Name is not None:
            table.types[name] = column.DataType.Name.Identifiers[-1].Value.lower()
            table.wide = table.wide or any(kind(size) == "MaxLiteral" for size in column.DataType.Parameters or [])
        if column.IdentityOptions is not None:
            table.identity = name
        for constraint in (c for c in column.Constraints if kind(c) == "UniqueConstraintDefinition"):
            _add_key(table, constraint, (name,))
    for constraint in (c for c in definition.TableConstraints if kind(c) == "UniqueConstraintDefinition"):
        _add_key(table, constraint, tuple(column_name(column.Column) for column in constraint.Columns))
    return table


def _add_key(table: Table, constraint: Node, keys: tuple[str, ...]) -> None:
    table.indexes.append(Index(keys, unique=True))
    if constraint.IsPrimaryKey and constraint.Clustered is not False:
        table.clustered = keys


def table_name(name: Node) -> str:
    """schema.name in lower case; dbo where no schema is named."""
    parts = [part.Value.lower() for part in name.Identifiers]
    return ".".join(parts[-2:]) if len(parts) > 1 else f"dbo.{parts[0]}"


def column_name(column: Node | None) -> str:
    """The last part of a ColumnReferenceExpression in lower case; empty for anything else."""
    if kind(column) != "ColumnReferenceExpression" or column is None or column.MultiPartIdentifier is None:
        return ""
    return str(column.MultiPartIdentifier.Identifiers[-1].Value).lower()

"""From the rows of a chain to one result that every member finds its own rows in.

Rows are offered to every class, with the members of that class that want them; a class that groups
is grouped by its groups and the set. Classes share columns: each puts its own values into them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headway.plan.expressions import Column, Expression, column_reference, conjunction, quote
from headway.plan.nodes import Aggregate, AggregateCall, Expand, Filter, Named, Node, Project
from headway.sharing.chains import Chain, Seat
from headway.sharing.classes import RowClass, classes_of, guarded, typed_null
from headway.sharing.parts import Part, Whole
from headway.sharing.query_sets import both, constant, is_any, word_columns, words

_CLASS = Column("class", "int", False)


@dataclass(frozen=True, slots=True)
class Share:
    """What a member finds in the shared result: which rows, and how its own are made of them."""

    shared_class: int | None
    """None where all rows are of one class."""
    test: Expression
    keys: dict[str, Column]
    """By the text of a group, the column that holds it."""
    parts: dict[Part, Column]
    wholes: tuple[Whole, ...] | None
    outputs: tuple[Expression, ...]
    """The member's groups, or its columns, over columns of the chain."""


class Router:
    """`chain_words` hold the set of a row; `named` writes a member's expression over columns of
    the chain."""

    def __init__(
        self,
        chain: Chain,
        chain_words: tuple[Column, ...],
        named: Callable[[Seat, Expression], Expression],
    ) -> None:
        self._chain = chain
        self._words = chain_words
        self._named = named
        self.classes, self._numbers = classes_of(chain.seats, named, grouped=chain.grouped)
        self._columns = _Columns(len(chain_words))

    def route(self, node: Node) -> Node:
        """The rows of all members, each class in its own."""
        table, several = self._columns, len(self.classes) > 1
        rows = [table.row(self._words, each, n) for n, each in enumerate(self.classes)]
        columns = table.columns(several=several)
        projections = tuple(
            tuple(row.get(c.name) or typed_null(c.type) for c in columns) for row in rows
        )
        if several:
            node = Filter(Expand(node, projections, columns), is_any(table.words))
        else:
            pairs = zip(columns, projections[0], strict=True)
            node = Project(node, tuple(Named(c.name, e) for c, e in pairs))
        return _grouped(node, table) if self._chain.grouped else node

    def share(self, seat: Seat) -> Share:
        """What a member finds in the routed rows."""
        number = self._numbers[seat.number]
        several = len(self.classes) > 1
        tests = [is_any(self._columns.words, words(1 << seat.number, len(self._words)))]
        if several:
            tests.append(Expression(f"({quote(_CLASS.name)} = {number})", "boolean", False))
        test = conjunction(tests)
        assert test is not None
        keys, parts = self._columns.places[number]
        return Share(
            number if several else None,
            test,
            keys,
            parts,
            self.classes[number].wholes.get(seat.number) if self._chain.grouped else None,
            tuple(self._named(seat, o.expression) for o in seat.shape.member.outputs),
        )


class _Columns:
    """Columns that the classes have in common: each class puts its own values into them."""

    def __init__(self, count: int) -> None:
        self.words = word_columns("set", count)
        self._keys: dict[tuple[str, bool], list[Column]] = {}
        self._arguments: dict[tuple[str, bool], list[Column]] = {}
        """By type; apart for those that are summed: a sum may overflow where none was asked for."""
        self.slots: dict[tuple[str, str, str | None], Column] = {}
        self.places: dict[int, tuple[dict[str, Column], dict[Part, Column]]] = {}

    def row(
        self, chain_words: tuple[Column, ...], found: RowClass, number: int
    ) -> dict[str, Expression]:
        """The values of one class, by column."""
        masks = words(found.members, len(self.words))
        row = {_CLASS.name: Expression(str(number), "int", False)}
        for made, word, mask in zip(self.words, chain_words, masks, strict=True):
            row[made.name] = both(column_reference(word), constant(mask))
        keys: dict[str, Column] = {}
        used: dict[tuple[str, bool], int] = {}
        for key in found.keys:
            column = keys[key.text] = _taken(self._keys, "key", key.type, used)
            plain = key.column is not None
            row[column.name] = key if plain else guarded(key, found.members, chain_words)
        arguments = _arguments(found)
        columns: dict[_Argument, Column] = {}
        used = {}
        for asked in dict.fromkeys(arguments.values()):
            argument = asked.expression
            column = _taken(self._arguments, "value", argument.type, used, asked.summed)
            columns[asked] = column
            # A sum of plain values may fail as well, over rows that nobody wants the sum of.
            partly = asked.summed and asked.members != found.members
            plain = argument.column is not None and not partly
            row[column.name] = argument if plain else guarded(argument, asked.members, chain_words)
        parts: dict[Part, Column] = {}
        for part in found.parts:
            source = columns[arguments[part]].name if part in arguments else None
            slot = (part.function, part.type, source)
            if slot not in self.slots:
                self.slots[slot] = Column(f"part_{len(self.slots)}", part.type, True)
            parts[part] = self.slots[slot]
        self.places[number] = (keys, parts)
        return row

    def columns(self, *, several: bool) -> tuple[Column, ...]:
        groups = [c for each in self._keys.values() for c in each]
        values = [c for each in self._arguments.values() for c in each]
        return (*((_CLASS,) if several else ()), *self.words, *groups, *values)

    def groups(self) -> list[Column]:
        return [c for each in self._keys.values() for c in each]


@dataclass(frozen=True, slots=True)
class _Argument:
    """What a class computes parts of, and the members that asked for any of them."""

    expression: Expression
    members: int
    summed: bool


def _arguments(found: RowClass) -> dict[Part, _Argument]:
    """By part what it is computed of: the same column for parts of the same text, unless some
    members do not ask for the sum of it."""
    asking: dict[str, int] = {}
    summing: dict[str, int] = {}
    for part, members in found.parts.items():
        if part.argument is not None:
            text = part.argument.text
            asking[text] = asking.get(text, 0) | members
            summing[text] = summing.get(text, 0) | (members if part.function == "sum" else 0)
    made: dict[Part, _Argument] = {}
    for part in found.parts:
        if part.argument is not None:
            text = part.argument.text
            summed = part.function == "sum" or summing[text] == asking[text]
            members = summing[text] if summed else asking[text]
            made[part] = _Argument(part.argument, members, summed)
    return made


def _taken(
    known: dict[tuple[str, bool], list[Column]],
    name: str,
    ddl: str,
    used: dict[tuple[str, bool], int],
    summed: bool = False,
) -> Column:
    """The next column of the type that the class does not use yet."""
    kind = (ddl, summed)
    of_type = known.setdefault(kind, [])
    number = used.get(kind, 0)
    used[kind] = number + 1
    if number == len(of_type):
        of_type.append(Column(f"{name}_{sum(map(len, known.values()))}", ddl, True))
    return of_type[number]


def _grouped(node: Node, table: _Columns) -> Node:
    by_name = {c.name: c for c in node.schema}
    keys = [c for c in (_CLASS, *table.words, *table.groups()) if c.name in by_name]
    calls = []
    for (function, ddl, source), column in table.slots.items():
        arguments = (
            (Expression("1", "int", False),)
            if source is None
            else (column_reference(by_name[source]),)
        )
        nullable = function != "count"
        calls.append(AggregateCall(Column(column.name, ddl, nullable), function, arguments))
    return Aggregate(
        node,
        tuple(Named(c.name, column_reference(by_name[c.name])) for c in keys),
        tuple(calls),
    )

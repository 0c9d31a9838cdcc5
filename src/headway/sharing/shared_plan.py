"""A chain as a plan: one query whose rows carry the set of the members they belong to.

Every row of the large table is read once. A join keeps a row's bits for the members that it joins
for, and lets those of the others pass: a member's bit survives an inner join with a row that the
member wants, a left or anti join also where there is none, and the join with a table that it does
not need in exactly one of the rows that come out of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from headway.plan.expressions import (
    Column,
    Expression,
    column_reference,
    conjunction,
    quote,
    substitute,
)
from headway.plan.nodes import (
    Filter,
    Join,
    JoinKey,
    JoinKind,
    Named,
    Node,
    Project,
    QueryPlan,
    Scan,
    ScanColumn,
    SortKey,
    Window,
    WindowCall,
)
from headway.plan.sources import Source
from headway.sharing.chains import Chain, Role, Seat, column_name, own_name
from headway.sharing.classes import RowClass, guarded, test_of
from headway.sharing.failing import can_fail
from headway.sharing.grouped_filters import grouped_filter
from headway.sharing.members import MATCHED, field_of, table_of
from headway.sharing.query_sets import (
    both,
    constant,
    either,
    is_any,
    members_of,
    word_columns,
    word_count,
    words,
)
from headway.sharing.routing import Router, Share

IsUnique = Callable[[Source, tuple[str, ...]], bool]
"""Whether no two rows of a table have the same values in these fields."""


@dataclass(frozen=True, slots=True)
class SharedPlan:
    """`plan` puts out the rows of all members; `shares` are by member."""

    plan: QueryPlan
    shares: dict[int, Share]
    classes: tuple[RowClass, ...]
    joined: tuple[Node, ...]
    """The rows after each join of the chain, in order: where the plan can be cut."""


def shared_plan(chain: Chain, is_unique: IsUnique, *, dropping: bool = True) -> SharedPlan:
    """Rows of the large table that no query wants are dropped before the first join, when
    `dropping`; after it in any case."""
    return _Builder(chain, is_unique, dropping=dropping).build()


class _Builder:
    def __init__(self, chain: Chain, is_unique: IsUnique, *, dropping: bool) -> None:
        self._chain = chain
        self._dropping = dropping or not chain.roles
        self._is_unique = is_unique
        self._count = word_count(len(chain.seats))
        self._fields = _fields_of(chain)
        self._put_out = {
            seat.column(name) for seat in chain.seats for e in _above(seat) for name in e.columns
        }
        self._passed = self._put_out | {
            name
            for role in chain.roles
            for key in role.keys
            for name in (*key.left.columns, *self._own(role, key.right).columns)
        }
        """Columns of tables that are read above their own filters."""
        self._words: tuple[Column, ...] = ()
        self._first_asking: dict[tuple[str, str], int] = {}
        """By role and what is asked of its rows, the first member that does: its bit speaks for the
        others, so that members who group by columns of these rows group alike."""
        for seat in chain.seats:
            for table, label in seat.labels.items():
                self._first_asking.setdefault((label, seat.asked[table]), seat.number)

    def build(self) -> SharedPlan:
        chain = self._chain
        waiting = [(seat, c) for seat in chain.seats for c in seat.shape.across]
        node = self._table(chain.root, chain.source, chain.everyone)
        self._words = self._wanted(chain.root)
        labels = {chain.root}
        joined: list[Node] = []
        for number, role in enumerate(chain.roles, 1):
            node = self._joined(node, role, number)
            labels.add(role.label)
            ready = [(s, c) for s, c in waiting if self._labels(s, c) <= labels]
            waiting = [each for each in waiting if each not in ready]
            if ready:
                node = self._tested(node, ready, number)
            joined.append(node)
        return self._routed(node, tuple(joined))

    # Tables.

    def _table(self, label: str, source: Source, queries: int) -> Node:
        """The rows that any of the queries wants, with their set."""
        columns = self._fields[label]
        scan: Node = Scan(source, tuple(ScanColumn(field, c) for field, c in columns.items()))
        conditions = {
            seat.number: [
                seat.named(c)
                for table, name in seat.labels.items()
                if name == label
                for c in seat.shape.own[table]
            ]
            for seat in self._chain.seats
            if (1 << seat.number) & queries
        }
        found = grouped_filter(conditions, columns.values(), queries)
        prefilter = conjunction(found.prefilter)
        if prefilter is not None:
            scan = Filter(scan, prefilter)
        for step in found.steps:
            passed = {c.name: Named(c.name, column_reference(c)) for c in scan.schema}
            scan = Project(scan, tuple({**passed, **{each.name: each for each in step}}.values()))
        made = self._wanted(label)
        values = [*found.words, *(constant(0) for _ in range(self._count - len(found.words)))]
        outputs = [
            Named(c.name, column_reference(c)) for c in columns.values() if c.name in self._passed
        ]
        outputs += [Named(c.name, value) for c, value in zip(made, values, strict=True)]
        rows = Project(scan, tuple(outputs))
        if label == self._chain.root and not self._dropping:
            return rows
        return Filter(rows, is_any(made))

    def _wanted(self, label: str) -> tuple[Column, ...]:
        """The words that say which queries want a row of a table."""
        return word_columns(own_name("wanted", label), self._count)

    # Joins.

    def _joined(self, node: Node, role: Role, number: int) -> Node:
        kinds = role.kinds()
        asking = sum(kinds.values())
        passing = self._chain.everyone & ~asking
        keys = tuple(
            JoinKey(self._asked(key.left, asking), self._own(role, key.right), key.null_safe)
            for key in role.keys
        )
        table = self._table(role.label, role.source, asking)
        beside: list[Expression]
        if not passing and set(kinds) == {JoinKind.INNER}:
            join = Join(node, table, JoinKind.INNER, keys)
            beside = [column_reference(c) for c in self._wanted(role.label)]
        else:
            table, own = self._passable(table, role, keys, kinds, passing)
            join = Join(node, table, JoinKind.LEFT, keys)
            absent = passing | kinds.get(JoinKind.LEFT, 0) | kinds.get(JoinKind.ANTI, 0)
            beside = [
                Expression(f"coalesce({quote(column.name)}, {word}L)", "bigint", False)
                for column, word in zip(own, words(absent, self._count), strict=True)
            ]
        made = word_columns(f"queries_{number}", self._count)
        pairs = zip(self._words, beside, strict=True)
        values = [both(column_reference(before), each) for before, each in pairs]
        kept = [c for c in join.schema if c.name in self._needed_after(number)]
        return self._with_words(join, kept, made, values)

    def _with_words(
        self, node: Node, kept: Iterable[Column], made: tuple[Column, ...], values: list[Expression]
    ) -> Node:
        """The rows that are still of interest to any query, under new words."""
        outputs = [Named(c.name, column_reference(c)) for c in kept]
        outputs += [Named(c.name, value) for c, value in zip(made, values, strict=True)]
        self._words = made
        return Filter(Project(node, tuple(outputs)), is_any(made))

    def _asked(self, key: Expression, asking: int) -> Expression:
        """A key as rows of the chain have it. Where it is empty because nobody asks, what a row
        finds is of no matter: it keeps the bits of those who pass, once, whatever its key is."""
        return guarded(key, asking, self._words) if can_fail(key) else key

    def _own(self, role: Role, expression: Expression) -> Expression:
        return expression.rename({n: column_name(role.label, n) for n in expression.columns})

    def _passable(
        self,
        table: Node,
        role: Role,
        keys: tuple[JoinKey, ...],
        kinds: dict[JoinKind, int],
        passing: int,
    ) -> tuple[Node, tuple[Column, ...]]:
        """The table with the bits of those who take no row of it, in one row of each key."""
        wanted = self._wanted(role.label)
        left, anti = kinds.get(JoinKind.LEFT, 0), kinds.get(JoinKind.ANTI, 0)
        semi = kinds.get(JoinKind.SEMI, 0)
        fields = [key.right.column for key in role.keys]
        plain = tuple(name for name in fields if name is not None)
        # A null finds nothing, and may be there often; but not where nulls are equal.
        unique = (
            len(plain) == len(fields)
            and not any(key.null_safe for key in role.keys)
            and self._is_unique(role.source, plain)
        )
        first, of_key = None, wanted
        if not unique:
            table, first, of_key = self._numbered(table, role, keys, left | semi | anti)
        made = word_columns(own_name("queries", role.label), self._count)
        values = [
            _passing_word(*each, first=first)
            for each in zip(
                wanted,
                of_key,
                words(kinds.get(JoinKind.INNER, 0) | left, self._count),
                words(passing, self._count),
                words(semi, self._count),
                words(left | anti, self._count),
                strict=True,
            )
        ]
        kept = [c for c in table.schema if c.name in self._passed or c in wanted]
        outputs = [Named(c.name, column_reference(c)) for c in kept]
        outputs += [Named(c.name, value) for c, value in zip(made, values, strict=True)]
        return Project(table, tuple(outputs)), made

    def _numbered(
        self, table: Node, role: Role, keys: tuple[JoinKey, ...], asking: int
    ) -> tuple[Node, str, tuple[Column, ...]]:
        """The rows of each key numbered, with the queries that want any row of the key."""
        wanted = self._wanted(role.label)
        partition = tuple(key.right for key in keys)
        order = tuple(SortKey(column_reference(c)) for c in table.schema)
        position = Column(own_name("position", role.label), "int", False)
        numbered = Window(table, partition, order, (WindowCall(position, "row_number", ()),))
        first = f"({quote(position.name)} = 1)"
        if not asking:
            return numbered, first, wanted
        calls: list[list[WindowCall]] = []
        for column, word in zip(wanted, words(asking, self._count), strict=True):
            of_word = []
            for bit in members_of(word):
                found = Expression(f"({quote(column.name)} & {1 << bit}L)", "bigint", False)
                name = f"{column.name} bit {bit}"
                of_word.append(WindowCall(Column(name, "bigint", True), "max", (found,)))
            calls.append(of_word)
        gathered = Window(numbered, partition, (), tuple(call for each in calls for call in each))
        made = word_columns(own_name("any", role.label), self._count)
        outputs = [Named(c.name, column_reference(c)) for c in numbered.schema]
        for column, of_word in zip(made, calls, strict=True):
            bits = either(constant(0), *(column_reference(call.column) for call in of_word))
            value = Expression(f"coalesce({bits.text}, 0L)", "bigint", False)
            outputs.append(Named(column.name, value))
        return Project(gathered, tuple(outputs)), first, made

    def _needed_after(self, number: int) -> set[str]:
        """Columns that a later join, a condition on several tables or an output reads."""
        later = self._chain.roles[number:]
        needed = {name for each in later for key in each.keys for name in key.left.columns}
        for role in self._chain.roles[:number]:
            if JoinKind.LEFT in role.kinds():  # to tell whose rows they are
                needed |= _names(self._wanted(role.label))
        return needed | self._put_out

    # Conditions on several tables.

    def _labels(self, seat: Seat, condition: Expression) -> set[str]:
        return {seat.labels[table_of(name)] for name in condition.columns}

    def _tested(self, node: Node, tests: list[tuple[Seat, Expression]], number: int) -> Node:
        """Takes their bits from the rows that fail the conditions of some queries. A condition that
        may fail is asked after those before it, of rows that its queries want."""
        asking: dict[tuple[str, ...], int] = {}
        before: dict[int, list[str]] = {}
        for seat, condition in tests:
            text = self.named(seat, condition).text
            earlier = before.setdefault(seat.number, [])
            asked = (*earlier, text) if can_fail(condition) else (text,)
            asking[asked] = asking.get(asked, 0) | (1 << seat.number)
            earlier.append(text)
        made = word_columns(f"queries_{number}_tested", self._count)
        values = []
        for position, word in enumerate(self._words):
            everyone = words(self._chain.everyone, self._count)[position]
            factors = [column_reference(word)]
            for texts, queries in asking.items():
                mask = words(queries, self._count)[position]
                if mask:
                    factors.append(_left_by(texts, word, mask, everyone))
            values.append(both(*factors))
        kept = [c for c in node.schema if c not in self._words]
        return self._with_words(node, kept, made, values)

    # What comes out.

    def named(self, seat: Seat, expression: Expression) -> Expression:
        """A member's expression over the chain's columns. What a left join added is empty in rows
        that another member's condition let through."""
        tables = seat.shape.member.tables

        def text(name: str) -> str:
            column = quote(seat.column(name))
            number = table_of(name)
            if tables[number].join is not JoinKind.LEFT or number not in seat.labels:
                return column
            label = seat.labels[number]
            bit = 1 << self._first_asking[label, seat.asked[number]]
            at, word = next((n, w) for n, w in enumerate(words(bit, self._count)) if w)
            found = quote(self._wanted(label)[at].name)
            matched = f"((coalesce({found}, 0L) & {word}L) > 0L)"
            return (
                matched if field_of(name) == MATCHED else f"CASE WHEN {matched} THEN {column} END"
            )

        replaced = substitute(expression.text, text)
        return Expression(replaced, expression.type, expression.nullable)

    def _routed(self, node: Node, joined: tuple[Node, ...]) -> SharedPlan:
        router = Router(self._chain, self._words, self.named)
        root = router.route(node)
        plan = QueryPlan(root, root.column_names, self._chain.seats[0].shape.member.settings)
        shares = {seat.number: router.share(seat) for seat in self._chain.seats}
        return SharedPlan(plan, shares, tuple(router.classes), joined)


def _fields_of(chain: Chain) -> dict[str, dict[str, Column]]:
    """By role the fields that any member reads, under their names in the chain."""
    found: dict[str, dict[str, Column]] = {chain.root: {}}
    found.update({role.label: {} for role in chain.roles})
    for seat in chain.seats:
        for name in _read_by(seat):
            number, of_field = table_of(name), field_of(name)
            label = seat.labels[number]
            column = seat.shape.member.tables[number].fields[of_field]
            known = found[label].setdefault(
                of_field, Column(column_name(label, of_field), column.type, column.nullable)
            )
            assert known.type == column.type
    return found


def _read_by(seat: Seat) -> Iterable[str]:
    """The columns of a member that anything reads, in a fixed order."""
    shape = seat.shape
    expressions = [e for conditions in shape.own.values() for e in conditions]
    expressions += [e for step in shape.steps for key in step.keys for e in (key.left, key.right)]
    expressions += _above(seat)
    return sorted({name for e in expressions for name in e.columns if field_of(name) != MATCHED})


def _above(seat: Seat) -> list[Expression]:
    """What a member reads once its tables are joined."""
    member = seat.shape.member
    expressions = [*seat.shape.across, *(output.expression for output in member.outputs)]
    return expressions + [e for call in member.calls or () for e in call.expressions()]


def _left_by(texts: tuple[str, ...], column: Column, asking: int, everyone: int) -> Expression:
    """The queries that conditions leave in a row's word, asked one after the other."""
    others = everyone & ~asking
    text = f"{everyone}L"
    for condition in reversed(texts):
        text = f"CASE WHEN {condition} THEN {text} ELSE {others}L END"
    text = f"CASE WHEN {test_of(column, asking)} THEN {text} ELSE {others}L END"
    return Expression(text, "bigint", False)


def _passing_word(
    wanted: Column,
    of_key: Column,
    kept: int,
    passing: int,
    if_any: int,
    if_none: int,
    *,
    first: str | None,
) -> Expression:
    """The word of a row: for members that take it, and, in one row of each key, for those that
    pass, that ask whether there is any row, and that ask whether there is none."""
    once = []
    if passing:
        once.append(constant(passing))
    if if_any:
        once.append(Expression(f"({quote(of_key.name)} & {if_any}L)", "bigint", False))
    if if_none:
        once.append(Expression(f"((~{quote(of_key.name)}) & {if_none}L)", "bigint", False))
    rows = Expression(f"({quote(wanted.name)} & {kept}L)", "bigint", False)
    if not once:
        return rows
    extra = either(*once)
    if first is not None:
        extra = Expression(f"CASE WHEN {first} THEN {extra.text} ELSE 0L END", "bigint", False)
    return either(rows, extra)


def _names(columns: Iterable[Column]) -> set[str]:
    return {column.name for column in columns}

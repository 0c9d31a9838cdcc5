"""Batches of queries at random over one small star of tables, for tests of shared work.

A large table refers to others by keys that may be null, may find nothing, and may find several
rows. Queries join some of them in all ways, with projections below the joins, filter, and group or
not.
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from headway.plan.expressions import Column, Expression, conjunction, quote
from headway.plan.nodes import (
    Aggregate,
    AggregateCall,
    Filter,
    Join,
    JoinKey,
    JoinKind,
    Limit,
    Named,
    Node,
    Project,
    QueryPlan,
    Scan,
    Side,
    Sort,
    SortKey,
    Union,
)
from headway.testing.example_plans import condition, parquet_table, reference, renamed

_SETTINGS = (("spark.sql.ansi.enabled", "true"), ("spark.sql.session.timeZone", "UTC"))
_WORDS = ("", "a", "ab", "b", "it's", "Z", "ß", "zz")
_RATIOS = ("0.0D", "-0.0D", "1.5D", "-2.25D", "CAST('NaN' AS DOUBLE)", "CAST('Infinity' AS DOUBLE)")
_KINDS = (
    JoinKind.INNER,
    JoinKind.INNER,
    JoinKind.INNER,
    JoinKind.LEFT,
    JoinKind.SEMI,
    JoinKind.ANTI,
)
_SUMS = {
    "int": "bigint",
    "bigint": "bigint",
    "decimal(7,2)": "decimal(17,2)",
    "decimal(31,4)": "decimal(38,4)",
}
_AVERAGES = {
    "int": "double",
    "bigint": "double",
    "decimal(7,2)": "decimal(11,6)",
    "decimal(31,4)": "decimal(35,8)",
}
SIZES = (1, 3, 8, 20, 70)
"""Of batches: the last has more queries than a word has bits."""


@dataclass(frozen=True, slots=True)
class Star:
    """`links` say by table which of its columns refers to which column of which other one."""

    fact: Scan
    others: dict[str, Scan]
    links: dict[str, list[tuple[str, str, str]]]


def make_star(folder: Path, rng: random.Random, rows: int = 400) -> Star:
    """Tables as Parquet files in `folder`."""

    def number(most: int) -> int | None:
        return None if rng.random() < 0.08 else rng.randint(0, most)

    def word() -> str | None:
        return None if rng.random() < 0.1 else rng.choice(_WORDS)

    def day() -> datetime.date | None:
        start = datetime.date(2000, 1, 1)
        return None if rng.random() < 0.1 else start + datetime.timedelta(rng.randint(0, 40))

    def price() -> Decimal | None:
        return None if rng.random() < 0.1 else Decimal(rng.randint(-500, 20_000)) / 100

    def total() -> Decimal | None:
        return None if rng.random() < 0.1 else Decimal(rng.randint(-(10**20), 10**20)) / 10_000

    def count() -> int | None:
        return None if rng.random() < 0.1 else rng.randint(-(2**40), 2**40)

    def ratio() -> float | None:
        odd = (float("nan"), -0.0, 0.0, float("inf"), float("-inf"), 1.5)
        return None if rng.random() < 0.1 else rng.choice((*odd, rng.randint(-9, 9) / 4))

    def moment() -> datetime.datetime | None:
        start = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)
        return None if rng.random() < 0.1 else start + datetime.timedelta(hours=rng.randint(0, 700))

    def flag() -> bool | None:
        return rng.choice((True, False, None))

    def table(
        name: str, types: dict[str, str], make: Callable[[], tuple[Any, ...]], n: int
    ) -> Scan:
        made = [make() for _ in range(n)]
        return parquet_table(folder / name, types, made, files=rng.choice((1, 2)), group_rows=64)

    fact = table(
        "sales",
        {"s_day": "int", "s_item": "int", "s_shop": "int", "s_number": "int",
         "s_price": "decimal(7,2)", "s_note": "string", "s_total": "decimal(31,4)",
         "s_count": "bigint", "s_ratio": "double", "s_at": "timestamp", "s_flag": "boolean"},
        lambda: (number(12), number(9), number(5), number(30), price(), word(), total(), count(),
                 ratio(), moment(), flag()),
        rows,
    )  # fmt: skip
    keys = iter(range(1000))
    days = table(
        "days", {"d_key": "int", "d_date": "date", "d_month": "int"},
        lambda: (next(keys), day(), number(4)), 11,
    )  # fmt: skip
    items = table(  # with keys that are there twice, and keys that are null
        "items", {"i_key": "int", "i_kind": "string", "i_price": "decimal(7,2)", "i_maker": "int"},
        lambda: (number(9), word(), price(), number(3)), 14,
    )  # fmt: skip
    keys_2 = iter(range(1000))
    shops = table(
        "shops", {"h_key": "int", "h_town": "string", "h_size": "int"},
        lambda: (next(keys_2), word(), number(20)), 5,
    )  # fmt: skip
    closed = table("closed", {"c_key": "int", "c_name": "string"}, lambda: (number(3), word()), 0)
    makers = table("makers", {"m_key": "int", "m_land": "string"}, lambda: (number(3), word()), 5)
    return Star(
        fact,
        {"days": days, "items": items, "shops": shops, "closed": closed, "makers": makers},
        {
            "sales": [
                ("s_day", "days", "d_key"),
                ("s_item", "items", "i_key"),
                ("s_shop", "shops", "h_key"),
                ("s_number", "shops", "h_size"),
                ("s_shop", "closed", "c_key"),
            ],
            "items": [("i_maker", "makers", "m_key")],
        },
    )


def random_batch(star: Star, rng: random.Random, queries: int) -> dict[str, QueryPlan]:
    return {f"q{n:02d}": random_query(star, rng) for n in range(1, queries + 1)}


def random_query(star: Star, rng: random.Random) -> QueryPlan:
    root = _Maker(star, rng).query()
    if rng.random() < 0.1:
        other = _Maker(star, rng, "_u").query()
        if [c.type for c in other.schema] == [c.type for c in root.schema]:
            columns = tuple(Column(f"{c.name}_both", c.type) for c in root.schema)
            root = Union((root, other), columns)
    return QueryPlan(root, tuple(f"c{n}" for n in range(len(root.schema))), _SETTINGS)


class _Maker:
    def __init__(self, star: Star, rng: random.Random, suffix: str = "") -> None:
        self._star = star
        self._rng = rng
        self._suffix = suffix
        self._count = 0

    def query(self) -> Node:
        node = self._joined()
        if self._rng.random() < 0.3:
            node = Filter(node, self._across(node))
        if self._rng.random() < 0.75:
            node = self._grouped(node)
            if self._rng.random() < 0.25:
                least = self._rng.randint(1, 4)
                node = Filter(node, condition(f"({quote(f'rows{self._suffix}')} > {least}L)"))
        else:
            node = Project(node, tuple(self._some(node)))
        if self._rng.random() < 0.3:
            keys = tuple(SortKey(reference(node, name)) for name in node.column_names)
            node = Limit(Sort(node, keys), self._rng.randint(0, 20))
        return node

    def _scan(self, scan: Scan) -> Node:
        self._count += 1
        node: Node = renamed(scan, f"_{self._count}{self._suffix}")
        conditions = [
            self._condition(column) for column in node.schema if self._rng.random() < 0.25
        ]
        found = conjunction(conditions)
        if found is not None:
            node = Filter(node, found)
        return self._projected(node) if self._rng.random() < 0.25 else node

    def _projected(self, node: Node) -> Node:
        """All columns, and one that has a value where they have none."""
        name = quote(self._rng.choice([c.name for c in node.schema if c.type == "int"]))
        text = self._rng.choice(
            (f"coalesce({name}, 0)", "7", f"CASE WHEN ({name} IS NULL) THEN 1 ELSE 0 END")
        )
        passed = [Named(column, reference(node, column)) for column in node.column_names]
        made = Named(f"made_{self._count}{self._suffix}", Expression(text, "int", False))
        return Project(node, (*passed, made))

    def _joined(self) -> Node:
        node = self._scan(self._star.fact)
        waiting = [(node, link) for link in self._star.links["sales"]]
        while waiting and self._rng.random() < 0.7:
            of, (column, name, key) = waiting.pop(self._rng.randrange(len(waiting)))
            other = self._scan(self._star.others[name])
            kind = self._rng.choice(_KINDS)
            left = next(n for n in of.column_names if n.startswith(f"{column}_"))
            right = next(n for n in other.column_names if n.startswith(f"{key}_"))
            if left not in node.column_names:
                continue
            null_safe = self._rng.random() < 0.2
            keys = (JoinKey(reference(node, left), reference(other, right), null_safe),)
            if kind is JoinKind.LEFT and self._rng.random() < 0.3:
                turned = (JoinKey(keys[0].right, keys[0].left, null_safe),)
                node = Join(other, node, JoinKind.RIGHT, turned, build=Side.LEFT)
            else:
                node = Join(node, other, kind, keys)
            if kind is JoinKind.LEFT and self._rng.random() < 0.3:
                node = Filter(node, condition(f"({quote(right)} IS NOT NULL)"))
            if kind is JoinKind.INNER:
                waiting += [(other, link) for link in self._star.links.get(name, [])]
        return node

    def _condition(self, column: Column) -> Expression:
        name, rng = quote(column.name), self._rng
        if column.type == "string":
            word = rng.choice(("'a'", "'ab'", "'it\\'s'", "'b'"))
            return condition(
                rng.choice(
                    (
                        f"({name} = {word})",
                        f"({name} IN ('a', 'zz', 'ß'))",
                        f"({name} >= {word})",
                        f"(NOT ({name} = {word}))",
                        f"({name} IS NULL)",
                        f"({name} LIKE '%b%')",
                        f"(({name} = {word}) OR ({name} IS NULL))",
                    )
                )
            )
        if column.type == "boolean":
            return condition(
                rng.choice((f"({name} = true)", f"(NOT {name})", f"({name} IS NULL)", name))
            )
        values: dict[str, Callable[[], str]] = {
            "double": lambda: rng.choice(_RATIOS),
            "timestamp": lambda: f"TIMESTAMP '2000-01-{rng.randint(1, 31):02d} 12:00:00.000000Z'",
            "int": lambda: str(rng.randint(0, 12)),
            "date": lambda: f"DATE '2000-01-{rng.randint(1, 31):02d}'",
            "decimal(7,2)": lambda: f"CAST({rng.randint(-5, 150)}.25BD AS DECIMAL(7,2))",
            "decimal(31,4)": lambda: (
                f"CAST({rng.randint(-(10**15), 10**15)}.25BD AS DECIMAL(31,4))"
            ),
            "bigint": lambda: f"{rng.randint(-(2**39), 2**39)}L",
        }
        one, two, three = sorted(values[column.type]() for _ in range(3))
        return condition(
            rng.choice(
                (
                    f"({name} {rng.choice(('<', '<=', '>', '>=', '='))} {one})",
                    f"(({name} >= {one}) AND ({name} <= {two}))",
                    f"({name} IN ({one}, {two}, {three}))",
                    f"(NOT ({name} IN ({one}, {two})))",
                    f"(({name} < {one}) OR ({name} > {three}))",
                    f"({name} IS NOT NULL)",
                    f"({name} IS NULL)",
                    f"({one} < {name})",
                    f"(NOT (({name} > {one}) OR ({name} IS NULL)))",
                )
            )
        )

    def _across(self, node: Node) -> Expression:
        """A condition on two columns of any tables."""
        by_type: dict[str, list[str]] = {}
        for column in (each for each in node.schema if each.type != "boolean"):
            by_type.setdefault(column.type, []).append(quote(column.name))
        names = by_type[self._rng.choice(sorted(by_type))]
        one, two = self._rng.choice(names), self._rng.choice(names)
        sign = self._rng.choice(("<=", "=", ">"))
        return condition(f"(({one} {sign} {two}) OR ({two} IS NULL))")

    def _some(self, node: Node) -> list[Named]:
        names = self._rng.sample(node.column_names, min(len(node.schema), self._rng.randint(1, 3)))
        outputs = [Named(f"{name}_out", reference(node, name)) for name in names]
        if self._rng.random() < 0.3:
            number = next(c for c in node.schema if c.type == "int")
            text = f"(coalesce({quote(number.name)}, 0) + 1)"
            outputs.append(Named(f"{number.name}_more", Expression(text, "int", False)))
        return outputs

    def _grouped(self, node: Node) -> Node:
        keys = [] if self._rng.random() < 0.2 else self._some(node)
        calls = [AggregateCall(Column(f"rows{self._suffix}", "bigint", False), "count", (_ONE,))]
        for column in self._rng.sample(node.schema, min(len(node.schema), 3)):
            argument = reference(node, column.name)
            function = self._rng.choice(("min", "max", "count", "sum", "avg"))
            if function == "count":
                ddl = "bigint"
            elif function in ("sum", "avg"):
                known = _SUMS if function == "sum" else _AVERAGES
                if column.type not in known:
                    continue
                ddl = known[column.type]
            else:
                ddl = column.type
            chosen = self._condition(column) if self._rng.random() < 0.15 else None
            distinct = function == "count" and self._rng.random() < 0.3
            name = f"{function}_{column.name}"
            calls.append(AggregateCall(Column(name, ddl), function, (argument,), distinct, chosen))
        return Aggregate(node, tuple(keys), tuple(calls))


_ONE = Expression("1", "int", False)

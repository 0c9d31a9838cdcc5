"""Catalyst's expressions as canonical Spark SQL text.

`_WRITERS` lists the expressions that have a form of their own. A plain function of Spark's registry
is written as a call, if everything it was made with is one of its arguments; whatever else there is
(an option that the text would lose, a user's function, a JVM call) is refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from headway.base.errors import PlanNotImportable
from headway.plan.blanks import blank
from headway.plan.expressions import Expression, Subquery, quote, string_literal, type_text
from headway.spark.tree import FACTS, PLACE, Tree, sequence
from headway.spark.tree_text import constant_sql
from headway.spark.types import constant_text, ddl_of, timestamp_text

Writer = Callable[["ExpressionReader", Tree], str]

_BOOLEAN = {
    "And", "Or", "Not", "EqualTo", "EqualNullSafe", "LessThan", "LessThanOrEqual", "GreaterThan",
    "GreaterThanOrEqual", "IsNull", "IsNotNull", "In", "InSet", "Like", "RLike", "StartsWith",
    "EndsWith", "Contains", "IsNaN",
}  # fmt: skip
_NEVER_NULL = {"IsNull", "IsNotNull", "EqualNullSafe", "IsNaN"}
_WIDER = ("tinyint", "smallint", "int", "bigint")


class ExpressionReader:
    """Reads expressions of one plan; what an expression needs beyond itself it asks here.

    `name_of` gives the plan's name of an attribute, `import_subquery` imports the plan of a scalar
    subquery and returns it named, `functions` gives the SQL name of a function of Spark's registry.
    """

    def __init__(
        self,
        name_of: Callable[[Tree], str],
        import_subquery: Callable[[Tree], Subquery],
        functions: Callable[[Tree], str | None],
        settings: dict[str, str],
    ) -> None:
        self._name_of = name_of
        self._import_subquery = import_subquery
        self._functions = functions
        self.ansi = settings["spark.sql.ansi.enabled"].lower() == "true"
        self._time_zone = settings["spark.sql.session.timeZone"]
        self._precision_loss = settings["spark.sql.decimalOperations.allowPrecisionLoss"].lower()
        self._size_of_null = settings["spark.sql.legacy.sizeOfNull"].lower() == "true"
        self._found: list[Subquery] = []
        self._stand_ins: dict[int, str] = {}

    def read(
        self, tree: Tree, *, ddl: str | None = None, nullable: bool | None = None
    ) -> Expression:
        """The expression with its type, which is asked of the JVM when the caller has it not."""
        text, subqueries = self.read_text(tree)
        return Expression(
            text,
            ddl if ddl is not None else self.type_of(tree),
            nullable if nullable is not None else self.nullable(tree),
            subqueries,
        )

    def read_text(self, tree: Tree) -> tuple[str, tuple[Subquery, ...]]:
        outer, self._found = self._found, []
        try:
            return self.text(tree), tuple(dict.fromkeys(self._found))
        finally:
            self._found = outer

    def with_stand_ins(self, tree: Tree, names: dict[int, str], **known: Any) -> Expression:
        """The expression with some of its parts (by identity) read from columns instead."""
        self._stand_ins = names
        try:
            return self.read(tree, **known)
        finally:
            self._stand_ins = {}

    def type_of(self, tree: Tree) -> str:
        if tree.name in _BOOLEAN:
            return "boolean"
        if tree.name in ("AttributeReference", "Literal", "Cast"):
            return ddl_of(tree.fields["dataType"])
        if tree.name == "Alias":
            return self.type_of(tree.children[0])
        return _ddl_of_json(tree.type_json)

    def nullable(self, tree: Tree) -> bool:
        if tree.name in _NEVER_NULL:
            return False
        if tree.name == "AttributeReference":
            return bool(tree.fields["nullable"])
        if tree.name == "Literal":
            return tree.fields["value"] is None
        known = tree.facts.nullable
        return bool(tree.handle.nullable()) if known is None else known

    def text(self, tree: Tree) -> str:
        """The text of one node; writers call it for its children."""
        stand_in = self._stand_ins.get(id(tree))
        if stand_in is not None:
            return quote(stand_in)
        writer = _WRITERS.get(tree.name)
        return writer(self, tree) if writer is not None else self.function(tree)

    def arguments(self, tree: Tree) -> str:
        return ", ".join(self.text(child) for child in tree.children)

    def function(self, tree: Tree) -> str:
        """A function of Spark's registry, as a call."""
        name = self.function_name(tree)
        self.check_options(tree)
        return f"{name}({self.arguments(tree)})"

    def function_name(self, tree: Tree) -> str:
        name = self._functions(tree)
        if name is None:
            raise refused(tree, "it is not a function of Spark's registry")
        return name

    def check_options(self, tree: Tree) -> None:
        """Everything the node was made with is an argument, or is what the session says anyway."""
        expected = {
            "failOnError": self.ansi,
            "ansiEnabled": self.ansi,
            "legacySizeOfNull": not self.ansi and self._size_of_null,
            "timeZoneId": self._time_zone,
            "nullOnDivideByZero": True,
            "ignoreNulls": True,
            "useStringTypeWhenEmpty": False,
            "legacyInterval": False,
        }
        for field, value in tree.fields.items():
            if field in ("evalMode", "evalContext"):
                self.check_mode(tree)
            elif field in expected:
                if value != expected[field]:
                    raise refused(tree, f"its option {field} is {value}, unlike the session's")
            elif field not in _BOOKKEEPING and not _is_argument(value, len(tree.children)):
                raise refused(tree, f"its option {field} has no place in the text")

    def eval_mode(self, tree: Tree) -> str:
        """LEGACY, ANSI or TRY."""
        return tree.facts.mode or ""

    def check_mode(self, tree: Tree) -> None:
        mode = self.eval_mode(tree)
        if mode != ("ANSI" if self.ansi else "LEGACY"):
            raise refused(tree, f"it is evaluated in {mode} mode, unlike the session")
        if "evalContext" in tree.fields:
            loss = tree.facts.precision_loss
            if loss is not None and loss.lower() != self._precision_loss:
                raise refused(tree, "it loses decimal precision unlike the session")

    def attribute(self, tree: Tree) -> str:
        return quote(self._name_of(tree))

    def subquery(self, tree: Tree) -> str:
        found = self._import_subquery(tree)
        self._found.append(found)
        return f":{found.name}"

    def cast(self, tree: Tree) -> str:
        ddl = ddl_of(tree.fields["dataType"])
        mode = self.eval_mode(tree)
        inner = self.text(tree.children[0])
        if tree.fields.get("timeZoneId") not in (None, self._time_zone):
            raise refused(tree, f"it casts in time zone {tree.fields['timeZoneId']}")
        if mode == "TRY":
            return f"try_cast({inner} AS {type_text(ddl)})"
        if mode != ("ANSI" if self.ansi else "LEGACY") and not self._never_fails(tree, ddl):
            raise refused(tree, f"it casts in {mode} mode, unlike the session")
        return f"CAST({inner} AS {type_text(ddl)})"

    def _never_fails(self, tree: Tree, ddl: str) -> bool:
        source = self.type_of(tree.children[0])
        if ddl == "string" or source == ddl:
            return True
        return source in _WIDER and ddl in _WIDER and _WIDER.index(source) <= _WIDER.index(ddl)

    def arithmetic(self, tree: Tree, sign: str, attempt: str) -> str:
        if self.eval_mode(tree) == "TRY":
            return f"{attempt}({self.arguments(tree)})"
        self.check_mode(tree)
        left, right = tree.children
        return f"({self.text(left)} {sign} {self.text(right)})"


@lru_cache(maxsize=1_024)
def _ddl_of_json(text: str) -> str:
    return ddl_of(json.loads(text))


_BOOKKEEPING = (
    "class",
    "num-children",
    "mutableAggBufferOffset",
    "inputAggBufferOffset",
    FACTS,
    PLACE,
)


def refused(tree: Tree, reason: str) -> PlanNotImportable:
    return PlanNotImportable(
        f"expression {tree.name}: {reason}", hint="Spark runs the query unchanged"
    )


def _is_argument(value: Any, count: int) -> bool:
    if isinstance(value, bool):
        return False
    if isinstance(value, int):
        return 0 <= value < count
    return isinstance(value, list) and all(isinstance(item, int) for item in value)


def _infix(sign: str) -> Writer:
    def write(reader: ExpressionReader, tree: Tree) -> str:
        left, right = tree.children
        return f"({reader.text(left)} {sign} {reader.text(right)})"

    return write


def _checked_infix(sign: str) -> Writer:
    """An operator whose class has options, such as a time zone, that its text does not show."""

    def write(reader: ExpressionReader, tree: Tree) -> str:
        reader.check_options(tree)
        return _infix(sign)(reader, tree)

    return write


def _suffix(words: str) -> Writer:
    return lambda reader, tree: f"({reader.text(tree.children[0])} {words})"


def _call(name: str) -> Writer:
    """A function whose every option is an argument, whatever else its class carries."""
    return lambda reader, tree: f"{name}({reader.arguments(tree)})"


def _arithmetic(sign: str, attempt: str) -> Writer:
    return lambda reader, tree: reader.arithmetic(tree, sign, attempt)


def _inner(reader: ExpressionReader, tree: Tree) -> str:
    """A marker of the planner that Spark sets again by itself."""
    return reader.text(tree.children[0])


def _negative(reader: ExpressionReader, tree: Tree) -> str:
    reader.check_options(tree)
    return f"(- {reader.text(tree.children[0])})"


def _literal(reader: ExpressionReader, tree: Tree) -> str:
    ddl = ddl_of(tree.fields["dataType"])
    value = tree.fields["value"]
    text = constant_text(value, ddl)
    if text is None and ddl in ("timestamp", "timestamp_ntz"):
        text = timestamp_text(int(tree.handle.value()), zoned=ddl == "timestamp")
    if text is None:
        if "timestamp" in ddl:
            raise refused(tree, f"a constant of the type {ddl} has no text that keeps its moment")
        nested = ddl.startswith(("array", "map", "struct"))
        text = constant_sql(tree.handle) if nested else str(tree.handle.sql())
        # Decimals inside nested constants are written without their precision.
        text = f"CAST({text} AS {type_text(ddl)})" if "decimal" in ddl else text
    return text


def _blank(reader: ExpressionReader, tree: Tree) -> str:
    if not tree.fields["settled"]:
        raise refused(tree, "nobody knows what is to stand there")
    return blank(tree.fields["number"])


def _in(reader: ExpressionReader, tree: Tree) -> str:
    value, *items = tree.children
    return f"({reader.text(value)} IN ({', '.join(reader.text(item) for item in items)}))"


def _in_set(reader: ExpressionReader, tree: Tree) -> str:
    child = tree.children[0]
    ddl = reader.type_of(child)
    if ddl == "timestamp":
        texts = [_moment(value) for value in sequence(tree.handle.hset().toSeq())]
        if None in texts:
            raise refused(tree, "a moment beyond year 9999 has no text")
        return f"({reader.text(child)} IN ({', '.join(map(str, texts))}))"
    if "timestamp" in ddl and ddl != "timestamp_ntz":
        raise refused(tree, f"constants of the type {ddl} have no text that keeps their moment")
    prefix = f"({child.handle.sql()} IN "
    text = str(tree.handle.sql())
    if not text.startswith(prefix):
        raise refused(tree, "its values have no text")
    return f"({reader.text(child)} IN {text.removeprefix(prefix)}"


def _moment(microseconds: Any) -> str | None:
    return "NULL" if microseconds is None else timestamp_text(int(microseconds), zoned=True)


def _case(reader: ExpressionReader, tree: Tree) -> str:
    texts = [reader.text(child) for child in tree.children]
    otherwise = f" ELSE {texts.pop()}" if len(texts) % 2 else ""
    pairs = zip(texts[::2], texts[1::2], strict=True)
    return f"CASE{''.join(f' WHEN {c} THEN {v}' for c, v in pairs)}{otherwise} END"


def _if(reader: ExpressionReader, tree: Tree) -> str:
    return f"IF({reader.arguments(tree)})"


def _like(reader: ExpressionReader, tree: Tree) -> str:
    left, right = (reader.text(child) for child in tree.children)
    escape = str(tree.handle.escapeChar())
    return (
        f"({left} LIKE {right})" if escape == "\\" else f"({left} LIKE {right} ESCAPE '{escape}')"
    )


def _like_list(words: str) -> Writer:
    def write(reader: ExpressionReader, tree: Tree) -> str:
        patterns = sequence(tree.handle.patterns())
        if any(pattern is None for pattern in patterns):
            raise refused(tree, "one of its patterns is NULL")
        texts = [string_literal(str(pattern.toString())) for pattern in patterns]
        return f"({reader.text(tree.children[0])} {words} ({', '.join(texts)}))"

    return write


def _struct_field(reader: ExpressionReader, tree: Tree) -> str:
    struct = json.loads(tree.children[0].type_json)
    name = struct["fields"][tree.fields["ordinal"]]["name"]
    return f"({reader.text(tree.children[0])}).{quote(name)}"


def _item(reader: ExpressionReader, tree: Tree) -> str:
    if "failOnError" in tree.fields and tree.fields["failOnError"] != reader.ansi:
        raise refused(tree, "it treats a missing element unlike the session")
    child, key = (reader.text(part) for part in tree.children)
    return f"{child}[{key}]"


def _replicate(reader: ExpressionReader, tree: Tree) -> str:
    """INTERSECT ALL and EXCEPT ALL put out a row as often as its first value says."""
    count, *values = (reader.text(child) for child in tree.children)
    struct = ", ".join(f"'c{number}', {value}" for number, value in enumerate(values))
    return f"inline(array_repeat(named_struct({struct}), CAST({count} AS INT)))"


_WRITERS: dict[str, Writer] = {
    "AttributeReference": ExpressionReader.attribute,
    "Literal": _literal,
    "ManyPlans$Blank": _blank,
    "ScalarSubquery": ExpressionReader.subquery,
    "Alias": _inner,
    "And": _infix("AND"),
    "Or": _infix("OR"),
    "Not": lambda reader, tree: f"(NOT {reader.text(tree.children[0])})",
    "EqualTo": _infix("="),
    "EqualNullSafe": _infix("<=>"),
    "LessThan": _infix("<"),
    "LessThanOrEqual": _infix("<="),
    "GreaterThan": _infix(">"),
    "GreaterThanOrEqual": _infix(">="),
    "IsNull": _suffix("IS NULL"),
    "IsNotNull": _suffix("IS NOT NULL"),
    "In": _in,
    "InSet": _in_set,
    "Like": _like,
    "LikeAll": _like_list("LIKE ALL"),
    "NotLikeAll": _like_list("NOT LIKE ALL"),
    "LikeAny": _like_list("LIKE ANY"),
    "NotLikeAny": _like_list("NOT LIKE ANY"),
    "RLike": _infix("RLIKE"),
    "StartsWith": _call("startswith"),
    "EndsWith": _call("endswith"),
    "Contains": _call("contains"),
    "Add": _arithmetic("+", "try_add"),
    "Subtract": _arithmetic("-", "try_subtract"),
    "Multiply": _arithmetic("*", "try_multiply"),
    "Divide": _arithmetic("/", "try_divide"),
    "Remainder": _arithmetic("%", "try_mod"),
    "IntegralDivide": _checked_infix("DIV"),
    "UnaryMinus": _negative,
    "DateAddInterval": _checked_infix("+"),
    "DateAddYMInterval": _checked_infix("+"),
    "TimestampAddInterval": _checked_infix("+"),
    "TimestampAddYMInterval": _checked_infix("+"),
    "TimeAdd": _checked_infix("+"),
    "SubtractDates": _checked_infix("-"),
    "SubtractTimestamps": _checked_infix("-"),
    "MultiplyDTInterval": _checked_infix("*"),
    "MultiplyYMInterval": _checked_infix("*"),
    "DivideDTInterval": _checked_infix("/"),
    "DivideYMInterval": _checked_infix("/"),
    "ReplicateRows": _replicate,
    # In plans that are being run: they keep rows away early that a join keeps away anyhow.
    "BloomFilterMightContain": lambda reader, tree: "true",
    "DynamicPruningSubquery": lambda reader, tree: "true",
    "DynamicPruningExpression": lambda reader, tree: "true",
    "BitwiseAnd": _infix("&"),
    "BitwiseOr": _infix("|"),
    "BitwiseXor": _infix("^"),
    "BitwiseNot": lambda reader, tree: f"(~ {reader.text(tree.children[0])})",
    "Cast": ExpressionReader.cast,
    "CaseWhen": _case,
    "If": _if,
    "Coalesce": _call("coalesce"),
    "Concat": _call("concat"),
    "Substring": _call("substring"),
    "GetStructField": _struct_field,
    "GetArrayItem": _item,
    "GetMapValue": _item,
    "KnownFloatingPointNormalized": _inner,
    "NormalizeNaNAndZero": _inner,
    "KnownNotNull": _inner,
    "KnownNullable": _inner,
    "PromotePrecision": _inner,
}

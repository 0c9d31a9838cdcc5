"""Spark SQL text to DuckDB SQL text with the same meaning.

`SUPPORTED` lists every operator and function that the kernels know, under the name that Spark's
text has for it; `CASTS` (in casts) the conversions. Anything else raises NotSupported with its name
and the reason. The type of every part is computed by Spark's rules on the way, and must come out
as the plan says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from inspect import signature

from sqlglot import expressions as tree

from headway.base.errors import NotSupported
from headway.pipelined.kernels import arithmetic as a
from headway.pipelined.kernels import functions as f
from headway.pipelined.kernels.casts import cast
from headway.pipelined.kernels.syntax import parse
from headway.pipelined.kernels.typed import Context, Translated, quoted, string_text
from headway.pipelined.kernels.types import check_type, decimal_type, duckdb_type
from headway.plan.expressions import Column, Expression

SUPPORTED: dict[str, a.Writer] = {
    "+": a.plus_or_minus("+"),
    "-": a.plus_or_minus("-"),
    "*": a.times,
    "/": a.divided_by,
    "DIV": a.integral_divided_by,
    "%": a.modulo,
    "unary -": a.negative,
    "&": a.bitwise("&"),
    "|": a.bitwise("|"),
    "^": a.bitwise("^"),
    "~": a.bitwise_not,
    "shiftright": a.shift_right,
    "=": a.comparison("="),
    "<=>": a.comparison("IS NOT DISTINCT FROM"),
    "<": a.comparison("<"),
    "<=": a.comparison("<="),
    ">": a.comparison(">"),
    ">=": a.comparison(">="),
    "AND": a.logical("AND"),
    "OR": a.logical("OR"),
    "NOT": a.negation,
    "IS NULL": a.is_null,
    "IN": a.is_in,
    "CASE": a.case,
    "IF": a.case,
    "coalesce": a.coalesce,
    "greatest": a.extreme("greatest"),
    "least": a.extreme("least"),
    "abs": f.absolute,
    "sqrt": f.square_root,
    "ceil": f.to_whole("ceil"),
    "floor": f.to_whole("floor"),
    "round": f.rounding("round"),
    "bround": f.rounding("bround"),
    "isnan": f.is_nan,
    "LIKE": f.like,
    "upper": f.change_case("upper"),
    "lower": f.change_case("lower"),
    "concat": f.concat,
    "substring": f.substring,
    "trim": f.trim("trim"),
    "ltrim": f.trim("ltrim"),
    "rtrim": f.trim("rtrim"),
    "length": f.length,
    "startswith": f.test_of("starts_with"),
    "endswith": f.test_of("ends_with"),
    "contains": f.test_of("contains"),
    "replace": f.replace,
    "year": f.date_part("year({})"),
    "quarter": f.date_part("quarter({})"),
    "month": f.date_part("month({})"),
    "day": f.date_part("day({})"),
    "dayofweek": f.date_part("dayofweek({}) + 1"),
    "weekday": f.date_part("isodow({}) - 1"),
    "dayofyear": f.date_part("dayofyear({})"),
    "weekofyear": f.date_part("weekofyear({})"),
    "hour": f.time_part("hour"),
    "minute": f.time_part("minute"),
    "second": f.time_part("second"),
    "date_add": f.add_days("+"),
    "date_sub": f.add_days("-"),
    "datediff": f.days_between,
    "add_months": f.add_months,
    "last_day": f.last_day,
    "trunc": f.truncate,
}

# For what plans of shared work look up; Spark's own plans have it in a form that is not imported.
LOOKED_UP: dict[str, a.Writer] = {"array": f.constant_array, "try_element_at": f.element_at}

# Spark's registry has several names for some functions, and the import writes one of them.
ALIASES = {
    "ceiling": "ceil",
    "ucase": "upper",
    "lcase": "lower",
    "substr": "substring",
    "len": "length",
    "char_length": "length",
    "character_length": "length",
    "dayofmonth": "day",
    "dateadd": "date_add",
    "date_diff": "datediff",
}

_OPERATORS: dict[type[tree.Expr], str] = {
    tree.Add: "+",
    tree.Sub: "-",
    tree.Mul: "*",
    tree.Div: "/",
    tree.IntDiv: "DIV",
    tree.Mod: "%",
    tree.BitwiseAnd: "&",
    tree.BitwiseOr: "|",
    tree.BitwiseXor: "^",
    tree.EQ: "=",
    tree.NullSafeEQ: "<=>",
    tree.LT: "<",
    tree.LTE: "<=",
    tree.GT: ">",
    tree.GTE: ">=",
    tree.And: "AND",
    tree.Or: "OR",
    tree.Like: "LIKE",
}
_TYPES = {
    "TEXT": "string",
    "INT": "int",
    "TIMESTAMPTZ": "timestamp",
    "TIMESTAMPNTZ": "timestamp_ntz",
}
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{1,6})?Z")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


def translate(
    expression: Expression,
    schema: Mapping[str, Column],
    settings: Mapping[str, str],
    subqueries: Mapping[str, Translated] | None = None,
) -> Translated:
    """The expression in DuckDB's SQL.

    `schema` has the columns that it may read, `settings` the plan's settings, `subqueries` the text
    and type that stand for each of its subquery parameters.
    """
    context = Context(schema, settings, subqueries or {})
    try:
        found = _write(parse(expression.text), context)
    except RecursionError as error:
        raise NotSupported("expression", "it is nested too deeply") from error
    if found.type != expression.type:
        raise NotSupported(
            f"expression {_shortened(expression.text)}",
            f"the kernels give {found.type} where Spark gives {expression.type}",
        )
    check_type(found.type, settings)
    return found


def normalised_key(value: Translated) -> str:
    """The value as a key to group, join or partition by: -0.0 is 0.0, as Spark has it."""
    if value.type not in ("float", "double"):
        return value.text
    zero = f"CAST(0 AS {duckdb_type(value.type)})"
    return f"CASE WHEN {value.text} = 0 THEN {zero} ELSE {value.text} END"


def _write(node: tree.Expr, context: Context) -> Translated:
    if isinstance(node, tree.Paren):
        return _write(node.this, context)
    if isinstance(node, tree.Column):
        return _column(node, context)
    if isinstance(node, tree.Placeholder):
        return _parameter(str(node.this), context)
    if isinstance(node, tree.Null):
        return Translated("NULL", "void")
    if isinstance(node, tree.Boolean):
        return Translated("true" if node.this else "false", "boolean")
    constant = _constant(node)
    if constant is not None:
        check_type(constant.type, context.settings)
        return constant
    if isinstance(node, tree.TryCast):
        raise NotSupported("try_cast", "it gives null where the kernels raise an error")
    if isinstance(node, tree.Cast):
        ddl = _ddl(node.to)
        check_type(ddl, context.settings)
        return cast(_write(node.this, context), ddl, context)
    name, arguments = _call(node)
    if name == "array" and node.find(tree.Column, tree.Placeholder) is not None:
        raise NotSupported("array", "it is not made of constants")
    return apply(name, context, *(_write(argument, context) for argument in arguments))


def apply(name: str, context: Context, *arguments: Translated) -> Translated:
    """The operator or function `name` of the table over translated arguments."""
    writer = SUPPORTED.get(ALIASES.get(name, name)) or LOOKED_UP.get(name)
    if writer is None:
        raise NotSupported(f"function {name}", "it is not in the table of supported expressions")
    least, most = _arity(writer)
    if not least <= len(arguments) <= most:
        raise NotSupported(f"function {name}", f"{len(arguments)} arguments are not supported")
    return writer(context, *arguments)


@lru_cache(maxsize=1_024)
def _arity(writer: a.Writer) -> tuple[int, float]:
    parameters = list(signature(writer).parameters.values())[1:]
    required = [p for p in parameters if p.default is p.empty and p.kind is not p.VAR_POSITIONAL]
    endless = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    return len(required), float("inf") if endless else len(parameters)


def _call(node: tree.Expr) -> tuple[str, list[tree.Expr]]:
    """The name under which the table has the node, and its arguments."""
    if isinstance(node, tree.Anonymous):
        return str(node.this).lower(), list(node.expressions)
    if isinstance(node, tree.Escape) and isinstance(node.this, tree.Like):
        return "LIKE", [node.this.this, node.this.expression, node.expression]
    if isinstance(node, tree.Like) and isinstance(node.expression, tree.All | tree.Any):
        raise NotSupported("LIKE ALL or ANY", "lists of patterns are not supported")
    if type(node) in _OPERATORS:
        return _OPERATORS[type(node)], [node.this, node.expression]
    if isinstance(node, tree.Neg):
        return "unary -", [node.this]
    if isinstance(node, tree.BitwiseNot):
        return "~", [node.this]
    if isinstance(node, tree.Not):
        return "NOT", [node.this]
    if isinstance(node, tree.Is) and isinstance(node.expression, tree.Null):
        return "IS NULL", [node.this]
    if isinstance(node, tree.In) and node.expressions:
        return "IN", [node.this, *node.expressions]
    if isinstance(node, tree.Case) and node.this is None:
        branches = [
            part for branch in node.args["ifs"] for part in (branch.this, branch.args["true"])
        ]
        default = node.args.get("default")
        return "CASE", branches if default is None else [*branches, default]
    if isinstance(node, tree.If):
        parts = [node.this, node.args["true"], node.args.get("false")]
        return "IF", [part for part in parts if part is not None]
    text = node.sql(dialect="spark")
    raise NotSupported(
        f"{type(node).__name__} ({_shortened(text)})",
        "it is not in the table of supported expressions",
    )


def _column(node: tree.Column, context: Context) -> Translated:
    if node.args.get("table") is not None:
        raise NotSupported("a field of a struct", "the kernels hold no nested values")
    column = context.schema.get(node.name)
    if column is None:
        raise NotSupported(f"column {node.name}", "it is not among the input's columns")
    check_type(column.type, context.settings)
    return Translated(quoted(column.name), column.type)


def _parameter(name: str, context: Context) -> Translated:
    if name not in context.subqueries:
        raise NotSupported(f"subquery {name}", "nothing stands for its value")
    return context.subqueries[name]


def _constant(node: tree.Expr) -> Translated | None:
    """A literal of the canonical text, with its sign."""
    sign = ""
    if isinstance(node, tree.Neg):
        sign, node = "-", node.this
    if isinstance(node, tree.Literal):
        if node.is_string:
            return None if sign else Translated(string_text(node.this), "string", node.this)
        return _number(sign + node.this, "int" if node.this.isdigit() else None)
    if type(node) is not tree.Cast or not isinstance(node.this, tree.Literal):
        return None
    ddl = _ddl(node.to)
    if ddl == "date" and not sign:
        return _date(node.this.this)
    if ddl == "timestamp" and _MOMENT.fullmatch(node.this.this) and not sign:
        text = node.this.this.removesuffix("Z")
        return Translated(f"TIMESTAMP WITH TIME ZONE '{text}+00'", ddl)
    if not node.this.is_string or decimal_type(ddl) is not None:
        return _number(sign + node.this.this, ddl)
    if ddl == "double" and node.this.this in ("NaN", "Infinity", "-Infinity") and not sign:
        return Translated(f"CAST('{node.this.this}' AS DOUBLE)", ddl)
    return None


def _number(text: str, ddl: str | None) -> Translated | None:
    if ddl in ("tinyint", "smallint", "int", "bigint") and text.lstrip("-").isdigit():
        return Translated(f"CAST({text} AS {duckdb_type(ddl)})", ddl, int(text))
    if ddl == "double":
        return Translated(f"CAST('{text}' AS DOUBLE)", ddl)
    kind = None if ddl is None else decimal_type(ddl)
    if kind is None or not re.fullmatch(r"-?[0-9.]+(E[+-]?[0-9]+)?", text, re.IGNORECASE):
        return None
    if -int(Decimal(text).as_tuple().exponent) > kind.scale:
        return None
    return Translated(f"CAST('{Decimal(text):f}' AS {duckdb_type(kind.ddl)})", kind.ddl)


def _date(text: str) -> Translated | None:
    if not _DATE.fullmatch(text):
        raise NotSupported(f"DATE '{text}'", "its year has not four digits")
    return Translated(f"DATE '{text}'", "date")


def _ddl(node: tree.DataType) -> str:
    name = str(node.this.value)
    if name == "DECIMAL":
        sizes = [int(parameter.name) for parameter in node.expressions] or [10, 0]
        return f"decimal({sizes[0]},{sizes[1] if len(sizes) > 1 else 0})"
    if node.expressions:
        return node.sql(dialect="spark").lower()
    return _TYPES.get(name, name.lower())


def _shortened(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}..."

"""Which conditions may fail on a row, and so must not be tested on rows of other queries."""

from __future__ import annotations

from sqlglot import expressions as tree

from headway.base.errors import InvalidPlan
from headway.plan.expressions import Expression

_SAFE: tuple[type[tree.Expr], ...] = (
    tree.Paren,
    tree.Column,
    tree.Identifier,
    tree.Literal,
    tree.Null,
    tree.Boolean,
    tree.EQ,
    tree.NEQ,
    tree.NullSafeEQ,
    tree.LT,
    tree.LTE,
    tree.GT,
    tree.GTE,
    tree.And,
    tree.Or,
    tree.Not,
    tree.Is,
    tree.In,
    tree.Between,
    tree.Like,
    tree.Case,
    tree.If,
    tree.Coalesce,
    tree.Upper,
    tree.Lower,
    tree.Trim,
    tree.StartsWith,
    tree.EndsWith,
    tree.Contains,
    tree.Length,
    tree.Substring,
)


def can_fail(expression: Expression) -> bool:
    """Whether a value may make it raise an error: a division, a sum, a cast of anything but a
    constant, and whatever is not known."""
    try:
        waiting = [expression.parsed]
    except (InvalidPlan, RecursionError):
        return True
    while waiting:
        node = waiting.pop()
        if isinstance(node, tree.Cast | tree.Neg) and node.find(tree.Column) is None:
            continue
        if not isinstance(node, _SAFE):
            return True
        waiting += node.iter_expressions()
    return False

"""Work that a query asks for twice is one node with two users.

Spark writes a common table expression out once per use, with new names each time. Here the copies
become one again, so that it is planned, protected, run and kept as one result.
"""

from __future__ import annotations

from headway.plan.canonical import canonical_forms
from headway.plan.expressions import Expression, quote
from headway.plan.graph import walk, with_inputs
from headway.plan.nodes import Filter, Limit, Named, Node, Project, Scan, StateScan, Values

# A copy of these costs about what reading the shared result would.
_CHEAP = (Scan, StateScan, Values, Filter, Project, Limit)


def share_equal_subplans(root: Node) -> Node:
    """The plan with each set of equal subplans reduced to one, renamed where the others stood."""
    forms = canonical_forms(root)
    worth = _worth_sharing(root)
    first: dict[str, Node] = {}
    done: dict[Node, Node] = {}
    for node in walk(root):
        key = forms[node].key
        if node in worth and key in first:
            done[node] = _renamed(first[key], node)
            continue
        done[node] = with_inputs(node, lambda child: done[child])
        if node in worth:
            first[key] = done[node]
    return done[root]


def _renamed(original: Node, copy: Node) -> Node:
    """`original` with the names of `copy`: equal subplans have the same columns in order."""
    if original.schema == copy.schema:
        return original
    columns = zip(original.column_names, copy.schema, strict=True)
    outputs = (
        Named(column.name, Expression(quote(name), column.type, column.nullable))
        for name, column in columns
    )
    return Project(original, tuple(outputs))


def _worth_sharing(root: Node) -> set[Node]:
    worth: set[Node] = set()
    for node in walk(root):
        if not isinstance(node, _CHEAP) or any(child in worth for child in node.children):
            worth.add(node)
    return worth

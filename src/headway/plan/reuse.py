"""Work that a query asks for twice is one node with two users.

Spark writes a common table expression out once per use, with new names each time. Here the copies
become one again, so that it is planned, protected, run and kept as one result.
"""

from __future__ import annotations

from headway.plan.canonical import canonical_forms
from headway.plan.expressions import column_reference
from headway.plan.graph import replace_nodes, walk
from headway.plan.nodes import Filter, Limit, Named, Node, Project, Scan, StateScan, Values

# A copy of these costs about what reading the shared result would.
_CHEAP = (Scan, StateScan, Values, Filter, Project, Limit)


def share_equal_subplans(root: Node) -> Node:
    """The plan with each set of equal subplans reduced to one, renamed where the others stood."""
    forms = canonical_forms(root)
    worth = _worth_sharing(root)
    first: dict[str, Node] = {}
    for node in walk(root):
        if node in worth:
            first.setdefault(forms[node].key, node)
    copies = {
        node: first[forms[node].key]
        for node in worth
        if first[forms[node].key] != node
    }
    if not copies:
        return root
    renamed: dict[Node, Node] = {}
    for copy, original in copies.items():
        names = {canonical: name for name, canonical in forms[original].names.items()}
        by_name = {column.name: column for column in original.schema}
        renamed[copy] = Project(
            original,
            tuple(
                Named(column.name, column_reference(by_name[names[forms[copy].names[column.name]]]))
                for column in copy.schema
            ),
        )
    return replace_nodes(root, renamed)


def _worth_sharing(root: Node) -> set[Node]:
    worth: set[Node] = set()
    for node in walk(root):
        if not isinstance(node, _CHEAP) or any(child in worth for child in node.children):
            worth.add(node)
    return worth



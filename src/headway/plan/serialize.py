"""Plans as JSON, out and in, without loss.

Nodes are a list, inputs before their users, and refer to each other by position: a node that is
used twice is written once and is one node again when read.
"""

from __future__ import annotations

import types
import typing
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from functools import cache
from typing import Any

import msgspec

from headway.base.errors import InvalidPlan, PlanNotReadable
from headway.plan import expressions, nodes, sources
from headway.plan.graph import walk
from headway.plan.nodes import NODE_KINDS, Node, QueryPlan

FORMAT = "headway-plan"
VERSION = 1

_NODES = {kind.__name__: kind for kind in NODE_KINDS}
_SOURCES: dict[str, type[Any]] = {
    "files": sources.FileSource,
    "range": sources.RangeSource,
    "session": sources.SessionSource,
}
_SOURCE_NAMES = {kind: name for name, kind in _SOURCES.items()}
_PLAIN = (str, int, bool)
_NAMESPACE = {**vars(expressions), **vars(sources), **vars(nodes), "Node": Node}


def plan_to_json(plan: QueryPlan) -> bytes:
    return msgspec.json.encode(plan_to_builtins(plan))


def plan_from_json(text: bytes | str) -> QueryPlan:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise PlanNotReadable(f"not JSON: {error}") from error
    return plan_from_builtins(value)


def plan_to_builtins(plan: QueryPlan) -> dict[str, Any]:
    """The plan as dicts, lists and plain values, ready for any JSON writer."""
    positions: dict[Node, int] = {}
    encoded = []
    for node in walk(plan.root):
        encoded.append({"kind": node.kind, **_encode_fields(node, positions)})
        positions[node] = len(positions)
    return {
        "format": FORMAT,
        "version": VERSION,
        "nodes": encoded,
        "root": positions[plan.root],
        "names": list(plan.names),
        "settings": dict(plan.settings),
    }


def plan_from_builtins(value: Any) -> QueryPlan:
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise PlanNotReadable("this is not a Headway plan")
    if type(value.get("version")) is not int or value["version"] != VERSION:
        raise PlanNotReadable(
            f"the plan is of format version {value.get('version')}, this release reads {VERSION}",
            hint="plan the query again, or use the release that wrote it",
        )
    try:
        settings = value["settings"]
        read: list[Node] = []
        for entry in value["nodes"]:
            cls = _NODES[entry["kind"]]
            read.append(_decode_fields(cls, entry, read))
        return QueryPlan(
            _decode(Node, value["root"], read),
            _decode(tuple[str, ...], value["names"], read),
            tuple((_decode(str, k, read), _decode(str, v, read)) for k, v in settings.items()),
        )
    except InvalidPlan as error:
        raise PlanNotReadable(f"the plan does not fit together: {error}") from error
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise PlanNotReadable(f"the plan is damaged: {type(error).__name__} {error}") from error


def _encode_fields(value: Any, positions: dict[Node, int]) -> dict[str, Any]:
    """Fields of a dataclass; one that holds its default is left out."""
    encoded = {}
    for name, default in _defaults(value.__class__).items():
        item = getattr(value, name)
        if default is MISSING or item != default:
            encoded[name] = _encode(item, positions)
    return encoded


@cache
def _defaults(cls: Any) -> dict[str, Any]:
    """By field that an object is made of."""
    return {field.name: field.default for field in fields(cls) if field.init}


def _encode(value: Any, positions: dict[Node, int]) -> Any:
    if value is None or type(value) in _PLAIN:
        return value
    if isinstance(value, Node):
        return positions[value]
    if isinstance(value, tuple):
        return [_encode(item, positions) for item in value]
    if isinstance(value, StrEnum):
        return value.value
    if is_dataclass(value):
        encoded = _encode_fields(value, positions)
        name = _SOURCE_NAMES.get(type(value))
        return encoded if name is None else {"source": name, **encoded}
    return value


def _decode_fields(cls: type[Any], value: dict[str, Any], read: list[Node]) -> Any:
    hints = _hints(cls)  # type: ignore[arg-type]  # mypy doubts that classes have a hash
    known = {name: _decode(hints[name], value[name], read) for name in hints if name in value}
    return cls(**known)


@cache
def _hints(cls: type[Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(cls, _NAMESPACE)
    return {field.name: hints[field.name] for field in fields(cls) if field.init}


def _decode(hint: Any, value: Any, read: list[Node]) -> Any:
    if hint == sources.Source:
        return _decode_fields(_SOURCES[value["source"]], value, read)
    if isinstance(hint, types.UnionType):
        (inner,) = (option for option in typing.get_args(hint) if option is not type(None))
        return None if value is None else _decode(inner, value, read)
    if typing.get_origin(hint) is tuple:
        return _decode_tuple(typing.get_args(hint), value, read)
    if hint is Node:
        if type(value) is not int or not 0 <= value < len(read):
            raise ValueError(f"{value!r} is no position of a node written before")
        return read[value]
    if is_dataclass(hint):
        return _decode_fields(typing.cast("type[Any]", hint), value, read)
    if issubclass(hint, StrEnum):
        return hint(value)
    if type(value) is not hint:
        raise TypeError(f"expected {hint.__name__}, found {value!r}")
    return value


def _decode_tuple(arguments: tuple[Any, ...], value: Any, read: list[Node]) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise TypeError(f"expected a list, found {value!r}")
    if arguments[-1] is Ellipsis:
        return tuple(_decode(arguments[0], item, read) for item in value)
    return tuple(_decode(hint, item, read) for hint, item in zip(arguments, value, strict=True))

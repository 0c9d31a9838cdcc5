"""A dataflow for people: its stages, what they read, and where their rows go."""

from __future__ import annotations

from typing import Any

from headway.lineage.topology import Feed, Partitioning
from headway.pipelined.programs import Dataflow, SideProgram, StageProgram

MIB = 1 << 20
_FEEDS = {
    Feed.SHARED: "{}: {} units, {}",
    Feed.REPLICATED: "{} in every channel: {} units, {}",
}


def print_dataflow(dataflow: Dataflow) -> str:
    """Every stage with its channels, inputs, operators and readers."""
    lines: list[str] = []
    for number, stage in enumerate(dataflow.stages):
        channels = f"{stage.channels} channel{'s' if stage.channels > 1 else ''}"
        lines.append(f"Stage {number}: {channels}, {_kept(dataflow, number)}")
        lines += [
            f"  {position}. {_read(stage, side)}" for position, side in enumerate(stage.sides)
        ]
        lines += [f"  {text}" for text in stage.about]
        lines += [f"  → {text}" for text in _readers(dataflow, number)]
    return "\n".join(lines)


def dataflow_to_builtins(dataflow: Dataflow) -> list[dict[str, Any]]:
    """The same for a script."""
    return [
        {
            "stage": number,
            "channels": stage.channels,
            "protection": str(stage.protection),
            "operators": list(stage.about),
            "inputs": [
                {
                    "feed": str(side.feed),
                    "units": len(side.table.bytes) if side.table is not None else None,
                    "bytes": sum(side.table.bytes) if side.table is not None else None,
                    "stage": side.upstream if side.feed is Feed.EXCHANGE else None,
                    "partitioning": None if side.partitioning is None else str(side.partitioning),
                    "keys": list(side.keys),
                    "after": list(side.after),
                }
                for side in stage.sides
            ],
        }
        for number, stage in enumerate(dataflow.stages)
    ]


def _kept(dataflow: Dataflow, number: int) -> str:
    if dataflow.topology.stages[number].result:
        return "the result, in the reliable store"
    return f"protection {dataflow.stages[number].protection}"


def _read(stage: StageProgram, side: SideProgram) -> str:
    after = ", ".join(map(str, side.after))
    behind = f", after {after}" if after else ""
    if side.table is not None:
        size = f"{sum(side.table.bytes) / MIB:,.1f} MiB"
        units = len(side.table.bytes)
        name = side.table.name or "a table that Spark stages"
        return f"reads {_FEEDS[side.feed].format(name, units, size)}{behind}"
    return f"reads stage {side.upstream}{behind}"


def _readers(dataflow: Dataflow, number: int) -> list[str]:
    found = []
    for consumer in dataflow.topology.consumers[number]:
        keys = ", ".join(dataflow.stages[consumer.stage].sides[consumer.side].keys)
        how = f"{consumer.partitioning} by {keys}" if keys else str(consumer.partitioning)
        if consumer.partitioning is Partitioning.GATHER:
            how = "gathered"
        found.append(f"stage {consumer.stage}, {how}")
    return found

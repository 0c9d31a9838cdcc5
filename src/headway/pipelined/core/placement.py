"""Which worker runs which channel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from headway.lineage.names import ChannelId
from headway.lineage.topology import Topology


def first_places(topology: Topology, workers: Sequence[str]) -> dict[ChannelId, str]:
    """Equal channels of all stages side by side, and single ones where there is least to do."""
    places: dict[ChannelId, str] = {}
    load = dict.fromkeys(workers, 0)
    single = [c for c in topology.channels if topology.stages[c.stage].channels == 1]
    for channel in topology.channels:
        if topology.stages[channel.stage].channels > 1:
            places[channel] = workers[channel.channel % len(workers)]
            load[places[channel]] += 1
    for channel in single:
        places[channel] = min(workers, key=load.__getitem__)
        load[places[channel]] += 1
    return places


def even_out(
    places: Mapping[ChannelId, str], newcomer: str, live: Sequence[str]
) -> list[ChannelId]:
    """The channels to be moved to the newcomer so that it runs as many as the others."""
    load = Counter(dict.fromkeys(live, 0))
    load.update(worker for worker in places.values() if worker in load)
    moved = []
    for channel, worker in sorted(places.items(), reverse=True):
        if worker in load and load[worker] - load[newcomer] >= 2:
            moved.append(channel)
            load[worker] -= 1
            load[newcomer] += 1
    return moved

"""From a protected plan to a dataflow: where rows are exchanged, and what every stage does.

With one worker nothing needs to be exchanged, and the whole query is one stage. With more, a scan
is spread over all channels, and rows move only where an operator wants those of a group together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import singledispatchmethod
from itertools import count

from headway.base.errors import NotSupported
from headway.lineage.topology import Feed, Partitioning, Protection
from headway.pipelined.kernels.typed import Translated, quoted
from headway.pipelined.programs import BATCH, ColumnType, Dataflow, TableInput
from headway.pipelined.relations import AggregateTexts, Subqueries, Writer, columns_of
from headway.pipelined.stages import HeldDraft, SideDraft, StageDraft, Stream
from headway.pipelined.units import table_input
from headway.plan.cardinalities import Estimate
from headway.plan.expressions import Expression
from headway.plan.graph import use_counts, walk
from headway.plan.nodes import (
    Aggregate,
    Expand,
    Filter,
    Join,
    JoinKind,
    Limit,
    Node,
    Project,
    QueryPlan,
    Scan,
    Side,
    Sort,
    StateScan,
    Union,
    Values,
    Window,
)
from headway.plan.printer import describe

Keys = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Choices:
    """What the compiler may choose by."""

    workers: int = 1
    protection: Protection = Protection.BACKUP
    broadcast_bytes: int = 64 << 20
    """A build side that is larger is partitioned, never copied to every channel."""
    replicate_bytes: int = 2 << 20
    """A table that is smaller is read by every channel that needs it."""
    gather_bytes: int = 1 << 20
    """Groups that are fewer are merged in one channel."""


@dataclass(frozen=True)
class Fragment:
    """Rows of a node inside an open stage. `keys` are alternatives: rows that agree on all columns
    of one of them are in the same channel."""

    stage: StageDraft
    streams: tuple[Stream, ...]
    columns: tuple[ColumnType, ...]
    keys: frozenset[Keys] = frozenset()

    @property
    def single(self) -> bool:
        return self.stage.channels == 1

    def mapped(self, change: Callable[[Stream], Stream], node: Node) -> Fragment:
        """The same rows after an operator that passes them on."""
        columns = columns_of(node.schema) or _NO_COLUMNS
        return replace(self, streams=tuple(map(change, self.streams)), columns=columns)


_NO_COLUMNS = (ColumnType("no_columns", "INTEGER"),)
_CHEAP = (Scan, StateScan, Filter, Project, Values)


def compile_plan(
    plan: QueryPlan,
    estimates: Mapping[Node, Estimate],
    choices: Choices = Choices(),  # noqa: B008 - frozen
    staged: Mapping[Node, TableInput] | None = None,
) -> Dataflow:
    """The dataflow of a plan whose every operator has a kernel. `staged` has the tables that
    came in through Spark, and the saved states."""
    return _Compiler(plan, estimates, choices, staged or {}).compile()


class _Compiler:
    def __init__(
        self,
        plan: QueryPlan,
        estimates: Mapping[Node, Estimate],
        choices: Choices,
        staged: Mapping[Node, TableInput],
    ) -> None:
        self._plan = plan
        self._estimates = estimates
        self._choices = choices
        self._staged = staged
        self._writer = Writer(dict(plan.settings))
        self._numbers = count()
        self._stages: list[StageDraft] = []
        self._only_stage = self._new_stage(1) if choices.workers == 1 else None
        self._uses = _reader_counts(plan)
        self._shared: dict[Node, Fragment | StageDraft] = {}
        self._places = {node: place for place, node in enumerate(walk(plan.root))}

    def compile(self) -> Dataflow:
        root = self._fragment(self._plan.root)
        if self._plan.is_ordered and not root.single:
            root = self._gather(root)
        root.stage.emit(root.streams, root.columns)
        stages = _in_order(root.stage)
        numbers = {stage: number for number, stage in enumerate(stages)}
        programs = tuple(stage.finish(numbers) for stage in stages)
        held = tuple(each for stage in stages for each in stage.finish_held(numbers[stage]))
        return Dataflow(programs, self._plan.names, self._plan.is_ordered, held)

    def _new_stage(self, channels: int) -> StageDraft:
        return StageDraft(channels, self._choices.protection)

    def _new_stage_by(self, keys: list[Expression]) -> StageDraft:
        """For rows that are moved by these keys: into one channel where they have no hash."""
        return self._new_stage(self._choices.workers if _have_hash(keys) else 1)

    def _table(self, kind: str) -> str:
        return f"{kind}_{next(self._numbers)}"

    # Nodes

    def _fragment(self, node: Node, into: StageDraft | None = None) -> Fragment:
        """The rows of a node; `into` a stage whose every channel is to have all of them."""
        if into is None and self._uses[node] > 1 and not self._is_cheap(node):
            return self._shared_fragment(node)
        found = self._build(node, into)
        found.stage.about.append(describe(node))
        return found

    def _shared_fragment(self, node: Node) -> Fragment:
        """A result with several readers is made once."""
        if node not in self._shared:
            made = self._build(node, None)
            made.stage.about.append(describe(node))
            if self._only_stage is not None:
                table = self._collected(made, "shared", node)
                self._shared[node] = table
            else:
                made.stage.emit(made.streams, made.columns)
                self._shared[node] = made.stage
        known = self._shared[node]
        if isinstance(known, Fragment):
            return known
        stage = self._new_stage(known.channels)
        stream = stage.read_stage(known, Partitioning.FORWARD)
        return Fragment(stage, (stream,), known.output)

    def _is_cheap(self, node: Node) -> bool:
        """Reading the table again costs less than keeping what was read."""
        return all(isinstance(below, _CHEAP) for below in walk(node, subqueries=False))

    @singledispatchmethod
    def _build(self, node: Node, into: StageDraft | None) -> Fragment:
        raise NotSupported(f"operator {node.kind}", "it has no kernel")

    @_build.register(Scan)
    @_build.register(StateScan)
    def _(self, node: Scan | StateScan, into: StageDraft | None) -> Fragment:
        table = self._input(node)
        columns = columns_of(node.schema) or _NO_COLUMNS
        if into is not None:
            feed = Feed.SHARED if into.channels == 1 else Feed.REPLICATED
            return Fragment(into, (into.read_table(table, columns, feed),), columns)
        stage = self._only_stage or self._new_stage(self._choices.workers)
        return Fragment(stage, (stage.read_table(table, columns, Feed.SHARED),), columns)

    def _input(self, node: Scan | StateScan) -> TableInput:
        known = self._staged.get(node)
        if known is not None:
            return known
        if isinstance(node, StateScan):
            raise NotSupported(f"state {node.state}", "it was not opened")
        return table_input(node)

    @_build.register
    def _(self, node: Values, into: StageDraft | None) -> Fragment:
        stage = into or self._only_stage or self._new_stage(1)
        columns = columns_of(node.schema) or _NO_COLUMNS
        return Fragment(stage, (Stream(self._writer.values(node)),), columns)

    @_build.register
    def _(self, node: Filter, into: StageDraft | None) -> Fragment:
        rows = self._fragment(node.input, into)
        values, needs = self._subqueries(node, rows.stage)
        return rows.mapped(
            lambda s: s.with_sql(self._writer.filter(node, s.sql, values), needs), node
        )

    @_build.register
    def _(self, node: Project, into: StageDraft | None) -> Fragment:
        rows = self._fragment(node.input, into)
        values, needs = self._subqueries(node, rows.stage)
        made = rows.mapped(
            lambda s: s.with_sql(self._writer.project(node, s.sql, values), needs), node
        )
        renamed: dict[str, list[str]] = {}
        for output in node.outputs:
            if output.expression.column is not None:
                renamed.setdefault(output.expression.column, []).append(output.name)
        return replace(made, keys=_renamed(rows.keys, renamed))

    @_build.register
    def _(self, node: Expand, into: StageDraft | None) -> Fragment:
        rows = self._fragment(node.input)
        values, needs = self._subqueries(node, rows.stage)
        made = rows.mapped(
            lambda s: s.with_sql(self._writer.expand(node, s.sql, values), needs), node
        )
        return replace(made, keys=frozenset())

    @_build.register
    def _(self, node: Union, into: StageDraft | None) -> Fragment:
        parts = [self._fragment(child) for child in node.inputs]
        channels = max(part.stage.channels for part in parts)
        parts = [p if p.stage.channels == channels else self._spread(p, channels) for p in parts]
        stage = parts[0].stage
        streams: list[Stream] = []
        for part in parts:
            stage.absorb(part.stage)
            streams += [s.with_sql(self._writer.union(node, s.sql)) for s in part.streams]
        return Fragment(stage, tuple(streams), columns_of(node.schema) or _NO_COLUMNS)

    @_build.register
    def _(self, node: Join, into: StageDraft | None) -> Fragment:
        if node.join is JoinKind.FULL:
            return self._full_join(node)
        build_left = node.build is Side.LEFT
        if node.join is JoinKind.RIGHT:
            build_left = True
        elif node.join not in (JoinKind.INNER, JoinKind.CROSS):
            build_left = False
        build, probe = (node.left, node.right) if build_left else (node.right, node.left)
        if self._only_stage is not None:  # what is collected first also comes first in the text
            table = self._collected(self._fragment(build), "build", build)
            return self._probe(node, self._fragment(probe), table, build_left)
        rows = self._fragment(probe)
        if self._is_small_table(build):
            table = self._collected(self._fragment(build, rows.stage), "build", build, copied=True)
            return self._probe(node, rows, table, build_left)
        if not _have_hash(_both_sides(node)) or self._broadcasts(node, build, probe, rows):
            copied = self._copied(self._fragment(build), rows.stage)
            table = self._collected(copied, "build", build, copied=True)
            return self._probe(node, rows, table, build_left)
        return self._partitioned_join(node, self._fragment(build), rows, build_left)

    def _partitioned_join(
        self, node: Join, build: Fragment, rows: Fragment, build_left: bool
    ) -> Fragment:
        """Both sides by their keys; a side that already is stays where it is."""
        built = node.left if build_left else node.right
        build_keys = [key.left if build_left else key.right for key in node.keys]
        probe_keys = [key.right if build_left else key.left for key in node.keys]
        stage = self._new_stage(self._choices.workers)
        if _column_names(probe_keys) in rows.keys:
            stage = rows.stage
        else:
            rows = self._exchanged(rows, node, probe_keys, stage)
        table = self._collected(self._exchanged(build, node, build_keys, stage), "build", built)
        made = self._probe(node, rows, table, build_left)
        both = {_column_names(probe_keys)}
        if node.join is JoinKind.INNER:
            both.add(_column_names(build_keys))
        return replace(made, keys=frozenset(k for k in both if k))

    def _probe(self, node: Join, rows: Fragment, table: Fragment, build_left: bool) -> Fragment:
        (built,) = table.streams
        values, needs = self._subqueries(node, rows.stage)

        def joined(stream: Stream) -> Stream:
            left, right = (built.sql, stream.sql) if build_left else (stream.sql, built.sql)
            sql = self._writer.join(node, left, right, values)
            return stream.with_sql(sql, built.needs | needs)

        return rows.mapped(joined, node)

    def _full_join(self, node: Join) -> Fragment:
        left, right = self._fragment(node.left), self._fragment(node.right)
        if self._only_stage is None:
            stage = self._new_stage_by(_both_sides(node))
            left = self._exchanged(left, node, [key.left for key in node.keys], stage)
            right = self._exchanged(right, node, [key.right for key in node.keys], stage)
        left = self._collected(left, "left", node.left)
        right = self._collected(right, "right", node.right)
        ours, theirs = left.streams[0], right.streams[0]
        values, needs = self._subqueries(node, left.stage)
        sql = self._writer.join(node, ours.sql, theirs.sql, values)
        stream = Stream(sql, None, ours.needs | theirs.needs | needs)
        return Fragment(left.stage, (stream,), columns_of(node.schema) or _NO_COLUMNS)

    @_build.register
    def _(self, node: Aggregate, into: StageDraft | None) -> Fragment:
        rows = self._fragment(node.input)
        if not rows.single:
            return self._spread_aggregate(node, rows)
        values, needs = self._subqueries(node, rows.stage)
        return self._local_aggregate(node, rows, self._writer.aggregate(node, values), needs)

    def _local_aggregate(
        self, node: Aggregate, rows: Fragment, texts: AggregateTexts, needs: frozenset[SideDraft]
    ) -> Fragment:
        """All rows of a group are in this channel."""
        streams = [s.with_sql(s.sql, needs) for s in rows.streams]
        if _at_hand(streams):
            made = streams[0].with_sql(texts.whole(streams[0].sql))
        elif texts.splittable and self._reduces(node):
            partials = [s.with_sql(texts.partial(s.sql)) for s in streams]
            made = self._merged(rows.stage, texts, partials, node)
        else:
            table = rows.stage.collect(self._table("rows"), rows.columns, streams)
            made = table.with_sql(texts.whole(table.sql))
            self._hold(rows.stage, node, made, columns_of(node.schema))
        names = {key.expression.column: [key.name] for key in node.keys if key.expression.column}
        columns = columns_of(node.schema) or _NO_COLUMNS
        return Fragment(rows.stage, (made,), columns, _renamed(rows.keys, names))

    def _merged(
        self, stage: StageDraft, texts: AggregateTexts, partials: list[Stream], node: Aggregate
    ) -> Stream:
        name = self._table("groups")
        table = stage.collect(
            name, texts.partial_columns or _NO_COLUMNS, partials, texts.merge(quoted(name))
        )
        made = table.with_sql(texts.final(texts.merge(table.sql)))
        self._hold(stage, node, made, columns_of(node.schema))
        return made

    def _spread_aggregate(self, node: Aggregate, rows: Fragment) -> Fragment:
        """Rows of a group are anywhere: they are grouped where they are, moved, and merged."""
        values, needs = self._subqueries(node, rows.stage)
        texts = self._writer.aggregate(node, values)
        columns = {key.expression.column for key in node.keys}
        if any(set(keys) <= columns for keys in rows.keys):
            return self._local_aggregate(node, rows, texts, needs)
        names = tuple(key.name for key in node.keys)
        keys = frozenset({names} if names else ())
        if texts.splittable and (self._reduces(node) or not names):
            partials = [s.with_sql(texts.partial(s.sql), needs) for s in rows.streams]
            rows.stage.emit(partials, texts.partial_columns or _NO_COLUMNS)
            if not names or self._are_few(node):
                stage = self._new_stage(1)
                arrived = stage.read_stage(rows.stage, Partitioning.GATHER)
            else:
                stage = self._new_stage(self._choices.workers)
                by = tuple(map(quoted, names))
                arrived = stage.read_stage(rows.stage, Partitioning.HASH, by)
            made = self._merged(stage, texts, [arrived], node)
            return Fragment(stage, (made,), columns_of(node.schema) or _NO_COLUMNS, keys)
        expressions = [key.expression for key in node.keys]
        stage = self._new_stage_by(expressions)
        moved = self._exchanged(rows, node, expressions, stage)
        values, needs = self._subqueries(node, stage)
        texts = self._writer.aggregate(node, values)
        return replace(self._local_aggregate(node, moved, texts, needs), keys=keys)

    def _reduces(self, node: Aggregate) -> bool:
        """Grouping each batch by itself leaves far fewer rows than it had."""
        rows, groups = self._estimates.get(node.input), self._estimates.get(node)
        return rows is None or groups is None or groups.rows * 3 <= rows.rows

    def _are_few(self, node: Aggregate) -> bool:
        """Merging the groups in several channels would cost more than it saves."""
        groups = self._estimates.get(node)
        return groups is not None and groups.bytes <= self._choices.gather_bytes

    @_build.register
    def _(self, node: Window, into: StageDraft | None) -> Fragment:
        rows = self._fragment(node.input)
        partition = list(node.partition_by)
        names = {e.column for e in partition}
        if not rows.single and not any(set(k) <= names for k in rows.keys):
            rows = self._exchanged(rows, node, partition, self._new_stage_by(partition))
        table = self._at_hand_or_collected(rows, "window", node.input)
        values, needs = self._subqueries(node, rows.stage)
        return table.mapped(
            lambda s: s.with_sql(self._writer.window(node, s.sql, values), needs), node
        )

    @_build.register
    def _(self, node: Sort, into: StageDraft | None) -> Fragment:
        return self._sorted(node, None)

    @_build.register
    def _(self, node: Limit, into: StageDraft | None) -> Fragment:
        below = node.input
        if isinstance(below, Sort) and self._uses[below] == 1:
            return self._sorted(below, node)
        rows = self._fragment(below)
        if _at_hand(rows.streams) and rows.single:
            return rows.mapped(lambda s: s.with_sql(self._writer.limit(node, s.sql)), node)
        first = rows.mapped(lambda s: s.with_sql(self._writer.first_rows(node, s.sql)), node)
        if not first.single:
            first = self._gather(first)
        table = self._collected(first, "first")
        return table.mapped(lambda s: s.with_sql(self._writer.limit(node, s.sql)), node)

    def _sorted(self, node: Sort, limit: Limit | None) -> Fragment:
        rows = self._fragment(node.input)
        values, needs = self._subqueries(node, rows.stage)
        top = None
        if limit is not None and limit.count is not None:
            top = replace(limit, count=limit.count + limit.offset, offset=0)

        def first(stream: Stream) -> Stream:
            return stream.with_sql(self._writer.sort(node, stream.sql, values, top), needs)

        if top is not None and not (_at_hand(rows.streams) and rows.single):
            rows = rows.mapped(first, node)
        if not rows.single:
            rows = self._gather(rows)
            values, needs = self._subqueries(node, rows.stage)
        table = self._at_hand_or_collected(rows, "sorted", None if top else node.input)
        if limit is not None:
            table.stage.about.append(describe(node))
        return table.mapped(
            lambda s: s.with_sql(self._writer.sort(node, s.sql, values, limit), needs), node
        )

    # Subqueries

    def _subqueries(self, node: Node, stage: StageDraft) -> tuple[Subqueries, frozenset[SideDraft]]:
        """A text for the value of each scalar subquery, which is kept in a table of the stage."""
        values: dict[str, Translated] = {}
        needs: frozenset[SideDraft] = frozenset()
        for subquery in node.subqueries:
            rows = self._fragment(subquery.plan)
            if rows.stage is not stage:
                rows = self._copied(rows, stage)
            (kept,) = self._collected(rows, "value", subquery.plan, copied=True).streams
            type_ = subquery.plan.schema[0].type
            values[subquery.name] = Translated(f"(SELECT * FROM {kept.sql})", type_)
            needs |= kept.needs
        return values, needs

    # Moving rows

    def _exchanged(
        self, rows: Fragment, node: Node, keys: list[Expression], stage: StageDraft
    ) -> Fragment:
        """The rows in another stage, those of equal keys in the same channel."""
        if rows.stage is stage:
            return rows
        source = self._closed(rows)
        if stage.channels > 1:
            texts = tuple(self._writer.key(node, key) for key in keys)
            stream = stage.read_stage(source, Partitioning.HASH, texts)
        else:
            stream = stage.read_stage(source, Partitioning.GATHER)
        names = _column_names(keys)
        return Fragment(stage, (stream,), rows.columns, frozenset({names} if names else ()))

    def _gather(self, rows: Fragment) -> Fragment:
        stage = self._new_stage(1)
        stream = stage.read_stage(self._closed(rows), Partitioning.GATHER)
        return Fragment(stage, (stream,), rows.columns)

    def _spread(self, rows: Fragment, channels: int) -> Fragment:
        stage = self._new_stage(channels)
        keys = tuple(quoted(column.name) for column in rows.columns)
        stream = stage.read_stage(self._closed(rows), Partitioning.HASH, keys)
        return Fragment(stage, (stream,), rows.columns)

    def _copied(self, rows: Fragment, stage: StageDraft) -> Fragment:
        """All rows in every channel of another stage."""
        how = Partitioning.BROADCAST if stage.channels > 1 else Partitioning.GATHER
        return Fragment(stage, (stage.read_stage(self._closed(rows), how),), rows.columns)

    def _closed(self, rows: Fragment) -> StageDraft:
        """The stage whose output these rows are; that of a result which is read as it is, when
        nothing has been done with it."""
        upstream = rows.stage.passes_on
        if upstream is not None and [s.sql for s in rows.streams] == [f"SELECT * FROM {BATCH}"]:
            return upstream
        rows.stage.emit(rows.streams, rows.columns)
        return rows.stage

    def _collected(
        self, rows: Fragment, kind: str, node: Node | None = None, *, copied: bool = False
    ) -> Fragment:
        """The rows in a table, which are those of the node if there is one."""
        if _at_hand(rows.streams) and rows.streams[0].sql.startswith('"'):
            return rows  # a table already
        table = rows.stage.collect(self._table(kind), rows.columns, rows.streams)
        if node is not None:
            self._hold(rows.stage, node, table, columns_of(node.schema), copied)
        return replace(rows, streams=(table,))

    def _at_hand_or_collected(self, rows: Fragment, kind: str, node: Node | None) -> Fragment:
        return rows if _at_hand(rows.streams) else self._collected(rows, kind, node)

    def _hold(
        self,
        stage: StageDraft,
        node: Node,
        table: Stream,
        columns: tuple[ColumnType, ...],
        copied: bool = False,
    ) -> None:
        """Rows that can be kept; without columns there is nothing to keep."""
        if columns and node in self._places:
            stage.held.append(HeldDraft(self._places[node], table, columns, copied))

    # Choices

    def _is_small_table(self, node: Node) -> bool:
        if not self._is_cheap(node) or any(below.subqueries for below in walk(node)):
            return False
        scans = [below for below in walk(node) if isinstance(below, Scan | StateScan)]
        sizes = (sum(self._input(scan).bytes) for scan in scans)
        return sum(sizes) <= self._choices.replicate_bytes

    def _broadcasts(self, node: Join, build: Node, probe: Node, rows: Fragment) -> bool:
        """Copying the build side to every channel moves fewer bytes than partitioning both."""
        if node.join is JoinKind.NULL_AWARE_ANTI:
            return True
        size, other = self._estimates.get(build), self._estimates.get(probe)
        if size is None or other is None:
            return False
        if rows.single:
            return size.bytes <= self._choices.broadcast_bytes
        copied = size.bytes * rows.stage.channels
        return size.bytes <= self._choices.broadcast_bytes and copied <= size.bytes + other.bytes


def _reader_counts(plan: QueryPlan) -> Counter[Node]:
    """How many times each result is read. What puts the query's rows in order is made for the query
    alone, and others read its input: rows may lose their order on the way to another stage."""
    uses = use_counts(plan.root)
    node = plan.root if plan.is_ordered else None
    while isinstance(node, Project | Filter | Limit | Sort):
        uses[node.input] += uses[node] - 1
        uses[node] = 1
        node = None if isinstance(node, Sort) else node.input
    return uses


def _at_hand(streams: tuple[Stream, ...] | list[Stream]) -> bool:
    """One stream over state alone: nothing needs to be collected."""
    return len(streams) == 1 and streams[0].side is None


def _both_sides(node: Join) -> list[Expression]:
    return [side for key in node.keys for side in (key.left, key.right)]


def _have_hash(keys: list[Expression]) -> bool:
    """Whoever sends a row knows no value of a subquery that its keys would need."""
    return bool(keys) and not any(key.subqueries for key in keys)


def _column_names(keys: list[Expression]) -> Keys:
    """The columns that the keys are; nothing when one of them is computed."""
    names = [key.column for key in keys]
    return tuple(name for name in names if name is not None) if all(names) else ()


def _renamed(keys: frozenset[Keys], names: Mapping[str, list[str]]) -> frozenset[Keys]:
    """Alternatives whose columns all live on, under their first new name."""
    return frozenset(
        tuple(names[name][0] for name in alternative)
        for alternative in keys
        if all(name in names for name in alternative)
    )


def _in_order(last: StageDraft) -> list[StageDraft]:
    """Every stage behind those that it reads."""
    done: list[StageDraft] = []

    def visit(stage: StageDraft) -> None:
        for side in stage.sides:
            if side.upstream is not None and side.upstream not in done:
                visit(side.upstream)
        if stage not in done:
            done.append(stage)

    visit(last)
    return done

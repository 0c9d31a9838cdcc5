"""Batches on the command line: what was asked for, and what is told about it at the end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast

from rich.console import Console
from rich.text import Text

from headway.base.errors import WrongUsage
from headway.cli import options
from headway.cli.output import bar_text, duration_text, plural, table

if TYPE_CHECKING:
    from headway.cli.batch import Outcome
    from headway.session import BatchProgress, Query, QueryProgress, RunHandle, Session
    from headway.session.batch_plans import BatchPlan

LATE = 3
"""The exit code when all that is missing are queries that the deadline came before."""
_MOST_NAMED = 10


@dataclass(frozen=True, slots=True)
class AskedBatch:
    """Without any deadline, the queries are run one by one."""

    deadline: float | None = None
    after_deadline: Literal["stop", "continue"] = "stop"
    deadlines: Mapping[str, float] = field(default_factory=dict)
    priorities: Mapping[str, float] = field(default_factory=dict)
    failures_per_hour: float | None = None

    @property
    def is_batch(self) -> bool:
        return self.deadline is not None or bool(self.deadlines)

    def query(self, session: Session, name: str, sql: str) -> Query:
        return session.sql(
            sql,
            name=name,
            deadline=self.deadlines.get(name),
            priority=self.priorities.get(name, 0.0),
        )

    def explain(self, session: Session, queries: Iterable[Query]) -> BatchPlan:
        """How it would be run."""
        return session.explain_batch(
            queries, deadline=self.deadline, failures_per_hour=self.failures_per_hour
        )

    def start(self, session: Session, queries: Iterable[Query]) -> RunHandle:
        if not self.is_batch:
            return session.run(queries)
        return session.batch(
            queries,
            deadline=self.deadline,
            after_deadline=self.after_deadline,
            failures_per_hour=self.failures_per_hour,
        )


def batch_from(
    names: list[str],
    deadline: str | None,
    after_deadline: str,
    deadlines_of: list[str] | None,
    priorities: list[str] | None,
    failures_per_hour: float | None,
) -> AskedBatch:
    """The options together, checked before anything is started."""
    if after_deadline not in ("stop", "continue"):
        raise WrongUsage(
            f"--after-deadline {after_deadline} is not known", hint="give stop or continue"
        )
    own = options.by_query(deadlines_of, "--deadline-of")
    ranks = options.by_query(priorities, "--priority")
    if deadline is None and not own and (ranks or failures_per_hour is not None):
        raise WrongUsage(
            "these options are for a batch with a deadline",
            hint="give --deadline, or --deadline-of a query, as well",
        )
    for name in (*own, *ranks):
        if name not in names:
            raise WrongUsage(f"there is no query {name}", hint=f"there are: {', '.join(names)}")
    return AskedBatch(
        None if deadline is None else options.seconds_of(deadline, "--deadline"),
        cast(Literal["stop", "continue"], after_deadline),
        {name: options.seconds_of(text, "--deadline-of") for name, text in own.items()},
        {name: _number(text) for name, text in ranks.items()},
        failures_per_hour,
    )


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise WrongUsage(f"--priority {text} is no number") from None


def late_queries(queries: Iterable[QueryProgress], batch: BatchProgress) -> tuple[str, ...]:
    """Those that were not done by the deadline, failed and suspended ones aside. Where the batch
    was stopped before that, nobody knows."""
    return tuple(
        query.name
        for query in queries
        if query.status not in ("failed", "suspended") and batch.is_late(query.name)
    )


def print_batch(outcome: Outcome, console: Console) -> None:
    """The mini-batches, how many queries made it, and what was shared."""
    batch = outcome.batch
    assert batch is not None
    shown = table("mini-batch", "queries", "from", "to", "", numbers=("queries", "from", "to"))
    longest = max((m.ended or batch.elapsed for m in batch.mini_batches), default=1.0)
    for each in batch.mini_batches:
        ended = each.ended or batch.elapsed
        bar = bar_text(ended - each.began, longest)
        shown.add_row(
            str(each.number),
            str(len(each.queries)),
            duration_text(each.began),
            duration_text(ended),
            bar,
        )
    if batch.mini_batches:
        console.print(shown, "")
    if batch.deadline is not None:
        made = sum(q.status == "done" and q.name not in outcome.late for q in outcome.queries)
        told = f"{made} of {plural(len(outcome.queries), 'query', 'queries')} within "
        console.print(Text(told + duration_text(batch.deadline), "bold"))
    elif batch.deadlines:
        made = sum(
            name in batch.finished_at and not batch.is_late(name) for name in batch.deadlines
        )
        told = plural(len(batch.deadlines), "query", "queries")
        console.print(Text(f"{made} of {told} by their own deadlines", "bold"))
    for name in outcome.late[:_MOST_NAMED]:
        console.print(Text(f"  late: {name}, {batch.why_late(name)}"))
    if len(outcome.late) > _MOST_NAMED:
        console.print(f"  and {len(outcome.late) - _MOST_NAMED} more are late")
    once = sum(each.rows_read_once for each in batch.mini_batches)
    alone = sum(each.rows_read_alone for each in batch.mini_batches)
    if once:
        console.print(
            f"  {once:,.0f} rows of large tables were read once for several queries, "
            f"instead of {alone:,.0f}"
        )
    if batch.not_shared:
        (name, reasons), *others = batch.not_shared.items()
        more_text = f" (and {plural(len(others), 'more query', 'more queries')})" if others else ""
        console.print(f"  parts run by themselves: {name}, {reasons[0]}{more_text}")
    lost = batch.lost
    if lost.executors or lost.tasks:
        work = [f"{duration_text(lost.seconds)} of Spark's tasks"] if lost.seconds else []
        work += [f"{plural(lost.tasks, 'task')} of workers done again"] if lost.tasks else []
        with_them = f", with {' and '.join(work)}" if work else ""
        console.print(f"  {plural(lost.executors, 'executor')} lost meanwhile{with_them}")
    console.print(f"  {duration_text(batch.planning)} were spent on planning", "")


def batch_to_builtins(outcome: Outcome) -> dict[str, Any]:
    batch = outcome.batch
    assert batch is not None
    return {
        "deadline": batch.deadline,
        "late": list(outcome.late),
        "why_late": {name: batch.why_late(name) for name in outcome.late},
        "lost": asdict(batch.lost),
        "planning_seconds": round(batch.planning, 3),
        "not_shared": {name: list(reasons) for name, reasons in batch.not_shared.items()},
        "finished_at": {name: round(at, 3) for name, at in batch.finished_at.items()},
        "mini_batches": [
            {
                "number": each.number,
                "queries": list(each.queries),
                "closed_by": each.closed_by,
                "predicted": round(each.predicted, 3),
                "began": round(each.began, 3),
                "ended": None if each.ended is None else round(each.ended, 3),
                "shared_steps": each.shared_steps,
                "rows_read_once": round(each.rows_read_once),
                "rows_read_alone": round(each.rows_read_alone),
                "failures": each.lost.executors,
                "seconds_lost": round(each.lost.seconds, 3),
                "tasks_done_again": each.lost.tasks,
                "put_back": list(each.put_back),
            }
            for each in batch.mini_batches
        ],
    }

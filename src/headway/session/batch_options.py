"""What a batch is asked for: checked, kept with its run, and found again by who goes on with it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any

from headway.base.errors import WrongUsage
from headway.session.batch_planning import AfterDeadline, BatchOptions, Policy
from headway.session.planning import PlannedQuery
from headway.session.resuming import BATCH
from headway.storage import Run

MakeOptions = Callable[
    [float, float | None, AfterDeadline, float | None, Policy | None], BatchOptions
]


def checked_options(options: BatchOptions) -> BatchOptions:
    deadline, failures = options.deadline, options.failures_per_hour
    if deadline is not None and not deadline > 0:
        raise WrongUsage(f"a deadline of {deadline:g} seconds has passed already")
    if options.after_deadline not in ("stop", "continue"):
        raise WrongUsage(
            f"after the deadline a batch can stop or continue, not {options.after_deadline}"
        )
    if failures < 0:
        raise WrongUsage(f"{failures:g} failures per hour is no number of failures")
    return options


def record_batch(
    run: Run,
    queries: Iterable[PlannedQuery],
    options: BatchOptions,
    failures_per_hour: float | None,
) -> None:
    """For whoever goes on with the run. Deadlines are from when it was asked for, which is longer
    ago than the run by the time that it was planned for; `failures_per_hour` is what was given,
    None where earlier batches are to tell."""
    asked = list(queries)
    run.append(
        BATCH,
        None,
        deadline=options.deadline,
        planned_for=round(time.monotonic() - options.began - run.age(), 3),
        after_deadline=options.after_deadline,
        deadlines={q.name: q.deadline for q in asked if q.deadline is not None},
        priorities={q.name: q.priority for q in asked if q.priority},
        failures_per_hour=failures_per_hour,
        policy=asdict(options.policy),
    )


def batch_age(run: Run, asked: Mapping[str, Any]) -> float:
    """Seconds since a batch was asked for."""
    return run.age() + float(asked.get("planned_for", 0.0))


def options_left(
    run: Run, asked: Mapping[str, Any], deadline: float | None, make: MakeOptions
) -> BatchOptions:
    """What a batch was started with, or with a new deadline, in seconds from now. Its clock goes on
    from when it was started."""
    age = batch_age(run, asked)
    stops = asked["after_deadline"] == "stop"
    if deadline is None and asked["deadline"] is not None:
        deadline = float(asked["deadline"]) - age
        if deadline <= 0 and stops:
            raise WrongUsage(
                f"the deadline of run {run.run_id} has passed",
                hint="give a new one: --deadline 5m",
            )
        deadline = max(deadline, 0.001)
    now = time.monotonic()
    policy = Policy(**asked["policy"]) if "policy" in asked else None
    failures = asked.get("failures_per_hour")
    options = make(now, deadline, "stop" if stops else "continue", failures, policy)
    return replace(options, began=now - age, deadline=None if deadline is None else deadline + age)

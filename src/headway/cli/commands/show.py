"""headway show: one run, from what the store keeps of it."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.text import Text

from headway.base.errors import HeadwayError, QueryFailed, WrongUsage
from headway.cli import options
from headway.cli.output import (
    bytes_text,
    count_text,
    duration_text,
    local_time,
    plural,
    print_error,
    print_json,
    seconds_text,
    status_text,
    stdout,
    table,
)
from headway.cli.rows import kept_rows, print_rows
from headway.cli.stores import find_run
from headway.storage import Event, QueryRecord, Run

_DRIVER_SECONDS = 5.0
_OUTCOMES = {
    "query_started": "running",
    "query_done": "done",
    "query_failed": "failed",
    "query_interrupted": "interrupted",
}
_TOLD = ("engine", "rows", "seconds", "error", "message", "status")


def show(
    run: options.RunId,
    rows: Annotated[
        str | None,
        typer.Option(metavar="QUERY", help="Show the rows kept of a query.", show_default=False),
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, metavar="N", help="With --rows: how many rows.")
    ] = 20,
    plan: Annotated[
        str | None,
        typer.Option(metavar="QUERY", help="Show the plan of a query.", show_default=False),
    ] = None,
    json: options.Json = False,
    store: options.Store = None,
    config: options.Config = None,
    assignments: options.Assignments = None,
) -> None:
    """Show a run: its queries, tables and events, or one query's rows or plan.

    Of queries that are running, or were suspended, it shows the plan with what is done, what is
    held, and what is left, and what it costs to go on elsewhere.
    """
    if rows is not None and plan is not None:
        raise WrongUsage("--rows and --plan exclude each other", hint="ask for one at a time")
    settings = options.settings_from(config, assignments, store=store)
    opened, run_id = find_run(settings.store.url, run)
    found = Run.open(opened, run_id)
    if rows is not None:
        _show_rows(found, rows, limit, json=json)
    elif plan is not None:
        _show_plan(found, plan, json=json)
    elif json:
        print_json({**run_to_builtins(found), "standings": _standings(found)})
    else:
        _print_run(found, stdout())


def run_to_builtins(run: Run) -> dict[str, Any]:
    """All that `headway show` tells, for a script."""
    summary, manifest = run.summary(), run.manifest
    return {
        **msgspec.to_builtins(summary),
        "url": run.url,
        "headway_version": manifest.headway_version,
        "driver": msgspec.to_builtins(run.driver()),
        "settings": manifest.settings,
        "tables": [
            {
                "name": each.name,
                "format": each.format,
                "files": len(each.files),
                "bytes": sum(file.size for file in each.files),
            }
            for each in manifest.tables
        ],
        "queries": query_outcomes(run, run.events(), run_status=summary.status),
        "events": [msgspec.to_builtins(event) for event in run.events()],
    }


def query_outcomes(run: Run, events: tuple[Event, ...], *, run_status: str) -> list[dict[str, Any]]:
    """Each query with its status, from the last event that tells it."""
    last = {event.query: event for event in events if event.kind in _OUTCOMES}
    return [_outcome(record, last.get(record.name), run_status) for record in run.manifest.queries]


def _outcome(record: QueryRecord, event: Event | None, run_status: str) -> dict[str, Any]:
    data = event.data if event is not None else {}
    status = _OUTCOMES[event.kind] if event is not None else "waiting"
    if status in ("waiting", "running") and run_status != "running":
        status = run_status if status == "running" else "not run"
    count = data.get("rows")
    error = data.get("error")
    return {
        "query": record.name,
        "sql": record.sql,
        "status": status,
        "rows": count if count is not None and count >= 0 else None,
        "seconds": data.get("seconds"),
        "engine": data.get("engine"),
        "error": error
        and {"name": error, "message": data.get("message"), "hint": data.get("hint")},
        "not_imported": record.not_imported,
    }


def _print_run(run: Run, console: Console) -> None:
    told = run_to_builtins(run)
    title = Text("Run ").append(told["run_id"], "bold").append("  ")
    title.append_text(status_text(told["status"]))
    console.print(title)
    console.print(
        f"started {local_time(told['started_at'])}, {seconds_text(told['seconds'])} s, "
        f"Headway {told['headway_version']}\nkept in {told['url']}",
        soft_wrap=True,
    )
    _print_queries(told["queries"], console)
    if told["tables"]:
        shown = table("table", "format", "files", "size", numbers=("files", "size"))
        for each in told["tables"]:
            shown.add_row(
                each["name"], each["format"], f"{each['files']:,}", bytes_text(each["bytes"])
            )
        console.print("", shown)
    shown = table("time", "event", "query", "")
    for event in told["events"]:
        shown.add_row(
            local_time(event["at"])[11:], event["kind"], event["query"] or "", _details(event)
        )
    console.print("", shown)
    for name, standing in _standings(run).items():
        _print_standing(name, standing, console)


def _standings(run: Run) -> dict[str, Any]:
    """Where queries stand that are running, as their driver says, or were suspended."""
    from headway.cli.requests import told_by_driver
    from headway.session.history import StoreSpeed
    from headway.session.resuming import IMAGE, resumed_from
    from headway.session.standings import image_to_builtins

    summary = run.summary()
    if summary.status == "running":
        return told_by_driver(run, _DRIVER_SECONDS) or {}
    under_way = summary.resumable or summary.status == "paused"
    if not under_way or not any(event.kind == IMAGE for event in run.events()):
        return {}
    try:
        return image_to_builtins(resumed_from(run, run.events()), StoreSpeed(run.store))
    except HeadwayError as error:  # of a damaged image, all the rest can be shown
        print_error(error)
        return {}


def _print_standing(name: str, standing: dict[str, Any], console: Console) -> None:
    done, total = standing["pipelines_done"], standing["pipelines_total"]
    held = sum(state["bytes"] or 0 for state in standing["states"].values())
    told = f"{done} of {plural(total, 'pipeline')} done, {bytes_text(held)} held"
    if standing["share_done"] is not None:
        told += f"; about {standing['share_done']:.0%} of the work is behind that"
    console.print("", Text(name, "bold").append(f": {told}", "not bold"))
    console.print(standing["plan"], soft_wrap=True, markup=False, highlight=False)
    moving = duration_text(standing["seconds_to_move"])
    again = duration_text(standing["seconds_to_restart"])
    left = standing["seconds_left"]
    pays = "moving pays" if standing["moving_pays"] else "moving does not pay"
    expected = "" if left is None else f"about {duration_text(left)} left here; "
    console.print(f"{expected}going on elsewhere costs {moving}, beginning anew {again}: {pays}")


def _print_queries(queries: list[dict[str, Any]], console: Console) -> None:
    shown = table("query", "status", "rows", "seconds", "engine", numbers=("rows", "seconds"))
    for query in queries:
        shown.add_row(
            query["query"],
            status_text(query["status"]),
            count_text(query["rows"]),
            seconds_text(query["seconds"]),
            query["engine"] or "",
        )
    console.print("", shown)
    for query in queries:
        error = query["error"]
        if error and query["status"] == "failed":
            text = Text(f"{query['query']}: ").append(error["name"], "bold red")
            text.append(f": {error['message']}")
            if error["hint"]:
                text.append("\nHint: ", "bold").append(error["hint"])
            console.print(text, soft_wrap=True)


def _details(event: dict[str, Any]) -> str:
    data = event["data"]
    if "seconds" in data:
        data = {**data, "seconds": seconds_text(data["seconds"])}
    return ", ".join(f"{key} {data[key]}" for key in _TOLD if data.get(key) not in (None, ""))


def _show_rows(run: Run, query: str, limit: int, *, json: bool) -> None:
    kept = kept_rows(run, query)
    if json:
        print_json(
            {
                "run_id": run.run_id,
                "query": query,
                "rows": kept.count,
                "columns": kept.columns,
                "first_rows": kept.first(limit),
            }
        )
        return
    console = stdout()
    print_rows(kept, limit, console)
    console.print(Text(f"{plural(kept.count, 'row')} of {query} in run {run.run_id}", "dim"))


def _show_plan(run: Run, query: str, *, json: bool) -> None:
    records = {record.name: record for record in run.manifest.queries}
    if query not in records:
        raise WrongUsage(
            f"run {run.run_id} has no query {query}", hint=f"its queries: {', '.join(records)}"
        )
    record = records[query]
    if record.plan is None:
        raise QueryFailed(
            f"no plan of query {query} was kept: {record.not_imported or 'it was never planned'}",
            hint=f"`headway show {run.run_id}` says how the query went",
        )
    if json:
        print_json({"run_id": run.run_id, "query": query, "plan": record.plan})
        return
    from headway.plan.printer import print_plan
    from headway.plan.serialize import plan_from_builtins

    stdout().print(print_plan(plan_from_builtins(record.plan)), soft_wrap=True)

"""Writes docs/journey-of-a-query.md: one real query, and what it looks like at every stage.

Run by `make docs`; a test compares the page with what this makes now.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from headway.pipelined.compile import Choices, compile_plan
from headway.pipelined.printer import print_dataflow
from headway.plan.cardinalities import estimate
from headway.plan.join_order import order_joins
from headway.plan.pipelines import pipelines_of
from headway.plan.printer import describe, print_plan
from headway.plan.reduction import reduce_by_joins
from headway.plan.serialize import plan_from_json, plan_to_json
from headway.plan.sides import choose_build_sides
from headway.plan.spark_sql import to_spark_sql
from headway.session import session
from headway.spark.catalyst import import_plan
from headway.spark.tables import register_tables
from headway.storage import Run
from headway.workloads import WORKLOADS, find_tables

PAGE = Path(__file__).parent.parent / "docs" / "journey-of-a-query.md"

QUERY = """\
SELECT n_name, count(*) AS orders, sum(o_totalprice) AS total
FROM customer
  JOIN orders ON c_custkey = o_custkey
  JOIN nation ON c_nationkey = n_nationkey
WHERE o_orderdate >= DATE '1998-01-01'
  AND o_totalprice > (SELECT avg(o_totalprice) FROM orders)
GROUP BY n_name
ORDER BY total DESC
LIMIT 3
"""


def journey(spark: SparkSession, data: Path, store: Path) -> str:
    """The page, made from TPC-H at scale 0.01 in `data` and a new store."""
    spark = spark.newSession()
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    register_tables(spark, find_tables(data))
    frame = spark.sql(QUERY)
    plan = import_plan(frame).plan
    for rule in (order_joins, reduce_by_joins):
        plan = rule(plan)
    plan = choose_build_sides(plan, estimate(plan))
    estimates = estimate(plan)
    dataflow = compile_plan(plan, estimates, Choices(workers=3, replicate_bytes=10_000))
    notes = {node: f"~{found.rows:,.0f} rows" for node, found in estimates.items()}
    sql = to_spark_sql(plan, lambda node: getattr(node, "source", node).table)
    assert plan_from_json(plan_to_json(plan)) == plan
    with session(spark, store_url=str(store)) as headway:
        run = headway.run(headway.sql(QUERY, name="orders_by_nation"))
        rows = run.result().collect()
        run.wait()
        kept = Run.open(headway.store, run.id)
        events = [f"{e.kind:<15} {e.query or ''}".rstrip() for e in kept.events()]
        kept_files = Path(store, "runs").rglob("*")
        files = sorted(str(path.relative_to(store)) for path in kept_files if path.is_file())
    return _PAGE.format(
        query=QUERY.strip(),
        tree=print_plan(plan, notes),
        json=_excerpt(json.loads(plan_to_json(plan)), data),
        pipelines="\n".join(_pipeline(p) for p in pipelines_of(plan)),
        sql=sql,
        events="\n".join(events),
        files="\n".join(_TOKEN.sub("-…", name.replace(run.id, "<run>")) for name in files),
        stages=print_dataflow(dataflow),
        rows="\n".join(str(tuple(map(str, row))) for row in rows),
    )


_TOKEN = re.compile(r"-[0-9a-f]{12}\b")


def _pipeline(pipeline: Any) -> str:
    flow = " → ".join(node.kind for node in (pipeline.source, *pipeline.operators))
    after = ", ".join(map(str, sorted(pipeline.depends_on)))
    line = f"{pipeline.id}. {flow} ⇒ {pipeline.role} of {describe(pipeline.sink)[:40]}"
    return f"{line}   after {after}" if after else line


def _excerpt(plan: dict[str, Any], data: Path) -> str:
    """The first scan and a join, without the machine's own paths."""
    scan = next(node for node in plan["nodes"] if node["kind"] == "Scan")
    scan["source"]["schema"] = scan["source"]["schema"][:30] + "…"
    join = next(node for node in plan["nodes"] if node["kind"] == "Join")
    shown = {**plan, "nodes": [scan, join]}
    text = json.dumps(shown, indent=1, ensure_ascii=False)
    return text.replace(f"file://{data}", "file:///data/tpch")


_PAGE = """\
# The journey of a query

One query over TPC-H tables, and what it looks like at every stage. This page is made by
`make docs` from a real run; a test fails when it no longer tells the truth.

## 1. The text

```sql
{query}
```

Spark parses, resolves and optimises it: its catalog, its optimizer
([`spark/catalyst.py`](../src/headway/spark/catalyst.py)). A few of Spark's rules are left out for
the import, because they write what only Spark's own operators understand.

## 2. The plan

Spark's optimised plan becomes a `QueryPlan`, a graph of frozen nodes
([`plan/nodes.py`](../src/headway/plan/nodes.py)). Every column has a name that is unique in the
plan; scans read only what is needed; the scalar subquery is a plan of its own; an aggregate holds
keys and calls and nothing else. Row counts come from the Parquet footers
([`plan/cardinalities.py`](../src/headway/plan/cardinalities.py)) until a run has observed them, and
they decide the order of joins ([`plan/join_order.py`](../src/headway/plan/join_order.py)) and which
side of a join is collected.

```
{tree}
```

## 3. The plan as JSON

Lossless, with a format version, and free of anything that only one process knows
([`plan/serialize.py`](../src/headway/plan/serialize.py)). Nodes refer to each other by position.
Two of them:

```json
{json}
```

## 4. The pipelines

Where rows flow without being collected ([`plan/pipelines.py`](../src/headway/plan/pipelines.py)).
Progress is the share of them that is done; the collected results that unfinished ones still need
are the state of the query.

```
{pipelines}
```

## 5. The stages

On the pipelined engine the plan becomes stages, here for three workers
([`pipelined/compile.py`](../src/headway/pipelined/compile.py)). A stage is a program of SQL texts
that each of its channels runs with DuckDB; rows are exchanged between stages, and what a task read
is logged before its output is used ([`lineage/records.py`](../src/headway/lineage/records.py)).

```
{stages}
```

## 6. Back to Spark

With nothing to protect and nothing to share, Spark gets the original query untouched. When a plan
has to run somewhere else, it becomes Spark SQL again
([`plan/spark_sql.py`](../src/headway/plan/spark_sql.py),
[`spark/frames.py`](../src/headway/spark/frames.py)), under the settings it was made with:

```sql
{sql}
```

## 7. The run

What happened is a folder in the reliable store
([`storage/runs.py`](../src/headway/storage/runs.py)):

```
{files}
```

with the story in its log of events:

```
{events}
```

and the rows, which `run.result()` opens as a DataFrame, in their order:

```
{rows}
```
"""


def main() -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "tpch"
        WORKLOADS["tpch"].generate(0.01, data)
        spark = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.sql.warehouse.dir", str(Path(folder) / "warehouse"))
            .getOrCreate()
        )
        PAGE.write_text(journey(spark, data, Path(folder) / "store"), encoding="utf-8")
        spark.stop()


if __name__ == "__main__":
    main()

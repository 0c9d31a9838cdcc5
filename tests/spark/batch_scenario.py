"""A batch in a process of its own, to be killed: arguments are the store and the tables."""

from __future__ import annotations

import sys
from pathlib import Path

from headway.base.config import load_settings
from headway.session import Policy
from headway.session import session as headway_session
from headway.spark.start import running_spark
from headway.workloads.batches import regular_share

store, tables = sys.argv[1:]
settings = load_settings(command_line={"spark.master": "local[2]"})
with running_spark(settings) as spark, headway_session(spark, store_url=store) as session:
    session.tables(Path(tables))
    texts = regular_share(seed=5, count=12)
    queries = [session.sql(text, name=name) for name, text in texts.items()]
    print("started", flush=True)
    policy = Policy(checkpoints="all", fixed_size=4)
    session.batch(queries, deadline=3600, policy=policy, failures_per_hour=7.0).wait()

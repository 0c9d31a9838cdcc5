"""Plans that were imported before: a query that comes again is not optimised and read again.

Spark analyses every query anew, so a view that means something else now, a table with other columns
or a changed setting gives another plan. What is compared is the analysed plan, by Spark itself.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from headway.spark.catalyst import ImportedPlan, analyse, import_analysed
from headway.spark.operators import FileSources
from headway.spark.tree import Handle
from headway.spark.tree_text import Analysed

_MOST_PLANS = 500
"""Several batches of a hundred queries come again in turn."""
_MOST_TABLES = 1_000


@dataclass(frozen=True, slots=True)
class _Known:
    plan: Handle
    analysed: Analysed
    imported: ImportedPlan

    def is_like(self, other: Analysed) -> bool:
        return (self.analysed.names, self.analysed.files) == (other.names, other.files)


class ImportedPlans:
    """Imports plans, each once. Safe from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[Any, ...], _Known] = OrderedDict()
        self._file_sources: FileSources = {}

    def get(self, frame: DataFrame) -> ImportedPlan:
        """As `import_plan`; PlanNotImportable is raised again every time."""
        plan, analysed = analyse(frame)
        key = (analysed.plan_hash, *analysed.settings.items())
        # A table without files may change unseen.
        lasting = analysed.files is not None and not analysed.is_momentary
        with self._lock:
            known = self._known.get(key) if lasting else None
        if known is not None and known.is_like(analysed) and plan.sameResult(known.plan):
            return known.imported
        if len(self._file_sources) > _MOST_TABLES:
            self._file_sources.clear()
        imported = import_analysed(frame.sparkSession, plan, analysed, self._file_sources)
        if lasting:
            with self._lock:
                self._known[key] = _Known(plan, analysed, imported)
                while len(self._known) > _MOST_PLANS:
                    self._known.popitem(last=False)
        return imported

"""Plans that were imported before: a query that comes again is not optimised and read again.

Spark analyses every query anew, so a view that means something else now, a table with other columns
or a changed setting gives another plan. What is compared is the analysed plan, by Spark itself.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame

from headway.spark.catalyst import ImportedPlan, import_plan, session_settings
from headway.spark.facts import table_states
from headway.spark.operators import FileSources

_MOST_PLANS = 200
_MOST_TABLES = 1_000
# Becomes a constant when the plan is optimised, and another one the next time.
_MOMENTARY = re.compile(
    r"current_|localtimestamp|\bnow\(|unix_timestamp\(|\buuid\(|\brand\w*\(|input_file", re.I
)


@dataclass(frozen=True, slots=True)
class _Known:
    analysed: Any
    names: tuple[str, ...]
    files: str
    imported: ImportedPlan


class ImportedPlans:
    """Imports plans, each once. Safe from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[Any, ...], _Known] = OrderedDict()
        self._file_sources: FileSources = {}

    def get(self, frame: DataFrame) -> ImportedPlan:
        """As `import_plan`; PlanNotImportable is raised again every time."""
        try:
            analysed = frame._jdf.queryExecution().analyzed()
            settings = session_settings(frame.sparkSession)
            key = (int(analysed.semanticHash()), *settings.items())
            files = table_states(analysed)
        except (AttributeError, Py4JError):  # a session without plans
            return self._import(frame)
        if files is None:  # a table without files may change unseen
            return self._import(frame)
        names = tuple(frame.columns)
        with self._lock:
            known = self._known.get(key)
        alike = known is not None and known.names == names and known.files == files
        if known is not None and alike and analysed.sameResult(known.analysed):
            return known.imported
        imported = self._import(frame)
        if not _MOMENTARY.search(str(analysed.toString())):
            with self._lock:
                self._known[key] = _Known(analysed, names, files, imported)
                while len(self._known) > _MOST_PLANS:
                    self._known.popitem(last=False)
        return imported

    def _import(self, frame: DataFrame) -> ImportedPlan:
        if len(self._file_sources) > _MOST_TABLES:
            self._file_sources.clear()
        return import_plan(frame, self._file_sources)

"""Plans that were imported before: a query that comes again is not optimised and read again.

Spark analyses every query anew, so a view that means something else now, a table with other columns
or a changed setting gives another plan. What is compared is the analysed plan, by Spark itself.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession

from headway.base.errors import PlanNotImportable
from headway.plan.blanks import filled
from headway.plan.graph import with_root
from headway.spark.catalyst import (
    IMPORTED_SETTINGS,
    ImportedPlan,
    analyse,
    import_analysed,
    import_errors,
    import_session,
    read_plan,
    with_carried,
)
from headway.spark.operators import FileSources
from headway.spark.tree import Handle, tree_from
from headway.spark.tree_text import Analysed, AnalysedForm, PlannedTogether, alike
from headway.spark.types import constant_text, ddl_of

_MOST_PLANS = 500
"""Several batches of a hundred queries come again in turn."""
_MOST_TABLES = 1_000
_AHEAD = 12
"""Texts that are looked at before the first of them is imported."""


@dataclass(frozen=True, slots=True)
class _Known:
    plan: Callable[[], Handle]
    analysed: Analysed
    imported: ImportedPlan

    def is_like(self, other: Analysed) -> bool:
        known = self.analysed
        return (known.names, known.schema, known.files) == (other.names, other.schema, other.files)


@dataclass(frozen=True, slots=True)
class Seen:
    """What Spark made of a text: what makes its frame, and its plan; or the error that the text
    has. A frame without a plan has the reason for that."""

    frame: Callable[[], DataFrame] | None = None
    imported: ImportedPlan | None = None
    error: Exception | None = None


class ImportedPlans:
    """Imports plans, each once. Safe from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[Any, ...], _Known] = OrderedDict()
        self._filled: OrderedDict[tuple[ImportedPlan, bytes], ImportedPlan] = OrderedDict()
        self._file_sources: FileSources = {}

    def get(self, frame: DataFrame) -> ImportedPlan:
        """As `import_plan`; PlanNotImportable is raised again every time."""
        plan, analysed = analyse(frame)
        known = self._recalled(lambda: plan, analysed)
        if known is None:
            known = import_analysed(frame.sparkSession, plan, analysed, self._sources())
            self._remember(lambda: plan, analysed, known)
        return known

    def get_all(
        self, spark: SparkSession, texts: Sequence[str], *, forms: bool = False
    ) -> Iterator[Seen]:
        """Of each of the texts, up to the first that Spark acts on as soon as it sees it. With
        `forms`, those that differ in constants alone are planned once."""
        work = PlannedTogether(spark._jsparkSession, texts, IMPORTED_SETTINGS, forms=forms)
        plans: dict[int, ImportedPlan | PlanNotImportable | None] = {}
        begun: deque[tuple[int, AnalysedForm | Exception]] = deque()
        for number in range(len(texts)):
            found = self._begun(spark, work, number, plans)
            if found is None:
                break
            begun.append((number, found))
            if len(begun) > _AHEAD:  # the JVM optimises the others meanwhile
                yield self._seen(spark, work, *begun.popleft(), plans)
        while begun:
            yield self._seen(spark, work, *begun.popleft(), plans)

    def _begun(
        self,
        spark: SparkSession,
        work: PlannedTogether,
        number: int,
        plans: dict[int, ImportedPlan | PlanNotImportable | None],
    ) -> AnalysedForm | Exception | None:
        """A text whose form is being optimised, or is in `plans` already."""
        try:
            found = work.about(number)
        except Exception as error:  # noqa: BLE001 - the text's own, whatever it is
            return error
        if found is not None and found.number not in plans:
            form = partial(work.analysed, found.number)
            known = self._recalled(form, with_carried(found.analysed))
            plans[found.number] = known
            if known is None:
                try:
                    with import_errors():
                        work.optimise(import_session(spark, found.analysed.session), found.number)
                except PlanNotImportable as error:
                    plans[found.number] = error
        return found

    def _seen(
        self,
        spark: SparkSession,
        work: PlannedTogether,
        number: int,
        asked: AnalysedForm | Exception,
        plans: dict[int, ImportedPlan | PlanNotImportable | None],
    ) -> Seen:
        if isinstance(asked, Exception):
            return Seen(error=asked)
        frame = cache(lambda: DataFrame(work.frame(number), spark))
        form = plans[asked.number]
        if form is None:
            form = plans[asked.number] = self._form(spark, work, asked)
        if not asked.constants:
            found = form
        elif isinstance(form, ImportedPlan) and not form.frames:
            found = self._with_constants(form, asked)
        else:
            found = PlanNotImportable("the form has no plan")
        if isinstance(found, ImportedPlan):
            return Seen(frame, found)
        if not asked.constants:
            return Seen(frame, error=found)
        try:  # by itself
            return Seen(frame, self.get(frame()))
        except PlanNotImportable as error:
            return Seen(frame, error=error)

    def _form(
        self, spark: SparkSession, work: PlannedTogether, asked: AnalysedForm
    ) -> ImportedPlan | PlanNotImportable:
        """The plan of a form, or of a query by itself; or why there is none."""
        analysed = with_carried(asked.analysed)
        try:
            with import_errors():
                tree, deterministic = tree_from(*work.optimised(asked.number))
                found = read_plan(spark, tree, deterministic, analysed, self._sources())
        except PlanNotImportable as error:
            return error
        self._remember(cache(partial(work.analysed, asked.number)), analysed, found)
        return found

    def _with_constants(
        self, form: ImportedPlan, asked: AnalysedForm
    ) -> ImportedPlan | PlanNotImportable:
        key = (form, asked.constants)
        with self._lock:
            known = self._filled.get(key)
        if known is not None:
            return known
        try:
            with import_errors():
                made = _filled(form, asked.constants)
        except PlanNotImportable as error:
            return error
        with self._lock:
            self._filled[key] = made
            while len(self._filled) > _MOST_PLANS:
                self._filled.popitem(last=False)
        return made

    def _recalled(self, plan: Callable[[], Handle], analysed: Analysed) -> ImportedPlan | None:
        with self._lock:
            known = self._known.get(_key(analysed)) if _is_lasting(analysed) else None
        if known is not None and known.is_like(analysed) and alike(plan(), known.plan()):
            return known.imported
        return None

    def _remember(
        self, plan: Callable[[], Handle], analysed: Analysed, imported: ImportedPlan
    ) -> None:
        if _is_lasting(analysed):
            with self._lock:
                self._known[_key(analysed)] = _Known(plan, analysed, imported)
                while len(self._known) > _MOST_PLANS:
                    self._known.popitem(last=False)

    def _sources(self) -> FileSources:
        if len(self._file_sources) > _MOST_TABLES:
            self._file_sources.clear()
        return self._file_sources


def _filled(form: ImportedPlan, constants: bytes) -> ImportedPlan:
    texts = []
    for kind, value in msgspec.json.decode(constants):
        text = constant_text(value, ddl_of(kind))
        if text is None:
            raise PlanNotImportable(f"a constant of the type {kind} has no text")
        texts.append(text)
    plan = with_root(form.plan, filled(form.plan.root, texts))
    return replace(form, plan=plan)


def _key(analysed: Analysed) -> tuple[Any, ...]:
    return (analysed.plan_hash, *analysed.settings.items())


def _is_lasting(analysed: Analysed) -> bool:
    """A table without files may change unseen."""
    return analysed.files is not None and not analysed.is_momentary

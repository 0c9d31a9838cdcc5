"""Settings of Spark that change what the texts of a plan mean, or which rows files have: a plan
carries them wherever it runs."""

from __future__ import annotations

from collections.abc import Mapping

MEANING = (
    "spark.sql.ansi.enabled",
    "spark.sql.session.timeZone",
    "spark.sql.caseSensitive",
    "spark.sql.decimalOperations.allowPrecisionLoss",
    "spark.sql.legacy.sizeOfNull",
    "spark.sql.legacy.timeParserPolicy",
    "spark.sql.mapKeyDedupPolicy",
)
"""Always carried; the kernels know them."""

SELDOM_CHANGED = {
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96TimestampConversion": "false",
    "spark.sql.parquet.binaryAsString": "false",
    "spark.sql.legacy.castComplexTypesToString.enabled": "false",
    "spark.sql.legacy.statisticalAggregate": "false",
    "spark.sql.legacy.percentileDiscCalculation": "false",
    "spark.sql.legacy.negativeIndexInArrayInsert": "false",
    "spark.sql.legacy.followThreeValuedLogicInArrayExists": "true",
    "spark.sql.legacy.decimal.retainFractionDigitsOnTruncate": "false",
    "spark.sql.legacy.javaCharsets": "false",
    "spark.sql.legacy.codingErrorAction": "false",
    "spark.sql.columnNameOfCorruptRecord": "_corrupt_record",
}
"""With their usual values: carried where they have another one, which only Spark knows."""


def carried(settings: Mapping[str, str]) -> dict[str, str]:
    """Those of a session that its plans carry."""
    return {name: value for name, value in settings.items() if SELDOM_CHANGED.get(name) != value}

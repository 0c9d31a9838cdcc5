"""The benchmark workloads, their data and their queries, and the finding of tables on disk."""

from headway.workloads.data import MARKER, GeneratedData, GeneratedTable
from headway.workloads.tables import TableFiles, find_tables
from headway.workloads.tpcds import TPCDS
from headway.workloads.tpch import TPCH
from headway.workloads.workload import Progress, Workload

WORKLOADS = {workload.name: workload for workload in (TPCH, TPCDS)}

__all__ = [
    "MARKER",
    "TPCDS",
    "TPCH",
    "WORKLOADS",
    "GeneratedData",
    "GeneratedTable",
    "Progress",
    "TableFiles",
    "Workload",
    "find_tables",
]

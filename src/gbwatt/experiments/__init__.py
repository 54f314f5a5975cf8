"""Experiments: benchmarks of models, stores of their results, and tables of these."""

from typing import TYPE_CHECKING

from gbwatt._moved import imported_on_use

if TYPE_CHECKING:
    from gbwatt.experiments.config import Experiment, experiment_from_dict, list_experiments, read_experiment
    from gbwatt.experiments.runner import benchmark
    from gbwatt.experiments.runs import Row, Run
    from gbwatt.experiments.store import Store, read_rows
    from gbwatt.experiments.table_formats import Table, to_csv, to_latex, to_markdown
    from gbwatt.experiments.tables import make_tables

__all__ = [
    "Experiment",
    "Row",
    "Run",
    "Store",
    "Table",
    "benchmark",
    "experiment_from_dict",
    "list_experiments",
    "make_tables",
    "read_experiment",
    "read_rows",
    "to_csv",
    "to_latex",
    "to_markdown",
]

# Imported on first use, so that the command line starts fast.
__getattr__, __dir__ = imported_on_use(
    __name__,
    {
        "gbwatt.experiments.config": ("Experiment", "experiment_from_dict", "list_experiments", "read_experiment"),
        "gbwatt.experiments.runner": ("benchmark",),
        "gbwatt.experiments.runs": ("Row", "Run"),
        "gbwatt.experiments.store": ("Store", "read_rows"),
        "gbwatt.experiments.table_formats": ("Table", "to_csv", "to_latex", "to_markdown"),
        "gbwatt.experiments.tables": ("make_tables",),
    },
)

"""Experiments: benchmarks of models, stores of their results, and tables of these."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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

# Modules of the names above, imported on first use, so that the command line starts fast.
_MODULES = {
    "config": ("Experiment", "experiment_from_dict", "list_experiments", "read_experiment"),
    "runner": ("benchmark",),
    "runs": ("Row", "Run"),
    "store": ("Store", "read_rows"),
    "table_formats": ("Table", "to_csv", "to_latex", "to_markdown"),
    "tables": ("make_tables",),
}


def __getattr__(name: str) -> Any:
    """Import a public name from its module on first use."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the public names, also those that are not imported yet."""
    return sorted({*globals(), *__all__})

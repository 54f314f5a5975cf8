"""Tables of single runs: scores, failures, warnings and versions."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from gbwatt.experiments.runs import Row, Run
from gbwatt.experiments.table_formats import Column, Kind, Table, Value, without_empty
from gbwatt.report.experiment_results import changed_options, counted
from gbwatt.report.page import BigTable, Block, Code, Fold, Paragraph, Section

#: Maximum number of different tracebacks on a page; each may have thousands of characters.
MAX_TRACEBACKS = 40
_MAX_NAMED = 20  # runs listed with a traceback

_KINDS: Mapping[str, Kind] = {
    **dict.fromkeys(("model", "data set", "subject", "seed", "changed", "status"), "text"),
    **dict.fromkeys(("accuracy", "balanced", "AUC"), "percent"),
    **dict.fromkeys(("kappa", "loss"), "text"),
    **dict.fromkeys(("validation", "ill before", "ill after"), "percent"),
    **dict.fromkeys(("best epoch", "epochs", "parameters"), "text"),
    **dict.fromkeys(("s per epoch", "seconds"), "seconds"),
    **dict.fromkeys(("finished (UTC)", "key"), "text"),
}
_IDENTIFYING = 4  # the first columns identify the run


def all_runs(rows: Sequence[Row]) -> Section:
    """A table of all runs that can be sorted and filtered."""
    lines = tuple(tuple(_line(row)) for row in rows)
    notes = (
        "Scores are those of test trials, in percent. Validation: accuracy on validation trials at the best epoch. Ill "
        "before, ill after: percentage of matrices with a condition number above 10⁴ before and after attention.",
        "Changed: options that differ from the defaults of the model.",
        "Key: beginning of the key in the store.",
    )
    header = tuple(Column(name, kind=kind) for name, kind in _KINDS.items())
    table = without_empty(Table("One row per run", header, lines, notes), frozenset(_KINDS))
    return Section("All runs", (BigTable(table, frozen=_IDENTIFYING),))


def _line(row: Row) -> Iterator[Value]:
    run = Run.from_dict(row.run)
    yield from (run.model, run.dataset, run.subject, run.seed, changed_options(run), row.status)
    yield from map(_percent, (row.accuracy, row.balanced_accuracy, row.auc))
    yield from (None if value is None else f"{value:.3f}" for value in (row.kappa, row.loss))
    yield _percent(row.valid_accuracy)
    yield from (_percent((row.conditions or {}).get(when, {}).get("share")) for when in ("before", "after"))
    yield from (row.best_epoch, row.epochs, row.parameters, row.seconds_per_epoch, row.seconds)
    yield from (row.finished.replace("+00:00", "").replace("T", " "), row.key[:12])


def _percent(share: float | None) -> float | None:
    return None if share is None or math.isnan(share) else 100 * share


# ---- failures


def failures(rows: Sequence[Row]) -> list[Section]:
    """Failed runs, grouped by traceback; empty if there are none."""
    by_traceback: dict[str, list[Run]] = defaultdict(list)
    for row in rows:
        if row.status == "failed":
            by_traceback[row.traceback or "No traceback was recorded."].append(Run.from_dict(row.run))
    if not by_traceback:
        return []
    groups = sorted(by_traceback.items(), key=lambda group: -len(group[1]))
    blocks: list[Block] = [_failure(traceback, runs) for traceback, runs in groups[:MAX_TRACEBACKS]]
    rest = sum(len(runs) for _, runs in groups[MAX_TRACEBACKS:])
    if rest:
        blocks.append(Paragraph(f"{counted(rest, 'more run')} failed with other tracebacks; see the store."))
    total = sum(len(runs) for _, runs in groups)
    text = (
        f"{counted(total, 'run')} failed, with {counted(len(groups), 'different traceback')}. Tables count them as "
        "failed, without a score."
    )
    return [Section("Failed runs", (Paragraph(text), *blocks))]


def _failure(traceback: str, runs: Sequence[Run]) -> Fold:
    last = (traceback.strip().splitlines() or [""])[-1][:200]
    named = "\n".join(map(str, runs[:_MAX_NAMED]))
    more = f"\nand {len(runs) - _MAX_NAMED} more" if len(runs) > _MAX_NAMED else ""
    return Fold(f"{counted(len(runs), 'run')}: {last}", (Code(named + more), Code(traceback.strip())))


# ---- warnings and versions


def warnings(rows: Sequence[Row]) -> list[Block]:
    """Warnings with the number of runs; empty if there are none."""
    counts = Counter(text.strip() for row in rows for text in row.warnings or ())
    if not counts:
        return []
    lines = tuple(counts.most_common(MAX_TRACEBACKS))
    table = Table("Warnings during runs", (Column("warning"), Column("runs")), lines)
    return [Fold(f"{counted(len(counts), 'warning')} during runs", (table,))]


def versions(rows: Sequence[Row]) -> Table:
    """Versions of packages with the number of runs."""
    counts = Counter(pair for row in rows for pair in (row.versions or {}).items())
    lines = tuple((name, version, n) for (name, version), n in counts.items())
    notes = () if lines else ("The rows do not record versions.",)
    return Table("Versions", (Column("package"), Column("version"), Column("runs")), lines, notes)

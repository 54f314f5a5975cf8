"""What single runs left: the table of all, failures with their tracebacks, warnings, versions."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from gbwatt.experiments.runs import Row, Run
from gbwatt.experiments.table_formats import Column, Table, Value, without_empty
from gbwatt.report.page import BigTable, Block, Code, Fold, Paragraph, Section
from gbwatt.report.study import changes
from gbwatt.report.text import counted

#: Different tracebacks that a page has in full; each may be some thousand characters.
TRACEBACKS = 40
_NAMED = 20  # runs below a traceback

_HEADER = (
    Column("model"),
    Column("data set"),
    Column("subject"),
    Column("seed"),
    Column("changed"),
    Column("status"),
    Column("accuracy", kind="percent"),
    Column("balanced", kind="percent"),
    Column("AUC", kind="percent"),
    Column("kappa"),
    Column("loss"),
    Column("validation", kind="percent"),
    Column("ill before", kind="percent"),
    Column("ill after", kind="percent"),
    Column("best epoch"),
    Column("epochs"),
    Column("parameters"),
    Column("s per epoch", kind="seconds"),
    Column("seconds", kind="seconds"),
    Column("finished (UTC)"),
    Column("key"),
)

_OWN = 4  # columns that say which run it is


def all_runs(rows: Sequence[Row]) -> Section:
    """Every run in a table that is sorted and filtered."""
    lines = tuple(tuple(_line(row)) for row in rows)
    notes = (
        "Scores of test trials, and accuracy of validation trials at the epoch that they chose, in percent. "
        "Ill before, ill after: percent of matrices with a condition number above 10⁴ before and after attention.",
        "Changed: what a run has otherwise than its model by default.",
        "The key is the beginning of that in the store.",
    )
    table = without_empty(
        Table("A row for each run", _HEADER, lines, notes), frozenset(column.name for column in _HEADER)
    )
    return Section("All runs", (BigTable(table, frozen=_OWN),))


def _line(row: Row) -> Iterator[Value]:
    run = Run.from_dict(row.run)
    yield from (run.model, run.dataset, run.subject, run.seed, changes(run), row.status)
    yield from map(_percent, (row.accuracy, row.balanced_accuracy, row.auc))
    yield from (None if value is None else f"{value:.3f}" for value in (row.kappa, row.loss))
    yield _percent(row.valid_accuracy)
    yield from (_percent((row.conditions or {}).get(when, {}).get("share")) for when in ("before", "after"))
    yield from (row.best_epoch, row.epochs, row.parameters, row.seconds_per_epoch, row.seconds)
    yield from (row.finished.replace("+00:00", "").replace("T", " "), row.key[:12])


def _percent(share: float | None) -> float | None:
    return None if share is None or math.isnan(share) else 100 * share


# ------------------------------------------------------------------------------------------------------------- failures


def failures(rows: Sequence[Row]) -> list[Section]:
    """Runs that failed, those with the same traceback together; nothing if there are none."""
    together: dict[str, list[Run]] = defaultdict(list)
    for row in rows:
        if row.status == "failed":
            together[row.traceback or "No traceback was recorded."].append(Run.from_dict(row.run))
    if not together:
        return []
    most = sorted(together.items(), key=lambda pair: -len(pair[1]))
    blocks: list[Block] = [_fold(text, runs) for text, runs in most[:TRACEBACKS]]
    left = sum(len(runs) for _, runs in most[TRACEBACKS:])
    if left:
        blocks.append(Paragraph(f"{counted(left, 'more run')} failed with other tracebacks, which the store has."))
    said = f"{counted(sum(map(len, together.values())), 'run')} failed, with {counted(len(together), 'traceback')}. "
    return [Section("Failed runs", (Paragraph(said + "Tables count them as failed and never as a score."), *blocks))]


def _fold(traceback: str, runs: Sequence[Run]) -> Fold:
    last = (traceback.strip().splitlines() or [""])[-1][:200]
    named = "\n".join(str(run) for run in runs[:_NAMED])
    more = f"\nand {len(runs) - _NAMED} more" if len(runs) > _NAMED else ""
    return Fold(f"{counted(len(runs), 'run')}: {last}", (Code(named + more), Code(traceback.strip())))


# -------------------------------------------------------------------------------------------- what runs were done with


def warnings(rows: Sequence[Row]) -> list[Block]:
    """What runs were warned of, and how many each; nothing if none was."""
    counts = Counter(text.strip() for row in rows for text in row.warnings or ())
    if not counts:
        return []
    table = Table("Warnings during runs", (Column("warning"), Column("runs")), tuple(counts.most_common(TRACEBACKS)))
    return [Fold(f"{counted(len(counts), 'warning')} during runs", (table,))]


def versions(rows: Sequence[Row]) -> Table:
    """Which version of everything how many runs had."""
    counts = Counter(pair for row in rows for pair in (row.versions or {}).items())
    lines = tuple((name, version, n) for (name, version), n in counts.items())
    notes = () if lines else ("The rows do not say with which versions they were made.",)
    return Table("Versions", (Column("of"), Column("version"), Column("runs")), lines, notes)

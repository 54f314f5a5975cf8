"""From the cells of an experiment to rows in a store: what is left to do, doing it, and how long it may take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib.util import find_spec

from gbwatt.experiments.engines import Engine
from gbwatt.experiments.runs import Cell, Row, Run
from gbwatt.experiments.store import Store

Watch = Callable[[Row], None]
#: Packages of our extras that models need.
EXTRAS = {"braindecode": ("braindecode",), "foundation": ("accelerate", "braindecode")}


@dataclass(frozen=True)
class Plan:
    """Runs of an experiment: all, those that the store has, and those to do."""

    runs: tuple[Run, ...]
    done: frozenset[str]
    failed: frozenset[str]
    todo: tuple[Run, ...]
    barred: Mapping[str, int]  # packages that are not here, and how many runs need them


def plan(cells: Iterable[Cell], rows: Iterable[Row], retry: bool = False, here: bool = True) -> Plan:
    """What is to be done: runs that have a row are not done again, failed ones only if ``retry``.

    If they are to be done ``here``, those of models whose package is not installed are left out.
    """
    runs = {cell.run.key: cell.run for cell in cells}  # a run may be in several cells
    status = {row.key: row.status for row in rows if row.key in runs}
    done, failed = ({key for key, found in status.items() if found == which} for which in ("done", "failed"))
    known = done if retry else done | failed
    left = [run for key, run in runs.items() if key not in known]
    packages = [_lacking(run.model) if here else None for run in left]
    todo = tuple(run for run, package in zip(left, packages, strict=True) if package is None)
    barred = Counter(package for package in packages if package is not None)
    return Plan(tuple(runs.values()), frozenset(done), frozenset(failed), todo, barred)


def _lacking(model: str) -> str | None:
    """The extra that a model needs, if its packages are not installed."""
    from gbwatt.models.registry import entry  # imports torch

    extra = entry(model).extra
    return None if extra is None or all(find_spec(package) for package in EXTRAS[extra]) else extra


@dataclass(frozen=True)
class Outcome:
    """How many runs were done now, and how many of them failed."""

    done: int
    failed: int


def carry_out(todo: Sequence[Run], store: Store, engine: Engine, watch: Watch) -> Outcome:
    """Do runs, each of which is in the store the moment it ends.

    Whatever interrupts it, a signal, a full disk or an error of the engine, the rows so far are kept, and the same call
    goes on from there.
    """
    done = failed = 0
    with closing(engine.rows(todo)) as rows:
        for row in rows:
            store.add(row)
            done, failed = done + (row.status == "done"), failed + (row.status == "failed")
            watch(row)
    return Outcome(done, failed)

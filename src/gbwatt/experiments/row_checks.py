"""What is wrong with a row of results from a file: types and ranges of every column, and columns that disagree."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any

from gbwatt.experiments.runs import Row, Run

Check = Callable[[str, Any], Iterator[str]]

_DEEPEST = 8  # levels of options and of preprocessing steps
_ROUNDING = 1e-6


def problems(row: Row) -> list[str]:
    """Everything that is wrong with a row, each with the name of its column."""
    found = [text for name, check in _CHECKS.items() for text in _of(row, name, check)]
    return found or [*_disagreements(row), *_key(row)]


def _of(row: Row, name: str, check: Check) -> Iterator[str]:
    value = getattr(row, name)
    if value is not None:
        yield from check(name, value)


# ------------------------------------------------------------------------------------------------------- single values


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _number(least: float, most: float = math.inf, undefined: bool = False, finite: bool = True) -> Check:
    """A number in a range; ``undefined`` if it may be NaN."""
    wanted = f"a number between {least:g} and {most:g}" if most < math.inf else f"a number, at least {least:g}"

    def check(name: str, value: Any) -> Iterator[str]:
        right = _is_number(value) and ((undefined and value != value) or least <= value <= most)
        if not right or (finite and abs(value) == math.inf):
            yield f"{name} is {_show(value)}, but must be {wanted}{', and finite' * (finite and most == math.inf)}"

    return check


def _whole(least: int = 0) -> Check:
    def check(name: str, value: Any) -> Iterator[str]:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**63:
            yield f"{name} is {_show(value)}, but must be a whole number, at least {least}"

    return check


def _text(name: str, value: Any) -> Iterator[str]:
    if not isinstance(value, str):
        yield f"{name} is {_show(value)}, but must be text"


def _flag(name: str, value: Any) -> Iterator[str]:
    if not isinstance(value, bool):
        yield f"{name} is {_show(value)}, but must be true or false"


def _named(name: str, value: Any) -> Iterator[str]:
    if not isinstance(value, str) or not value.strip():
        yield f"{name} is {_show(value)}, but must be a name"


def _time(name: str, value: Any) -> Iterator[str]:
    try:
        if value != "":
            datetime.fromisoformat(value)
    except (TypeError, ValueError):
        yield f"{name} is {_show(value)}, but must be a time in ISO 8601: 2025-01-31T12:00:00+00:00"


# ---------------------------------------------------------------------------------------------------------- structures


def _mapping(item: Check, keys: tuple[str, ...] | None = None) -> Check:
    """A mapping from names, or from some of these, to values of a kind."""

    def check(name: str, value: Any) -> Iterator[str]:
        if not isinstance(value, dict):
            yield f"{name} is {_show(value)}, but must be a mapping"
            return
        for key, one in value.items():
            if keys is not None and key not in keys:
                yield f"{name} has the key {_show(key)}, but only {', '.join(keys)} are known"
            else:
                yield from item(f"{name}.{key!r}"[:120], one)

    return check


def _list(item: Check) -> Check:
    def check(name: str, value: Any) -> Iterator[str]:
        if not isinstance(value, list):
            yield f"{name} is {_show(value)}, but must be a list"
            return
        for place, one in enumerate(value):
            wrong = next(item(f"{name}[{place}]", one), None)
            if wrong is not None:  # the first says enough
                yield wrong
                return

    return check


def _numbers(name: str, value: Any) -> Iterator[str]:
    """A list of numbers, which may be thousands."""
    if not isinstance(value, list):
        yield f"{name} is {_show(value)}, but must be a list"
        return
    place = next((n for n, one in enumerate(value) if type(one) is not float and not _is_number(one)), None)
    if place is not None:
        yield f"{name}[{place}] is {_show(value[place])}, but must be a number"


def _json(name: str, value: Any, deep: int = 0) -> Iterator[str]:
    """Anything that JSON has, without NaN and infinities, and not too deep."""
    if deep > _DEEPEST:
        yield f"{name:.80} is nested more than {_DEEPEST} levels deep"
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from _json(f"{name}.{key!r}", one, deep + 1)
    elif isinstance(value, list):
        for place, one in enumerate(value):
            yield from _json(f"{name}[{place}]", one, deep + 1)
    elif isinstance(value, float) and not math.isfinite(value):
        yield f"{name:.80} is {value}, but must be finite"


def _square(name: str, value: Any) -> Iterator[str]:
    """A square matrix of counts."""
    wrong = next(_list(_list(_whole()))(name, value), None)
    if wrong is None and any(len(row) != len(value) for row in value):
        wrong = f"{name} has {len(value)} rows of {[len(row) for row in value][:10]} numbers, but must be square"
    if wrong is not None:
        yield wrong


_RUN: Mapping[str, Check] = {
    "dataset": _named,
    "subject": _whole(),
    "model": _named,
    "seed": _whole(),
    "data": _text,
    "split": _whole(),
    "options": _mapping(_json),
    "training": _mapping(_json),
    "fraction": _number(0, 1),
    "noise": _number(0),
    "noisy_training": _flag,
}
assert set(_RUN) == {field.name for field in fields(Run)}


def _run(name: str, value: Any) -> Iterator[str]:
    """What determines a result."""
    unknown = [key for key in value if key not in _RUN]
    missing = [key for key in ("dataset", "subject", "model", "seed", "data") if key not in value]
    if unknown or missing:
        which = f"the unknown key {_show(unknown[0])}" if unknown else f"no key {missing[0]!r}"
        yield f"{name} is not what determines a result: it has {which}"
        return
    for key, one in value.items():
        yield from _RUN[key](f"{name}.{key}", one)


_SHARE = _number(0, 1)
_LOSS = _number(-_ROUNDING, undefined=True, finite=False)
_OF_CLASS: Mapping[str, Check] = {"recall": _SHARE, "precision": _SHARE, "n": _number(0)}
_CONDITION_NUMBER = _number(0, undefined=True, finite=False)
_CONDITION: Mapping[str, Check] = {"share": _SHARE, "median": _CONDITION_NUMBER, "largest": _CONDITION_NUMBER}


def _record(checks: Mapping[str, Check]) -> Check:
    """A mapping whose keys have checks of their own."""

    def check(name: str, value: Any) -> Iterator[str]:
        wrong = list(_mapping(lambda *_: iter(()), tuple(checks))(name, value))
        yield from wrong
        for key, one in () if wrong else value.items():
            yield from checks[key](f"{name}.{key}", one)

    return check


_CHECKS: Mapping[str, Check] = {
    "run": _run,
    "accuracy": _SHARE,
    "balanced_accuracy": _SHARE,
    "kappa": _number(-1, 1, undefined=True),
    "auc": _SHARE,
    "loss": _LOSS,
    "per_class": _mapping(_record(_OF_CLASS)),
    "confusion": _square,
    "valid_accuracy": _SHARE,
    "valid_loss": _LOSS,
    "best_epoch": _whole(1),
    "epochs": _whole(1),
    "history": _mapping(_numbers),
    "conditions": _mapping(_record(_CONDITION), ("before", "after")),
    "trials": _mapping(_whole(), ("train", "valid", "test")),
    "parameters": _whole(),
    "preprocessing": _list(lambda name, value: _mapping(_json)(name, value)),
    "seconds": _number(0),
    "seconds_per_epoch": _number(0),
    "versions": _mapping(_text),
    "finished": _time,
    "traceback": _text,
    "warnings": _list(_text),
}


# ------------------------------------------------------------------------------------------------------- disagreements


def _disagreements(row: Row) -> Iterator[str]:
    """Columns that are right by themselves, and cannot both be."""
    if row.best_epoch is not None and row.epochs is not None and row.best_epoch > row.epochs:
        yield f"best_epoch is {row.best_epoch}, but there were {row.epochs} epochs"
    for name, values in (row.history or {}).items():
        if row.epochs is not None and len(values) != row.epochs:
            yield f"history.{name!r} has {len(values)} values, but there were {row.epochs} epochs"
    if row.confusion is not None:
        yield from _confused(row, row.confusion)


def _confused(row: Row, confusion: list[list[int]]) -> Iterator[str]:
    """A confusion matrix against the scores and counts that follow from it."""
    sizes = [sum(line) for line in confusion]
    total, hits = sum(sizes), sum(line[place] for place, line in enumerate(confusion))
    tested = (row.trials or {}).get("test", total)
    if total != tested:
        yield f"confusion has {total} trials, but trials has {tested} for test"
    if total and row.accuracy is not None and abs(row.accuracy - hits / total) > _ROUNDING:
        yield f"accuracy is {row.accuracy}, but confusion has {hits} of {total} trials right"
    if row.per_class is not None:
        counts = [one.get("n") for one in row.per_class.values()]
        if len(counts) != len(sizes):
            yield f"per_class has {len(counts)} classes, but confusion {len(sizes)}"
        elif any(count is not None and count != size for count, size in zip(counts, sizes, strict=True)):
            yield f"per_class has n = {counts}, but confusion has {sizes} trials of these classes"


def _key(row: Row) -> Iterator[str]:
    """The key is the hash of the run."""
    key = Run.from_dict(row.run).key
    if key != row.key:
        yield f"key {row.key:.60} does not belong to its run, which has {key}: one of them was changed"

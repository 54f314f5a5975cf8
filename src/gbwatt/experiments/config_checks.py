"""Checks of experiments: single values, and values that contradict each other or that a model rejects."""

from __future__ import annotations

import json
import re
import string
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from gbwatt._validation import check_at_least, check_one_of
from gbwatt.data import Dataset, find_dataset
from gbwatt.errors import InputError, ParameterError
from gbwatt.experiments import grid, paper
from gbwatt.experiments.runs import canonicalize
from gbwatt.experiments.table_formats import visible
from gbwatt.experiments.yaml_io import AllowedKeys, KeyPath, Problem, error_of

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

#: Limits of an experiment: lines of its table, and parameters of a model, which is built to check its options.
MOST_LINES = 1000
MOST_PARAMETERS = 50_000_000
LARGEST = 2**31 - 1  # largest seed or subject number
MOST_SEEDS = 10_000
MOST_WIDTH = 50  # characters to which a format may pad a value
AXES = ("fraction", "noise", "options")

#: Plain texts for errors of pydantic that use Python terms.
_TEXTS = {
    "missing": "is missing.",
    "string_too_short": "must not be empty.",
    "model_type": "must be a mapping, got {}.",
    "dict_type": "must be a mapping, got {}.",
    "tuple_type": "must be a list, got {}.",
    "string_type": "must be text, got {}.",
    "int_type": "must be an integer, got {}.",
    "int_from_float": "must be an integer, got {}.",
    "float_type": "must be a number, got {}.",
}


def translate(error: ErrorDetails, allowed_keys: AllowedKeys) -> Problem:
    """Describe an error of pydantic in plain words."""
    path, kind = tuple(error["loc"]), error["type"]
    if kind == "extra_forbidden":
        return Problem(path, error_of(check_one_of, "key", path[-1], allowed_keys(path[:-1]) or ()) or "")
    if kind == "value_error":
        return Problem(path, str(error["ctx"]["error"]))
    got = repr(error["input"])
    got = got if len(got) < 60 else got[:57] + "..."
    if kind in _TEXTS:
        return Problem(path, _TEXTS[kind].format(got))
    return Problem(path, f"{error['msg'].replace('Input should be', 'must be')}, got {got}.")


# ------------------------------------------------------------------------------------------------------- single values


def parse_seeds(value: Any) -> tuple[int, ...]:
    """Return the seeds 0 to n - 1 for a number n, or those of a list.

    Examples
    --------
    >>> parse_seeds(3)
    (0, 1, 2)
    """
    if isinstance(value, bool) or not isinstance(value, int | list | tuple):
        raise ParameterError(f"seeds={value!r} must be a number of seeds or a list of seeds.")
    if isinstance(value, int):
        check_at_least("seeds", value, 1)
        if value > MOST_SEEDS:
            raise ParameterError(f"seeds={value} is too large; at most {MOST_SEEDS} seeds are allowed.")
        return tuple(range(value))
    return _numbers("seeds", value, 0)


def parse_subjects(value: Any) -> grid.Subjects:
    """Return "all", or the subjects of a list."""
    if value == "all":
        return "all"
    if not isinstance(value, list | tuple):
        raise ParameterError(f"subjects={value!r} must be 'all' or a list of numbers.")
    return _numbers("subjects", value, 0)


def _numbers(name: str, values: Sequence[Any], least: int) -> tuple[int, ...]:
    for at, value in enumerate(values):
        check_at_least(f"{name}[{at}]", value, least)
        if value > LARGEST:
            raise ParameterError(f"{name}[{at}]={value} must be at most {LARGEST}.")
    return check_distinct(name, values)


def check_not_empty(name: str, values: Sequence[Any]) -> tuple[Any, ...]:
    """Require at least one value."""
    if not values:
        raise ParameterError(f"{name} must not be empty.")
    return tuple(values)


def check_distinct(name: str, values: Sequence[Any]) -> tuple[Any, ...]:
    """Require at least one value, and none twice."""
    seen: set[str] = set()
    for value in check_not_empty(name, values):
        text = json.dumps(canonicalize(value), sort_keys=True, default=str)  # 1 and 1.0 are the same
        if text in seen:
            raise ParameterError(f"{name} has {value!r} twice.")
        seen.add(text)
    return tuple(values)


def check_name(name: str) -> str:
    """Require a valid name of an experiment."""
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", name):
        raise ParameterError(f"name={name!r} must be lower-case letters, digits, - and _, starting with a letter.")
    return name


def dataset_name(name: str) -> str:
    """Return the full name of a data set."""
    try:
        return find_dataset(name).name
    except ImportError as error:  # MOABB, for its data sets
        raise ParameterError(f"dataset={name[:80]!r}: {error}.") from None
    except OSError as error:  # a name that is too long for a file, for instance
        raise ParameterError(f"dataset={name[:80]!r} cannot be found: {error.strerror or error}.") from None


def check_model(name: str) -> str:
    """Require a registered model."""
    from gbwatt.models import list_models  # imports torch

    check_one_of("model", name, list_models())
    return name


def check_axis(axis: str) -> str:
    """Require a quantity that can be varied."""
    kind, dot, name = axis.partition(".")
    check_one_of("axis", kind, AXES)
    if (kind == "options") != bool(name) or (dot and not name):
        raise ParameterError(f"axis={axis!r} must be 'fraction', 'noise', or a model option such as 'options.theta'.")
    return axis


def check_plain_format(label: str) -> None:
    """Reject formats that access attributes of a value or produce very long texts."""
    try:
        fields = [part[1:3] for part in string.Formatter().parse(label)]
    except ValueError as error:
        raise ParameterError(f"label={label!r} is not a valid format: {error}.") from None
    for name, form in fields:
        if name not in (None, "", "0") or "{" in (form or ""):
            raise ParameterError(f"label={label!r} may contain {{}} or {{:FORMAT}} for the value, but no names.")
        if any(int(number) > MOST_WIDTH for number in re.findall(r"\d+", (form or "")[:1000])):
            raise ParameterError(f"label={label!r} pads the value to more than {MOST_WIDTH} characters.")


def check_paper_table(name: str) -> str:
    """Require a table of the paper."""
    paper.find_table(name)
    return name


def check_printable(text: str) -> str:
    """Require text without control characters."""
    if visible(text.strip()) != " ".join(text.split()):
        raise ParameterError(f"{text[:80]!r} contains control characters; remove them.")
    return text


# ----------------------------------------------------------------------------------------------------------- conflicts


def conflicts(raw: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield contradictions between values; values that are invalid by themselves are skipped.

    Parameters
    ----------
    raw : mapping
        An experiment as written, possibly with errors.
    """
    models = [row if isinstance(row, dict) else {} for row in _list(raw.get("models"))]
    datasets = _datasets(raw.get("datasets"))
    vary: Mapping[str, Any] = raw["vary"] if isinstance(raw.get("vary"), dict) else {}
    yield from _repeated(models)
    yield from _unknown_reference(raw.get("reference"), models)
    lines = len(models) * max(1, len(_list(vary.get("values"))))
    if lines > MOST_LINES:
        text = f"models × values of vary give {lines} table lines; at most {MOST_LINES} are allowed: use fewer."
        yield Problem(("models",), text)
        return
    for number, row in enumerate(models):
        yield from _only_for_corpora(raw.get("training"), row, number)
        yield from _foreign(row, number, datasets)
        yield from _refused(row, number, _datasets(row.get("datasets")) or datasets, vary)


def _list(value: object) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


def _datasets(names: object) -> list[Dataset | None]:
    """Data sets by name; None for an unknown one."""
    return [_dataset(name) if isinstance(name, str) else None for name in _list(names)]


def _dataset(name: str) -> Dataset | None:
    try:
        return find_dataset(name)
    except (ValueError, OSError, ImportError):
        return None


def _repeated(models: list[dict[str, Any]]) -> Iterator[Problem]:
    labels = [row.get("label") for row in models]
    for number, label in enumerate(labels):
        first = labels.index(label)
        if isinstance(label, str) and first < number:
            text = f"label={label!r} is also used by models[{first}]; labels must be unique."
            yield Problem(("models", number, "label"), text)


def _unknown_reference(label: object, models: list[dict[str, Any]]) -> Iterator[Problem]:
    labels = tuple(row["label"] for row in models if isinstance(row.get("label"), str))
    if isinstance(label, str) and label and labels:
        try:
            check_one_of("reference", label, labels)
        except ParameterError as error:
            yield Problem(("reference",), str(error))


#: Training settings that only foundation models have.
FOR_CORPORA = ("layer_decay", "schedule", "warmup_epochs", "label_smoothing", "precision", "shards")


def _only_for_corpora(shared: object, row: Mapping[str, Any], number: int) -> Iterator[Problem]:
    """Yield training settings that a model does not have."""
    from gbwatt.models import entry, list_models

    model = row.get("model")
    if not isinstance(model, str) or model not in list_models() or not entry(model).for_tasks:
        return
    locations: list[tuple[object, KeyPath]] = [
        (shared, ("training",)),
        (row.get("training"), ("models", number, "training")),
    ]
    for settings, path in locations:
        for name in settings if isinstance(settings, dict) else ():
            if name in FOR_CORPORA:
                text = f"{name} is for foundation models; model {model!r} does not have it: remove it."
                yield Problem((*path, name), text)


def _foreign(row: Mapping[str, Any], number: int, datasets: list[Dataset | None]) -> Iterator[Problem]:
    names = [dataset.name for dataset in datasets if dataset is not None]
    for at, dataset in enumerate(_datasets(row.get("datasets"))):
        if dataset is not None and dataset.name not in names:
            text = f"dataset={dataset.name!r} is not a data set of the experiment: {', '.join(map(repr, names))}."
            yield Problem(("models", number, "datasets", at), text)


def _refused(
    row: Mapping[str, Any], number: int, datasets: list[Dataset | None], vary: Mapping[str, Any]
) -> Iterator[Problem]:
    """Yield options that the model does not have, and values that it rejects."""
    from gbwatt.models.registry import known_options, list_models

    model, options, varied = row.get("model"), row.get("options") or {}, _varied_option(vary)
    if not isinstance(model, str) or not isinstance(options, dict) or not (options or varied):
        return
    known = known_options(model) if model in list_models() else None
    if known is None:
        return
    own, tasks = {name: value for name, value in options.items() if name in known}, _tasks(datasets)
    yield from _refused_options(model, options, known, tasks, ("models", number, "options"))
    if varied in known:
        own.pop(varied, None)
        before = _refusals(model, own, tasks)  # already reported
        for at, value in enumerate(_list(vary.get("values"))):
            texts = [text for text in _refusals(model, {**own, varied: value}, tasks) if text not in before]
            yield from (Problem(("vary", "values", at), f"model {model!r}: {text}") for text in texts)
    elif varied:
        yield Problem(("vary", "axis"), _no_option(model, varied, known))


def _refused_options(
    model: str, options: Mapping[str, Any], known: tuple[str, ...], tasks: list[str], path: KeyPath
) -> Iterator[Problem]:
    own = {name: value for name, value in options.items() if name in known}
    for name in options:
        if name not in own:
            yield Problem((*path, name), _no_option(model, name, known))
    for text in _refusals(model, own, tasks):
        yield Problem((*path, *_named(text, own)), text)


def _varied_option(vary: Mapping[str, Any]) -> str:
    """Name of the varied option; empty if something else is varied."""
    axis = vary.get("axis")
    return axis.removeprefix("options.") if isinstance(axis, str) and axis.startswith("options.") else ""


def _no_option(model: str, name: str, known: tuple[str, ...]) -> str:
    return f"model {model!r}: {error_of(check_one_of, 'option', name, known)}"


def _tasks(datasets: list[Dataset | None]) -> list[str]:
    return list(dict.fromkeys(dataset.task for dataset in datasets if dataset is not None and dataset.task is not None))


def _refusals(model: str, options: Mapping[str, Any], tasks: list[str]) -> list[str]:
    """Errors that a model raises for options, on any of the tasks."""
    return list(dict.fromkeys(text for task in tasks for text in _all_refusals(model, dict(options), task)))


def _all_refusals(model: str, options: dict[str, Any], task: str) -> Iterator[str]:
    """Yield one error after the other, each time without the option that it names."""
    while text := _refusal(model, json.dumps(options, sort_keys=True, default=str), task):
        yield text
        named = _named(text, options)
        if not named:
            return
        del options[named[0]]


def _named(text: str, options: Mapping[str, Any]) -> list[str]:
    """The option that a message starts with, if any."""
    return [name for name in options if text.startswith((f"{name}=", f"{name}["))][:1]


# -------------------------------------------------------------------------------------------------------------- models


@lru_cache(maxsize=1024)
def _refusal(model: str, options: str, task: str) -> str | None:
    """Error that a model raises for options; it is built for this, which takes a millisecond."""
    try:
        _build(model, json.loads(options), task)
    except InputError as error:
        return str(error)
    except Exception as error:  # arbitrary values can raise anything
        return f"{model!r} cannot be built with {options:.200}: {type(error).__name__}: {error!s:.200}."
    return None


def _build(model: str, options: dict[str, Any], task: str) -> Any:
    import torch

    from gbwatt.models import create

    with torch.random.fork_rng(devices=[]):  # leave the caller's random state unchanged
        if options:
            _require_small_network(model, options, task)
        return create(model, task=task, **options)


def _require_small_network(model: str, options: dict[str, Any], task: str) -> None:
    """Reject a network that would need gigabytes, without allocating them."""
    import torch

    from gbwatt.models import create

    try:
        with torch.device("meta"):  # shapes without memory
            built = create(model, task=task, **options)
    except Exception:  # building the network itself will raise it
        return
    parameters = sum(one.numel() for one in (*built.parameters(), *built.buffers()))
    if parameters > MOST_PARAMETERS:
        raise ParameterError(
            f"options {json.dumps(options, default=str):.200} give a network of {parameters} parameters; at most "
            f"{MOST_PARAMETERS} are allowed: use smaller values."
        )

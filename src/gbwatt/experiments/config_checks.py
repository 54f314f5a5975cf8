"""What is wrong with an experiment: the schema's errors in plain words, and what only the models can tell."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from gbwatt._validation import check_one_of
from gbwatt.data import Dataset, find_dataset
from gbwatt.errors import InputError, ParameterError
from gbwatt.experiments.yaml_io import Keys, Place, Problem, said

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

#: Limits of an experiment: lines of its table, and parameters of a model that is built to see whether it can be.
MOST_LINES = 1000
MOST_PARAMETERS = 50_000_000

#: What pydantic says, where that speaks of Python.
_TEXTS = {
    "missing": "is missing.",
    "string_too_short": "must not be empty.",
    "model_type": "must have keys with values, got {}.",
    "dict_type": "must have keys with values, got {}.",
    "tuple_type": "must be a list, got {}.",
    "string_type": "must be text, got {}.",
    "int_type": "must be a whole number, got {}.",
    "int_from_float": "must be a whole number, got {}.",
    "float_type": "must be a number, got {}.",
}


def translate(error: ErrorDetails, keys: Keys) -> Problem:
    """An error of pydantic in plain words."""
    place, kind = tuple(error["loc"]), error["type"]
    if kind == "extra_forbidden":
        return Problem(place, said(check_one_of, "key", place[-1], keys(place[:-1]) or ()) or "")
    if kind == "value_error":
        return Problem(place, str(error["ctx"]["error"]))
    got = repr(error["input"])
    got = got if len(got) < 60 else got[:57] + "..."
    if kind in _TEXTS:
        return Problem(place, _TEXTS[kind].format(got))
    return Problem(place, f"{error['msg'].replace('Input should be', 'must be')}, got {got}.")


# ----------------------------------------------------------------------------------------------------------- conflicts


def conflicts(raw: Mapping[str, Any]) -> Iterator[Problem]:
    """What is wrong between values; those that are wrong by themselves are passed over, others have said so.

    Parameters
    ----------
    raw : mapping
        An experiment as it was written, whatever is wrong with it.
    """
    models = [row if isinstance(row, dict) else {} for row in _list(raw.get("models"))]
    datasets = _datasets(raw.get("datasets"))
    vary: Mapping[str, Any] = raw["vary"] if isinstance(raw.get("vary"), dict) else {}
    yield from _repeated(models)
    yield from _unknown_reference(raw.get("reference"), models)
    lines = len(models) * max(1, len(_list(vary.get("values"))))
    if lines > MOST_LINES:
        text = f"models × values of vary are {lines} lines of a table; at most {MOST_LINES} are possible: write fewer."
        yield Problem(("models",), text)
        return
    for number, row in enumerate(models):
        yield from _only_for_corpora(raw.get("training"), row, number)
        yield from _foreign(row, number, datasets)
        yield from _refused(row, number, _datasets(row.get("datasets")) or datasets, vary)


def _list(value: object) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


def _datasets(names: object) -> list[Dataset | None]:
    """Data sets by their names; None for what is none."""
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
            text = f"label={label!r} is that of models[{first}], too; lines of a table need names of their own."
            yield Problem(("models", number, "label"), text)


def _unknown_reference(label: object, models: list[dict[str, Any]]) -> Iterator[Problem]:
    labels = tuple(row["label"] for row in models if isinstance(row.get("label"), str))
    if isinstance(label, str) and label and labels:
        try:
            check_one_of("reference", label, labels)
        except ParameterError as error:
            yield Problem(("reference",), str(error))


#: Settings of training that only models for corpora have.
FOR_CORPORA = ("layer_decay", "schedule", "warmup_epochs", "label_smoothing", "precision", "shards")


def _only_for_corpora(shared: object, row: Mapping[str, Any], number: int) -> Iterator[Problem]:
    """Settings that a model does not have, by itself or from those for all models."""
    from gbwatt.models import entry, list_models

    model = row.get("model")
    if not isinstance(model, str) or model not in list_models() or not entry(model).for_tasks:
        return
    places: list[tuple[object, Place]] = [
        (shared, ("training",)),
        (row.get("training"), ("models", number, "training")),
    ]
    for settings, place in places:
        for name in settings if isinstance(settings, dict) else ():
            if name in FOR_CORPORA:
                text = f"{name} is for foundation models; model {model!r} has no such setting: leave it out."
                yield Problem((*place, name), text)


def _foreign(row: Mapping[str, Any], number: int, datasets: list[Dataset | None]) -> Iterator[Problem]:
    names = [dataset.name for dataset in datasets if dataset is not None]
    for at, dataset in enumerate(_datasets(row.get("datasets"))):
        if dataset is not None and dataset.name not in names:
            text = f"dataset={dataset.name!r} is not one of the experiment's: {', '.join(map(repr, names))}."
            yield Problem(("models", number, "datasets", at), text)


def _refused(
    row: Mapping[str, Any], number: int, datasets: list[Dataset | None], vary: Mapping[str, Any]
) -> Iterator[Problem]:
    """Options that the model does not have, and values of options that it refuses."""
    model, options, varied = row.get("model"), row.get("options") or {}, _varied_option(vary)
    if not isinstance(model, str) or not isinstance(options, dict) or not (options or varied):
        return
    known = known_options(model)
    if known is None:
        return
    own, tasks = {name: value for name, value in options.items() if name in known}, _tasks(datasets)
    yield from _refused_options(model, options, own, tasks, ("models", number, "options"))
    if varied in known:
        own.pop(varied, None)
        before = _refusals(model, own, tasks)  # said already
        for at, value in enumerate(_list(vary.get("values"))):
            texts = [text for text in _refusals(model, {**own, varied: value}, tasks) if text not in before]
            yield from (Problem(("vary", "values", at), f"model {model!r}: {text}") for text in texts)
    elif varied:
        yield Problem(("vary", "axis"), _no_option(model, varied, known))


def _refused_options(
    model: str, options: Mapping[str, Any], own: Mapping[str, Any], tasks: list[str], place: Place
) -> Iterator[Problem]:
    for name in options:
        if name not in own:
            yield Problem((*place, name), _no_option(model, name, known_options(model) or ()))
    for text in _refusals(model, own, tasks):
        yield Problem((*place, *_named(text, own)), text)


def _varied_option(vary: Mapping[str, Any]) -> str:
    """The name of the option that is varied; empty if something else is."""
    axis = vary.get("axis")
    return axis.removeprefix("options.") if isinstance(axis, str) and axis.startswith("options.") else ""


def _no_option(model: str, name: str, known: tuple[str, ...]) -> str:
    return f"model {model!r}: {said(check_one_of, 'option', name, known)}"


def _tasks(datasets: list[Dataset | None]) -> list[str]:
    return list(dict.fromkeys(dataset.task for dataset in datasets if dataset is not None and dataset.task is not None))


def _refusals(model: str, options: Mapping[str, Any], tasks: list[str]) -> list[str]:
    """What a model has against options, for any of the tasks."""
    return list(dict.fromkeys(text for task in tasks for text in _all_refusals(model, dict(options), task)))


def _all_refusals(model: str, options: dict[str, Any], task: str) -> Iterator[str]:
    """One after the other: what is refused is left out, to see whether the rest is, too."""
    while text := _refusal(model, json.dumps(options, sort_keys=True, default=str), task):
        yield text
        named = _named(text, options)
        if not named:
            return
        del options[named[0]]


def _named(text: str, options: Mapping[str, Any]) -> list[str]:
    """The option that a message is about, if it begins with one."""
    return [name for name in options if text.startswith((f"{name}=", f"{name}["))][:1]


# -------------------------------------------------------------------------------------------------------------- models


@lru_cache(maxsize=64)
def known_options(model: str) -> tuple[str, ...] | None:
    """The options of a model; None if it cannot be told, because its package or the model itself is not there."""
    from gbwatt.models import entry, list_models
    from gbwatt.models.signal import Signal

    if model not in list_models():
        return None
    if not entry(model).for_tasks:
        return entry(model).options
    try:
        built = _build(model, {}, "mi")
    except ImportError:
        return None
    network = getattr(built, "network", None)  # of another library: its constructor says more than our config
    names = built.config if network is None else _parameters(type(network))
    signal = {field.name for field in fields(Signal)} | {"chs_info", "input_window_seconds"}
    return tuple(name for name in names if name not in signal)


def _parameters(network: type) -> list[str]:
    found = inspect.signature(network).parameters.values()
    return [one.name for one in found if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]


@lru_cache(maxsize=1024)
def _refusal(model: str, options: str, task: str) -> str | None:
    """What a model has against options: it is built, which takes a millisecond."""
    try:
        _build(model, json.loads(options), task)
    except InputError as error:
        return str(error)
    except Exception as error:  # whatever values like these lead to
        return f"{model!r} cannot be built with {options:.200}: {type(error).__name__}: {error!s:.200}."
    return None


def _build(model: str, options: dict[str, Any], task: str) -> Any:
    import torch

    from gbwatt.models import create

    with torch.random.fork_rng(devices=[]):  # the caller's random numbers are not ours
        if options:
            _require_small_network(model, options, task)
        return create(model, task=task, **options)


def _require_small_network(model: str, options: dict[str, Any], task: str) -> None:
    """Refuse a network that would take gigabytes, before it takes them."""
    import torch

    from gbwatt.models import create

    try:
        with torch.device("meta"):  # shapes without memory
            built = create(model, task=task, **options)
    except Exception:  # not with these values, or not without memory: that is for the network itself to say
        return
    parameters = sum(one.numel() for one in (*built.parameters(), *built.buffers()))
    if parameters > MOST_PARAMETERS:
        raise ParameterError(
            f"options {json.dumps(options, default=str):.200} make a network of {parameters} parameters; at most "
            f"{MOST_PARAMETERS} are possible: take smaller numbers."
        )

"""Experiment files: the YAML schema, checks of values and conflicts, and reading."""

from __future__ import annotations

import json
import re
import string
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from gbwatt._validation import check_at_least, check_number, check_one_of
from gbwatt.data import Dataset, Preprocessing, find_dataset
from gbwatt.data.loading import SEPARATOR
from gbwatt.data.splits import PROTOCOLS
from gbwatt.errors import InputError, ParameterError
from gbwatt.experiments import grid, paper
from gbwatt.experiments.runs import UNLABELLED, LabelledRun, canonicalize, has_executor
from gbwatt.experiments.table_formats import visible
from gbwatt.experiments.yaml_io import (
    AllowedKeys,
    ConfigurationError,
    KeyPath,
    Origins,
    Problem,
    assign,
    error_of,
    read_document,
)

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

#: Limits of an experiment: lines of its table, and parameters of a model, which is built to check its options.
MOST_LINES = 1000
MOST_PARAMETERS = 50_000_000
LARGEST = 2**31 - 1  # largest seed or subject number
MOST_SEEDS = 10_000
MOST_WIDTH = 50  # characters to which a format may pad a value
AXES = ("fraction", "noise", "options")  # quantities that an experiment can vary

#: Plain texts for errors of pydantic that use Python terms.
_PYDANTIC_TEXTS = {
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
    """Describe a validation error of pydantic in plain words.

    Parameters
    ----------
    error : ErrorDetails
        One of the errors of a ``ValidationError``.
    allowed_keys : callable
        Function that returns the keys allowed at a path, to suggest one for an unknown key.

    Returns
    -------
    Problem
        Path of the value, and the message.
    """
    path, kind = tuple(error["loc"]), error["type"]
    if kind == "extra_forbidden":
        return Problem(path, error_of(check_one_of, "key", path[-1], allowed_keys(path[:-1]) or ()) or "")
    if kind == "value_error":
        return Problem(path, str(error["ctx"]["error"]))
    got = repr(error["input"])
    got = got if len(got) < 60 else got[:57] + "..."
    if kind in _PYDANTIC_TEXTS:
        return Problem(path, _PYDANTIC_TEXTS[kind].format(got))
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
    return _check_integers("seeds", value, 0)


def parse_subjects(value: Any) -> grid.Subjects:
    """Return "all", or the subjects of a list."""
    if value == "all":
        return "all"
    if not isinstance(value, list | tuple):
        raise ParameterError(f"subjects={value!r} must be 'all' or a list of numbers.")
    return _check_integers("subjects", value, 0)


def parse_subjects_by_dataset(value: Any) -> grid.Subjects | dict[str, grid.Subjects]:
    """Return "all", the subjects of a list, or one of them for each data set of a mapping."""
    if not isinstance(value, Mapping):
        return parse_subjects(value)
    names = [dataset_name(str(name)) for name in value]
    check_distinct("subjects", names)
    return dict(zip(names, map(parse_subjects, value.values()), strict=True))


def parse_sources(value: Any) -> tuple[int, ...] | str:
    """Return the source subjects of a list, or "others" for all other subjects of the experiment."""
    if value == grid.OTHERS:
        return grid.OTHERS
    if not isinstance(value, list | tuple):
        raise ParameterError(f"sources={value!r} must be a list of subjects, or 'others'.")
    return check_not_empty("sources", _check_integers("sources", value, 0))


def _check_integers(name: str, values: Sequence[Any], least: int) -> tuple[int, ...]:
    """Require distinct integers from ``least`` to ``LARGEST``, at least one; return them as a tuple."""
    for index, value in enumerate(values):
        check_at_least(f"{name}[{index}]", value, least)
        if value > LARGEST:
            raise ParameterError(f"{name}[{index}]={value} must be at most {LARGEST}.")
    return check_distinct(name, values)


def check_not_empty(name: str, values: Sequence[Any]) -> tuple[Any, ...]:
    """Require at least one value; return the values as a tuple."""
    if not values:
        raise ParameterError(f"{name} must not be empty.")
    return tuple(values)


def check_distinct(name: str, values: Sequence[Any]) -> tuple[Any, ...]:
    """Require at least one value, and none twice; return the values as a tuple."""
    seen: set[str] = set()
    for value in check_not_empty(name, values):
        text = json.dumps(canonicalize(value), sort_keys=True, default=str)  # 1 and 1.0 are the same
        if text in seen:
            raise ParameterError(f"{name} has {value!r} twice.")
        seen.add(text)
    return tuple(values)


def check_name(name: str) -> str:
    """Require a valid name of an experiment: lower-case letters, digits, - and _."""
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", name):
        raise ParameterError(f"name={name!r} must be lower-case letters, digits, - and _, starting with a letter.")
    return name


def files_as_text(value: Any) -> Any:
    """Return several files, ``[a.edf, b.edf]`` or ``{1: [a.edf, b.edf], 2: c.edf}``, as a text; other values unchanged.

    Examples
    --------
    >>> files_as_text({1: ["a.edf", "b.edf"], 2: "c.edf"})
    '1=a.edf + 1=b.edf + 2=c.edf'
    """
    if isinstance(value, Mapping):
        value = [f"{number}={file}" for number, files in value.items() for file in _as_list(files) or [files]]
    return SEPARATOR.join(map(str, value)) if isinstance(value, list | tuple) and value else value


def dataset_name(name: str) -> str:
    """Return the full name of a data set, which may be given by another name; raise an error if it is unknown."""
    try:
        return find_dataset(name).name
    except ImportError as error:  # MOABB, for its data sets
        raise ParameterError(f"dataset={name[:80]!r}: {error}.") from None
    except OSError as error:  # a name that is too long for a file, for instance
        raise ParameterError(f"dataset={name[:80]!r} cannot be found: {error.strerror or error}.") from None


def check_model(name: str) -> str:
    """Require the name of a registered model."""
    from gbwatt.models import list_models  # imports torch

    check_one_of("model", name, list_models())
    return name


def check_axis(axis: str) -> str:
    """Require a quantity that an experiment can vary: "fraction", "noise" or "options.NAME"."""
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
    """Require the name of a table of the paper, see :data:`gbwatt.experiments.paper.TABLES`."""
    paper.find_table(name)
    return name


def check_steps(text: str) -> str:
    """Require preprocessing steps that can be parsed."""
    Preprocessing.parse(text)
    return text


def check_printable(text: str) -> str:
    """Require text without control characters."""
    if visible(text.strip()) != " ".join(text.split()):
        raise ParameterError(f"{text[:80]!r} contains control characters; remove them.")
    return text


# ----------------------------------------------------------------------------------------------------------- conflicts


def conflicts(raw: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield contradictions between values, such as repeated labels or options that a model does not have.

    Values that are invalid by themselves are skipped.

    Parameters
    ----------
    raw : mapping
        An experiment as written, possibly with errors.
    """
    models = [row if isinstance(row, dict) else {} for row in _as_list(raw.get("models"))]
    datasets = _find_datasets(raw.get("datasets"))
    vary: Mapping[str, Any] = raw["vary"] if isinstance(raw.get("vary"), dict) else {}
    yield from _repeated_labels(models)
    yield from _unknown_reference(raw.get("reference"), models)
    yield from _foreign_subjects(raw.get("subjects"), datasets)
    yield from _invalid_reading(raw, datasets)
    lines = len(models) * max(1, len(_as_list(vary.get("values"))))
    if lines > MOST_LINES:
        text = f"models × values of vary give {lines} table lines; at most {MOST_LINES} are allowed: use fewer."
        yield Problem(("models",), text)
        return
    for number, row in enumerate(models):
        yield from _misplaced_settings(raw.get("training"), row, number)
        yield from _conflicting_transfer(raw, row, number)
        yield from _foreign_datasets(row, number, datasets)
        yield from _invalid_options(row, number, _find_datasets(row.get("datasets")) or datasets, vary)


def _as_list(value: object) -> list[Any]:
    """Return a list or tuple as a list; an empty list for any other value."""
    return list(value) if isinstance(value, list | tuple) else []


def _find_datasets(names: object) -> list[Dataset | None]:
    """Return the data sets with these names; None for each unknown one."""
    found = map(files_as_text, _as_list(names))
    return [_find_or_none(name) if isinstance(name, str) else None for name in found]


def _find_or_none(name: str) -> Dataset | None:
    """Return the data set with this name; None if it is unknown or cannot be found."""
    try:
        return find_dataset(name)
    except (ValueError, OSError, ImportError):
        return None


def _repeated_labels(models: list[dict[str, Any]]) -> Iterator[Problem]:
    """Yield a problem for each model whose label an earlier model has."""
    labels = [row.get("label") for row in models]
    for number, label in enumerate(labels):
        first = labels.index(label)
        if isinstance(label, str) and first < number:
            text = f"label={label!r} is also used by models[{first}]; labels must be unique."
            yield Problem(("models", number, "label"), text)


def _unknown_reference(label: object, models: list[dict[str, Any]]) -> Iterator[Problem]:
    """Yield a problem if the reference is not the label of a model."""
    labels = tuple(row["label"] for row in models if isinstance(row.get("label"), str))
    if isinstance(label, str) and label and labels:
        try:
            check_one_of("reference", label, labels)
        except ParameterError as error:
            yield Problem(("reference",), str(error))


def _foreign_subjects(subjects: object, datasets: list[Dataset | None]) -> Iterator[Problem]:
    """Yield a problem for each data set that subjects are given for, but is not a data set of the experiment."""
    names = [dataset.name for dataset in datasets if dataset is not None]
    for name in subjects if isinstance(subjects, dict) else ():
        dataset = _find_or_none(str(name))
        if dataset is not None and dataset.name not in names:
            text = f"dataset={dataset.name!r} is not a data set of the experiment: {', '.join(map(repr, names))}."
            yield Problem(("subjects", name), text)


def _invalid_reading(raw: Mapping[str, Any], datasets: list[Dataset | None]) -> Iterator[Problem]:
    """Yield a problem for each way of reading or splitting that a data set does not have."""
    reading = raw["reading"] if isinstance(raw.get("reading"), dict) else {}
    if "preprocessing" in reading:
        yield Problem(("reading", "preprocessing"), "preprocessing is not an option of reading; use preprocess.")
    for dataset in (one for one in datasets if one is not None):
        if has_executor(dataset.name):
            for name in ("protocol", "preprocess", *(["reading"] if reading else [])):
                if raw.get(name) is not None:
                    yield Problem((name,), f"{name} is not for corpora such as {dataset.name!r}; remove it.")
            continue
        known = _reader_options(dataset)
        for name in reading.keys() - {"preprocessing"}:
            if text := error_of(check_one_of, f"option of {dataset.name}", name, known):
                yield Problem(("reading", name), text)


def _reader_options(dataset: Dataset) -> tuple[str, ...]:
    """Return the names of the arguments with which a data set, or its simulated counterpart, can be read."""
    simulated = grid.simulated_counterpart(dataset.name)
    datasets = [dataset, *([] if simulated is None else [find_dataset(simulated)])]
    return tuple(dict.fromkeys(["source", *(name for one in datasets for s in one.sources for name in s.options)]))


#: Training settings that only foundation models have.
FOR_CORPORA = ("layer_decay", "warmup_epochs", "label_smoothing", "precision", "shards")


def _misplaced_settings(shared: object, row: Mapping[str, Any], number: int) -> Iterator[Problem]:
    """Yield a problem for each training setting of foundation models that is set for another model.

    ``shared`` are the training settings of the experiment, ``row`` is its model with the index ``number``.
    """
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


#: Training settings for trials of several subjects, which foundation models do not have.
FOR_TRIALS = ("sources", "own_trials", "pretraining_epochs", "alignment", "domains", "frozen", "layer_lr")


def _conflicting_transfer(raw: Mapping[str, Any], row: Mapping[str, Any], number: int) -> Iterator[Problem]:
    """Yield a problem for each setting of transfer between subjects that contradicts another, or has no effect.

    ``row`` is the model with the index ``number`` of the experiment ``raw``.
    """
    own, shared = (one if isinstance(one, dict) else {} for one in (row.get("training"), raw.get("training")))
    given: dict[str, Any] = {**protocol_training(raw.get("protocol")), **shared, **own}
    options, vary = row.get("options") or {}, raw.get("vary")
    varied = _varied_option(vary) if isinstance(vary, dict) else ""
    normalized = varied == "domain_norm" or (isinstance(options, dict) and options.get("domain_norm") is not None)
    rows = [one.get("training") for one in _as_list(raw.get("models")) if isinstance(one, dict)]
    of_some = any(isinstance(one, dict) and "sources" in one for one in rows)
    for name, text in _transfer_errors(row.get("model"), given, normalized):
        if name not in own and of_some and "sources" not in given:
            continue  # a shared setting of those models that have sources
        if name in own:
            yield Problem(("models", number, "training", name), text)
        else:
            yield Problem(("training", name) if name in shared else ("protocol",), text)


def _transfer_errors(model: object, given: Mapping[str, Any], normalized: bool) -> Iterator[tuple[str, str]]:
    """Yield the name of each training setting that contradicts another one, and the message.

    ``given`` are all settings of a model, and ``normalized`` is whether it has the option ``domain_norm``.
    """
    from gbwatt.models import entry, list_models

    if not isinstance(model, str) or model not in list_models():
        return
    classical = entry(model).classical
    if not entry(model).for_tasks:
        for name in FOR_TRIALS:
            if name in given:
                yield name, f"{name} is not for foundation models such as {model!r}; remove it."
        return
    if classical:
        for name in ("frozen", "layer_lr"):
            if given.get(name):
                yield name, f"{name}: the classical pipeline {model!r} has no parts that are trained; remove it."
    if given.get("domains") and not given.get("alignment") and not normalized:
        yield "domains", "domains has no effect without alignment or the model option domain_norm; remove it."
    if "sources" not in given:
        for name in ("own_trials", "pretraining_epochs"):
            if name in given:
                yield name, f"{name} is for models that use other subjects: set sources, for example to others."
    elif given.get("own_trials") == UNLABELLED:
        if "pretraining_epochs" in given:
            yield (
                "pretraining_epochs",
                "pretraining_epochs is for fine-tuning; with own_trials: unlabelled, use max_epochs instead.",
            )
        if "early_stopping" in given:
            text = "early_stopping needs validation trials; with own_trials: unlabelled there are none: remove it."
            yield "early_stopping", text
    else:
        yield from _fine_tuning_errors(model, given, classical)


def _fine_tuning_errors(model: str, given: Mapping[str, Any], classical: bool) -> Iterator[tuple[str, str]]:
    """Yield errors as :func:`_transfer_errors`, for a model that uses sources and labelled trials of the subject."""
    remedy = "or set own_trials: unlabelled"
    if "alignment" in given:
        text = (
            "alignment: with sources and labelled trials of the subject, each subject is aligned by its Euclidean mean"
        )
        yield "alignment", f"{text} already; remove it, {remedy}."
    if classical:
        return
    if model != "gbwatt":
        text = f"sources: {model!r} cannot be fine-tuned, only 'gbwatt' and classical pipelines can use sources"
        yield "sources", f"{text} with labelled trials of the subject; use one of these, {remedy}."
    elif "paradigm" not in given:
        yield "sources", f"sources: fine-tuning needs a paradigm; set paradigm: dataset, for example, {remedy}."


def _foreign_datasets(row: Mapping[str, Any], number: int, datasets: list[Dataset | None]) -> Iterator[Problem]:
    """Yield a problem for each data set of a model that is not a data set of the experiment."""
    names = [dataset.name for dataset in datasets if dataset is not None]
    for index, dataset in enumerate(_find_datasets(row.get("datasets"))):
        if dataset is not None and dataset.name not in names:
            text = f"dataset={dataset.name!r} is not a data set of the experiment: {', '.join(map(repr, names))}."
            yield Problem(("models", number, "datasets", index), text)


def _invalid_options(
    row: Mapping[str, Any], number: int, datasets: list[Dataset | None], vary: Mapping[str, Any]
) -> Iterator[Problem]:
    """Yield a problem for each option, fixed or varied, that the model does not have or whose value it rejects.

    ``row`` is the model with the index ``number`` in the experiment; it is built for the tasks of ``datasets``.
    """
    from gbwatt.models.registry import known_options, list_models

    model, options, varied = row.get("model"), row.get("options") or {}, _varied_option(vary)
    if not isinstance(model, str) or not isinstance(options, dict) or not (options or varied):
        return
    known = known_options(model) if model in list_models() else None
    if known is None:
        return
    valid, tasks = {name: value for name, value in options.items() if name in known}, _tasks_of(datasets)
    yield from _invalid_fixed_options(model, options, known, tasks, ("models", number, "options"))
    if varied in known:
        valid.pop(varied, None)
        reported = _build_errors(model, valid, tasks)
        for index, value in enumerate(_as_list(vary.get("values"))):
            texts = [text for text in _build_errors(model, {**valid, varied: value}, tasks) if text not in reported]
            yield from (Problem(("vary", "values", index), f"model {model!r}: {text}") for text in texts)
    elif varied:
        yield Problem(("vary", "axis"), _unknown_option(model, varied, known))


def _invalid_fixed_options(
    model: str, options: Mapping[str, Any], known: tuple[str, ...], tasks: list[str], path: KeyPath
) -> Iterator[Problem]:
    """Yield a problem for each option at ``path`` that the model does not have or whose value it rejects."""
    valid = {name: value for name, value in options.items() if name in known}
    for name in options:
        if name not in valid:
            yield Problem((*path, name), _unknown_option(model, name, known))
    for text in _build_errors(model, valid, tasks):
        yield Problem((*path, *_option_in(text, valid)), text)


def _varied_option(vary: Mapping[str, Any]) -> str:
    """Return the name of the model option that is varied; empty if something else or nothing is varied."""
    axis = vary.get("axis")
    return axis.removeprefix("options.") if isinstance(axis, str) and axis.startswith("options.") else ""


def _unknown_option(model: str, name: str, known: tuple[str, ...]) -> str:
    """Return the error message for an option that a model does not have."""
    return f"model {model!r}: {error_of(check_one_of, 'option', name, known)}"


def _tasks_of(datasets: list[Dataset | None]) -> list[str]:
    """Return the tasks of data sets, each once."""
    return list(dict.fromkeys(dataset.task for dataset in datasets if dataset is not None and dataset.task is not None))


def _build_errors(model: str, options: Mapping[str, Any], tasks: list[str]) -> list[str]:
    """Return the messages of all errors that building a model with these options raises, on any of the tasks."""
    return list(dict.fromkeys(text for task in tasks for text in _errors_on_task(model, dict(options), task)))


def _errors_on_task(model: str, options: dict[str, Any], task: str) -> Iterator[str]:
    """Yield the error messages of all options that a model rejects on a task; ``options`` is changed.

    A model raises one error at a time; therefore it is built again without the option that the message names.
    """
    while text := _build_error(model, json.dumps(options, sort_keys=True, default=str), task):
        yield text
        named = _option_in(text, options)
        if not named:
            return
        del options[named[0]]


def _option_in(text: str, options: Mapping[str, Any]) -> list[str]:
    """Return the name of the option that an error message starts with, in a list; empty if there is none."""
    return [name for name in options if text.startswith((f"{name}=", f"{name}["))][:1]


# -------------------------------------------------------------------------------------------------------------- models


@lru_cache(maxsize=1024)
def _build_error(model: str, options: str, task: str) -> str | None:
    """Return the message of the error that building a model raises; None if it can be built.

    ``options`` is JSON, so that results can be cached.  Building a model takes about a millisecond.
    """
    try:
        _build_model(model, json.loads(options), task)
    except InputError as error:
        return str(error)
    except Exception as error:  # arbitrary values can raise anything
        return f"{model!r} cannot be built with {options:.200}: {type(error).__name__}: {error!s:.200}."
    return None


def _build_model(model: str, options: dict[str, Any], task: str) -> Any:
    """Build a model for a task; the random state of the caller does not change."""
    import torch

    from gbwatt.models import create

    with torch.random.fork_rng(devices=[]):  # leave the caller's random state unchanged
        if options:
            _require_small_network(model, options, task)
        return create(model, task=task, **options)


def _require_small_network(model: str, options: dict[str, Any], task: str) -> None:
    """Reject a network with more than ``MOST_PARAMETERS`` parameters, without allocating them."""
    import torch

    from gbwatt.models import create

    try:
        with torch.device("meta"):  # shapes without memory
            built = create(model, task=task, **options)
    except Exception:  # building the network itself will raise it
        return
    parameters = sum(tensor.numel() for tensor in (*built.parameters(), *built.buffers()))
    if parameters > MOST_PARAMETERS:
        raise ParameterError(
            f"options {json.dumps(options, default=str):.200} give a network of {parameters} parameters; at most "
            f"{MOST_PARAMETERS} are allowed: use smaller values."
        )


__all__ = [
    "ConfigurationError",
    "Experiment",
    "ModelRow",
    "Training",
    "Vary",
    "experiment_from_dict",
    "find_experiment",
    "list_experiments",
    "override",
    "read_experiment",
]

#: Folders with experiments: those of the package, and the user's, which take precedence.
PACKAGED = Path(__file__).parent / "configs"
USER_FOLDER = Path("experiments")

#: Protocol in which each subject is tested after training on the others.
LEAVE_ONE_SUBJECT_OUT = "leave-one-subject-out"


def protocol_training(protocol: object) -> dict[str, Any]:
    """Return the training settings that follow from a protocol, unless a model has others."""
    return {"sources": grid.OTHERS, "own_trials": UNLABELLED} if protocol == LEAVE_ONE_SUBJECT_OUT else {}


SEEDS = 10  # default number of seeds, as in the paper

_LIST_ALLOWED = Field(strict=False)  # accepts a list for a tuple, since YAML has no tuples
# Types of fields, with their checks.
Text = Annotated[str, Field(min_length=1, max_length=500), AfterValidator(check_printable)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
Name = Annotated[str, BeforeValidator(files_as_text), AfterValidator(dataset_name)]
Names = Annotated[tuple[Name, ...], _LIST_ALLOWED, AfterValidator(lambda names: check_distinct("datasets", names))]
Options = Annotated[dict[str, Any], AfterValidator(canonicalize)]


# -------------------------------------------------------------------------------------------------------------- schema


def _one_of(name: str, *allowed: str) -> Any:
    """Return a validator for a field that must have one of the allowed values."""

    def check(value: str) -> str:
        """Require one of the allowed values."""
        check_one_of(name, value, allowed)
        return value

    return AfterValidator(check)


class _StrictModel(BaseModel):
    """Base of the schema: unknown keys, conversions of types, NaN and changes of values are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Training(_StrictModel):
    """Training settings; those that are not given have the value registered for the model and the task."""

    lr: Annotated[float, Field(gt=0, le=1)] | None = None
    batch_size: Annotated[Count, Field(ge=2)] | None = None
    max_epochs: Count | None = None
    weight_decay: Annotated[float, Field(ge=0, le=1)] | None = None
    early_stopping: Count | None = None
    # networks whose probabilities are averaged
    n_members: Count | None = None
    schedule: Annotated[str, _one_of("schedule", "cosine", "constant")] | None = None
    initialization: Annotated[str, _one_of("initialization", "random", "classical")] | None = None
    # settings of GBWAtt for a paradigm; "dataset": that of the data set
    paradigm: Annotated[str, _one_of("paradigm", "mi", "ssvep", "erp", "auto", "dataset")] | None = None
    # train on the validation trials, too, and use the last epoch
    merge_validation: bool | None = None
    # begin with weights of gbwatt that were trained on aligned trials of these subjects, and for how many epochs
    sources: Annotated[tuple[int, ...] | Literal["others"], PlainValidator(parse_sources)] | None = None
    # use of the subject's own training trials beside the sources: with labels, or for alignment only
    own_trials: Annotated[str, _one_of("own_trials", "labelled", UNLABELLED)] | None = None
    pretraining_epochs: Count | None = None
    # alignment of subjects or sessions, parts that are not trained, and factors of the learning rates of parts
    alignment: Annotated[str, _one_of("alignment", "euclidean", "riemannian")] | None = None
    domains: Annotated[str, _one_of("domains", "subject", "session")] | None = None
    frozen: Annotated[tuple[Text, ...], _LIST_ALLOWED, AfterValidator(lambda x: check_distinct("frozen", x))] | None = (
        None
    )
    layer_lr: dict[str, Annotated[float, Field(gt=0, le=1_000_000)]] | None = None
    # foundation models only
    layer_decay: Annotated[float, Field(gt=0, le=1)] | None = None
    warmup_epochs: Annotated[float, Field(ge=0, le=1_000_000)] | None = None
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] | None = None
    precision: Annotated[str, _one_of("precision", "float32", "bfloat16", "float16")] | None = None
    shards: Count | None = None

    def given(self) -> dict[str, Any]:
        """Return the settings that the experiment file sets."""
        return self.model_dump(exclude_none=True)


class ModelRow(_StrictModel):
    """A model of an experiment, with its options.

    Attributes
    ----------
    label : str
        Name of the model in the table.
    model : str
        One of :func:`gbwatt.models.list_models`.
    options : dict
        Arguments of the model.
    training : Training
        Training settings that differ from those of the experiment.
    datasets : tuple of str, optional
        Data sets that the model is run on; default: all of the experiment.
    seeds : int, optional
        Largest number of seeds, the first ones of the experiment; default: all.  Classical pipelines, whose results do
        not depend on the seed, always have one.
    """

    label: Text
    model: Annotated[str, AfterValidator(check_model)]
    options: Options = {}
    training: Training = Training()
    datasets: Names | None = None
    seeds: Count | None = None


class Vary(_StrictModel):
    """The quantity that an experiment varies.

    Attributes
    ----------
    axis : str
        "fraction" of the training trials, variance of the "noise", or a model option such as "options.theta".
    values : tuple
        Values of the quantity, each a setting of the table.
    label : str
        Format of a value, as in :meth:`str.format`: ``"{}"``, ``"θ = {:.1f}"``.
    where : "test" or "both", optional
        Noise in the test trials only (default), or in all trials.
    """

    axis: Annotated[str, AfterValidator(check_axis)]
    values: Annotated[tuple[Any, ...], _LIST_ALLOWED]
    label: Text = "{}"
    where: Annotated[str, _one_of("where", "test", "both")] | None = None

    @field_validator("values")
    @classmethod
    def _check_values(cls, values: tuple[Any, ...], info: ValidationInfo) -> tuple[Any, ...]:
        """Require distinct values that the axis allows: model options, fractions, or variances of noise."""
        axis = info.data.get("axis", "options")
        if axis.startswith("options"):
            return check_distinct("values", canonicalize(list(values)))
        for index, value in enumerate(values):
            check_number(f"values[{index}]", value)
            if value < 0 or (axis == "fraction" and not 0 < value <= 1):
                allowed = "above 0 and at most 1" if axis == "fraction" else "0 or more"
                raise ParameterError(f"values[{index}]={value}: {axis} must be {allowed}.")
        return check_distinct("values", [float(value) for value in values])

    @field_validator("label")
    @classmethod
    def _check_label(cls, label: str, info: ValidationInfo) -> str:
        """Require a format that gives each value a different text."""
        values = info.data.get("values", ())
        check_plain_format(label)
        try:
            shown = [label.format(value) for value in values]
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise ParameterError(f"label={label!r} cannot format the values: {error}.") from None
        if len(set(shown)) < len(shown):
            raise ParameterError(f"label={label!r} gives different values the same text: {', '.join(shown)}.")
        return label

    @field_validator("where")
    @classmethod
    def _check_where(cls, where: str | None, info: ValidationInfo) -> str | None:
        """Allow ``where`` only if noise is varied."""
        if where is not None and info.data.get("axis", "noise") != "noise":
            raise ParameterError(f"where={where!r} is only allowed with axis: noise; remove it.")
        return where

    def show(self, value: Any) -> str:
        """Return the text of a value in tables."""
        return visible(self.label.format(value))

    def changes(self, value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the model options and the arguments of :class:`~gbwatt.experiments.runs.Run` that a value sets."""
        kind, _, name = self.axis.partition(".")
        if kind == "options":
            return {name: value}, {}
        noisy = {"noisy_training": True} if kind == "noise" and self.where == "both" and value else {}
        return {}, {kind: value, **noisy}


class Experiment(_StrictModel):
    """Description of one table or figure: data sets, models, seeds, and at most one varied quantity.

    Read it from a file with :func:`read_experiment`, or make it with :func:`experiment_from_dict`; both report all
    errors together.

    Attributes
    ----------
    name, title : str
        Name of the file, and title of the table.
    paper : str, optional
        Table of the paper to compare with, see :mod:`gbwatt.experiments.paper`.
    datasets : tuple of str
        Names of data sets, or files.
    simulated : "auto", "always" or "never"
        When to use simulated recordings instead of real ones: where files are missing, for all data sets, or never.
    subjects : "all", tuple of int, or dict
        Subjects of each data set; a dict has them by data set, and data sets that it lacks have all.
    seeds : tuple of int
        Random seeds.
    training : Training
        Training settings of all models.
    models : tuple of ModelRow
        Models, one line of the table each.
    vary : Vary, optional
        Quantity that is varied.
    validation : bool
        Whether tables show validation accuracies, which are used for model selection.
    durations : bool
        Whether tables show the durations of runs.
    reference : str, optional
        Label of the model that tables compare the others with.
    protocol : str, optional
        How trials are split: "in-order" or "leave-one-session-out", each subject by itself; or "leave-one-subject-out",
        which trains on the trials of all other subjects, and tests on the test trials of the data set's protocol, whose
        training trials are used without labels.  Default: the protocol of each data set.
    reading : dict
        Arguments of :func:`gbwatt.data.load` for all data sets, such as ``tmin``, ``tmax`` and ``classes``.
    preprocess : str, optional
        Preprocessing steps as text, see :meth:`gbwatt.data.Preprocessing.parse`.
    """

    name: Annotated[str, AfterValidator(check_name)]
    title: Text
    paper: Annotated[str, AfterValidator(check_paper_table)] | None = None
    datasets: Names
    simulated: Annotated[str, _one_of("simulated", "auto", "always", "never")] = "auto"
    subjects: Annotated[
        tuple[int, ...] | Literal["all"] | dict[str, tuple[int, ...] | Literal["all"]],
        PlainValidator(parse_subjects_by_dataset),
    ] = "all"
    seeds: Annotated[tuple[int, ...], PlainValidator(parse_seeds)] = tuple(range(SEEDS))
    training: Training = Training()
    models: Annotated[tuple[ModelRow, ...], _LIST_ALLOWED, AfterValidator(lambda rows: check_not_empty("models", rows))]
    vary: Vary | None = None
    validation: bool = False
    durations: bool = False
    reference: Text | None = None
    protocol: Annotated[str, _one_of("protocol", *PROTOCOLS)] | None = None
    reading: Options = {}
    preprocess: Annotated[str, AfterValidator(check_steps)] | None = None

    @property
    def own_protocol(self) -> str:
        """Protocol by which each subject is split by itself; empty for that of the data set."""
        return "" if self.protocol in (None, LEAVE_ONE_SUBJECT_OUT) else str(self.protocol)

    @property
    def protocol_training(self) -> dict[str, Any]:
        """Training settings that follow from the protocol, unless a model has others."""
        return protocol_training(self.protocol)

    @property
    def how_to_read(self) -> dict[str, Any]:
        """Arguments of :func:`gbwatt.data.load`: ``reading`` and ``preprocess``."""
        return {**self.reading, **({} if self.preprocess is None else {"preprocessing": self.preprocess})}

    def variants(self, options: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
        """Yield for each value of the varied quantity its text, the model options, and further run arguments."""
        if self.vary is None:
            yield "", dict(options), {}
            return
        for value in self.vary.values:
            varied_options, changes = self.vary.changes(value)
            yield self.vary.show(value), {**options, **varied_options}, changes

    def recordings(
        self,
        root: str | Path | None = None,
        *,
        datasets: Sequence[str] | None = None,
        subjects: grid.Subjects | None = None,
        simulated: str | None = None,
    ) -> dict[str, grid.Recordings]:
        """Return the recordings to use for each data set: real or simulated ones, the reason, and the subjects."""
        names = self.datasets
        if datasets is not None:
            names = check_distinct("datasets", [dataset_name(name) for name in datasets])
        numbers = self.subjects if subjects is None else parse_subjects_by_dataset(subjects)
        return grid.find_recordings(names, numbers, self.simulated if simulated is None else simulated, root)

    def labelled_runs(
        self,
        *,
        datasets: Sequence[str] | None = None,
        subjects: grid.Subjects | None = None,
        seeds: int | Sequence[int] | None = None,
        simulated: str | None = None,
        root: str | Path | None = None,
    ) -> list[LabelledRun]:
        """Return all runs with the table lines that they belong to.

        Parameters
        ----------
        datasets, subjects, seeds, simulated
            Values to use instead of those of the experiment.
        root : path, optional
            Folder of recordings.
        """
        recordings = self.recordings(root, datasets=datasets, subjects=subjects, simulated=simulated)
        return grid.expand(self, recordings.values(), self.seeds if seeds is None else parse_seeds(seeds), root)


# ------------------------------------------------------------------------------------------------------------- reading

#: Schema of the mappings below these keys of an experiment file.
_MODEL_OF_KEY: dict[str, type[_StrictModel]] = {"models": ModelRow, "training": Training, "vary": Vary}


def _allowed_keys(path: KeyPath) -> tuple[str, ...] | None:
    """Return the keys that are allowed at a path of an experiment file; None: any."""
    names = [step for step in path if isinstance(step, str)]
    part = _MODEL_OF_KEY.get(names[-1]) if names else Experiment
    return None if part is None else tuple(part.model_fields)


def list_experiments() -> dict[str, Path]:
    """Return the experiment files by name: those of the package, and those in ``./experiments``.

    A file in ``./experiments`` takes precedence over one of the package with the same name.

    Examples
    --------
    >>> "main" in list_experiments()
    True
    """
    return {file.stem: file for folder in (PACKAGED, USER_FOLDER) for file in sorted(folder.glob("*.yaml"))}


def find_experiment(name: str | Path) -> Path:
    """Return the file of an experiment.

    Parameters
    ----------
    name : str or path
        Path of a file, or one of the names of :func:`list_experiments`.

    Raises
    ------
    ParameterError
        The name is unknown.
    """
    path = Path(name)
    if path.exists() and not path.is_dir():
        return path
    files = list_experiments()
    if path.suffix:
        if not path.exists() and path.stem in files:
            raise ParameterError(
                f"experiment={str(name)!r} does not exist; use {path.stem!r}, without folder and suffix, for "
                f"{files[path.stem]}."
            )
        return path
    check_one_of("experiment", str(name), tuple(files))
    return files[str(name)]


def read_experiment(experiment: str | Path, overrides: Sequence[str] = ()) -> Experiment:
    """Read an experiment from its file.

    Parameters
    ----------
    experiment : str or path
        Name of an experiment, such as "main", or path of a file; see :func:`find_experiment`.
    overrides : sequence of str
        Assignments that change the file, see :func:`override`.

    Raises
    ------
    ConfigurationError
        The file has errors; the message lists all of them, with their lines.

    Examples
    --------
    >>> experiment = read_experiment("theta", ["seeds=3"])
    >>> experiment.title, experiment.seeds
    ('Effect of θ', (0, 1, 2))
    """
    path = find_experiment(experiment)
    content, origins = read_document(path)
    content, assigned, problems = assign(content, overrides, _allowed_keys)
    return _validate(content, str(path), {**origins, **assigned}, problems)


def experiment_from_dict(content: Mapping[str, Any]) -> Experiment:
    """Make an experiment from a dict with the keys of an experiment file.

    Raises
    ------
    ConfigurationError
        The content has errors; the message lists all of them.
    """
    return _validate(dict(content), "the experiment", {}, [])


def override(content: Mapping[str, Any], assignments: Sequence[str]) -> dict[str, Any]:
    """Return a copy of an experiment's content with values assigned; the values are YAML.

    Examples
    --------
    >>> override({"seeds": 10, "models": [{"model": "matt"}]}, ["seeds=[0, 1]", "models.0.training.lr=1e-3"])
    {'seeds': [0, 1], 'models': [{'model': 'matt', 'training': {'lr': 0.001}}]}
    """
    changed, _, problems = assign(content, assignments, _allowed_keys)
    if problems:
        raise ConfigurationError("the command", problems)
    return changed


def _validate(content: dict[str, Any], source: str, origins: Origins, problems: list[Problem]) -> Experiment:
    """Make the experiment, or raise one error with all problems.

    Parameters
    ----------
    content : dict
        Content of an experiment file.
    source : str
        Name of the file, for the message.
    origins : dict
        Line or command-line option of each value, for the message.
    problems : list of Problem
        Problems that are already known.
    """
    found_problems = list(problems)
    experiment = None
    try:
        experiment = Experiment.model_validate(content)
    except ValidationError as error:
        found_problems += [translate(detail, _allowed_keys) for detail in error.errors()]
    except (ArithmeticError, RecursionError) as error:  # of a dict; files cannot have such numbers and depths
        found_problems.append(Problem((), f"a value is too large or too deeply nested ({error})."))
    found_problems += dict.fromkeys(conflicts(content))  # a shared setting may contradict several models
    if experiment is None or found_problems:
        raise ConfigurationError(source, found_problems, origins)
    return experiment

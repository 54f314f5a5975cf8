"""Experiments as files: one for each table or figure of the paper."""

from __future__ import annotations

import json
import re
import string
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from gbwatt._validation import check_at_least, check_number, check_one_of
from gbwatt.data import find_dataset
from gbwatt.errors import ParameterError
from gbwatt.experiments import grid, paper
from gbwatt.experiments.config_checks import conflicts, translate
from gbwatt.experiments.runs import Cell, tidy
from gbwatt.experiments.table_formats import visible
from gbwatt.experiments.yaml_io import ConfigurationError, Origins, Place, Problem, assign, read_document

__all__ = ["ConfigurationError", "Experiment", "ModelRow", "Training", "Vary", "from_mapping", "override", "read"]

SEEDS = 10  # of the paper
LARGEST = 2**31 - 1  # number of a seed or a subject
MOST_SEEDS = 10_000
MOST_WIDTH = 50  # letters or digits to which a format fills a value up
AXES = ("fraction", "noise", "options")

# ------------------------------------------------------------------------------------------------------- single values


def parse_seeds(value: Any) -> tuple[int, ...]:
    """Seeds: a number n for 0 to n - 1, or a list.

    Examples
    --------
    >>> parse_seeds(3)
    (0, 1, 2)
    """
    if isinstance(value, bool) or not isinstance(value, int | list | tuple):
        raise ParameterError(f"seeds={value!r} must be how many there are, or a list of them.")
    if isinstance(value, int):
        check_at_least("seeds", value, 1)
        if value > MOST_SEEDS:
            raise ParameterError(f"seeds={value} is too many; at most {MOST_SEEDS} are possible.")
        return tuple(range(value))
    return _numbers("seeds", value, 0)


def parse_subjects(value: Any) -> grid.Subjects:
    """Subjects: "all" or a list of numbers."""
    if value == "all":
        return "all"
    if not isinstance(value, list | tuple):
        raise ParameterError(f"subjects={value!r} must be 'all', or a list of numbers.")
    return _numbers("subjects", value, 0)


def _numbers(name: str, values: Sequence[Any], least: int) -> tuple[int, ...]:
    for at, value in enumerate(values):
        check_at_least(f"{name}[{at}]", value, least)
        if value > LARGEST:
            raise ParameterError(f"{name}[{at}]={value} must be at most {LARGEST}.")
    return _distinct(name, values)


def _some(name: str, values: Sequence[Any]) -> tuple[Any, ...]:
    if not values:
        raise ParameterError(f"{name} must not be empty.")
    return tuple(values)


def _distinct(name: str, values: Sequence[Any]) -> tuple[Any, ...]:
    seen: set[str] = set()
    for value in _some(name, values):
        text = json.dumps(tidy(value), sort_keys=True, default=str)  # 1 and 1.0 are the same
        if text in seen:
            raise ParameterError(f"{name} has {value!r} twice.")
        seen.add(text)
    return tuple(values)


def _name(name: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", name):
        raise ParameterError(f"name={name!r} must be small letters, digits, - and _, a letter first.")
    return name


def _dataset(name: str) -> str:
    try:
        return find_dataset(name).name
    except ImportError as error:  # MOABB, for its data sets
        raise ParameterError(f"dataset={name[:80]!r}: {error}.") from None
    except OSError as error:  # a name that is too long for a file, for instance
        raise ParameterError(f"dataset={name[:80]!r} cannot be looked up: {error.strerror or error}.") from None


def _model(name: str) -> str:
    from gbwatt.models import list_models  # imports torch

    check_one_of("model", name, list_models())
    return name


def _axis(axis: str) -> str:
    kind, dot, name = axis.partition(".")
    check_one_of("axis", kind, AXES)
    if (kind == "options") != bool(name) or (dot and not name):
        raise ParameterError(f"axis={axis!r} must be 'fraction', 'noise', or an option, as 'options.theta'.")
    return axis


def _require_plain(label: str) -> None:
    """Refuse formats that reach into a value, or that make long texts of short ones."""
    try:
        fields = [part[1:3] for part in string.Formatter().parse(label)]
    except ValueError as error:
        raise ParameterError(f"label={label!r} is no format: {error}.") from None
    for name, form in fields:
        if name not in (None, "", "0") or "{" in (form or ""):
            raise ParameterError(f"label={label!r} may have {{}} or {{:FORMAT}} for the value, and no names.")
        if any(int(number) > MOST_WIDTH for number in re.findall(r"\d+", (form or "")[:1000])):
            raise ParameterError(f"label={label!r} makes the value wider than {MOST_WIDTH} letters.")


def _known(name: str, *allowed: str) -> Any:
    def check(value: str) -> str:
        check_one_of(name, value, allowed)
        return value

    return AfterValidator(check)


def _paper(name: str) -> str:
    paper.find_table(name)
    return name


def _printable(text: str) -> str:
    if visible(text.strip()) != " ".join(text.split()):
        raise ParameterError(f"{text[:80]!r} has control characters; leave them out.")
    return text


_LIST = Field(strict=False)  # YAML has no tuples
Text = Annotated[str, Field(min_length=1, max_length=500), AfterValidator(_printable)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
Name = Annotated[str, AfterValidator(_dataset)]
Names = Annotated[tuple[Name, ...], _LIST, AfterValidator(lambda names: _distinct("datasets", names))]
Options = Annotated[dict[str, Any], AfterValidator(tidy)]


# -------------------------------------------------------------------------------------------------------------- schema


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Training(_Part):
    """How models are trained; what is not given is as registered for the model and the task."""

    lr: Annotated[float, Field(gt=0, le=1)] | None = None
    batch_size: Annotated[Count, Field(ge=2)] | None = None
    max_epochs: Count | None = None
    weight_decay: Annotated[float, Field(ge=0, le=1)] | None = None
    early_stopping: Count | None = None
    # of foundation models only
    layer_decay: Annotated[float, Field(gt=0, le=1)] | None = None
    schedule: Annotated[str, _known("schedule", "cosine", "constant")] | None = None
    warmup_epochs: Annotated[float, Field(ge=0, le=1_000_000)] | None = None
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] | None = None
    precision: Annotated[str, _known("precision", "float32", "bfloat16", "float16")] | None = None
    shards: Count | None = None

    def given(self) -> dict[str, Any]:
        """What is given."""
        return self.model_dump(exclude_none=True)


class ModelRow(_Part):
    """A line of a table: a model with options.

    Attributes
    ----------
    label : str
        Its name in the table.
    model : str
        One of :func:`gbwatt.models.list_models`.
    options : dict
        Arguments of the model.
    training : Training
        Where not as for all.
    datasets : tuple of str, optional
        Only for these.
    """

    label: Text
    model: Annotated[str, AfterValidator(_model)]
    options: Options = {}
    training: Training = Training()
    datasets: Names | None = None


class Vary(_Part):
    """What changes along a table or figure.

    Attributes
    ----------
    axis : str
        "fraction" of the training trials, variance of "noise", or an option of the models, "options.theta".
    values : tuple
    label : str
        Format of a value, as in :meth:`str.format`: ``"{}"``, ``"θ = {:.1f}"``.
    where : "test" or "both", optional
        Noise in the trials for test only, as by default, or in training and validation, too.
    """

    axis: Annotated[str, AfterValidator(_axis)]
    values: Annotated[tuple[Any, ...], _LIST]
    label: Text = "{}"
    where: Annotated[str, _known("where", "test", "both")] | None = None

    @field_validator("values")
    @classmethod
    def _check_values(cls, values: tuple[Any, ...], info: ValidationInfo) -> tuple[Any, ...]:
        axis = info.data.get("axis", "options")
        if axis.startswith("options"):
            return _distinct("values", tidy(list(values)))
        for at, value in enumerate(values):
            check_number(f"values[{at}]", value)
            if value < 0 or (axis == "fraction" and not 0 < value <= 1):
                allowed = "above 0 and at most 1" if axis == "fraction" else "0 or more"
                raise ParameterError(f"values[{at}]={value}: {axis} must be {allowed}.")
        return _distinct("values", [float(value) for value in values])

    @field_validator("label")
    @classmethod
    def _check_label(cls, label: str, info: ValidationInfo) -> str:
        values = info.data.get("values", ())
        _require_plain(label)
        try:
            shown = [label.format(value) for value in values]
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise ParameterError(f"label={label!r} is no format of the values: {error}.") from None
        if len(set(shown)) < len(shown):
            raise ParameterError(f"label={label!r} shows different values alike: {', '.join(shown)}.")
        return label

    @field_validator("where")
    @classmethod
    def _check_where(cls, where: str | None, info: ValidationInfo) -> str | None:
        if where is not None and info.data.get("axis", "noise") != "noise":
            raise ParameterError(f"where={where!r} is for axis: noise; leave it out.")
        return where

    def show(self, value: Any) -> str:
        """A value as tables show it."""
        return visible(self.label.format(value))

    def changes(self, value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """What a value changes: options, and arguments of a run."""
        kind, _, name = self.axis.partition(".")
        if kind == "options":
            return {name: value}, {}
        noisy = {"noisy_training": True} if kind == "noise" and self.where == "both" and value else {}
        return {}, {kind: value, **noisy}


class Experiment(_Part):
    """One table or figure: what is run for it.

    Made by :func:`read` or :func:`from_mapping`, which report all that is wrong at once.

    Attributes
    ----------
    name, title : str
    paper : str, optional
        Table of the paper whose numbers go beside, see :mod:`gbwatt.experiments.paper`.
    datasets : tuple of str
    simulated : "auto", "always" or "never"
        Simulated recordings in the place of real ones: where there are no files, for all, or for none.
    subjects : "all" or tuple of int
    seeds : tuple of int
    training : Training
        For all models.
    models : tuple of ModelRow
    vary : Vary, optional
    validation : bool
        Whether tables show accuracies on validation trials, too: where they choose.
    reference : str, optional
        Label of the model that tables compare the others with.
    """

    name: Annotated[str, AfterValidator(_name)]
    title: Text
    paper: Annotated[str, AfterValidator(_paper)] | None = None
    datasets: Names
    simulated: Annotated[str, _known("simulated", "auto", "always", "never")] = "auto"
    subjects: Annotated[tuple[int, ...] | Literal["all"], PlainValidator(parse_subjects)] = "all"
    seeds: Annotated[tuple[int, ...], PlainValidator(parse_seeds)] = tuple(range(SEEDS))
    training: Training = Training()
    models: Annotated[tuple[ModelRow, ...], _LIST, AfterValidator(lambda rows: _some("models", rows))]
    vary: Vary | None = None
    validation: bool = False
    reference: Text | None = None

    def variants(self, options: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
        """Settings of what is varied: their names, options of a model, and further arguments of a run."""
        if self.vary is None:
            yield "", dict(options), {}
            return
        for value in self.vary.values:
            own, changes = self.vary.changes(value)
            yield self.vary.show(value), {**options, **own}, changes

    def sources(
        self,
        root: str | Path | None = None,
        *,
        datasets: Sequence[str] | None = None,
        subjects: grid.Subjects | None = None,
        simulated: str | None = None,
    ) -> dict[str, grid.Provenance]:
        """For each data set, whether its recordings are real or simulated, why, and of which subjects."""
        names = self.datasets if datasets is None else _distinct("datasets", [_dataset(name) for name in datasets])
        numbers = self.subjects if subjects is None else parse_subjects(subjects)
        return grid.find_recordings(names, numbers, self.simulated if simulated is None else simulated, root)

    def cells(
        self,
        *,
        datasets: Sequence[str] | None = None,
        subjects: grid.Subjects | None = None,
        seeds: int | Sequence[int] | None = None,
        simulated: str | None = None,
        root: str | Path | None = None,
    ) -> list[Cell]:
        """All runs in their places; arguments replace what the file says."""
        found = self.sources(root, datasets=datasets, subjects=subjects, simulated=simulated)
        return grid.expand(self, found.values(), self.seeds if seeds is None else parse_seeds(seeds), root)


# ------------------------------------------------------------------------------------------------------------- reading

_PARTS: dict[str, type[_Part]] = {"models": ModelRow, "training": Training, "vary": Vary}


def _keys(place: Place) -> tuple[str, ...] | None:
    """The keys that may be at a place; None where any may."""
    names = [step for step in place if isinstance(step, str)]
    part = _PARTS.get(names[-1]) if names else Experiment
    return None if part is None else tuple(part.model_fields)


def read(path: str | Path, overrides: Sequence[str] = ()) -> Experiment:
    """The experiment in a file, with other values where ``overrides`` say so, as in :func:`override`."""
    raw, origins = read_document(Path(path))
    raw, assigned, problems = assign(raw, overrides, _keys)
    return _checked(raw, str(path), {**origins, **assigned}, problems)


def from_mapping(mapping: Mapping[str, Any]) -> Experiment:
    """The experiment that a mapping describes, as files do."""
    return _checked(dict(mapping), "the experiment", {}, [])


def override(mapping: Mapping[str, Any], assignments: Sequence[str]) -> dict[str, Any]:
    """A copy of a mapping with values assigned; they are read as YAML.

    Examples
    --------
    >>> override({"seeds": 10, "models": [{"model": "matt"}]}, ["seeds=[0, 1]", "models.0.training.lr=1e-3"])
    {'seeds': [0, 1], 'models': [{'model': 'matt', 'training': {'lr': 0.001}}]}
    """
    changed, _, problems = assign(mapping, assignments, _keys)
    if problems:
        raise ConfigurationError("the command", problems)
    return changed


def _checked(raw: dict[str, Any], source: str, origins: Origins, problems: list[Problem]) -> Experiment:
    """The experiment, or one error with all problems."""
    found = list(problems)
    experiment = None
    try:
        experiment = Experiment.model_validate(raw)
    except ValidationError as error:
        found += [translate(detail, _keys) for detail in error.errors()]
    except (ArithmeticError, RecursionError) as error:  # of a mapping; documents have no such numbers and depths
        found.append(Problem((), f"a value is too large or too deep ({error})."))
    found += conflicts(raw)
    if experiment is None or found:
        raise ConfigurationError(source, found, origins)
    return experiment

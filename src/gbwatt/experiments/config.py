"""Experiments: their YAML files, which describe one table or figure each."""

from __future__ import annotations

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

from gbwatt._validation import check_number, check_one_of
from gbwatt.errors import ParameterError
from gbwatt.experiments import grid
from gbwatt.experiments.config_checks import (
    check_axis,
    check_distinct,
    check_model,
    check_name,
    check_not_empty,
    check_paper_table,
    check_plain_format,
    check_printable,
    conflicts,
    dataset_name,
    parse_seeds,
    parse_subjects,
    translate,
)
from gbwatt.experiments.runs import LabelledRun, canonicalize
from gbwatt.experiments.table_formats import visible
from gbwatt.experiments.yaml_io import ConfigurationError, KeyPath, Origins, Problem, assign, read_document

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

SEEDS = 10  # as in the paper

_LIST = Field(strict=False)  # YAML has no tuples
Text = Annotated[str, Field(min_length=1, max_length=500), AfterValidator(check_printable)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
Name = Annotated[str, AfterValidator(dataset_name)]
Names = Annotated[tuple[Name, ...], _LIST, AfterValidator(lambda names: check_distinct("datasets", names))]
Options = Annotated[dict[str, Any], AfterValidator(canonicalize)]


# -------------------------------------------------------------------------------------------------------------- schema


def _one_of(name: str, *allowed: str) -> Any:
    def check(value: str) -> str:
        check_one_of(name, value, allowed)
        return value

    return AfterValidator(check)


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Training(_Part):
    """Training settings; those that are not given have the value registered for the model and the task."""

    lr: Annotated[float, Field(gt=0, le=1)] | None = None
    batch_size: Annotated[Count, Field(ge=2)] | None = None
    max_epochs: Count | None = None
    weight_decay: Annotated[float, Field(ge=0, le=1)] | None = None
    early_stopping: Count | None = None
    # foundation models only
    layer_decay: Annotated[float, Field(gt=0, le=1)] | None = None
    schedule: Annotated[str, _one_of("schedule", "cosine", "constant")] | None = None
    warmup_epochs: Annotated[float, Field(ge=0, le=1_000_000)] | None = None
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] | None = None
    precision: Annotated[str, _one_of("precision", "float32", "bfloat16", "float16")] | None = None
    shards: Count | None = None

    def given(self) -> dict[str, Any]:
        """Return the settings that are given."""
        return self.model_dump(exclude_none=True)


class ModelRow(_Part):
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
    """

    label: Text
    model: Annotated[str, AfterValidator(check_model)]
    options: Options = {}
    training: Training = Training()
    datasets: Names | None = None


class Vary(_Part):
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
    values: Annotated[tuple[Any, ...], _LIST]
    label: Text = "{}"
    where: Annotated[str, _one_of("where", "test", "both")] | None = None

    @field_validator("values")
    @classmethod
    def _check_values(cls, values: tuple[Any, ...], info: ValidationInfo) -> tuple[Any, ...]:
        axis = info.data.get("axis", "options")
        if axis.startswith("options"):
            return check_distinct("values", canonicalize(list(values)))
        for at, value in enumerate(values):
            check_number(f"values[{at}]", value)
            if value < 0 or (axis == "fraction" and not 0 < value <= 1):
                allowed = "above 0 and at most 1" if axis == "fraction" else "0 or more"
                raise ParameterError(f"values[{at}]={value}: {axis} must be {allowed}.")
        return check_distinct("values", [float(value) for value in values])

    @field_validator("label")
    @classmethod
    def _check_label(cls, label: str, info: ValidationInfo) -> str:
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
        if where is not None and info.data.get("axis", "noise") != "noise":
            raise ParameterError(f"where={where!r} is only allowed with axis: noise; remove it.")
        return where

    def show(self, value: Any) -> str:
        """Return the text of a value in tables."""
        return visible(self.label.format(value))

    def changes(self, value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the model options and the run arguments that a value sets."""
        kind, _, name = self.axis.partition(".")
        if kind == "options":
            return {name: value}, {}
        noisy = {"noisy_training": True} if kind == "noise" and self.where == "both" and value else {}
        return {}, {kind: value, **noisy}


class Experiment(_Part):
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
    subjects : "all" or tuple of int
        Subjects of each data set.
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
    reference : str, optional
        Label of the model that tables compare the others with.
    """

    name: Annotated[str, AfterValidator(check_name)]
    title: Text
    paper: Annotated[str, AfterValidator(check_paper_table)] | None = None
    datasets: Names
    simulated: Annotated[str, _one_of("simulated", "auto", "always", "never")] = "auto"
    subjects: Annotated[tuple[int, ...] | Literal["all"], PlainValidator(parse_subjects)] = "all"
    seeds: Annotated[tuple[int, ...], PlainValidator(parse_seeds)] = tuple(range(SEEDS))
    training: Training = Training()
    models: Annotated[tuple[ModelRow, ...], _LIST, AfterValidator(lambda rows: check_not_empty("models", rows))]
    vary: Vary | None = None
    validation: bool = False
    reference: Text | None = None

    def variants(self, options: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
        """Yield for each value of the varied quantity its text, the model options, and further run arguments."""
        if self.vary is None:
            yield "", dict(options), {}
            return
        for value in self.vary.values:
            own, changes = self.vary.changes(value)
            yield self.vary.show(value), {**options, **own}, changes

    def recordings(
        self,
        root: str | Path | None = None,
        *,
        datasets: Sequence[str] | None = None,
        subjects: grid.Subjects | None = None,
        simulated: str | None = None,
    ) -> dict[str, grid.Recordings]:
        """Return for each data set whether its recordings are real or simulated, why, and of which subjects."""
        names = self.datasets
        if datasets is not None:
            names = check_distinct("datasets", [dataset_name(name) for name in datasets])
        numbers = self.subjects if subjects is None else parse_subjects(subjects)
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

_PARTS: dict[str, type[_Part]] = {"models": ModelRow, "training": Training, "vary": Vary}


def _allowed_keys(path: KeyPath) -> tuple[str, ...] | None:
    """Keys that are allowed at a path; None: any."""
    names = [step for step in path if isinstance(step, str)]
    part = _PARTS.get(names[-1]) if names else Experiment
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
    known = list_experiments()
    if path.suffix:
        if not path.exists() and path.stem in known:
            raise ParameterError(
                f"experiment={str(name)!r} does not exist; use {path.stem!r}, without folder and suffix, for "
                f"{known[path.stem]}."
            )
        return path
    check_one_of("experiment", str(name), tuple(known))
    return known[str(name)]


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
    return _validated(content, str(path), {**origins, **assigned}, problems)


def experiment_from_dict(content: Mapping[str, Any]) -> Experiment:
    """Make an experiment from a dict with the keys of an experiment file.

    Raises
    ------
    ConfigurationError
        The content has errors; the message lists all of them.
    """
    return _validated(dict(content), "the experiment", {}, [])


def override(content: Mapping[str, Any], assignments: Sequence[str]) -> dict[str, Any]:
    """Return a copy with values assigned; the values are YAML.

    Examples
    --------
    >>> override({"seeds": 10, "models": [{"model": "matt"}]}, ["seeds=[0, 1]", "models.0.training.lr=1e-3"])
    {'seeds': [0, 1], 'models': [{'model': 'matt', 'training': {'lr': 0.001}}]}
    """
    changed, _, problems = assign(content, assignments, _allowed_keys)
    if problems:
        raise ConfigurationError("the command", problems)
    return changed


def _validated(content: dict[str, Any], source: str, origins: Origins, problems: list[Problem]) -> Experiment:
    """Make the experiment, or raise one error with all problems."""
    every = list(problems)
    experiment = None
    try:
        experiment = Experiment.model_validate(content)
    except ValidationError as error:
        every += [translate(detail, _allowed_keys) for detail in error.errors()]
    except (ArithmeticError, RecursionError) as error:  # of a dict; files cannot have such numbers and depths
        every.append(Problem((), f"a value is too large or too deeply nested ({error})."))
    every += conflicts(content)
    if experiment is None or every:
        raise ConfigurationError(source, every, origins)
    return experiment

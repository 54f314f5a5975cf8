"""A run, what determines its result, and the row of results that it leaves."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol, Self, runtime_checkable

from gbwatt import _plugins
from gbwatt.data import DATASETS

#: Raised when the same run would give other numbers than before, for instance after a change of an initialisation.
REVISION = 1

Status = Literal["done", "failed"]
NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Run:
    """What determines a result, and nothing else.

    Attributes
    ----------
    dataset : str
        One of :func:`gbwatt.data.list_datasets`, or a file.
    subject : int
    split : int
        Which of the subject's splits by the protocol of the data set.
    model : str
        One of :func:`gbwatt.models.list_models`.
    options : dict
        Arguments of the model.
    training : dict
        ``lr``, ``batch_size``, ``max_epochs``, ``weight_decay``, and ``early_stopping`` if there is any.
    seed : int
    fraction : float
        Part of the training trials that is used.
    noise : float
        Variance of what is added to the trials that are tested, in the unit of the files, squared.
    noisy_training : bool
        Whether it is added to the others, too.
    data : str
        Fingerprint of the recordings and of what is done to them.
    """

    dataset: str
    subject: int
    model: str
    seed: int
    data: str
    split: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    fraction: float = 1.0
    noise: float = 0.0
    noisy_training: bool = False

    def to_dict(self) -> dict[str, Any]:
        """In a form that JSON keeps."""
        return asdict(self)

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Inverse of :meth:`to_dict`."""
        return cls(**record)

    @property
    def key(self) -> str:
        """Hash of all that determines the result: the same key, the same numbers.

        Examples
        --------
        >>> one = Run("simulated-ssvep", 1, "gbwatt", seed=0, data="", options={"theta": 1.5})
        >>> one.key == Run.from_dict(one.to_dict()).key
        True
        >>> len(one.key)
        32
        """
        record = json.dumps({"revision": REVISION, **self.to_dict()}, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(record.encode()).hexdigest()[:32]

    @property
    def trained(self) -> Run:
        """The run that has the same training: noise in the trials for test comes later."""
        return self if self.noisy_training else replace(self, noise=0.0)

    def __str__(self) -> str:
        extras = [f"{name}={value}" for name, value in self.options.items()]
        extras += [f"fraction={self.fraction:g}"] * (self.fraction != 1) + [f"noise={self.noise:g}"] * (self.noise != 0)
        inner = f" ({', '.join(extras)})" if extras else ""
        return f"{self.dataset}, subject {self.subject}, {self.model}{inner}, seed {self.seed}"


class Cell(NamedTuple):
    """A run in its place in an experiment: the line of a table, by the name of the model there, and what is varied."""

    label: str  # "GBWAtt (θ = 1.5)"
    setting: str  # "σ² = 0.2"; empty where nothing is varied
    run: Run


class Row(NamedTuple):
    """What a run leaves: who it was, what came out, and how to come to the same again.

    Values that are mappings or lists are JSON in stores and tables of text; what a failed run, or a model that does not
    have it, cannot tell is None.
    """

    key: str
    status: Status
    run: dict[str, Any]  # Run.to_dict()
    # scores on the test trials; per_class is {name: {"recall": , "precision": , "n": }}
    accuracy: float | None = None
    balanced_accuracy: float | None = None
    kappa: float | None = None
    auc: float | None = None  # of class 1, where there are two
    loss: float | None = None
    per_class: dict[str, dict[str, float]] | None = None
    confusion: list[list[int]] | None = None  # a row for each true class
    # validation: history is {"train_loss": [...], "valid_loss": [...], "valid_accuracy": [...]}, over epochs
    valid_accuracy: float | None = None
    valid_loss: float | None = None
    best_epoch: int | None = None
    epochs: int | None = None
    history: dict[str, list[float]] | None = None
    # {"before": {"share": , "median": , "largest": }, "after": {...}}: of test trials; share is that above 1e4
    conditions: dict[str, dict[str, float]] | None = None
    # how
    trials: dict[str, int] | None = None  # {"train": , "valid": , "test": }
    parameters: int | None = None
    preprocessing: list[dict[str, Any]] | None = None
    seconds: float | None = None  # of the whole run
    seconds_per_epoch: float | None = None  # the median
    versions: dict[str, str] | None = None  # of packages, Python, the machine
    finished: str = ""  # when, in UTC, ISO 8601
    traceback: str | None = None
    warnings: list[str] | None = None


#: Columns whose values are mappings or lists.
STRUCTURED = frozenset(
    {"run", "per_class", "confusion", "history", "conditions", "trials", "preprocessing", "versions", "warnings"}
)


def tidy(value: Any) -> Any:
    """A value of an option in its shortest form: 1.0 is 1, so that both are the same run."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [tidy(item) for item in value]
    return {key: tidy(item) for key, item in value.items()} if isinstance(value, dict) else value


def registered(model: str, dataset: str) -> dict[str, Any]:
    """The settings that are registered for a model and the task of a data set.

    Examples
    --------
    >>> registered("matt", "mamem-ssvep-ii")
    {'lr': 0.005, 'batch_size': 64, 'max_epochs': 180, 'weight_decay': 0.1}
    """
    from gbwatt.models.registry import entry  # imports torch

    task = DATASETS[dataset].task if dataset in DATASETS else None  # recordings of one's own have none
    return {name: tidy(value) for name, value in asdict(entry(model).training_for(task)).items()}


def written_out(model: str, dataset: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """All settings: what is given, and for the rest what is registered."""
    return {**registered(model, dataset), **{name: tidy(value) for name, value in given.items()}}


def changes(run: Run) -> dict[str, Any]:
    """What a run has otherwise than registered; all of it, if its model is not."""
    from gbwatt.models.registry import list_models  # imports torch

    usual = registered(run.model, run.dataset) if run.model in list_models() else {}
    return {name: value for name, value in run.training.items() if usual.get(name) != tidy(value)}


# ------------------------------------------------------------------------------------------------------------ executors


@runtime_checkable
class Executor(Protocol):
    """Does the runs of a data set that cannot be loaded as trials, such as a corpus.

    Packages declare an executor as an entry point of the group ``gbwatt.executors``, under the name of its data set.
    """

    def fingerprint(self, dataset: str, root: str | Path | None = None) -> str:
        """Return the hash of the recordings."""

    def extend_fingerprint(self, data: str, options: Mapping[str, Any], root: str | Path | None = None) -> str:
        """Return the fingerprint of a run: that of the recordings and of other files that model options name."""

    def base_fingerprint(self, data: str) -> str:
        """Return the part of an extended fingerprint that belongs to the recordings."""

    def execute(self, run: Run, root: str | Path | None = None) -> Row:
        """Train, resuming from the checkpoint of the run if there is one, test once, and return the row."""

    def epoch_seconds(self, run: Run, root: str | Path | None = None) -> float:
        """Return an estimate of the duration of one epoch."""

    def discard_checkpoint(self, run: Run, root: str | Path | None = None) -> None:
        """Delete the checkpoint of a finished run."""


def has_executor(dataset: str) -> bool:
    """Return whether a plugin executes the runs of a data set.  The plugin is not imported."""
    return any(plugin.name == dataset for plugin in _plugins.find_plugins(_plugins.EXECUTORS))


def find_executor(dataset: str) -> Executor | None:
    """Return the executor of a data set, or None if its trials are loaded and trained on as usual.

    Raises
    ------
    PluginError
        If it cannot be imported, lacks a method of :class:`Executor`, or is one of several for the data set.
    """
    plugins = [plugin for plugin in _plugins.find_plugins(_plugins.EXECUTORS) if plugin.name == dataset]
    if not plugins:
        return None
    if len(plugins) > 1:
        raise _plugins.plugin_error(plugins[1], f"is another executor of {dataset} than {plugins[0].value!r}")
    executor = _plugins.load_plugin(plugins[0])
    if not isinstance(executor, Executor):
        raise _plugins.plugin_error(plugins[0], f"is a {type(executor).__name__} without the methods of an Executor")
    return executor


def discard_checkpoint(row: Row, root: str | Path | None = None) -> None:
    """Delete the checkpoint of a finished run.  A failed run keeps its own, to resume from."""
    executor = find_executor(row.run["dataset"])
    if executor is not None and row.status == "done":
        executor.discard_checkpoint(Run.from_dict(row.run), root)

"""Runs, which determine results, and the rows of results that they leave."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, Self, runtime_checkable

from gbwatt import _plugins
from gbwatt.data import DATASETS

#: Part of every key.  Increased when the same run gives other numbers, for instance after a change of initialisation.
REVISION = 1

#: Value of the training setting "own_trials": the subject's own training trials are used without labels.
UNLABELLED = "unlabelled"

Status = Literal["done", "failed"]


@dataclass(frozen=True)
class Run:
    """Everything that determines a result: one model, one subject, one seed.

    Parameters
    ----------
    dataset : str
        One of :func:`gbwatt.data.list_datasets`, or a file.
    subject : int
        Number of the subject.
    model : str
        One of :func:`gbwatt.models.list_models`.
    seed : int
        Random seed.
    data : str
        Fingerprint of the recordings and their preprocessing.
    split : int
        Index of the split in the protocol of the data set.
    options : dict
        Arguments of the model.
    training : dict
        ``lr``, ``batch_size``, ``max_epochs``, ``weight_decay``, and optionally others, such as ``early_stopping``.
    fraction : float
        Fraction of the training trials that is used.
    noise : float
        Variance of the white noise added to the test trials, in the squared unit of the files.
    noisy_training : bool
        Whether noise is added to the training and validation trials, too.
    reading : dict
        Arguments of :func:`gbwatt.data.load`, such as ``tmin`` or ``preprocessing``.
    protocol : str
        One of :data:`gbwatt.data.splits.PROTOCOLS`; empty for that of the data set.
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
    reading: Mapping[str, Any] = field(default_factory=dict)
    protocol: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a dict that JSON can hold; ``reading`` and ``protocol`` only if they are not empty."""
        return {name: x for name, x in asdict(self).items() if x or name not in ("reading", "protocol")}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Inverse of :meth:`to_dict`."""
        return cls(**record)

    @property
    def key(self) -> str:
        """Hash of all fields: runs with the same key give the same numbers.

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
    def training_run(self) -> Run:
        """The run without what its training does not depend on; runs for which it is equal share one training.

        That is noise in the test trials only.  If the network is trained on other subjects only, it is also which
        trials of the subject are for training and test.
        """
        noise = self.noise if self.noisy_training else 0.0
        if self.unlabelled:
            return replace(self, noise=noise, split=0, fraction=1.0)
        return replace(self, noise=noise)

    @property
    def unlabelled(self) -> bool:
        """Whether a model is trained on other subjects only; labels of the subject serve for its test only."""
        return bool(self.training.get("own_trials") == UNLABELLED)

    def __str__(self) -> str:
        """Return data set, subject, model with its options, and seed as text."""
        extras = [f"{name}={value}" for name, value in self.options.items()]
        extras += [f"fraction={self.fraction:g}"] * (self.fraction != 1) + [f"noise={self.noise:g}"] * (self.noise != 0)
        inner = f" ({', '.join(extras)})" if extras else ""
        return f"{self.dataset}, subject {self.subject}, {self.model}{inner}, seed {self.seed}"


class LabelledRun(NamedTuple):
    """A run with the table line that it belongs to."""

    label: str  # "GBWAtt (θ = 1.5)"
    setting: str  # "σ² = 0.2"; empty if the experiment varies nothing
    run: Run


class Row(NamedTuple):
    """The result of a run: scores, training history, and how they were obtained.

    Mappings and lists are JSON in stores and CSV files.  Values that a failed run or a model does not have are None.
    """

    key: str
    status: Status
    run: dict[str, Any]  # Run.to_dict()
    # scores on the test trials; per_class is {name: {"recall": , "precision": , "n": }}
    accuracy: float | None = None
    balanced_accuracy: float | None = None
    kappa: float | None = None
    auc: float | None = None  # of class 1; for two classes only
    loss: float | None = None
    per_class: dict[str, dict[str, float]] | None = None
    confusion: list[list[int]] | None = None  # a row for each true class
    # validation; history is {"train_loss": [...], "valid_loss": [...], "valid_accuracy": [...]}, over epochs
    valid_accuracy: float | None = None
    valid_loss: float | None = None
    best_epoch: int | None = None
    epochs: int | None = None
    history: dict[str, list[float]] | None = None
    # {"before": {"share": , "median": , "largest": }, "after": {...}} of test trials; share is that above 1e4
    conditions: dict[str, dict[str, float]] | None = None
    # provenance
    trials: dict[str, int] | None = None  # {"train": , "valid": , "test": }
    parameters: int | None = None
    preprocessing: list[dict[str, Any]] | None = None
    seconds: float | None = None  # of the whole run
    seconds_per_epoch: float | None = None  # median
    versions: dict[str, str] | None = None  # of packages, Python and the machine
    finished: str = ""  # UTC, ISO 8601
    traceback: str | None = None
    warnings: list[str] | None = None


#: Columns whose values are mappings or lists.
STRUCTURED = frozenset(
    {"run", "per_class", "confusion", "history", "conditions", "trials", "preprocessing", "versions", "warnings"}
)


def canonicalize(value: Any) -> Any:
    """Replace whole floats by integers, also in lists and dicts, so that 1 and 1.0 give the same key; tuples by lists.

    Examples
    --------
    >>> canonicalize({"theta": 1.0, "filters": [2.0, 2.5]})
    {'theta': 1, 'filters': [2, 2.5]}
    """
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list | tuple):
        return [canonicalize(item) for item in value]
    return {key: canonicalize(item) for key, item in value.items()} if isinstance(value, dict) else value


def registered_training(model: str, dataset: str) -> dict[str, Any]:
    """Return the training settings registered for a model and the task of a data set.

    Examples
    --------
    >>> registered_training("matt", "mamem-ssvep-ii")
    {'lr': 0.005, 'batch_size': 64, 'max_epochs': 180, 'weight_decay': 0.1}
    """
    from gbwatt.models.registry import entry  # imports torch

    task = DATASETS[dataset].task if dataset in DATASETS else None  # a user's recordings have none
    return {name: canonicalize(value) for name, value in asdict(entry(model).training_for(task)).items()}


def complete_training(model: str, dataset: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return training settings, with the registered value of every setting that is not in ``settings``.

    With a paradigm, other settings than the given ones follow from it, and the revision of its settings is added.  They
    are those of fine-tuning if the training begins with weights from sources.
    """
    given = {name: canonicalize(value) for name, value in settings.items()}
    if "paradigm" not in given:
        return {**registered_training(model, dataset), **given}
    from gbwatt.decoding import paradigms  # imports torch

    name = paradigm_of(dataset) if given["paradigm"] == "dataset" else given["paradigm"]
    known = paradigms.PARADIGMS.get(name)
    if known is None:  # any of them
        return {**given, "paradigm": name, "paradigm_revision": sum(p.revision for p in paradigms.PARADIGMS.values())}
    fine_tuned = "sources" in given and given.get("own_trials") != UNLABELLED
    usual = canonicalize(asdict(known.fine_tuning if fine_tuned else known.training))
    return {**usual, **given, "paradigm": name, "paradigm_revision": known.revision}


def paradigm_of(dataset: str) -> str:
    """Return what ``paradigm: dataset`` stands for: the paradigm of a data set; "auto" for a user's recordings.

    Examples
    --------
    >>> paradigm_of("mamem-ssvep-ii")
    'ssvep'
    """
    from gbwatt.decoding.paradigms import OF_TASKS  # imports torch

    known = DATASETS.get(dataset)
    if known is None or (known.paradigm is None and known.task is None):
        return "auto"
    return known.paradigm or OF_TASKS[str(known.task)]


def training_changes(run: Run) -> dict[str, Any]:
    """Return the training settings of a run that differ from the registered ones; all, if the model is unknown."""
    from gbwatt.models.registry import list_models  # imports torch

    usual = registered_training(run.model, run.dataset) if run.model in list_models() else {}
    return {name: value for name, value in run.training.items() if usual.get(name) != canonicalize(value)}


# ------------------------------------------------------------------------------------------------------------ executors


@runtime_checkable
class Executor(Protocol):
    """Executes the runs of a data set that cannot be loaded as trials, such as a corpus.

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
    """Delete the checkpoint of a run whose row is done.  A failed run keeps its checkpoint, to resume from."""
    executor = find_executor(row.run["dataset"])
    if executor is not None and row.status == "done":
        executor.discard_checkpoint(Run.from_dict(row.run), root)

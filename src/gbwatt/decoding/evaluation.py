"""Train a model, test it once and record the result; evaluate saved models."""

from __future__ import annotations

import copy
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from torch import nn

from gbwatt._io import require_writable
from gbwatt._text import number_ranges
from gbwatt._validation import check_one_of
from gbwatt.data import DATASETS, Trials, find_dataset, load
from gbwatt.data.datasets import Dataset
from gbwatt.data.description import chance_level
from gbwatt.data.formats.recordings import example_call
from gbwatt.data.loading import Recordings, fingerprint, is_same_file, numbered_files
from gbwatt.data.montage import comparable_name
from gbwatt.data.splits import Split, Splitter, find_protocol
from gbwatt.data.trials import freeze as to_hashable
from gbwatt.data.trials import in_order
from gbwatt.decoding.alignment import require_enough
from gbwatt.decoding.estimator import EEGDecoder, GBWAttClassifier
from gbwatt.decoding.fingerprints import MOST, TrialFingerprints, fingerprints
from gbwatt.decoding.inputs import same_signal
from gbwatt.decoding.metrics import Accuracy, score
from gbwatt.decoding.paradigms import OF_TASKS, PARADIGMS, Settings, fine_tuning_for
from gbwatt.decoding.signal_metadata import Recorded
from gbwatt.decoding.training import best_row, freeze
from gbwatt.decoding.training_record import FILE, USES, TrainingRecord, versions
from gbwatt.decoding.transfer import model_options
from gbwatt.errors import (
    MismatchError,
    MissingFileError,
    ModelFileError,
    ParameterError,
    ShapeError,
    UnknownLabelError,
)
from gbwatt.models.presets import Training
from gbwatt.models.registry import create, entry, known_options
from gbwatt.models.serialization import CONFIG, Pretrained, load_pretrained, read_config
from gbwatt.models.signal import Signal
from gbwatt.nn.optim import require_parts

Array = NDArray[Any]


#: One subject, several, or all; None for the first one, or for all of several files.
Subjects = int | Sequence[int] | Literal["all"] | None


def load_split(
    dataset: Dataset,
    subject: Subjects,
    number: int,
    root: str | Path | None,
    reading: Mapping[str, Any],
    protocol: Splitter | None = None,
) -> tuple[Trials, Split]:
    """Load the trials of some subjects, and make one of the splits of a protocol, by default that of the data set."""
    trials = load(dataset.name, subject, root=root, **reading)
    return trials, _choose_split(trials, dataset, number, protocol)


def _choose_split(trials: Trials, dataset: Dataset, number: int, protocol: Splitter | None) -> Split:
    """Return one of the splits that a protocol, by default that of the data set, makes of trials."""
    splits = (protocol or dataset.protocol).pooled(trials)
    if not 0 <= number < len(splits):
        which = "only split 0" if len(splits) == 1 else f"the splits 0 to {len(splits) - 1}"
        raise ParameterError(f"split={number} does not exist: there {'is' if len(splits) == 1 else 'are'} {which}.")
    return splits[number]


# ------------------------------------------------------------------------------------------------------------- training


#: Names of the training settings of :func:`train_and_evaluate`.
TRAINING_SETTINGS = ("lr", "batch_size", "max_epochs", "weight_decay", "early_stopping", "n_members")


@dataclass(frozen=True, kw_only=True)
class ModelSetup:
    """A model and its training, without data.

    Attributes
    ----------
    task : "mi", "ssvep", "ern" or None
        Preset of the model.
    paradigm : "mi", "ssvep", "erp", "auto" or None
        Settings of the recipe "best" of gbwatt, see :mod:`gbwatt.decoding.paradigms`; None for other models and
        recipes.
    model, recipe, options
        Name of the model, recipe if it has one, and other model options.
    training : dict
        Training settings that differ from those registered for the model.
    seed : int
    checkpoint : path or None
    source : EEGDecoder or None
        Model whose architecture and weights the training begins with.
    """

    task: str | None
    paradigm: str | None = None
    model: str
    recipe: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    checkpoint: Path | None = None
    source: EEGDecoder | None = None

    @property
    def usual_training(self) -> Training | None:
        """Training settings registered for the model and task, or those of the paradigm; None if it is unknown."""
        if self.source is not None:
            return fine_tuning_for(self.source.settings_.paradigm)
        if self.paradigm is None:
            return entry(self.model).training_for(self.task)
        return PARADIGMS[self.paradigm].training if self.paradigm in PARADIGMS else None

    @property
    def usual_epochs(self) -> int:
        """Maximum number of epochs of :attr:`usual_training`; 0 if it is unknown."""
        return 0 if self.usual_training is None else self.usual_training.max_epochs

    @property
    def max_epochs(self) -> int:
        """Maximum number of epochs of this training."""
        return int(self.training.get("max_epochs", self.usual_epochs))

    @property
    def selects_epoch(self) -> bool:
        """Whether validation trials select the epoch; otherwise, the final model is trained on them, too."""
        if entry(self.model).classical:
            return False
        return "early_stopping" in self.training or not self._has_paradigm

    @property
    def _has_paradigm(self) -> bool:
        """Whether the paradigm determines the settings: for the recipe "best" of gbwatt."""
        return self.model == "gbwatt" and self.options.get("recipe", self.recipe) in (None, "best")

    def with_settings(self, settings: Mapping[str, Any]) -> Self:
        """Return the setup with other training settings and model options, which are told apart by their names."""
        training = {name: value for name, value in settings.items() if name in TRAINING_SETTINGS}
        options = {name: value for name, value in settings.items() if name not in TRAINING_SETTINGS}
        return replace(self, options={**self.options, **options}, training={**self.training, **training})

    def check_arguments(self) -> EEGDecoder:
        """Check the arguments of the classifier, which need no data, and return it."""
        decoder = replace(self, paradigm="task").make_decoder(0.2)  # as if there were validation trials
        decoder._check_arguments()
        return decoder

    def make_decoder(self, validation: Trials | float | None = None, callbacks: Sequence[Any] = ()) -> EEGDecoder:
        """Make the classifier, not trained yet; ``validation`` are the trials that select the epoch, or their share."""
        arguments: dict[str, Any] = {
            "task": self.task,
            "validation": validation,
            "seed": self.seed,
            "checkpoint": self.checkpoint,
            "callbacks": list(callbacks),
            **self.training,
        }
        recipe: dict[str, Any] = {} if self.recipe is None else {"recipe": self.recipe}
        if self.model == "gbwatt":
            arguments["paradigm"] = self.paradigm if self.source is None else "task"  # the source has the settings
            return GBWAttClassifier(**recipe, model_options=dict(self.options), **arguments)
        return EEGDecoder(self.model, model_options={**recipe, **self.options}, **arguments)


@dataclass(frozen=True, kw_only=True)
class TrainingSetup(ModelSetup):
    """Everything that determines a training, checked before it begins.

    Attributes
    ----------
    dataset : str
        Name of the data set, or the path of the file.
    trials, split
        All trials of the subject, and which of them are for training, validation and test.
    split_number : int or None
        Number of the split among those of the protocol; None if it was passed as an object.
    protocol : Splitter or None
        Protocol, if it is not that of the data set.
    root : path or None
        Folder of recordings.
    reading : dict
        Options that the recordings were read with.
    n_parameters : int
        Number of trainable parameters of the model.

    See Also
    --------
    ModelSetup : The other attributes.
    """

    dataset: str
    trials: Trials
    split: Split
    split_number: int | None
    protocol: Splitter | None = None
    root: Path | None = None
    reading: Mapping[str, Any] = field(default_factory=dict)
    n_parameters: int = 0

    @property
    def subject(self) -> int | str:
        """Number of the subject; several numbers as text, such as "1-3, 5"."""
        return name_subjects(self.trials)

    @property
    def sizes(self) -> dict[str, int]:
        """Number of trials for training, validation and test."""
        return {part: len(getattr(self.split, part)) for part in ("train", "valid", "test")}

    def check_and_complete(self) -> TrainingSetup:
        """Return the setup with recipe, paradigm and number of parameters filled in.

        The model is built once, so that wrong options raise an error before training.  The recipe "best" of gbwatt
        trains for a fixed number of epochs: validation trials join the training trials, unless early stopping needs
        them.
        """
        classes = np.unique(self.trials.y)
        if len(classes) < 2:
            name = self.trials.class_names[classes[0]]
            raise ParameterError(f"{self.dataset} has one class, {name!r}; at least two are required.")
        source = self._read_source()
        if self._has_paradigm:
            paradigm = None if source else self.paradigm or OF_TASKS.get(str(self.task), "auto")
            split = self.split if self.selects_epoch else self.split.merged()
            setup = replace(self, paradigm=paradigm, split=split, source=source)
        else:
            setup = replace(self, paradigm=None, source=source)
        module = setup.build_model()
        freeze(module, self.training.get("frozen", ()))
        require_parts("layer_lr", self.training.get("layer_lr", ()), module)
        recipe = self.recipe
        if "recipe" in (getattr(module, "config", None) or {}):
            recipe = recipe or "best"
        elif recipe is not None:
            raise ParameterError(f"recipe={recipe!r}: {self.model} has no recipes; leave it out.")
        return replace(setup, recipe=recipe, n_parameters=_count_parameters(module))

    def require_unseen_test(self) -> None:
        """Raise ParameterError if test trials are also among the training or validation trials, as in a copied file."""
        trials, seen = self.trials, np.concatenate([self.split.train, self.split.valid])
        if len(trials) > MOST:
            return
        codes = fingerprints(trials.X[seen])
        seen_before = TrialFingerprints(codes, codes[:0]).used_for(trials.X[self.split.test]) == "training"
        rows = self.split.test[seen_before]
        if not len(rows):
            return
        subjects = np.unique(trials.subject[rows])
        raise ParameterError(
            f"{len(rows)} of {len(self.split.test)} test trials are also among the training or validation trials: "
            f"trials {number_ranges(rows)}, of subject{'s' * (len(subjects) > 1)} {number_ranges(subjects)}, of "
            f"{self.dataset}. A file may be a copy of another; leave it out."
        )

    def _read_source(self) -> EEGDecoder | None:
        """Load the first model whose weights are the initial ones, after a check of the arguments of the classifier."""
        if "initialization" not in self.training:
            return None
        return next(iter(self.check_arguments()._read_sources()), None)

    @property
    def signal(self) -> Signal:
        """Shape and sampling rate of the trials, and the number of classes in training."""
        _, n_chans, n_times = self.trials.shape
        return Signal(n_chans, len(np.unique(self.trials.y[self.split.train])), n_times, self.trials.sfreq)

    def settings_of(self, paradigm: str) -> Settings:
        """Settings of a paradigm for these trials."""
        return PARADIGMS[paradigm].settings(paradigm, self.signal, "", len(self.split.train))

    def build_model(self) -> nn.Module:
        """Build the model for these trials; raise ParameterError for wrong options."""
        arguments: dict[str, Any] = {"task": self.task}
        if self.source is not None:
            arguments = model_options(self.source)
        elif self.paradigm is not None:  # "auto" is not known yet: any of the settings serves to check the options
            arguments = dict(self.settings_of(self.paradigm if self.paradigm in PARADIGMS else "mi").options)
        try:
            members = self.training.get("n_members", 1 if self.source is None else len(self.source._networks))
            return create(self.model, **vars(self.signal), n_members=members, **{**arguments, **self.options})
        except TypeError as error:
            for name in self.options:
                check_one_of(f"option of {self.model}", name, known_options(self.model) or ())
            raise ParameterError(f"options {dict(self.options)} of {self.model} are wrong: {error}.") from error

    def _initial_record(self) -> TrainingRecord:
        """The record before training, without results; its status is "interrupted"."""
        by_name = self.split_number is not None
        return TrainingRecord(
            status="interrupted",
            dataset=self.dataset,
            subject=self.subject,
            split=self.split_number,
            tested_on=self.split.name,
            simulated=bool(self.trials.truths),
            protocol=None if self.protocol is None else self.protocol.describe(),
            data=fingerprint_subjects(self.dataset, self.trials, self.root, self.reading) if by_name else None,
            reading=self.reading,
            trials=self.sizes,
            model=self.model,
            options=self.options,
            seed=self.seed,
            checkpoint=None if self.checkpoint is None else str(self.checkpoint),
            versions=versions(),
            seen={part: getattr(self.split, part).tolist() for part in ("train", "valid")},
        )


@dataclass(frozen=True)
class TrainingResult:
    """A trained model with the record of its training.

    Attributes
    ----------
    decoder : EEGDecoder
        The classifier, with the weights of the best epoch.
    record : TrainingRecord
        Data, settings and scores.  After an interruption, ``record.status`` is "interrupted".
    folder : path or None
        Where the model was saved.
    evaluation : Evaluation or None
        Scores of the test trials; None after an interruption.
    """

    decoder: EEGDecoder
    record: TrainingRecord
    folder: Path | None = None
    evaluation: Evaluation | None = None


def train_and_evaluate(
    data: Recordings | Trials,
    model: str = "gbwatt",
    *,
    subject: Subjects = None,
    split: int | Split = 0,
    protocol: str | Splitter | Mapping[str, Any] | None = None,
    task: str | None = None,
    recipe: str | None = None,
    options: Mapping[str, Any] | None = None,
    lr: float | None = None,
    batch_size: int | None = None,
    max_epochs: int | None = None,
    weight_decay: float | None = None,
    early_stopping: int | None = None,
    n_members: int | None = None,
    n_jobs: int | None = None,
    calibration: str | None = None,
    initialization: str | Path | Sequence[str | Path] | None = None,
    frozen: Sequence[str] | None = None,
    layer_lr: Mapping[str, float] | None = None,
    alignment: str | None = None,
    domain_norm: str | None = None,
    domains: str | None = None,
    seed: int = 0,
    checkpoint: str | Path | None = None,
    callbacks: Sequence[Any] = (),
    on_start: Callable[[TrainingSetup], None] | None = None,
    folder: str | Path | None = None,
    root: str | Path | None = None,
    reading: Mapping[str, Any] | None = None,
) -> TrainingResult:
    """Train a model, test it once on held-out trials, and save it with a record of its training.

    The test trials are scored once, after training.  The weights are chosen by the validation trials, except for the
    recipe "best" of gbwatt, which trains on them, too, for a fixed number of epochs.  All arguments are checked before
    training begins.  Ctrl-C ends the training: with ``checkpoint``, the same call continues it
    later; without, the best weights so far are saved, not tested, and marked as interrupted.

    Parameters
    ----------
    data : str, path, list of paths, dict or Trials
        A data set, a file or several, as for :func:`gbwatt.data.load`, or trials.
    model : str
        One of :func:`gbwatt.models.list_models`.
    subject : int, sequence of int, "all" or None
        Subjects; default: the first, or all of several files.  Several subjects are trained and tested together.  Not
        for Trials.
    split : int or Split
        Number of the split among those that the protocol makes.  Trials require a :class:`~gbwatt.data.splits.Split`.
    protocol : str, Splitter or dict, optional
        How trials are split: "in-order", "leave-one-session-out", "leave-one-subject-out", or an object such as
        ``BySubject(train=(1, 2), test=(3,))`` or its description; default: the protocol of the data set.
    task : "mi", "ssvep", "erp" or "ern", optional
        Default: the task of the data set.  The recipe "best" of gbwatt uses the settings of this paradigm; without a
        task it compares the paradigms by cross-validation of the training trials.  Other models and recipes use the
        architecture and the training settings of the paper for "mi", "ssvep" and "ern".
    recipe : "best", "paper" or "release", optional
        Regularisation of models of the GBWAtt family; default: "best".
    options : dict, optional
        Further arguments of the model.
    lr, batch_size, max_epochs, weight_decay, early_stopping, n_members : optional
        As in :class:`EEGDecoder`; default: the settings registered for the model and task.
    n_jobs, calibration : optional
        Processes for the networks of an ensemble, and calibration of the probabilities, as in :class:`EEGDecoder`.
    initialization, frozen, layer_lr, alignment, domains : optional
        Weights of other models, and what is trained of them; alignment by subject or session; as in
        :class:`EEGDecoder`.  Files are prepared by the preprocessing steps of these weights, except for the window,
        unless ``reading`` has ``preprocessing``.
    domain_norm : "affine-invariant" or "bures-wasserstein", optional
        Normalisation of covariances by domain, as in :class:`GBWAttClassifier`.
    seed : int
        Random seed.
    checkpoint : path, optional
        Folder for the state after each epoch.  If it holds the state of the same training, training continues there.
    callbacks : sequence of callbacks
        Called during training, for example to display progress.
    on_start : callable, optional
        Called with the :class:`TrainingSetup` after all checks and before training.
    folder : path, optional
        Folder to save the model and its record in; a model in it is replaced.  Default: the model is not saved.
    root : path, optional
        Folder of recordings, as for :func:`gbwatt.data.load`.
    reading : dict, optional
        Further arguments of :func:`gbwatt.data.load`, such as ``source``, or ``tmin`` and ``tmax`` of a recording.

    Returns
    -------
    TrainingResult
        The trained decoder, the record, and the scores of the test trials.

    Raises
    ------
    ParameterError
        If an argument is wrong, or the trials have one class only.

    See Also
    --------
    evaluate : Score a saved model.

    Examples
    --------
    >>> sizes = {"n_spatial": 4, "n_temporal": 4, "kernel": 9, "k": 3}
    >>> result = train_and_evaluate("simulated-ssvep", options=sizes, max_epochs=1)
    >>> result.record.trials
    {'train': 400, 'valid': 0, 'test': 100}
    >>> result.evaluation.n
    100

    Trials of your own come with a split:

    >>> from gbwatt.data import load
    >>> from gbwatt.data.splits import InOrder
    >>> trials = load("simulated-ssvep", 2)
    >>> result = train_and_evaluate(trials, split=InOrder().splits(trials)[0], options=sizes, max_epochs=1)
    >>> 0 <= result.evaluation.accuracy <= 1
    True
    """
    settings = {
        "lr": lr,
        "batch_size": batch_size,
        "max_epochs": max_epochs,
        "weight_decay": weight_decay,
        "early_stopping": early_stopping,
        "n_members": n_members,
        "n_jobs": n_jobs,
        "calibration": calibration,
        "initialization": initialization,
        "frozen": None if frozen is None else tuple(frozen),
        "layer_lr": None if layer_lr is None else dict(layer_lr),
        "alignment": alignment,
        "domains": domains,
    }
    arguments: dict[str, Any] = {
        "model": model,
        "recipe": recipe,
        "options": {**(options or {}), **({} if domain_norm is None else {"domain_norm": domain_norm})},
        "training": {name: value for name, value in settings.items() if value is not None},
        "seed": seed,
        "checkpoint": None if checkpoint is None else Path(checkpoint),
    }
    entry(model)
    ModelSetup(task=None, **arguments).check_arguments()  # before files are read

    def fields_of(options: dict[str, Any]) -> dict[str, Any]:
        """The fields of the setup about data, for options of reading."""
        return recording_fields(data, subject, split, protocol, task, root, options)

    setup = TrainingSetup(**_fields_for_weights(fields_of, data, initialization, dict(reading or {})), **arguments)
    return run_training(setup.check_and_complete(), callbacks, on_start, folder)


def run_training(
    setup: TrainingSetup,
    callbacks: Sequence[Any] = (),
    on_start: Callable[[TrainingSetup], None] | None = None,
    folder: str | Path | None = None,
) -> TrainingResult:
    """Train, test once and save, from a checked setup; arguments are those of :func:`train_and_evaluate`."""
    setup.require_unseen_test()
    decoder = setup.make_decoder(setup.trials[setup.split.valid] if len(setup.split.valid) else None, callbacks)
    if on_start is not None:
        on_start(setup)
    if folder is not None:
        require_writable(Path(folder), f"folder={str(folder)!r}")
    return _train_and_test(setup, decoder, None if folder is None else Path(folder))


def recording_fields(
    data: Recordings | Trials,
    subject: Subjects,
    split: int | Split,
    protocol: str | Splitter | Mapping[str, Any] | None,
    task: str | None,
    root: str | Path | None,
    reading: dict[str, Any],
) -> dict[str, Any]:
    """The fields of a :class:`TrainingSetup` about data, from the arguments of :func:`train_and_evaluate`."""
    if task is not None:
        check_one_of("task", task, tuple(OF_TASKS))
    if isinstance(data, Trials):
        if not isinstance(split, Split):
            raise ParameterError(f"split={split!r}: Trials require a Split, for example InOrder().splits(trials)[0].")
        if any(value is not None for value in (subject, protocol, root)) or reading:
            raise ParameterError(
                "subject, protocol, root and reading are for data sets that are loaded by name; leave them out."
            )
        paradigm = OF_TASKS.get(str(task))
        fields = {"dataset": data.dataset, "task": task, "paradigm": paradigm}
        return {**fields, "trials": data, "split": split, "split_number": None}
    if isinstance(split, Split):
        raise ParameterError(f"split={split!r}: give the number of the split, or Trials with a Split.")
    dataset, splitter = find_dataset(data), None if protocol is None else find_protocol(protocol)
    trials, chosen = load_split(dataset, subject, split, root, reading, splitter)
    return {
        "dataset": dataset.name,
        "task": dataset.task if task is None else task,
        "paradigm": dataset.paradigm if task is None else OF_TASKS.get(task),
        "trials": trials,
        "split": chosen,
        "split_number": split,
        "protocol": splitter,
        "root": None if root is None else Path(root),
        "reading": reading,
    }


def _fields_for_weights(
    fields_of: Callable[[dict[str, Any]], dict[str, Any]], data: Recordings | Trials, initialization: Any, reading: Any
) -> dict[str, Any]:
    """The fields of a :class:`TrainingSetup` about data, prepared like the recordings of initial weights.

    Files are prepared by the steps of the weights if ``reading`` has no preprocessing, and their channels are picked in
    the order of the weights.  Windows are not cropped like those of the weights.  Data sets have their own steps.
    """
    weights = _preparing_weights(data, initialization, reading)
    if weights is None or weights[1].recorded_ is None:
        return fields_of(reading)
    name, recorded = weights[0], weights[1].recorded_
    steps = [step for step in recorded.preprocessing.records() if step["step"] != "crop"]
    try:
        fields = fields_of(_with_steps(reading, steps))
    except ParameterError as error:
        fields_of(reading)  # raises the error if it does not concern the steps
        raise ParameterError(
            f"{error} (initialization={name!r}: files are prepared by the steps of the weights; other ones are given "
            "by --preprocess, or reading={'preprocessing': ...} in Python.)"
        ) from error
    trials = fields["trials"]
    history = [to_hashable(step) for step in trials.steps]
    wanted = [
        step for step in steps if history.count(to_hashable(step)) <= steps.count(step)
    ]  # not in the file already
    ours, theirs = (tuple(map(comparable_name, names)) for names in (recorded.ch_names, trials.ch_names))
    if ours != theirs and set(ours) <= set(theirs):
        wanted.append({"step": "pick", "channels": list(recorded.ch_names)})
    return fields if wanted == steps else fields_of(_with_steps(reading, wanted))


def _with_steps(reading: Mapping[str, Any], steps: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Options of reading with preprocessing steps, if there are any."""
    return {**reading, **({"preprocessing": list(steps)} if steps else {})}


def _preparing_weights(
    data: Recordings | Trials, initialization: Any, reading: Mapping[str, Any]
) -> tuple[str, EEGDecoder] | None:
    """Name and decoder of the initial weights whose steps prepare files; None if files have their own steps."""
    if isinstance(data, Trials) or "preprocessing" in reading:
        return None
    decoder, dataset = EEGDecoder(initialization=initialization), find_dataset(data)
    folders = decoder._source_folders()
    if not folders or not folders[0].is_dir() or dataset.name in DATASETS or dataset.sources[0].name == "moabb":
        return None  # folders that do not exist raise an error later
    source = load_decoder(folders[0])
    changed_in_mne = source.recorded_ is not None and any(
        step["step"] == "mne" for step in source.recorded_.steps or ()
    )
    return None if changed_in_mne else (decoder._given_sources()[0], source)


def name_subjects(trials: Trials) -> int | str:
    """Return the number of the subject of trials; several numbers as text, such as "1-3, 5"."""
    subjects = np.unique(trials.subject).tolist()
    return int(subjects[0]) if len(subjects) == 1 else number_ranges(subjects)


def fingerprint_subjects(name: str, trials: Trials, root: str | Path | None, reading: Mapping[str, Any] | None) -> str:
    """Return the :func:`~gbwatt.data.loading.fingerprint` of the recordings of all subjects of trials."""
    each = [fingerprint(name, number, root, reading) for number in np.unique(trials.subject).tolist()]
    return each[0] if len(each) == 1 else hashlib.sha256("".join(each).encode()).hexdigest()[:16]


def _train_and_test(setup: TrainingSetup, decoder: EEGDecoder, folder: Path | None) -> TrainingResult:
    """Train, test once and save; after an interruption, save the best weights unless there is a checkpoint."""
    record, started = setup._initial_record(), time.perf_counter()
    try:
        decoder.fit(setup.trials[setup.split.train])
    except KeyboardInterrupt:
        if not hasattr(decoder, "net_") or not decoder.history_:
            return TrainingResult(decoder, record)
        record = replace(record, **_result_fields(decoder), seconds=time.perf_counter() - started)
        return TrainingResult(decoder, record, None if setup.checkpoint else _save_model(decoder, record, folder))
    seconds = time.perf_counter() - started
    evaluation = _evaluate_trials(decoder, setup.trials[setup.split.test])
    record = replace(record, status="done", **_result_fields(decoder), seconds=seconds, test=evaluation.to_dict())
    return TrainingResult(decoder, record, _save_model(decoder, record, folder), evaluation)


def _result_fields(decoder: EEGDecoder) -> dict[str, Any]:
    """The fields of a :class:`TrainingRecord` that are known after training."""
    net = decoder.net_
    return {
        "recipe": getattr(net.module_, "config", {}).get("recipe"),
        "training": {
            **{name: getattr(net, name) for name in ("lr", "batch_size", "weight_decay", "max_epochs")},
            **decoder.transfer_settings_,
            **({} if decoder.calibration is None else {"temperature": decoder.temperature_}),
        },
        "settings": decoder.settings_.to_dict(),
        "early_stopping": decoder.early_stopping,
        "epochs": len(decoder.history_),
        "best_epoch": decoder.best_epoch_,
        "at_best_epoch": best_row(decoder.history_) if decoder.history_ else {},
        "parameters": _count_parameters(net.module_),
    }


def _count_parameters(module: nn.Module) -> int:
    """Number of trainable parameters."""
    return sum(p.numel() for p in module.parameters() if p.requires_grad)


def _save_model(decoder: EEGDecoder, record: TrainingRecord, folder: Path | None) -> Path | None:
    """Save the classifier and its record in a folder, and return the folder; do nothing if it is None."""
    if folder is not None:
        (folder / FILE).unlink(missing_ok=True)  # the record of a model that is replaced
        decoder.save_pretrained(folder)
        record.write(folder)
    return folder


# -------------------------------------------------------------------------------------------------------------- loading


def load_decoder(folder: str | Path, *, device: str = "cpu") -> EEGDecoder:
    """Load a trained classifier from the folder of a model.

    Parameters
    ----------
    folder : path
        A folder that :meth:`EEGDecoder.save_pretrained`, :func:`train_and_evaluate`, ``gbwatt train`` or ``gbwatt
        finetune`` wrote.
    device : str
        As in torch.

    Returns
    -------
    EEGDecoder
        Of the class that was saved.  A network that was saved without a classifier, as ``gbwatt finetune`` does, is
        wrapped into one: its classes are those that were saved with it, and epochs are passed on without scaling.

    Raises
    ------
    ModelFileError
        If the folder has no model, or a damaged one.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> X, y = np.random.default_rng(0).standard_normal((20, 4, 64)), np.repeat(["left", "right"], 10)
    >>> with TemporaryDirectory() as folder:
    ...     GBWAttClassifier(task="mi", max_epochs=1).fit(X, y).save_pretrained(folder)
    ...     decoder = load_decoder(folder)
    >>> type(decoder).__name__, decoder.class_names_
    ('GBWAttClassifier', ('left', 'right'))
    """
    saved = read_config(Path(folder) / CONFIG)["extra"].get("estimator")
    if saved is None:
        return _wrap_network(load_pretrained(folder), str(folder), device)
    kind = GBWAttClassifier if saved.get("class") == GBWAttClassifier.__name__ else EEGDecoder
    return kind.from_pretrained(folder, device=device)


def _wrap_network(loaded: Pretrained, folder: str, device: str) -> EEGDecoder:
    """A classifier around a network that was saved without one."""
    arguments = dict(loaded.arguments)
    signal = {item.name: arguments.pop(item.name, None) for item in fields(Signal)}
    missing = [name for name in ("n_chans", "n_outputs", "n_times") if signal[name] is None]
    if missing:
        raise ModelFileError(f"{folder} has a network whose input is unknown: its arguments lack {', '.join(missing)}.")
    decoder = EEGDecoder(loaded.name, task=arguments.pop("task", None), model_options=arguments, device=device)
    decoder.signal_ = Signal(**signal)
    decoder.classes_ = np.arange(decoder.signal_.n_outputs)
    decoder._names = None if loaded.class_names is None else tuple(map(str, loaded.class_names))
    decoder.scale_, decoder.fingerprints_, decoder.samples_, decoder.domains_ = 1.0, None, None, None
    decoder.temperature_ = 1.0
    sfreq, ch_names = decoder.signal_.sfreq, arguments.get("ch_names")
    decoder.recorded_ = None if sfreq is None or ch_names is None else Recorded(tuple(ch_names), sfreq, "µV")
    decoder.settings_ = decoder._registered()
    decoder.net_ = decoder._make_trainer(loaded.model, decoder.settings_)
    return decoder


# ----------------------------------------------------------------------------------------------------------- evaluation


@dataclass(frozen=True, eq=False)
class EvaluationSet:
    """The trials that a saved model is evaluated or explained on.

    Attributes
    ----------
    decoder : EEGDecoder
        The model.
    record : TrainingRecord or None
        Record of its training, if there is one.
    dataset : str
        Name of the data set, or the path of the file.
    trials : Trials
    uses : array (n,)
        What each trial was used for when the model was trained, one of :data:`gbwatt.decoding.training_record.USES`.
    split : str
        Name of the split; empty for all trials.
    selection : str
        Which trials of the data set they are, in words.
    part : "test" or "all"
        Whether they are the test trials of a split, or all trials.
    share : str
        How many of all trials they are, in words; empty for all trials.
    alignment : str or None
        How the trials are aligned, in words; None for models without alignment and ``domain_norm``.
    """

    decoder: EEGDecoder
    record: TrainingRecord | None
    dataset: str
    trials: Trials
    uses: Array
    split: str
    selection: str
    part: str = "test"
    share: str = ""
    alignment: str | None = None

    @classmethod
    def open(
        cls,
        folder: str | Path,
        dataset: Recordings | None = None,
        *,
        subject: Subjects = None,
        split: int | None = None,
        part: str | None = None,
        reading: Mapping[str, Any] | None = None,
        root: str | Path | None = None,
    ) -> EvaluationSet:
        """Load a model and trials for it.

        Files that are given without the number of their subject are recordings of new subjects, unless the model was
        trained on them: models with ``alignment`` or ``domain_norm`` estimate them anew from these trials.

        By default, these are the test trials of the recordings and the split that the model was trained with, which
        ``training.json`` in its folder records.

        Parameters
        ----------
        folder : path
            Folder of a model.
        dataset : str, path, list of paths or dict, optional
            Other recordings, as for :func:`gbwatt.data.load`.
        subject : int, sequence of int or "all", optional
            Subjects; default: those of training for the data set of training, else the first one.
        split : int, optional
            Number of the split; default: that of training for the data set of training, else the first one.
        part : "test" or "all", optional
            Test trials only, or all trials of the subjects.  Default: all trials of files that the model was not
            trained on, unless ``split`` is given; otherwise the test trials.
        reading : dict, optional
            Further arguments of :func:`gbwatt.data.load`; default: those of training for the data set of training.  If
            other files are evaluated, options that are not given are those of the files used for training, and the
            files are preprocessed as the training data were.
        root : path, optional
            Folder of recordings.

        Raises
        ------
        ParameterError
            If the recordings of training are unknown and ``dataset`` is not given, or if the recordings do not fit the
            model.
        """
        if part is not None:
            check_one_of("part", part, ("test", "all"))
        decoder, record = load_decoder(folder), TrainingRecord.read(folder)
        chosen = _complete_selection(decoder, record, dataset, subject, split, reading)
        source, number = chosen.dataset, chosen.split
        trials = load(source.name, chosen.subject, root=root, **chosen.reading)
        _require_alike(decoder, trials, source.name, record, reading or {})
        uses = _trial_uses(decoder, record, source, trials, root, chosen.reading)
        if part is None:
            other = split is None and _are_files(source) and (record is None or record.dataset != source.name)
            part = "all" if other and not _was_used(uses) else "test"
        name, selection, rows = "", "all trials", np.arange(len(trials))
        if part == "test":
            one = _choose_split(trials, source, number, chosen.protocol)
            name, selection, rows = one.name, f"test trials of split {number} ({one.name})", one.test
        known = _known_subjects(decoder, record, source, trials, uses, subject is not None)
        aligning, aligned = _in_known_domains(decoder, trials[rows], known)
        _require_enough_to_align(aligning, trials[rows], len(trials))
        more = "" if _was_used(uses) or part == "all" else "; --all scores all"
        share = "" if part == "all" else f"{len(rows)} of {len(trials)} trials{more}"
        return cls(aligning, record, source.name, trials[rows], uses[rows], name, selection, part, share, aligned)

    def evaluate(self) -> Evaluation:
        """Score the trials."""
        try:
            return _evaluate_trials(self.decoder, self.trials, None, self.uses)
        except UnknownLabelError as error:
            if "classes" not in find_dataset(self.dataset).sources[0].options:
                raise
            ours = {name: [name] for name in self.decoder.class_names_}
            raise UnknownLabelError(
                f"dataset={self.dataset!r} has the classes {', '.join(map(repr, self.trials.class_names))}, but the "
                f"model was trained on {', '.join(map(repr, ours))}. Choose the events of each class, for example: "
                f"{example_call(self.trials.class_names, ours)}"
            ) from error

    @property
    def description(self) -> str:
        """The trials, in words."""
        which = f"test trials of {self.dataset} ({self.split})" if self.split else f"trials of {self.dataset}"
        return f"{len(self.trials)} {which}"

    @property
    def warning(self) -> str | None:
        """A warning if some trials were used for training or validation."""
        counts = {use: int((self.uses == use).sum()) for use in ("training", "validation")}
        parts = [f"{count} were {USES[use]}" for use, count in counts.items() if count]
        if not parts:
            return None
        return f"Of these {len(self.uses)} trials, {' and '.join(parts)}; findings may not hold for new trials."


class _Selection(NamedTuple):
    """Trials to evaluate: the complete arguments of :func:`load_split`."""

    dataset: Dataset
    subject: Subjects
    split: int
    reading: dict[str, Any]
    protocol: Splitter | None = None


def _complete_selection(
    decoder: EEGDecoder,
    record: TrainingRecord | None,
    dataset: Recordings | None,
    subject: Subjects,
    split: int | None,
    reading: Mapping[str, Any] | None,
) -> _Selection:
    """Return which trials to evaluate, with defaults for arguments that are None.

    Defaults are those of training for the data set of training, else the first subject and split.
    """
    if record is not None and record.split is not None:
        if dataset is None or find_dataset(dataset).name == record.dataset:
            return _Selection(
                _find_trained(record.dataset),
                record.subjects if subject is None else subject,
                record.split if split is None else split,
                {**record.reading, **(reading or {})},
                # other subjects are not those of the protocol
                None if record.protocol is None or subject is not None else find_protocol(record.protocol),
            )
    elif dataset is None:
        unknown = f"the folder has no {FILE}, so the recordings of training are unknown"
        why = unknown if record is None else f"the trials of {record.dataset} used for training have no split number"
        raise ParameterError(f"dataset: {why}; give --dataset, or dataset= in Python.")
    other = find_dataset(dataset)
    return _Selection(other, subject, split or 0, _reading_like_training(decoder, record, other, reading))


def _find_trained(name: str) -> Dataset:
    """Return the data set of training; the error for missing files says that their paths are those of training."""
    try:
        return find_dataset(name)
    except MissingFileError as error:
        missing = [str(file) for _, file in numbered_files(name) if not file.exists()]
        raise MissingFileError(
            f"{', '.join(missing)} {'does' if len(missing) == 1 else 'do'} not exist in {Path.cwd()}; the training "
            "record has this path from training. Run the command in the folder of the training, or give --dataset "
            "(dataset= in Python)."
        ) from error


def _reading_like_training(
    decoder: EEGDecoder, record: TrainingRecord | None, dataset: Dataset, reading: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return options for reading files like those of training; for other data sets, the given ones.

    Given options have precedence over those of training.
    """
    if not _are_files(dataset):
        return dict(reading or {})
    source = dataset.sources[0]
    trained = {} if record is None or record.dataset in DATASETS else record.reading
    known = {name: value for name, value in trained.items() if name in source.options}
    steps = [] if decoder.recorded_ is None else decoder.recorded_.preprocessing.records()
    return {**known, **({"preprocessing": steps} if steps else {}), **(reading or {})}


def _require_alike(
    decoder: EEGDecoder, trials: Trials, name: str, record: TrainingRecord | None, given: Mapping[str, Any]
) -> None:
    """Raise an error for recordings that differ in channels, window or preprocessing from those of training.

    ``name`` is that of the data set, and ``given`` are the given options of reading, which are not those of training.
    """
    if decoder.recorded_ is None:
        return
    try:
        decoder.recorded_.require(Recorded.of(trials), "trials")
    except MismatchError as error:
        hint = "" if record is None else f" Without --dataset, {record.dataset} is used, as in training."
        hint += (
            " Without --preprocess, files are prepared by the steps of the model." if "preprocessing" in given else ""
        )
        raise ParameterError(f"dataset={name!r} does not fit the model: {error}{hint}") from error
    try:
        signal = (decoder.signal_.n_chans, decoder.signal_.n_times)
        same_signal(trials.X, signal, "trials", decoder.recorded_, Recorded.of(trials))
    except ShapeError as error:
        options = [option for option in ("tmin", "tmax") if option in given]
        hint = f" Without --read {' and '.join(options)}, the window of training is used." if options else ""
        raise ShapeError(f"dataset={name!r} does not fit the model: {error}{hint}") from error


def _trial_uses(
    decoder: EEGDecoder,
    record: TrainingRecord | None,
    dataset: Dataset,
    trials: Trials,
    root: str | Path | None,
    reading: Mapping[str, Any],
) -> Array:
    """Use of each trial in training, from the fingerprints of the model and from its training record."""
    name, contents, files = dataset.name, None, numbered_files(dataset.name)
    one = str(files[0][1]) if len(files) == 1 and files[0][1].is_file() else None
    if record is not None and one is not None:  # perhaps a copy; old records have no options in the fingerprint
        contents = [fingerprint_subjects(one, trials, root, options) for options in (record.reading, None)]
    recorded = None
    if record is not None:
        has_numbers = dataset.subjects and (one is None or files[0][0] is None)
        subjects = name_subjects(trials) if has_numbers else None
        recorded = record.uses(name, subjects, len(trials), reading=reading, data=contents)
    compared = _uses_by_fingerprint(decoder, trials)
    return compared if recorded is None else np.where(np.isin(compared, ("training", "validation")), compared, recorded)


def _known_subjects(
    decoder: EEGDecoder,
    record: TrainingRecord | None,
    dataset: Dataset,
    trials: Trials,
    uses: Array,
    numbered: bool,
) -> dict[int, int | None] | None:
    """Subject of the training that each subject of trials is, None for a new one.

    None if both have the same numbers: in the data set of training, and if the numbers were given.
    """
    same = record is not None and record.dataset == dataset.name
    if decoder.domains_ is None or same:
        return None
    subjects = np.unique(trials.subject).tolist()
    by_name = {name: name in DATASETS for name in (dataset.name, "" if record is None else record.dataset)}
    if record is not None and all(by_name.values()):
        return dict.fromkeys(subjects)  # another data set
    if numbered or not dataset.unnumbered:
        return None
    files = [file for _, file in numbered_files(dataset.name)]
    trained = [] if record is None else numbered_files(record.dataset)
    known: dict[int, int | None] = {}
    for number, file in zip(subjects, files, strict=True):
        found = [own or number for own, other in trained if is_same_file(file, other)]
        used = _was_used(uses[trials.subject == number])
        if not found and used and decoder.domains_.by == "subject" and len(decoder.domains_.names) == 1:
            found = [decoder.domains_.names[0]]  # its only subject
        known[number] = found[0] if found else None
    return known


def _in_known_domains(
    decoder: EEGDecoder, trials: Trials, known: Mapping[int, int | None] | None
) -> tuple[EEGDecoder, str | None]:
    """Return a decoder whose domains have the names of those of trials, and in words how it aligns the trials."""
    if decoder.domains_ is None:
        return decoder, None
    before, aligning = decoder.domains_.names, copy.copy(decoder)
    aligning.domains_ = decoder.domains_ if known is None else decoder.domains_.with_subjects(known)
    names = in_order(aligning.domains_.names_of(trials))
    old = dict(zip(aligning.domains_.names, before, strict=True))
    return aligning, _describe_alignment([old[name] for name in names if name in old], len(names), aligning.domains)


def _describe_alignment(known: Sequence[Any], n: int, kind: str | None) -> str:
    """Return in words how trials of ``n`` domains are aligned, of which some are known."""
    kind, new = kind or "subject", n - len(known)
    numbers = number_ranges(known) if all(type(name) is int for name in known) else ", ".join(map(str, known))
    parts = [f"{kind}{'s' * (len(known) > 1)} {numbers} of the training"] if known else []
    parts += [f"a new {kind}" if new == 1 else f"{new} new {kind}s"] if new else []
    return f"as {' and '.join(parts)}"


def _are_files(dataset: Dataset) -> bool:
    """Return whether a data set consists of files of the user."""
    return dataset.name not in DATASETS and dataset.sources[0].name != "moabb"


def _was_used(uses: Array) -> bool:
    """Return whether some trials were used for training or validation."""
    return bool(np.isin(uses, ("training", "validation")).any())


def _require_enough_to_align(decoder: EEGDecoder, trials: Trials, n: int) -> None:
    """Raise ShapeError if trials of a new domain, of ``n`` in the data set, are too few to estimate its alignment."""
    if decoder.domains_ is None:
        return
    names = decoder.domains_.names_of(trials)
    unknown = decoder.domains_.unknown(names)
    try:
        for name in in_order(names[unknown]):
            require_enough(trials.X[names == name], name)
    except ShapeError as error:
        remedy = f" --all (part='all' in Python) scores all {n} trials." if n > len(trials) else ""
        raise ShapeError(f"{error}{remedy}") from error


def _uses_by_fingerprint(decoder: EEGDecoder, X: Any) -> Array:
    """Use of each trial in training, from fingerprints alone.

    Trials without a match are "unrecognised", not "unseen": they may be training trials that were cut differently.
    """
    compared = decoder.used_for(X).astype(object)
    return np.where(compared == "unseen", "unrecognised", compared)


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Scores of a model on trials.

    Attributes
    ----------
    n, hits : int
        Number of trials, and of correct predictions.
    accuracy : float
    accuracy_95 : (low, high)
        Wilson's 95 % confidence interval of the accuracy.
    chance : float
        Accuracy of always predicting the most frequent class of these trials.
    balanced_accuracy, kappa, loss : float
        Mean recall of the classes, Cohen's kappa, and mean negative log-likelihood.
    calibration_error : float
        Expected calibration error: the mean difference between the confidence of predictions and their accuracy, in ten
        bins of equal width.
    reliability : list of dict
        The bins that have predictions: edges ``low`` and ``high``, number of predictions ``n``, their mean
        ``confidence`` and their ``accuracy``.
    auc : float or None
        Area under the ROC curve, for two classes.
    per_class : dict
        Recall, precision and number of trials of each class.
    confusion : list of lists
        Confusion matrix, a row for each true class.
    class_names : tuple of str
    uses : dict of str to Accuracy
        Accuracy by what trials were used for when the model was trained.  Only the accuracy of trials that are "unseen"
        shows how well the model generalises.
    """

    accuracy: float
    balanced_accuracy: float
    kappa: float
    auc: float | None
    loss: float
    calibration_error: float
    reliability: list[dict[str, float]]
    per_class: Mapping[str, Mapping[str, float]]
    confusion: list[list[int]]
    n: int
    hits: int
    accuracy_95: tuple[float, float]
    chance: float
    class_names: tuple[str, ...]
    uses: Mapping[str, Accuracy] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """All scores as values that JSON keeps, without ``uses``."""
        values = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "uses"}
        return {**values, "accuracy_95": list(self.accuracy_95), "class_names": list(self.class_names)}


def evaluate(
    model: EEGDecoder | str | Path,
    data: Any = None,
    y: Any = None,
    *,
    subject: Subjects = None,
    split: int | None = None,
    part: str | None = None,
    reading: Mapping[str, Any] | None = None,
    root: str | Path | None = None,
) -> Evaluation:
    """Score a trained model.

    Parameters
    ----------
    model : EEGDecoder or path
        A fitted classifier, or the folder of a saved one.
    data : Trials, mne.Epochs, array, str, path, list of paths or dict, optional
        Trials to score, all of them; or, for the folder of a model, a data set, a file or several.  Default: the test
        trials of the recordings that the model in the folder was trained with.
    y : array (n,), optional
        Labels or names of the classes; needed for arrays.
    subject, split, part, reading, root : optional
        Which trials of a data set, as for :meth:`EvaluationSet.open`.

    Returns
    -------
    Evaluation
        Scores with Wilson's interval and chance level, and the accuracy by what trials were used for in training.

    Raises
    ------
    ParameterError
        If it is unknown which trials to score, or the trials do not fit the model.

    See Also
    --------
    train_and_evaluate : Train a model, and test it once.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.standard_normal((40, 4, 64)), np.repeat(["left", "right"], 20)
    >>> X[20:, 0] *= 5
    >>> decoder = EEGDecoder("gbwatt", max_epochs=15, lr=1e-2, validation=None).fit(X[::2], y[::2])
    >>> result = evaluate(decoder, X[1::2], y[1::2])
    >>> result.n, result.chance, result.accuracy > 0.8
    (20, 0.5, True)
    >>> list(result.uses)
    ['unrecognised']
    """
    if data is None or _names_recordings(data):
        if isinstance(model, EEGDecoder):
            raise ParameterError("data: give trials, or the folder of the model instead of the classifier.")
        chosen = EvaluationSet.open(model, data, subject=subject, split=split, part=part, reading=reading, root=root)
        return chosen.evaluate()
    if any(value is not None for value in (subject, split, reading, root)):
        raise ParameterError("subject, split, reading and root are for data sets that are loaded by name.")
    decoder = model if isinstance(model, EEGDecoder) else load_decoder(model)
    return _evaluate_trials(decoder, data, y, _uses_by_fingerprint(decoder, data))


def _names_recordings(data: Any) -> bool:
    """Return whether data are given by names or paths, and not as epochs."""
    names = data.values() if isinstance(data, Mapping) else data if isinstance(data, list | tuple) else [data]
    return all(isinstance(name, str | Path) or (isinstance(name, list) and _names_recordings(name)) for name in names)


def _evaluate_trials(decoder: EEGDecoder, X: Any, y: Any = None, uses: Array | None = None) -> Evaluation:
    """Score trials; ``uses`` (n,) is the use of each trial in training, for the accuracy by use."""
    values, labels, hits = _score_trials(decoder, X, y)
    by_use = {} if uses is None else {use: hits[uses == use] for use in dict.fromkeys(uses.tolist())}
    return Evaluation(
        **{**values, **Accuracy.of(int(hits.sum()), len(hits))._asdict()},
        chance=chance_level(np.unique(labels, return_counts=True)[1]),
        class_names=decoder.class_names_,
        uses={use: Accuracy.of(int(mask.sum()), len(mask)) for use, mask in by_use.items()},
    )


def scores(decoder: EEGDecoder, trials: Trials) -> dict[str, Any]:
    """Scores of trials by name, see :func:`gbwatt.decoding.metrics.score`."""
    return _score_trials(decoder, trials, None)[0]


def _score_trials(decoder: EEGDecoder, X: Any, y: Any) -> tuple[dict[str, Any], Array, Array]:
    """Scores, labels (n,), and whether each prediction is correct (n,)."""
    labels, probability = decoder.labels_of(X, y), decoder.predict_proba(X)
    hits = decoder.classes_[probability.argmax(1)] == labels
    return score(labels, probability, decoder.classes_, decoder.class_names_), labels, hits

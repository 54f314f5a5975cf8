"""Train a model, test it once and record the result; evaluate saved models."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from gbwatt._validation import check_one_of
from gbwatt.data import Trials, find_dataset, load
from gbwatt.data.datasets import Dataset
from gbwatt.data.description import chance_level
from gbwatt.data.loading import fingerprint
from gbwatt.data.splits import Split
from gbwatt.decoding.estimator import EEGDecoder, GBWAttClassifier
from gbwatt.decoding.metrics import Accuracy, score
from gbwatt.decoding.paradigms import OF_TASKS, PARADIGMS, fine_tuning_for
from gbwatt.decoding.signal_metadata import Recorded
from gbwatt.decoding.training import best_row, freeze
from gbwatt.decoding.training_record import FILE, USES, TrainingRecord, versions
from gbwatt.decoding.transfer import model_options
from gbwatt.errors import MismatchError, ModelFileError, ParameterError
from gbwatt.models.registry import create, entry, known_options
from gbwatt.models.serialization import CONFIG, Pretrained, load_pretrained, read_config
from gbwatt.models.signal import Signal
from gbwatt.nn.optim import require_parts

Array = NDArray[Any]


def load_split(
    dataset: Dataset, subject: int | None, number: int, root: str | Path | None, reading: Mapping[str, Any]
) -> tuple[Trials, Split]:
    """Load the trials of a subject, and make one of the splits of the data set's protocol."""
    trials = load(dataset.name, subject, root=root, **reading)
    splits = dataset.protocol.splits(trials)
    if not 0 <= number < len(splits):
        which = "only split 0" if len(splits) == 1 else f"the splits 0 to {len(splits) - 1}"
        raise ParameterError(f"split={number} does not exist: a subject of {dataset.name} has {which}.")
    return trials, splits[number]


# ------------------------------------------------------------------------------------------------------------- training


@dataclass(frozen=True, kw_only=True)
class TrainingSetup:
    """Everything that determines a training, checked before it begins.

    Attributes
    ----------
    dataset : str
        Name of the data set, or the path of the file.
    task : "mi", "ssvep", "ern" or None
        Preset of the model.
    paradigm : "mi", "ssvep", "erp", "auto" or None
        Settings of the recipe "best" of gbwatt, see :mod:`gbwatt.decoding.paradigms`; None for other models and
        recipes.
    trials, split
        All trials of the subject, and which of them are for training, validation and test.
    split_number : int or None
        Number of the split among those of the data set's protocol; None if it was passed as an object.
    model, recipe, options
        Name of the model, recipe if it has one, and other model options.
    training : dict
        Training settings that differ from those registered for the model.
    seed : int
    checkpoint : path or None
    root : path or None
        Folder of recordings.
    reading : dict
        Options that the recordings were read with.
    n_parameters : int
        Number of parameters that are trained.
    source : EEGDecoder or None
        Model whose architecture and weights the training begins with.
    """

    dataset: str
    task: str | None
    paradigm: str | None = None
    trials: Trials
    split: Split
    split_number: int | None
    model: str
    recipe: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    checkpoint: Path | None = None
    root: Path | None = None
    reading: Mapping[str, Any] = field(default_factory=dict)
    n_parameters: int = 0
    source: EEGDecoder | None = None

    @property
    def subject(self) -> int | str:
        """Number of the subject; several numbers as text."""
        subjects = np.unique(self.trials.subject).tolist()
        return subjects[0] if len(subjects) == 1 else ", ".join(map(str, subjects))

    @property
    def sizes(self) -> dict[str, int]:
        """Number of trials for training, validation and test."""
        return {part: len(getattr(self.split, part)) for part in ("train", "valid", "test")}

    @property
    def usual_epochs(self) -> int:
        """Maximum number of epochs registered for the model and task, or those of the paradigm; 0 if it is unknown."""
        if self.source is not None:
            return fine_tuning_for(self.source.settings_.paradigm).max_epochs
        if self.paradigm is None:
            return entry(self.model).training_for(self.task).max_epochs
        return PARADIGMS[self.paradigm].training.max_epochs if self.paradigm in PARADIGMS else 0

    @property
    def max_epochs(self) -> int:
        """Maximum number of epochs of this training."""
        return int(self.training.get("max_epochs", self.usual_epochs))

    def _check_and_complete(self) -> TrainingSetup:
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
        if self.model == "gbwatt" and self.options.get("recipe", self.recipe) in (None, "best"):
            paradigm = None if source else self.paradigm or OF_TASKS.get(str(self.task), "auto")
            split = self.split if "early_stopping" in self.training else self.split.merged()
            setup = replace(self, paradigm=paradigm, split=split, source=source)
        else:
            setup = replace(self, paradigm=None, source=source)
        module = setup._build_model()
        freeze(module, self.training.get("frozen", ()))
        require_parts("layer_lr", self.training.get("layer_lr", ()), module)
        recipe = self.recipe
        if "recipe" in getattr(module, "config", {}):
            recipe = recipe or "best"
        elif recipe is not None:
            raise ParameterError(f"recipe={recipe!r}: {self.model} has no recipes; leave it out.")
        return replace(setup, recipe=recipe, n_parameters=_count_parameters(module))

    def _read_source(self) -> EEGDecoder | None:
        """Load the first model whose weights are the initial ones, after a check of the arguments of the classifier."""
        if "initialization" not in self.training:
            return None
        decoder = replace(self, paradigm="task")._make_decoder(())
        decoder._check_arguments()
        return next(iter(decoder._read_sources()), None)

    def _build_model(self) -> nn.Module:
        """Build the model for these trials; raise ParameterError for wrong options."""
        _, n_chans, n_times = self.trials.shape
        n_outputs = len(np.unique(self.trials.y[self.split.train]))
        signal = Signal(n_chans, n_outputs, n_times, self.trials.sfreq)
        arguments: dict[str, Any] = {"task": self.task}
        if self.source is not None:
            arguments = model_options(self.source)
        elif self.paradigm is not None:  # "auto" is not known yet: any of the settings serves to check the options
            arguments = dict(PARADIGMS.get(self.paradigm, PARADIGMS["mi"]).settings("", signal, "").options)
        try:
            members = self.training.get("n_members", 1)
            return create(self.model, **vars(signal), n_members=members, **{**arguments, **self.options})
        except TypeError as error:
            for name in self.options:
                check_one_of(f"option of {self.model}", name, known_options(self.model) or ())
            raise ParameterError(f"options {dict(self.options)} of {self.model} are wrong: {error}.") from error

    def _make_decoder(self, callbacks: Sequence[Any]) -> EEGDecoder:
        """Make the classifier, not trained yet."""
        arguments: dict[str, Any] = {
            "task": self.task,
            "validation": self.trials[self.split.valid] if len(self.split.valid) else None,
            "seed": self.seed,
            "checkpoint": self.checkpoint,
            "callbacks": list(callbacks),
            **self.training,
        }
        recipe: dict[str, Any] = {} if self.recipe is None else {"recipe": self.recipe}
        if self.model == "gbwatt":
            paradigm = self.paradigm if self.source is None else "task"  # the source has the settings
            return GBWAttClassifier(**recipe, model_options=dict(self.options), **arguments, paradigm=paradigm)
        return EEGDecoder(self.model, model_options={**recipe, **self.options}, **arguments)

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
            data=fingerprint(self.dataset, int(self.subject), self.root, self.reading) if by_name else None,
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
    data: str | Path | Trials,
    model: str = "gbwatt",
    *,
    subject: int | None = None,
    split: int | Split = 0,
    task: str | None = None,
    recipe: str | None = None,
    options: Mapping[str, Any] | None = None,
    lr: float | None = None,
    batch_size: int | None = None,
    max_epochs: int | None = None,
    weight_decay: float | None = None,
    early_stopping: int | None = None,
    n_members: int | None = None,
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
    data : str, path or Trials
        A data set or file, as for :func:`gbwatt.data.load`, or trials.
    model : str
        One of :func:`gbwatt.models.list_models`.
    subject : int, optional
        Number of the subject; default: the first.  Not for Trials.
    split : int or Split
        Number of the split among those that the protocol of the data set makes.  Trials require a
        :class:`~gbwatt.data.splits.Split`.
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
    initialization, frozen, layer_lr, alignment, domains : optional
        Weights of other models, and what is trained of them; alignment by subject or session; as in
        :class:`EEGDecoder`.
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
        "initialization": initialization,
        "frozen": None if frozen is None else tuple(frozen),
        "layer_lr": None if layer_lr is None else dict(layer_lr),
        "alignment": alignment,
        "domains": domains,
    }
    entry(model)
    setup = TrainingSetup(
        **_recording_fields(data, subject, split, task, root, dict(reading or {})),
        model=model,
        recipe=recipe,
        options={**(options or {}), **({} if domain_norm is None else {"domain_norm": domain_norm})},
        training={name: value for name, value in settings.items() if value is not None},
        seed=seed,
        checkpoint=None if checkpoint is None else Path(checkpoint),
    )._check_and_complete()
    decoder = setup._make_decoder(callbacks)
    if on_start is not None:
        on_start(setup)
    return _train_and_test(setup, decoder, None if folder is None else Path(folder))


def _recording_fields(
    data: str | Path | Trials,
    subject: int | None,
    split: int | Split,
    task: str | None,
    root: str | Path | None,
    reading: dict[str, Any],
) -> dict[str, Any]:
    """The fields of a :class:`TrainingSetup` about data, from the arguments of :func:`train_and_evaluate`."""
    if isinstance(data, Trials):
        if not isinstance(split, Split):
            raise ParameterError(f"split={split!r}: Trials require a Split, for example InOrder().splits(trials)[0].")
        if subject is not None or root is not None or reading:
            raise ParameterError("subject, root and reading are for data sets that are loaded by name; leave them out.")
        paradigm = OF_TASKS.get(str(task))
        fields = {"dataset": data.dataset, "task": task, "paradigm": paradigm}
        return {**fields, "trials": data, "split": split, "split_number": None}
    if isinstance(split, Split):
        raise ParameterError(f"split={split!r}: give the number of the split, or Trials with a Split.")
    dataset = find_dataset(data)
    trials, chosen = load_split(dataset, subject, split, root, reading)
    return {
        "dataset": dataset.name,
        "task": dataset.task if task is None else task,
        "paradigm": dataset.paradigm if task is None else OF_TASKS.get(task),
        "trials": trials,
        "split": chosen,
        "split_number": split,
        "root": None if root is None else Path(root),
        "reading": reading,
    }


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
    """

    decoder: EEGDecoder
    record: TrainingRecord | None
    dataset: str
    trials: Trials
    uses: Array
    split: str
    selection: str

    @classmethod
    def open(
        cls,
        folder: str | Path,
        dataset: str | Path | None = None,
        *,
        subject: int | None = None,
        split: int | None = None,
        part: str = "test",
        reading: Mapping[str, Any] | None = None,
        root: str | Path | None = None,
    ) -> EvaluationSet:
        """Load a model and trials for it.

        By default, these are the test trials of the recordings and the split that the model was trained with, which
        ``training.json`` in its folder records.

        Parameters
        ----------
        folder : path
            Folder of a model.
        dataset : str or path, optional
            Other recordings, as for :func:`gbwatt.data.load`.
        subject, split : int, optional
            Number of the subject and of the split; default: those of training for the data set of training, else the
            first ones.
        part : "test" or "all"
            Test trials only, or all trials of the subject.
        reading : dict, optional
            Further arguments of :func:`gbwatt.data.load`; default: those of training for the data set of training.
        root : path, optional
            Folder of recordings.

        Raises
        ------
        ParameterError
            If the recordings of training are unknown and ``dataset`` is not given, or if the recordings do not fit the
            model.
        """
        check_one_of("part", part, ("test", "all"))
        decoder, record = load_decoder(folder), TrainingRecord.read(folder)
        source, subject, number, reading = _complete_selection(record, dataset, subject, split, reading)
        if part == "all":
            trials, name, selection = load(source.name, subject, root=root, **reading), "", "all trials"
            rows = np.arange(len(trials))
        else:
            trials, chosen = load_split(source, subject, number, root, reading)
            rows, name, selection = chosen.test, chosen.name, f"test trials of split {number} ({chosen.name})"
        _require_alike(decoder, trials, record)
        uses = _trial_uses(decoder, record, source, trials, root, reading)
        return cls(decoder, record, source.name, trials[rows], uses[rows], name, selection)

    def evaluate(self) -> Evaluation:
        """Score the trials."""
        return _evaluate_trials(self.decoder, self.trials, None, self.uses)

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


def _complete_selection(
    record: TrainingRecord | None,
    dataset: str | Path | None,
    subject: int | None,
    split: int | None,
    reading: Mapping[str, Any] | None,
) -> tuple[Dataset, int | None, int, dict[str, Any]]:
    """Data set, subject, split number and reading options, with defaults for arguments that are None.

    Defaults are those of training for the data set of training, else the first subject and split.
    """
    if record is not None and record.split is not None:
        if dataset is None or find_dataset(dataset).name == record.dataset:
            subject = int(record.subject) if subject is None else subject
            number = record.split if split is None else split
            return find_dataset(record.dataset), subject, number, dict(reading or record.reading)
    elif dataset is None:
        unknown = f"the folder has no {FILE}, so the recordings of training are unknown"
        why = unknown if record is None else f"the trials of {record.dataset} used for training have no split number"
        raise ParameterError(f"dataset: {why}; give --dataset, or dataset= in Python.")
    return find_dataset(dataset), subject, split or 0, dict(reading or {})


def _require_alike(decoder: EEGDecoder, trials: Trials, record: TrainingRecord | None) -> None:
    """Raise an error for recordings that differ in channels, sampling rate or preprocessing from those of training."""
    if decoder.recorded_ is None:
        return
    try:
        decoder.recorded_.require(Recorded.of(trials), "trials")
    except MismatchError as error:
        trained = "" if record is None else f" Without --dataset, {record.dataset} is used, as in training."
        raise ParameterError(f"dataset={trials.dataset!r} does not fit the model: {error}{trained}") from error


def _trial_uses(
    decoder: EEGDecoder,
    record: TrainingRecord | None,
    dataset: Dataset,
    trials: Trials,
    root: str | Path | None,
    reading: Mapping[str, Any],
) -> Array:
    """Use of each trial in training, from the fingerprints of the model and from its training record."""
    subject, name = int(trials.subject[0]), dataset.name
    contents = None
    if record is not None and Path(name).is_file():  # perhaps a copy; old records have no options in the fingerprint
        contents = [fingerprint(name, subject, root, options) for options in (record.reading, None)]
    recorded = None
    if record is not None:
        subject_or_none = subject if dataset.subjects else None
        recorded = record.uses(name, subject_or_none, len(trials), reading=reading, data=contents)
    compared = _uses_by_fingerprint(decoder, trials)
    return compared if recorded is None else np.where(np.isin(compared, ("training", "validation")), compared, recorded)


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
    subject: int | None = None,
    split: int | None = None,
    part: str = "test",
    reading: Mapping[str, Any] | None = None,
    root: str | Path | None = None,
) -> Evaluation:
    """Score a trained model.

    Parameters
    ----------
    model : EEGDecoder or path
        A fitted classifier, or the folder of a saved one.
    data : Trials, mne.Epochs, array, str or path, optional
        Trials to score, all of them; or, for the folder of a model, the name of a data set or file.  Default: the test
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
    if data is None or isinstance(data, str | Path):
        if isinstance(model, EEGDecoder):
            raise ParameterError("data: give trials, or the folder of the model instead of the classifier.")
        chosen = EvaluationSet.open(model, data, subject=subject, split=split, part=part, reading=reading, root=root)
        return chosen.evaluate()
    if any(value is not None for value in (subject, split, reading, root)):
        raise ParameterError("subject, split, reading and root are for data sets that are loaded by name.")
    decoder = model if isinstance(model, EEGDecoder) else load_decoder(model)
    return _evaluate_trials(decoder, data, y, _uses_by_fingerprint(decoder, data))


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

"""scikit-learn classifiers of EEG epochs."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from gbwatt._io import plain
from gbwatt._validation import check_one_of
from gbwatt.data.trials import Trials
from gbwatt.decoding import inputs, serialization
from gbwatt.decoding.calibration import Fold, calibration_folds, cross_validated_logits, fit_temperature
from gbwatt.decoding.callbacks import Callback, columns
from gbwatt.decoding.domains import Domains
from gbwatt.decoding.fingerprints import UNKNOWN, UNSEEN, TrialFingerprints
from gbwatt.decoding.inputs import Array, Examples, Labels, Sets
from gbwatt.decoding.network_training import (
    NetworkTraining,
    TrainedNetwork,
    count_processes,
    logits_of,
    precision,
)
from gbwatt.decoding.paradigms import (
    OF_TASKS,
    PRETRAINED,
    UPDATE_EPOCHS,
    Settings,
    update_settings,
)
from gbwatt.decoding.parameters import check_parameters
from gbwatt.decoding.prediction import has_recordings, predict_recordings
from gbwatt.decoding.settings_choice import settings_for
from gbwatt.decoding.sharding import SingleProcess
from gbwatt.decoding.signal_metadata import Recorded, Samples
from gbwatt.decoding.training import (
    Trainer,
    best_epoch,
    cosine_rate,
    isolated,
    start_epoch,
)
from gbwatt.decoding.training_data import TrainingData, read_more_trials, read_trials, separate_validation
from gbwatt.decoding.transfer import list_weights, members_of, model_options, require_alike
from gbwatt.errors import ParameterError
from gbwatt.models.ensemble import Ensemble
from gbwatt.models.presets import find_task
from gbwatt.models.registry import create, entry
from gbwatt.models.signal import Signal


# Dataclasses, because scikit-learn needs every parameter in the signature of __init__ and as an attribute.
@dataclass(eq=False, repr=False)
class EEGDecoder(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classifier of EEG epochs (n, n_chans, n_times) by a model of the registry.

    Trains with Riemannian Adam on the cross entropy, and keeps the weights of the epoch with the lowest validation
    loss.  The same seed and data give the same weights.  Global random generators are neither used nor changed.

    Parameters
    ----------
    model : str
        One of :func:`gbwatt.models.list_models`.  Classical pipelines are fitted without gradient steps, to training
        and validation trials together; they use no training parameters.
    task : "mi", "ssvep" or "ern", optional
        Use the architecture and training of the paper for this task.
    model_options : dict, optional
        Further arguments of the model.
    lr, batch_size, max_epochs, weight_decay : optional
        By default as registered for the model and the task.  A batch has at least 2 trials: if the last batch would
        have a single trial, it joins the batch before.  Weight decay does not apply to parameters on manifolds.
    validation : float, indices, (X_valid, y_valid), Trials, mne.Epochs or None
        A fraction, drawn from each class with ``seed``; numbers or a mask of trials of the ``X`` given to ``fit`` (in
        cross-validation, of a fold); other trials; or None to use the weights of the last epoch.  A class with a single
        trial stays in the training data, with a warning.
    early_stopping : int, optional
        Stop when this many epochs in a row have not lowered the validation loss.
    class_weight : "balanced" or dict, optional
        Weights of the classes in the loss: inversely proportional to their frequencies, or by label or name.
    initialization : "random", "classical", name, path or list of these, optional
        Initial weights; by default random, or those of the paradigm.  "classical": the untrained network is a
        classical pipeline of the training trials (tangent space and logistic regression), see
        :func:`~gbwatt.decoding.initialization.initialize_classically`.  A folder of a saved model, or the name of
        weights that are part of the package (:func:`~gbwatt.decoding.list_weights`): its architecture and
        weights, trained on aligned trials of other subjects, see :func:`~gbwatt.decoding.transfer.initialize_from`; the
        network is then fine-tuned as selected for its paradigm.  Several folders: one for each network of an ensemble.
        Weights that are not random are kept if training does not lower the validation loss; ``best_epoch_`` is then 0.
    schedule : "constant" or "cosine", optional
        Learning rate over the epochs; by default constant, or that of the paradigm.  "cosine" decreases it to 1 % in
        ``max_epochs``.
    paradigm : "mi", "ssvep", "erp" or "auto", optional
        For ``model="gbwatt"``: use the architecture, initial weights and training that validation data of this
        paradigm have selected, see :mod:`gbwatt.decoding.paradigms`: motor imagery and other oscillations,
        steady-state responses, or event-related potentials.  "auto" compares the three by cross-validation of the
        training trials.  Arguments that are given take precedence.
    alignment : "euclidean", "riemannian" or None
        Whiten the channels of each domain by the mean covariance of its trials, those for validation included, see
        :class:`~gbwatt.decoding.EuclideanAlignment` and :class:`~gbwatt.decoding.RiemannianAlignment`.  Trials to
        predict are aligned by the matrix of their domain if it is known from training or :meth:`adapt`; otherwise the
        alignment is fitted, without labels, to the trials that are given together, of which at least 5 are needed.
    domains : "subject" or "session"
        What a domain is, for ``alignment`` and the model option ``domain_norm``: the trials of a subject, or of a
        session of a subject, as stored in Trials or in the metadata of epochs.  ``groups`` of the methods take
        precedence; arrays without groups are one domain.
    frozen : sequence of str, optional
        Parts of the network that are not trained, such as "features" or "attention.query".  Their statistics stay as
        they are, too.
    layer_lr : dict of str to float, optional
        Factors of the learning rate for parts of the network, such as ``{"features": 0.1}``; for parts that are in
        several entries, the longest name counts.
    n_members : int, optional
        Number of networks, trained with different random seeds, whose probabilities are averaged
        (:class:`~gbwatt.models.Ensemble`); by default 1, or that of the paradigm.  Logs, checkpoints and histories of
        the networks are separate; ``history_`` is that of the first one.
    n_jobs : int, optional
        Number of processes in which :meth:`fit` trains the networks of an ensemble; -1 is one for each core.  By
        default, they are trained one after the other.  The weights are the same with the same number of torch threads;
        processes share the cores.  ``callbacks`` are copied to the processes, so that their state does not change here.
    calibration : "temperature" or None
        Divide the logits by the temperature that minimises the log loss of the validation trials, see
        :func:`~gbwatt.decoding.calibration.fit_temperature`.  The trials have equal weights.  Predicted labels do not
        change.  Without validation trials, and for classical pipelines, which are fitted to them, the temperature is
        that of training trials in cross-validation with three folds of consecutive trials; training then takes three
        times as long.
    warm_start : bool
        Whether :meth:`fit` continues from the weights of the previous fit, with its ``scale_`` and new states of the
        optimiser.  Classes, channels, samples, unit and preprocessing must be the same.
    seed : int
        Random seed of initial weights, validation split, order of trials and dropout.
    device : str
        As in torch.
    sfreq : float, optional
        Sampling rate in Hz, for models that need it and data without one.
    checkpoint : path, optional
        Folder for the state after every epoch.  If it has the state of the same training, ``fit`` continues from it and
        ends with exactly the weights of an uninterrupted training.  ``max_epochs`` may be raised.  Other trainings,
        such as other folds of a cross-validation, need other folders.
    log : path, optional
        CSV file for losses, accuracy, learning rate and duration of each epoch.
    tensorboard : path, optional
        Folder for TensorBoard.
    verbose : int
        1 shows progress on standard error.
    callbacks : sequence of Callback, optional
        Notified during training, after logs and checkpoints are written; see :class:`~gbwatt.decoding.Callback`.

    Attributes
    ----------
    classes_ : array (n_classes,)
        Labels, in the order of the columns of :meth:`predict_proba`; ``class_names_`` are their names.
    net_ : Trainer
        ``net_.module_`` is the trained network.
    signal_ : Signal
        The input that the model was built for.
    temperature_ : float
        Temperature that ``calibration`` selected; 1 without it.  :meth:`partial_fit` keeps it.
    n_features_in_ : int
        Number of channels.
    scale_ : float
        Factor of all epochs, which gives the median channel of the training data a standard deviation of 1.
    recorded_ : Recorded or None
        Channels, unit and preprocessing of the training data, as far as they are known: from Trials and epochs of MNE,
        not from arrays.  Trials and epochs to predict must agree with it.
    samples_ : Samples or None
        Reference and spectrum of the training data, estimated from their samples.  Trials and epochs with another
        reference raise an error.  Arrays with another reference, and data with unknown filters and a different
        spectrum, cause a warning.
    fingerprints_ : TrialFingerprints or None
        Fingerprints of the training and validation trials, for :meth:`used_for`; also those of earlier trainings that
        ``warm_start`` and :meth:`partial_fit` have continued.
    domains_ : Domains or None
        Names of the domains that are known, with their alignment; None without ``alignment`` and ``domain_norm``.
    settings_ : Settings
        Paradigm, model options, initial weights and training that were used.
    history_ : list of dict
        Losses and validation accuracy of each epoch of the last training.
    best_epoch_ : int
        Number, from 1, of the epoch whose weights are used.

    Notes
    -----
    Every class has a label, in ``classes_``, and a name, in ``class_names_``.  Labels are the values of ``y``, or
    without it the class numbers of Trials or the event names of ``mne.Epochs``; :meth:`predict` returns them.  Names
    are known from Trials and epochs, also if ``y`` has their class numbers or event codes, and from labels that are
    strings; otherwise they are the labels as strings.

    Labels and names are both accepted in :meth:`score`, ``validation`` and ``class_weight``.  Trials and epochs are
    matched by the names of their classes, not by their numbers and event codes; so is a ``y`` that equals these codes.
    A label that the model does not know raises :class:`~gbwatt.errors.UnknownLabelError`.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.standard_normal((40, 4, 64)), np.repeat(["left", "right"], 20)
    >>> X[20:, 0] *= 5  # the classes differ in the power of a channel
    >>> decoder = EEGDecoder("gbwatt", max_epochs=15, lr=1e-2, validation=None).fit(X, y)
    >>> bool(decoder.score(X, y) > 0.9)
    True
    """

    model: str = "gbwatt"
    _: KW_ONLY
    task: str | None = None
    model_options: dict[str, Any] | None = None
    lr: float | None = None
    batch_size: int | None = None
    max_epochs: int | None = None
    weight_decay: float | None = None
    validation: Any = 0.2
    early_stopping: int | None = None
    class_weight: Any = None
    initialization: str | Path | Sequence[str | Path] | None = None
    schedule: str | None = None
    paradigm: str | None = None
    alignment: str | None = None
    domains: str = "subject"
    frozen: Sequence[str] | None = None
    layer_lr: dict[str, float] | None = None
    n_members: int | None = None
    n_jobs: int | None = None
    calibration: str | None = None
    warm_start: bool = False
    seed: int = 0
    device: str = "cpu"
    sfreq: float | None = None
    checkpoint: str | Path | None = None
    log: str | Path | None = None
    tensorboard: str | Path | None = None
    verbose: int = 0
    callbacks: Sequence[Callback] | None = None

    # ---- training

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, groups: Any = None) -> Self:
        """Train on epochs (n, n_chans, n_times) and labels (n,).

        Parameters
        ----------
        X : array, Trials or mne.Epochs
        y : array (n,), optional
            By default the class numbers of Trials, or the event names of epochs; see Notes of the class.
        sample_weight : array (n,), optional
            Weights of the trials in the loss, 0 or more, which are multiplied by those of the classes.  The loss is
            divided by the sum of the weights, so that only their ratios matter.  A trial of weight 0 has no influence
            on the loss and on logistic regressions, but it is used for the scale, the alignment, whitening and the
            statistics of batch normalisation.  Classical pipelines pass the weights on to their means and to the
            classifier of scikit-learn, whose regularisation depends on the sum of the weights: there, a weight of 2 is
            a trial that occurs twice.  Separate validation trials have equal weights.
        groups : array (n,), optional
            Domain of each trial, such as its subject, for ``alignment`` and ``domain_norm``.

        Returns
        -------
        EEGDecoder
            The fitted decoder itself.
        """
        inputs.on_device(self.device)
        check_parameters(self)
        X = inputs.gathered(X)
        if self.warm_start and hasattr(self, "net_"):
            data = read_more_trials(self, X, y, sample_weight, groups)
            missing = np.setdiff1d(np.arange(len(self.classes_)), data.codes)
            if len(missing):
                raise ParameterError(
                    f"warm_start=True: 'y' has no trial of class {self.classes_.tolist()[missing[0]]!r}, which the "
                    "model was trained on; use partial_fit for trials of some classes, or warm_start=False."
                )
        else:
            data = read_trials(self, X, y, sample_weight, groups)
        self._train(X, data)
        return self

    def partial_fit(
        self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None, *, groups: Any = None
    ) -> Self:
        """Continue the training of a network with new trials, of which there may be few.

        The training starts from the present weights and uses the given trials only, all of them: for five epochs, at a
        constant learning rate, which is that of fine-tuning for the paradigm, or else that of :meth:`fit`.  ``lr``,
        ``batch_size`` and ``weight_decay`` take precedence.  ``scale_``, ``temperature_`` and the statistics of batch
        normalisation do not change; new domains are added.  ``history_`` is that of this training, which has neither
        checkpoints nor logs.  Earlier trials are forgotten gradually: include some of them if they still count.

        Parameters
        ----------
        X : array, Trials or mne.Epochs
            With the channels, unit, reference and preprocessing of the earlier trials.
        y : array (n,), optional
            As for :meth:`fit`; not all classes need to occur.
        classes : array (n_classes,), optional
            All labels.  Needed in the first call if ``y`` does not have them all.
        sample_weight, groups : array (n,), optional
            As for :meth:`fit`.

        Returns
        -------
        EEGDecoder
            The decoder itself.  The first call, without an earlier one or :meth:`fit`, does the same as :meth:`fit`.

        Raises
        ------
        ParameterError
            For classical pipelines, which are fitted to all trials at once.

        Examples
        --------
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> X, y = rng.standard_normal((60, 4, 64)), np.arange(60) % 2
        >>> X[y == 1, 0] *= 4
        >>> decoder = EEGDecoder("gbwatt", max_epochs=10, lr=1e-2, validation=None).fit(X[:40], y[:40])
        >>> decoder = decoder.partial_fit(X[40:41], y[40:41])  # a single trial
        >>> len(decoder.history_), decoder.used_for(X[40:42]).tolist()
        (5, ['training', 'unseen'])
        """
        inputs.on_device(self.device)
        check_parameters(self)
        if entry(self.model).classical:
            raise ParameterError(
                f"model={self.model!r} has no partial_fit: classical pipelines are fitted to all trials at once. Call "
                "fit with all of them."
            )
        X = inputs.gathered(X)
        if not hasattr(self, "net_"):
            self._train(X, read_trials(self, X, y, sample_weight, groups, classes))
            return self
        if classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ParameterError(
                f"classes={list(classes)} differ from those of the earlier training, {self.classes_.tolist()}; leave "
                "them out."
            )
        self._update(read_more_trials(self, X, y, sample_weight, groups))
        return self

    def _weigh_classes(self, data: TrainingData, sets: Sets) -> Tensor | None:
        """Weights of the classes in the loss."""
        codes, weights = sets.train.y.numpy(), sets.train.weight
        return inputs.weigh_classes(self.class_weight, data.classes, codes, data.names, weights)

    def _train(self, X: Any, data: TrainingData) -> None:
        """Train all networks on the trials ``data`` read from ``X``, from the beginning or from the present weights."""
        validation = separate_validation(self, X, data.recorded, data.samples)
        segments = X.group if isinstance(X, Trials) else None
        sets = inputs.split(
            data.x, data.codes, data.classes, validation, self.seed, segments, data.names, data.domain, data.weight
        )
        with isolated(inputs.on_device(self.device)):
            fingerprints = TrialFingerprints.of(sets)
            weights = self._weigh_classes(data, sets)
            sources = [] if data.continued else self._sources_for(data)
            options = model_options(sources[0]) if sources else self._options()
            normalized = self._has_domain_norm if data.continued else options.get("domain_norm") is not None
            previous = self._networks if data.continued else ()
            if data.continued:
                settings, scale = self._continued_settings(), self.scale_
                fingerprints = None if self.fingerprints_ is None else self.fingerprints_.joined(fingerprints)
            sets = self._in_domains(sets, data.domains, normalized)
            if not data.continued:
                scale = sets.unit_scale()
                settings = settings_for(self, data.signal, sets.train.to(torch.float32, scale), weights, sources)
            self._require_all_classes(settings, sets, data)
            folds = self._calibration_folds(sets, data.continued)
            self.classes_: Array = data.classes
            self._names: tuple[str, ...] | None = data.names
            self.signal_: Signal = data.signal
            self.recorded_: Recorded | None = data.recorded
            self.samples_: Samples | None = data.samples
            self.fingerprints_: TrialFingerprints | None = fingerprints
            self.settings_: Settings = settings
            self.scale_: float = scale
            self.temperature_: float = 1.0
            training = NetworkTraining.of(
                self, settings, sets, class_weights=weights, sources=sources, previous=previous
            )
            self._train_networks(training)
            if self.calibration is not None:
                self.temperature_ = fit_temperature(*self._logits_for_calibration(training, folds))

    def _update(self, data: TrainingData) -> None:
        """Train the present networks on new trials for some epochs."""
        settings = self._with_own_training(update_settings(self.settings_))
        epochs = replace(settings.training, max_epochs=UPDATE_EPOCHS)
        settings = replace(settings, training=epochs, schedule="constant", n_members=len(self._networks))
        sets = inputs.split(data.x, data.codes, data.classes, None, 0, None, None, data.domain, data.weight)
        with isolated(inputs.on_device(self.device)):
            fingerprints = None if self.fingerprints_ is None else self.fingerprints_.joined(TrialFingerprints.of(sets))
            weights = self._weigh_classes(data, sets)
            copied = copy.copy(self)  # if the training fails, this decoder does not change
            sets = copied._in_domains(sets, data.domains, self._has_domain_norm)
            training = NetworkTraining.of(
                copied, settings, sets, class_weights=weights, previous=self._networks, kind="update"
            )
            trainers = training.train_all()
        self.domains_: Domains | None = copied.domains_
        self.fingerprints_ = fingerprints
        self.net_ = self._joined(trainers, settings)

    def _train_networks(self, training: NetworkTraining) -> None:
        """Train the network, or all networks of an ensemble, and set ``net_``.

        If training is interrupted, ``net_`` has the first network, with its best weights so far.  In processes, it has
        the first one that is complete or, with checkpoints, the first one.
        """
        settings = training.settings
        workers = count_processes(self.n_jobs, settings.n_members)
        if workers == 1:
            trainers = training.train_all(lambda first: setattr(self, "net_", first))
        else:
            if not training.previous:
                self.__dict__.pop("net_", None)  # of an earlier fit
            finished: dict[int, TrainedNetwork] = {}
            try:
                training.train_in_processes(workers, finished)
            except KeyboardInterrupt:
                first = [self._trainer_of(finished[min(finished)], settings)] if finished else []
                if not first and self.checkpoint is not None:
                    first = [training.restored()]
                if first:
                    self.net_ = first[0]
                raise
            trainers = [self._trainer_of(finished[number], settings) for number in range(settings.n_members)]
        self.net_ = self._joined(trainers, settings)

    def _trainer_of(self, trained: TrainedNetwork, settings: Settings) -> Trainer:
        """A trainer with a network that was trained in another process, and its history."""
        assert trained.module is not None  # there was no error
        trainer = self._make_trainer(trained.module, settings)
        trainer.history.extend(trained.history)
        return trainer

    def _joined(self, trainers: Sequence[Trainer], settings: Settings) -> Trainer:
        """The trainer of a single network, or one of the ensemble with the history of its first network."""
        if len(trainers) == 1:
            return trainers[0]
        joined = self._make_trainer(Ensemble([trainer.module_ for trainer in trainers]), settings)
        joined.history.extend(trainers[0].history)
        return joined

    @property
    def _networks(self) -> list[nn.Module]:
        """The trained network, or the networks of the ensemble."""
        module = self.net_.module_
        return list(module.members) if isinstance(module, Ensemble) else [module]

    def _calibration_folds(self, sets: Sets, continued: bool) -> list[Fold] | None:
        """Folds of the training trials for calibration; None if it is not needed, or uses validation trials."""
        if self.calibration is None or (sets.valid is not None and not entry(self.model).classical):
            return None
        if continued:
            raise ParameterError(
                "calibration='temperature' with warm_start=True needs validation trials, because the present network "
                "may have been trained on the trials that cross-validation would test; give validation."
            )
        return calibration_folds(sets.merged())

    def _logits_for_calibration(self, training: NetworkTraining, folds: Sequence[Fold] | None) -> tuple[Tensor, Tensor]:
        """Logits and classes of the validation trials; with ``folds``, those of training trials in cross-validation."""
        sets = training.sets
        if sets.valid is not None and folds is None:
            valid = sets.valid.to(precision(self.net_.module_), self.scale_)
            return self.net_.forward(valid.x, *(() if valid.domain is None else (valid.domain,))), valid.y

        def train_and_predict(train: Examples, test: Examples) -> Tensor:
            """Train as many networks as before on some of the trials, and return the logits of others."""
            fold, settings = replace(training, sets=Sets(train, None), kind="fold"), training.settings
            workers, finished = count_processes(self.n_jobs, settings.n_members), dict[int, TrainedNetwork]()
            if workers > 1:
                fold.train_in_processes(workers, finished)
            ordered = [self._trainer_of(finished[number], settings) for number in sorted(finished)]
            net = self._joined(ordered or fold.train_all(), settings)
            return logits_of(net, test.to(precision(net.module_), self.scale_), train.domain)

        assert folds is not None  # there are no validation trials
        return cross_validated_logits(sets.merged().train, folds, train_and_predict)

    def _continued_settings(self) -> Settings:
        """Settings of a training that continues the previous one; raise ParameterError if the network would differ."""
        settings = self._with_own_training(self.settings_)
        shapes = [{name: x.shape for name, x in module.named_parameters()} for module in self._networks]
        with isolated(torch.device("cpu")):
            arguments = self._arguments(self.signal_, self._with_own_arguments(self.settings_))
            own = {name: x.shape for name, x in create(self.model, **arguments).named_parameters()}
        if own != shapes[0] or len(shapes) != settings.n_members:
            raise ParameterError(
                "warm_start=True continues with the network of the previous fit, but model, model_options or n_members "
                "are now others; restore them, or use warm_start=False."
            )
        return settings

    def _require_all_classes(self, settings: Settings, sets: Sets, data: TrainingData) -> None:
        """Raise ParameterError if initial weights are fitted to trials, but some classes have none."""
        fitted = settings.initialization == "classical" and not data.continued
        present = sets.train.y.unique().tolist()
        if fitted and len(present) < len(data.classes):
            missing = next(label for number, label in enumerate(data.classes.tolist()) if number not in present)
            raise ParameterError(
                f"initialization='classical' needs trials of all classes, but there is none of {missing!r}; begin with "
                "more trials, or with initialization='random'."
            )

    def _check_arguments(self) -> None:
        """Raise ParameterError for wrong arguments, before any data are read."""
        check_parameters(self)

    def _given_sources(self) -> list[str]:
        """Names or folders of the weights in ``initialization``; none for "random" and "classical"."""
        if self.initialization is None or self.initialization in ("random", "classical"):
            return []
        given = [self.initialization] if isinstance(self.initialization, str | Path) else self.initialization
        if not given:
            raise ParameterError("initialization=[] has no folder of a model.")
        return list(map(str, given))

    def _source_folders(self) -> list[Path]:
        """Folders of the saved models whose weights are the initial ones."""
        shipped = list_weights()
        return [shipped.get(source, Path(source)) for source in self._given_sources()]

    def _sources_for(self, data: TrainingData) -> list[EEGDecoder]:
        """Load the networks whose weights are the initial ones, and check that they fit the training data."""
        sources = self._read_sources()
        for name, source in zip(self._given_sources(), sources, strict=True):
            model_options(source)  # raises an error for other networks
            require_alike(source, name, data.recorded, data.x, data.signal.sfreq)
        return [member for source in sources for member in members_of(source)]

    def _read_sources(self) -> list[EEGDecoder]:
        """Load the trained decoders whose weights are the initial ones."""
        return [self._read_source(folder) for folder in self._source_folders()]

    def _read_source(self, folder: Path) -> EEGDecoder:
        """Load a trained decoder whose weights are the initial ones, and check that it fits."""
        from gbwatt.decoding.evaluation import load_decoder  # which imports this module

        source = load_decoder(folder)
        if source.model != self.model:
            raise ParameterError(
                f"initialization={str(folder)!r} has weights of {source.model!r}, which do not fit "
                f"model={self.model!r}."
            )
        known, paradigm = source.settings_.paradigm, OF_TASKS.get(str(self.task))
        if known is not None and paradigm not in (None, known):
            raise ParameterError(
                f"initialization={str(folder)!r} was trained for {known!r}, but task={self.task!r}; choose weights for "
                "this task, or leave the task out."
            )
        return source

    def _paradigm(self) -> str | None:
        """Paradigm whose settings are used; None for those registered for the model."""
        return self.paradigm

    def _validation(self) -> Any:
        """Validation data, or how to separate them."""
        return self.validation

    def _registered(self) -> Settings:
        """Settings registered for the model and its task, overridden with the arguments of the estimator."""
        task = None if self.task is None or self._paradigm() is not None else find_task(self.task).name
        training = entry(self.model).training_for(task)
        return self._with_own_arguments(Settings(None, "", {}, training, "random", "constant"))

    def _with_own_arguments(self, settings: Settings) -> Settings:
        """Override settings with the arguments of this estimator that are not None.

        A classical pipeline uses the model options only.  Settings for weights of a saved model keep its options and
        initial weights.
        """
        if settings.initialization != PRETRAINED:
            settings = replace(settings, options={**settings.options, **self._options()})
        if entry(self.model).classical:
            return settings
        if settings.initialization != PRETRAINED:
            settings = replace(settings, initialization=str(self.initialization or settings.initialization))
        return self._with_own_training(settings)

    def _with_own_training(self, settings: Settings) -> Settings:
        """Override the training in settings with the arguments of this estimator that are not None."""
        training = {name: getattr(self, name) for name in ("lr", "batch_size", "max_epochs", "weight_decay")}
        return replace(
            settings,
            training=replace(settings.training, **{name: plain(x) for name, x in training.items() if x is not None}),
            schedule=self.schedule or settings.schedule,
            n_members=int(self.n_members or settings.n_members),
        )

    def _in_domains(self, sets: Sets, domains: Domains | None, normalized: bool) -> Sets:
        """Align training and validation data, and set ``domains_``.

        Examples keep the numbers of their domains only if the network has ``domain_norm``.
        """
        self.domains_ = domains if normalized or self.alignment is not None else None
        if self.domains_ is None or domains is None:
            return sets.map(Examples.without_domains)
        if sets.valid is not None and sets.valid.domain is None:
            trials = self._validation()
            names = domains.names_of(inputs.gathered(trials[0] if isinstance(trials, tuple) else trials))
            new = domains.unknown(names)
            domains.add(sets.valid.x.numpy()[new], names[new], few=normalized)
            sets.valid.domain = domains.numbers(names)
        if normalized:
            domains.require_trained(sets)
        sets = sets.map(domains.align_examples)
        return sets if normalized else sets.map(Examples.without_domains)

    def _options(self) -> dict[str, Any]:
        """Arguments of the model beyond the signal and the task."""
        return dict(self.model_options or {})

    def _arguments(self, signal: Signal, settings: Settings) -> dict[str, Any]:
        """All arguments of the model for an input."""
        decided = settings.paradigm is not None or settings.initialization == PRETRAINED
        task = {} if self.task is None or decided else {"task": self.task}
        names = [] if self.domains_ is None else self.domains_.names
        domains = {} if settings.options.get("domain_norm") is None else {"n_domains": len(names)}
        return {**vars(signal), **task, **settings.options, **domains}

    def _ensemble_arguments(self) -> dict[str, Any]:
        """All arguments of :func:`~gbwatt.models.create` for the fitted network or ensemble."""
        members = {} if self.settings_.n_members == 1 else {"n_members": self.settings_.n_members}
        return {**self._arguments(self.signal_, self.settings_), **members}

    def _build(self, signal: Signal, settings: Settings, seed: int) -> nn.Module:
        """Build the network with random weights, which depend on the seed only."""
        start_epoch(seed, 0, torch.device(self.device))
        return create(self.model, **self._arguments(signal, settings))

    def _make_trainer(
        self,
        module: nn.Module,
        settings: Settings,
        weights: Tensor | None = None,
        callbacks: Sequence[Callback] = (),
        seed: int | None = None,
        **options: Any,
    ) -> Trainer:
        """Create a trainer of ``module`` with the settings, for fitting or for a loaded model.

        ``options`` are further arguments of the trainer.
        """
        max_epochs = settings.training.max_epochs

        def decreasing(step: int, n_steps: int) -> float:
            """Factor of the learning rate at a step, with ``n_steps`` per epoch."""
            return cosine_rate(step, max_epochs * n_steps)

        return Trainer(
            module,
            **asdict(settings.training),
            class_weights=None if weights is None else weights.to(precision(module)),
            seed=int(self.seed) if seed is None else seed,
            early_stopping=self.early_stopping,
            schedule=decreasing if settings.schedule == "cosine" else None,
            callbacks=callbacks,
            accelerator=SingleProcess(self.device),
            **options,
        )

    # ---- prediction

    def adapt(self, X: Any, *, groups: Any = None) -> Self:
        """Adapt to new subjects or sessions by unlabelled trials.

        Estimates the alignment of their domains and, for networks with ``domain_norm``, the statistics of their
        covariances.  Afterwards, single trials of these domains can be predicted.  Domains that are known are estimated
        anew; no weights change.

        Parameters
        ----------
        X : array, Trials or mne.Epochs
            Trials, at least 5 of each domain; their labels are not used.
        groups : array (n,), optional
            Domain of each trial; by default as stored in Trials and epochs.  An array without groups is the domain
            that later arrays without groups belong to.

        Returns
        -------
        EEGDecoder
            The decoder itself.

        Raises
        ------
        ParameterError
            If the decoder has neither ``alignment`` nor ``domain_norm``.
        ShapeError
            If a domain has too few trials.

        Examples
        --------
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> X, y, subject = rng.standard_normal((80, 4, 64)), np.arange(80) % 2, np.repeat([1, 2], 40)
        >>> X[y == 1, 0] *= 4
        >>> X[subject == 2] = 10 * X[subject == 2][:, ::-1]  # other electrodes
        >>> decoder = EEGDecoder("gbwatt", alignment="euclidean", max_epochs=10, lr=1e-2, validation=None)
        >>> decoder = decoder.fit(X[:40], y[:40], groups=subject[:40]).adapt(X[40:60], groups=subject[40:60])
        >>> decoder.predict(X[60:61], groups=[2]).shape
        (1,)
        """
        check_is_fitted(self, "net_")
        if self.domains_ is None:
            raise ParameterError(
                "alignment=None, and the network has no domain_norm: there is nothing to adapt. Train with "
                "alignment='euclidean', for example."
            )
        X = inputs.gathered(X)
        self._adapt(self._checked_epochs(X), self.domains_.names_of(X, groups))
        return self

    def _adapt(self, x: Array, names: Array) -> None:
        """Add the domains of epochs, in the unit of the training data, to those that are known."""
        assert self.domains_ is not None  # callers check this
        self.domains_.add(x, names)
        if self._has_domain_norm:
            epochs = self._network_input(self.domains_.align(x, names))
            with isolated(inputs.on_device(self.device)):
                device = self.net_.device
                self.net_.module_.adapt(  # type: ignore[operator]
                    epochs.to(device), self.domains_.numbers(names).to(device)
                )

    @property
    def _has_domain_norm(self) -> bool:
        """Whether the network normalises covariances by domain."""
        return (getattr(self.net_.module_, "config", None) or {}).get("domain_norm") is not None

    def _checked_epochs(self, X: Any) -> Array:
        """Epochs (n, n_chans, n_times) in the unit of the training data, after checks against these."""
        x = inputs.read_epochs(X)
        recorded = Recorded.of(X)
        inputs.compare(self.recorded_, getattr(self, "samples_", None), recorded, x, "X")
        if self.recorded_ is not None and recorded is not None:
            x = x * x.dtype.type(self.recorded_.scale_of(recorded, "X"))
        inputs.same_signal(x, (self.signal_.n_chans, self.signal_.n_times), "X", self.recorded_, recorded)
        inputs.warn_of_window(self.recorded_, recorded, "X")
        return x

    def _network_input(self, x: Array) -> Tensor:
        """Epochs as the network takes them: multiplied by ``scale_``, in its precision."""
        return (torch.from_numpy(np.array(x, order="C")) * self.scale_).to(precision(self.net_.module_))

    def network_for(self, X: Any, groups: Any = None) -> tuple[nn.Module, Array, tuple[Tensor, ...]]:
        """The network and its input for trials: aligned epochs, to be multiplied by ``scale_``, and their domains.

        Parameters
        ----------
        X : array, Trials or mne.Epochs
        groups : array (n,), optional
            Domain of each trial; by default as stored in Trials and epochs.

        Returns
        -------
        nn.Module
            The network, adapted to the domains of the trials.  Unknown domains are estimated from these trials.
        array (n, n_chans, n_times)
            Epochs in the unit of the training data, aligned.
        tuple of Tensor
            Numbers (n,) of the domains, if the network has ``domain_norm``; otherwise empty.
        """
        check_is_fitted(self, "net_")
        X = inputs.gathered(X)
        x = self._checked_epochs(X)
        if self.domains_ is None:
            return self.net_.module_, x, ()
        names = self.domains_.names_of(X, groups)
        unknown = self.domains_.unknown(names)
        decoder = self._copy_to_adapt() if unknown.any() else self
        if unknown.any():
            decoder._adapt(x[unknown], names[unknown])
        assert decoder.domains_ is not None  # for the type checker
        domain = (decoder.domains_.numbers(names),) if self._has_domain_norm else ()
        return decoder.net_.module_, decoder.domains_.align(x, names), domain

    def _copy_to_adapt(self) -> Self:
        """A copy that can be adapted without changing this decoder."""
        copied = copy.copy(self)
        copied.domains_ = None if self.domains_ is None else self.domains_.copy()
        if self._has_domain_norm:
            copied.net_ = self._make_trainer(copy.deepcopy(self.net_.module_), self.settings_)
        return copied

    def _logits(self, X: Any, groups: Any = None) -> Tensor:
        """Logits (n, n_classes) of epochs, after checks against the training data."""
        module, x, domain = self.network_for(X, groups)
        inputs.warn_of_scale(x, self.scale_, "X", self.recorded_ is not None)
        net = self.net_ if module is self.net_.module_ else self._make_trainer(module, self.settings_)
        with isolated(inputs.on_device(self.device)):
            return net.forward(self._network_input(x), *domain).double() / getattr(self, "temperature_", 1.0)

    def decision_function(self, X: Any, *, groups: Any = None) -> Array:
        """Logits (n, n_classes); for two classes the second minus the first (n,), as usual in scikit-learn.

        They are divided by ``temperature_``.
        """
        logits = self._logits(X, groups).numpy()
        return logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits

    def predict_proba(self, X: Any, *, groups: Any = None, hop: float | None = None) -> Array:
        """Probabilities (n, n_classes), in the order of ``classes_``; arguments as for :meth:`predict`."""
        check_is_fitted(self, "net_")
        if has_recordings(X):
            if groups is not None:
                raise ParameterError("groups is for epochs; for recordings use predict_recordings(..., group=...).")
            return predict_recordings(self, X, hop=hop).probabilities
        if hop is not None:
            raise ParameterError(f"hop={hop!r} is for continuous recordings, not for epochs; leave it out.")
        return self._logits(X, groups).softmax(-1).numpy()

    def score(self, X: Any, y: Any = None, sample_weight: Any = None, *, groups: Any = None) -> float:
        """Accuracy.

        Parameters
        ----------
        X : array, Trials or mne.Epochs
        y : array (n,), optional
            Labels or names of classes; by default those of Trials or epochs.
        sample_weight : array (n,), optional
        groups : array (n,), optional
            Domain of each trial, as for :meth:`predict`.

        Returns
        -------
        float

        Raises
        ------
        UnknownLabelError
            If a label is neither in ``classes_`` nor in ``class_names_``.
        """
        check_is_fitted(self, "net_")
        X = inputs.gathered(X)
        return float(accuracy_score(self.labels_of(X, y), self.predict(X, groups=groups), sample_weight=sample_weight))

    def labels_of(self, X: Any, y: Any = None) -> Array:
        """True labels (n,) of trials, as in ``classes_``.

        Parameters
        ----------
        X : array, Trials or mne.Epochs
        y : array (n,), optional
            Labels of ``classes_`` or names of ``class_names_``; by default those of Trials or epochs.

        Returns
        -------
        array (n,)
        """
        check_is_fitted(self, "net_")
        X, name = inputs.gathered(X), "X" if y is None else "y"
        labels: Array = self.classes_[Labels.of(X, y, len(X)).places(self.classes_, self._names, name)]
        return labels

    def predict(self, X: Any, *, groups: Any = None, hop: float | None = None) -> Array:
        """Predicted labels (n,).

        Parameters
        ----------
        X : array, Trials, mne.Epochs, mne.io.Raw, path or list of recordings
            Epochs, or continuous recordings or files; see :func:`~gbwatt.decoding.predict_recordings`, which also
            returns the times of the windows.
        groups : array (n,), optional
            Domain of each trial, for decoders with ``alignment`` or ``domain_norm``; by default as stored in Trials and
            epochs.
        hop : float, optional
            Classify sliding windows of a continuous recording, which begin every ``hop`` seconds.  By default, the
            windows around its annotations are classified.

        Returns
        -------
        array (n,)
        """
        numbers = self.predict_proba(X, groups=groups, hop=hop).argmax(-1)
        labels: Array = self.classes_[numbers]
        return labels

    def used_for(self, X: Any) -> NDArray[np.str_]:
        """Use of each trial (n,) in the training of the model: "training", "validation", "unseen" or "unknown".

        Trials are recognised by fingerprints that are stored with the model.  Fingerprints do not depend on the unit or
        the file format, and tolerate rounding to float32 or to whole microvolts, but not other preprocessing.  A trial
        that was cut elsewhere from the same stretch of recording counts as another trial.  The result is "unknown" if
        the model was saved without fingerprints, for flat trials, which have no fingerprint, and for unrecognised
        trials with other preprocessing or added noise.
        """
        check_is_fitted(self, "net_")
        X = inputs.gathered(X)
        x = inputs.read_epochs(X)
        inputs.same_signal(x, (self.signal_.n_chans, self.signal_.n_times), "X", self.recorded_, Recorded.of(X))
        if self.fingerprints_ is None:
            return np.full(len(x), UNKNOWN)
        uses = self.fingerprints_.used_for(x)
        if self.recorded_ is not None and not self.recorded_.prepared_like(Recorded.of(X)):
            uses[uses == UNSEEN] = UNKNOWN
        return uses

    @property
    def transfer_settings_(self) -> dict[str, Any]:
        """Initial weights of other models, alignment, domains and parts with other training, as far as they are set."""
        settings = {
            "initialization": self._given_sources(),
            "alignment": self.alignment,
            "domains": None if self.domains_ is None else self.domains,
            "frozen": list(self.frozen or ()),
            "layer_lr": dict(self.layer_lr or {}),
        }
        return {name: value for name, value in settings.items() if value}

    @property
    def n_features_in_(self) -> int:
        """Number of channels of the training data; as in pyRiemann, features are the second axis of the epochs."""
        try:
            return self.signal_.n_chans
        except AttributeError:
            raise AttributeError("n_features_in_ is known after fit.") from None

    @property
    def class_names_(self) -> tuple[str, ...]:
        """Names of the classes, in the order of ``classes_`` and of the columns of :meth:`predict_proba`."""
        check_is_fitted(self, "net_")
        return tuple(map(str, self.classes_.tolist())) if self._names is None else self._names

    @property
    def history_(self) -> list[dict[str, Any]]:
        """Losses and validation accuracy of each epoch."""
        check_is_fitted(self, "net_")
        return [columns(row) for row in self.net_.history]

    @property
    def best_epoch_(self) -> int:
        """Number, from 1, of the epoch whose weights are used; 0 if no epoch was completed."""
        return best_epoch(self.history_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.three_d_array = False, True
        return tags

    # ---- files

    def save_pretrained(self, folder: str | Path, *, preprocessing: Any = None, fingerprints: bool = True) -> None:
        """Write the trained estimator into a folder; see :func:`gbwatt.models.serialization.save_pretrained`.

        Paths, the device and separate validation data are not saved.

        Parameters
        ----------
        folder : path
        preprocessing : optional
            Preprocessing of the training data; by default the steps that the training trials record.
        fingerprints : bool
            Whether to save fingerprints (32 small integers per trial) for :meth:`used_for`.  Pass False if membership
            in the training data must stay private.
        """
        check_is_fitted(self, "net_")
        if preprocessing is None and self.recorded_ is not None:
            preprocessing = self.recorded_.steps
        serialization.save(self, folder, preprocessing, fingerprints)

    @classmethod
    def from_pretrained(cls, folder: str | Path, *, device: str = "cpu") -> Self:
        """Read a trained estimator that :meth:`save_pretrained` wrote."""
        return serialization.load(cls, folder, device)


@dataclass(eq=False, repr=False, kw_only=True)
class GBWAttClassifier(EEGDecoder):
    """GBWAtt as a scikit-learn classifier of EEG epochs (n, n_chans, n_times).

    Parameters
    ----------
    recipe : "best", "paper" or "release"
        "best": architecture, initial weights, regularisation and training that validation data have selected for the
        paradigm (:mod:`gbwatt.decoding.paradigms`).  "paper" and "release": as the paper describes, or as the code of
        its authors computes; see :class:`~gbwatt.models.GBWAtt`.
    task : "mi", "ssvep", "erp" or "ern", optional
        The paradigm: motor imagery and other oscillations, steady-state responses, or event-related potentials ("ern"
        is a kind of them).  By default, the recipe "best" compares the three by cross-validation of the training
        trials, which takes several times as long as training; ``settings_.reason`` has the result.  The other
        recipes use the architecture and training of the paper for the tasks "mi", "ssvep" and "ern".
    paradigm : "task", "mi", "ssvep", "erp", "auto" or None
        Settings of the recipe "best": by default those for ``task``; None for the registered ones, as in earlier
        versions.
    validation
        As in :class:`EEGDecoder`.  "auto": none with the recipe "best", which trains for a fixed number of epochs with
        a decreasing learning rate on all trials; otherwise 0.2.
    metric, theta, shrinkage, n_segments, k : optional
        Metric of the attention, power of its deformation, shrinkage of the covariances, length of the sequence and size
        of its matrices; defaults are those of :class:`~gbwatt.models.GBWAtt`.
    domain_norm : "affine-invariant", "bures-wasserstein" or None
        Normalise the covariances of each domain by its own mean and dispersion
        (:class:`~gbwatt.nn.DomainSPDBatchNorm`).
    model_options : dict, optional
        Other arguments of :class:`~gbwatt.models.GBWAtt`.
    lr, batch_size, ..., n_members, ..., callbacks
        As in :class:`EEGDecoder`.

    Examples
    --------
    >>> GBWAttClassifier(theta=0.5, max_epochs=20)
    GBWAttClassifier(max_epochs=20, theta=0.5)
    """

    model: str = field(default="gbwatt", init=False)
    validation: Any = "auto"
    paradigm: str | None = "task"
    recipe: str = "best"
    metric: str | None = None
    theta: float | None = None
    shrinkage: float | str | None = None
    n_segments: int | None = None
    k: int | None = None
    domain_norm: str | None = None

    def _options(self) -> dict[str, Any]:
        names = ("recipe", "metric", "theta", "shrinkage", "n_segments", "k", "domain_norm")
        named = {name: getattr(self, name) for name in names}
        return {name: value for name, value in named.items() if value is not None} | super()._options()

    def _paradigm(self) -> str | None:
        if self.paradigm != "task":
            return self.paradigm
        if self.recipe != "best":
            return None
        if self.task is None:
            return "auto"
        check_one_of("task", self.task, tuple(OF_TASKS))
        return OF_TASKS[self.task]

    def _validation(self) -> Any:
        if not isinstance(self.validation, str):
            return self.validation
        check_one_of("validation", self.validation, ("auto",))
        return 0.2 if self._paradigm() is None or self.early_stopping is not None else None

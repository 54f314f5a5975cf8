"""scikit-learn classifiers of EEG epochs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import check_is_fitted
from skorch.callbacks import EpochTimer
from torch import Tensor, nn

from gbwatt._validation import check_at_least
from gbwatt.data.trials import Trials
from gbwatt.decoding import callbacks, checkpoints, inputs, serialization
from gbwatt.decoding.fingerprints import UNKNOWN, UNSEEN, TrialFingerprints
from gbwatt.decoding.inputs import Array, Examples, Sets
from gbwatt.decoding.labels import Labels
from gbwatt.decoding.signal_metadata import Recorded, Samples
from gbwatt.decoding.training import Net, isolated, start_epoch
from gbwatt.errors import ParameterError
from gbwatt.models.presets import Training, find_task
from gbwatt.models.registry import create, entry, to_record
from gbwatt.models.signal import Signal


class EEGDecoder(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classifier of EEG epochs (n, n_chans, n_times) by a model of the registry.

    Trains with Riemannian Adam on the cross entropy, and keeps the weights of the epoch with the lowest validation
    loss.  The same seed and data give the same weights, whatever the random numbers of the caller, which are not
    touched.

    Parameters
    ----------
    model : str
        One of :func:`gbwatt.models.list_models`.
    task : "mi", "ssvep" or "ern", optional
        Architecture and training as the paper has them for it.
    model_options : dict, optional
        Further arguments of the model.
    lr, batch_size, max_epochs, weight_decay : optional
        What is not given is as registered for the model and the task.  A batch has at least 2 trials: if one would be
        left over for the last batch, it joins the batch before.  Parameters on manifolds do not decay.
    validation : float, indices, (X_valid, y_valid), Trials, mne.Epochs or None
        A fraction drawn from each class with ``seed``, trials of the ``X`` that ``fit`` is given (in cross-validation
        those of a fold), by number or by a mask, other trials, or none: then the weights of the last epoch are kept.
        A class with a single trial stays in the training, with a warning.
    early_stopping : int, optional
        Stop when that many epochs in a row have not lowered the validation loss.
    class_weight : "balanced" or dict, optional
        Weights of the classes in the loss, inverse to their frequency or by label or name.
    seed : int
        Of initial weights, validation split, order of trials and dropout.
    device : str
        As in torch.
    sfreq : float, optional
        Sampling rate in Hz, for models that use it; epochs of MNE know it.
    checkpoint : path, optional
        Folder to write the state into after every epoch.  If it holds the state of the same training, ``fit``
        continues there, and ends with the very weights of an uninterrupted one.  ``max_epochs`` may be raised.  Another
        training needs another folder, also another fold of a cross-validation.
    log : path, optional
        Table (CSV) of losses, accuracy, learning rate and duration of each epoch.
    tensorboard : path, optional
        Folder for TensorBoard.
    verbose : int
        1 shows a progress bar.
    callbacks : sequence of skorch callbacks, optional
        Told of the training after everything else: a display of one's own, for instance.

    Attributes
    ----------
    classes_ : array (n_classes,)
        Labels, in the order of the columns of :meth:`predict_proba`; ``class_names_`` are their names.
    net_ : skorch.NeuralNet
        With the trained module, ``net_.module_``.
    signal_ : Signal
        The input that the model was built for.
    scale_ : float
        What epochs are multiplied by, so that the median channel of the training data has standard deviation 1.
    recorded_ : Recorded or None
        Channels, unit and preprocessing of the training data, as far as they are known: from Trials and epochs of MNE,
        not from arrays.  Trials and epochs to predict must agree with it.
    samples_ : Samples or None
        What the samples of the training data tell of their reference and spectrum.  Trials and epochs with another
        reference are refused; arrays with another reference, and data of unknown filters whose spectrum is another,
        are warned of.
    fingerprints_ : TrialFingerprints or None
        Of the training and validation trials, for :meth:`used_for`.
    history_ : list of dict
        Losses and validation accuracy of each epoch.
    best_epoch_ : int
        Number of the epoch, from 1, that the weights are from.

    Notes
    -----
    Every class has a label, in ``classes_``, and a name, in ``class_names_``.  Labels are what ``fit`` was given:
    ``y``, else the class numbers of Trials or the event names of ``mne.Epochs``; :meth:`predict` returns them.  Names
    are known from Trials and epochs, also if ``y`` has their class numbers or event codes, and from labels that are
    texts; else they are the labels as texts.

    Wherever labels are read (:meth:`score`, ``validation``, ``class_weight``) a label or a name is understood.  Trials
    and epochs are matched by the names of their classes, whatever their numbers and event codes are; a ``y`` that is
    equal to these codes is, too.  A label that the model does not know is an
    :class:`~gbwatt.errors.UnknownLabelError`.

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

    def __init__(
        self,
        model: str = "gbwatt",
        *,
        task: str | None = None,
        model_options: dict[str, Any] | None = None,
        lr: float | None = None,
        batch_size: int | None = None,
        max_epochs: int | None = None,
        weight_decay: float | None = None,
        validation: Any = 0.2,
        early_stopping: int | None = None,
        class_weight: Any = None,
        seed: int = 0,
        device: str = "cpu",
        sfreq: float | None = None,
        checkpoint: str | Path | None = None,
        log: str | Path | None = None,
        tensorboard: str | Path | None = None,
        verbose: int = 0,
        callbacks: Sequence[Any] | None = None,
    ) -> None:
        self.model = model
        self.task = task
        self.model_options = model_options
        self.lr = lr
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.weight_decay = weight_decay
        self.validation = validation
        self.early_stopping = early_stopping
        self.class_weight = class_weight
        self.seed = seed
        self.device = device
        self.sfreq = sfreq
        self.checkpoint = checkpoint
        self.log = log
        self.tensorboard = tensorboard
        self.verbose = verbose
        self.callbacks = callbacks

    # ---- training

    def fit(self, X: Any, y: Any = None) -> Self:
        """Train on epochs (n, n_chans, n_times) and labels (n,).

        Without labels, :class:`~gbwatt.data.Trials` have the numbers of their classes, and ``mne.Epochs`` the names of
        their events; see Notes of the class.
        """
        training, device = self._training(), inputs.on_device(self.device)
        X = inputs.gathered(X)
        x, recorded = inputs.read_epochs(X), Recorded.of(X, y)
        labels = Labels.of(X, y, len(x))
        classes, codes = inputs.encode_labels(labels.values, len(x))
        names = labels.names_of(classes)
        groups = X.group if isinstance(X, Trials) else None
        rate = self._sampling_rate(recorded)
        samples: Samples | None = Samples.of(x, rate)
        validation = self._separate_validation(X, recorded, samples)
        sets = inputs.split(x, codes, classes, validation, self.seed, groups, names)
        signal = Signal(x.shape[1], len(classes), x.shape[2], rate)
        with isolated(device):
            module = self._build(signal)
            scale = sets.unit_scale()
            fingerprints = TrialFingerprints.of(sets)
            sets = sets.to(_precision(module), scale)
            weights = inputs.weigh_classes(self.class_weight, classes, sets.train.y.numpy(), names)
            net = self._net(module, training, weights, sets)
            self.classes_, self.signal_, self.scale_, self.net_ = classes, signal, scale, net
            self.recorded_, self.samples_ = recorded, samples
            self.fingerprints_, self._names = fingerprints, names
            net.learn(sets)
        return self

    def _training(self) -> Training:
        """Hyper-parameters: those that were given, else those of the registry."""
        usual = entry(self.model).training_for(None if self.task is None else find_task(self.task).name)
        names = ("lr", "batch_size", "max_epochs", "weight_decay")
        chosen = {name: getattr(usual if getattr(self, name) is None else self, name) for name in names}
        _require(chosen | {"seed": self.seed}, self.early_stopping, self.validation)
        lr, batch_size, max_epochs, weight_decay = chosen.values()
        return Training(float(lr), int(batch_size), int(max_epochs), float(weight_decay))

    def _separate_validation(self, X: Any, recorded: Recorded | None, samples: Samples | None) -> Any:
        """The argument, with Trials and epochs as a pair; they must be other trials, of the same kind."""
        given = self.validation
        if isinstance(given, Trials) or hasattr(given, "get_data"):
            given = (given, None)
        if not isinstance(given, tuple) or len(given) != 2:
            return given
        trials = inputs.gathered(given[0])
        x = inputs.read_epochs(trials, "X_valid")
        labels = Labels.of(trials, given[1], len(x), "y_valid")
        inputs.require_others(X, trials)
        other = Recorded.of(trials)
        inputs.compare(recorded, samples, other, x, "validation")
        if recorded is not None:
            x = x * x.dtype.type(recorded.scale_of(other, "validation"))
        return x, labels

    def _sampling_rate(self, recorded: Recorded | None) -> float | None:
        known = None if recorded is None else recorded.sfreq
        if self.sfreq is not None and known is not None and abs(self.sfreq - known) > 1e-6 * known:
            raise ParameterError(f"sfreq={self.sfreq} contradicts the epochs, sampled at {known:g} Hz; leave it out.")
        return known if self.sfreq is None else float(self.sfreq)

    def _options(self) -> dict[str, Any]:
        """Arguments of the model beyond the signal and the task."""
        return dict(self.model_options or {})

    def _arguments(self, signal: Signal) -> dict[str, Any]:
        task = {} if self.task is None else {"task": self.task}
        return {**vars(signal), **task, **self._options()}

    def _build(self, signal: Signal) -> nn.Module:
        start_epoch(self.seed, 0, torch.device(self.device))
        return create(self.model, **self._arguments(signal))

    def _net(self, module: nn.Module, training: Training, weights: Tensor | None, sets: Sets) -> Net:
        """A net that is ready to learn, from the beginning or from a checkpoint."""
        best = callbacks.KeepBest()
        watchers = [EpochTimer(), callbacks.Scores(), best]
        if self.log is not None:
            watchers.append(callbacks.CSVLog(self.log))
        if self.tensorboard is not None:
            watchers.append(callbacks.TensorBoardLog(self.tensorboard))
        if self.verbose:
            watchers.append(callbacks.Progress())
        fingerprint: dict[str, Any] = {}
        if self.checkpoint is not None:
            fingerprint = self._fingerprint(training, weights, sets)
            watchers.append(checkpoints.Checkpoint(self.checkpoint, fingerprint, best))
        if self.early_stopping is not None:
            watchers.append(callbacks.EarlyStopping(self.early_stopping))
        watchers.extend(self.callbacks or ())
        net = self._initialized(module, training, weights, watchers)
        if self.checkpoint is not None:
            checkpoints.resume(net, best, self.checkpoint, fingerprint)
        return net

    def _initialized(self, module: nn.Module, training: Training, weights: Tensor | None, watchers: list[Any]) -> Net:
        net = Net(
            module,
            lr=training.lr,
            batch_size=training.batch_size,
            max_epochs=training.max_epochs,
            weight_decay=training.weight_decay,
            class_weights=None if weights is None else weights.to(_precision(module)),
            seed=int(self.seed),
            device=self.device,
            callbacks=watchers,
            verbose=0,
        )
        return net.initialize()  # type: ignore[no-any-return]

    def _fingerprint(self, training: Training, weights: Tensor | None, sets: Sets) -> dict[str, Any]:
        """All that the weights depend on, except for ``max_epochs``: more epochs continue fewer."""
        return {
            "model": self.model,
            "task": self.task,
            "options of the model": to_record(self.model, self._options()),
            "lr": training.lr,
            "batch_size": training.batch_size,
            "weight_decay": training.weight_decay,
            "early_stopping": self.early_stopping,
            "class weights": None if weights is None else weights.tolist(),
            "seed": int(self.seed),
            "device": str(self.device),
            "sfreq": self.sfreq,
            **checkpoints.describe_data(sets),
        }

    # ---- prediction

    def _logits(self, X: Any) -> Tensor:
        check_is_fitted(self, "net_")
        X = inputs.gathered(X)
        x = inputs.read_epochs(X)
        known = Recorded.of(X)
        inputs.compare(self.recorded_, getattr(self, "samples_", None), known, x, "X")
        if self.recorded_ is not None and known is not None:
            x = x * x.dtype.type(self.recorded_.scale_of(known, "X"))
        inputs.same_signal(x, (self.signal_.n_chans, self.signal_.n_times), "X")
        inputs.warn_of_scale(x, self.scale_, "X", self.recorded_ is not None)
        epochs = (torch.from_numpy(np.array(x, order="C")) * self.scale_).to(_precision(self.net_.module_))
        with isolated(inputs.on_device(self.device)):
            logits: Tensor = self.net_.forward(Examples(epochs, torch.zeros(len(epochs), dtype=torch.int64)))
        return logits.double()

    def decision_function(self, X: Any) -> Array:
        """Logits (n, n_classes); for two classes, as usual in scikit-learn, the second minus the first (n,)."""
        logits = self._logits(X).numpy()
        return logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits

    def predict_proba(self, X: Any) -> Array:
        """Probabilities (n, n_classes), in the order of ``classes_``."""
        return self._logits(X).softmax(-1).numpy()

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Accuracy; ``y`` has labels or names of classes, and without it the trials' own count.

        Labels that the model does not know are an error.
        """
        check_is_fitted(self, "net_")
        X = inputs.gathered(X)
        return float(accuracy_score(self.labels_of(X, y), self.predict(X), sample_weight=sample_weight))

    def labels_of(self, X: Any, y: Any = None) -> Array:
        """Labels (n,) of trials as the model has them in ``classes_``.

        Parameters
        ----------
        X : array, Trials or mne.Epochs
        y : array (n,), optional
            Labels of ``classes_`` or names of ``class_names_``; by default those that Trials or epochs bring with them.
        """
        check_is_fitted(self, "net_")
        X, name = inputs.gathered(X), "X" if y is None else "y"
        labels: Array = self.classes_[Labels.of(X, y, len(X)).places(self.classes_, self._names, name)]
        return labels

    def predict(self, X: Any) -> Array:
        """Labels (n,)."""
        numbers = self._logits(X).argmax(-1).numpy()
        labels: Array = self.classes_[numbers]
        return labels

    def used_for(self, X: Any) -> NDArray[np.str_]:
        """What each trial was used for when the model was trained (n,).

        One of "training", "validation", "unseen" and "unknown", by fingerprints of the trials that are kept with the
        model.  They do not depend on the unit or the file format, and tolerate rounding to float32 or to whole
        microvolts, but not other preprocessing; a trial that was cut elsewhere from the same stretch of recording
        counts as another.  "unknown" if the model was saved without fingerprints, for trials that have none because
        they are flat, and for unrecognised trials that were preprocessed otherwise, or have added noise.
        """
        check_is_fitted(self, "net_")
        X = inputs.gathered(X)
        x = inputs.read_epochs(X)
        inputs.same_signal(x, (self.signal_.n_chans, self.signal_.n_times), "X")
        if self.fingerprints_ is None:
            return np.full(len(x), UNKNOWN)
        found = self.fingerprints_.used_for(x)
        if self.recorded_ is not None and not self.recorded_.prepared_like(Recorded.of(X)):
            found[found == UNSEEN] = UNKNOWN
        return found

    @property
    def class_names_(self) -> tuple[str, ...]:
        """Names of the classes, in the order of ``classes_`` and of the columns of :meth:`predict_proba`."""
        check_is_fitted(self, "net_")
        return tuple(map(str, self.classes_.tolist())) if self._names is None else self._names

    @property
    def history_(self) -> list[dict[str, Any]]:
        """Losses and validation accuracy of each epoch."""
        check_is_fitted(self, "net_")
        return [callbacks.values(row) for row in self.net_.history]

    @property
    def best_epoch_(self) -> int:
        """Number of the epoch, from 1, that the weights are from; 0 if none was completed."""
        return callbacks.best_epoch(self.history_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.three_d_array = False, True
        return tags

    # ---- files

    def save_pretrained(self, folder: str | Path, *, preprocessing: Any = None, fingerprints: bool = True) -> None:
        """Write the trained estimator into a folder; see :func:`gbwatt.models.serialization.save_pretrained`.

        Without ``preprocessing``, the steps that the training trials had gone through are written.  Paths, the device
        and separate validation data are not saved.  Fingerprints (32 small integers per trial) are saved for
        :meth:`used_for`.  Pass ``fingerprints=False`` if membership in the training data must stay private.
        """
        check_is_fitted(self, "net_")
        if preprocessing is None and self.recorded_ is not None:
            preprocessing = self.recorded_.steps
        serialization.save(self, folder, preprocessing, fingerprints)

    @classmethod
    def from_pretrained(cls, folder: str | Path, *, device: str = "cpu") -> Self:
        """Read what :meth:`save_pretrained` wrote, ready to predict."""
        return serialization.load(cls, folder, device)


def _precision(module: nn.Module) -> torch.dtype:
    """The dtype of a model's parameters, to which its input has to be converted."""
    return next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)


def _require(numbers: dict[str, Any], patience: int | None, validation: Any) -> None:
    """Check the hyper-parameters; the loop itself would fail late and obscurely."""
    least = {"lr": 0, "weight_decay": 0, "batch_size": 2, "max_epochs": 1, "seed": 0}
    for name, value in numbers.items():
        whole = name in ("batch_size", "max_epochs", "seed")
        kind = (int, np.integer) if whole else (int, float, np.number)
        if isinstance(value, bool) or not isinstance(value, kind) or not least[name] <= value < 2**32:
            what = "a whole number" if whole else "a number"
            raise ParameterError(f"{name}={value!r} must be {what}, {least[name]} or more.")
    if patience is None:
        return
    check_at_least("early_stopping", patience, 1)
    if validation is None:
        raise ParameterError(f"early_stopping={patience} looks at the validation loss; validation=None has none.")


class GBWAttClassifier(EEGDecoder):
    """GBWAtt as a scikit-learn classifier of EEG epochs (n, n_chans, n_times).

    Parameters
    ----------
    recipe : "best" or "paper"
        Regularisation of the covariances as validation data preferred it, or as in the paper.
    task : "mi", "ssvep" or "ern", optional
        Architecture and training as the paper has them for it.
    metric, theta, shrinkage, n_segments, k : optional
        Geometry of the attention, power of the deformation, shrinkage of the covariances, length of the sequence and
        size of its matrices; see :class:`~gbwatt.models.GBWAtt`, whose defaults hold for what is not given.
    model_options : dict, optional
        Its other arguments.
    lr, batch_size, ..., callbacks
        As in :class:`EEGDecoder`.

    Examples
    --------
    >>> GBWAttClassifier(theta=0.5, max_epochs=20)
    GBWAttClassifier(max_epochs=20, theta=0.5)
    """

    def __init__(
        self,
        *,
        recipe: str = "best",
        task: str | None = None,
        metric: str | None = None,
        theta: float | None = None,
        shrinkage: float | str | None = None,
        n_segments: int | None = None,
        k: int | None = None,
        model_options: dict[str, Any] | None = None,
        lr: float | None = None,
        batch_size: int | None = None,
        max_epochs: int | None = None,
        weight_decay: float | None = None,
        validation: Any = 0.2,
        early_stopping: int | None = None,
        class_weight: Any = None,
        seed: int = 0,
        device: str = "cpu",
        sfreq: float | None = None,
        checkpoint: str | Path | None = None,
        log: str | Path | None = None,
        tensorboard: str | Path | None = None,
        verbose: int = 0,
        callbacks: Sequence[Any] | None = None,
    ) -> None:
        super().__init__(
            "gbwatt",
            task=task,
            model_options=model_options,
            lr=lr,
            batch_size=batch_size,
            max_epochs=max_epochs,
            weight_decay=weight_decay,
            validation=validation,
            early_stopping=early_stopping,
            class_weight=class_weight,
            seed=seed,
            device=device,
            sfreq=sfreq,
            checkpoint=checkpoint,
            log=log,
            tensorboard=tensorboard,
            verbose=verbose,
            callbacks=callbacks,
        )
        self.recipe = recipe
        self.metric = metric
        self.theta = theta
        self.shrinkage = shrinkage
        self.n_segments = n_segments
        self.k = k

    def _options(self) -> dict[str, Any]:
        named = {name: getattr(self, name) for name in ("recipe", "metric", "theta", "shrinkage", "n_segments", "k")}
        return {name: value for name, value in named.items() if value is not None} | super()._options()

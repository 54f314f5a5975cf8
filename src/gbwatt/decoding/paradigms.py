"""Settings of GBWAtt for a paradigm, and the choice of the paradigm by cross-validation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold

from gbwatt._validation import check_one_of
from gbwatt.models.presets import Training
from gbwatt.models.signal import Signal

#: Paradigm for each value of ``task``: the tasks of the paper, and "erp".
OF_TASKS: Mapping[str, str] = MappingProxyType({"mi": "mi", "ssvep": "ssvep", "ern": "erp", "erp": "erp"})

#: Value of :attr:`Settings.initialization` for the weights of a saved model, and the training that follows by default.
PRETRAINED, FINE_TUNING = "pretrained", Training(2e-4, 32, 20, 1e-2)

FOLDS = 3  # of the cross-validation that compares paradigms
MOST_TRIALS = 300  # that it uses
MOST_SAMPLES = 4_000_000  # of these trials, in all channels; but at least FEWEST_TRIALS are used
FEWEST_TRIALS = 60
ODDBALL = 3.0  # ratio of the numbers of trials of two classes from which on event-related potentials are assumed
CLEAR = 2.0  # number of standard errors by which another paradigm must be better to give up this assumption
MOST_CHANNELS = 32  # principal components of the channels that are kept for oscillations
COMPONENTS = 12  # that are kept for event-related potentials
FILTERS = 16  # largest number of temporal filters for which channels are divided into frequency bands
MANY_TRIALS = 100  # from which on random initial weights are better than a filter bank of few channels

Array = NDArray[Any]


@dataclass(frozen=True)
class Settings:
    """Model options, initial weights and training that a decoder uses.

    Attributes
    ----------
    paradigm : "mi", "ssvep", "erp" or None
        None if the settings are those registered for the model.
    reason : str
        Why this paradigm was chosen, as a sentence.
    options : dict
        Model options.
    training : Training
    initialization : "random", "classical" or "pretrained"
    schedule : "constant" or "cosine"
    n_members : int
        Number of networks whose probabilities are averaged.
    """

    paradigm: str | None
    reason: str
    options: Mapping[str, Any]
    training: Training
    initialization: str
    schedule: str
    n_members: int = 1

    def to_dict(self) -> dict[str, Any]:
        """All fields, as values that can be written as JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Settings:
        """Inverse of :meth:`to_dict`; raises ValueError or TypeError for values that it cannot have written."""
        settings = cls(**{**values, "training": Training(**values["training"])})
        if settings.paradigm is not None and settings.paradigm not in PARADIGMS:
            raise ValueError(f"paradigm {settings.paradigm!r}")
        texts = (settings.reason, settings.initialization, settings.schedule)
        numbers = asdict(settings.training).values()
        if not isinstance(values["options"], Mapping) or not all(isinstance(text, str) for text in texts):
            raise TypeError("options, reason, initialization or schedule of a wrong type")
        if any(type(number) not in (int, float) or not 0 <= number < 2**32 for number in numbers):
            raise ValueError(f"training {settings.training}")
        if type(settings.n_members) is not int or settings.n_members < 1:
            raise ValueError(f"n_members {settings.n_members!r}")
        return settings


@dataclass(frozen=True)
class ParadigmSettings:
    """Rule for the settings of a paradigm.

    Attributes
    ----------
    network : callable
        Model options and initial weights, "random" or "classical", for a signal and a number of training trials.
    training : Training
    fine_tuning : Training
        Training that begins with weights from other subjects.
    revision : int
        Increased when the settings change, so that earlier results are not reused.
    schedule : "constant" or "cosine"
    """

    network: Callable[[Signal, int], tuple[dict[str, Any], str]]
    training: Training
    fine_tuning: Training
    revision: int = 1
    schedule: str = "cosine"

    def settings(self, name: str, signal: Signal, reason: str, n_trials: int = 0) -> Settings:
        """Settings of the paradigm ``name`` for a signal and a number of training trials, by default few.

        ``reason`` says why the paradigm was chosen.
        """
        options, initialization = self.network(signal, n_trials)
        return Settings(name, reason, {"recipe": "best", **options}, self.training, initialization, self.schedule)


# ---------------------------------------------------------------------------------------------------------- the rules


def _even(number: float) -> int:
    """The nearest even number, at least 2; a kernel of even length adds one sample to the filtered epoch."""
    return 2 * max(1, round(number / 2))


def sampling_rate(signal: Signal) -> float:
    """Sampling rate in Hz; an epoch without one is assumed to last 1 s."""
    return signal.n_times if signal.sfreq is None else signal.sfreq


def _kernel(signal: Signal, seconds: float) -> int:
    """Length of temporal filters in samples: even, and at most half of the epoch."""
    return _even(min(seconds * sampling_rate(signal), signal.n_times / 2))


def _oscillations(signal: Signal, n_trials: int) -> tuple[dict[str, Any], str]:
    """Covariances in up to two windows of 1 s or more, of whitened channels; few channels are divided into bands.

    With few channels and many trials, random filters are trained instead of dividing the channels into bands.
    """
    channels = min(signal.n_chans, MOST_CHANNELS)
    bands = max(1, FILTERS // channels)
    trained_filters = bands > 1 and n_trials >= MANY_TRIALS
    n = 20 if trained_filters else channels * bands
    options = {
        "n_spatial": n if trained_filters else channels,
        "n_temporal": n,
        "kernel": _kernel(signal, 0.2 if trained_filters or bands == 1 else 0.5),
        "n_segments": max(1, min(2, int(signal.n_times / sampling_rate(signal)), signal.n_times // (2 * n))),
        "k": 18 if trained_filters else n,
        "shrinkage": 0.1,
        "residual": "learnt",
        "center_epochs": True,
    }
    return options, "random" if trained_filters else "classical"


def _steady_state(signal: Signal, _: int) -> tuple[dict[str, Any], str]:
    """Temporal filters that are long enough to separate stimulation frequencies."""
    options = {
        "n_spatial": 125,
        "n_temporal": 15,
        "kernel": _kernel(signal, 0.5),
        "n_segments": max(1, min(7, signal.n_times // 16)),
        "k": 12,
        "shrinkage": "samples",
        "center_epochs": True,
    }
    return options, "random"


def _potentials(signal: Signal, _: int) -> tuple[dict[str, Any], str]:
    """Means and covariances of two windows of components with evoked responses, and templates of the responses."""
    channels, templates = min(signal.n_chans, COMPONENTS), 2
    options = {
        "n_spatial": channels,
        "n_temporal": channels,
        "kernel": _kernel(signal, 0.25),
        "n_segments": 2,
        "k": channels + templates + 1,
        "shrinkage": 0.2,
        "residual": "learnt",
        "embed_mean": True,
        "n_templates": templates,
        "center_epochs": True,
    }
    return options, "classical"


PARADIGMS: Mapping[str, ParadigmSettings] = MappingProxyType(
    {
        "mi": ParadigmSettings(
            _oscillations,
            Training(1e-3, 32, 100, 1e-2),
            fine_tuning=Training(1e-3, 32, 120, 1e-2),
            revision=4,
        ),
        "ssvep": ParadigmSettings(
            _steady_state,
            Training(1e-3, 64, 120, 1e-1),
            fine_tuning=Training(2e-4, 64, 20, 1e-2),
            revision=3,
        ),
        "erp": ParadigmSettings(_potentials, Training(2e-3, 64, 60, 1e-2), fine_tuning=FINE_TUNING, revision=5),
    }
)


def fine_tuning_for(paradigm: str | None) -> Training:
    """Training that begins with weights of a model trained with the settings of a paradigm, or with others (None)."""
    return FINE_TUNING if paradigm is None else PARADIGMS[paradigm].fine_tuning


#: Epochs of :meth:`~gbwatt.decoding.EEGDecoder.partial_fit`.
UPDATE_EPOCHS = 5


def update_settings(settings: Settings) -> Settings:
    """Settings of a short training that continues with new trials, at a constant learning rate.

    For a paradigm, learning rate, batch size and weight decay are those of fine-tuning; otherwise, they do not change.
    """
    training = settings.training if settings.paradigm is None else fine_tuning_for(settings.paradigm)
    return replace(settings, training=replace(training, max_epochs=UPDATE_EPOCHS), schedule="constant")


# ------------------------------------------------------------------------------------------------------------- choice


class Compare(Protocol):
    """Trains a network on some of the training trials, and tests it on others."""

    def __call__(self, settings: Settings, train: Array, test: Array, /, *, trained: bool) -> Array:
        """Log losses (n_test,) of the trials with indices ``test``, for a network fitted to the trials ``train``.

        With ``trained=False``, the network keeps its initial weights.
        """


class Pipeline(Protocol):
    """Fits a classical pipeline to some of the training trials, and tests it on others."""

    def __call__(self, train: Array, test: Array, /) -> Array:
        """Log losses (n_test,) of the trials with indices ``test``, for the pipeline fitted to the trials ``train``."""


def choose_settings(
    name: str, compare: Compare, filter_bank: Pipeline, frequencies: Pipeline, signal: Signal, y: Array
) -> Settings:
    """Settings for a paradigm; "auto" chooses the paradigm by cross-validation of the training trials.

    "auto" proceeds in two steps.  First it compares "mi" and "erp" with initial weights that are a classical pipeline,
    without training, which takes little time.  "erp" is chosen if its log loss is lower than those of "mi" and of the
    class frequencies, by more than the standard error of the difference, and lower than that of a filter bank.  The
    filter bank is needed because the initial weights of "mi" do not separate the frequencies of steady-state responses,
    which may be phase-locked to the stimulus like event-related potentials.  If one of two classes has at least
    :data:`ODDBALL` times as many trials as the other, as in oddball experiments, "erp" is chosen unless "mi" or the
    filter bank is better by more than :data:`CLEAR` standard errors: a few rare trials do not suffice to show that it
    is better.

    Otherwise "mi" and "ssvep" are compared after training.  "mi" is kept unless the log loss of "ssvep" is lower by
    more than the standard error of the difference.  About :data:`MOST_TRIALS` trials at most are used, fewer of large
    epochs, in :data:`FOLDS` folds of consecutive trials.

    Parameters
    ----------
    name : "mi", "ssvep", "erp" or "auto"
    compare : Compare
        Log losses of a network on trials that it was not trained on.
    filter_bank : Pipeline
        Log losses of a filter-bank pipeline on trials that it was not fitted to.
    frequencies : Pipeline
        Log losses of the class frequencies.
    signal : Signal
        Shape of the epochs, number of classes and sampling rate.
    y : array (n,)
        Class numbers of the training trials.

    Returns
    -------
    Settings
    """
    check_one_of("paradigm", name, (*PARADIGMS, "auto"))
    if name != "auto":
        return PARADIGMS[name].settings(name, signal, "as requested", len(y))
    candidates = {key: rule.settings(key, signal, "", len(y)) for key, rule in PARADIGMS.items()}
    rows = _select_trials(y, signal)
    counts = np.bincount(y[rows])
    oddball = len(counts) == 2 and bool(counts.max() >= ODDBALL * counts.min())
    folds = min(FOLDS, int(counts.min()))
    if folds < 2:
        assumed, unequal = ("erp", " and unequal classes suggest an oddball experiment") if oddball else ("mi", "")
        reason = f"a class has a single trial, so paradigms could not be compared{unequal}"
        return replace(candidates[assumed], reason=reason)
    parts = [(rows[train], rows[test]) for train, test in StratifiedKFold(folds).split(rows, y[rows])]

    def losses_of(compared: Mapping[str, Settings], trained: bool) -> dict[str, Array]:
        """Log losses of all trials for each paradigm."""
        return {
            key: np.concatenate([compare(settings, *part, trained=trained) for part in parts])
            for key, settings in compared.items()
        }

    few = {key: rule.settings(key, signal, "") for key, rule in PARADIGMS.items()}
    classical = {key: settings for key, settings in few.items() if settings.initialization == "classical"}
    losses, stage = losses_of(classical, False), "of the initial weights"
    losses["filter bank"] = np.concatenate([filter_bank(*part) for part in parts])
    losses["class frequencies"] = np.concatenate([frequencies(*part) for part in parts])
    if _are_potentials(losses, oddball):
        best, why = "erp", "; unequal classes suggest an oddball experiment" * oddball
    else:
        others = {key: settings for key, settings in candidates.items() if key == "mi" or key not in classical}
        losses, stage, why = losses_of(others, True), "after training", ""
        best = "ssvep" if _is_lower(losses["ssvep"], losses["mi"]) else "mi"
        if losses["ssvep"].mean() < losses["mi"].mean() and best == "mi":
            why = "; the difference is within its standard error"
    rest = " and ".join(f"{loss.mean():.3f} ({key})" for key, loss in losses.items() if key != best)
    result = f"log loss {losses[best].mean():.3f} {stage} in {folds}-fold cross-validation of the training trials"
    return replace(candidates[best], reason=f"{result}, against {rest}{why}")


def _are_potentials(losses: Mapping[str, Array], oddball: bool) -> bool:
    """Whether losses of initial weights, of a filter bank and of class frequencies show event-related potentials."""
    erp = losses["erp"]
    if oddball:
        return not any(_is_lower(losses[key], erp, CLEAR) for key in ("mi", "filter bank"))
    clearly = all(_is_lower(erp, losses[key]) for key in ("mi", "class frequencies"))
    return clearly and bool(erp.mean() < losses["filter bank"].mean())


def _is_lower(losses: Array, others: Array, errors: float = 1.0) -> bool:
    """Whether losses (n,) are lower than others on average, by more than some standard errors of the difference."""
    difference = others - losses
    return bool(difference.mean() > errors * difference.std() / len(difference) ** 0.5)


def _select_trials(y: Array, signal: Signal) -> Array:
    """Sorted indices of the trials to compare paradigms with, spaced evenly among the trials of each class."""
    most = min(MOST_TRIALS, max(FEWEST_TRIALS, MOST_SAMPLES // (signal.n_chans * signal.n_times)))
    share = min(1.0, most / len(y))
    chosen = []
    for label in np.unique(y):
        rows = np.flatnonzero(y == label)
        count = max(2, round(share * len(rows)))
        chosen.append(rows[np.linspace(0, len(rows) - 1, min(count, len(rows))).round().astype(int)])
    return np.sort(np.concatenate(chosen))

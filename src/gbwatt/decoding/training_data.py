"""Trials of a training: read, checked against the parameters of the estimator and against earlier trials."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from gbwatt.data.trials import Trials
from gbwatt.decoding import inputs
from gbwatt.decoding.domains import Domains
from gbwatt.decoding.inputs import Array, Labels
from gbwatt.decoding.signal_metadata import Recorded, Samples
from gbwatt.errors import ParameterError
from gbwatt.models.registry import entry
from gbwatt.models.signal import Signal

if TYPE_CHECKING:
    from gbwatt.decoding.estimator import EEGDecoder


@dataclass(frozen=True, kw_only=True)
class TrainingData:
    """The trials of a training, after all checks.

    The epochs ``x`` are in the unit of ``recorded``.  ``continued`` says whether they continue an earlier training.
    """

    x: Array  # (n, n_chans, n_times)
    codes: Array  # (n,), class numbers
    classes: Array  # (n_classes,), labels
    names: tuple[str, ...] | None  # of the classes
    weight: Tensor | None  # (n,)
    recorded: Recorded | None
    samples: Samples | None
    domains: Domains | None
    domain: Tensor | None  # (n,), numbers of the domains
    signal: Signal
    continued: bool = False


def read_trials(
    decoder: EEGDecoder, X: Any, y: Any, sample_weight: Any, groups: Any, classes: Any = None
) -> TrainingData:
    """Read and check the trials of a training from the beginning; ``classes`` are all labels, if given."""
    x, recorded = inputs.read_epochs(X), Recorded.of(X, y)
    labels = Labels.of(X, y, len(x))
    if classes is None:
        values, codes = inputs.encode_labels(labels.values, len(x))
        names = labels.names_of(values)
    else:
        values, codes, names = inputs.encode_some_labels(labels, classes, X)
    rate = _sampling_rate(decoder, recorded)
    domains = Domains.make(decoder.alignment, decoder.domains)
    domains.add(x, of_trials := domains.names_of(X, groups), few=decoder.alignment is None)
    return TrainingData(
        x=x,
        codes=codes,
        classes=values,
        names=names,
        weight=_read_weights(decoder, sample_weight, len(x)),
        recorded=recorded,
        samples=Samples.of(x, rate),
        domains=domains,
        domain=domains.numbers(of_trials),
        signal=Signal(x.shape[1], len(values), x.shape[2], rate),
    )


def read_more_trials(decoder: EEGDecoder, X: Any, y: Any, sample_weight: Any, groups: Any) -> TrainingData:
    """Read the trials of a training that continues an earlier one, and check that they agree with its trials."""
    if decoder.alignment is not None and (decoder.domains_ is None or decoder.domains_.alignment is None):
        raise ParameterError(
            f"alignment={decoder.alignment!r}, but the present network was trained without; use alignment=None, or "
            "train from the beginning."
        )
    x = decoder._checked_epochs(X)
    if decoder.alignment is None:  # which makes amplitudes alike
        inputs.warn_of_scale(x, decoder.scale_, "X", decoder.recorded_ is not None)
    codes = Labels.of(X, y, len(x)).places(decoder.classes_, decoder._names, "X" if y is None else "y")
    domains, domain = None, None
    if decoder.domains_ is not None:
        domains, names = decoder.domains_.copy(), decoder.domains_.names_of(X, groups)
        new = domains.unknown(names)
        domains.add(x[new], names[new])
        domain = domains.numbers(names)
    return TrainingData(
        x=x,
        codes=codes,
        classes=decoder.classes_,
        names=decoder._names,
        weight=_read_weights(decoder, sample_weight, len(x)),
        recorded=decoder.recorded_,
        samples=getattr(decoder, "samples_", None),
        domains=domains,
        domain=domain,
        signal=decoder.signal_,
        continued=True,
    )


def separate_validation(decoder: EEGDecoder, X: Any, recorded: Recorded | None, samples: Samples | None) -> Any:
    """Return ``validation``; if it contains trials, check them and return (epochs, labels)."""
    given = decoder._validation()
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


def _read_weights(decoder: EEGDecoder, sample_weight: Any, n: int) -> Tensor | None:
    """Weights of the trials; those of networks have mean 1, and None stands for equal ones."""
    weights = inputs.read_weights(sample_weight, n)
    if entry(decoder.model).classical:
        return None if weights is None or bool((weights == 1).all()) else weights
    return inputs.normalize_weights(weights)


def _sampling_rate(decoder: EEGDecoder, recorded: Recorded | None) -> float | None:
    """The sampling rate in Hz of the epochs or of ``sfreq``; raise an error if both differ."""
    rate = None if recorded is None else recorded.sfreq
    if decoder.sfreq is not None and rate is not None and abs(decoder.sfreq - rate) > 1e-6 * rate:
        raise ParameterError(f"sfreq={decoder.sfreq} contradicts the epochs, sampled at {rate:g} Hz; leave it out.")
    return rate if decoder.sfreq is None else float(decoder.sfreq)

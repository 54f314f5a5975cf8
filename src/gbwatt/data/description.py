"""Summaries of trials: counts, channels, amplitudes, conditioning, preprocessing and ground truth."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbwatt.data.preprocessing import Preprocessing
from gbwatt.data.trials import Effect, Trials, Truth
from gbwatt.errors import InputError

Array = NDArray[Any]


@dataclass(frozen=True)
class Description:
    """Summary of trials.

    Attributes
    ----------
    dataset : str
    n_trials : int
    subjects : tuple of int
    counts : mapping
        Number of trials by session and class.
    ch_names : tuple of str
    n_times : int
    tmin, tmax : float
        Window in seconds after the event, without its end.
    sfreq : float
    unit : str
    amplitude : float or None
        Median over channels of the standard deviation over trials and time; None without trials.
    flat : tuple of str
        Channels that are constant within every trial.
    condition_median, condition_largest : float or None
        Condition numbers of the covariances of trials; infinite if singular, None without trials.
    steps, truth : tuple of str
        Lines that describe the preprocessing steps and the ground truth of simulated recordings.
    """

    dataset: str
    n_trials: int
    subjects: tuple[int, ...]
    counts: Mapping[str, Mapping[str, int]]
    ch_names: tuple[str, ...]
    n_times: int
    tmin: float
    tmax: float
    sfreq: float
    unit: str
    amplitude: float | None
    flat: tuple[str, ...]
    condition_median: float | None
    condition_largest: float | None
    steps: tuple[str, ...]
    truth: tuple[str, ...]

    @property
    def n_chans(self) -> int:
        """Number of channels."""
        return len(self.ch_names)

    @property
    def seconds(self) -> float:
        """Length of a trial in seconds."""
        return self.n_times / self.sfreq

    def to_dict(self) -> dict[str, Any]:
        """Return a dict that can be written as JSON; an infinite condition number becomes ``"inf"``."""
        values = {**asdict(self), "n_chans": self.n_chans, "seconds": self.seconds}
        return {name: "inf" if value == math.inf else _to_json_types(value) for name, value in values.items()}

    def rows(self) -> list[tuple[str, str]]:
        """Return the printed rows (name, text) without trial counts; an empty name continues the row above."""
        return _summary_rows(self)

    def __str__(self) -> str:
        width = max(len(name) for name, _ in self.rows())
        rows = [*self.rows(), *_count_rows(self.counts, width)]
        return "\n".join(f"{name:<{width}}  {value}".rstrip() for name, value in rows)


def describe(trials: Trials) -> Description:
    """Summarize trials.

    Parameters
    ----------
    trials : Trials

    Returns
    -------
    Description
        Prints as a table; :meth:`Description.to_dict` is for JSON.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> trials = Trials(
    ...     X=rng.standard_normal((4, 2, 50)),
    ...     y=[0, 1, 0, 1],
    ...     class_names=["left", "right"],
    ...     ch_names=["C3", "C4"],
    ...     sfreq=100,
    ... )
    >>> print(describe(trials))
    data set   (no name)
    subjects   1
    trials     4
    channels   2: C3 C4
    samples    50 at 100 Hz, 0 to 0.5 s
    amplitude  0.994 µV
    condition  1.40 (median), 1.78 (largest) of the covariances
    steps      none since the files were read
    session    left  right
    1             2      2
    """
    median, largest = _condition_numbers(trials.X)
    return Description(
        dataset=trials.dataset,
        n_trials=len(trials),
        subjects=tuple(np.unique(trials.subject).tolist()),
        counts=trials.counts(),
        ch_names=trials.ch_names,
        n_times=trials.shape[2],
        tmin=trials.tmin,
        tmax=trials.tmin + trials.shape[2] / trials.sfreq,
        sfreq=trials.sfreq,
        unit=trials.unit,
        amplitude=_median_amplitude(trials.X),
        flat=_flat_channels(trials),
        condition_median=median,
        condition_largest=largest,
        steps=tuple(step_line(step) for step in trials.steps),
        truth=_truth_lines_by_subject(trials),
    )


# ---- numbers


def chance_level(counts: Any) -> float:
    """Accuracy of always predicting the most frequent class, from the number of trials of each class.

    Examples
    --------
    >>> chance_level([20, 20, 24, 16])
    0.3
    """
    return float(np.max(counts) / np.sum(counts))


def _median_amplitude(x: Array) -> float | None:
    """Return the median over channels of the standard deviation over trials and time; None without trials."""
    return float(np.median(x.std(axis=(0, 2), dtype=np.float64))) if len(x) else None


def _flat_channels(trials: Trials) -> tuple[str, ...]:
    """Return the channels that are constant within every trial."""
    if not len(trials):
        return ()
    constant = (np.ptp(trials.X, axis=2) == 0).all(axis=0)
    return tuple(name for name, flat in zip(trials.ch_names, constant, strict=True) if flat)


def _condition_numbers(x: Array) -> tuple[float | None, float | None]:
    """Return median and maximum of the condition numbers of trial covariances; None without trials."""
    if not len(x):
        return None, None
    numbers = [_condition_number(np.atleast_2d(np.cov(trial.astype(np.float64), bias=True))) for trial in x]
    return float(np.median(numbers)), float(np.max(numbers))


def _condition_number(covariance: Array) -> float:
    """Return the condition number of a covariance; infinite if it is singular to working precision."""
    values = np.linalg.eigvalsh(covariance)  # ascending
    singular = values[0] <= np.finfo(np.float64).eps * len(values) * values[-1]
    return math.inf if singular else float(values[-1] / values[0])


# ---- text


def step_line(step: Mapping[str, Any]) -> str:
    """Return a preprocessing step as a line of text, ``"band-pass 4-38 Hz (Butterworth 4, zero-phase)"``.

    ``step`` is a record of ``Trials.steps``.  Steps of other programs are shown as ``name key=value …``.
    """
    try:
        return str(Preprocessing.from_records([step]))
    except InputError:
        return _record_text(step)


def _record_text(step: Mapping[str, Any]) -> str:
    """Return the record of another program's preprocessing step as text, ``name key=value …``."""
    settings = [f"{name}={_format_value(value)}" for name, value in step.items() if name != "step"]
    return " ".join([str(step.get("step", "step")), *settings])


def _format_value(value: Any) -> str:
    """Return a setting of a preprocessing step as text."""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple | list):
        return ",".join(map(_format_value, value)) if len(value) <= 8 else f"({len(value)} values)"
    return json.dumps(_to_json_types(value)) if isinstance(value, Mapping) else str(value)


def _truth_lines_by_subject(trials: Trials) -> tuple[str, ...]:
    """Return the planted effects of simulated trials as text, by subject if there are several."""
    if trials.truth is not None:
        return truth_lines(trials.truth)
    return tuple(f"subject {s}: {line}" for s, truth in trials.truths.items() for line in truth_lines(truth))


def truth_lines(truth: Truth) -> tuple[str, ...]:
    """Return the ground truth of simulated recordings as text: the settings, and a line for each effect of a class."""
    settings = f"difficulty={truth.difficulty:g} seed={truth.seed}"
    return (settings, *(f"{name}: {_effect_text(e)}" for name, effects in truth.effects.items() for e in effects))


def _effect_text(effect: Effect) -> str:
    """Return a planted effect as text: kind, channels, band and window."""
    band = "" if effect.band is None else f", {effect.band[0]:.3g} to {effect.band[1]:.3g} Hz"
    return f"{effect.kind} at {' '.join(effect.channels)}{band}, {effect.window[0]:.3g} to {effect.window[1]:.3g} s"


def _to_json_types(value: Any) -> Any:
    """Replace tuples by lists and keys by text, also in nested values, for JSON."""
    if isinstance(value, Mapping):
        return {str(key): _to_json_types(item) for key, item in value.items()}
    return [_to_json_types(item) for item in value] if isinstance(value, list | tuple) else value


def _summary_rows(summary: Description) -> list[tuple[str, str]]:
    """Return the rows of the printed description, each as a name and a text, without the counts of trials."""
    rows = [
        ("data set", summary.dataset or "(no name)"),
        ("subjects", " ".join(map(str, summary.subjects)) or "none"),
        ("trials", str(summary.n_trials)),
        ("channels", f"{summary.n_chans}: {' '.join(summary.ch_names)}"),
        ("samples", f"{summary.n_times} at {summary.sfreq:g} Hz, {summary.tmin:g} to {summary.tmax:g} s"),
    ]
    if summary.amplitude is not None:
        rows.append(("amplitude", f"{_three_digits(summary.amplitude)} {summary.unit}"))
        rows.append(("condition", _condition_text(summary)))
    if summary.flat:
        rows.append(("flat", " ".join(summary.flat)))
    return [
        *rows,
        *_continued_rows("steps", summary.steps or ("none since the files were read",)),
        *_continued_rows("truth", summary.truth),
    ]


def _three_digits(value: float) -> str:
    """Return a number as text with three significant digits."""
    return f"{value:.3g}"


def _condition_text(summary: Description) -> str:
    """Return the condition numbers of the covariances as text."""
    words = [
        "singular" if value == math.inf else _three_digits(float(value or 0))
        for value in (summary.condition_median, summary.condition_largest)
    ]
    return f"{words[0]} (median), {words[1]} (largest) of the covariances"


def _continued_rows(name: str, lines: Sequence[str]) -> list[tuple[str, str]]:
    """Return the printed rows for a value of several lines; only the first row has the name."""
    return [("" if number else name, line) for number, line in enumerate(lines)]


def _count_rows(counts: Mapping[str, Mapping[str, int]], width: int) -> list[tuple[str, str]]:
    """Return the printed table of trial counts by session and class, as rows of a name and a text.

    ``counts`` is that of :class:`Description`; names of sessions are shortened to ``width`` characters.
    """
    classes = list(next(iter(counts.values()), {}))
    if not classes:
        return []
    rows = [("session", "  ".join(classes))]
    for session, numbers in counts.items():
        cells = (f"{numbers[name]:>{len(name)}}" for name in classes)
        rows.append((session if len(session) <= width else session[: width - 1] + "…", "  ".join(cells)))
    return rows

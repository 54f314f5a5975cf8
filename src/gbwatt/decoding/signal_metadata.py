"""Metadata of epochs (channels, sampling rate, unit, filters, reference), and estimates of them from the samples.

A model keeps those of its training data, and compares them with those of the data to predict.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.fft import next_fast_len

from gbwatt.data.formats.interchange import RECORDED, recorded_state, steps_of
from gbwatt.data.montage import comparable_name
from gbwatt.data.preprocessing import Preprocessing, Step
from gbwatt.data.trials import UNITS, Trials
from gbwatt.errors import MismatchError, ParameterError

#: Name of the step that alignment adds to the history of trials.
ALIGNMENT = "alignment"
#: High-pass edges up to the first and low-pass edges from the second (Hz) are amplifier settings, not preprocessing.
HARDWARE_HIGHPASS, HARDWARE_LOWPASS = 0.2, 70.0
#: Filters whose edges differ by less than this, relatively, are considered equal.
SAME_EDGE = 0.05
#: Data are average-referenced if the mean over channels is at most this large, relative to a channel; and the smallest
#: number of channels for which this is checked.
AVERAGE_REFERENCE, FEWEST_CHANNELS = 0.02, 4
#: Frequencies in Hz between which spectra are compared, in octaves.
LOWEST, HIGHEST = 2.0, 64.0
#: Spectra that differ by more than this (dB) are attributed to different filters; for n trials, the second number
#: divided by √n is added.  Measured differences: up to 20 dB between subjects and sessions of a data set; up to 34 dB
#: between single trials and a data set; above 37 dB between data filtered from 8 to 30 Hz and other data, except for
#: one of 11520 single trials (48 subjects of PhysioNet, 11 of MAMEM-SSVEP-II, 5 of BCIC-IV-2b).
OTHER_SPECTRUM, ONE_TRIAL = 25.0, 12.0
#: Octaves are raised to this many dB below the strongest one: lower levels depend on rounding and on filter slopes.
FLOOR = 55.0
#: Maximum numbers of trials and samples to estimate the reference from, and of trials and channels for the spectrum;
#: they keep predictions fast.
_REFERENCE_TRIALS, _REFERENCE_SAMPLES, _SPECTRUM_TRIALS, _SPECTRUM_CHANNELS = 200, 64, 64, 8

Array = NDArray[Any]


@dataclass(frozen=True)
class Recorded:
    """Metadata of epochs: channels, sampling rate, unit, preprocessing and names of the classes.

    Attributes
    ----------
    ch_names, sfreq, unit
        Names of the channels, sampling rate in Hz, and unit of the samples.
    steps : tuple of dict or None
        Preprocessing steps; None if they are unknown, as are all following attributes.
    class_names : tuple of str or None
        Names of the classes, by class number.
    highpass, lowpass : float or None
        Edges of the filters in Hz, from the ``info`` of MNE or from the steps.
    custom_ref_applied, projections : int or None
        Whether the reference was changed, and the number of active projections, as in the ``info`` of MNE.
    tmin : float or None
        Time of the first sample in seconds after the event.
    """

    ch_names: tuple[str, ...]
    sfreq: float
    unit: str
    steps: tuple[Mapping[str, Any], ...] | None = None
    class_names: tuple[str, ...] | None = None
    highpass: float | None = None
    lowpass: float | None = None
    custom_ref_applied: int | None = None
    projections: int | None = None
    tmin: float | None = None

    @classmethod
    def of(cls, X: Any, y: Any = None) -> Recorded | None:
        """Metadata of :class:`~gbwatt.data.Trials` or ``mne.Epochs``; None for arrays.

        The names of the classes are omitted if separate labels ``y`` are given.
        """
        if isinstance(X, Trials):
            names = X.class_names if y is None else None
            state = _filters_and_reference(X.steps)
            return cls(X.ch_names, X.sfreq, X.unit, X.steps, names, **state, tmin=X.tmin)
        if hasattr(X, "get_data"):
            steps = steps_of(X)
            state = recorded_state(X.info) if steps is None else _filters_and_reference(steps)
            return cls(tuple(X.ch_names), float(X.info["sfreq"]), "V", steps, **state, tmin=float(X.times[0]))
        return None

    @classmethod
    def from_dict(cls, values: Mapping[str, Any] | None) -> Recorded | None:
        """Restore from the dict of ``vars(recorded)``, which may have been stored as JSON."""
        if values is None:
            return None
        steps = None if values["steps"] is None else tuple(values["steps"])
        names = values.get("class_names")
        return cls(
            tuple(values["ch_names"]),
            float(values["sfreq"]),
            values["unit"],
            steps,
            None if names is None else tuple(names),
            **{name: _to_number(name, values.get(name)) for name in _FILTERS_AND_REFERENCE},
            tmin=_to_number("tmin", values.get("tmin")),
        )

    @property
    def preprocessing(self) -> Preprocessing:
        """Steps that were applied to the recordings, and that other recordings need, too.

        Added noise, and what was done before the recordings were read, are not among them.

        Raises
        ------
        ParameterError
            If the steps are unknown because the epochs were changed in MNE.
        """
        known = {kind.name for kind in Step.__subclasses__()} - {"noise"}
        steps = [step for step in self.steps or () if step["step"] in known]
        if any(step["step"] == "mne" for step in self.steps or ()):
            raise ParameterError(
                "The training data were changed in MNE after they were cut, so their preprocessing cannot be repeated; "
                "prepare the epochs in the same way, and pass them."
            )
        return Preprocessing.from_records(steps)

    @property
    def events(self) -> dict[str, tuple[str, ...]]:
        """Events of each class whose name is not that of its event, if the history of the trials has them."""
        found = (step["events"] for step in self.steps or () if step["step"] == RECORDED and "events" in step)
        return {str(name): tuple(map(str, events)) for name, events in next(found, {}).items()}

    @property
    def band_before_steps(self) -> str | None:
        """Pass band of the recordings before the steps, such as "8-30 Hz"; None if they were not filtered."""
        before = (step for step in self.steps or () if step["step"] in (RECORDED, "mne"))
        state = _filters_and_reference(before) if self.steps is not None else vars(self)
        edges = replace(self, highpass=state["highpass"], lowpass=state["lowpass"])
        return _band_text(edges) if edges._is_filtered else None

    def require(self, other: Recorded | None, name: str) -> None:
        """Raise an error if other epochs differ in their metadata; unknown values are not compared."""
        if other is None:
            return
        self._require_channels(other, name)
        if other.sfreq != self.sfreq:
            raise MismatchError(
                f"'{name}' has sfreq={other.sfreq!r}, but the model was trained on {self.sfreq!r}; "
                f"prepare '{name}' as the training data, or give the plain array to skip this check."
            )
        self.scale_of(other, name)
        self._require_filters(other, name)
        self._require_reference(other, name)
        self._require_steps(other, name)

    def _require_channels(self, other: Recorded, name: str) -> None:
        """Raise MismatchError if the channels or their order differ; case and trailing dots do not matter."""
        ours, theirs = (tuple(map(comparable_name, one.ch_names)) for one in (self, other))
        if ours == theirs:
            return
        remedy = f"prepare '{name}' as the training data"
        if set(ours) <= set(theirs):
            picks = [other.ch_names[theirs.index(channel)] for channel in ours]
            remedy = f"pick these channels in this order by trials.select(channels={picks}) or epochs.pick({picks})"
        raise MismatchError(
            f"'{name}' has ch_names={_shorten(other.ch_names)}, but the model was trained on "
            f"{_shorten(self.ch_names)}; {remedy}, or give the plain array to skip this check."
        )

    def _require_steps(self, other: Recorded, name: str) -> None:
        """Raise MismatchError if the preprocessing steps differ; those of alignment count if both are recorded."""
        if self.steps is None or other.steps is None:
            return
        ours, theirs = _compared_steps(self), _compared_steps(other)
        if not all(any(step["step"] == ALIGNMENT for step in steps) for steps in (ours, theirs)):
            # earlier versions did not record it; the unit tells aligned data from others
            ours, theirs = ([step for step in steps if step["step"] != ALIGNMENT] for steps in (ours, theirs))
        if ours != theirs:
            raise MismatchError(
                f"'{name}' was preprocessed by {theirs}, but the training data by {ours}; "
                "use the same steps, or give the plain array to skip this check."
            )

    def window_difference(self, other: Recorded | None, name: str) -> str | None:
        """Text of a warning if other epochs begin at another time after the event; None if they do not."""
        if other is None or None in (self.tmin, other.tmin) or self.tmin == other.tmin:
            return None
        assert self.tmin is not None  # for the type checker
        assert other.tmin is not None
        if abs(self.tmin - other.tmin) <= 1 / self.sfreq:
            return None
        return (
            f"'{name}' begins {other.tmin:g} s after the event, but the training data {self.tmin:g} s; cut the same "
            "time window, unless another one is intended."
        )

    def window(self, n_times: int) -> tuple[float, float] | None:
        """Start and end, which is not included, of epochs in seconds after the event; None if they are unknown."""
        return None if self.tmin is None else (self.tmin, self.tmin + n_times / self.sfreq)

    def prepared_like(self, other: Recorded | None) -> bool:
        """Whether other epochs have the same preprocessing, including added noise; unknown values are not compared."""
        if other is None:
            return True
        noise = [[_with_lists(step) for step in x.steps or () if step["step"] == "noise"] for x in (self, other)]
        try:
            self.require(other, "X")
        except MismatchError:
            return False
        return None in (self.steps, other.steps) or noise[0] == noise[1]

    def same_filters_are_known(self, other: Recorded | None) -> bool:
        """Whether the filter edges of both are known, so that :meth:`require` has compared them."""
        return other is not None and None not in (self.highpass, self.lowpass, other.highpass, other.lowpass)

    @property
    def is_noisy(self) -> bool:
        """Whether noise was added; it changes the spectrum at all frequencies."""
        return any(step["step"] == "noise" for step in self.steps or ())

    def unknown_filters(self, other: Recorded | None, name: str) -> str | None:
        """Text of a warning if the training data were filtered and the filters of other epochs are unknown."""
        if other is None or other.highpass is not None or other.lowpass is not None:
            return None
        if not self._is_filtered:
            return None
        return (
            f"The filters of '{name}' are unknown, but the model was trained on data filtered {_band_text(self)}. Make "
            f"sure that '{name}' was filtered in the same way."
        )

    @property
    def _hardware_lowpass(self) -> float:
        """Lowest low-pass edge in Hz that counts as an amplifier setting at this sampling rate."""
        return min(HARDWARE_LOWPASS, 0.9 * self.sfreq / 2)

    def _require_filters(self, other: Recorded, name: str) -> None:
        """Raise MismatchError if a filter edge differs and is not an amplifier setting."""
        limit = self._hardware_lowpass
        for field in ("highpass", "lowpass"):
            got, want = getattr(other, field), getattr(self, field)
            if got is None or want is None or math.isclose(got, want, rel_tol=SAME_EDGE):
                continue
            if max(got, want) <= HARDWARE_HIGHPASS if field == "highpass" else min(got, want) >= limit:
                continue
            raise MismatchError(
                f"'{name}' has {field}={got:g} Hz, but the model was trained on data with {field}={want:g} Hz "
                f"({_band_text(self)}); {self._filter_remedy(name)} If the header of '{name}' is wrong, give the plain "
                "array."
            )

    def _filter_remedy(self, name: str) -> str:
        """Remedy in the error for data with other filters."""
        if not self._is_filtered:
            return (
                f"unfiltered data are needed: cut '{name}' from the unfiltered recording, or "
                "train on data that were filtered in the same way."
            )
        edges = f"{_filter_argument(self.highpass, 0.0)}, {_filter_argument(self.lowpass, self.sfreq / 2)}"
        return (
            f"filter the recording of '{name}' as that of the training data, for instance by raw.filter({edges}) "
            "before cutting epochs."
        )

    @property
    def _is_filtered(self) -> bool:
        """Whether a filter edge is stricter than amplifier settings."""
        return (self.highpass or 0) > HARDWARE_HIGHPASS or (self.lowpass or math.inf) < self._hardware_lowpass

    def _require_reference(self, other: Recorded, name: str) -> None:
        """Raise MismatchError if the reference or the number of active projections differs."""
        for field in ("custom_ref_applied", "projections"):
            got, want = getattr(other, field), getattr(self, field)
            if None not in (got, want) and got != want:
                verb = "epochs.apply_proj()" if field == "projections" else "epochs.set_eeg_reference(...)"
                remedy = f"do the same by {verb}" if want else f"leave out {verb}"
                raise MismatchError(
                    f"'{name}' has {_REFERENCE[field][bool(got)]} ({field}={got}), but the training data had "
                    f"{_REFERENCE[field][bool(want)]} ({field}={want}); {remedy}. If "
                    "the reference is the same and the header does not say so, give the plain array."
                )

    def scale_of(self, other: Recorded | None, name: str) -> float:
        """Factor that converts other epochs to the unit of these."""
        if other is None or other.unit == self.unit:
            return 1.0
        if not {self.unit, other.unit} <= set(UNITS):
            raise MismatchError(
                f"'{name}' has unit='{other.unit}', but the model was trained on '{self.unit}', and these "
                "cannot be converted; standardise both, or give the plain array to skip this check."
            )
        return UNITS[other.unit] / UNITS[self.unit]


def _compared_steps(recorded: Recorded) -> list[dict[str, Any]]:
    """Steps that must be the same in training and prediction.

    Added noise may differ, since robustness is tested with other noise than in training.  Filters from the header of a
    file are compared separately, by their edges; so are channels, by their names, and selections of channels count only
    before steps that mix channels.
    """
    steps = recorded.steps or ()
    mixed = max((place for place, step in enumerate(steps) if step["step"] in ("reference", ALIGNMENT)), default=-1)
    return [
        _with_lists(step)
        for place, step in enumerate(steps)
        if step["step"] not in ("noise", RECORDED) and (step["step"] != "pick" or place < mixed)
    ]


#: Meaning of entries of ``info`` that are zero, and of those that are not.
_REFERENCE = {
    "custom_ref_applied": ("the reference of the recording", "another reference"),
    "projections": ("no active projections", "active projections"),
}
_FILTERS_AND_REFERENCE = ("highpass", "lowpass", *_REFERENCE)


def _filters_and_reference(steps: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Filters and reference that result from preprocessing steps; None for unknown values."""
    state: dict[str, Any] = dict.fromkeys(_FILTERS_AND_REFERENCE)
    for step in steps:
        if step["step"] in (RECORDED, "mne"):
            state |= {name: _to_number(name, step[name]) for name in _REFERENCE if name in step}
            _narrow_band(state, step.get("highpass"), step.get("lowpass"))
        elif step["step"] == "band_pass":
            _narrow_band(state, step.get("low"), step.get("high"))
        elif step["step"] == "resample" and state["lowpass"] is not None:
            state["lowpass"] = min(state["lowpass"], float(step["sfreq"]) / 2)
        elif step["step"] == "reference":
            state["custom_ref_applied"] = 1
    return state


def _narrow_band(state: dict[str, Any], highpass: Any, lowpass: Any) -> None:
    """Update the pass band in place for one more filter: of two edges on one side, the stricter one counts."""
    for name, edge in (("highpass", _to_number("highpass", highpass)), ("lowpass", _to_number("lowpass", lowpass))):
        if edge is not None:
            stronger = max if name == "highpass" else min
            state[name] = edge if state[name] is None else stronger(state[name], edge)


def _to_number(name: str, value: Any) -> Any:
    """Check and convert the number ``name`` of filters or reference; None if it is unknown or not finite."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name}={value!r} is not a number")
    return int(value) if name in _REFERENCE else float(value)


def _filter_argument(value: float | None, default: float) -> str:
    """Text of a filter edge as argument of ``raw.filter``; "None" if there is no filter on this side."""
    return "None" if value is None or value == default else f"{value:g}"


def _band_text(recorded: Recorded) -> str:
    """Text of the pass band, such as "from 8 to 30 Hz"."""
    low, high = ("unknown" if edge is None else f"{edge:g}" for edge in (recorded.highpass, recorded.lowpass))
    return f"from {low} to {high} Hz"


def _with_lists(step: Mapping[str, Any]) -> dict[str, Any]:
    """The record of a step with lists instead of tuples, so that it equals one that was read from JSON."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in step.items()}


def _shorten(value: Any) -> str:
    """Text of a value for messages, cut to 120 characters."""
    text = repr(list(value) if isinstance(value, tuple) else value)
    return text if len(text) < 120 else text[:117] + "..."


# ---- estimates from the samples


@dataclass(frozen=True)
class Samples:
    """Reference and spectrum of training data, estimated from their samples and independent of metadata.

    Attributes
    ----------
    average_reference : bool or None
        Whether the mean over channels is zero; None for fewer than 4 channels, and for flat data.
    sfreq : float or None
        Sampling rate in Hz.
    spectrum : tuple of float or None
        Power density in dB relative to the total power, in octaves from 2 Hz to 64 Hz or 0.9 of the Nyquist frequency;
        NaN for octaves that the epochs are too short for.  None if the sampling rate is unknown.
    """

    average_reference: bool | None = None
    sfreq: float | None = None
    spectrum: tuple[float, ...] | None = None

    @classmethod
    def of(cls, x: Array, sfreq: float | None) -> Samples:
        """Estimate reference and spectrum of epochs (n, n_chans, n_times)."""
        return cls(_is_average_reference(x), sfreq, None if sfreq is None else _octave_spectrum(x, sfreq))

    @classmethod
    def from_dict(cls, values: Any) -> Samples | None:
        """Restore from the result of :meth:`to_dict`; None for models that were saved without it."""
        if values is None:
            return None
        reference, sfreq, spectrum = (values[name] for name in ("average_reference", "sfreq", "spectrum"))
        if not isinstance(reference, bool | None):
            raise TypeError(f"average_reference={reference!r} is not true, false or null")
        if spectrum is not None:
            spectrum = tuple(math.nan if level is None else float(level) for level in spectrum)
        if (sfreq is None) != (spectrum is None) or (
            spectrum is not None and len(_octave_edges(float(sfreq))) != len(spectrum) + 1
        ):
            raise ValueError(f"a spectrum that does not fit sfreq={sfreq!r}")
        return cls(reference, None if sfreq is None else float(sfreq), spectrum)

    def to_dict(self) -> dict[str, Any]:
        """Values for JSON, with None instead of NaN."""
        levels = self.spectrum
        spectrum = None if levels is None else [level if math.isfinite(level) else None for level in levels]
        return {"average_reference": self.average_reference, "sfreq": self.sfreq, "spectrum": spectrum}

    def warnings_for(self, x: Array, name: str, spectra: bool, sfreq: float | None) -> tuple[str | None, str | None]:
        """Texts of two warnings, or None: another reference and another spectrum than the training data.

        Spectra are compared only if ``spectra`` is true, and at the sampling rate of the training data.
        """
        spectra = spectra and self.spectrum is not None and sfreq is not None
        spectra = spectra and math.isclose(sfreq or 0.0, self.sfreq or 0.0, rel_tol=1e-6)
        reference = None if self.average_reference is None else self._reference_warning(x, name)
        return reference, self._spectrum_warning(x, name) if spectra else None

    def _reference_warning(self, x: Array, name: str) -> str | None:
        """Text of a warning if epochs have another reference than the training data; None if not, or if unknown."""
        averaged = _is_average_reference(x)
        if averaged is None or averaged == self.average_reference:
            return None
        if averaged:
            what, remedy = "average-referenced", "keep the reference that the training data had"
        else:
            what, remedy = "not average-referenced", "apply it by epochs.set_eeg_reference('average')"
        return (
            f"'{name}' is {what}, judging by the mean over its channels, but the training data "
            f"{'were not' if averaged else 'were'}; {remedy}."
        )

    def _spectrum_warning(self, x: Array, name: str) -> str | None:
        """Text of a warning if an octave of the spectrum differs so much that filters must differ; else None."""
        sfreq, trained = self.sfreq or 0.0, self.spectrum or ()
        spectrum, edges = _octave_spectrum(x, sfreq), _octave_edges(sfreq)
        # both spectra are relative to the power in the same octaves, because the epochs have the same length
        gap, low, high = max(
            ((one - other, *octave) for one, other, octave in zip(spectrum, trained, pairwise(edges), strict=True)),
            key=lambda difference: abs(difference[0]) if math.isfinite(difference[0]) else 0.0,
            default=(0.0, 0.0, 0.0),
        )
        if not abs(gap) > OTHER_SPECTRUM + ONE_TRIAL / math.sqrt(len(x)):
            return None
        weaker = gap < 0
        return (
            f"'{name}' has {abs(gap):.0f} dB {'less' if weaker else 'more'} power from {low:g} to {high:g} Hz, "
            "relative to the other frequencies, than the training data: "
            f"{f'{name!r} was' if weaker else 'these were'} filtered there, and "
            f"{'these were' if weaker else f'{name!r} was'} not. Filter the original recording of '{name}' in the "
            "same way as the training data."
        )


def _is_average_reference(x: Array) -> bool | None:
    """Whether the mean over channels is zero, estimated from a subset; None for few channels or flat data."""
    n, n_chans, n_times = x.shape
    if n_chans < FEWEST_CHANNELS:
        return None
    subset = x[:: -(-n // _REFERENCE_TRIALS), :, :: -(-n_times // _REFERENCE_SAMPLES)].astype(np.float64)
    subset -= subset.mean(axis=2, keepdims=True)
    mean = subset.mean(axis=1)
    usual = _fast_median(np.einsum("ijk,ijk->ij", subset, subset).reshape(-1, 1))[0]
    return _fast_median(np.einsum("ik,ik->i", mean, mean)[:, None])[0] < AVERAGE_REFERENCE**2 * usual if usual else None


def _fast_median(values: Array) -> list[float]:
    """Medians of columns; ``np.median`` would take longer than all other checks of a prediction."""
    medians: list[float] = np.sort(values, axis=0)[len(values) // 2].tolist()
    return medians


@lru_cache(maxsize=64)
def _octave_edges(sfreq: float) -> tuple[float, ...]:
    """Edges in Hz of the octaves of a spectrum; the last octave may be narrower, or up to a quarter wider."""
    top = min(HIGHEST, 0.9 * sfreq / 2)
    edges = [LOWEST]
    while 2 * edges[-1] <= top:
        edges.append(2 * edges[-1])
    if len(edges) > 2 and top < 1.25 * edges[-1]:
        edges.pop()
    return (*edges, top) if top > edges[-1] else tuple(edges)


class _OctaveLayout(NamedTuple):
    """Window, length and frequency bins of the Fourier transform for the power in octaves."""

    window: Array  # (n_times,), Hann
    length: int  # of the transform
    present: tuple[int, ...]  # indices of the octaves that contain bins
    first: int  # first bin of these octaves
    last: int  # bin after the last one
    starts: tuple[int, ...]  # first bin of each of these octaves, relative to ``first``
    counts: tuple[int, ...]  # number of bins of each
    widths: tuple[float, ...]  # in Hz
    n: int  # number of octaves, with and without bins


@lru_cache(maxsize=64)
def _octave_layout(sfreq: float, n_times: int) -> _OctaveLayout:
    """Parameters of the Fourier transform of epochs with ``n_times`` samples for the power in octaves."""
    length, edges = next_fast_len(n_times, real=True), _octave_edges(sfreq)
    at = np.searchsorted(np.fft.rfftfreq(length, 1 / sfreq), edges).tolist()
    present = tuple(octave for octave, (low, high) in enumerate(pairwise(at)) if low < high)
    return _OctaveLayout(
        np.hanning(n_times + 2)[1:-1],
        length,
        present,
        at[0],
        at[-1],
        tuple(at[octave] - at[0] for octave in present),
        tuple(at[octave + 1] - at[octave] for octave in present),
        tuple(edges[octave + 1] - edges[octave] for octave in present),
        len(edges) - 1,
    )


def _octave_spectrum(x: Array, sfreq: float) -> tuple[float, ...]:
    """Power density of epochs in each octave, in dB relative to the total power; the median of trials and channels.

    Octaves without a frequency bin are NaN; so are all octaves of flat epochs.
    """
    octaves = _octave_layout(sfreq, x.shape[2])
    undefined = (math.nan,) * octaves.n
    if not octaves.present:
        return undefined
    subset = x[:: -(-len(x) // _SPECTRUM_TRIALS), :: -(-x.shape[1] // _SPECTRUM_CHANNELS)].astype(np.float64)
    subset -= subset.mean(axis=2, keepdims=True)
    subset *= octaves.window
    transform = np.fft.rfft(subset, octaves.length, axis=2)[..., octaves.first : octaves.last]
    power = transform.real**2 + transform.imag**2
    sums = _fast_median(np.add.reduceat(power, octaves.starts, axis=2).reshape(-1, len(octaves.present)))
    levels = [total / count for total, count in zip(sums, octaves.counts, strict=True)]
    strongest = max(levels)
    if not 0 < strongest < math.inf:  # no power in any octave, or an overflow
        return undefined
    floor = strongest * 10 ** (-FLOOR / 10)
    levels = [max(level, floor) for level in levels]
    total = math.fsum(level * width for level, width in zip(levels, octaves.widths, strict=True))
    decibels = [10 * math.log10(level / total) for level in levels]
    if len(decibels) == octaves.n:
        return tuple(decibels)
    by_octave = dict(zip(octaves.present, decibels, strict=True))
    return tuple(by_octave.get(octave, math.nan) for octave in range(octaves.n))

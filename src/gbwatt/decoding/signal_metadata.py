"""What is known of the recording that epochs come from; a model must be given what it was trained on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.fft import next_fast_len

from gbwatt.data.formats.interchange import RECORDED, recorded_state, steps_of
from gbwatt.data.trials import UNITS, Trials
from gbwatt.errors import MismatchError

#: Edges in Hz that are settings of amplifiers, and no preprocessing: high-pass up to, low-pass from.
HARDWARE_HIGHPASS, HARDWARE_LOWPASS = 0.2, 70.0
#: Relative difference between edges of the same filter.
SAME_EDGE = 0.05
#: Mean over channels, relative to a channel, up to which data are average-referenced, and the fewest channels for it.
AVERAGE_REFERENCE, FEWEST_CHANNELS = 0.02, 4
#: Frequencies in Hz between which spectra are compared, in octaves.
LOWEST, HIGHEST = 2.0, 64.0
#: Difference in dB between spectra of many trials from which on they were filtered otherwise, and what it is more for
#: one trial.  It was up to 20 dB between subjects and sessions of one data set, up to 34 dB between single trials and
#: these, and more than 37 dB between data filtered from 8 to 30 Hz and others, but for one of 11520 single trials
#: (48 subjects of PhysioNet, 11 of MAMEM-SSVEP-II, 5 of BCIC-IV-2b).
OTHER_SPECTRUM, ONE_TRIAL = 25.0, 12.0
#: What is weaker than the strongest octave by more dB is a matter of rounding, and of how steep a filter is.
FLOOR = 55.0
#: What is judged by, so that a prediction does not take longer: trials and samples for the reference, and trials and
#: channels for the spectrum.
_REFERENCE_TRIALS, _REFERENCE_SAMPLES, _SPECTRUM_TRIALS, _SPECTRUM_CHANNELS = 200, 64, 64, 8

Array = NDArray[Any]


@dataclass(frozen=True)
class Recorded:
    """Channels, sampling rate and unit of epochs, what was done to them, and what their class numbers mean.

    All but the first three are None where they are unknown.

    Attributes
    ----------
    ch_names, sfreq, unit
    steps : tuple of dict
        Steps of preprocessing.
    class_names : tuple of str
        What class numbers mean.
    highpass, lowpass : float
        Edges of the filters in Hz, of ``info`` of MNE or of the steps.
    custom_ref_applied, projections : int
        As in ``info`` of MNE: whether the reference was changed, and how many projections are active.
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

    @classmethod
    def of(cls, X: Any, y: Any = None) -> Recorded | None:
        """What ``X`` knows of itself: :class:`~gbwatt.data.Trials` all, ``mne.Epochs`` most, an array nothing.

        With labels ``y`` of its own, the class numbers of Trials do not count.
        """
        if isinstance(X, Trials):
            names = X.class_names if y is None else None
            return cls(X.ch_names, X.sfreq, X.unit, X.steps, names, **_state(X.steps))
        if hasattr(X, "get_data"):
            steps = steps_of(X)
            state = recorded_state(X.info) if steps is None else _state(steps)
            return cls(tuple(X.ch_names), float(X.info["sfreq"]), "V", steps, **state)
        return None

    @classmethod
    def from_dict(cls, values: Mapping[str, Any] | None) -> Recorded | None:
        """Of what ``vars`` gave, also after JSON."""
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
            **{name: _number(name, values.get(name)) for name in _STATE},
        )

    def require(self, other: Recorded | None, name: str) -> None:
        """Refuse epochs of another kind; what is not known of them is not compared."""
        if other is None:
            return
        for field in ("ch_names", "sfreq"):
            got, want = getattr(other, field), getattr(self, field)
            if got != want:
                raise MismatchError(
                    f"'{name}' has {field}={_short(got)}, but the model was trained on {_short(want)}; "
                    f"prepare '{name}' as the training data, or give the bare array if you know better."
                )
        self.scale_of(other, name)
        self._require_filters(other, name)
        self._require_reference(other, name)
        if None not in (self.steps, other.steps) and _prepared(self) != _prepared(other):
            raise MismatchError(
                f"'{name}' was preprocessed by {_prepared(other)}, but the training data by {_prepared(self)}; "
                "take the same steps, or give the bare array if you know better."
            )

    def prepared_like(self, other: Recorded | None) -> bool:
        """Whether other epochs were prepared in the same way, noise included, as far as that is known."""
        if other is None:
            return True
        noise = [[_plain(step) for step in one.steps or () if step["step"] == "noise"] for one in (self, other)]
        try:
            self.require(other, "X")
        except MismatchError:
            return False
        return None in (self.steps, other.steps) or noise[0] == noise[1]

    def same_filters_are_known(self, other: Recorded | None) -> bool:
        """Whether all edges of both are known, so that :meth:`require` has compared them."""
        return other is not None and None not in (self.highpass, self.lowpass, other.highpass, other.lowpass)

    @property
    def is_noisy(self) -> bool:
        """Whether noise was added, which is in all frequencies."""
        return any(step["step"] == "noise" for step in self.steps or ())

    def unknown_filters(self, other: Recorded | None, name: str) -> str | None:
        """What to say of epochs whose filters are unknown, if these were filtered; None if nothing is to be said."""
        if other is None or other.highpass is not None or other.lowpass is not None:
            return None
        if not self._filtered:
            return None
        return (
            f"The filters of '{name}' are unknown, but the model was trained on data filtered {_band(self)}. Make sure "
            f"that '{name}' was filtered in the same way."
        )

    @property
    def _hardware_lowpass(self) -> float:
        return min(HARDWARE_LOWPASS, 0.9 * self.sfreq / 2)

    def _require_filters(self, other: Recorded, name: str) -> None:
        limit = self._hardware_lowpass
        for field in ("highpass", "lowpass"):
            got, want = getattr(other, field), getattr(self, field)
            if got is None or want is None or math.isclose(got, want, rel_tol=SAME_EDGE):
                continue
            if max(got, want) <= HARDWARE_HIGHPASS if field == "highpass" else min(got, want) >= limit:
                continue
            raise MismatchError(
                f"'{name}' has {field}={got:g} Hz, but the model was trained on data with {field}={want:g} Hz "
                f"({_band(self)}); {self._filtering(name)} If the header of '{name}' is wrong, give the plain array."
            )

    def _filtering(self, name: str) -> str:
        """What to do to data that were filtered otherwise."""
        if not self._filtered:
            return (
                f"unfiltered data are needed: cut '{name}' from the recording as it was before it was filtered, or "
                "train on data that were filtered in the same way."
            )
        edges = f"{_edge(self.highpass, 0.0)}, {_edge(self.lowpass, self.sfreq / 2)}"
        return (
            f"filter the recording of '{name}' as that of the training data, for instance by raw.filter({edges}) "
            "before cutting epochs."
        )

    @property
    def _filtered(self) -> bool:
        return (self.highpass or 0) > HARDWARE_HIGHPASS or (self.lowpass or math.inf) < self._hardware_lowpass

    def _require_reference(self, other: Recorded, name: str) -> None:
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
        """Factor that brings other epochs into the unit of these."""
        if other is None or other.unit == self.unit:
            return 1.0
        if not {self.unit, other.unit} <= set(UNITS):
            raise MismatchError(
                f"'{name}' has unit='{other.unit}', but the model was trained on '{self.unit}', and nothing leads from "
                "one to the other; standardise both, or give the bare array if you know better."
            )
        return UNITS[other.unit] / UNITS[self.unit]


def _prepared(recorded: Recorded) -> list[dict[str, Any]]:
    """Steps that are compared.

    Without added noise: robustness is tested with other noise than was trained with.  Nor what the header of a file
    says, which is compared edge by edge.
    """
    return [_plain(step) for step in recorded.steps or () if step["step"] not in ("noise", RECORDED)]


#: What entries of ``info`` mean if they are zero, and if not.
_REFERENCE = {
    "custom_ref_applied": ("the reference of the recording", "another reference"),
    "projections": ("no active projections", "active projections"),
}
_EDGES = ("highpass", "lowpass")
_STATE = (*_EDGES, "custom_ref_applied", "projections")


def _state(steps: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Filters and reference after some steps, as far as these tell."""
    found: dict[str, Any] = dict.fromkeys(_STATE)
    for step in steps:
        if step["step"] in (RECORDED, "mne"):
            found |= {name: _number(name, step[name]) for name in _STATE if name in step and name not in _EDGES}
            _narrow(found, step.get("highpass"), step.get("lowpass"))
        elif step["step"] == "band_pass":
            _narrow(found, step.get("low"), step.get("high"))
        elif step["step"] == "resample" and found["lowpass"] is not None:
            found["lowpass"] = min(found["lowpass"], float(step["sfreq"]) / 2)
        elif step["step"] == "reference":
            found["custom_ref_applied"] = 1
    return found


def _narrow(found: dict[str, Any], highpass: Any, lowpass: Any) -> None:
    """Apply a filter to what is known of the band: it cannot bring back what an earlier one has taken away."""
    for name, edge in (("highpass", _number("highpass", highpass)), ("lowpass", _number("lowpass", lowpass))):
        if edge is not None:
            stronger = max if name == "highpass" else min
            found[name] = edge if found[name] is None else stronger(found[name], edge)


def _number(name: str, value: Any) -> Any:
    """A number of the state, None if it is unknown."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name}={value!r} is no number")
    return float(value) if name.endswith("pass") else int(value)


def _edge(value: float | None, default: float) -> str:
    """An argument of ``filter``: None where nothing is to be filtered."""
    return "None" if value is None or value == default else f"{value:g}"


def _band(recorded: Recorded) -> str:
    low, high = ("unknown" if edge is None else f"{edge:g}" for edge in (recorded.highpass, recorded.lowpass))
    return f"from {low} to {high} Hz"


def _plain(step: Mapping[str, Any]) -> dict[str, Any]:
    """A record as it is after JSON, which has no tuples."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in step.items()}


def _short(value: Any) -> str:
    text = repr(list(value) if isinstance(value, tuple) else value)
    return text if len(text) < 120 else text[:117] + "..."


# ---- what the samples themselves tell


@dataclass(frozen=True)
class Samples:
    """What the samples of training data tell of their reference and filters, whatever a header says.

    Attributes
    ----------
    average_reference : bool or None
        Whether the mean over channels is zero; None for fewer than 4 channels, and for flat data.
    sfreq : float or None
    spectrum : tuple of float or None
        Power density in dB in octaves from 2 Hz on, up to 64 Hz or 0.9 of the Nyquist frequency, relative to the total;
        NaN where epochs are too short for an octave.  None if the sampling rate is unknown.
    """

    average_reference: bool | None = None
    sfreq: float | None = None
    spectrum: tuple[float, ...] | None = None

    @classmethod
    def of(cls, x: Array, sfreq: float | None) -> Samples:
        """Of epochs (n, n_chans, n_times)."""
        return cls(_is_average_reference(x), sfreq, None if sfreq is None else _spectrum(x, sfreq))

    @classmethod
    def from_dict(cls, values: Any) -> Samples | None:
        """Of what :meth:`to_dict` gave, also after JSON; None for models that were saved without."""
        if values is None:
            return None
        reference, sfreq, spectrum = (values[name] for name in ("average_reference", "sfreq", "spectrum"))
        if not isinstance(reference, bool | None):
            raise TypeError(f"average_reference={reference!r} is neither true nor false")
        if spectrum is not None:
            spectrum = tuple(math.nan if level is None else float(level) for level in spectrum)
        if (sfreq is None) != (spectrum is None) or (
            spectrum is not None and len(_edges(float(sfreq))) != len(spectrum) + 1
        ):
            raise ValueError(f"a spectrum that does not fit sfreq={sfreq!r}")
        return cls(reference, None if sfreq is None else float(sfreq), spectrum)

    def to_dict(self) -> dict[str, Any]:
        """In a form that JSON keeps."""
        levels = self.spectrum
        spectrum = None if levels is None else [level if math.isfinite(level) else None for level in levels]
        return {"average_reference": self.average_reference, "sfreq": self.sfreq, "spectrum": spectrum}

    def compared(self, x: Array, name: str, spectra: bool, sfreq: float | None) -> tuple[str | None, str | None]:
        """What to say of epochs with another reference, and, with ``spectra``, of those with another spectrum."""
        spectra = spectra and self.spectrum is not None and sfreq is not None
        spectra = spectra and math.isclose(sfreq or 0.0, self.sfreq or 0.0, rel_tol=1e-6)
        reference = None if self.average_reference is None else self._other_reference(x, name)
        return reference, self._other_filters(x, name) if spectra else None

    def _other_reference(self, x: Array, name: str) -> str | None:
        found = _is_average_reference(x)
        if found is None or found == self.average_reference:
            return None
        if found:
            what, remedy = "average-referenced", "keep the reference that the training data had"
        else:
            what, remedy = "not average-referenced", "take the same, by epochs.set_eeg_reference('average')"
        return (
            f"'{name}' is {what}, to judge by the mean over its channels, but the training data "
            f"{'were not' if found else 'were'}; {remedy}."
        )

    def _other_filters(self, x: Array, name: str) -> str | None:
        sfreq, known = self.sfreq or 0.0, self.spectrum or ()
        found, edges = _spectrum(x, sfreq), _edges(sfreq)
        # epochs of one length have the same octaves, so that both are relative to the power in the same ones
        gap, low, high = max(
            ((one - other, *octave) for one, other, octave in zip(found, known, pairwise(edges), strict=True)),
            key=lambda place: abs(place[0]) if math.isfinite(place[0]) else 0.0,
            default=(0.0, 0.0, 0.0),
        )
        if not abs(gap) > OTHER_SPECTRUM + ONE_TRIAL / math.sqrt(len(x)):
            return None
        weaker = gap < 0
        return (
            f"'{name}' has {abs(gap):.0f} dB {'less' if weaker else 'more'} power from {low:g} to {high:g} Hz, "
            "relative to the other frequencies, than the training data: "
            f"{f'{name!r} was' if weaker else 'these were'} filtered there, and "
            f"{'these were' if weaker else f'{name!r} was'} not. Filter '{name}' as the training data, from the "
            "recording as it was before."
        )


def _is_average_reference(x: Array) -> bool | None:
    n, n_chans, n_times = x.shape
    if n_chans < FEWEST_CHANNELS:
        return None
    some = x[:: -(-n // _REFERENCE_TRIALS), :, :: -(-n_times // _REFERENCE_SAMPLES)].astype(np.float64)
    some -= some.mean(axis=2, keepdims=True)
    mean = some.mean(axis=1)
    usual = _median(np.einsum("ijk,ijk->ij", some, some).reshape(-1, 1))[0]
    return _median(np.einsum("ik,ik->i", mean, mean)[:, None])[0] < AVERAGE_REFERENCE**2 * usual if usual else None


def _median(values: Array) -> list[float]:
    """Medians of columns; NumPy's own function takes longer than the rest of a prediction's checks."""
    found: list[float] = np.sort(values, axis=0)[len(values) // 2].tolist()
    return found


@lru_cache(maxsize=64)
def _edges(sfreq: float) -> tuple[float, ...]:
    """Edges of octaves in Hz; the last may be shorter, or up to a quarter longer."""
    top = min(HIGHEST, 0.9 * sfreq / 2)
    edges = [LOWEST]
    while 2 * edges[-1] <= top:
        edges.append(2 * edges[-1])
    if len(edges) > 2 and top < 1.25 * edges[-1]:
        edges.pop()
    return (*edges, top) if top > edges[-1] else tuple(edges)


class _Octaves(NamedTuple):
    """How to get the power in octaves out of epochs: window, length of a fast transform, and its bins."""

    window: Array  # (n_times,), Hann's
    length: int
    there: tuple[int, ...]  # octaves that have bins
    first: int  # bin of the first of them
    last: int  # and after the last
    starts: tuple[int, ...]  # bins at which they start, from the first on
    counts: tuple[int, ...]
    widths: tuple[float, ...]  # in Hz
    n: int  # octaves, with and without bins


@lru_cache(maxsize=64)
def _octaves(sfreq: float, n_times: int) -> _Octaves:
    length, edges = next_fast_len(n_times, real=True), _edges(sfreq)
    at = np.searchsorted(np.fft.rfftfreq(length, 1 / sfreq), edges).tolist()
    there = tuple(place for place, (low, high) in enumerate(pairwise(at)) if low < high)
    return _Octaves(
        np.hanning(n_times + 2)[1:-1],
        length,
        there,
        at[0],
        at[-1],
        tuple(at[place] - at[0] for place in there),
        tuple(at[place + 1] - at[place] for place in there),
        tuple(edges[place + 1] - edges[place] for place in there),
        len(edges) - 1,
    )


def _spectrum(x: Array, sfreq: float) -> tuple[float, ...]:
    """Power density in each octave in dB, the median of trials and channels, relative to the total."""
    octaves = _octaves(sfreq, x.shape[2])
    nothing = (math.nan,) * octaves.n
    if not octaves.there:
        return nothing
    some = x[:: -(-len(x) // _SPECTRUM_TRIALS), :: -(-x.shape[1] // _SPECTRUM_CHANNELS)].astype(np.float64)
    some -= some.mean(axis=2, keepdims=True)
    some *= octaves.window
    transform = np.fft.rfft(some, octaves.length, axis=2)[..., octaves.first : octaves.last]
    power = transform.real**2 + transform.imag**2
    sums = _median(np.add.reduceat(power, octaves.starts, axis=2).reshape(-1, len(octaves.there)))
    levels = [total / count for total, count in zip(sums, octaves.counts, strict=True)]
    strongest = max(levels)
    if not 0 < strongest < math.inf:  # flat, or nothing but what is slower or faster
        return nothing
    least = strongest * 10 ** (-FLOOR / 10)
    levels = [max(level, least) for level in levels]
    total = math.fsum(level * width for level, width in zip(levels, octaves.widths, strict=True))
    decibels = [10 * math.log10(level / total) for level in levels]
    if len(decibels) == octaves.n:
        return tuple(decibels)
    known = dict(zip(octaves.there, decibels, strict=True))
    return tuple(known.get(place, math.nan) for place in range(octaves.n))

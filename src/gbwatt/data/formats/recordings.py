"""Trials out of any file of epochs or of a recording that MNE reads."""

from __future__ import annotations

import json
import math
import shlex
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gbwatt._text import printable, replace_unsafe
from gbwatt._validation import check_number
from gbwatt.data._reading import MNEDataWarning, expect_expansion, opening, size, warn_of
from gbwatt.data.formats import brainvision, edf, gdf, headers
from gbwatt.data.formats.headers import (
    Channel,
    check_channels,
    expect_ranges,
    expect_volts,
    is_strange,
    microvolts,
    odd_scales,
)
from gbwatt.data.formats.interchange import from_mne
from gbwatt.data.formats.matlab import expect_structure, mat_variables, read_mat
from gbwatt.data.trials import Trials
from gbwatt.errors import DataError, DataWarning, InputError, ParameterError

if TYPE_CHECKING:
    import mne

Array = NDArray[Any]
Classes = Mapping[str, str | int | Sequence[str | int]] | Sequence[str | int] | None

#: What MNE warns of when a file is shorter than its header says.
_SIGNS_OF_DAMAGE = ("file size", "truncated", "corrupt")
_NO_TRIALS = ("BAD", "EDGE", "BOUNDARY", "NEW SEGMENT")
_COMMENT = "Comment/"  # how MNE calls comments of BrainVision recordings


def read_file(
    file: str | Path,
    *,
    classes: Classes = None,
    tmin: float | None = None,
    tmax: float | None = None,
    subject: int = 1,
    session: str = "1",
    run: str = "1",
    channels: Sequence[str] | None = None,
) -> Trials:
    """Trials of a file of epochs (``-epo.fif``, EEGLAB ``.set``) or of a recording in any format that MNE reads.

    Trials of a recording are cut at its annotations, or at the events of its trigger channel if it has none.  As in
    MNE, those whose window leaves the recording or overlaps a BAD annotation are left out; a warning says how many.

    Parameters
    ----------
    file : path
    classes : mapping or sequence, optional
        Annotation or event, or several of them, for each class; or names of annotations, which become the classes.  By
        default all but those that begin with BAD or EDGE, and the boundaries of segments.
    tmin, tmax : float, optional
        Window in seconds after the event, without its end.  A recording needs both.
    subject, session, run
        Whose they are; epochs that have these as metadata keep them.
    channels : sequence of str, optional
        Channels in this order; by default all EEG channels that are not marked as bad.

    Raises
    ------
    MissingFileError
        If the file does not exist.
    DataError
        If it is damaged, or does not have what was asked for.
    """
    file = Path(file).expanduser()
    if file.suffix.lower() == ".mat":
        raise _unknown_mat(file)
    header = inspect(file)
    found = _open(file)
    _expect_channels(file, found, channels)
    with opening(file, "MNE", "channels of a known kind"):
        check_signals(file, found, header, channels)
    cut = _cut_epochs if _is_epochs(found) else _cut_recording
    epochs = cut(file, found, classes, tmin, tmax)
    trials = _trials(file, epochs, channels, subject=subject, session=session, run=run)
    if not _is_epochs(found):
        trials = replace(trials, group=_stretches(epochs))
    left = {name: int(np.sum(trials.y == code)) for code, name in enumerate(trials.class_names)}
    return _regroup(trials, _wanted(file, classes, left))


# ---- headers


def inspect(file: Path) -> tuple[Channel, ...]:
    """Channels as the header of an EDF, BDF, GDF or BrainVision file describes them; none for other formats.

    The header is compared with itself and with the size of the file, before MNE allocates what it says.
    """
    suffix = file.suffix.lower()
    if suffix in (".edf", ".bdf"):
        header = edf.read_header(file)
        edf.expect_continuous(file, header)
        edf.check_file(file, header, stacklevel=4)
        rates = [channel.rate for channel in header.channels]
        n_bytes = round(len(rates) * max(rates, default=0) * header.seconds * 8)  # MNE interpolates to the highest
        expect_expansion(file, n_bytes, "samples at the highest of its rates")
        return header.channels
    if suffix == ".gdf":
        return gdf.read_header(file).channels
    if suffix in (".vhdr", ".ahdr"):
        return brainvision.read_header(file).channels
    if suffix == ".fif" and file.is_file():
        headers.expect_tags(file)
    if suffix == ".gz" and file.is_file():
        _expect_unpacked(file)
    return ()


def _expect_unpacked(file: Path) -> None:
    import gzip

    unpacked, block = 0, 1 << 20
    with opening(file, "gzip", "a compressed file"), gzip.open(file) as stream:
        while n_bytes := len(stream.read(block)):
            unpacked += n_bytes
            if not unpacked % (64 * block):
                expect_expansion(file, unpacked, "content")


def check_signals(file: Path, found: Any, header: Sequence[Channel], channels: Sequence[str] | None = None) -> None:
    """Bring samples to the unit that their header says, and warn of scales, units and rates that cannot be true."""
    described = dict(zip(found.ch_names, header, strict=False))
    chosen = _eeg(found) if channels is None else list(channels)
    picked = [described[name] for name in chosen if name in described]
    if channels is None and (left := [c for c in header if c.name not in chosen and is_strange(c)]):
        listed = ", ".join(f"{channel.name} in {channel.unit!r}" for channel in left[:6])
        warn_of(file, f"not read as EEG: {listed}. Is the unit right? Otherwise choose channels=[...].", 5)
    if picked:
        expect_ranges(file, picked)
        expect_volts(file, picked)
        check_channels(file, picked, stacklevel=4)
        for name in chosen:
            _convert(file, found, name, described[name])
            _expect_in_range(file, found, name, described[name])
    elif odd := odd_scales({name: _scale(found.info, name) for name in chosen}):
        listed = ", ".join(f"{name} ({ratio:.3g} times)" for name, ratio in list(odd.items())[:6])
        warn_of(file, f"channels with another scale than the others: {listed}. Is that right?", stacklevel=3)


def _eeg(found: Any) -> list[str]:
    import mne

    return [found.ch_names[pick] for pick in mne.pick_types(found.info, eeg=True)]


def _scale(info: mne.Info, name: str) -> float:
    channel = info["chs"][info["ch_names"].index(name)]
    return float(channel["cal"] * channel["range"] * 10.0 ** int(channel["unit_mul"]))


def _convert(file: Path, raw: mne.io.BaseRaw, name: str, channel: Channel) -> None:
    """Correct the unit where MNE does not know it and takes the numbers for volts."""
    known = {".gdf": ("uV",), ".vhdr": ("V", "mV", "µV", "uV", "nV"), ".ahdr": ("V", "mV", "µV", "uV", "nV")}
    if channel.unit in known.get(file.suffix.lower(), ("uV", "µV", "\u03bcV", "\x83\xcaV", "mV", "V")):
        return
    if file.suffix.lower() == ".gdf" and channel.unit[:2] == "uV":
        return
    factor = microvolts(channel.unit) * 1e-6
    if factor != 1.0:
        raw.apply_function(lambda x: x * factor, picks=[name], channel_wise=True, verbose="ERROR")


def _expect_in_range(file: Path, raw: mne.io.BaseRaw, name: str, channel: Channel) -> None:
    """Warn of samples outside the range that the header says."""
    if channel.physical is None:
        return
    low, high = sorted(limit * microvolts(channel.unit) * 1e-6 for limit in channel.physical)
    slack = 1e-6 * (high - low)
    x = raw.get_data(picks=[name], verbose="ERROR")
    with np.errstate(invalid="ignore"):
        n_outside = int(np.sum((x < low - slack) | (x > high + slack)))
    if n_outside:
        what = f"channel {name} has {n_outside} samples outside the range of {channel.physical[0]:g} to "
        warn_of(file, f"{what}{channel.physical[1]:g} {channel.unit} that its header says; is the header right?", 4)


# ---- MATLAB


class _Variable(NamedTuple):
    """A variable of a MATLAB file, or a field of one: the code that gets it, where it is, its name, shape and class."""

    code: str
    path: str
    name: str
    shape: tuple[int, ...]
    kind: str

    @property
    def is_number(self) -> bool:
        return self.kind in ("double", "single", "logical") or "int" in self.kind

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def is_vector(self) -> bool:
        return self.is_number and 1 < self.size == max(self.shape)


def _unknown_mat(file: Path) -> DataError:
    """What is in a MATLAB file of one's own, and how to make a data set of it."""
    expected = (
        "epochs or a recording with channel names and a sampling rate; a .mat file has no standard layout for these"
    )
    with opening(file, "SciPy", expected):
        there = _variables(file)
        listed = ", ".join(f"{one.path} {one.shape} {one.kind}" for one in there) or "none"
        how = _trials_snippet(file, there) or _recording_snippet(file, there) or _no_snippet(file)
    return DataError(file, f"a MATLAB file with the variables {listed}", expected, f"Convert it once. {how}")


def _variables(file: Path) -> list[_Variable]:
    """Variables of a file, and those in its structures."""
    found = [_Variable(f"m[{name!r}]", name, name, *about) for name, about in mat_variables(file).items()]
    structures = [one for one in found if one.kind == "struct" and one.size == 1]
    content = read_mat(file, *(one.name for one in structures)) if structures else {}
    for one in structures:
        value = content[one.name]
        for field in value.dtype.names or ():
            inside = np.asarray(value[field].flat[0])
            kind = _CLASSES.get(inside.dtype.name, inside.dtype.name)
            code = f"{one.code}[{field!r}][0, 0]"
            found.append(_Variable(code, f"{one.name}.{field}", field, inside.shape, kind))
    return found


#: What MATLAB calls types of numbers.
_CLASSES = {"float64": "double", "float32": "single", "bool": "logical", "object": "cell"}
#: Usual names of labels and of the sampling rate.
_LABELS = (
    "y",
    "label",
    "labels",
    "class",
    "classes",
    "target",
    "targets",
    "classlabel",
    "event",
    "events",
    "trialtype",
)
_RATES = ("fs", "sfreq", "srate", "sampling_rate", "samplingrate", "freq", "fsample")


def _trials_snippet(file: Path, there: Sequence[_Variable]) -> str | None:
    """Code for an array of three axes and a vector of labels, whose length tells which axis has the trials."""
    x = max((one for one in there if one.is_number and len(one.shape) == 3), key=lambda one: one.size, default=None)
    if x is None:
        return None
    target, labels = file.with_suffix(".npz").name, _labels_of(there, x)
    turned, what = "", "X must be (trials, channels, samples)"
    if labels is not None:
        trials = x.shape.index(labels.size)
        channels, samples = sorted((axis for axis in range(3) if axis != trials), key=lambda axis: x.shape[axis])
        if trials == 0 and x.shape[1] == x.shape[2]:
            channels, samples = 1, 2
        turned = "" if (trials, channels, samples) == (0, 1, 2) else f".transpose({trials}, {channels}, {samples})"
        what += f", if there are {x.shape[channels]} channels of {x.shape[samples]} samples" if turned else ""
    y = "..." if labels is None else f"{labels.code}.ravel()"
    rate = _rate_in(there)
    fill = [name for name, code in (("y, a label for each trial,", y), ("sfreq", rate)) if code == "..."]
    replaced = f" Replace the dots by {' and '.join(fill)}." if fill else ""
    return (
        f"{what}, sfreq the sampling rate in Hz.{replaced} Code: import numpy as np, scipy.io; "
        f"m = scipy.io.loadmat({file.name!r}); "
        f"np.savez({target!r}, X={x.code}{turned}, y={y}, sfreq={rate}). Then load({target!r})."
    )


def _labels_of(there: Sequence[_Variable], x: _Variable) -> _Variable | None:
    """The vector with a label for each trial: one with a usual name, else the only one that is as long as an axis."""
    fitting = [one for one in there if one.is_vector and one.size in x.shape]
    named = [one for one in fitting if one.name.lower().replace("_", "") in _LABELS]
    if named:
        return named[0]
    return fitting[0] if len(fitting) == 1 else next((one for one in fitting if one.size == x.shape[0]), None)


def _recording_snippet(file: Path, there: Sequence[_Variable]) -> str | None:
    """Code for a matrix of channels and samples."""
    matrices = [one for one in there if one.is_number and len(one.shape) == 2 and min(one.shape) > 1]
    x = max(matrices, key=lambda one: one.size, default=None)
    if x is None:
        return None
    turned = ".T" if x.shape[0] > x.shape[1] else ""
    target, rate = f"{file.stem}_raw.fif", _rate_in(there)
    replaced = " Replace the dots by the sampling rate in Hz." if rate == "..." else ""
    return (
        f"Adapt unit (µV here) and events.{replaced} Code: import mne, scipy.io; "
        f"m = scipy.io.loadmat({file.name!r}); x = {x.code}{turned} * 1e-6; "
        f"raw = mne.io.RawArray(x, mne.create_info({min(x.shape)}, sfreq={rate}, ch_types='eeg')); "
        "raw.set_annotations(mne.Annotations(onset=[1.0, 2.0], duration=0, description=['left', 'right'])); "
        f"raw.save({target!r}). Then load({target!r}, tmin=0.5, tmax=4.0)."
    )


def _no_snippet(file: Path) -> str:
    target = file.with_suffix(".npz").name
    return (
        "None of these variables looks like epochs or a recording. Read them by scipy.io.loadmat, and write "
        f"np.savez({target!r}, X=..., y=..., sfreq=...) with X (trials, channels, samples), a label for each trial and "
        "the sampling rate in Hz."
    )


def _rate_in(there: Sequence[_Variable]) -> str:
    """The sampling rate in the code above: a variable of the file with a usual name, else dots to replace."""
    rates = (one for one in there if one.name.lower() in _RATES and one.is_number and one.size == 1)
    rate = next(rates, None)
    return "..." if rate is None else f"float({rate.code}.item())"


# ---- opening


def _open(file: Path) -> Any:
    """Epochs or a recording, with its samples in memory."""
    import mne

    if file.suffix.lower() == ".set":
        with opening(file, "SciPy", "an EEGLAB file"):
            expect_structure(file)
    with _damage(file):
        if file.name.removesuffix(".gz").endswith(("-epo.fif", "_epo.fif")):
            return mne.read_epochs(file, verbose="WARNING")
        try:
            return mne.io.read_raw(file, preload=True, verbose="WARNING")
        except Exception as error:
            return _open_epochs(file, error)


def _open_epochs(file: Path, error: Exception) -> Any:
    """Epochs of a format that has both, if it is none of a recording."""
    import mne

    readers = {".fif": mne.read_epochs, ".set": mne.read_epochs_eeglab}
    if file.suffix not in readers:
        raise error
    try:
        return readers[file.suffix](file, verbose="ERROR")  # the name of a file is no fault
    except Exception:
        raise error from None


@contextmanager
def _damage(file: Path) -> Iterator[None]:
    """Turn whatever MNE stumbles over into a DataError, also what it only warns of; other warnings are given again."""
    from mne.utils import catch_logging

    expected, remedy = "a recording for mne.io.read_raw, or epochs", "Copy it again, or convert it."
    with (
        opening(file, "MNE", expected, remedy),
        catch_logging(),  # MNE logs its warnings too, to the standard output
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        yield
    for warning in caught:
        if not issubclass(warning.category, RuntimeWarning) or "naming conventions" in str(warning.message):
            continue  # what MNE says of recordings are RuntimeWarnings
        if any(sign in str(warning.message).lower() for sign in _SIGNS_OF_DAMAGE):
            raise DataError(file, f"{size(file)}: {warning.message}", "a complete recording", "Copy it again.")
        warn_of(file.name, str(warning.message), stacklevel=5, category=MNEDataWarning)


def _is_epochs(found: Any) -> bool:
    import mne

    return isinstance(found, mne.BaseEpochs)


def _expect_channels(file: Path, found: Any, channels: Sequence[str] | None) -> None:
    missing = [name for name in channels or () if name not in found.ch_names]
    if missing:
        raise DataError(file, f"the channels {', '.join(found.ch_names)}", f"also {', '.join(missing)}")


# ---- which events


def _wanted(file: Path, classes: Classes, counts: Mapping[str, int]) -> dict[str, tuple[str, ...]]:
    """Events of each class, all of which occur."""
    wanted: dict[str, tuple[str, ...]]
    if classes is None:
        wanted = {name: (name,) for name, n in counts.items() if n and not _is_boundary(name)}
    elif isinstance(classes, Mapping):
        wanted = {str(name): _several(events) for name, events in classes.items()}
    else:
        wanted = {name: (name,) for name in _several(classes)}
    asked = [event for events in wanted.values() for event in events]
    twice = [event for event, n in Counter(asked).items() if n > 1]
    if twice:
        raise ParameterError(f"classes={classes!r} has the event {twice[0]!r} in two places.")
    absent = [event for event in asked if not counts.get(event)]
    if absent or not asked:
        expected = f"also {', '.join(absent)}" if absent else "some that begin trials"
        raise DataError(file, _listed(counts), expected, f"Name those of each class: {_hint(counts)}")
    return wanted


def _is_boundary(name: str) -> bool:
    """Whether an annotation marks a break or a bad stretch and not an event, also as a comment of BrainVision."""
    return name.removeprefix(_COMMENT).strip().upper().startswith(_NO_TRIALS)


def _hint(counts: Mapping[str, int], window: bool = False) -> str:
    """How to name the classes, in Python and on the command line; what is printed can be pasted."""
    names = [name for name in counts if not _is_boundary(name)][:8] or ["T1", "T2"]
    classes = json.dumps({name: name for name in names}, ensure_ascii=False)
    python = f"{'tmin=0.5, tmax=4.0, ' if window else ''}classes={classes}"
    shell = f"{'--read tmin=0.5 --read tmax=4.0 ' if window else ''}--read {shlex.quote(f'classes={classes}')}"
    return f"load(file, {python}), or on the command line: {shell}"


def _several(events: str | int | Sequence[str | int]) -> tuple[str, ...]:
    return tuple(replace_unsafe(str(event)) for event in ([events] if isinstance(events, str | int) else events))


def _listed(counts: Mapping[str, int]) -> str:
    events = [f"{name} ({n})" for name, n in counts.items()]
    shown = [*events[:40], f"and {len(events) - 40} more"] if len(events) > 40 else events
    return printable("the events " + (", ".join(shown) or "none"))


def _events(raw: mne.io.BaseRaw) -> tuple[Array, list[str]]:
    """Samples of events, and their names: those of the annotations, else of the trigger channel."""
    import mne

    names = sorted(name for name in set(raw.annotations.description.tolist()) if not _is_boundary(name))
    if names:
        codes = {name: code for code, name in enumerate(names)}
        events, _ = mne.events_from_annotations(raw, codes, regexp=None, verbose="ERROR")
        return events[:, 0], [replace_unsafe(names[code]) for code in events[:, 2]]
    if not len(mne.pick_types(raw.info, meg=False, stim=True)):
        return np.empty(0, dtype=int), []
    events = mne.find_events(raw, shortest_event=1, verbose="ERROR")
    return events[:, 0], [str(code) for code in events[:, 2]]


def _mark_bad_comments(raw: mne.io.BaseRaw) -> None:
    """Let MNE know comments of BrainVision that mark bad stretches, which it leaves trials out for."""
    bad = {name for name in raw.annotations.description.tolist() if name.upper().startswith(f"{_COMMENT}BAD".upper())}
    if bad:
        raw.annotations.rename({name: name.removeprefix(_COMMENT) for name in bad})


# ---- cutting


def _cut_recording(
    file: Path, raw: mne.io.BaseRaw, classes: Classes, tmin: float | None, tmax: float | None
) -> mne.Epochs:
    _mark_bad_comments(raw)
    samples, names = _events(raw)
    counts = dict(sorted(Counter(names).items()))
    if tmin is None or tmax is None:
        what, how = f"a recording with {_listed(counts)}", f"As in {_hint(counts, window=True)}"
        raise DataError(file, what, "tmin and tmax, in seconds after them", how)
    wanted = [event for events in _wanted(file, classes, counts).values() for event in events]
    rows = [row for row, name in enumerate(names) if name in wanted]
    codes = [wanted.index(names[row]) + 1 for row in rows]
    epochs = _epochs(
        file, raw, np.column_stack([samples[rows], np.zeros(len(rows), dtype=int), codes]), wanted, tmin, tmax
    )
    _report_dropped(file, epochs, len(rows))
    _report_overlap(file, epochs)
    return epochs


def _stretches(epochs: mne.Epochs) -> Array:
    """The stretch of recording that each window is from: windows that share samples are of one."""
    start = epochs.events[:, 0]
    order = np.argsort(start, kind="stable")
    stretch = np.concatenate([[0], np.cumsum(np.diff(start[order]) >= len(epochs.times))])
    return np.asarray(stretch[np.argsort(order, kind="stable")])


def _report_overlap(file: Path, epochs: mne.Epochs) -> None:
    """Warn of trials that share samples: between training and test that would be a leak."""
    gaps = np.diff(np.sort(epochs.events[:, 0]))
    shared = gaps < len(epochs.times)
    if shared.any():
        warnings.warn(
            f"{file}: {shared.sum() + 1} of {len(epochs)} windows overlap with the next, by up to "
            f"{(len(epochs.times) - gaps.min()) / epochs.info['sfreq']:g} s. Windows that share samples are of one "
            "group, which no split divides; if that leaves too few groups, take a shorter window.",
            DataWarning,
            stacklevel=4,
        )


def _n_times(tmin: float, tmax: float, sfreq: float) -> int:
    """Number of samples in a window."""
    check_number("tmin", tmin)
    check_number("tmax", tmax)
    n_times = round((tmax - tmin) * sfreq)
    if n_times < 1:
        raise ParameterError(f"tmax={tmax} must be above tmin={tmin}, by a sample ({1 / sfreq:g} s) at least.")
    return n_times


def _epochs(
    file: Path, raw: mne.io.BaseRaw, events: Array, names: Sequence[str], tmin: float, tmax: float
) -> mne.Epochs:
    import mne

    sfreq = raw.info["sfreq"]
    n_times, start = _n_times(tmin, tmax, sfreq), round(tmin * sfreq)
    try:
        return mne.Epochs(
            raw,
            events,
            {name: code for code, name in enumerate(names, start=1)},
            tmin=start / sfreq,
            tmax=(start + n_times - 1) / sfreq,  # MNE's end is included
            baseline=None,
            preload=True,
            verbose="ERROR",
        )
    except RuntimeError as error:  # two events at one sample
        raise DataError(file, f"events that MNE cannot cut at ({error})", "one event for each trial") from error


def _report_dropped(file: Path, epochs: mne.Epochs, n: int) -> None:
    reasons = [log for log in epochs.drop_log if log and log != ("IGNORED",)]
    bad = sum(any(reason.upper().startswith("BAD") for reason in log) for log in reasons)
    what = f"{len(reasons)} of {n} trials ({len(reasons) - bad} leave the recording, {bad} overlap a BAD annotation)"
    if not len(epochs):
        raise DataError(file, f"{what} that are of no use", "trials inside the recording")
    if reasons:
        warn_of(file.name, f"{what} are left out.", stacklevel=4)


def _cut_epochs(
    file: Path, epochs: mne.BaseEpochs, classes: Classes, tmin: float | None, tmax: float | None
) -> mne.BaseEpochs:
    epochs.event_id = {replace_unsafe(name): code for name, code in epochs.event_id.items()}
    _wanted(file, classes, {name: int(np.sum(epochs.events[:, 2] == code)) for name, code in epochs.event_id.items()})
    if tmin is None and tmax is None:
        return epochs
    sfreq = epochs.info["sfreq"]
    first, end = epochs.times[0], epochs.times[-1] + 1 / sfreq
    start, stop = first if tmin is None else tmin, end if tmax is None else tmax
    n_times = _n_times(start, stop, sfreq)
    if start < first - 0.5 / sfreq or stop > end + 0.5 / sfreq:
        raise DataError(
            file, f"epochs from {first:g} to {end:g} s", f"all of {start:g} to {stop:g} s", "Change tmin or tmax."
        )
    place = round((start - first) * sfreq)
    last = min(place + n_times, len(epochs.times)) - 1
    return epochs.load_data().crop(epochs.times[place], epochs.times[last], verbose="ERROR")


# ---- trials


def _trials(file: Path, epochs: mne.BaseEpochs, channels: Sequence[str] | None, **whose: Any) -> Trials:
    try:
        return from_mne(epochs, channels=channels, **whose)
    except Exception as error:  # of what MNE read out of a damaged file, too
        what = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
        raise DataError(
            file, f"what does not make trials: {what}", "EEG channels, and trials that are not rejected"
        ) from error


def _regroup(trials: Trials, wanted: Mapping[str, Sequence[str]]) -> Trials:
    """The trials of the events that are wanted, under the names of the classes."""
    number = {event: code for code, events in enumerate(wanted.values()) for event in events}
    kept = trials[np.isin(trials.labels, list(number))]
    return kept.replace(class_names=tuple(wanted), y=np.array([number[label] for label in kept.labels.tolist()]))

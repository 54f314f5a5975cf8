"""Trials out of any file of epochs or of a recording that MNE reads."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gbwatt import checks
from gbwatt.data.files import DataError, expect_complete, opening, size
from gbwatt.data.formats.interchange import from_mne
from gbwatt.data.trials import Trials

if TYPE_CHECKING:
    import mne

Array = NDArray[Any]
Classes = Mapping[str, str | int | Sequence[str | int]] | Sequence[str | int] | None

#: What MNE warns of when a file is shorter than its header says.
_SIGNS_OF_DAMAGE = ("file size", "truncated", "corrupt")
_NO_TRIALS = ("BAD", "EDGE", "BOUNDARY", "NEW SEGMENT")


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
        If the file is not there.
    DataError
        If it is damaged, or does not have what was asked for.
    """
    file = Path(file).expanduser()
    found = _open(file)
    _expect_channels(file, found, channels)
    cut = _cut_epochs if _is_epochs(found) else _cut_recording
    epochs = cut(file, found, classes, tmin, tmax)
    trials = _trials(file, epochs, channels, subject=subject, session=session, run=run)
    if not _is_epochs(found):
        trials = replace(trials, group=_stretches(epochs))
    left = {name: int(np.sum(trials.y == code)) for code, name in enumerate(trials.class_names)}
    return _regroup(trials, _wanted(file, classes, left))


# ---- opening


def _open(file: Path) -> Any:
    """Epochs or a recording, with its samples in memory."""
    import mne

    if file.suffix.lower() in (".edf", ".bdf"):
        expect_complete(file)
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
        warnings.warn(f"{file.name}: {warning.message}", warning.category, stacklevel=5)


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
        wanted = {name: (name,) for name, n in counts.items() if n and not name.upper().startswith(_NO_TRIALS)}
    elif isinstance(classes, Mapping):
        wanted = {str(name): _several(events) for name, events in classes.items()}
    else:
        wanted = {name: (name,) for name in _several(classes)}
    asked = [event for events in wanted.values() for event in events]
    twice = [event for event, n in Counter(asked).items() if n > 1]
    if twice:
        raise checks.ParameterError(f"classes={classes!r} has the event {twice[0]!r} in two places.")
    absent = [event for event in asked if not counts.get(event)]
    if absent or not asked:
        expected = f"also {', '.join(absent)}" if absent else "some that begin trials"
        raise DataError(file, _listed(counts), expected, "Name those of each class: classes={'left': 'T1', ...}.")
    return wanted


def _several(events: str | int | Sequence[str | int]) -> tuple[str, ...]:
    return (str(events),) if isinstance(events, str | int) else tuple(map(str, events))


def _listed(counts: Mapping[str, int]) -> str:
    return "the events " + (", ".join(f"{name} ({n})" for name, n in counts.items()) or "none")


def _events(raw: mne.io.BaseRaw) -> tuple[Array, list[str]]:
    """Samples of events, and their names: those of the annotations, else of the trigger channel."""
    import mne

    names = sorted(set(raw.annotations.description.tolist()))
    if any(not name.upper().startswith(_NO_TRIALS) for name in names):
        codes = {name: code for code, name in enumerate(names)}
        events, _ = mne.events_from_annotations(raw, codes, regexp=None, verbose="ERROR")
        return events[:, 0], [names[code] for code in events[:, 2]]
    if not len(mne.pick_types(raw.info, meg=False, stim=True)):
        return np.empty(0, dtype=int), []
    events = mne.find_events(raw, shortest_event=1, verbose="ERROR")
    return events[:, 0], [str(code) for code in events[:, 2]]


# ---- cutting


def _cut_recording(
    file: Path, raw: mne.io.BaseRaw, classes: Classes, tmin: float | None, tmax: float | None
) -> mne.Epochs:
    samples, names = _events(raw)
    counts = dict(sorted(Counter(names).items()))
    if tmin is None or tmax is None:
        how = "load(file, tmin=0.5, tmax=4.0, classes={'left': 'T1', 'right': 'T2'})"
        raise DataError(
            file, f"a recording with {_listed(counts)}", "tmin and tmax, in seconds after them", f"As in {how}."
        )
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
            stacklevel=4,
        )


def _n_times(tmin: float, tmax: float, sfreq: float) -> int:
    """Number of samples in a window."""
    checks.number("tmin", tmin)
    checks.number("tmax", tmax)
    n_times = round((tmax - tmin) * sfreq)
    if n_times < 1:
        raise checks.ParameterError(f"tmax={tmax} must be above tmin={tmin}, by a sample ({1 / sfreq:g} s) at least.")
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
        warnings.warn(f"{file.name}: {what} are left out.", stacklevel=4)


def _cut_epochs(
    file: Path, epochs: mne.BaseEpochs, classes: Classes, tmin: float | None, tmax: float | None
) -> mne.BaseEpochs:
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
    except checks.InputError as error:
        raise DataError(
            file, f"what does not make trials: {error}", "EEG channels, and trials that are not rejected"
        ) from error


def _regroup(trials: Trials, wanted: Mapping[str, Sequence[str]]) -> Trials:
    """The trials of the events that are wanted, under the names of the classes."""
    number = {event: code for code, events in enumerate(wanted.values()) for event in events}
    kept = trials[np.isin(trials.labels, list(number))]
    return kept.replace(class_names=tuple(wanted), y=np.array([number[label] for label in kept.labels.tolist()]))

"""Trials from epochs or continuous recordings in any format that MNE reads."""

from __future__ import annotations

import json
import shlex
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gbwatt._text import printable, replace_unsafe
from gbwatt._validation import check_number
from gbwatt.data._reading import (
    MNEDataWarning,
    error_text,
    expect_plausible_size,
    naming_file,
    opening,
    size_text,
    warn_about,
)
from gbwatt.data.formats import edf, headers
from gbwatt.data.formats.headers import Channel, check_signals, expect_tags, read_brainvision
from gbwatt.data.formats.interchange import channel_picks, from_mne, make_info, recorded_state, unit_and_scale
from gbwatt.data.formats.matlab import expect_structure, unknown_layout
from gbwatt.data.preprocessing import Preprocessing
from gbwatt.data.preprocessing.streams import resampled_index
from gbwatt.data.trials import UNITS, Frame, Trials
from gbwatt.errors import DataError, NotFiniteError, ParameterError

if TYPE_CHECKING:
    import mne

Array = NDArray[Any]
#: Type of the argument ``classes`` of :func:`read_file`.
Classes = Mapping[str, str | int | Sequence[str | int]] | Sequence[str | int] | None

#: Words in the warnings of MNE about files that are shorter than their header says.
_SIGNS_OF_DAMAGE = ("file size", "truncated", "corrupt")
#: Beginnings of annotations that are not events at which trials are cut.
_BOUNDARIES = ("BAD", "EDGE", "BOUNDARY", "NEW SEGMENT")
_COMMENT = "Comment/"  # prefix that MNE gives to comments of BrainVision recordings


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
    preprocessing: Preprocessing | None = None,
) -> Trials:
    """Read trials from epochs (``-epo.fif``, EEGLAB ``.set``) or a continuous recording in any format that MNE reads.

    Trials of a continuous recording are cut at its annotations, or at the events of its trigger channel if it has no
    annotations.  As in MNE, trials outside the recording or within a BAD annotation are dropped, with a warning.

    Parameters
    ----------
    file : path
    classes : mapping or sequence, optional
        Annotation or event, or several of them, for each class; or names of annotations, which become the class names.
        Default: all annotations but boundaries (BAD, EDGE, boundary, New Segment).
    tmin, tmax : float, optional
        Window in seconds after the event, without its end.  Required for continuous recordings.
    subject, session, run
        Values for all trials, unless the epochs have them as metadata.
    channels : sequence of str, optional
        Channels in this order.  Default: all EEG channels that are not marked as bad.
    preprocessing : Preprocessing, optional
        Steps to apply.  Those that a continuous recording allows are applied to it before trials are cut, see
        :meth:`Preprocessing.divide`.

    Returns
    -------
    Trials

    Raises
    ------
    MissingFileError
        If the file does not exist.
    DataError
        If the file is damaged, or lacks requested events, channels or samples.
    """
    file, origin = Path(file).expanduser(), {"subject": subject, "session": session, "run": run}
    signals = open_signals(file, channels)
    steps = preprocessing or Preprocessing()
    if is_epochs(signals):
        epochs = _crop_epochs(file, signals, classes, tmin, tmax)
        trials, remaining = _to_trials(file, epochs, channels, **origin), steps
    else:
        for_recording, remaining = steps.divide()
        with naming_file(file):
            recording = prepare_recording(signals, channels, for_recording)
        epochs = _cut_recording(file, recording, classes, tmin, tmax)
        trials = _to_trials(file, epochs, None if for_recording.steps else channels, **origin)
        records = (*trials.steps, *for_recording.records())
        trials = replace(trials, group=_overlap_groups(epochs), steps=records)
    with naming_file(file):
        trials = remaining(trials)
    counts = {name: int(np.sum(trials.y == code)) for code, name in enumerate(trials.class_names)}
    return _with_classes(trials, _events_by_class(file, classes, counts))


def open_signals(file: Path, channels: Sequence[str] | None = None) -> Any:
    """Return the epochs or the continuous recording in a file as an object of MNE, after checks of its content."""
    if file.suffix.lower() == ".mat":
        raise unknown_layout(file)
    header = inspect(file)
    signals = _open_with_mne(file)
    _expect_channels(file, signals, channels)
    with opening(file, "MNE", "channels of a known kind"):
        check_signals(file, signals, header, channels)
    return signals


# ---- preprocessing of continuous recordings


def prepare_recording(
    raw: mne.io.BaseRaw, channels: Sequence[str] | None, preprocessing: Preprocessing
) -> mne.io.BaseRaw:
    """Apply steps to a continuous recording; without steps, return it unchanged.

    Parameters
    ----------
    raw : mne.io.BaseRaw
    channels : sequence of str, optional
        Channels to keep, in this order.  Default: all EEG channels that are not marked as bad.
    preprocessing : Preprocessing
        Steps that continuous recordings allow.

    Returns
    -------
    mne.io.RawArray
        The processed channels.  Its annotations are those of ``raw``, or the events of its trigger channel.  The
        filters and the reference in its ``info`` are those of ``raw``, since the steps are recorded separately.
    """
    import mne

    if not preprocessing.steps:
        return raw
    picks = channel_picks(raw, channels)
    unit, scale = unit_and_scale(raw, picks)
    frame = Frame(tuple(raw.ch_names[pick] for pick in picks), float(raw.info["sfreq"]), unit=unit)
    x = raw.get_data(picks=picks)
    _expect_finite(x, frame)
    x, after = preprocessing.transform(x * scale, frame)
    prepared = mne.io.RawArray(
        x.astype(np.float64) * UNITS.get(after.unit, 1.0), make_info(after, recorded_state(raw.info)), verbose="ERROR"
    )
    notes = _relative_annotations(raw)
    if after.sfreq != frame.sfreq:  # the same sample for each event, offline and online
        notes.onset = np.array(
            [resampled_index(t * frame.sfreq, frame.sfreq, after.sfreq) / after.sfreq for t in notes.onset]
        )
    return prepared.set_annotations(notes, verbose="ERROR")


def _expect_finite(x: Array, frame: Frame) -> None:
    """Raise an error, with channel and time, if samples (n_chans, n_samples) of a recording are NaN or infinite."""
    bad = ~np.isfinite(x)
    if bad.any():
        channel = int(np.flatnonzero(bad.any(axis=1))[0])
        first = int(np.flatnonzero(bad[channel])[0]) / frame.sfreq
        raise NotFiniteError(
            f"channel {frame.ch_names[channel]} has NaN or infinite samples, {int(bad[channel].sum())} of "
            f"{x.shape[1]}, first at {first:.3f} s. Repair or cut out this segment, or leave out the channel."
        )


def _relative_annotations(raw: mne.io.BaseRaw) -> mne.Annotations:
    """Return the annotations of a recording with times from its first sample; without events, those of its triggers."""
    import mne

    known = raw.annotations
    offset = 0.0 if known.orig_time is None else raw.first_time
    onset, duration = known.onset - offset, known.duration
    described = known.description.tolist()
    if all(map(_is_boundary, described)):
        samples, names = find_events(raw)
        onset = np.concatenate([onset, (samples - raw.first_samp) / raw.info["sfreq"]])
        duration, described = np.concatenate([duration, np.zeros(len(names))]), [*described, *names]
    return mne.Annotations(onset, duration, described)


# ---- headers


def inspect(file: Path) -> tuple[Channel, ...]:
    """Return the channels in the header of an EDF, BDF, GDF or BrainVision file; none for other formats.

    The header is checked before MNE allocates memory for the samples.
    """
    suffix = file.suffix.lower()
    if suffix in (".edf", ".bdf"):
        header = edf.read_header(file)
        edf.expect_continuous(file, header)
        edf.check_file(file, header, stacklevel=5)
        rates = [channel.rate for channel in header.channels]
        n_bytes = round(len(rates) * max(rates, default=0) * header.seconds * 8)  # MNE interpolates to the highest
        expect_plausible_size(file, n_bytes, "samples at its highest rate")
        return header.channels
    if suffix == ".gdf":
        return headers.read_gdf(file)
    if suffix in (".vhdr", ".ahdr"):
        return read_brainvision(file)
    if suffix == ".fif" and file.is_file():
        expect_tags(file)
    if suffix == ".gz" and file.is_file():
        _expect_unpacked_size(file)
    return ()


def _expect_unpacked_size(file: Path) -> None:
    """Raise an error if the content of a compressed file is much larger than the file."""
    import gzip

    unpacked, block = 0, 1 << 20
    with opening(file, "gzip", "a compressed file"), gzip.open(file) as stream:
        while n_bytes := len(stream.read(block)):
            unpacked += n_bytes
            if not unpacked % (64 * block):
                expect_plausible_size(file, unpacked, "content")


# ---- opening


def _open_with_mne(file: Path) -> Any:
    """Return the epochs or the recording in a file as an object of MNE, with its samples in memory."""
    import mne

    if file.suffix.lower() == ".set":
        with opening(file, "SciPy", "an EEGLAB file"):
            expect_structure(file)
    with _damage_as_error(file):
        if file.name.removesuffix(".gz").endswith(("-epo.fif", "_epo.fif")):
            return mne.read_epochs(file, verbose="WARNING")
        try:
            return mne.io.read_raw(file, preload=True, verbose="WARNING")
        except Exception as error:
            return _open_epochs(file, error)


def _open_epochs(file: Path, error: Exception) -> Any:
    """Return the epochs in a file that could not be read as a recording.

    FIF and EEGLAB files may contain either.  Otherwise ``error``, that of reading a recording, is raised.
    """
    import mne

    readers = {".fif": mne.read_epochs, ".set": mne.read_epochs_eeglab}
    if file.suffix not in readers:
        raise error
    try:
        return readers[file.suffix](file, verbose="ERROR")  # without warnings about the file name
    except Exception:
        raise error from None


@contextmanager
def _damage_as_error(file: Path) -> Iterator[None]:
    """Context manager for reading a file with MNE, which reports damage consistently.

    Errors of MNE, and its warnings about damage, become a :class:`DataError`.  Its other warnings are issued again.
    """
    from mne.utils import catch_logging

    expected, remedy = "a recording for mne.io.read_raw, or epochs", "Copy it again, or convert it."
    with (
        opening(file, "MNE", expected, remedy),
        catch_logging(),  # MNE also logs its warnings, to the standard output
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        yield
    for warning in caught:
        if not issubclass(warning.category, RuntimeWarning) or "naming conventions" in str(warning.message):
            continue  # MNE warns about recordings by RuntimeWarnings
        if any(sign in str(warning.message).lower() for sign in _SIGNS_OF_DAMAGE):
            raise DataError(file, f"{size_text(file)}: {warning.message}", "a complete recording", "Copy it again.")
        warn_about(file.name, str(warning.message), stacklevel=6, category=MNEDataWarning)


def is_epochs(signals: Any) -> bool:
    """Whether an object of MNE contains epochs, not a continuous recording."""
    import mne

    return isinstance(signals, mne.BaseEpochs)


def _expect_channels(file: Path, signals: Any, channels: Sequence[str] | None) -> None:
    """Raise an error unless all requested channels are in the file."""
    missing = [name for name in channels or () if name not in signals.ch_names]
    if missing:
        raise DataError(file, f"the channels {', '.join(signals.ch_names)}", f"also {', '.join(missing)}")


# ---- events


def _events_by_class(file: Path, classes: Classes, counts: Mapping[str, int]) -> dict[str, tuple[str, ...]]:
    """Return the names of the events of each class, from the argument ``classes`` of :func:`read_file`.

    ``counts`` is the number of trials by event; all requested events must occur.
    """
    by_class: dict[str, tuple[str, ...]]
    if classes is None:
        by_class = {name: (name,) for name, n in counts.items() if n and not _is_boundary(name)}
    elif isinstance(classes, Mapping):
        by_class = {str(name): event_names(events) for name, events in classes.items()}
    else:
        by_class = {name: (name,) for name in event_names(classes)}
    requested = [event for events in by_class.values() for event in events]
    twice = [event for event, n in Counter(requested).items() if n > 1]
    if twice:
        raise ParameterError(f"classes={classes!r} contains the event {twice[0]!r} twice.")
    absent = [event for event in requested if not counts.get(event)]
    if absent or not requested:
        wanted = " and ".join(absent) if len(absent) < 3 else ", ".join(absent)
        expected = f"{'also ' * bool(counts)}{wanted}" if absent else "events at which trials begin"
        example = example_call(counts, by_class if isinstance(classes, Mapping) else None)
        remedy = f"Choose the events of each class, for example: {example}"
        raise DataError(file, _event_list(counts), expected, remedy if counts else _WITHOUT_EVENTS)
    return by_class


def _is_boundary(name: str) -> bool:
    """Whether an annotation, or a comment of BrainVision, marks a break or a bad segment and not an event."""
    return name.removeprefix(_COMMENT).strip().upper().startswith(_BOUNDARIES)


#: What can be done with a recording that has no events.
_WITHOUT_EVENTS = (
    "It has neither annotations nor a trigger channel, so that no trials can be cut. To classify its sliding windows: "
    "predict_recordings(model, file, hop=0.5), or on the command line: gbwatt predict MODEL FILE --hop 0.5"
)


def example_call(
    events: Iterable[str], by_class: Mapping[str, Sequence[str]] | None = None, *, window: bool = False
) -> str:
    """Return an example of a call that selects classes, in Python and on the command line, for error messages.

    Classes in ``by_class`` keep those of their events that exist; the others get the last of the remaining events.
    """
    names = [name for name in events if not _is_boundary(name)] or ["T1", "T2"]
    chosen = {name: [event for event in own if event in names] for name, own in (by_class or {}).items()}
    lacking = [name for name, own in chosen.items() if not own]
    free = [name for name in names if not any(name in own for own in chosen.values())]
    chosen |= {name: [event] for name, event in zip(lacking, free[-len(lacking) :], strict=False)}
    examples = {name: own[0] if len(own) == 1 else own for name, own in chosen.items() if own}
    classes = json.dumps(examples or {name: name for name in names[:8]}, ensure_ascii=False)
    python = f"{'tmin=0.5, tmax=4.0, ' if window else ''}classes={classes}"
    shell = f"{'--read tmin=0.5 --read tmax=4.0 ' if window else ''}--read {shlex.quote(f'classes={classes}')}"
    return f"load(file, {python}), or on the command line: {shell}"


def event_names(events: str | int | Sequence[str | int]) -> tuple[str, ...]:
    """Return one event or several as a tuple of names, without unsafe characters."""
    return tuple(replace_unsafe(str(event)) for event in ([events] if isinstance(events, str | int) else events))


def _event_list(counts: Mapping[str, int]) -> str:
    """Return event names and their counts as text for an error message; at most 40 are listed."""
    events = [f"{name} ({n})" for name, n in counts.items()]
    shown = [*events[:40], f"and {len(events) - 40} more"] if len(events) > 40 else events
    return printable(f"the events {', '.join(shown)}" if shown else "no events")


def find_events(raw: mne.io.BaseRaw) -> tuple[Array, list[str]]:
    """Return sample numbers and names of the annotations, or of the events in the trigger channel if there are none.

    Sample numbers count from the start of the acquisition, as in MNE: the first sample of ``raw`` is
    ``raw.first_samp``.
    """
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
    """Remove the prefix of BrainVision comments that mark bad segments, so that MNE drops trials within."""
    bad = {name for name in raw.annotations.description.tolist() if name.upper().startswith(f"{_COMMENT}BAD".upper())}
    if bad:
        raw.annotations.rename({name: name.removeprefix(_COMMENT) for name in bad})


# ---- cutting


def _cut_recording(
    file: Path, raw: mne.io.BaseRaw, classes: Classes, tmin: float | None, tmax: float | None
) -> mne.Epochs:
    """Cut a continuous recording at the events of the classes, from ``tmin`` to ``tmax`` seconds after them."""
    _mark_bad_comments(raw)
    samples, names = find_events(raw)
    counts = dict(sorted(Counter(names).items()))
    if tmin is None or tmax is None:
        found, remedy = f"a recording with {_event_list(counts)}", f"For example: {example_call(counts, window=True)}"
        raise DataError(
            file, found, "tmin and tmax, in seconds after the events", remedy if counts else _WITHOUT_EVENTS
        )
    events = [event for events in _events_by_class(file, classes, counts).values() for event in events]
    rows = [row for row, name in enumerate(names) if name in events]
    codes = [events.index(names[row]) + 1 for row in rows]
    table = np.column_stack([samples[rows], np.zeros(len(rows), dtype=int), codes])
    epochs = _cut_windows(file, raw, table, events, tmin, tmax)
    _report_dropped(file, epochs, len(rows))
    _report_overlap(file, epochs)
    return epochs


def _overlap_groups(epochs: mne.Epochs) -> Array:
    """Return group numbers (n,) of epochs, the same for those that share samples, directly or through others."""
    start = epochs.events[:, 0]
    order = np.argsort(start, kind="stable")
    group = np.concatenate([[0], np.cumsum(np.diff(start[order]) >= len(epochs.times))])
    return np.asarray(group[np.argsort(order, kind="stable")])


def _report_overlap(file: Path, epochs: mne.Epochs) -> None:
    """Warn about trials that share samples; information would leak from training to test data."""
    gaps = np.diff(np.sort(epochs.events[:, 0]))
    shared = gaps < len(epochs.times)
    if shared.any():
        seconds = (len(epochs.times) - gaps.min()) / epochs.info["sfreq"]
        if shared.all():
            closest, length = gaps.min() / epochs.info["sfreq"], len(epochs.times) / epochs.info["sfreq"]
            warn_about(
                file,
                f"all {len(epochs)} windows overlap and form a single group, which no split divides: they have "
                f"{length:g} s, and the events are {closest:g} s apart. Use a shorter window (tmin, tmax).",
                stacklevel=4,
            )
            return
        warn_about(
            file,
            f"{shared.sum() + 1} of {len(epochs)} windows overlap by up to {seconds:g} s. Windows that share samples "
            "form a group, which no split divides; if too few groups are left, use a shorter window.",
            stacklevel=4,
        )


def _window_length(tmin: float, tmax: float, sfreq: float) -> int:
    """Return the number of samples from ``tmin`` to ``tmax``, at least one."""
    check_number("tmin", tmin)
    check_number("tmax", tmax)
    n_times = round((tmax - tmin) * sfreq)
    if n_times < 1:
        raise ParameterError(f"tmax={tmax} must be above tmin={tmin} by at least one sample ({1 / sfreq:g} s).")
    return n_times


def _cut_windows(
    file: Path, raw: mne.io.BaseRaw, events: Array, names: Sequence[str], tmin: float, tmax: float
) -> mne.Epochs:
    """Cut epochs from ``tmin`` to ``tmax`` at events.

    ``events`` (n, 3) are in the format of MNE, with codes from 1 for ``names``.
    """
    import mne

    sfreq = raw.info["sfreq"]
    n_times, start = _window_length(tmin, tmax, sfreq), round(tmin * sfreq)
    try:
        return mne.Epochs(
            raw,
            events,
            {name: code for code, name in enumerate(names, start=1)},
            tmin=start / sfreq,
            tmax=(start + n_times - 1) / sfreq,  # MNE includes the end
            baseline=None,
            preload=True,
            verbose="ERROR",
        )
    except RuntimeError as error:  # two events at one sample
        raise DataError(file, f"events that MNE cannot use ({error})", "one event for each trial") from error


def _report_dropped(file: Path, epochs: mne.Epochs, n: int) -> None:
    """Warn about trials that MNE dropped, of ``n``; raise an error if none is left."""
    reasons = [log for log in epochs.drop_log if log and log != ("IGNORED",)]
    bad = sum(any(reason.upper().startswith("BAD") for reason in log) for log in reasons)
    which = f"{len(reasons)} of {n} trials ({len(reasons) - bad} leave the recording, {bad} overlap a BAD annotation)"
    if not len(epochs):
        raise DataError(file, f"{which} that cannot be used", "trials within the recording")
    if reasons:
        warn_about(file.name, f"{which} are dropped.", stacklevel=4)


def _crop_epochs(
    file: Path, epochs: mne.BaseEpochs, classes: Classes, tmin: float | None, tmax: float | None
) -> mne.BaseEpochs:
    """Crop epochs to the window from ``tmin`` to ``tmax``, which they must contain; check the classes."""
    epochs.event_id = {replace_unsafe(name): code for name, code in epochs.event_id.items()}
    counts = {name: int(np.sum(epochs.events[:, 2] == code)) for name, code in epochs.event_id.items()}
    _events_by_class(file, classes, counts)
    if tmin is None and tmax is None:
        return epochs
    sfreq = epochs.info["sfreq"]
    first, end = epochs.times[0], epochs.times[-1] + 1 / sfreq
    start, stop = first if tmin is None else tmin, end if tmax is None else tmax
    n_times = _window_length(start, stop, sfreq)
    if start < first - 0.5 / sfreq or stop > end + 0.5 / sfreq:
        raise DataError(
            file, f"epochs from {first:g} to {end:g} s", f"all of {start:g} to {stop:g} s", "Change tmin or tmax."
        )
    place = round((start - first) * sfreq)
    last = min(place + n_times, len(epochs.times)) - 1
    return epochs.load_data().crop(epochs.times[place], epochs.times[last], verbose="ERROR")


# ---- trials


def _to_trials(file: Path, epochs: mne.BaseEpochs, channels: Sequence[str] | None, **origin: Any) -> Trials:
    """Convert MNE epochs to trials; ``origin`` is subject, session and run."""
    try:
        return from_mne(epochs, channels=channels, **origin)
    except Exception as error:  # any kind is possible if the file is damaged
        found = f"content that cannot be converted to trials: {error_text(error)}"
        raise DataError(file, found, "EEG channels, and trials that are not rejected") from error


def _with_classes(trials: Trials, by_class: Mapping[str, Sequence[str]]) -> Trials:
    """Select the trials of the events in ``by_class``, and replace the events by the classes.

    Events with other names than their classes are added to the first step of the history, for predictions.
    """
    if any(list(events) != [name] for name, events in by_class.items()):
        first, *steps = trials.steps
        trials = replace(trials, steps=({**first, "events": {k: list(v) for k, v in by_class.items()}}, *steps))
    number = {event: code for code, events in enumerate(by_class.values()) for event in events}
    kept = trials[np.isin(trials.labels, list(number))]
    return kept.replace(class_names=tuple(by_class), y=np.array([number[label] for label in kept.labels.tolist()]))

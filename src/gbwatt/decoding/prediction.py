"""Predictions for unlabelled epochs and continuous recordings."""

from __future__ import annotations

import copy
import csv
import io
import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gbwatt._validation import check_number, check_one_of
from gbwatt.data._reading import check_trials, expect_different, expect_no_folder, naming_file
from gbwatt.data.formats.interchange import RECORDED, from_mne, recorded_state, unit_and_scale
from gbwatt.data.formats.npz import UNLABELLED, read_npz
from gbwatt.data.formats.recordings import event_names, find_events, is_epochs, open_signals, prepare_recording
from gbwatt.data.montage import comparable_name
from gbwatt.data.preprocessing import Crop, Pick, Preprocessing
from gbwatt.data.trials import Frame, Trials, in_order
from gbwatt.decoding.alignment import require_enough
from gbwatt.decoding.inputs import user_stacklevel
from gbwatt.decoding.signal_metadata import Recorded
from gbwatt.errors import DataWarning, InputError, MissingFileError, ParameterError

if TYPE_CHECKING:
    import mne

    from gbwatt.decoding.estimator import EEGDecoder

Array = NDArray[Any]

#: Number of windows that are classified at a time.
BATCH = 256


# -------------------------------------------------------------------------------------------------------------- results


@dataclass(frozen=True, eq=False)
class Predictions:
    """Predicted classes of epochs, or of windows of continuous recordings.

    Attributes
    ----------
    class_names : tuple of str
        Names of the classes, in the order of the columns of ``probabilities``.
    labels : array (n,)
        Predicted labels, as :meth:`EEGDecoder.predict` returns them.
    probabilities : array (n, n_classes)
    recording : array of str (n,)
        File of each window; empty for objects in memory.
    time : array (n,)
        Seconds from the start of the recording to the event, or to the first sample of a sliding window.  NaN for
        epochs whose time is unknown.
    event : array of str (n,)
        Name of the event that the window belongs to; empty for sliding windows and unlabelled epochs.
    bad : array of str (n,)
        Name of a BAD annotation that overlaps the window; empty without one.
    """

    class_names: tuple[str, ...]
    labels: Array
    probabilities: Array
    recording: Array
    time: Array
    event: Array
    bad: Array

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def names(self) -> Array:
        """Names of the predicted classes (n,)."""
        names: Array = np.array(self.class_names)[self.probabilities.argmax(1)]
        return names

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield a dict for each window: recording, time, event, bad, label, and the probability of each class."""
        for number, name in enumerate(self.names.tolist()):
            time = float(self.time[number])
            yield {
                "recording": str(self.recording[number]),
                "time": None if math.isnan(time) else time,
                "event": str(self.event[number]),
                "bad": str(self.bad[number]),
                "label": name,
                **dict(zip(_columns(self.class_names), self.probabilities[number].tolist(), strict=True)),
            }

    def to_csv(self) -> str:
        """Return all rows as the text of a CSV file; times and probabilities have six decimals."""
        content = io.StringIO()
        header = ["recording", "time", "event", "bad", "label", *_columns(self.class_names)]
        writer = csv.DictWriter(content, header, lineterminator="\n")
        writer.writeheader()
        for row in self.rows():
            writer.writerow({name: f"{x:.6f}" if isinstance(x, float) else x for name, x in row.items()})
        return content.getvalue()

    def to_dict(self) -> dict[str, Any]:
        """Return class names and rows as values that JSON keeps."""
        return {"class_names": list(self.class_names), "predictions": list(self.rows())}


def _columns(class_names: Sequence[str]) -> list[str]:
    """Return the names of the columns of probabilities."""
    return [f"p_{name}" for name in class_names]


# -------------------------------------------------------------------------------------------------------------- windows


class _Windows(NamedTuple):
    """Epochs, or windows of a continuous recording, that a model can classify.

    Windows of a recording are copied when they are needed, since those that overlap would take too much memory.
    """

    samples: Array  # (n, n_chans, n_times), or those of the whole recording (n_chans, n_samples)
    starts: Array | None  # first sample of each window in the recording; None for epochs
    n_times: int
    frame: Frame
    later: Preprocessing  # steps that are left to be applied to each window
    steps: tuple[Any, ...]  # history of the windows after these steps
    time: Array
    event: Array
    bad: Array
    groups: Trials | None = None  # epochs that know their subjects and sessions

    def trials(self, rows: Array) -> Trials:
        """Return some of the windows as trials without labels."""
        if self.starts is None:
            x = self.samples[rows]
        else:
            x = np.stack([self.samples[:, start : start + self.n_times] for start in self.starts[rows].tolist()])
        x, frame = self.later.transform(x, self.frame)
        y = np.zeros(len(x), dtype=int)
        return Trials(X=x, y=y, class_names=(UNLABELLED,), **vars(frame), steps=self.steps)


def predict_recordings(
    model: EEGDecoder | str | Path,
    recordings: Any,
    *,
    hop: float | None = None,
    events: str | Sequence[str] | None = None,
    tmin: float | None = None,
    group: Any = None,
) -> Predictions:
    """Predict the classes of unlabelled epochs, or of windows of continuous recordings.

    Recordings are prepared by the steps that the model was trained with.  Channels are matched by name.

    Parameters
    ----------
    model : EEGDecoder or path
        A fitted classifier, or the folder of a saved one.
    recordings : path, mne.io.Raw, mne.Epochs, Trials, or a list of these
        Files are recordings or epochs in a format that MNE reads, or ``.npz`` files, whose ``y`` may be missing.
    hop : float, optional
        Classify sliding windows of continuous recordings, which begin every ``hop`` seconds.
    events : str or sequence of str, optional
        Classify the windows around these annotations, or around those of these classes in training.  Default: around
        the annotations at which the training trials were cut; if the recording has none of them, around all
        annotations except for boundaries (BAD, EDGE, boundary, New Segment), with a warning.
    tmin : float, optional
        Start of the window in seconds after the event; default: as in training.
    group : optional
        Known subject or session of the recordings, for decoders with ``alignment`` or ``domain_norm``.  Default: that
        of Trials and epochs; a continuous recording is a new one, and the decoder is adapted to its windows, which
        need no labels.

    Returns
    -------
    Predictions

    Raises
    ------
    MismatchError
        If a recording differs from the training data in channels, sampling rate, filters, reference or preprocessing.
    ParameterError
        If it is unknown which windows to classify, or how the training data were prepared.

    Examples
    --------
    >>> from gbwatt import GBWAttClassifier
    >>> from gbwatt.data import load
    >>> trials = load("simulated-mi").select(classes=["left hand", "right hand"])
    >>> decoder = GBWAttClassifier(task="mi", max_epochs=2).fit(trials[:60])
    >>> predictions = predict_recordings(decoder, trials[60:70])
    >>> len(predictions), predictions.class_names
    (10, ('left hand', 'right hand'))
    """
    from gbwatt.decoding.evaluation import load_decoder  # which imports the estimator, and that this module

    decoder = load_decoder(model) if isinstance(model, str | Path) else model
    if hop is not None and events is not None:
        raise ParameterError("hop and events exclude each other; give one of them.")
    names = None if events is None else event_names(events)
    if names == ():
        raise ParameterError("events is empty; name the annotations to classify, or leave it out.")
    given = recordings if isinstance(recordings, list | tuple) else [recordings]
    if not given:
        raise ParameterError("recordings is empty; at least one is needed.")
    files = [Path(item).expanduser() for item in given if isinstance(item, str | Path)]
    expect_different(files, "its windows would count twice")
    by_class = _events_of_training(decoder, model)
    recorded = _are_recorded(by_class, model)
    parts = []
    for item in given:
        with _naming(item):
            request = _Request(hop, names, tmin, by_class, recorded, _file_name(item))
            windows = _windows_of(decoder, item, request)
            parts.append(_predict_windows(decoder, item, windows, group))
    fields = ("labels", "probabilities", "recording", "time", "event", "bad")
    return Predictions(decoder.class_names_, *(np.concatenate([getattr(p, name) for p in parts]) for name in fields))


class _Request(NamedTuple):
    """Which windows of recordings to classify."""

    hop: float | None
    events: Sequence[str] | None
    tmin: float | None
    by_class: Mapping[str, tuple[str, ...]]  # events of each class in training
    recorded: bool  # whether these events are recorded, and not only assumed to have the names of the classes
    file: str  # name of the file for warnings; empty for objects in memory


def _events_of_training(decoder: EEGDecoder, model: Any) -> dict[str, tuple[str, ...]]:
    """Return the events at which the trials of each class were cut, from their history or the record of a saved model.

    Where neither says it, each class is an event of its name.
    """
    from gbwatt.decoding.training_record import TrainingRecord

    by_class: dict[str, tuple[str, ...]] = {name: (name,) for name in decoder.class_names_}
    if decoder.recorded_ is not None:
        by_class |= decoder.recorded_.events
    if isinstance(model, str | Path):
        with suppress(InputError):  # a damaged record does not prevent predictions
            record = TrainingRecord.read(model)
            classes = (record.reading or {}).get("classes") if record is not None else None
            if isinstance(classes, Mapping):
                by_class |= {str(name): event_names(events) for name, events in classes.items()}
    return by_class


#: Remedies in errors about arrays that do not apply to files.
_FOR_ARRAYS = re.compile(
    r",? or give the plain array to skip this check| If (the header of '[^']*' is wrong|"
    r"the reference is the same and the header does not say so), give the plain array\."
)
_FILTER_FIRST = re.compile(r"filter the recording of 'X' as .* before cutting epochs\.")


def _naming(recording: Any) -> AbstractContextManager[None]:
    """Context manager in which errors of this package name the file, if the recording is one."""
    file = _file_name(recording)

    def for_file(text: str) -> str:
        """Return the text of an error about arrays as one about the file."""
        text = _FILTER_FIRST.sub("give the unfiltered recording, which is filtered as in training.", text)
        return _FOR_ARRAYS.sub("", text).replace("'X'", file)

    return naming_file(file, for_file) if file else nullcontext()


def _file_name(recording: Any) -> str:
    """Return the name of a file; empty for objects in memory."""
    return str(recording) if isinstance(recording, str | Path) else ""


def _are_recorded(by_class: Mapping[str, tuple[str, ...]], model: Any) -> bool:
    """Return whether the events of the classes are those of the training, and not only assumed."""
    from gbwatt.decoding.training_record import TrainingRecord

    if any(events != (name,) for name, events in by_class.items()):
        return True
    record = None
    if isinstance(model, str | Path):
        with suppress(InputError):
            record = TrainingRecord.read(model)
    return record is not None and record.split is not None


def is_recording(X: Any) -> bool:
    """Return whether ``X`` is a file or a continuous recording of MNE, and not epochs."""
    return isinstance(X, str | Path) or hasattr(X, "first_samp")


def has_recordings(X: Any) -> bool:
    """Return whether ``X`` is a file or a continuous recording of MNE, or a list with one."""
    return is_recording(X) or (isinstance(X, list | tuple) and any(map(is_recording, X)))


def _predict_windows(decoder: EEGDecoder, recording: Any, windows: _Windows, group: Any) -> Predictions:
    """Classify the windows of a recording, some at a time."""
    n, groups = len(windows.time), None
    if not n:
        raise ParameterError("there are no trials to classify.")
    if decoder.domains_ is not None:
        groups = _groups_of(decoder, recording, windows, group)
        decoder = _adapted(decoder, windows, groups)
    batches = []
    for start in range(0, n, BATCH):
        rows = np.arange(start, min(start + BATCH, n))
        if not start:
            check_trials(recording if isinstance(recording, str | Path) else "the recording", windows.trials(rows), 5)
        with warnings.catch_warnings():
            if start:  # the first windows have been compared with the training data
                warnings.simplefilter("ignore")
            own = None if groups is None else groups[rows]
            batches.append(decoder.predict_proba(windows.trials(rows), groups=own))
    probabilities = np.concatenate(batches)
    return Predictions(
        decoder.class_names_,
        decoder.classes_[probabilities.argmax(1)],
        probabilities,
        np.full(n, _file_name(recording)),
        windows.time,
        windows.event,
        windows.bad,
    )


def _groups_of(decoder: EEGDecoder, recording: Any, windows: _Windows, group: Any) -> Array:
    """Return the domain of each window (n,): the given one, that of the trials, or the recording as a new one."""
    assert decoder.domains_ is not None  # the caller checks this
    if group is not None:
        check_one_of("group", str(group), tuple(map(str, decoder.domains_.names)))
        known = next(name for name in decoder.domains_.names if str(name) == str(group))
        return np.full(len(windows.time), known)
    if windows.groups is not None:
        return decoder.domains_.names_of(windows.groups)
    return np.full(len(windows.time), f"recording {recording}")


def _adapted(decoder: EEGDecoder, windows: _Windows, groups: Array) -> EEGDecoder:
    """Return a decoder that knows the domains of all windows; new ones are estimated from up to ``BATCH`` windows."""
    assert decoder.domains_ is not None  # the caller checks this
    adapted = None
    for name in in_order(groups[decoder.domains_.unknown(groups)]):
        rows = np.flatnonzero(groups == name)
        rows = rows[np.linspace(0, len(rows) - 1, min(len(rows), BATCH)).astype(int)]
        adapted, trials = adapted or copy.deepcopy(decoder), windows.trials(rows)
        require_enough(trials.X, name, _remedy_for_few(decoder, windows))
        adapted.adapt(trials, groups=groups[rows])
    return adapted or decoder


def _remedy_for_few(decoder: EEGDecoder, windows: _Windows) -> str:
    """Return what to do if the windows are too few to adapt to a new domain."""
    assert decoder.domains_ is not None  # the caller checks this
    more = "more epochs" if windows.starts is None else "more windows, such as sliding ones (hop=0.5, --hop 0.5)"
    known = [name for name in decoder.domains_.names if name is not None]
    if not known:
        return f"Classify {more}."
    all_names = f"; known are {', '.join(map(str, known))}" if len(known) > 1 else ""
    group = f"group={known[0]!r} (--group {known[0]}){all_names}"
    return f"Classify {more}, or give the {decoder.domains_.by} if it was in the training: {group}."


def _windows_of(decoder: EEGDecoder, recording: Any, request: _Request) -> _Windows:
    """Return the windows of a file or an object that :func:`predict_recordings` accepts."""
    signals = open_recording(recording) if isinstance(recording, str | Path) else recording
    if request.hop is not None and (isinstance(signals, Trials) or is_epochs(signals)):
        raise ParameterError(f"hop={request.hop:g} is for continuous recordings, but these are epochs; leave it out.")
    if isinstance(signals, Trials):
        return _windows_of_trials(signals, decoder.recorded_, np.full(len(signals), np.nan))
    if is_recording(signals):
        if decoder.recorded_ is None:
            raise ParameterError(
                "The model was trained on arrays, so the channels of its training data are unknown; cut the recording "
                "and pass arrays, or train on Trials, mne.Epochs or files."
            )
        n_times = decoder.signal_.n_times
        if request.hop is not None:
            return _sliding_windows(signals, decoder.recorded_, n_times, request.hop)
        return _event_windows(signals, decoder.recorded_, n_times, request)
    if is_epochs(signals):
        kept = signals.copy().drop_bad(verbose="ERROR")
        return _windows_of_trials(from_mne(kept), decoder.recorded_, kept.events[:, 0] / kept.info["sfreq"])
    raise ParameterError(
        f"recordings has a {type(signals).__name__}; a path, mne.io.Raw, mne.Epochs or Trials is needed.  For arrays "
        "use decoder.predict."
    )


def open_recording(file: str | Path) -> Any:
    """Return the content of a file: Trials of an ``.npz`` file, or an object of MNE."""
    path = Path(file).expanduser()
    if not path.exists():
        raise MissingFileError(f"{path} does not exist.")
    expect_no_folder(path)
    return read_npz(path, labelled=False) if path.suffix == ".npz" else open_signals(path)


def _windows_of_trials(trials: Trials, trained: Recorded | None, time: Array) -> _Windows:
    """Return trials as windows, prepared like the training data unless they already are."""
    prepared = trials if trained is None else _prepare_trials(trials, trained)
    none = np.full(len(trials), "")
    return _Windows(
        prepared.X,
        starts=None,
        n_times=prepared.shape[2],
        frame=prepared.frame,
        later=Preprocessing(),
        steps=prepared.steps,
        time=time,
        event=none if trials.class_names == (UNLABELLED,) else trials.labels,
        bad=none,
        groups=trials,
    )


def _prepare_trials(trials: Trials, trained: Recorded) -> Trials:
    """Apply the steps of the training data to trials, unless their history has the same steps."""
    if trained.prepared_like(Recorded.of(trials)):
        return trials
    steps = trained.preprocessing
    try:
        return steps(trials)
    except InputError as error:
        raise ParameterError(
            f"The epochs cannot be prepared like the training data: {error}\nIf they already are, save them with "
            "gbwatt.data.write_npz, which keeps their history, or pass the array to decoder.predict."
        ) from error


# ------------------------------------------------------------------------------------------------ continuous recordings


def _sliding_windows(raw: mne.io.BaseRaw, trained: Recorded, n_times: int, hop: float) -> _Windows:
    """Return windows of a recording that begin every ``hop`` seconds."""
    prepared = _prepare(raw, trained)
    sfreq, n_samples = float(prepared.info["sfreq"]), prepared.n_times
    check_number("hop", hop)
    if not hop * sfreq >= 1:
        raise ParameterError(f"hop={hop:g} s must be at least one sample, {1 / sfreq:g} s.")
    if n_samples < n_times:
        raise ParameterError(
            f"the recording has {n_samples / sfreq:g} s, but the windows of the model have {n_times / sfreq:g} s; "
            "pass a longer recording."
        )
    n = math.floor((n_samples - n_times) / (hop * sfreq)) + 1
    starts = np.round(np.arange(n) * hop * sfreq).astype(np.int64)
    return _windows_at(prepared, trained, n_times, starts, starts / sfreq, np.full(n, ""))


def _event_windows(raw: mne.io.BaseRaw, trained: Recorded, n_times: int, request: _Request) -> _Windows:
    """Return windows of a recording around the requested annotations."""
    tmin = trained.tmin if request.tmin is None else request.tmin
    if tmin is None:
        raise ParameterError("tmin: the model does not record where its windows begin; give tmin in seconds.")
    prepared = _prepare(raw, trained)
    sfreq = float(prepared.info["sfreq"])
    samples, names = find_events(prepared)
    if not names:
        raise ParameterError("The recording has no events; classify sliding windows: hop=0.5, or --hop 0.5.")
    events = _chosen_events(names, request)
    onsets = samples - prepared.first_samp
    starts = onsets + round(tmin * sfreq)
    inside = (starts >= 0) & (starts + n_times <= prepared.n_times)
    wanted = np.isin(names, events)
    if left_out := int((wanted & ~inside).sum()):
        _warn_of_incomplete_windows(left_out, int(wanted.sum()), request.file)
    rows = np.flatnonzero(wanted & inside)
    return _windows_at(prepared, trained, n_times, starts[rows], onsets[rows] / sfreq, np.array(names)[rows])


def _chosen_events(names: Sequence[str], request: _Request) -> list[str]:
    """Return the names of the events to classify, of those in a recording; classes stand for their events."""
    present = tuple(dict.fromkeys(names))
    of_training = [event for events in request.by_class.values() for event in events if event in present]
    if request.events is None:
        if request.recorded and not of_training:
            _warn_of_other_events(present, request)
        return of_training or list(present)
    chosen: list[str] = []
    for name in request.events:
        of_class = [event for event in request.by_class.get(name, ()) if event in present]
        if name not in present and name in request.by_class and not of_class:
            raise ParameterError(
                f"events={name!r} is a class of the model, not an annotation; the recording has the annotations "
                f"{_quoted(present)}: give those to classify (--event)."
            )
        if name not in present and not of_class:
            check_one_of("events", name, present)
        chosen += [name] if name in present else of_class
    return chosen


def _warn_of_other_events(present: Sequence[str], request: _Request) -> None:
    """Warn that a recording has none of the annotations of the training, so that all are used."""
    trained = [event for events in request.by_class.values() for event in events]
    _warn(
        request.file,
        f"the recording has none of the annotations of the training, {_quoted(trained)}. The windows around all its "
        f"annotations are classified: {_quoted(present)}; select some of them by events (--event).",
    )


def _quoted(names: Sequence[str]) -> str:
    """Return names in quotation marks as text for messages."""
    return ", ".join(map(repr, names))


def _warn_of_incomplete_windows(left_out: int, n: int, file: str) -> None:
    """Warn about windows that leave the recording; raise an error if all do."""
    if left_out == n:
        which = "the only window leaves" if n == 1 else f"all {n} windows leave"
        raise ParameterError(f"{which} the recording; check tmin, or pass a longer recording.")
    _warn(file, f"{left_out} of {n} windows leave the recording and are left out.")


def _warn(file: str, problem: str) -> None:
    """Issue a DataWarning about a recording, which names its file."""
    warnings.warn(f"{file and f'{file}: '}{problem}", DataWarning, stacklevel=user_stacklevel())


def _prepare(raw: mne.io.BaseRaw, trained: Recorded) -> mne.io.BaseRaw:
    """Apply the steps of the training data to a continuous recording, and select the channels of the model."""
    steps, _ = steps_for_recordings(trained)
    _expect_channels(raw, next(step.channels for step in steps.steps if isinstance(step, Pick)))
    return prepare_recording(raw, None, steps)


def steps_for_recordings(trained: Recorded) -> tuple[Preprocessing, Preprocessing]:
    """Return the steps that prepare a recording like the training data, and those for windows cut from it.

    The former select the channels of the model, if the training data were not prepared by a selection.
    """
    for_recording, for_trials = trained.preprocessing.divide()
    if not any(isinstance(step, Pick) for step in for_recording.steps):
        for_recording = Preprocessing(Pick(trained.ch_names)) + for_recording
    return for_recording, Preprocessing(*(step for step in for_trials.steps if not isinstance(step, Crop)))


def _expect_channels(raw: mne.io.BaseRaw, needed: Sequence[str]) -> None:
    """Raise an error for channels of the model that the recording does not have or marks as bad."""
    bad = {comparable_name(name) for name in raw.info["bads"]}
    marked = [name for name in needed if comparable_name(name) in bad]
    if marked:
        what = "it" if len(marked) == 1 else "them"
        raise ParameterError(
            f"{', '.join(marked)}: marked as bad in the file, but the model needs {what}; interpolate {what} in MNE "
            f"(raw.interpolate_bads()), or train without {what}."
        )
    good = {comparable_name(name) for name in raw.ch_names}
    missing = [name for name in needed if comparable_name(name) not in good]
    if missing:
        raise ParameterError(
            f"channels: {', '.join(missing)} not found among the {len(raw.ch_names)}: {', '.join(raw.ch_names)}. The "
            f"model was trained with {', '.join(needed)}."
        )


def _windows_at(
    prepared: mne.io.BaseRaw, trained: Recorded, n_times: int, starts: Array, time: Array, event: Array
) -> _Windows:
    """Return the windows of a prepared recording that begin at the samples ``starts``."""
    unit, scale = unit_and_scale(prepared, range(len(prepared.ch_names)))
    recorded = {"step": RECORDED, **recorded_state(prepared.info)}
    return _Windows(
        (prepared.get_data() * scale).astype(np.float32),
        starts=starts,
        n_times=n_times,
        frame=Frame(tuple(prepared.ch_names), float(prepared.info["sfreq"]), trained.tmin or 0.0, unit),
        later=steps_for_recordings(trained)[1],
        steps=(recorded, *trained.preprocessing.records()),
        time=time,
        event=event,
        bad=_bad_segments(prepared, starts, n_times),
    )


def _bad_segments(prepared: mne.io.BaseRaw, starts: Array, n_times: int) -> Array:
    """Return for each window the name of the first BAD annotation that overlaps it; empty without one."""
    names = np.full(len(starts), "", dtype=object)
    sfreq = float(prepared.info["sfreq"])
    for mark in reversed(list(prepared.annotations)):
        if mark["description"].upper().startswith("BAD"):
            first, end = mark["onset"] * sfreq, (mark["onset"] + mark["duration"]) * sfreq
            names[(starts < end) & (starts + n_times > first)] = mark["description"]
    return names

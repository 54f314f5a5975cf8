"""MAMEM EEG SSVEP Dataset II: five boxes flicker simultaneously, and the subject looks at one of them.

Eleven subjects, five sessions of 25 stimulations of five seconds.  The trials of the paper are the four seconds from 1
to 5 s after the onset, one trial each, at 125 Hz in eight occipital channels; those of a stimulation form a group.
The paper states the seconds, the frequencies and, by the sizes of its model, eight channels and 125 samples.  It does
not state the electrodes, the filter, the reference or the method of resampling.  For the raw files, the electrodes
nearest to PO7, PO3, POz, PO4, PO8, O1, Oz and O2, a pass band of 1 to 50 Hz and the reference of the recording are our
choice, so that trials are similar to the processed ones but not equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbwatt.data._reading import cut, expect_finite, expect_labels, expect_shape
from gbwatt.data.datasets import Dataset, DatasetSource
from gbwatt.data.formats.matlab import read_mat
from gbwatt.data.formats.moabb import open_dataset, stimuli
from gbwatt.data.preprocessing import BandPass, Crop, Preprocessing, Resample
from gbwatt.data.splits import BySession
from gbwatt.data.trials import Trials, concatenate
from gbwatt.errors import DataError, ParameterError

Array = NDArray[Any]

NAME = "mamem-ssvep-ii"

#: Frequencies in Hz in the order of the classes.  Raw labels are assumed to number them from 1: the authors document
#: this order for Dataset III, whose sequence of labels is that of the processed files here plus one, and their spectra
#: agree with it.  MOABB's MAMEM2 has the same numbers but the reverse names (1 is 6.66 Hz), which are not used.
FREQUENCIES = (12.0, 10.0, 8.57, 7.5, 6.66)
CLASS_NAMES = tuple(f"{frequency:g} Hz" for frequency in FREQUENCIES)

#: Electrodes of the 256-channel net nearest to the 10-20 positions, by direction from the centre of the head and on
#: the same side.
ELECTRODES: Mapping[str, str] = {
    "PO7": "E107",
    "PO3": "E109",
    "POz": "E119",
    "PO4": "E140",
    "PO8": "E160",
    "O1": "E116",
    "Oz": "E126",
    "O2": "E150",
}

#: The processed files do not name their channels, which are occipital in unknown order.
PROCESSED_CHANNELS = tuple(f"occipital {number}" for number in range(1, 9))

SESSIONS = ("1", "2", "3", "4", "5")
SEGMENTS = 4  # trials of one second from each stimulation
TRIALS = (5, 5, 6, 5, 4)  # stimulations of each class in a session
SFREQ = 250.0  # of the raw files

#: Window in seconds after the beginning of a segment, and the margin on both sides that a filter from 1 Hz needs.
WINDOW, MARGIN = (0.0, 1.0), 2.0

_MIN_PAUSE = 2000.0  # ms without a flash between two stimulations
_MIN_DURATION = 1.5  # s of a stimulation; shorter flicker is ignored
_FREQUENCY_TOLERANCE = 0.05  # relative error of a measured frequency; the five differ by at least 11 %


# ---- processed files


def read_processed(files: Sequence[Path], subject: int) -> Trials:
    """Read ``U001.mat``: ``x_test`` (500, 8, 125) and ``y_test`` (500, 1), sessions in order.

    The file does not state the unit, which is assumed to be µV.
    """
    (file,) = files
    content = read_mat(file, "x_test", "y_test")
    n = len(SESSIONS) * SEGMENTS * sum(TRIALS)
    expect_shape(file, "x_test", content["x_test"], (n, len(PROCESSED_CHANNELS), 125))
    y = expect_labels(file, content["y_test"], n, range(len(FREQUENCIES)))
    _expect_equal_labels(file, y)
    _expect_counts(file, y)
    expect_finite(file, content["x_test"], PROCESSED_CHANNELS)
    session = np.repeat(SESSIONS, n // len(SESSIONS))
    return Trials(
        X=content["x_test"],
        y=y,
        class_names=CLASS_NAMES,
        ch_names=PROCESSED_CHANNELS,
        sfreq=125.0,
        subject=np.array(subject),
        session=session,
        run=session,
        group=np.arange(n) // SEGMENTS,
        dataset=NAME,
    )


def _expect_equal_labels(file: Path, y: Array) -> None:
    """Raise an error unless the four segments of each stimulation have the same label."""
    by_stimulation = y.reshape(-1, SEGMENTS)
    mixed = np.flatnonzero((by_stimulation != by_stimulation[:, :1]).any(axis=1))
    if mixed.size:
        first = int(mixed[0]) * SEGMENTS
        raise DataError(
            file,
            f"labels {', '.join(map(str, by_stimulation[mixed[0]]))} in rows {first} to {first + SEGMENTS - 1}",
            "one label for the four segments of a stimulation",
            "The rows may have been shuffled, so that sessions cannot be separated.",
        )


def _expect_counts(file: Path, y: Array) -> None:
    """Raise an error unless every session has the known number of segments of each class."""
    expected = [SEGMENTS * n for n in TRIALS]
    for session, labels in zip(SESSIONS, y.reshape(len(SESSIONS), -1), strict=True):
        counts = np.bincount(labels, minlength=len(TRIALS)).tolist()
        if counts != expected:
            raise DataError(
                file,
                f"{'/'.join(map(str, counts))} segments with labels 0 to 4 in session {session}",
                f"{'/'.join(map(str, expected))}, as in every session of Dataset II",
                "Copy it again.",
            )


# ---- raw files


def read_raw(files: Sequence[Path], subject: int) -> Trials:
    """Read ``T001a.mat`` to ``T001e.mat``: ``eeg`` (256 or 257, n) at 250 Hz, ``DIN_1`` (4, m) and ``labels``.

    ``DIN_1`` has a column for each flash, with its time in ms in the second row and its sample number, from 1, in the
    fourth.  Trials (500, 8, 1250) include margins of 2 s on both sides.  The files do not state the unit, which is
    assumed to be µV, as in MOABB.
    """
    return concatenate([_read_session(file, subject, session) for file, session in zip(files, SESSIONS, strict=True)])


def _read_session(file: Path, subject: int, session: str) -> Trials:
    """Read the trials (100, 8, 1250) of a session, with margins, from a raw file."""
    content = read_mat(file, "eeg", "DIN_1", "labels")
    eeg, flashes = content["eeg"], content["DIN_1"]
    if eeg.ndim != 2 or eeg.shape[0] not in (256, 257):
        raise DataError(file, f"eeg of shape {eeg.shape}", "(257, n): the 256 electrodes of the net and the reference")
    if flashes.ndim != 2 or flashes.shape[0] < 4 or not flashes.size:
        raise DataError(file, f"DIN_1 of shape {flashes.shape}", "(4, n): name, time, duration and sample of n flashes")
    times = _cell_numbers(file, "DIN_1", flashes[1])
    samples = _cell_numbers(file, "DIN_1", flashes[3]).astype(int) - 1
    stimulations = _find_stimulations(times, samples)
    codes = _expect_session_labels(file, _cell_numbers(file, "labels", content["labels"]), len(stimulations))
    _expect_labelled_frequencies(file, codes, [times[rows] for rows in stimulations])
    rows = [int(name[1:]) - 1 for name in ELECTRODES.values()]
    return _cut_segments(file, eeg[rows], [int(samples[rows.start]) for rows in stimulations], codes, subject, session)


def _cell_numbers(file: Path, name: str, cells: Array) -> Array:
    """Return the numbers in a MATLAB cell array or matrix as a vector; ``name`` is that of the variable."""
    try:
        return np.array([np.asarray(cell).item() for cell in cells.ravel()], dtype=float)
    except (TypeError, ValueError):
        raise DataError(file, f"a cell of {name} that is not a number", "one number in each cell") from None


def _find_stimulations(times: Array, samples: Array) -> list[slice]:
    """Divide the flashes of a session into stimulations, at pauses; return a slice for each one longer than 1.5 s.

    ``times`` in ms and ``samples`` are those of all flashes.
    """
    edges = [0, *(np.flatnonzero(np.diff(times) > _MIN_PAUSE) + 1), len(times)]
    bursts = [slice(int(start), int(stop)) for start, stop in pairwise(edges)]
    return [rows for rows in bursts if samples[rows.stop - 1] - samples[rows.start] > _MIN_DURATION * SFREQ]


def _expect_session_labels(file: Path, labels: Array, n: int) -> Array:
    """Return the labels 1 to 5 of the ``n`` stimulations of a session.

    Their counts, which must be the known ones, confirm that the labels number the frequencies from 12 Hz down.
    """
    if n != sum(TRIALS):
        raise DataError(file, f"{n} stimulations", f"{sum(TRIALS)} in a session", "The file may be truncated.")
    codes = expect_labels(file, labels, n, range(1, len(FREQUENCIES) + 1))
    counts = tuple(np.bincount(codes, minlength=len(FREQUENCIES) + 1)[1:].tolist())
    if counts != TRIALS:
        raise DataError(
            file,
            f"{'/'.join(map(str, counts))} stimulations with labels 1 to 5",
            f"{'/'.join(map(str, TRIALS))}, as in every session of Dataset II",
            "It may be another data set of MAMEM, or use another order of frequencies.",
        )
    return codes


def _expect_labelled_frequencies(file: Path, codes: Array, times: Sequence[Array]) -> None:
    """Raise an error if the flashes of a stimulation have another frequency than its label says.

    ``codes`` are the labels 1 to 5 of the stimulations, and ``times`` the times in ms of the flashes of each.  All
    boxes flicker simultaneously.  If the flashes of the session do not include all five frequencies, they are not those
    of the target, and nothing is compared.  Stimulations at other frequencies are not compared either.
    """
    measured = [_frequency_index(flashes) for flashes in times]
    if {place for place in measured if place is not None} != set(range(len(FREQUENCIES))):
        return
    for number, (place, code) in enumerate(zip(measured, codes, strict=True)):
        if place is not None and place != code - 1:
            raise DataError(
                file,
                f"flashes at {FREQUENCIES[place]:g} Hz in stimulation {number}, which has label {code}",
                f"{FREQUENCIES[code - 1]:g} Hz for that label",
                "The labels may belong to another session.",
            )


def _frequency_index(times: Array) -> int | None:
    """Return the index in ``FREQUENCIES`` of the frequency of flicker; None if it is another frequency.

    ``times`` are those of the flashes in ms, two per period.
    """
    frequency = 1000.0 / (2.0 * np.diff(times).mean())
    ratio = np.abs(frequency / np.array(FREQUENCIES) - 1.0)
    return int(ratio.argmin()) if ratio.min() < _FREQUENCY_TOLERANCE else None


def _cut_segments(file: Path, data: Array, onsets: Sequence[int], codes: Array, subject: int, session: str) -> Trials:
    """Cut four trials of one second from each stimulation, with margins.

    ``data`` has eight channels at 250 Hz, ``onsets`` are sample numbers of stimulations, and ``codes`` their labels 1
    to 5.
    """
    starts = [onset + round(second * SFREQ) for onset in onsets for second in range(1, 1 + SEGMENTS)]
    x = cut(file, data, starts, SFREQ, WINDOW, MARGIN)
    expect_finite(file, x, tuple(ELECTRODES))
    return Trials(
        X=x,
        y=np.repeat(codes - 1, SEGMENTS),
        class_names=CLASS_NAMES,
        ch_names=tuple(ELECTRODES),
        sfreq=SFREQ,
        tmin=WINDOW[0] - MARGIN,
        subject=np.array(subject),
        session=np.array(session),
        run=np.array(session),
        group=np.arange(len(x)) // SEGMENTS,
        dataset=NAME,
    )


# ---- MOABB


def read_moabb(files: Sequence[Path], subject: int) -> Trials:
    """Read the trials of :func:`read_raw` through MOABB's ``MAMEM2``, which downloads missing files.

    It calls the five sessions runs, and lacks subject 11, whose files are numbered 13.
    """
    del files  # MOABB finds its files itself
    if subject == 11:
        raise ParameterError(
            "subject=11 is not in MOABB's MAMEM2, which looks for its files under another number; "
            "use source='processed' or source='raw'."
        )
    return from_moabb(open_dataset("MAMEM2"), subject)


def from_moabb(dataset: Any, subject: int) -> Trials:
    """Read the trials of a subject from MOABB's ``MAMEM2``."""
    place = Path(f"MOABB MAMEM2, subject {subject}")
    runs = {name: raw for session in dataset.get_data([subject])[subject].values() for name, raw in session.items()}
    expected = dict(zip(("0", "1", "2", "3", "4"), SESSIONS, strict=True))
    if set(runs) != set(expected):
        raise DataError(place, f"the runs {', '.join(runs) or 'none'}", f"the runs {', '.join(expected)}")
    return concatenate(
        [_read_moabb_run(place / f"run {run}", runs[run], subject, session) for run, session in expected.items()]
    )


def _read_moabb_run(file: Path, raw: Any, subject: int, session: str) -> Trials:
    """Return the trials (100, 8, 1250) of a session, a recording that MOABB has read."""
    labels, marks = stimuli(raw)
    codes = _expect_session_labels(file, labels, len(marks))
    data = raw.get_data(picks=list(ELECTRODES.values())) * 1e6  # V to µV
    onsets = [int(mark) - 1 for mark in marks]  # MOABB uses the sample numbers, which begin with 1, unchanged
    return _cut_segments(file, data, onsets, codes, subject, session)


# ---- the data set


def _raw_files(subject: int) -> tuple[str, ...]:
    """Return the names of the files that :func:`read_raw` needs."""
    number = 13 if subject == 11 else subject  # as the authors numbered them
    return tuple(f"T{number:03d}{letter}.mat" for letter in "abcde")


#: From raw trials to the input of the paper.
_PREPROCESSING = Preprocessing(BandPass(1.0, 50.0), Resample(125.0), Crop(*WINDOW))

DATASET = Dataset(
    name=NAME,
    title="MAMEM EEG SSVEP Dataset II",
    subjects=tuple(range(1, 12)),
    sources=(
        DatasetSource("raw", read_raw, _raw_files, _PREPROCESSING),
        DatasetSource("processed", read_processed, lambda subject: (f"U{subject:03d}.mat",)),
        DatasetSource("moabb", read_moabb, preprocessing=_PREPROCESSING, downloads=True),
    ),
    protocol=BySession(),
    task="ssvep",
    pipeline="cca",
    folder="mamem",
    where="https://doi.org/10.6084/m9.figshare.3153409 (raw: T001a.mat to T013e.mat), ODC-By 1.0",
)

"""PhysioNet's EEG Motor Movement/Imagery database: imagined movements of fists and feet.

109 subjects, one session each; 64 EEG electrodes, 160 Hz.  Only runs with imagery are read: 4, 8 and 12 (left or right
fist) and 6, 10 and 14 (both fists or both feet), with about 15 trials each.  Since hands and feet are in different runs
of a single session, the protocol leaves out rounds of two runs.  ``physionet-lr`` consists of the runs with left and
right fist only: two classes, about 45 trials.

The preset selects the 22 electrodes and 438 samples of BCIC-IV-2a, for which the paper's motor imagery network was
designed.

Compact files have these electrodes only, in whole µV, and end 4 s after the cue, without a margin for the filter, which
continues them by an odd reflection.  Compared with the trials of the EDF files, those of the preset differ by about 1 %
up to 3.75 s, by 30 to 50 % in the last quarter of a second, and by 9 to 15 % over the whole window.
On EDF files that are cut in this way, the tangent-space pipeline classifies 0.553 correctly instead of 0.562 (subjects
1, 2, 3, 7 and 49).

The database is published by PhysioNet under the licence ODC-By 1.0 [1]_.

References
----------
.. [1] Schalk et al., BCI2000: a general-purpose brain-computer interface system, IEEE Transactions on Biomedical
   Engineering 51(6), 2004; https://physionet.org/content/eegmmidb/
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbwatt.data._reading import cut, expect_finite, expect_origin, opening
from gbwatt.data.datasets import Dataset, DatasetSource
from gbwatt.data.formats.headers import check_signals
from gbwatt.data.formats.moabb import open_dataset, stimuli
from gbwatt.data.formats.npz import read_npz
from gbwatt.data.formats.recordings import inspect
from gbwatt.data.preprocessing import Pick, Preprocessing
from gbwatt.data.sets import bcic2a
from gbwatt.data.splits import LeaveOneRoundOut
from gbwatt.data.trials import Trials, concatenate
from gbwatt.errors import DataError, TimingWarning

Array = NDArray[Any]

NAME, LEFT_RIGHT_NAME = "physionet-mi", "physionet-lr"
CLASSES = ("left fist", "right fist", "both fists", "both feet")
# fmt: off
CHANNELS = (
    "FC5", "FC3", "FC1", "FCz", "FC2", "FC4", "FC6", "C5", "C3", "C1", "Cz", "C2", "C4", "C6", "CP5", "CP3",
    "CP1", "CPz", "CP2", "CP4", "CP6", "Fp1", "Fpz", "Fp2", "AF7", "AF3", "AFz", "AF4", "AF8", "F7", "F5", "F3",
    "F1", "Fz", "F2", "F4", "F6", "F8", "FT7", "FT8", "T7", "T8", "T9", "T10", "TP7", "TP8", "P7", "P5",
    "P3", "P1", "Pz", "P2", "P4", "P6", "P8", "PO7", "PO3", "POz", "PO4", "PO8", "O1", "Oz", "O2", "Iz",
)
# fmt: on
SFREQ = 160.0

#: Runs with imagery, and the class numbers of their annotations T1 and T2.
RUNS = {4: (0, 1), 6: (2, 3), 8: (0, 1), 10: (2, 3), 12: (0, 1), 14: (2, 3)}
#: Runs that together have all classes, one of each kind.
ROUNDS = (("4", "6"), ("8", "10"), ("12", "14"))
REST, FIRST, SECOND = "T0", "T1", "T2"  # annotations: rest, and the two classes of a run

#: Window in seconds after the cue, and the margin on both sides that filters need.
WINDOW, MARGIN = bcic2a.WINDOW, bcic2a.MARGIN


# ---- files


def read_edf(files: Sequence[Path], subject: int) -> Trials:
    """Read trials (about 90, 64, 880) from ``S001R04.edf`` and the other five runs with imagery, for subject 1.

    Notes
    -----
    Subjects 88, 92 and 100 were recorded at 128 Hz, with 5.1 s of imagery and 1.4 s of rest instead of 4.1 and 4.2 s.
    Their trials have the same window with fewer samples, and a :class:`TimingWarning` is issued.  Trials whose imagery
    ends before the window are dropped, also with a :class:`TimingWarning`.
    """
    return _read_edf_runs(files, subject, RUNS)


def _read_edf_runs(files: Sequence[Path], subject: int, runs: Iterable[int]) -> Trials:
    """Read the trials of some runs, each from its EDF file."""
    parts = [_read_edf_run(file, subject, run) for file, run in zip(files, runs, strict=True)]
    return _join_runs(parts, files, subject)


def _read_edf_run(file: Path, subject: int, run: int) -> Trials:
    """Read the trials of a run from an EDF file, whose annotations mark the classes."""
    import mne

    header = inspect(file)
    with opening(file, "MNE", "an EDF file"):
        raw = mne.io.read_raw_edf(file, preload=True, verbose="ERROR")
    check_signals(file, raw, header)
    marks = raw.annotations
    unknown = [mark for mark in marks.description if mark not in (REST, FIRST, SECOND)]
    if unknown:
        raise DataError(file, f"an annotation {unknown[0]!r}", f"{REST}, {FIRST} or {SECOND}")
    imagery = marks.description != REST
    onsets = np.round(marks.onset[imagery] * raw.info["sfreq"]).astype(np.int64)
    second = marks.description[imagery] == SECOND
    return _cut_run(file, raw, onsets, marks.duration[imagery], second, subject, run)


# ---- compact files

#: Class names in the compact files, their window in seconds after the cue, and its number of samples.
COMPACT_CLASSES = ("left", "right", "fists", "feet")
COMPACT_WINDOW = (-0.5, 4.0)
COMPACT_N_TIMES = round((COMPACT_WINDOW[1] - COMPACT_WINDOW[0]) * SFREQ)


def read_compact(files: Sequence[Path], subject: int) -> Trials:
    """Read trials (about 90, 22, 720) from ``S023.npz``, for subject 23, whose sessions 1 to 3 are the rounds of runs.

    The trials begin with the same margin as those of :func:`read_edf`, but have none at the end.
    """
    (file,) = files
    trials = read_npz(file)
    expect_origin(file, trials, subject, bcic2a.CHANNELS, COMPACT_CLASSES, SFREQ, COMPACT_N_TIMES)
    if trials.tmin != COMPACT_WINDOW[0]:
        raise DataError(file, f"tmin {trials.tmin:g} s", f"{COMPACT_WINDOW[0]:g} s after the cue")
    run = _runs_of_rounds(file, trials)
    return trials.replace(class_names=CLASSES, session=np.array("1"), run=run, dataset=NAME)


def _runs_of_rounds(file: Path, trials: Trials) -> Array:
    """Return the run (n,) of each trial, which follows from its round and class; require all runs."""
    rounds = {str(number): runs for number, runs in enumerate(ROUNDS, start=1)}
    if set(trials.session) != set(rounds):
        found = ", ".join(sorted(set(trials.session.tolist())))
        raise DataError(file, f"the sessions {found}", f"the sessions {', '.join(rounds)}, one for each round of runs")
    run = np.array([rounds[session][c // 2] for session, c in zip(trials.session.tolist(), trials.y, strict=True)])
    for number, classes in RUNS.items():
        absent = [CLASSES[c] for c in classes if not np.any(trials.y[run == str(number)] == c)]
        if absent:
            raise DataError(file, f"no trial of {absent[0]} in run {number}", "trials of both classes in every run")
    return run


# ---- MOABB


def read_moabb(files: Sequence[Path], subject: int) -> Trials:
    """Read the trials of :func:`read_edf` through MOABB's PhysionetMI, which downloads missing files."""
    del files  # MOABB finds its files itself
    return from_moabb(open_dataset("PhysionetMI", imagined=True, executed=False), subject)


def from_moabb(dataset: Any, subject: int) -> Trials:
    """Read trials (about 90, 64, 880) from the raw recordings of a MOABB data set.

    MOABB numbers the runs 0 to 5, with left and right fist first.
    """
    sessions = dataset.get_data([subject])[subject]
    raws = [raw for runs in sessions.values() for raw in runs.values()]
    place = Path(f"MOABB PhysionetMI, subject {subject}")
    if len(raws) != len(RUNS):
        raise DataError(place, f"{len(raws)} runs", f"{len(RUNS)}, with imagery")
    numbers = sorted(RUNS, key=lambda run: (RUNS[run], run))
    by_run = dict(zip(numbers, raws, strict=True))
    places = [Path(f"{place}, run {run}") for run in RUNS]
    parts = [_read_moabb_run(at, by_run[run], subject, run) for at, run in zip(places, RUNS, strict=True)]
    return _join_runs(parts, places, subject)


#: MOABB's event codes of rest, and of the classes: left hand, right hand, both hands, feet.
MOABB_REST, MOABB_CODES = 1, (2, 3, 4, 5)


def _read_moabb_run(place: Path, raw: Any, subject: int, run: int) -> Trials:
    """Return the trials of a run that MOABB has read, whose event codes mark the classes.

    ``place`` describes the recording in error messages.
    """
    codes, places = stimuli(raw)
    expected = [MOABB_CODES[c] for c in RUNS[run]]
    unknown = codes[~np.isin(codes, (MOABB_REST, *expected))]
    if unknown.size:
        raise DataError(place, f"event {unknown[0]}", f"{MOABB_REST}, {expected[0]} or {expected[1]}")
    durations = np.diff(places, append=raw.n_times) / raw.info["sfreq"]
    imagery = codes != MOABB_REST
    return _cut_run(place, raw, places[imagery], durations[imagery], codes[imagery] == expected[1], subject, run)


# ---- trials


def _cut_run(file: Path, raw: Any, onsets: Array, durations: Array, second: Array, subject: int, run: int) -> Trials:
    """Cut the trials of a run, with margins.

    ``onsets`` are the sample numbers of the cues, ``durations`` those of imagery in seconds, and ``second`` (n,) is
    true for trials of the second of the two classes of the run.
    """
    sfreq = float(raw.info["sfreq"])
    whole = _complete_trials(file, durations, onsets / sfreq, raw.n_times / sfreq)
    data = _read_channels(file, raw)
    y = _class_numbers(file, second[whole], run)
    x = cut(file, data, onsets[whole].tolist(), sfreq, WINDOW, MARGIN)
    expect_finite(file, x, CHANNELS)
    fields: dict[str, Any] = {"sfreq": sfreq, "tmin": WINDOW[0] - MARGIN, "subject": subject, "run": str(run)}
    return Trials(X=x, y=y, class_names=CLASSES, ch_names=CHANNELS, dataset=NAME, **fields)


def _complete_trials(file: Path, durations: Array, onsets: Array, end: float) -> NDArray[np.bool_]:
    """Return a mask (n,) of the trials whose imagery lasts until the end of the window; warn about the others.

    ``durations`` of imagery, ``onsets`` and ``end``, the end of the recording, are in seconds.
    """
    lasting = np.minimum(durations, end - onsets)
    whole: NDArray[np.bool_] = lasting >= WINDOW[1]
    if not whole.all():
        warnings.warn(
            f"{file}: {(~whole).sum()} of {len(whole)} trials have less than {WINDOW[1]:g} s of imagery, "
            f"the shortest {lasting.min():.2f} s, and are dropped.",
            TimingWarning,
            stacklevel=2,
        )
    return whole


def _class_numbers(file: Path, second: Array, run: int) -> Array:
    """Return the class numbers (n,) of the trials of a run; raise an error unless both of its classes occur.

    ``second`` (n,) is true for trials of the second class.
    """
    y = np.array(RUNS[run])[second.astype(np.int64)]
    absent = [CLASSES[c] for c in RUNS[run] if c not in y]
    if absent:
        raise DataError(file, f"no trial of {' and '.join(absent)}", f"trials of both classes of run {run}")
    return y


def _read_channels(file: Path, raw: Any) -> Array:
    """Return the samples (64, n) of a recording in µV, in the order of CHANNELS."""
    labels = {channel_name(label): label for label in raw.ch_names}
    missing = [name for name in CHANNELS if name not in labels]
    if missing:
        found = f"{len(raw.ch_names)} channels without {len(missing)} electrodes: {', '.join(missing[:4])}"
        raise DataError(file, found, f"all {len(CHANNELS)} electrodes")
    samples: Array = raw.get_data(picks=[labels[name] for name in CHANNELS], verbose="ERROR") * 1e6
    return samples


def channel_name(label: str) -> str:
    """Return the usual spelling of the name of an electrode.

    Examples
    --------
    >>> [channel_name(label) for label in ("Fc5.", "C3..", "Fpz.", "Poz.", "T10.")]
    ['FC5', 'C3', 'Fpz', 'POz', 'T10']
    """
    name = label.strip(". ").upper().replace("FP", "Fp")
    return name[:-1] + "z" if name.endswith("Z") else name


def _join_runs(parts: Sequence[Trials], files: Sequence[Path], subject: int) -> Trials:
    """Concatenate runs; require the same sampling rate in all, and warn if it is not that of the data set."""
    sfreq = parts[0].sfreq
    for part, file in zip(parts, files, strict=True):
        if part.sfreq != sfreq:
            raise DataError(file, f"{part.sfreq:g} Hz", f"{sfreq:g} Hz, as in {files[0].name}")
    if sfreq != SFREQ:
        warnings.warn(
            f"{NAME}, subject {subject}: recorded at {sfreq:g} Hz instead of {SFREQ:g} Hz, with trials of another "
            f"length; the window is the same, {WINDOW[0]:g} to {WINDOW[1]:g} s after the cue.",
            TimingWarning,
            stacklevel=2,
        )
    return concatenate(parts)


# ---- left and right fist only

#: Runs with imagery of the left or right fist.
LEFT_RIGHT_RUNS = tuple(run for run, classes in RUNS.items() if classes == (0, 1))


def read_left_right_edf(files: Sequence[Path], subject: int) -> Trials:
    """Read trials (about 45, 64, 880) from ``S001R04.edf``, ``S001R08.edf`` and ``S001R12.edf``, for subject 1."""
    return _select_left_right(_read_edf_runs(files, subject, LEFT_RIGHT_RUNS))


def read_left_right_compact(files: Sequence[Path], subject: int) -> Trials:
    """Read trials (about 45, 22, 720) from the file of :func:`read_compact`."""
    return _select_left_right(read_compact(files, subject))


def read_left_right_moabb(files: Sequence[Path], subject: int) -> Trials:
    """Read the trials of :func:`read_left_right_edf` through MOABB's PhysionetMI."""
    return _select_left_right(read_moabb(files, subject))


def _select_left_right(trials: Trials) -> Trials:
    """Select the trials of the left and right fist."""
    return trials.select(classes=CLASSES[:2]).replace(dataset=LEFT_RIGHT_NAME)


# ---- the data sets


def _edf_files(subject: int, runs: Iterable[int] = RUNS) -> tuple[str, ...]:
    """Return the names of the EDF files of some runs."""
    return tuple(f"S{subject:03d}/S{subject:03d}R{run:02d}.edf" for run in runs)


def _compact_files(subject: int) -> tuple[str, ...]:
    """Return the name of the file that :func:`read_compact` needs."""
    return (f"S{subject:03d}.npz",)


#: Trials (n, 22, 438) for the paper's motor imagery network.
PREPROCESSING = Preprocessing(Pick(bcic2a.CHANNELS), *bcic2a.PREPROCESSING.steps)

DATASET = Dataset(
    name=NAME,
    title="PhysioNet EEG Motor Movement/Imagery",
    subjects=tuple(range(1, 110)),
    sources=(
        DatasetSource("edf", read_edf, _edf_files, PREPROCESSING),
        DatasetSource("compact", read_compact, _compact_files, PREPROCESSING, folder=NAME),
        DatasetSource("moabb", read_moabb, preprocessing=PREPROCESSING, downloads=True),
    ),
    protocol=LeaveOneRoundOut(ROUNDS),
    task="mi",
    pipeline="tangent-space",
    folder="eegmmidb",
    where="https://physionet.org/content/eegmmidb/",
)

LEFT_RIGHT = Dataset(
    name=LEFT_RIGHT_NAME,
    title="PhysioNet EEG Motor Movement/Imagery, left and right fist",
    subjects=DATASET.subjects,
    sources=(
        DatasetSource("edf", read_left_right_edf, lambda s: _edf_files(s, LEFT_RIGHT_RUNS), PREPROCESSING),
        DatasetSource("compact", read_left_right_compact, _compact_files, PREPROCESSING, folder=NAME),
        DatasetSource("moabb", read_left_right_moabb, preprocessing=PREPROCESSING, downloads=True),
    ),
    protocol=LeaveOneRoundOut(tuple((str(run),) for run in LEFT_RIGHT_RUNS)),
    task="mi",
    pipeline="tangent-space",
    folder=DATASET.folder,
    where=DATASET.where,
)

"""BCI Competition IV, data set 2a: imagined movements of left hand, right hand, feet and tongue.

Nine subjects with two sessions each, "T" and "E", on different days; six runs of 48 trials per session; 22 EEG
electrodes, 250 Hz.  The cue appears two seconds after the beginning of a trial, and imagery ends four seconds after the
cue.  Trials that the organisers marked as artefacts are kept: the paper also uses all 288 trials of a session.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbwatt.data._reading import cut, expect_finite, expect_labels, expect_shape, opening
from gbwatt.data.datasets import Dataset, DatasetSource
from gbwatt.data.formats.headers import check_signals
from gbwatt.data.formats.matlab import read_mat
from gbwatt.data.formats.moabb import open_dataset, stimuli
from gbwatt.data.formats.recordings import inspect
from gbwatt.data.preprocessing import BandPass, Crop, Preprocessing, Resample
from gbwatt.data.splits import HeldOutSession
from gbwatt.data.trials import Trials, concatenate
from gbwatt.errors import DataError

Array = NDArray[Any]

NAME = "bcic-iv-2a"
CLASSES = ("left hand", "right hand", "feet", "tongue")
# fmt: off
CHANNELS = (
    "Fz", "FC3", "FC1", "FCz", "FC2", "FC4", "C5", "C3", "C1", "Cz", "C2",
    "C4", "C6", "CP3", "CP1", "CPz", "CP2", "CP4", "P1", "Pz", "P2", "POz",
)
# fmt: on
SFREQ = 250.0
RUNS, TRIALS_PER_RUN = 6, 48
N_TRIALS = RUNS * TRIALS_PER_RUN

#: Window in seconds after the cue, and the margin on both sides that filters need.
WINDOW, MARGIN = (0.5, 4.0), 1.0

#: The processed files begin half a second before the cue; the paper uses their samples 124 to 562, at 125 Hz.
PROCESSED_SFREQ, PROCESSED_TMIN, PROCESSED_SLICE = 125.0, -0.5, (124, 562)

#: The same samples in seconds after the cue, 0.492 to 3.996: the paper's "0.5 to 4 s", 438 samples.
PAPER_WINDOW = (
    (PROCESSED_SLICE[0] + PROCESSED_TMIN * PROCESSED_SFREQ) / PROCESSED_SFREQ,
    (PROCESSED_SLICE[1] + PROCESSED_TMIN * PROCESSED_SFREQ) / PROCESSED_SFREQ,
)

#: Event codes of the cues by session; in session E they do not reveal the class.
CUES = {"T": (769, 770, 771, 772), "E": (783,)}
RUN_START = 32766  # event code
#: Codes of other events: eyes open and closed, beginning of a trial, rejected trial, eye movements, beginning of a run.
OTHER_EVENTS = (276, 277, 768, 1023, 1072, RUN_START)

# ---- the competition's files

#: What to do about the wrong file: two different files have this name, and MOABB downloads the other one.
_WRONG_MAT_REMEDY = (
    "It may be the file of the same name from BNCI Horizon 2020, which contains the recording. The small file with the "
    "true labels is needed, which the competition published: https://www.bbci.de/competition/iv/results/."
)


def read_gdf(files: Sequence[Path], subject: int) -> Trials:
    """Read trials (576, 22, 1375) from the recordings and true labels of both sessions.

    Parameters
    ----------
    files : four paths
        ``A01T.gdf``, ``A01T.mat``, ``A01E.gdf`` and ``A01E.mat``, for subject 1.
    subject : int

    Notes
    -----
    The classes are those of the label files, which must agree with the cues of session T.
    """
    t_gdf, t_mat, e_gdf, e_mat = files
    return concatenate([_read_gdf_session(t_gdf, t_mat, subject, "T"), _read_gdf_session(e_gdf, e_mat, subject, "E")])


def _read_gdf_session(recording: Path, labels: Path, subject: int, session: str) -> Trials:
    """Read the trials (288, 22, 1375) of a session, with margins, from its recording and its file of labels."""
    data, codes, places = _read_recording(recording)
    _expect_event_codes(recording, codes, session)
    is_cue = np.isin(codes, CUES[session])
    runs = _run_of_each_trial(recording, places[is_cue], places[codes == RUN_START])
    content = read_mat(labels, "classlabel", remedy=_WRONG_MAT_REMEDY)
    y = expect_labels(labels, content["classlabel"], N_TRIALS, (1, 2, 3, 4)) - 1
    if session == "T":
        _expect_same_classes(recording, labels, codes[is_cue] - CUES["T"][0], y)
    x = _cut_between_breaks(recording, data, places[is_cue])
    return _make_trials(recording, x[:, : len(CHANNELS)], y, subject, session, runs)


def _read_recording(file: Path) -> tuple[Array, Array, Array]:
    """Read samples (25, n) in µV, and codes and sample numbers of the events, from a GDF file."""
    import mne

    header = inspect(file)
    with opening(file, "MNE", "a complete recording in the General Data Format"):
        # no warning about repeated channel names, which these files have
        raw = mne.io.read_raw_gdf(file, preload=True, verbose="ERROR")
    _expect_channels(file, raw.ch_names)
    check_signals(file, raw, header, raw.ch_names[: len(CHANNELS)])
    if raw.info["sfreq"] != SFREQ:
        raise DataError(file, f"{raw.info['sfreq']:g} Hz", f"{SFREQ:g} Hz")
    codes = np.array([int(code) for code in raw.annotations.description], dtype=np.int64)
    places = np.round(raw.annotations.onset * SFREQ).astype(np.int64)
    order = np.argsort(places, kind="stable")
    return raw.get_data(verbose="ERROR") * 1e6, codes[order], places[order]


def _expect_channels(file: Path, names: Sequence[str]) -> None:
    """Require the 22 EEG channels in their order, followed by three EOG channels.

    The files name five of the EEG channels; the others are all called EEG, to which MNE appends numbers.
    """
    for number, electrode in enumerate(CHANNELS):
        label = names[number] if number < len(names) else "nothing"
        bare = label.removeprefix("EEG-")
        named = electrode in ("Fz", "C3", "Cz", "C4", "Pz")
        if bare != electrode and (named or not (bare == "EEG" or bare.isdigit())):
            expected = f"EEG-{electrode}" if named else f"EEG, for {electrode}"
            raise DataError(file, f"{label} as channel {number + 1} of {len(names)}", expected)
    if [name[:3] for name in names[len(CHANNELS) :]] != ["EOG"] * 3:
        raise DataError(file, f"{len(names)} channels", f"{len(CHANNELS)} EEG and 3 EOG channels")


def _expect_event_codes(file: Path, codes: Array, session: str) -> None:
    """Raise an error unless all events have codes that occur in the session, "T" or "E"."""
    allowed = (*OTHER_EVENTS, *CUES[session])
    unknown = codes[~np.isin(codes, allowed)]
    if unknown.size:
        expected = f"{', '.join(map(str, sorted(allowed)))} in session {session}"
        raise DataError(file, f"event code {unknown[0]}", expected, "Are the files T and E interchanged?")


def _run_of_each_trial(file: Path, cues: Array, starts: Array) -> Array:
    """Return the run of each trial, "1" to "6"; runs of eye movements, which have no cues, are not counted.

    ``cues`` and ``starts`` are sample numbers of cues and of the beginnings of runs.  Without the latter, runs begin
    every 48 trials.
    """
    block = np.searchsorted(starts, cues, side="right") if starts.size else np.arange(len(cues)) // TRIALS_PER_RUN
    _, run, counts = np.unique(block, return_inverse=True, return_counts=True)
    if counts.tolist() != [TRIALS_PER_RUN] * RUNS:
        found = f"{len(cues)} cues, in runs of {', '.join(map(str, counts)) or 'none'}"
        raise DataError(file, found, f"{N_TRIALS}, in {RUNS} runs of {TRIALS_PER_RUN}", "The file may be truncated.")
    return (run + 1).astype(np.str_)


def _expect_same_classes(recording: Path, labels: Path, cued: Array, y: Array) -> None:
    """Raise an error unless the classes of the cues in the recording are those in the file of labels."""
    wrong = np.flatnonzero(cued != y)
    if wrong.size:
        trial = wrong[0]
        raise DataError(
            labels,
            f"class {y[trial] + 1} for trial {trial}; {wrong.size} trials differ",
            f"class {cued[trial] + 1}, the cue in {recording.name}",
            "Are both files of the same subject and session?",
        )


def _cut_between_breaks(file: Path, data: Array, cues: Array) -> Array:
    """Cut trials (n, 25, 1375) at the sample numbers ``cues``, with margins.

    Margins that reach into a break of the recording are filled with the nearest sample outside it.
    """
    starts, ends = _find_segments(data)
    segment = np.searchsorted(starts, cues, side="right") - 1
    first, last = (round(t * SFREQ) for t in WINDOW)
    for trial, (cue, k) in enumerate(zip(cues, segment, strict=True)):
        if k < 0 or cue + first < starts[k] or cue + last > ends[k]:
            raise DataError(
                file,
                f"a break or the end of the recording in trial {trial}, whose cue is at {cue / SFREQ:.2f} s",
                f"samples from {WINDOW[0]} to {WINDOW[1]} s after the cue",
            )
    trials = [
        cut(file, data[:, starts[k] : ends[k]], [cue - starts[k]], SFREQ, WINDOW, MARGIN)
        for cue, k in zip(cues, segment, strict=True)
    ]
    return np.concatenate(trials)


def _find_segments(data: Array) -> tuple[Array, Array]:
    """Return start and end sample numbers of the segments that were recorded without a break.

    In breaks all channels are NaN.  Files of integers encode NaN as the minimum, which MNE reads as a voltage, so that
    samples at which all channels have their minimum belong to breaks, too.
    """
    minimum = np.fmin.reduce(data, axis=1, keepdims=True)
    in_break = (np.isnan(data) | (data == minimum)).all(axis=0)
    edges = np.flatnonzero(np.diff(in_break, prepend=True, append=True))
    return edges[::2], edges[1::2]


def _make_trials(file: Path, x: Array, y: Array, subject: int, session: str, run: Any) -> Trials:
    """Return :class:`Trials` with the metadata of the data set; require finite samples."""
    expect_finite(file, x, CHANNELS)
    return Trials(
        X=x,
        y=y,
        class_names=CLASSES,
        ch_names=CHANNELS,
        sfreq=SFREQ,
        tmin=WINDOW[0] - MARGIN,
        subject=np.array(subject),
        session=np.array(session),
        run=np.array(run),
        dataset=NAME,
    )


# ---- processed files


def read_processed(files: Sequence[Path], subject: int) -> Trials:
    """Read trials (576, 22, 562 or more) at 125 Hz from ``BCIC_S01_T.mat`` and ``BCIC_S01_E.mat``, for subject 1.

    Classes are numbered 0 to 3.  The files state neither the preprocessing nor the unit; the unit is assumed to be µV,
    and the trials to be in the order of recording.
    """
    t_file, e_file = files
    train = _read_processed_session(t_file, "x_train", "y_train", subject, "T")
    test = _read_processed_session(e_file, "x_test", "y_test", subject, "E")
    if train.shape != test.shape:
        raise DataError(e_file, f"x_test of shape {test.shape}", f"{train.shape}, as in {t_file.name}")
    return concatenate([train, test])


def _read_processed_session(file: Path, x_name: str, y_name: str, subject: int, session: str) -> Trials:
    """Read the trials of one session, whose variables in the MATLAB file are called ``x_name`` and ``y_name``."""
    content = read_mat(file, x_name, y_name)
    x = content[x_name]
    if x.ndim == 4 and x.shape[1] == 1:  # saved with the extra axis that convolutions need
        x = x[:, 0]
    expect_shape(file, x_name, x, (N_TRIALS, len(CHANNELS), None))
    if x.shape[2] < PROCESSED_SLICE[1]:
        raise DataError(file, f"{x_name} of {x.shape[2]} samples", f"at least {PROCESSED_SLICE[1]}")
    y = expect_labels(file, content[y_name], N_TRIALS, range(len(CLASSES)), y_name)
    run = (np.arange(N_TRIALS) // TRIALS_PER_RUN + 1).astype(np.str_)
    return _make_trials(file, x, y, subject, session, run).replace(sfreq=PROCESSED_SFREQ, tmin=PROCESSED_TMIN)


# ---- MOABB

#: MOABB's names of the sessions, and the time from its events to the cue in seconds.
MOABB_SESSIONS, MOABB_CUE = {"0train": "T", "1test": "E"}, 2.0


def read_moabb(files: Sequence[Path], subject: int) -> Trials:
    """Read the trials of :func:`read_gdf` through MOABB's BNCI2014_001, which downloads missing files."""
    del files  # MOABB finds its files itself
    return from_moabb(open_dataset("BNCI2014_001"), subject)


def from_moabb(dataset: Any, subject: int) -> Trials:
    """Read trials (576, 22, 1375) from the raw recordings of a MOABB data set."""
    sessions = dataset.get_data([subject])[subject]
    place = Path(f"MOABB BNCI2014_001, subject {subject}")
    if sorted(sessions) != sorted(MOABB_SESSIONS):
        raise DataError(place, f"the sessions {', '.join(sessions)}", " and ".join(MOABB_SESSIONS))
    parts = []
    for name, session in MOABB_SESSIONS.items():
        if len(sessions[name]) != RUNS:
            raise DataError(place, f"{len(sessions[name])} runs in session {name}", f"{RUNS}")
        for number, (run, raw) in enumerate(sessions[name].items(), start=1):
            parts.append(_moabb_trials(Path(f"{place}, session {name}, run {run}"), raw, subject, session, str(number)))
    return concatenate(parts)


def _moabb_trials(place: Path, raw: Any, subject: int, session: str, run: str) -> Trials:
    """Return the trials (48, 22, 1375) of a run, a recording that MOABB has read.

    ``place`` describes the recording in error messages, and ``run`` is its number.
    """
    if raw.info["sfreq"] != SFREQ:
        raise DataError(place, f"{raw.info['sfreq']:g} Hz", f"{SFREQ:g} Hz")
    missing = [name for name in CHANNELS if name not in raw.ch_names]
    if missing:
        raise DataError(place, f"the channels {', '.join(raw.ch_names)}", f"also {', '.join(missing)}")
    codes, places = stimuli(raw)
    y = expect_labels(place, codes, TRIALS_PER_RUN, (1, 2, 3, 4)) - 1
    data = raw.get_data(picks=list(CHANNELS), verbose="ERROR") * 1e6
    x = cut(place, data, (places + round(MOABB_CUE * SFREQ)).tolist(), SFREQ, WINDOW, MARGIN)
    return _make_trials(place, x, y, subject, session, run)


# ---- the data set


def _gdf_files(subject: int) -> tuple[str, ...]:
    """Return the names of the files that :func:`read_gdf` needs."""
    return tuple(f"A{subject:02d}{session}.{kind}" for session in "TE" for kind in ("gdf", "mat"))


def _processed_files(subject: int) -> tuple[str, ...]:
    """Return the names of the files that :func:`read_processed` needs."""
    return tuple(f"BCIC_S{subject:02d}_{session}.mat" for session in "TE")


#: From raw trials to the input of the paper.  The paper does not state its filter: the band is our choice.
PREPROCESSING = Preprocessing(BandPass(4.0, 38.0), Resample(PROCESSED_SFREQ), Crop(*PAPER_WINDOW))

DATASET = Dataset(
    name=NAME,
    title="BCI Competition IV, data set 2a",
    subjects=tuple(range(1, 10)),
    sources=(
        DatasetSource("gdf", read_gdf, _gdf_files, PREPROCESSING),
        DatasetSource("processed", read_processed, _processed_files, Preprocessing(Crop(*PAPER_WINDOW))),
        DatasetSource("moabb", read_moabb, preprocessing=PREPROCESSING, downloads=True),
    ),
    protocol=HeldOutSession("T", "E", 1 / 8),
    task="mi",
    pipeline="tangent-space",
    folder=NAME,
    where="https://www.bbci.de/competition/iv/ (data set 2a, and its true labels under Results)",
)

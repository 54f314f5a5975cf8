"""BCI-ERN: feedback of a P300 speller, right or wrong (BCI Challenge of the IEEE NER conference 2015, on Kaggle).

26 subjects, five sessions, 340 feedbacks, 56 channels at 200 Hz.  The labels of sixteen subjects were part of the
challenge; those of its test set, ten subjects, were published later.  The trials of the paper are the 1.25 s after the
feedback, 1 to 40 Hz, at 128 Hz.

The files do not state the unit of their samples, which is assumed to be µV; the amplitudes agree with that.  The file
``ChannelsLocation.csv`` is not needed, because electrodes have names of the 10-20 system.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbwatt.data._reading import cut, expect_finite, expect_labels, expect_shape, opening
from gbwatt.data.datasets import Dataset, DatasetSource
from gbwatt.data.formats.matlab import read_mat
from gbwatt.data.preprocessing import BandPass, Crop, Preprocessing, Resample
from gbwatt.data.splits import BySession
from gbwatt.data.trials import Trials
from gbwatt.errors import DataError

Array = NDArray[Any]

NAME = "bci-ern"

#: In the order of the labels: 1 is correct feedback, the positive class of the AUC.
CLASS_NAMES = ("error", "correct")

#: Subjects of the training set, and of the test set.
LABELLED = (2, 6, 7, 11, 12, 13, 14, 16, 17, 18, 20, 21, 22, 23, 24, 26)
TEST = (1, 3, 4, 5, 8, 9, 10, 15, 19, 25)

_CHANNEL_ORDER = """
Fp1 Fp2 AF7 AF3 AF4 AF8 F7 F5 F3 F1 Fz F2 F4 F6 F8 FT7 FC5 FC3 FC1 FCz FC2 FC4 FC6 FT8 T7 C5 C3 C1 Cz C2 C4 C6 T8
TP7 CP5 CP3 CP1 CPz CP2 CP4 CP6 TP8 P7 P5 P3 P1 Pz P2 P4 P6 P8 PO7 POz PO8 O1 O2
"""
#: Channels in the order of the files.
CHANNELS = tuple(_CHANNEL_ORDER.split())
_MISSPELLINGS = {"P08": "PO8"}  # the files of the challenge have a zero instead of the letter O

FEEDBACKS: Mapping[str, int] = {"1": 60, "2": 60, "3": 60, "4": 60, "5": 100}  # number by session
SFREQ = 200.0

#: Window in seconds after the feedback, and the margin on both sides that a filter from 1 Hz needs.
WINDOW, MARGIN = (0.0, 1.25), 2.0


# ---- files of the challenge


def read_csv(files: Sequence[Path], subject: int) -> Trials:
    """Read trials (340, 56, 1050) from ``Data_S02_Sess01.csv`` to ``Sess05`` and a file of labels."""
    *recordings, label_file = files
    labels = _read_labels(label_file, subject)
    x, y = [], []
    for file, session in zip(recordings, FEEDBACKS, strict=True):
        x.append(_read_session(file, session))
        y += [_find_label(label_file, labels, subject, session, number) for number in range(1, FEEDBACKS[session] + 1)]
    return _make_trials(np.concatenate(x), y, label_file, subject, SFREQ, WINDOW[0] - MARGIN)


def _read_session(file: Path, session: str) -> Array:
    """Read the trials (n, 56, 1050) of a session, with margins, from its recording."""
    data, onsets = _read_recording(file)
    n = FEEDBACKS[session]
    if len(onsets) != n:
        raise DataError(file, f"{len(onsets)} feedbacks", f"{n} in session {session}", "The file may be truncated.")
    x = cut(file, data, onsets, SFREQ, WINDOW, MARGIN)
    expect_finite(file, x, CHANNELS)
    return x


def _read_recording(file: Path) -> tuple[Array, list[int]]:
    """Read samples (56, n) and the sample numbers of the feedbacks from the recording of a session."""
    table = _read_table(file, {"Time": np.float64})
    table = table.rename(columns=_MISSPELLINGS)
    missing = [name for name in ("Time", *CHANNELS, "FeedBackEvent") if name not in table.columns]
    if missing:
        raise DataError(file, f"{len(table.columns)} columns without {missing[0]}", "Time, 56 channels, FeedBackEvent")
    events = table["FeedBackEvent"].to_numpy()
    if not np.isin(events, (0, 1)).all():
        at = int(np.flatnonzero(~np.isin(events, (0, 1)))[0])
        raise DataError(file, f"{events[at]:g} as FeedBackEvent in row {at}", "0 or 1", "The file may be truncated.")
    _expect_rate(file, table["Time"].to_numpy())
    return table[list(CHANNELS)].to_numpy().T, np.flatnonzero(events).tolist()


def _read_table(file: Path, types: Mapping[str, Any]) -> Any:
    """Read a table of numbers without the EOG; ``types`` are the dtypes of some columns, and others are float32."""
    import pandas

    with opening(file, "pandas", "a table of numbers with a header line"):
        columns = [name for name in pandas.read_csv(file, nrows=0).columns if name != "EOG"]
        return pandas.read_csv(file, usecols=columns, dtype={name: types.get(name, np.float32) for name in columns})


def _expect_rate(file: Path, times: Array) -> None:
    """Raise an error unless the times of the samples, in seconds, are those of the sampling rate, without gaps."""
    if len(times) < 2:
        raise DataError(file, f"{len(times)} samples", f"a recording at {SFREQ:g} Hz", "The file may be truncated.")
    steps, expected = np.diff(times), f"{1 / SFREQ:g} s: {SFREQ:g} Hz"
    usual = float(np.median(np.nan_to_num(steps)))
    if not abs(usual * SFREQ - 1.0) < 0.01:
        raise DataError(file, f"samples {usual:g} s apart in column Time", expected)
    wrong = np.flatnonzero(~(abs(steps * SFREQ - 1.0) < 0.5))  # times may be rounded
    if wrong.size:
        row = int(wrong[0])
        found = f"{steps[row]:g} s from row {row} to row {row + 1} in column Time; {wrong.size} of {len(steps)} wrong"
        raise DataError(file, found, expected, "Rows may be missing or repeated: copy the file again.")


# ---- labels


def feedback_name(subject: int, session: str, number: int) -> str:
    """Return the name of a feedback, counted from 1, in the files of labels.

    Examples
    --------
    >>> feedback_name(2, "1", 60)
    'S02_Sess01_FB060'
    """
    return f"S{subject:02d}_Sess{int(session):02d}_FB{number:03d}"


def _read_labels(file: Path, subject: int) -> dict[str, float]:
    """Read labels by the name of the feedback, see :func:`feedback_name`.

    The file has the columns IdFeedBack and Prediction; or a single column of labels of the whole test set, with or
    without a header.  ``subject`` is only used in error messages.
    """
    import pandas

    with opening(file, "pandas", "columns IdFeedBack and Prediction"):
        table = pandas.read_csv(file, header=None, dtype=str, skip_blank_lines=True)
    if table.iloc[0].tolist() == ["IdFeedBack", "Prediction"]:
        _expect_unique(file, table[0][1:])
        return dict(zip(table[0][1:], _to_numbers(file, table[1][1:]), strict=True))
    if table.shape[1] == 1:
        first = 0 if _is_number(table[0][0]) else 1
        return _labels_of_test_set(file, _to_numbers(file, table[0][first:]), subject)
    raise DataError(file, f"a table {table.shape} that begins with {table.iloc[0].tolist()}", "IdFeedBack, Prediction")


def _expect_unique(file: Path, names: Any) -> None:
    """Raise an error if the name of a feedback occurs more than once."""
    repeated = names[names.duplicated()]
    if len(repeated):
        raise DataError(file, f"{repeated.iloc[0]} in more than one row", "one label for each feedback")


def _is_number(text: Any) -> bool:
    """Whether the first row of a file of labels is a number and not a header."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _to_numbers(file: Path, texts: Any) -> list[float]:
    """Return labels, which are text, as numbers."""
    try:
        return [float(text) for text in texts]
    except ValueError as error:
        raise DataError(file, f"a label that is not a number ({error})", "0 or 1") from None


def _labels_of_test_set(file: Path, labels: Sequence[float], subject: int) -> dict[str, float]:
    """Return labels of the whole test set, in the order of ``SampleSubmission.csv``, by the name of the feedback."""
    places = [(session, number) for session, n in FEEDBACKS.items() for number in range(1, n + 1)]
    names = [feedback_name(test_subject, *place) for test_subject in TEST for place in places]
    if len(labels) != len(names):
        raise DataError(file, f"{len(labels)} labels", f"{len(names)}, of the whole test set", _label_hint(subject))
    return dict(zip(names, labels, strict=True))


def _find_label(file: Path, labels: Mapping[str, float], subject: int, session: str, number: int) -> float:
    """Return the label of a feedback, counted from 1; raise an error if the file has none."""
    name = feedback_name(subject, session, number)
    if name not in labels:
        raise DataError(file, f"no label for {name}", "one for each feedback", _label_hint(subject))
    return labels[name]


def _label_hint(subject: int) -> str:
    """Return the sentence of error messages that names the right file of labels."""
    return f"The labels of subject {subject} are in {_label_file(subject)}."


# ---- processed files


def read_processed(files: Sequence[Path], subject: int) -> Trials:
    """Read ``Data_S02_Sess.mat``: ``x_test`` (340, 56, 160) and ``y_test`` with 340 labels, sessions in order.

    The file states neither unit nor channels; they are assumed to be µV and those of the challenge, in its order.
    """
    (file,) = files
    content = read_mat(file, "x_test", "y_test")
    expect_shape(file, "x_test", content["x_test"], (sum(FEEDBACKS.values()), len(CHANNELS), 160))
    expect_finite(file, content["x_test"], CHANNELS)
    return _make_trials(content["x_test"], content["y_test"], file, subject, 128.0, 0.0)


def _make_trials(x: Array, labels: Any, file: Path, subject: int, sfreq: float, tmin: float) -> Trials:
    """Return all trials of a subject as :class:`Trials`; require both classes, though not in every session."""
    session = np.repeat(list(FEEDBACKS), list(FEEDBACKS.values()))
    return Trials(
        X=x,
        y=expect_labels(file, np.asarray(labels), len(x), (0, 1)),
        class_names=CLASS_NAMES,
        ch_names=CHANNELS,
        sfreq=sfreq,
        tmin=tmin,
        subject=np.array(subject),
        session=session,
        run=session,
        dataset=NAME,
    )


# ---- the data set


def _label_file(subject: int) -> str:
    """Return the name of the file with the labels of a subject."""
    return "true_labels.csv" if subject in TEST else "TrainLabels.csv"


def _csv_files(subject: int) -> tuple[str, ...]:
    """Return the names of the files that :func:`read_csv` needs."""
    return (*(f"Data_S{subject:02d}_Sess{int(s):02d}.csv" for s in FEEDBACKS), _label_file(subject))


DATASET = Dataset(
    name=NAME,
    title="BCI Challenge at NER 2015: feedback error-related negativity",
    subjects=LABELLED,
    held_back=TEST,
    sources=(
        DatasetSource("csv", read_csv, _csv_files, Preprocessing(BandPass(1.0, 40.0), Resample(128.0), Crop(*WINDOW))),
        DatasetSource("processed", read_processed, lambda subject: (f"Data_S{subject:02d}_Sess.mat",)),
    ),
    protocol=BySession(),
    task="ern",
    pipeline="lda",
    folder="bci-ern",
    where="https://www.kaggle.com/c/inria-bci-challenge (true_labels.csv, for the ten test subjects, from its forum)",
)

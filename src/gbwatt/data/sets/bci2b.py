"""BCI Competition IV, data set 2b: imagined movements of the left and right hand, in three channels.

Nine subjects with five sessions each, at 250 Hz.  Sessions 1 to 3 are the training sessions of the competition,
sessions 4 and 5, from other days, its evaluation sessions.

The files are not those of the competition but epochs of four seconds that were shared in processed form.  They state
neither the filter nor the position of the cue.  Their spectra show a pass band of about 7 to 26 Hz, and samples that
vanish at both ends show that the epochs were filtered after cutting.  An evoked response after 0.30 to 0.37 s in all
subjects, and classes that cannot be told apart before 0.5 s, show that the first sample is that of the cue.

The preset takes the window from 0.5 to 2.5 s after the cue [1]_, at 125 Hz, and does not filter again.  In the training
sessions, leaving one out, the tangent-space pipeline classifies 0.70 correctly in this window, and 0.67 in the window
from 0.5 to 4 s, on average over subjects 1 to 5.

References
----------
.. [1] Ang et al., Filter bank common spatial pattern algorithm on BCI Competition IV datasets 2a and 2b, Frontiers in
   Neuroscience 6:39, 2012.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gbwatt.data._reading import expect_origin
from gbwatt.data.datasets import Dataset, DatasetSource
from gbwatt.data.formats.npz import read_npz
from gbwatt.data.preprocessing import Crop, Preprocessing, Resample
from gbwatt.data.splits import BySession
from gbwatt.data.trials import Trials
from gbwatt.errors import DataError

NAME = "bci-iv-2b"
CHANNELS = ("C3", "Cz", "C4")
SFREQ = 250.0
N_TIMES = 1000
SESSIONS = ("1", "2", "3", "4", "5")

#: Class names in the files, and those of the trials.
FILE_CLASSES, CLASSES = ("left", "right"), ("left hand", "right hand")

#: Window in seconds after the cue.
WINDOW = (0.5, 2.5)


def read_processed(files: Sequence[Path], subject: int) -> Trials:
    """Read ``S01.npz``: epochs (n, 3, 1000) that begin with the cue; the file does not state the unit, taken as µV."""
    (file,) = files
    trials = read_npz(file)
    expect_origin(file, trials, subject, CHANNELS, FILE_CLASSES, SFREQ, N_TIMES)
    _expect_sessions(file, trials)
    return trials.replace(class_names=CLASSES, run=trials.session, dataset=NAME)


def _expect_sessions(file: Path, trials: Trials) -> None:
    """Raise an error unless the trials have both classes in each of the five sessions, and no others."""
    counts = trials.counts()
    if set(counts) != set(SESSIONS):
        raise DataError(file, f"the sessions {', '.join(sorted(counts))}", f"the sessions {', '.join(SESSIONS)}")
    for session, by_class in counts.items():
        absent = [name for name, n in by_class.items() if not n]
        if absent:
            raise DataError(file, f"no trial of {absent[0]} in session {session}", "both classes in every session")


DATASET = Dataset(
    name=NAME,
    title="BCI Competition IV, data set 2b",
    subjects=tuple(range(1, 10)),
    sources=(
        DatasetSource(
            "processed",
            read_processed,
            lambda subject: (f"S{subject:02d}.npz",),
            Preprocessing(Resample(125.0), Crop(*WINDOW)),
        ),
    ),
    protocol=BySession(train=("1", "2"), valid=("3",), test=("4", "5")),
    task=None,
    paradigm="mi",
    pipeline="tangent-space",
    folder=NAME,
    where="https://www.bbci.de/competition/iv/ (data set 2b); convert it to S01.npz etc., see docs/data.md",
    only_there=True,
)

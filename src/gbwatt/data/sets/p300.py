"""P300: responses to rare flashes of a target among others, in two continuous recordings.

``p300-br41n`` is a speller with two subjects, recorded in eight channels at 250 Hz for the hackathon BR41N.IO of g.tec.
The files name neither channels nor unit; µV is assumed, which agrees with the amplitudes.  A licence is not stated.

``bi2012`` is the game Brain Invaders [1]_, with 16 channels at 128 Hz, published under CC BY 4.0.  The recordings are
unfiltered.  The unit is not stated and assumed to be µV; the amplitudes agree with that.

Flashes follow each other faster than the response: windows overlap, so the flashes between two pauses, in which the
user attends to one symbol, form a group.  Protocols divide the recording in the pauses: the first groups are for
training and validation, the last third or a little more for the test.

The preset is 0.5 to 20 Hz, at 125 Hz, from the flash to 0.8 s after it: 100 samples.

References
----------
.. [1] Van Veen et al., Building Brain Invaders: EEG data of an experimental validation, 2019;
   https://doi.org/10.5281/zenodo.2649006
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbwatt.data._reading import cut, expect_finite, expect_labels, expect_shape, opening
from gbwatt.data.datasets import Dataset, DatasetSource
from gbwatt.data.formats.matlab import read_mat
from gbwatt.data.formats.npz import read_arrays
from gbwatt.data.preprocessing import BandPass, Crop, Preprocessing, Resample
from gbwatt.data.splits import InOrder
from gbwatt.data.trials import Trials
from gbwatt.errors import DataError

Array = NDArray[Any]

#: In the order of the labels: 1 is the target, the positive class of the AUC.
CLASS_NAMES = ("non-target", "target")

#: Window in seconds after the flash, and the margin on both sides that a filter from 0.5 Hz needs.
WINDOW, MARGIN = (0.0, 0.8), 4.0

#: Seconds between two flashes after which another symbol is attended to; flashes are at most 1.2 s apart otherwise.
PAUSE = 2.0

PREPROCESSING = Preprocessing(BandPass(0.5, 20.0), Resample(125.0), Crop(*WINDOW))


# ---- BR41N.IO

BR41N_NAME = "p300-br41n"
BR41N_CHANNELS = tuple(f"channel {number}" for number in range(1, 9))
BR41N_SFREQ = 250.0
#: Values of ``trig`` during a flash of a non-target and of the target; 0 otherwise.
BR41N_CODES = (-1, 1)


def read_br41n(files: Sequence[Path], subject: int) -> Trials:
    """Read trials (1200, 8, 2200) from ``S1.mat``: ``y`` (n, 8), ``trig`` (n, 1) and ``fs``.

    A flash begins with the first of successive samples in which ``trig`` has the same value.
    """
    (file,) = files
    content = read_mat(file, "y", "trig", "fs")
    expect_shape(file, "y", content["y"], (None, len(BR41N_CHANNELS)))
    _expect_rate(file, content["fs"], BR41N_SFREQ)
    return _cut_flashes(
        file, content["y"].T, content["trig"], BR41N_CODES, BR41N_SFREQ, BR41N_CHANNELS, subject, BR41N_NAME
    )


BR41N = Dataset(
    name=BR41N_NAME,
    title="P300 speller of the hackathon BR41N.IO",
    subjects=(1, 2),
    sources=(DatasetSource("mat", read_br41n, lambda subject: (f"S{subject}.mat",), PREPROCESSING),),
    protocol=InOrder(valid=1 / 6, test=1 / 3),
    task=None,
    paradigm="erp",
    pipeline="lda",
    folder=BR41N_NAME,
    where="https://www.br41n.io/ (P300 speller: S1.mat, S2.mat)",
    only_there=True,
)


# ---- Brain Invaders

BI2012_NAME = "bi2012"
BI2012_CHANNELS = (
    *("F7", "F3", "F4", "F8", "T7", "C3", "Cz", "C4"),
    *("T8", "P7", "P3", "Pz", "P4", "P8", "O1", "O2"),
)
BI2012_SFREQ = 128.0
#: Values of ``stim`` in the first sample of a flash of a non-target and of the target; 0 otherwise.
BI2012_CODES = (1, 2)


def read_bi2012(files: Sequence[Path], subject: int) -> Trials:
    """Read trials (768, 16, 1126) of the first session, from ``data`` (n, 17) and ``stim`` (n,) of an npz file.

    The second file, in YAML, states the sampling rate and the electrodes, which are the first 16 columns.
    """
    file, description = files
    _expect_description(description)
    content = read_arrays(file, "data", "stim")
    expect_shape(file, "data", content["data"], (None, len(BI2012_CHANNELS) + 1))
    data = content["data"][:, : len(BI2012_CHANNELS)].T
    return _cut_flashes(file, data, content["stim"], BI2012_CODES, BI2012_SFREQ, BI2012_CHANNELS, subject, BI2012_NAME)


def _expect_description(file: Path) -> None:
    """Raise an error unless the description of a recording has the electrodes and the sampling rate of the data set."""
    import yaml

    with opening(file, "PyYAML", "a description of a recording in YAML"):
        acquisition = yaml.safe_load(file.read_text(encoding="utf-8"))["acquisition"]
        sensors, sfreq = tuple(map(str, acquisition["sensors"])), acquisition["samplingrate"]
    if sensors != BI2012_CHANNELS:
        raise DataError(file, f"the sensors {', '.join(sensors)}", ", ".join(BI2012_CHANNELS))
    _expect_rate(file, sfreq, BI2012_SFREQ)


BI2012 = Dataset(
    name=BI2012_NAME,
    title="Brain Invaders 2012, first session",
    subjects=tuple(range(1, 26)),
    sources=(
        DatasetSource(
            "npz",
            read_bi2012,
            lambda subject: tuple(f"subject_{subject:02d}_session_01.{kind}" for kind in ("npz", "yml")),
            PREPROCESSING,
        ),
    ),
    protocol=InOrder(valid=1 / 6, test=1 / 3),
    task=None,
    paradigm="erp",
    pipeline="lda",
    folder=BI2012_NAME,
    where="https://doi.org/10.5281/zenodo.2649006 (CC BY 4.0)",
)

DATASETS = (BR41N, BI2012)


# ---- both


def _expect_rate(file: Path, found: Any, sfreq: float) -> None:
    """Raise an error unless the sampling rate that a file states is ``sfreq``, in Hz."""
    if np.size(found) != 1 or np.ravel(found)[0] != sfreq:
        raise DataError(file, f"a sampling rate of {', '.join(map(str, np.ravel(found)))} Hz", f"{sfreq:g} Hz")


def _cut_flashes(
    file: Path,
    data: Array,
    marks: Array,
    codes: tuple[int, int],
    sfreq: float,
    ch_names: tuple[str, ...],
    subject: int,
    name: str,
) -> Trials:
    """Cut a trial at each flash, with margins.

    ``data`` is (n_chans, n), and ``marks`` has, in n elements, one of the two ``codes`` of the classes during a flash
    and 0 otherwise.  ``name`` is that of the data set.
    """
    onsets, y = _find_flashes(file, marks, data.shape[1], codes)
    x = cut(file, data, onsets.tolist(), sfreq, WINDOW, MARGIN)
    expect_finite(file, x, ch_names)
    group = np.cumsum(np.diff(onsets, prepend=onsets[0]) > PAUSE * sfreq)
    fields: dict[str, Any] = {"sfreq": sfreq, "tmin": WINDOW[0] - MARGIN, "subject": subject, "group": group}
    return Trials(X=x, y=y, class_names=CLASS_NAMES, ch_names=ch_names, dataset=name, **fields)


def _find_flashes(file: Path, marks: Array, n: int, codes: tuple[int, int]) -> tuple[Array, Array]:
    """Return the sample numbers of the flashes, and their class numbers; require flashes of both classes."""
    flat = np.ravel(marks)
    if flat.size != n:
        raise DataError(file, f"{flat.size} marks of stimuli", f"{n}, one for each sample")
    first = (flat != 0) & (flat != np.concatenate([[0], flat[:-1]]))
    onsets = np.flatnonzero(first)
    labels = expect_labels(file, flat[onsets], len(onsets), codes)
    return onsets, (labels == codes[1]).astype(np.int64)

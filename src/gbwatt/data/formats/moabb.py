"""Data sets of MOABB, read through their paradigm."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbwatt._text import number_ranges
from gbwatt._validation import check_one_of
from gbwatt.data.formats.interchange import from_moabb
from gbwatt.data.trials import Trials
from gbwatt.errors import MissingFileError, PackageError, ParameterError

Array = NDArray[Any]

#: Name of MOABB's class for each paradigm that a data set can have.
_PARADIGMS: Mapping[str, str] = {
    "imagery": "MotorImagery",
    "p300": "P300",
    "ssvep": "SSVEP",
    "cvep": "CVEP",
    "rstate": "RestingStateToP300Adapter",
}


def read_moabb(
    dataset: Any, subject: int, *, band: tuple[float | None, float | None] | None = None, resample: float | None = None
) -> Trials:
    """Read the trials of a subject of a MOABB data set, in µV.

    MOABB downloads missing files.  Its paradigm filters the recordings and cuts the trials, which is recorded as the
    first of the ``steps``.  Sessions and runs have the names that MOABB gives them.  The sample at the end of the
    window, which MOABB includes, is dropped.

    Parameters
    ----------
    dataset : str or moabb.datasets.base.BaseDataset
        Name in ``moabb.datasets``, such as ``"BNCI2014_001"``, or the data set itself.
    subject : int
    band : (low, high) in Hz, optional
        Pass band, with None for no limit; (None, None) for no filter.  Default: that of the paradigm, 8 to 32 Hz for
        motor imagery.
    resample : float, optional
        Sampling rate in Hz.  Default: that of the paradigm, which is the rate of the data set except for resting state.

    Returns
    -------
    Trials
    """
    name = dataset if isinstance(dataset, str) else type(dataset).__name__
    opened = open_dataset(dataset) if isinstance(dataset, str) else dataset
    if subject not in opened.subject_list:
        raise ParameterError(f"subject={subject!r} is not in {name}; it has {number_ranges(opened.subject_list)}.")
    paradigm = _make_paradigm(name, opened, band, resample)
    return _to_trials(name, opened, paradigm, *_read_epochs(name, opened, paradigm, subject))


def _import_moabb(part: str) -> ModuleType:
    """Return a module of MOABB, such as "paradigms"; raise an error if MOABB is not installed."""
    from importlib import import_module

    try:
        return import_module(f"moabb.{part}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "moabb":
            raise
        raise PackageError.missing("MOABB", "this data set", "moabb") from error


def open_dataset(dataset: str, **options: Any) -> Any:
    """Return a data set of MOABB by name, without downloading it."""
    classes = {cls.__name__: cls for cls in _import_moabb("datasets.utils").dataset_list}
    check_one_of("dataset", dataset, tuple(classes))
    return classes[dataset](**options)


def _make_paradigm(
    name: str, dataset: Any, band: tuple[float | None, float | None] | None, resample: float | None
) -> Any:
    """Return MOABB's paradigm for a data set, with the pass band and sampling rate that were requested."""
    if dataset.paradigm not in _PARADIGMS:
        raise ParameterError(f"{name} has the paradigm {dataset.paradigm!r}; supported are {', '.join(_PARADIGMS)}.")
    options: dict[str, Any] = {} if band is None else {"fmin": band[0], "fmax": band[1]}
    if resample is not None:
        options["resample"] = resample
    return getattr(_import_moabb("paradigms"), _PARADIGMS[dataset.paradigm])(**options)


def _read_epochs(name: str, dataset: Any, paradigm: Any, subject: int) -> tuple[Any, Any, Any]:
    """Return MNE epochs, labels and metadata of a subject; MOABB downloads missing files."""
    try:
        epochs, labels, metadata = paradigm.get_data(dataset, [subject], return_epochs=True)
    except Exception as error:  # MOABB passes on any error of the network, the disk or the files
        raise MissingFileError(
            f"MOABB could not read subject {subject} of {name} ({type(error).__name__}: {error}). It downloads "
            "files to MNE_DATA of MNE's configuration: check the connection, the free space and incomplete files there."
        ) from error
    return epochs, labels, metadata


def _to_trials(name: str, dataset: Any, paradigm: Any, epochs: Any, labels: Any, metadata: Any) -> Trials:
    """Convert the epochs of a paradigm to trials, without the sample at the end of the window."""
    events = paradigm.used_events(dataset)
    occurring = [event for event in events if event in set(labels)]
    n_times = min(round(_window_seconds(dataset, paradigm) * epochs.info["sfreq"]), len(epochs.times))
    return from_moabb(
        epochs.get_data(verbose="ERROR")[..., :n_times] * dataset.unit_factor,
        labels,
        metadata,
        epochs.ch_names,
        epochs.info["sfreq"],
        class_names=occurring,
        tmin=float(epochs.times[0]),
        dataset=name,
        steps=(_paradigm_record(paradigm),),
    )


def stimuli(raw: Any) -> tuple[Array, Array]:
    """Return codes and sample numbers (n,) of the events in the stimulus channel of an MNE recording."""
    index = raw.get_channel_types().index("stim")  # by number: "stim" may also be the name of a channel
    channel = np.rint(raw.get_data(picks=[index], verbose="ERROR")[0]).astype(np.int64)
    samples = np.flatnonzero(channel)
    return channel[samples], samples


def _window_seconds(dataset: Any, paradigm: Any) -> float:
    """Return the length in seconds of the window that a paradigm cuts."""
    start, end = dataset.interval
    return float(end - start - paradigm.tmin if paradigm.tmax is None else paradigm.tmax - paradigm.tmin)


def _paradigm_record(paradigm: Any) -> dict[str, Any]:
    """Return the record of the filter and the resampling of a paradigm, for the steps of the trials."""
    low, high = (None if edge is None else float(edge) for edge in np.ravel(paradigm.filters[0]).tolist())
    step = {"step": "moabb paradigm", "paradigm": type(paradigm).__name__, "fmin": low, "fmax": high}
    return step if paradigm.resample is None else {**step, "resample": float(paradigm.resample)}

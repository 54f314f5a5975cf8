"""Any data set of MOABB, through the paradigm that it belongs to."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gbwatt.data.formats.interchange import from_moabb
from gbwatt.data.trials import Trials
from gbwatt.errors import MissingFileError, PackageError, ParameterError

Array = NDArray[Any]

#: Paradigm of MOABB for each kind of data set.
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
    """Trials of one subject of a data set of MOABB, in µV.

    MOABB downloads what it does not find in its own folder.  Its paradigm cuts the trials and filters the recordings
    before; what it did is the first of the ``steps``.  Sessions and runs have the names that MOABB gives them.  The
    sample at the end of the window, which MOABB includes, is left out.

    Parameters
    ----------
    dataset : str or moabb.datasets.base.BaseDataset
        Name as in ``moabb.datasets``, ``"BNCI2014_001"`` for instance, or the data set itself.
    subject : int
    band : (low, high) in Hz, optional
        Pass band of the filter, with None for no limit; (None, None) for no filter.  By default that of the paradigm,
        8 to 32 Hz for motor imagery.
    resample : float, optional
        Sampling rate in Hz; by default that of the paradigm, which is the data set's but for resting state.
    """
    found = open_dataset(dataset) if isinstance(dataset, str) else dataset
    name = type(found).__name__ if not isinstance(dataset, str) else dataset
    if subject not in found.subject_list:
        known = ", ".join(map(str, found.subject_list))
        raise ParameterError(f"subject={subject!r} is not in {name}; MOABB has {known}.")
    paradigm = _paradigm(name, found, band, resample)
    return _trials(name, found, paradigm, _epochs(name, found, paradigm, subject))


def _moabb(part: str) -> ModuleType:
    from importlib import import_module

    try:
        return import_module(f"moabb.{part}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "moabb":
            raise
        raise PackageError.missing("MOABB", "this data set", "moabb") from error


def open_dataset(dataset: str, **options: Any) -> Any:
    """One of MOABB's data sets, by name; nothing is downloaded yet."""
    known = {cls.__name__: cls for cls in _moabb("datasets.utils").dataset_list}
    if dataset not in known:
        close = difflib.get_close_matches(dataset, known, n=3, cutoff=0.5)
        hint = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
        raise ParameterError(f"dataset={dataset!r} is none of the {len(known)} of moabb.datasets.{hint}")
    return known[dataset](**options)


def _paradigm(name: str, dataset: Any, band: tuple[float | None, float | None] | None, resample: float | None) -> Any:
    if dataset.paradigm not in _PARADIGMS:
        raise ParameterError(f"{name} is of the paradigm {dataset.paradigm!r}; {', '.join(_PARADIGMS)} can be read.")
    options: dict[str, Any] = {} if band is None else {"fmin": band[0], "fmax": band[1]}
    if resample is not None:
        options["resample"] = resample
    return getattr(_moabb("paradigms"), _PARADIGMS[dataset.paradigm])(**options)


def _epochs(name: str, dataset: Any, paradigm: Any, subject: int) -> tuple[Any, Any, Any]:
    """Epochs of MNE, labels and metadata."""
    try:
        epochs, labels, metadata = paradigm.get_data(dataset, [subject], return_epochs=True)
    except Exception as error:  # of the network, the disk or the files, in whatever form MOABB passes it on
        raise MissingFileError(
            f"MOABB could not get subject {subject} of {name} ({type(error).__name__}: {error}). It downloads into the "
            "folder MNE_DATA of MNE's configuration: look at the connection, the space there, and incomplete files."
        ) from error
    return epochs, labels, metadata


def _trials(name: str, dataset: Any, paradigm: Any, found: tuple[Any, Any, Any]) -> Trials:
    epochs, labels, metadata = found
    events = paradigm.used_events(dataset)
    occurring = [event for event in events if event in set(labels)]
    n_times = min(round(_seconds(dataset, paradigm) * epochs.info["sfreq"]), len(epochs.times))
    return from_moabb(
        epochs.get_data(verbose="ERROR")[..., :n_times] * dataset.unit_factor,
        labels,
        metadata,
        epochs.ch_names,
        epochs.info["sfreq"],
        class_names=occurring,
        tmin=float(epochs.times[0]),
        dataset=name,
        steps=(_record(paradigm),),
    )


def stimuli(raw: Any) -> tuple[Array, Array]:
    """Codes and sample numbers of the events in the stimulus channel of a recording from MOABB."""
    place = raw.get_channel_types().index("stim")  # by number: a channel may be called "stim", to MNE a type too
    channel = np.rint(raw.get_data(picks=[place], verbose="ERROR")[0]).astype(np.int64)
    places = np.flatnonzero(channel)
    return channel[places], places


def _seconds(dataset: Any, paradigm: Any) -> float:
    """Length of the window."""
    start, end = dataset.interval
    return float(end - start - paradigm.tmin if paradigm.tmax is None else paradigm.tmax - paradigm.tmin)


def _record(paradigm: Any) -> dict[str, Any]:
    """What the paradigm did to the recordings."""
    low, high = (None if edge is None else float(edge) for edge in np.ravel(paradigm.filters[0]).tolist())
    step = {"step": "moabb paradigm", "paradigm": type(paradigm).__name__, "fmin": low, "fmax": high}
    return step if paradigm.resample is None else {**step, "resample": float(paradigm.resample)}

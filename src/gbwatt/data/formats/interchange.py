"""Conversion of trials from and to MNE-Python epochs and MOABB arrays."""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gbwatt._validation import check_one_of
from gbwatt.data import trials
from gbwatt.data.montage import montage_name
from gbwatt.data.preprocessing.steps import Convert, Pick, Step
from gbwatt.data.trials import UNITS, Frame, Trials, Truth
from gbwatt.errors import InputError, MismatchError, ParameterError, ShapeError

if TYPE_CHECKING:
    import mne
    import pandas as pd

Array = NDArray[Any]

#: Fields of trials that are columns of the metadata of epochs.
_ORIGIN_FIELDS = ("subject", "session", "run", "group")

#: Name of the first step of trials from epochs of other programs, with the filters and the reference in ``info``.
RECORDED = "recorded"


# ---- MNE


def to_mne(trials: Trials) -> mne.EpochsArray:
    """Convert trials to :class:`mne.EpochsArray`.

    Samples are in volts.  Samples in "a.u." are unchanged, and their channels have no unit (``FIFF_UNIT_NONE``).  The
    classes are the events, numbered from 1; subject, session, run, group and label of each trial are in ``metadata``.
    Electrodes get positions if MNE's 10-05 montage contains all of them.  MNE counts time in whole samples, so ``tmin``
    is rounded to one.  The name of the data set, the preprocessing steps, the ground truth and the state of the epochs
    are stored in ``info["description"]``, from which :func:`from_mne` restores the history.
    """
    import mne

    if not len(trials):
        raise ParameterError("there are no trials; MNE does not support empty epochs.")
    n, n_chans, n_times = trials.shape
    epochs = mne.EpochsArray(
        trials.X.astype(np.float64) * UNITS.get(trials.unit, 1.0),
        make_info(trials.frame),
        np.column_stack([np.arange(n) * n_times, np.zeros(n, dtype=int), trials.y + 1]),
        tmin=_round_to_sample(trials.tmin, trials.sfreq),  # with half samples MNE writes files that it cannot read
        event_id={name: code for code, name in enumerate(trials.class_names, start=1)},
        on_missing="ignore",
        metadata=_make_metadata(trials, (*_ORIGIN_FIELDS, "label")),
        proj=False,
        verbose="ERROR",
    )
    state = {**_signal_properties(epochs, range(n_chans)), "unit": trials.unit}
    record = {"tmin": trials.tmin, "state": state, **to_record(trials)}
    epochs.info["description"] = json.dumps({"gbwatt": record, "crc32": _checksum(record)})
    return epochs


def from_mne(
    epochs: mne.BaseEpochs,
    *,
    subject: Any = 1,
    session: Any = "1",
    run: Any = "1",
    group: Any = -1,
    channels: Sequence[str] | None = None,
    dataset: str = "",
) -> Trials:
    """Convert MNE epochs to trials, in µV.

    Rejected epochs are dropped.  The classes are the names in ``event_id``, in the order of their codes.

    Epochs of other programs get a first step "recorded" with the filters and the reference in ``epochs.info``.  Epochs
    of :func:`to_mne` keep their history.  Changes since then that MNE records (filter, resampling, crop, baseline,
    reference, projection) are added as a step "mne".  MNE does not record other changes, such as ``apply_function``.

    Parameters
    ----------
    epochs : mne.BaseEpochs
    subject, session, run, group
        One value or one per epoch, as in :class:`Trials`.  A column of this name in ``epochs.metadata`` takes
        precedence.
    channels : sequence of str, optional
        Channels in this order.  Default: all EEG channels that are not marked as bad.
    dataset : str
        Name of the data set, if the epochs do not come from :func:`to_mne`.

    Returns
    -------
    Trials
    """
    kept = epochs.copy().drop_bad(verbose="ERROR")
    if not len(kept):
        raise ParameterError(f"all {len(epochs.drop_log)} epochs were rejected; none is left.")
    picks = channel_picks(kept, channels)
    unit, scale = unit_and_scale(kept, picks)
    names = {code: name for name, code in sorted(kept.event_id.items(), key=lambda item: item[1])}
    record = _stored_record(kept.info["description"])
    state = {**_signal_properties(kept, picks), "unit": unit}
    origin = {"subject": subject, "session": session, "run": run, "group": group}
    return Trials(
        X=kept.get_data(picks=picks, verbose="ERROR") * scale,
        y=np.searchsorted(list(names), kept.events[:, 2]),
        class_names=tuple(names.values()),
        ch_names=tuple(kept.ch_names[pick] for pick in picks),
        sfreq=kept.info["sfreq"],
        tmin=_exact_tmin(kept, record),
        unit=unit,
        **{**origin, **(columns := _read_metadata(kept.metadata))},
        **{"dataset": dataset, **_current_provenance(record, state, columns.get("subject", subject))},
    )


def make_info(frame: Frame, state: Mapping[str, Any] | None = None) -> mne.Info:
    """Return MNE's ``info`` for samples, with positions if the 10-05 montage has all electrodes.

    ``state`` is a result of :func:`recorded_state`, whose filters and reference are entered.
    """
    import mne

    info = mne.create_info(list(frame.ch_names), frame.sfreq, "eeg", verbose="ERROR")
    montage = mne.channels.make_standard_montage(montage_name())
    if set(frame.ch_names) <= set(montage.ch_names):
        info.set_montage(montage, verbose="ERROR")
    if frame.unit not in UNITS:
        for channel in info["chs"]:
            channel["unit"] = _fiff_unit_none()
    with info._unlock():
        known = {name: value for name, value in (state or {}).items() if value is not None}
        info.update({name: value for name, value in known.items() if name != "projections"})
    return info


def _fiff_unit_none() -> int:
    """Return MNE's code of channels without a unit."""
    from mne.io.constants import FIFF

    return int(FIFF.FIFF_UNIT_NONE)


def _make_metadata(trials: Trials, columns: Sequence[str]) -> pd.DataFrame:
    """Return the metadata of MNE epochs or MOABB arrays: a row for each trial, with "label" or fields of its origin."""
    import pandas as pd

    values = {"label": trials.labels, **{name: getattr(trials, name) for name in _ORIGIN_FIELDS}}
    return pd.DataFrame({name: values[name].tolist() for name in columns})


def _read_metadata(metadata: pd.DataFrame | None) -> dict[str, Array]:
    """Return the columns of metadata that are fields of :class:`Trials`."""
    return {} if metadata is None else {name: metadata[name].to_numpy() for name in _ORIGIN_FIELDS if name in metadata}


def channel_picks(signals: mne.BaseEpochs | mne.io.BaseRaw, channels: Sequence[str] | None) -> list[int]:
    """Return the indices of the requested channels, by default of all EEG channels that are not marked as bad."""
    import mne

    if channels is None:
        picks = mne.pick_types(signals.info, eeg=True).tolist()  # excludes those marked as bad
        if not picks:
            types = ", ".join(sorted(set(signals.get_channel_types())))
            raise ParameterError(f"the epochs have no good EEG channel, only {types}; select channels=[...].")
        return list(picks)
    for name in channels:
        check_one_of("channels", name, tuple(signals.ch_names))
    return [signals.ch_names.index(name) for name in channels]


def unit_and_scale(signals: mne.BaseEpochs | mne.io.BaseRaw, picks: Sequence[int]) -> tuple[str, float]:
    """Return the unit of the trials, "µV" or "a.u.", and the factor from the samples of MNE to this unit."""
    without = [int(signals.info["chs"][pick]["unit"]) == _fiff_unit_none() for pick in picks]
    if any(without) and not all(without):
        raise MismatchError("some channels are in volts and some have no unit; select channels=[...].")
    return ("a.u.", 1.0) if any(without) else ("µV", 1e6)


def _round_to_sample(tmin: float, sfreq: float) -> float:
    """Return a time in seconds rounded to a multiple of the sampling interval, as MNE stores it."""
    return round(tmin * sfreq) / sfreq


def _exact_tmin(epochs: mne.BaseEpochs, record: Mapping[str, Any]) -> float:
    """Return the start of epochs in seconds.

    MNE rounds it to whole samples.  If it has not changed since :func:`to_mne`, the exact start in the record is
    returned.
    """
    start, sfreq = float(epochs.times[0]), float(epochs.info["sfreq"])
    exact = float(record.get("tmin", start))
    return exact if abs(_round_to_sample(exact, sfreq) - start) < 1e-3 / sfreq else start


def _stored_record(description: str | None) -> dict[str, Any]:
    """Return the record that :func:`to_mne` wrote to the description of epochs; empty for other descriptions."""
    text = description or ""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        if _OUR_KEYS.search(text):
            raise _damaged_record(f"{type(error).__name__}: {error}") from error
        return {}
    record = content.get("gbwatt") if isinstance(content, dict) else None
    if not isinstance(record, dict):
        return {}
    if content.get("crc32", _checksum(record)) != _checksum(record):
        raise _damaged_record("its checksum is wrong")
    return record


#: Text by which a damaged description of :func:`to_mne` is recognised.
_OUR_KEYS = re.compile(r'"gbwatt"|"truths"|"steps"')


def _checksum(record: Mapping[str, Any]) -> int:
    """Return the CRC-32 of the JSON text of a record, by which :func:`_stored_record` recognises damage."""
    return zlib.crc32(json.dumps(record, sort_keys=True).encode())


def _damaged_record(why: str) -> ParameterError:
    """Return the error for a damaged record of :func:`to_mne`."""
    return ParameterError(
        f"the record of these trials is damaged ({why}); a dict with dataset, steps and truths is needed. Write the "
        "file again."
    )


# ---- changes made in MNE


def recorded_state(info: Mapping[str, Any]) -> dict[str, Any]:
    """Return the processing that MNE recorded in ``info``: filter edges in Hz, None if unknown, and the reference."""
    edges = {name: info.get(name) for name in ("highpass", "lowpass")}
    return {
        **{name: float(edge) if edge is not None and math.isfinite(edge) else None for name, edge in edges.items()},
        "custom_ref_applied": int(info["custom_ref_applied"]),
        "projections": sum(bool(projection["active"]) for projection in info["projs"]),
    }


def steps_of(epochs: mne.BaseEpochs) -> tuple[Mapping[str, Any], ...] | None:
    """Return the steps of epochs made by :func:`to_mne`, with changes made in MNE since; None for other epochs."""
    record = _stored_record(epochs.info["description"])
    before = record.get("state")
    if not isinstance(before, Mapping):
        return None
    now = {**_signal_properties(epochs, range(len(epochs.ch_names))), "unit": before.get("unit")}
    return (*provenance(record).get("steps", ()), *_steps_between(before, now))


def _signal_properties(epochs: mne.BaseEpochs, picks: Sequence[int]) -> dict[str, Any]:
    """Return the properties of epochs that MNE changes when it processes them: filters, reference, times, channels.

    Comparing those of two points in time shows what was done in between.
    """
    return {
        **recorded_state(epochs.info),
        "sfreq": float(epochs.info["sfreq"]),
        "tmin": float(epochs.times[0]),
        "n_times": len(epochs.times),
        "baseline": None if epochs.baseline is None else list(epochs.baseline),
        "channels": [epochs.ch_names[pick] for pick in picks],
    }


def _steps_between(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return records of the preprocessing steps that explain the difference between two states.

    ``before`` and ``now`` are results of :func:`_signal_properties`, with the unit.  Selections of channels and
    conversions of the unit become our steps; all other changes are fields of one step "mne".
    """
    changed = {name: now[name] for name, value in before.items() if not _nearly_equal(value, now[name])}
    ours: list[Step] = []
    if "channels" in changed and set(now["channels"]) <= set(before["channels"]):
        ours.append(Pick(tuple(changed.pop("channels"))))
    if "unit" in changed and {before["unit"], now["unit"]} <= set(UNITS):
        ours.append(Convert(changed.pop("unit")))
    return [*([{"step": "mne", **changed}] if changed else []), *(step.record() for step in ours)]


def _nearly_equal(first: Any, second: Any) -> bool:
    """Whether two values are equal; numbers, up to the digits that MNE does not save."""
    numbers = isinstance(first, float) and isinstance(second, float)
    return math.isclose(first, second, rel_tol=1e-6, abs_tol=1e-6) if numbers else bool(first == second)


def _current_provenance(record: Mapping[str, Any], state: Mapping[str, Any], subject: Any) -> dict[str, Any]:
    """Return the fields ``dataset``, ``steps`` and ``truths`` of trials from a record of :func:`to_mne`.

    An empty record is allowed.  Changes between the stored state and ``state`` are added to the steps, and only
    subjects in ``subject`` are kept.
    """
    fields = provenance(record)
    if "state" in record:
        fields["steps"] = [*fields["steps"], *_steps_between(record["state"], state)]
    elif "steps" not in fields:
        kept = ("highpass", "lowpass", "custom_ref_applied", "projections")
        fields["steps"] = [{"step": RECORDED, **{name: state[name] for name in kept}}]
    subjects_left = np.unique(subject).tolist()
    return {**fields, "truths": {s: truth for s, truth in fields.get("truths", {}).items() if s in subjects_left}}


# ---- provenance as JSON


def to_record(trials: Trials) -> dict[str, Any]:
    """Return data set, preprocessing steps and ground truth of trials for JSON; :func:`provenance` is the inverse."""
    truths = {str(subject): truth.to_dict() for subject, truth in trials.truths.items()}
    return {"dataset": trials.dataset, "steps": list(trials.steps), "truths": truths}


def provenance(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields ``dataset``, ``steps`` and ``truths`` of :class:`Trials` from a record of :func:`to_record`.

    Raises :class:`ParameterError` if the record is damaged.
    """
    try:
        frozen = trials.freeze(record)
        fields = {name: frozen[name] for name in ("dataset", "steps") if name in frozen}
        if "steps" in fields:
            fields["steps"] = [dict(step) for step in fields["steps"]]
        truths = {int(subject): Truth.from_dict(truth) for subject, truth in frozen.get("truths", {}).items()}
    except InputError:
        raise
    except Exception as error:  # any kind is possible
        raise _damaged_record(f"{type(error).__name__}: {error}") from error
    return {**fields, "truths": truths}


# ---- MOABB


def to_moabb(trials: Trials) -> tuple[Array, Array, pd.DataFrame]:
    """Convert trials to arrays as a MOABB paradigm returns them.

    Returns
    -------
    X : array (n, n_chans, n_times)
        Samples in float64, in µV; in "a.u." they are unchanged.
    labels : array (n,)
        Class names.
    metadata : DataFrame
        Columns subject, session and run, as in MOABB, and group.
    """
    scale = UNITS[trials.unit] / UNITS["µV"] if trials.unit in UNITS else 1.0
    return trials.X.astype(np.float64) * scale, trials.labels, _make_metadata(trials, _ORIGIN_FIELDS)


def from_moabb(
    X: Any,
    y: Any,
    metadata: pd.DataFrame,
    ch_names: Sequence[str],
    sfreq: float,
    *,
    class_names: Sequence[str] | None = None,
    **others: Any,
) -> Trials:
    """Convert arrays of a MOABB paradigm to trials.

    Parameters
    ----------
    X : array (n, n_chans, n_times)
        Samples in µV, as MOABB returns them.
    y : array (n,)
        Labels.
    metadata : DataFrame
        Columns subject, session and run, and optionally group.
    ch_names : sequence of str
        Channel names, which MOABB's arrays lack.
    sfreq : float
        Sampling rate in Hz.
    class_names : sequence of str, optional
        Order of the classes.  Default: the labels, sorted.
    **others
        Other fields of :class:`Trials`, such as ``tmin``, ``unit`` and ``dataset``.

    Returns
    -------
    Trials
    """
    if np.ndim(X) == 4:
        raise ShapeError(f"'X' {np.shape(X)} is a filter bank; select one filter: X[..., 0].")
    missing = [name for name in ("subject", "session", "run") if name not in metadata]
    if missing:
        raise ParameterError(f"metadata has the columns {list(metadata)}; {missing[0]!r} is missing.")
    names, codes = numbered(y, class_names)
    return Trials(
        X=X, y=codes, class_names=names, ch_names=tuple(ch_names), sfreq=sfreq, **{**_read_metadata(metadata), **others}
    )


def numbered(labels: Any, class_names: Sequence[str] | None = None) -> tuple[tuple[str, ...], Array]:
    """Return the class names and the class number of each label (n,).

    ``class_names`` is the order of the classes; by default they are sorted.
    """
    texts = np.asarray(labels).astype(str)
    names = tuple(np.unique(texts).tolist() if class_names is None else map(str, class_names))
    for name in np.unique(texts).tolist():
        check_one_of("y", name, names)
    number = {name: code for code, name in enumerate(names)}
    return names, np.array([number[text] for text in texts.ravel().tolist()], dtype=np.int64).reshape(texts.shape)

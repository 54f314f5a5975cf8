"""Trials from and to MNE-Python's epochs and MOABB's arrays."""

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
from gbwatt.data import _trial_fields
from gbwatt.data.montage import montage_name
from gbwatt.data.preprocessing.steps import Convert, Pick, Step
from gbwatt.data.trials import UNITS, Trials, Truth
from gbwatt.errors import InputError, MismatchError, ParameterError, ShapeError

if TYPE_CHECKING:
    import mne
    import pandas as pd

Array = NDArray[Any]

_COLUMNS = ("subject", "session", "run", "group")

#: Name of the first step of trials from other programs' epochs: filters and reference as ``info`` has them.
RECORDED = "recorded"


# ---- MNE


def to_mne(trials: Trials) -> mne.EpochsArray:
    """The same trials as :class:`mne.EpochsArray`.

    Samples are in volts.  Samples in "a.u." stay as they are, and their channels have no unit (``FIFF_UNIT_NONE``), by
    which :func:`from_mne` knows them again.  The classes are the events, numbered from 1; subject, session, run, group
    and label of each trial are in ``metadata``.  Electrodes get positions if MNE's 10-05 montage has all of them.  MNE
    counts time in whole samples, so ``tmin`` is rounded to one.  The name of the data set, the steps of preprocessing
    and what was planted are kept in ``info["description"]``, also in a file; so is what MNE knows of the epochs, by
    which :func:`from_mne` sees what was done to them since.
    """
    import mne

    if not len(trials):
        raise ParameterError("there are no trials; MNE has no epochs without any.")
    n, n_chans, n_times = trials.shape
    epochs = mne.EpochsArray(
        trials.X.astype(np.float64) * UNITS.get(trials.unit, 1.0),
        _info(trials),
        np.column_stack([np.arange(n) * n_times, np.zeros(n, dtype=int), trials.y + 1]),
        tmin=_whole_samples(trials.tmin, trials.sfreq),  # MNE writes files that it cannot read for half samples
        event_id={name: code for code, name in enumerate(trials.class_names, start=1)},
        on_missing="ignore",
        metadata=_metadata(trials, (*_COLUMNS, "label")),
        proj=False,
        verbose="ERROR",
    )
    about = {"tmin": trials.tmin, "state": {**_state(epochs, range(n_chans)), "unit": trials.unit}}
    record = {**about, **to_record(trials)}
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
    """Trials of MNE's epochs, in µV.

    Epochs that MNE rejects are left out.  The classes are the names in ``event_id``, in the order of their codes.

    Epochs of other programs get a first step "recorded" with the filters and the reference of ``epochs.info``.  Epochs
    of :func:`to_mne` come back with their history.  If MNE knows that their samples were changed in between, by
    a filter, resampling, a crop, a baseline, a reference or a projection, the history goes on with a step "mne" that
    has what is different now.  Of other changes, such as those of ``apply_function``, MNE keeps no record.

    Parameters
    ----------
    epochs : mne.BaseEpochs
    subject, session, run, group
        One value or one for each epoch, as in :class:`Trials`; a column of this name in ``epochs.metadata`` goes first.
    channels : sequence of str, optional
        Channels to take, in this order; by default all EEG channels that are not marked as bad.
    dataset : str
        Name of the data set, if the epochs do not come from :func:`to_mne`.
    """
    kept = epochs.copy().drop_bad(verbose="ERROR")
    if not len(kept):
        raise ParameterError(f"none of the {len(epochs.drop_log)} epochs is left; all were rejected.")
    picks = _picks(kept, channels)
    unit, scale = _unit(kept, picks)
    names = {code: name for name, code in sorted(kept.event_id.items(), key=lambda item: item[1])}
    about = _about(kept.info["description"])
    state = {**_state(kept, picks), "unit": unit}
    given = {"subject": subject, "session": session, "run": run, "group": group}
    return Trials(
        X=kept.get_data(picks=picks, verbose="ERROR") * scale,
        y=np.searchsorted(list(names), kept.events[:, 2]),
        class_names=tuple(names.values()),
        ch_names=tuple(kept.ch_names[pick] for pick in picks),
        sfreq=kept.info["sfreq"],
        tmin=_tmin(kept, about),
        unit=unit,
        **{**given, **(columns := _columns(kept.metadata))},
        **{"dataset": dataset, **_provenance(about, state, columns.get("subject", subject))},
    )


def _info(trials: Trials) -> mne.Info:
    import mne

    info = mne.create_info(list(trials.ch_names), trials.sfreq, "eeg", verbose="ERROR")
    montage = mne.channels.make_standard_montage(montage_name())
    if set(trials.ch_names) <= set(montage.ch_names):
        info.set_montage(montage, verbose="ERROR")
    if trials.unit not in UNITS:
        for channel in info["chs"]:
            channel["unit"] = _no_unit()
    return info


def _no_unit() -> int:
    from mne.io.constants import FIFF

    return int(FIFF.FIFF_UNIT_NONE)


def _metadata(trials: Trials, columns: Sequence[str]) -> pd.DataFrame:
    import pandas as pd

    values = {"label": trials.labels, **{name: getattr(trials, name) for name in _COLUMNS}}
    return pd.DataFrame({name: values[name].tolist() for name in columns})


def _columns(metadata: pd.DataFrame | None) -> dict[str, Array]:
    return {} if metadata is None else {name: metadata[name].to_numpy() for name in _COLUMNS if name in metadata}


def _picks(epochs: mne.BaseEpochs, channels: Sequence[str] | None) -> list[int]:
    import mne

    if channels is None:
        picks = mne.pick_types(epochs.info, eeg=True).tolist()  # without those marked as bad
        if not picks:
            types = ", ".join(sorted(set(epochs.get_channel_types())))
            raise ParameterError(f"the epochs have no good EEG channel, only {types}; name some in channels.")
        return list(picks)
    for name in channels:
        check_one_of("channels", name, tuple(epochs.ch_names))
    return [epochs.ch_names.index(name) for name in channels]


def _unit(epochs: mne.BaseEpochs, picks: Sequence[int]) -> tuple[str, float]:
    without = [int(epochs.info["chs"][pick]["unit"]) == _no_unit() for pick in picks]
    if any(without) and not all(without):
        raise MismatchError("some channels are in volts and some have no unit; choose with channels=[...].")
    return ("a.u.", 1.0) if any(without) else ("µV", 1e6)


def _whole_samples(tmin: float, sfreq: float) -> float:
    return round(tmin * sfreq) / sfreq


def _tmin(epochs: mne.BaseEpochs, about: Mapping[str, Any]) -> float:
    """Start of the epochs; the exact one, if they still start where :func:`to_mne` had them start."""
    start, sfreq = float(epochs.times[0]), float(epochs.info["sfreq"])
    exact = float(about.get("tmin", start))
    return exact if abs(_whole_samples(exact, sfreq) - start) < 1e-3 / sfreq else start


def _about(description: str | None) -> dict[str, Any]:
    """What :func:`to_mne` wrote into the description of the recording; nothing if it is someone else's."""
    text = description or ""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        if _OURS.search(text):
            raise _damaged_record(f"{type(error).__name__}: {error}") from error
        return {}
    about = found.get("gbwatt") if isinstance(found, dict) else None
    if not isinstance(about, dict):
        return {}
    if found.get("crc32", _checksum(about)) != _checksum(about):
        raise _damaged_record("its checksum is another one")
    return about


#: Signs of a description of ours, however damaged.
_OURS = re.compile(r'"gbwatt"|"truths"|"steps"')


def _checksum(record: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(record, sort_keys=True).encode())


def _damaged_record(why: str) -> ParameterError:
    return ParameterError(
        f"the record of these trials is damaged ({why}); a dict with dataset, steps and truths is needed. Write the "
        "file again."
    )


# ---- what was done in MNE


def recorded_state(info: Mapping[str, Any]) -> dict[str, Any]:
    """Filters in Hz and reference of epochs, as their ``info`` has them; None where it has no number."""
    edges = {name: info.get(name) for name in ("highpass", "lowpass")}
    return {
        **{name: float(edge) if edge is not None and math.isfinite(edge) else None for name, edge in edges.items()},
        "custom_ref_applied": int(info["custom_ref_applied"]),
        "projections": sum(bool(projection["active"]) for projection in info["projs"]),
    }


def steps_of(epochs: mne.BaseEpochs) -> tuple[Mapping[str, Any], ...] | None:
    """History of epochs that :func:`to_mne` made, up to now; None for those of other programs."""
    about = _about(epochs.info["description"])
    before = about.get("state")
    if not isinstance(before, Mapping):
        return None
    now = {**_state(epochs, range(len(epochs.ch_names))), "unit": before.get("unit")}
    return (*provenance(about).get("steps", ()), *_since(before, now))


def _state(epochs: mne.BaseEpochs, picks: Sequence[int]) -> dict[str, Any]:
    """What MNE changes along with the samples."""
    return {
        **recorded_state(epochs.info),
        "sfreq": float(epochs.info["sfreq"]),
        "tmin": float(epochs.times[0]),
        "n_times": len(epochs.times),
        "baseline": None if epochs.baseline is None else list(epochs.baseline),
        "channels": [epochs.ch_names[pick] for pick in picks],
    }


def _since(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Records of what was done from one state to another: in MNE, by the choice of channels, and by the unit."""
    changed = {name: now[name] for name, value in before.items() if not _same(value, now[name])}
    ours: list[Step] = []
    if "channels" in changed and set(now["channels"]) <= set(before["channels"]):
        ours.append(Pick(tuple(changed.pop("channels"))))
    if "unit" in changed and {before["unit"], now["unit"]} <= set(UNITS):
        ours.append(Convert(changed.pop("unit")))
    return [*([{"step": "mne", **changed}] if changed else []), *(step.record() for step in ours)]


def _same(one: Any, other: Any) -> bool:
    """Equal, but for the digits that a file of MNE does not keep."""
    numbers = isinstance(one, float) and isinstance(other, float)
    return math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-6) if numbers else bool(one == other)


def _provenance(about: Mapping[str, Any], state: Mapping[str, Any], subject: Any) -> dict[str, Any]:
    """Data set, history up to now, and what was planted for the subjects that are left."""
    found = provenance(about)
    if "state" in about:
        found["steps"] = [*found["steps"], *_since(about["state"], state)]
    elif "steps" not in found:
        kept = ("highpass", "lowpass", "custom_ref_applied", "projections")
        found["steps"] = [{"step": RECORDED, **{name: state[name] for name in kept}}]
    left = np.unique(subject).tolist()
    return {**found, "truths": {s: truth for s, truth in found.get("truths", {}).items() if s in left}}


# ---- where trials come from, in a form that JSON keeps


def to_record(trials: Trials) -> dict[str, Any]:
    """Data set, steps of preprocessing, and what was planted for each subject."""
    truths = {str(subject): truth.to_dict() for subject, truth in trials.truths.items()}
    return {"dataset": trials.dataset, "steps": list(trials.steps), "truths": truths}


def provenance(record: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of :class:`Trials` out of what :func:`to_record` gave, which may come from a damaged file."""
    try:
        settled = _trial_fields.settled(record)
        found = {name: settled[name] for name in ("dataset", "steps") if name in settled}
        if "steps" in found:
            found["steps"] = [dict(step) for step in found["steps"]]
        truths = {int(subject): Truth.from_dict(truth) for subject, truth in settled.get("truths", {}).items()}
    except InputError:
        raise
    except Exception as error:  # whatever is not where it should be
        raise _damaged_record(f"{type(error).__name__}: {error}") from error
    return {**found, "truths": truths}


# ---- MOABB


def to_moabb(trials: Trials) -> tuple[Array, Array, pd.DataFrame]:
    """What a paradigm of MOABB gives: X (n, n_chans, n_times) in float64, labels (n,) and a frame of metadata.

    X is in µV, or as it is if in "a.u.".  The frame has MOABB's columns subject, session and run, and also
    group.
    """
    scale = UNITS[trials.unit] / UNITS["µV"] if trials.unit in UNITS else 1.0
    return trials.X.astype(np.float64) * scale, trials.labels, _metadata(trials, _COLUMNS)


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
    """Trials of what a paradigm of MOABB gave.

    Parameters
    ----------
    X : array (n, n_chans, n_times)
        In µV, as MOABB returns it.
    y : array (n,)
        Labels.
    metadata : DataFrame
        With the columns subject, session and run; it may have group too.
    ch_names, sfreq
        MOABB's arrays do not have them.
    class_names : sequence of str, optional
        Order of the classes; by default the labels that occur, sorted.
    **others
        Other fields of :class:`Trials`, such as ``tmin``, ``unit`` and ``dataset``.
    """
    if np.ndim(X) == 4:
        raise ShapeError(f"'X' {np.shape(X)} has a bank of filters on its last axis; take one: X[..., 0].")
    missing = [name for name in ("subject", "session", "run") if name not in metadata]
    if missing:
        raise ParameterError(f"metadata has the columns {list(metadata)}; {missing[0]!r} is missing.")
    names, codes = numbered(y, class_names)
    return Trials(
        X=X, y=codes, class_names=names, ch_names=tuple(ch_names), sfreq=sfreq, **{**_columns(metadata), **others}
    )


def numbered(labels: Any, class_names: Sequence[str] | None = None) -> tuple[tuple[str, ...], Array]:
    """Names of the classes, sorted unless given, and the place of each label among them (n,)."""
    texts = np.asarray(labels).astype(str)
    names = tuple(np.unique(texts).tolist() if class_names is None else map(str, class_names))
    for name in np.unique(texts).tolist():
        check_one_of("y", name, names)
    place = {name: number for number, name in enumerate(names)}
    return names, np.array([place[text] for text in texts.ravel().tolist()], dtype=np.int64).reshape(texts.shape)

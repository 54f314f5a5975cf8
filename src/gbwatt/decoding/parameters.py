"""Checks of the parameters of estimators, before any data are read."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from gbwatt._validation import check_at_least, check_one_of
from gbwatt.decoding.alignment import ALIGNMENTS, DOMAINS
from gbwatt.decoding.calibration import CALIBRATIONS
from gbwatt.decoding.paradigms import PARADIGMS
from gbwatt.decoding.transfer import list_weights
from gbwatt.errors import ParameterError
from gbwatt.models.registry import entry

if TYPE_CHECKING:
    from gbwatt.decoding.estimator import EEGDecoder


def check_parameters(decoder: EEGDecoder) -> None:
    """Raise ParameterError for wrong arguments, before any data are read."""
    if decoder.schedule is not None:
        check_one_of("schedule", decoder.schedule, ("constant", "cosine"))
    if decoder.alignment is not None:
        check_one_of("alignment", decoder.alignment, tuple(ALIGNMENTS))
    check_one_of("domains", decoder.domains, DOMAINS)
    _require_fine_tuning(decoder.frozen, decoder.layer_lr, entry(decoder.model).classical)
    for folder in decoder._source_folders():
        if not folder.is_dir():
            _require_initialization(str(folder))
        given = sorted(decoder._options().keys() - {"recipe"}) + ["paradigm"] * (decoder.paradigm not in (None, "task"))
        if given:
            raise ParameterError(
                f"initialization={str(folder)!r} determines the architecture; leave out {', '.join(given)}."
            )
    paradigm = decoder._paradigm()
    if paradigm is not None:
        check_one_of("paradigm", paradigm, (*PARADIGMS, "auto"))
        if decoder.model != "gbwatt":
            raise ParameterError(f"paradigm={decoder.paradigm!r} is for model='gbwatt', not {decoder.model!r}.")
    if decoder.n_members is not None:
        check_at_least("n_members", decoder.n_members, 1)
    _require_processes(decoder.n_jobs)
    if decoder.calibration is not None:
        check_one_of("calibration", decoder.calibration, CALIBRATIONS)
    if decoder.warm_start and entry(decoder.model).classical:
        raise ParameterError(
            f"warm_start=True: model={decoder.model!r} is a classical pipeline, whose fit does not depend on an "
            "earlier one; leave it out."
        )
    numbers = asdict(decoder._registered().training) | {"seed": decoder.seed}
    _require_training_ranges(numbers, entry(decoder.model).classical)
    _require_patience(decoder.early_stopping, decoder._validation())


def _require_initialization(name: str) -> None:
    """Raise ParameterError for initial weights that are neither known by name nor a folder."""
    names = ("random", "classical", *list_weights())
    try:
        check_one_of("initialization", name, names)
    except ParameterError as error:
        raise ParameterError(f"{error} Or give the folder of a model; there is no folder {name!r}.") from None


def _require_training_ranges(numbers: dict[str, Any], classical: bool) -> None:
    """Raise ParameterError for a training parameter or seed of a wrong type or out of range.

    Classical pipelines may have 0 epochs.
    """
    least = {"lr": 0, "weight_decay": 0, "batch_size": 2, "max_epochs": 1 - classical, "seed": 0}
    for name, value in numbers.items():
        whole = name in ("batch_size", "max_epochs", "seed")
        kind = (int, np.integer) if whole else (int, float, np.number)
        if isinstance(value, bool) or not isinstance(value, kind) or not least[name] <= value < 2**32:
            number = "a whole number" if whole else "a number"
            raise ParameterError(f"{name}={value!r} must be {number}, {least[name]} or more.")


def _require_fine_tuning(frozen: Any, layer_lr: Any, classical: bool) -> None:
    """Raise ParameterError for frozen parts or factors of learning rates of a wrong type or value."""
    if classical and (frozen or layer_lr):
        name = "frozen" if frozen else "layer_lr"
        raise ParameterError(f"{name}={frozen or layer_lr!r}: classical pipelines have no training; leave it out.")
    if isinstance(frozen, str):
        raise ParameterError(f"frozen={frozen!r} must be a sequence of names: [{frozen!r}].")
    for part, factor in dict(layer_lr or {}).items():
        if isinstance(factor, bool) or not isinstance(factor, int | float | np.number) or not 0 < factor < np.inf:
            raise ParameterError(
                f"layer_lr has {part!r}: {factor!r}; positive numbers are allowed. To keep a part as it is, use frozen."
            )


def _require_processes(n_jobs: Any) -> None:
    """Raise ParameterError for a number of processes that is 0 or no whole number."""
    if n_jobs is not None and (isinstance(n_jobs, bool) or not isinstance(n_jobs, int | np.integer)):
        raise ParameterError(f"n_jobs={n_jobs!r} must be a whole number, or None.")
    if n_jobs == 0:
        raise ParameterError("n_jobs=0: at least one process is needed; -1 is one for each core.")


def _require_patience(patience: int | None, validation: Any) -> None:
    """Raise ParameterError if the patience of early stopping is below 1, or if there are no validation data for it."""
    if patience is None:
        return
    check_at_least("early_stopping", patience, 1)
    if validation is None:
        raise ParameterError(f"early_stopping={patience} needs validation data; validation=None has none.")

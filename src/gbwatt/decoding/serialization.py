"""Trained estimators as folders: the files of the model, with the state of the estimator."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from gbwatt._io import plain
from gbwatt.data.trials import Trials
from gbwatt.decoding import inputs
from gbwatt.decoding.calibration import HIGHEST, LOWEST
from gbwatt.decoding.domains import Domains
from gbwatt.decoding.fingerprints import TrialFingerprints
from gbwatt.decoding.inputs import Array
from gbwatt.decoding.paradigms import Settings
from gbwatt.decoding.signal_metadata import Recorded, Samples
from gbwatt.decoding.training import best_row
from gbwatt.errors import ModelFileError
from gbwatt.models.registry import entry
from gbwatt.models.serialization import Pretrained, load_pretrained, save_pretrained
from gbwatt.models.signal import Signal

if TYPE_CHECKING:
    from gbwatt.decoding.estimator import EEGDecoder

#: JSON types of labels by the kind of their dtype.
_LABELS = {
    "b": (bool,),
    "i": (int,),
    "u": (int,),
    "f": (float, int),
    "U": (str,),
    "O": (str, int, float, bool),
}

D = TypeVar("D", bound="EEGDecoder")

#: Parameters that depend on the machine, and are not saved.
_LOCAL = ("device", "n_jobs", "checkpoint", "log", "tensorboard", "verbose", "callbacks")


def save(decoder: EEGDecoder, folder: str | Path, preprocessing: Any, fingerprints: bool = True) -> None:
    """Write a fitted estimator: the files of its model, with its parameters and state in the configuration.

    Without ``fingerprints``, the saved model cannot recognise its training trials.
    """
    seen = decoder.fingerprints_ if fingerprints else None
    module = decoder.net_.module_
    history = decoder.history_
    estimator = {
        "class": type(decoder).__name__,
        "parameters": _json_parameters(decoder.get_params(deep=False)),
        "classes": decoder.classes_.tolist(),
        "classes_dtype": decoder.classes_.dtype.str,
        "names": None if decoder._names is None else list(decoder._names),
        "signal": vars(decoder.signal_),
        "scale": decoder.scale_,
        "recorded": None if decoder.recorded_ is None else plain(vars(decoder.recorded_)),
        "samples": None if (samples := getattr(decoder, "samples_", None)) is None else samples.to_dict(),
        "settings": plain(decoder.settings_.to_dict()),
        "history": history,
        **({} if decoder.calibration is None else {"temperature": decoder.temperature_}),
        **({} if decoder.domains_ is None else {"domains": decoder.domains_.to_dict()}),
        **({} if seen is None else {"fingerprints": seen.to_dict()}),
    }
    training = {
        **{name: getattr(decoder.net_, name) for name in ("lr", "batch_size", "weight_decay", "seed")},
        "epochs": len(history),
        "best_epoch": decoder.best_epoch_,
        **({} if not history else {"at_best_epoch": best_row(history)}),
    }
    save_pretrained(
        module,
        folder,
        class_names=list(decoder.class_names_) if decoder.recorded_ else decoder.classes_.tolist(),
        preprocessing=preprocessing,
        extra={"multiply epochs by": decoder.scale_, "training": training, "estimator": estimator},
        name=decoder.model,
        arguments=getattr(module, "config", None) or decoder._ensemble_arguments(),
    )


def _json_parameters(parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters of an estimator in a form that JSON preserves.

    Class weights become pairs, and validation indices a list; data and machine-dependent parameters are left out.
    """
    if parameters["frozen"] is not None:
        parameters = {**parameters, "frozen": list(parameters["frozen"])}
    kept = {name: plain(value) for name, value in parameters.items() if name not in _LOCAL and name != "validation"}
    if kept["initialization"] not in ("random", "classical"):
        kept["initialization"] = None  # paths
    if isinstance(kept["class_weight"], dict):
        kept["class_weight"] = [[plain(label), plain(weight)] for label, weight in kept["class_weight"].items()]
    validation = parameters["validation"]
    if not isinstance(validation, tuple | Trials) and not hasattr(validation, "get_data"):
        kept["validation"] = validation if np.isscalar(validation) else np.asarray(validation).tolist()
    return kept


def load(cls: type[D], folder: str | Path, device: str) -> D:
    """Read an estimator of class ``cls`` that :func:`save` wrote; raise ModelFileError if that is not possible."""
    inputs.on_device(device)
    loaded = load_pretrained(folder)
    saved = loaded.extra.get("estimator")
    if saved is None:
        raise ModelFileError(
            f"{folder} has a model without an estimator; use gbwatt.models.serialization.load_pretrained."
        )
    try:
        return _rebuild_estimator(cls, loaded, saved, device)
    except ModelFileError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError, MemoryError) as error:
        raise ModelFileError(
            f"{folder} has an estimator that this version cannot build ({error!r}); copy the folder again, or train "
            "the model anew."
        ) from error


def _rebuild_estimator(cls: type[D], loaded: Pretrained, saved: dict[str, Any], device: str) -> D:
    """Build the estimator from the model and the saved state, checking every value."""
    if saved["class"] != cls.__name__:
        raise ModelFileError(f"the estimator is a {saved['class']}; use {saved['class']}.from_pretrained.")
    parameters = dict(saved["parameters"])
    local = [name for name in _LOCAL if name in parameters]
    if local:  # a file must not choose where training writes
        raise ModelFileError(f"the estimator has {', '.join(local)} among its parameters, which are not saved.")
    if isinstance(parameters["class_weight"], list):
        parameters["class_weight"] = dict(parameters["class_weight"])
    earlier = {
        option: before
        for option, (before, _) in entry(loaded.name).added_options.items()
        if option not in loaded.arguments
    }
    if earlier:  # saved before these options existed: refitting must give the same network
        parameters["model_options"] = {**earlier, **(parameters["model_options"] or {})}
    settings = saved.get("settings")
    if settings is None:  # saved by a version that had no settings of paradigms
        parameters = {"validation": 0.2, **parameters, "paradigm": None}
    decoder = cls(**parameters, device=device)
    decoder._check_arguments()
    decoder.classes_ = _check_labels(saved.get("classes", loaded.class_names or ()), saved["classes_dtype"])
    decoder.signal_ = Signal(**saved["signal"])
    if len(decoder.classes_) != decoder.signal_.n_outputs:
        raise ValueError(f"{len(decoder.classes_)} labels for {decoder.signal_.n_outputs} outputs")
    decoder.scale_ = _check_positive("scale", saved["scale"])
    decoder.temperature_ = _check_positive("temperature", saved.get("temperature", 1.0))
    if not LOWEST <= decoder.temperature_ <= HIGHEST:
        raise ValueError(f"temperature={decoder.temperature_:g} is not between {LOWEST:g} and {HIGHEST:g}")
    decoder.recorded_ = Recorded.from_dict(saved.get("recorded"))
    decoder.samples_ = Samples.from_dict(saved.get("samples"))
    decoder.fingerprints_ = TrialFingerprints.from_dict(saved.get("fingerprints"))
    decoder.domains_ = Domains.from_dict(saved.get("domains"), decoder.alignment, decoder.signal_.n_chans)
    decoder._names = _read_class_names(saved, decoder)
    decoder.settings_ = decoder._registered() if settings is None else Settings.from_dict(settings)
    decoder.net_ = decoder._make_trainer(loaded.model, decoder.settings_)
    n_domains = 1 if decoder.domains_ is None else len(decoder.domains_.names)
    if (decoder.alignment or decoder._has_domain_norm) and decoder.domains_ is None:
        raise ValueError("no domains")
    if decoder._has_domain_norm and loaded.arguments.get("n_domains") != n_domains:
        raise ValueError(f"{n_domains} names of {loaded.arguments.get('n_domains')} domains")
    decoder.net_.history.extend({**row, "duration": row["duration"]} for row in saved["history"])
    return decoder


def _read_class_names(saved: dict[str, Any], decoder: EEGDecoder) -> tuple[str, ...] | None:
    """Names of the classes; None if they are unknown.

    Older files have the names of class numbers, or labels that are strings.
    """
    labels = decoder.classes_.tolist()
    if "names" in saved:
        names = None if saved["names"] is None else tuple(map(str, saved["names"]))
        if names is not None and len(names) != len(labels):
            raise TypeError(f"{len(names)} names of {len(labels)} classes")
        return names
    if decoder.recorded_ is not None and decoder.recorded_.class_names is not None:
        return tuple(decoder.recorded_.class_names[label] for label in labels)
    return tuple(map(str, labels)) if decoder.classes_.dtype.kind in "OU" else None


def _check_positive(name: str, value: Any) -> float:
    """Return a saved factor; raise ValueError unless it is a positive number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= sys.float_info.max:
        raise ValueError(f"{name}={value if isinstance(value, float) else type(value)} is not a positive number")
    return float(value)


def _check_labels(names: Sequence[Any], dtype: str) -> Array:
    """Return saved class labels as an array of their dtype; raise an error unless they are distinct and valid."""
    kind, longest = np.dtype(dtype), max((len(name) for name in names if isinstance(name, str)), default=0)
    if kind.kind not in _LABELS or (kind.kind == "U" and kind.itemsize > 4 * max(longest, 256)):
        raise TypeError(f"labels of dtype {dtype!r}")
    labels = np.array(names, dtype=kind)
    allowed = _LABELS[kind.kind]
    if (
        not isinstance(names, list | tuple)
        or any(type(name) not in allowed or name != name for name in names)
        or len(set(names)) < len(names)
    ):
        raise ValueError(f"{len(names)} labels that are not distinct names or numbers of dtype {dtype!r}")
    return labels

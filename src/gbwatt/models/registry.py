"""All models by their names."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any

import torch
from torch import nn

from gbwatt import _plugins
from gbwatt._validation import check_one_of
from gbwatt.errors import ParameterError
from gbwatt.models.presets import OWN_DATA, TASKS, Training, find_task
from gbwatt.models.signal import Signal

Build = Callable[..., nn.Module]


class UnknownArgumentError(ParameterError, TypeError):
    """A model is given an argument that it does not have."""


@dataclass(frozen=True)
class Entry:
    """A model: how it is built, ``build(signal, task or None, **options)``, and how it is trained on each task."""

    name: str
    build: Build
    summary: str
    training: Mapping[str, Training] = field(default_factory=dict)  # by task, where not the task's; "own" for no task
    extra: str | None = None  # what has to be installed for it: gbwatt[extra]
    options: tuple[str, ...] | None = None  # that it has, if it is not for tasks, so that none can be built to be asked
    added_options: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)  # see register

    @property
    def for_tasks(self) -> bool:
        """Whether it can be built for the tasks of the paper; others are for corpora."""
        return self.options is None

    def training_for(self, name: str | None) -> Training:
        """How to train on a task, or on data of one's own."""
        if name is None:
            return self.training.get("own", OWN_DATA)
        return self.training.get(name, TASKS[name].training)


_MODELS: dict[str, Entry] = {}


def register(
    name: str,
    summary: str,
    *,
    training: Mapping[str, Training] | None = None,
    extra: str | None = None,
    options: tuple[str, ...] | None = None,
    added_options: Mapping[str, tuple[Any, Any]] | None = None,
) -> Callable[[Build], Build]:
    """Decorate a function ``build(signal, task, **options)`` that makes a model.

    ``added_options`` has the options that were added after models had been saved, and whose default changes the
    network.  Each has a pair: the value that gives the earlier network, which a saved configuration or run without the
    option means, and the default.
    """

    def decorate(build: Build) -> Build:
        if name in _MODELS:
            raise ParameterError(f"a model named {name!r} is registered already: {_MODELS[name].summary}.")
        _MODELS[name] = Entry(name, build, summary, dict(training or {}), extra, options, dict(added_options or {}))
        return build

    return decorate


def list_models() -> tuple[str, ...]:
    """Return the names of all models, those of plugins included, sorted.

    Examples
    --------
    >>> from gbwatt.models import list_models
    >>> "gbwatt" in list_models()
    True
    """
    for plugin in _plugins.find_plugins(_plugins.MODELS):
        _plugins.load_plugin(plugin)  # its module registers models
    return tuple(sorted(_MODELS))


def entry(name: str) -> Entry:
    """What is registered under a name; an error suggests the closest."""
    if name not in _MODELS:
        check_one_of("model", name, list_models())
    return _MODELS[name]


def to_record(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as runs and checkpoints record them.

    The same network has the same record before and after one of the entry's ``added_options`` was introduced.

    Examples
    --------
    >>> to_record("gdlnet", {})
    {'variant': 'original'}
    >>> to_record("gdlnet", {"variant": "linear"})  # as it was recorded before there was the option
    {}
    """
    added = entry(name).added_options
    given = {**{option: default for option, (_, default) in added.items()}, **options}
    return {option: value for option, value in given.items() if option not in added or value != added[option][0]}


def from_record(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a record, or of a saved configuration, that build its network today.

    One of the entry's ``added_options`` that a record lacks gets the value of the earlier network.

    Examples
    --------
    >>> from_record("gdlnet", {"p": 4})
    {'variant': 'linear', 'p': 4}
    """
    return {**{option: before for option, (before, _) in entry(name).added_options.items()}, **options}


@lru_cache(maxsize=64)
def known_options(name: str) -> tuple[str, ...] | None:
    """Names of the options of a model, that is, its arguments beyond the signal.

    Parameters
    ----------
    name : str
        One of :func:`list_models`.

    Returns
    -------
    tuple of str or None
        None if the model cannot be built because an optional package is not installed.

    Examples
    --------
    >>> import gbwatt.models
    >>> "theta" in known_options("gbwatt")
    True
    """
    if not entry(name).for_tasks:
        return entry(name).options
    try:
        with torch.random.fork_rng(devices=[]):  # keep the caller's random state
            built = create(name, task="mi")
    except ImportError:
        return None
    network = getattr(built, "network", None)  # of another library: its constructor has more than our config
    names = getattr(built, "config", None) if network is None else None
    names = _parameters(type(network or built)) if names is None else names
    signal = {field.name for field in fields(Signal)} | {"chs_info", "input_window_seconds"}
    return tuple(option for option in names if option not in signal)


def _parameters(network: type) -> list[str]:
    found = inspect.signature(network).parameters.values()
    return [one.name for one in found if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]


def create(
    name: str,
    *,
    n_chans: int | None = None,
    n_outputs: int | None = None,
    n_times: int | None = None,
    sfreq: float | None = None,
    chs_info: Sequence[Any] | None = None,
    input_window_seconds: float | None = None,
    task: str | None = None,
    **options: Any,
) -> nn.Module:
    """Build a model for epochs (batch, n_chans, n_times).

    Parameters
    ----------
    name : str
        One of :func:`list_models`.
    n_chans, n_outputs, n_times, sfreq, chs_info, input_window_seconds
        The input, as in braindecode.  What a task says need not be given.
    task : "mi", "ssvep" or "ern", optional
        Take the architecture that the paper uses for it.
    **options
        Further arguments of the model.

    Examples
    --------
    >>> from gbwatt.models import create
    >>> model = create("matt", n_chans=22, n_outputs=4, n_times=438, task="mi")
    >>> sum(p.numel() for p in model.parameters())
    9026
    """
    found = entry(name)
    preset = None if task is None else find_task(task)
    if preset is not None:
        n_outputs = preset.signal.n_outputs if n_outputs is None else n_outputs
        if n_chans is None and chs_info is None:
            n_chans = preset.signal.n_chans
        if n_times is None and input_window_seconds is None:
            n_times, sfreq = preset.signal.n_times, preset.signal.sfreq if sfreq is None else sfreq
    try:
        signal = Signal.infer(n_chans, n_outputs, n_times, sfreq, chs_info, input_window_seconds)
    except ParameterError:
        mistaken = [option for option in options if _closest(option, ()) is not None]
        if mistaken:
            raise _unknown(name, mistaken[0], ()) from None
        raise
    try:
        return found.build(signal, preset, **options)
    except TypeError as error:
        mistaken = [option for option in options if f"unexpected keyword argument '{option}'" in str(error)]
        if not mistaken:
            raise
        known = tuple(getattr(found.build(signal, preset), "config", ()))
        raise _unknown(name, mistaken[0], known) from error


#: Arguments for the input, and what others call them.
_INPUT = ("n_chans", "n_outputs", "n_times", "sfreq", "chs_info", "input_window_seconds", "task")
_OTHER_NAMES = {
    "n_channels": "n_chans",
    "n_classes": "n_outputs",
    "n_samples": "n_times",
    "n_timepoints": "n_times",
    "fs": "sfreq",
    "sampling_rate": "sfreq",
}


def _closest(name: str, options: Sequence[str]) -> str | None:
    """The argument that was meant, if there is one with a similar name."""
    if name in _OTHER_NAMES:
        return _OTHER_NAMES[name]
    close = difflib.get_close_matches(name.casefold(), (*_INPUT, *options), n=1, cutoff=0.7)
    return close[0] if close else None


def _unknown(model: str, name: str, options: Sequence[str]) -> UnknownArgumentError:
    meant = _closest(name, options)
    hint = "" if meant is None else f" Did you mean {meant!r}?"
    allowed = ", ".join(dict.fromkeys((*_INPUT, *options))) + ("" if options else " and options of the model")
    return UnknownArgumentError(f"{name}: the model {model!r} has no such argument; it has {allowed}.{hint}")

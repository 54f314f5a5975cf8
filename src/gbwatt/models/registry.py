"""Registry of models by name."""

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
from gbwatt._validation import check_at_least, check_one_of
from gbwatt.errors import ParameterError
from gbwatt.models.ensemble import Ensemble
from gbwatt.models.presets import NO_TRAINING, OWN_DATA, TASKS, Training, find_task
from gbwatt.models.signal import Signal

Build = Callable[..., nn.Module]


class UnknownArgumentError(ParameterError, TypeError):
    """A model is given an argument that it does not have."""


@dataclass(frozen=True)
class Entry:
    """A registered model.

    Attributes
    ----------
    name : str
    build : callable
        ``build(signal, task or None, **options)`` returns the model.
    summary : str
        One line for lists of models.
    training : mapping
        Training parameters by task, where they differ from those of the task, and "own" for other recordings.
    extra : str or None
        Optional dependencies that it requires: ``pip install 'gbwatt[extra]'``.
    options : tuple of str or None
        Names of its options, for models that cannot be built for the tasks of the paper; None for all others.
    added_options : mapping
        See :func:`register`.
    classical : bool
        Whether the model is a classical pipeline, with a method ``fit(x, y, class_weights)`` instead of gradient steps.
    """

    name: str
    build: Build
    summary: str
    training: Mapping[str, Training] = field(default_factory=dict)
    extra: str | None = None
    options: tuple[str, ...] | None = None
    added_options: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    classical: bool = False

    @property
    def for_tasks(self) -> bool:
        """Whether the model can be built for the tasks of the paper; others are for clinical corpora."""
        return self.options is None

    def training_for(self, name: str | None) -> Training:
        """Training parameters for a task, or for other recordings if ``name`` is None."""
        if self.classical:
            return NO_TRAINING
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
    classical: bool = False,
) -> Callable[[Build], Build]:
    """Register the decorated function ``build(signal, task, **options)`` as a model.

    Parameters
    ----------
    name : str
        Name for :func:`create`.
    summary : str
        One line for lists of models.
    training : mapping, optional
        Training parameters by task, where they differ from those of the task, and "own" for other recordings.
    extra : str, optional
        Optional dependencies that it requires.
    options : tuple of str, optional
        Names of its options, for models that cannot be built for the tasks of the paper.
    added_options : mapping, optional
        Options that were added after models had been saved, and whose default changes the network: for each the value
        that gives the earlier network, and the default.  Saved configurations and runs without the option use the
        earlier value.
    classical : bool
        Whether the model is fitted by its method ``fit(x, y, class_weights)`` instead of gradient steps.

    Returns
    -------
    callable
        The decorator.

    Raises
    ------
    ParameterError
        If the name is already registered.
    """

    def decorate(build: Build) -> Build:
        if name in _MODELS:
            raise ParameterError(f"a model named {name!r} is already registered: {_MODELS[name].summary}.")
        added = dict(added_options or {})
        _MODELS[name] = Entry(name, build, summary, dict(training or {}), extra, options, added, classical)
        return build

    return decorate


def list_models() -> tuple[str, ...]:
    """Names of all registered models, those of plugins included, sorted.

    Returns
    -------
    tuple of str

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
    """Registry entry of a model.

    Parameters
    ----------
    name : str
        One of :func:`list_models`.

    Returns
    -------
    Entry

    Raises
    ------
    ParameterError
        If no model has this name; the message suggests the closest one.

    Examples
    --------
    >>> from gbwatt.models import entry
    >>> entry("gbwatt").training_for("ssvep")
    Training(lr=0.001, batch_size=64, max_epochs=180, weight_decay=0.1)
    """
    if name not in _MODELS:
        check_one_of("model", name, list_models())
    return _MODELS[name]


def to_record(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as they are recorded in runs and checkpoints.

    A network has the same record before and after one of the entry's ``added_options`` was introduced.

    Examples
    --------
    >>> to_record("gdlnet", {})
    {'variant': 'original'}
    >>> to_record("gdlnet", {"variant": "linear"})  # recorded without the option, as before it existed
    {}
    """
    added = entry(name).added_options
    complete = {**{option: default for option, (_, default) in added.items()}, **options}
    return {option: value for option, value in complete.items() if option not in added or value != added[option][0]}


def from_record(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options that build the network of a record or a saved configuration.

    ``added_options`` of the entry that are missing in the record get the value of the earlier network.

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
    names = _constructor_arguments(type(network or built)) if names is None else names
    signal = {field.name for field in fields(Signal)} | {"chs_info", "input_window_seconds"}
    return tuple(option for option in names if option not in signal)


def _constructor_arguments(network: type) -> list[str]:
    """Names of the arguments of a class, without ``*args`` and ``**kwargs``."""
    parameters = inspect.signature(network).parameters.values()
    return [item.name for item in parameters if item.kind not in (item.VAR_POSITIONAL, item.VAR_KEYWORD)]


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
    n_members: int = 1,
    **options: Any,
) -> nn.Module:
    """Build a model for epochs (batch, n_chans, n_times).

    Parameters
    ----------
    name : str
        One of :func:`list_models`.
    n_chans, n_outputs, n_times : int, optional
        Numbers of channels, classes and samples; by default those of the task.
    sfreq : float, optional
        Sampling rate in Hz.
    chs_info : sequence, optional
        Channel descriptions as in braindecode, from which ``n_chans`` is inferred.
    input_window_seconds : float, optional
        Duration of an epoch, from which ``n_times`` is inferred.
    task : "mi", "ssvep" or "ern", optional
        Use the paper's architecture for this task.
    n_members : int
        Number of networks; several form an :class:`~gbwatt.models.Ensemble`, which averages their probabilities.
    **options
        Further arguments of the model.

    Returns
    -------
    nn.Module
        A model that maps epochs to logits (batch, n_outputs).

    Raises
    ------
    ParameterError
        If the name or an option is unknown, or the size of the input cannot be inferred.
    PackageError
        If the model requires a package that is not installed.

    Examples
    --------
    >>> from gbwatt.models import create
    >>> model = create("matt", n_chans=22, n_outputs=4, n_times=438, task="mi")
    >>> sum(p.numel() for p in model.parameters())
    9026
    """
    model = entry(name)
    check_at_least("n_members", n_members, 1)
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
        mistaken = [option for option in options if _closest_argument(option, ()) is not None]
        if mistaken:
            raise _unknown_argument_error(name, mistaken[0], ()) from None
        raise
    try:
        members = [model.build(signal, preset, **options) for _ in range(n_members)]
    except TypeError as error:
        mistaken = [option for option in options if f"unexpected keyword argument '{option}'" in str(error)]
        if not mistaken:
            raise
        allowed = tuple(getattr(model.build(signal, preset), "config", ()))
        raise _unknown_argument_error(name, mistaken[0], allowed) from error
    return members[0] if n_members == 1 else Ensemble(members)


#: Arguments for the input, and what others call them.
_INPUT = ("n_chans", "n_outputs", "n_times", "sfreq", "chs_info", "input_window_seconds", "task", "n_members")
_OTHER_NAMES = {
    "n_channels": "n_chans",
    "n_classes": "n_outputs",
    "n_samples": "n_times",
    "n_timepoints": "n_times",
    "fs": "sfreq",
    "sampling_rate": "sfreq",
}


def _closest_argument(name: str, options: Sequence[str]) -> str | None:
    """The argument that was meant, if there is one with a similar name."""
    if name in _OTHER_NAMES:
        return _OTHER_NAMES[name]
    close = difflib.get_close_matches(name.casefold(), (*_INPUT, *options), n=1, cutoff=0.7)
    return close[0] if close else None


def _unknown_argument_error(model: str, name: str, options: Sequence[str]) -> UnknownArgumentError:
    """The error for an argument that a model does not have, with a suggestion."""
    meant = _closest_argument(name, options)
    hint = "" if meant is None else f" Did you mean {meant!r}?"
    allowed = ", ".join(dict.fromkeys((*_INPUT, *options))) + ("" if options else " and options of the model")
    return UnknownArgumentError(f"{name}: the model {model!r} has no such argument; it has {allowed}.{hint}")

"""Check a model and trials, and prepare them for explanation."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from gbwatt._validation import check_one_of
from gbwatt.data.trials import Trials
from gbwatt.decoding import EEGDecoder, inputs
from gbwatt.decoding.inputs import Labels, own_labels
from gbwatt.decoding.signal_metadata import Recorded
from gbwatt.errors import InputError, MismatchError, ParameterError, ShapeError
from gbwatt.nn import DomainSPDBatchNorm

Array = NDArray[Any]
Model = EEGDecoder | nn.Module

#: "true", "predicted", the name or number of a class, or the name or number of a class for each trial.
Target = str | int | Array

BATCH = 64  # trials per forward or backward pass
_MAX_SHOWN = 8  # entries of an array or tuple in a repr


class ShortRepr:
    """Mixin for dataclasses: a repr with the shapes of arrays instead of their values; needs ``repr=False``."""

    def __repr__(self) -> str:
        shown = (f"{field.name}={_short_repr(getattr(self, field.name))}" for field in fields(self))  # type: ignore[arg-type]
        return f"{type(self).__name__}({', '.join(shown)})"


def _short_repr(value: Any) -> str:
    """Return a short text for a value in a ``repr``."""
    if isinstance(value, np.ndarray):
        few = value.ndim == 1 and value.size <= _MAX_SHOWN
        return f"[{', '.join(f'{x:.4g}' for x in value)}]" if few else f"array {value.shape}"
    if isinstance(value, tuple):
        return f"({', '.join(map(repr, value[:_MAX_SHOWN]))}{', …' if len(value) > _MAX_SHOWN else ''})"
    text = repr(value)
    return f"{type(value).__name__}(…)" if isinstance(value, ShortRepr) or "\n" in text else text


@dataclass(frozen=True, eq=False, repr=False)
class ModelInputs(ShortRepr):
    """A network and the epochs it is explained on.

    Attributes
    ----------
    module : nn.Module
        The network.
    x : array (n, n_chans, n_times)
        Epochs in the unit of the recording; aligned epochs for estimators with ``alignment``.
    scale : float
        Factor by which epochs are multiplied before they enter the network.
    y : array (n,) or None
        True classes, as indices into ``class_names``; -1 for a class that the network does not know.
    class_names, ch_names : tuple of str
        Names of classes and channels.
    sfreq, tmin : float
        Sampling rate in Hz, and time of the first sample in seconds.
    source : str
        What the epochs were passed as, for error messages.
    """

    module: nn.Module
    x: Array
    scale: float
    y: Array | None
    class_names: tuple[str, ...]
    ch_names: tuple[str, ...]
    sfreq: float
    tmin: float
    source: str

    def __len__(self) -> int:
        return len(self.x)

    def batches(self, x: Array | None = None) -> Iterator[tuple[slice, Tensor]]:
        """Iterate over batches of ``x`` (default: the epochs): rows, and scaled tensors (batch, n_chans, n_times)."""
        x = self.x if x is None else x
        like = _example_parameter(self.module)
        for start in range(0, len(x), BATCH):
            rows = slice(start, start + BATCH)
            yield rows, (torch.from_numpy(np.array(x[rows], order="C")) * self.scale).to(like.device, like.dtype)

    def logits(self, x: Array | None = None) -> Array:
        """Logits (n, n_classes) of the epochs, or of other epochs ``x`` in the same unit."""
        with evaluating(self.module), torch.no_grad():
            return np.concatenate([to_numpy(self.module(batch)) for _, batch in self.batches(x)])

    def labels(self, target: Target) -> Array:
        """Index of the class (n,) that each trial is explained for."""
        if isinstance(target, str) and target == "true":
            return self._true_labels()
        if isinstance(target, str) and target == "predicted":
            return np.asarray(self.logits().argmax(1))
        if isinstance(target, str):
            check_one_of("target", target, ("true", "predicted", *self.class_names))
            return np.full(len(self), self.class_names.index(target))
        return self._given_labels(np.asarray(target))

    def _true_labels(self) -> Array:
        """Class indices (n,) from the labels of the trials."""
        if self.y is None:
            raise ParameterError(
                f"target='true' needs the class of each trial, but 'trials', {self.source}, has no labels; pass "
                "Trials, the names or numbers of the classes as target, or target='predicted'."
            )
        unknown = np.flatnonzero(self.y < 0)
        if unknown.size:
            raise ParameterError(
                f"target='true', but the class of trial {unknown[0]} was not in the training data; the model knows "
                f"{', '.join(map(repr, self.class_names))}. Select trials of these classes."
            )
        return self.y.copy()  # the labels of Trials are read-only, which torch warns about

    def _given_labels(self, target: Array) -> Array:
        """Class indices (n,) from names or numbers of classes."""
        index = {name: number for number, name in enumerate(self.class_names)}
        if target.dtype.kind in "UO":
            target = np.array([index.get(name, name) for name in target.ravel().tolist()]).reshape(target.shape)
        valid = target.dtype.kind in "iu" and target.shape in ((), (len(self),))
        if not valid or not np.isin(target, list(index.values())).all():
            raise ParameterError(
                f"target={_shorten_target(target)} must be 'true', 'predicted', a class "
                f"({', '.join(map(repr, self.class_names))}), or numbers from 0 to {len(index) - 1}: one, or one for "
                f"each of {len(self)} trials."
            )
        return np.broadcast_to(target, len(self)).astype(int)

    def gradients(self, labels: Array, transform: Callable[[Tensor], Tensor] | None = None) -> Array:
        """Gradient (n, n_chans, n_times) of the logit of each trial's class, per unit of the recording.

        It is evaluated at the epochs, or at ``transform(batch)``.  Parameters do not accumulate gradients.
        """
        out = np.empty(self.x.shape)
        with evaluating(self.module), torch.inference_mode(False), torch.enable_grad():
            for rows, batch in self.batches():
                x = (batch if transform is None else transform(batch)).detach().requires_grad_()
                classes = torch.from_numpy(labels[rows]).to(x.device)
                logit = self.module(x).gather(1, classes[:, None]).sum()  # trials are independent of each other
                out[rows] = to_numpy(self._gradient(logit, x))
        return np.asarray(out * self.scale)

    def _gradient(self, logit: Tensor, x: Tensor) -> Tensor:
        """Gradient of a logit with respect to the epoch; raise an error if there is none."""
        gradient = torch.autograd.grad(logit, x, allow_unused=True)[0] if logit.requires_grad else None
        if gradient is None:
            raise ParameterError(
                f"'model', a {type(self.module).__name__}, has logits without a gradient with respect to the epoch; "
                "check its forward for torch.no_grad, detach or a conversion to NumPy."
            )
        return gradient


def _shorten_target(target: Array) -> str:
    """Return a target as text for an error message."""
    text = repr(target.tolist())
    return text if len(text) < 80 else f"{text[:60]}… {target.shape}"


def prepare(model: Model, trials: Any) -> ModelInputs:
    """Check a model and trials, and bring them into the form that explanations use.

    Parameters
    ----------
    model : EEGDecoder or nn.Module
        A fitted estimator, which checks and scales trials as in prediction; or a network from
        (batch, n_chans, n_times) to logits.
    trials : Trials, mne.Epochs or array (n, n_chans, n_times)
        Channels of an array are numbered, unless the estimator knows their names.  The true classes of Epochs are the
        names of their events, if the estimator has classes with these names.

    Returns
    -------
    ModelInputs
        The network, the epochs and their metadata.

    Raises
    ------
    MismatchError
        If the model is of another type, or the trials do not match it.
    """
    if isinstance(model, EEGDecoder):
        return _from_decoder(model, trials)
    if isinstance(model, nn.Module):
        return _from_module(model, trials)
    raise MismatchError(f"'model' is a {type(model).__name__}; an EEGDecoder or a torch module is needed.")


def network(model: Model) -> nn.Module:
    """The network of a fitted estimator; a network is returned unchanged."""
    if isinstance(model, nn.Module):
        return model
    check_is_fitted(model, "net_")
    return model.net_.module_


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Put a network into evaluation mode, and restore the mode of each submodule afterwards."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


# ---- reading


def _from_decoder(decoder: EEGDecoder, trials: Any) -> ModelInputs:
    """Prepare trials for a fitted decoder, in the unit of its training data."""
    module, x, metadata = network(decoder), inputs.read_epochs(trials, "trials"), Recorded.of(trials)
    scale, axes = decoder.scale_, metadata
    if decoder.recorded_ is not None:
        decoder.recorded_.require(metadata, "trials")
        scale *= decoder.recorded_.scale_of(metadata, "trials")
        axes = metadata or decoder.recorded_
    inputs.same_signal(x, (decoder.signal_.n_chans, decoder.signal_.n_times), "trials", decoder.recorded_, metadata)
    if decoder.domains_ is not None:
        module, x, domain = decoder.network_for(trials)
        module, scale = _of_one_domain(module, *domain), decoder.scale_
    ch_names, sfreq = _channels_and_rate(axes, x.shape[1], decoder.signal_.sfreq)
    y = _true_classes(decoder, trials, len(x))
    names, source = decoder.class_names_, _type_with_article(trials)
    return ModelInputs(module, x, scale, y, names, ch_names, sfreq, _first_sample_time(trials), source)


def _of_one_domain(module: nn.Module, domain: Tensor | None = None) -> nn.Module:
    """The network with the statistics of the one domain that all trials belong to, as its default domain."""
    if domain is None:
        return module
    numbers = domain.unique().tolist()
    if len(numbers) > 1:
        raise ParameterError(
            f"'trials' are of {len(numbers)} domains, but a network with domain_norm is explained for one domain at a "
            "time; select the trials of one subject or session."
        )
    copied = copy.deepcopy(module)
    for part in copied.modules():
        if isinstance(part, DomainSPDBatchNorm):
            part.keep(numbers[0])
    return copied


def _true_classes(decoder: EEGDecoder, trials: Any, n: int) -> Array | None:
    """Index of each trial's class among those of the decoder, -1 if it has none; None if trials have no labels."""
    if own_labels(trials) is None:
        return None
    labels = Labels.of(trials, None, n, "trials")
    indices = labels.places(decoder.classes_, decoder._names, "trials", some=True)
    if isinstance(trials, Trials) and (indices < 0).all():
        labels.places(decoder.classes_, decoder._names, "trials")  # raises: no class in common
    return indices


def _from_module(module: nn.Module, trials: Any) -> ModelInputs:
    """Prepare trials for a plain network, which has no class names or units of its own."""
    x, metadata = inputs.read_epochs(trials, "trials"), Recorded.of(trials)
    ch_names, sfreq = _channels_and_rate(metadata, x.shape[1], None)
    y, names = (trials.y, trials.class_names) if isinstance(trials, Trials) else (None, ())
    prepared = ModelInputs(
        module, x, 1.0, y, names, ch_names, sfreq, _first_sample_time(trials), _type_with_article(trials)
    )
    n_outputs = _count_outputs(prepared)
    if names and len(names) != n_outputs:
        raise MismatchError(
            f"'trials' have {len(names)} classes, {list(names)}, but the model has {n_outputs} outputs; select the "
            "classes that it was trained on, or pass the array of epochs alone."
        )
    names = names or tuple(str(number) for number in range(n_outputs))
    return replace(prepared, class_names=names)


def _count_outputs(prepared: ModelInputs) -> int:
    """Number of classes of a network, from its output for one epoch."""
    module, (_, epoch) = prepared.module, next(prepared.batches(prepared.x[:1]))
    try:
        with evaluating(module), torch.no_grad():
            out = module(epoch)
    except InputError:
        raise
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        raise MismatchError(
            f"'trials' {prepared.x.shape} do not fit 'model', a {type(module).__name__}: an epoch {tuple(epoch.shape)} "
            f"raises {error}. Pass the channels and samples that it was trained on."
        ) from error
    if not isinstance(out, Tensor) or out.ndim != 2 or len(out) != 1:
        got = tuple(out.shape) if isinstance(out, Tensor) else f"a {type(out).__name__}"
        raise ShapeError(
            f"'model', a {type(module).__name__}, gives {got} for an epoch {tuple(epoch.shape)}; logits (batch, "
            "n_classes) are needed: wrap it in a module that returns them."
        )
    return out.shape[1]


def _channels_and_rate(metadata: Recorded | None, n_chans: int, sfreq: float | None) -> tuple[tuple[str, ...], float]:
    """Names of channels, and the sampling rate; 1 Hz if it is unknown, so that times are sample numbers."""
    if metadata is not None:
        return metadata.ch_names, metadata.sfreq
    return tuple(str(number) for number in range(n_chans)), 1.0 if sfreq is None else sfreq


def _first_sample_time(trials: Any) -> float:
    """Return the time of the first sample in seconds; 0 if it is unknown."""
    return float(getattr(trials, "tmin", 0.0))


def _type_with_article(trials: Any) -> str:
    """Return the type of the trials for messages, such as "an array" or "a Trials"."""
    if isinstance(trials, np.ndarray):
        return "an array"
    name = type(trials).__name__
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"


def _example_parameter(module: nn.Module) -> Tensor:
    """A parameter of a network, whose dtype and device the input must have; a scalar if there is none."""
    return next((p for p in module.parameters() if p.is_floating_point()), torch.zeros(()))


def to_numpy(x: Tensor) -> Array:
    """Convert a tensor to a float64 array."""
    return x.detach().double().cpu().numpy()

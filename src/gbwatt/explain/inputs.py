"""What an explanation is asked about: a network, the epochs it is given, and a class for each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from gbwatt._validation import check_one_of
from gbwatt.data.trials import Trials
from gbwatt.decoding import EEGDecoder, inputs
from gbwatt.decoding.labels import Labels, own_labels
from gbwatt.decoding.signal_metadata import Recorded
from gbwatt.errors import InputError, MismatchError, ParameterError, ShapeError

Array = NDArray[Any]
Model = EEGDecoder | nn.Module

#: "true", "predicted", a class by name or number, or the name or number of a class for each trial.
Target = str | int | Array

BATCH = 64  # trials that are in memory as a graph at once


_FEW = 8  # entries that are written out


class Summarised:
    """A dataclass that shows the shapes of its arrays; give it ``repr=False``."""

    def __repr__(self) -> str:
        shown = (f"{field.name}={_shown(getattr(self, field.name))}" for field in fields(self))  # type: ignore[arg-type]
        return f"{type(self).__name__}({', '.join(shown)})"


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray):
        few = value.ndim == 1 and value.size <= _FEW
        return f"[{', '.join(f'{x:.4g}' for x in value)}]" if few else f"array {value.shape}"
    if isinstance(value, tuple):
        return f"({', '.join(map(repr, value[:_FEW]))}{', …' if len(value) > _FEW else ''})"
    text = repr(value)
    return f"{type(value).__name__}(…)" if isinstance(value, Summarised) or "\n" in text else text


@dataclass(frozen=True, eq=False, repr=False)
class Question(Summarised):
    """A network and epochs for it, with their names.

    Attributes
    ----------
    module : nn.Module
    x : array (n, n_chans, n_times)
        Epochs in the unit of the recording.
    scale : float
        What the network wants them multiplied by.
    y : array (n,) or None
        True classes, as places in ``class_names``; -1 for one that the network does not know.
    class_names, ch_names : tuple of str
    sfreq, tmin : float
    given : str
        What the epochs were given as, for messages.
    """

    module: nn.Module
    x: Array
    scale: float
    y: Array | None
    class_names: tuple[str, ...]
    ch_names: tuple[str, ...]
    sfreq: float
    tmin: float
    given: str

    def __len__(self) -> int:
        return len(self.x)

    def batches(self, x: Array | None = None) -> Iterator[tuple[slice, Tensor]]:
        """Rows, and what the network sees of them (batch, n_chans, n_times); of other epochs, if they are given."""
        x = self.x if x is None else x
        like = _parameter(self.module)
        for start in range(0, len(x), BATCH):
            rows = slice(start, start + BATCH)
            yield rows, (torch.from_numpy(np.array(x[rows], order="C")) * self.scale).to(like.device, like.dtype)

    def logits(self, x: Array | None = None) -> Array:
        """Logits (n, n_classes) of the epochs, or of others in the same unit."""
        with evaluating(self.module), torch.no_grad():
            return np.concatenate([numbers(self.module(batch)) for _, batch in self.batches(x)])

    def labels(self, target: Target) -> Array:
        """Class (n,) that each trial is explained as."""
        if isinstance(target, str) and target == "true":
            return self._true()
        if isinstance(target, str) and target == "predicted":
            return np.asarray(self.logits().argmax(1))
        if isinstance(target, str):
            check_one_of("target", target, ("true", "predicted", *self.class_names))
            return np.full(len(self), self.class_names.index(target))
        return self._for_each(np.asarray(target))

    def _true(self) -> Array:
        if self.y is None:
            raise ParameterError(
                f"target='true' needs the class of each trial, which 'trials', {self.given}, does not tell; give "
                "Trials, the names or numbers of the classes as target, or target='predicted'."
            )
        unknown = np.flatnonzero(self.y < 0)
        if unknown.size:
            raise ParameterError(
                f"target='true', but trial {unknown[0]} is of a class that the model was not trained on; it knows "
                f"{', '.join(map(repr, self.class_names))}. Select trials of these."
            )
        return self.y.copy()  # those of Trials are read-only, which torch warns of

    def _for_each(self, target: Array) -> Array:
        """Classes (n,) of names or numbers of classes."""
        place = {name: number for number, name in enumerate(self.class_names)}
        if target.dtype.kind in "UO":
            target = np.array([place.get(name, name) for name in target.ravel().tolist()]).reshape(target.shape)
        known = target.dtype.kind in "iu" and target.shape in ((), (len(self),))
        if not known or not np.isin(target, list(place.values())).all():
            raise ParameterError(
                f"target={_some(target)} must be 'true', 'predicted', a class "
                f"({', '.join(map(repr, self.class_names))}), or numbers from 0 to {len(place) - 1}: one, or one for "
                f"each of {len(self)} trials."
            )
        return np.broadcast_to(target, len(self)).astype(int)

    def gradients(self, labels: Array, seen: Callable[[Tensor], Tensor] | None = None) -> Array:
        """Gradient (n, n_chans, n_times) of the logit of each trial's class, per unit of the recording.

        It is taken at the epochs, or at what ``seen`` makes of a batch of them.  Parameters are left without gradients.
        """
        out = np.empty(self.x.shape)
        with evaluating(self.module), torch.inference_mode(False), torch.enable_grad():
            for rows, batch in self.batches():
                x = (batch if seen is None else seen(batch)).detach().requires_grad_()
                wanted = torch.from_numpy(labels[rows]).to(x.device)
                logit = self.module(x).gather(1, wanted[:, None]).sum()  # trials do not see each other
                out[rows] = numbers(self._gradient(logit, x))
        return np.asarray(out * self.scale)

    def _gradient(self, logit: Tensor, x: Tensor) -> Tensor:
        found = torch.autograd.grad(logit, x, allow_unused=True)[0] if logit.requires_grad else None
        if found is None:
            raise ParameterError(
                f"'model', a {type(self.module).__name__}, has logits without a gradient by the epoch; look in its "
                "forward for torch.no_grad, detach or a detour through NumPy."
            )
        return found


def _some(target: Array) -> str:
    """A target in few words."""
    text = repr(target.tolist())
    return text if len(text) < 80 else f"{text[:60]}… {target.shape}"


def ask(model: Model, trials: Any) -> Question:
    """Check that a model can be asked about trials, and how.

    Parameters
    ----------
    model : EEGDecoder or nn.Module
        A fitted estimator, then trials are checked and scaled as it does when it predicts; or a network from
        (batch, n_chans, n_times) to logits.
    trials : Trials, mne.Epochs or array (n, n_chans, n_times)
        The channels of an array are numbered, unless the estimator knows their names.  The true classes of Epochs are
        the names of their events, if the estimator has classes of these names.
    """
    if isinstance(model, EEGDecoder):
        return _of_decoder(model, trials)
    if isinstance(model, nn.Module):
        return _of_module(model, trials)
    raise MismatchError(f"'model' is a {type(model).__name__}; an EEGDecoder or a torch module is needed.")


def network(model: Model) -> nn.Module:
    """The network of a fitted estimator, or itself."""
    if isinstance(model, nn.Module):
        return model
    check_is_fitted(model, "net_")
    return cast(nn.Module, model.net_.module_)


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Every part of a network in evaluation mode, and back in its own afterwards."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


# ---- reading


def _of_decoder(decoder: EEGDecoder, trials: Any) -> Question:
    module, x, known = network(decoder), inputs.read_epochs(trials, "trials"), Recorded.of(trials)
    scale, frame = decoder.scale_, known
    if decoder.recorded_ is not None:
        decoder.recorded_.require(known, "trials")
        scale *= decoder.recorded_.scale_of(known, "trials")
        frame = known or decoder.recorded_
    inputs.same_signal(x, (decoder.signal_.n_chans, decoder.signal_.n_times), "trials")
    ch_names, sfreq = _axes(frame, x.shape[1], decoder.signal_.sfreq)
    y = _classes(decoder, trials, len(x))
    return Question(module, x, scale, y, decoder.class_names_, ch_names, sfreq, _tmin(trials), _kind(trials))


def _classes(decoder: EEGDecoder, trials: Any, n: int) -> Array | None:
    """Place of each trial's class among those of the decoder, -1 if it has none; None if the trials do not tell."""
    if own_labels(trials) is None:
        return None
    labels = Labels.of(trials, None, n, "trials")
    places = labels.places(decoder.classes_, decoder._names, "trials", some=True)
    if isinstance(trials, Trials) and (places < 0).all():
        labels.places(decoder.classes_, decoder._names, "trials")  # raises: these are other classes
    return places


def _of_module(module: nn.Module, trials: Any) -> Question:
    x, known = inputs.read_epochs(trials, "trials"), Recorded.of(trials)
    ch_names, sfreq = _axes(known, x.shape[1], None)
    y, names = (trials.y, trials.class_names) if isinstance(trials, Trials) else (None, ())
    question = Question(module, x, 1.0, y, names, ch_names, sfreq, _tmin(trials), _kind(trials))
    n_outputs = _outputs(question)
    if names and len(names) != n_outputs:
        raise MismatchError(
            f"'trials' have {len(names)} classes, {list(names)}, but the model has {n_outputs} outputs; select the "
            "classes that it was trained on, or give the bare array."
        )
    names = names or tuple(str(number) for number in range(n_outputs))
    return replace(question, class_names=names)


def _outputs(question: Question) -> int:
    """How many classes a network has; what it cannot do with one epoch, it cannot do with more."""
    module, (_, one) = question.module, next(question.batches(question.x[:1]))
    try:
        with evaluating(module), torch.no_grad():
            out = module(one)
    except InputError:
        raise
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        raise MismatchError(
            f"'trials' {question.x.shape} are not what 'model', a {type(module).__name__}, was made for: on an epoch "
            f"{tuple(one.shape)} it says {error}. Give the channels and samples that it was trained on."
        ) from error
    if not isinstance(out, Tensor) or out.ndim != 2 or len(out) != 1:
        got = tuple(out.shape) if isinstance(out, Tensor) else f"a {type(out).__name__}"
        raise ShapeError(
            f"'model', a {type(module).__name__}, gives {got} for an epoch {tuple(one.shape)}; logits (batch, "
            "n_classes) are needed: wrap it in a module that returns them."
        )
    return out.shape[1]


def _axes(known: Recorded | None, n_chans: int, sfreq: float | None) -> tuple[tuple[str, ...], float]:
    """Names of channels, and a sampling rate: one, so that times are samples, where nobody knows."""
    if known is not None:
        return known.ch_names, known.sfreq
    return tuple(str(number) for number in range(n_chans)), 1.0 if sfreq is None else sfreq


def _tmin(trials: Any) -> float:
    return float(getattr(trials, "tmin", 0.0))


def _kind(trials: Any) -> str:
    """What was given, with its article."""
    if isinstance(trials, np.ndarray):
        return "an array"
    name = type(trials).__name__
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"


def _parameter(module: nn.Module) -> Tensor:
    """A parameter, whose dtype and device the input must have."""
    return next((p for p in module.parameters() if p.is_floating_point()), torch.zeros(()))


def numbers(x: Tensor) -> Array:
    """A tensor as an array of float64."""
    return x.detach().double().cpu().numpy()

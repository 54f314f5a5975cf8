"""Weights from other subjects: networks that begin with trained weights."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from gbwatt.data.montage import comparable_name
from gbwatt.data.trials import UNITS
from gbwatt.decoding import inputs
from gbwatt.decoding.alignment import ALIGNMENTS
from gbwatt.decoding.initialization import adapt_domains, initialize_final_layer
from gbwatt.decoding.signal_metadata import ALIGNMENT, Recorded
from gbwatt.errors import AlignmentWarning, DataWarning, MismatchError, ParameterError
from gbwatt.models.gbwatt import GBWAtt
from gbwatt.nn.features import SpatioTemporalFeatures, Templates

if TYPE_CHECKING:
    from gbwatt.decoding.estimator import EEGDecoder

#: Relative difference of sampling rates up to which they count as equal.
SAME_RATE = 0.01
#: Folder of the weights that are part of the package.
WEIGHTS = Path(__file__).parent / "weights"


def list_weights() -> dict[str, Path]:
    """Folders of the weights that are part of the package, by name, for ``initialization`` of the estimators.

    ``PROVENANCE.md`` in each folder has the recordings, their licence, and the command that made the weights.

    Examples
    --------
    >>> sorted(list_weights())
    ['physionet-four-classes', 'physionet-left-right']
    """
    return {folder.name: folder for folder in sorted(WEIGHTS.iterdir()) if (folder / "config.json").is_file()}


def model_options(source: EEGDecoder) -> dict[str, Any]:
    """Model options with the architecture of a trained decoder, without those of its signal and its domains.

    They can be used with other numbers of channels, classes and samples.
    """
    module = source._networks[0]
    if not isinstance(module, GBWAtt) or not isinstance(module.features, SpatioTemporalFeatures):
        raise ParameterError(
            f"initialization: the weights are those of {source.model!r}; only gbwatt, bwatt and matt with filters can "
            "begin with trained weights."
        )
    own = ("n_chans", "n_outputs", "n_times", "sfreq", "chs_info", "input_window_seconds", "n_domains")
    return {name: value for name, value in module.config.items() if name not in own}


def members_of(source: EEGDecoder) -> list[EEGDecoder]:
    """Decoders with one network each: the source itself, or one for each network of an ensemble."""
    networks = source._networks
    if len(networks) == 1:
        return [source]
    members = [copy.copy(source) for _ in networks]
    for member, network in zip(members, networks, strict=True):
        member.net_ = source._make_trainer(network, source.settings_)
    return members


# ---- recordings that the weights were trained on

#: Preprocessing steps that must be the same for the weights and for new recordings; filters are compared by their
#: edges, sampling rates and channels by their values, and the whitening makes amplitudes alike.
COMPARED_STEPS = ("reference", "notch", "exponential_standardise", "noise")


def require_alike(
    source: EEGDecoder, weights: str, recorded: Recorded | None, x: inputs.Array, sfreq: float | None
) -> None:
    """Raise an error for epochs that differ from those that initial weights were trained on; or warn, if it is unknown.

    Filters, reference, sampling rate and unit are compared as in predictions.  Windows and additional channels may
    differ, and alignment, which is part of the fine-tuning, is not a difference.

    Parameters
    ----------
    source : EEGDecoder
        The decoder with the weights.
    weights : str
        Their name, for messages.
    recorded : Recorded or None
        Metadata of the epochs.
    x : array (n, n_chans, n_times)
        The epochs.
    sfreq : float or None
        Their sampling rate in Hz.

    Raises
    ------
    MismatchError
        If the epochs differ.

    Warns
    -----
    AlignmentWarning
        If the recordings of the weights were not aligned.
    DataWarning
        If the epochs have no names of channels.
    """
    trained, samples = source.recorded_, getattr(source, "samples_", None)
    if trained is not None and not _is_aligned(source, trained):
        warnings.warn(
            f"initialization={weights!r}: these weights were trained on recordings that were not aligned, but "
            "fine-tuning whitens the channels; accuracy may be at chance. Train the weights with "
            "alignment='euclidean' (--align euclidean).",
            AlignmentWarning,
            stacklevel=inputs.user_stacklevel(),
        )
    columns = _channel_columns(source, None if recorded is None else recorded.ch_names, x.shape[1])
    if trained is not None and recorded is None:
        warnings.warn(
            f"initialization={weights!r}: 'X' has no names of channels; its channels must be those of the weights, in "
            f"this order: {', '.join(trained.ch_names)}. Trials and mne.Epochs are matched by name.",
            DataWarning,
            stacklevel=inputs.user_stacklevel(),
        )
    own = None if recorded is None else _compared(recorded)
    if trained is not None:
        if own is not None:
            own = replace(own, ch_names=trained.ch_names, sfreq=trained.sfreq)
            own = replace(own, unit=trained.unit) if _is_aligned(source, trained) else own
        if samples is not None and any(step["step"] == ALIGNMENT for step in trained.steps or ()):
            samples = replace(samples, average_reference=None)  # alignment has changed it
        trained = _compared(trained)
    try:
        _require_same_rate(source.signal_.sfreq, sfreq)
        inputs.compare(trained, samples, own, x[:, columns], "X", f"initialization={weights!r}: ")
    except MismatchError as error:
        raise MismatchError(
            f"initialization={weights!r} does not fit: {error} Files are prepared like the recordings of the weights "
            "by `gbwatt train --init` without --preprocess."
        ) from error


def _is_aligned(source: EEGDecoder, trained: Recorded) -> bool:
    """Whether a decoder was trained on aligned recordings; earlier versions recorded their unit only."""
    steps = {step["step"] for step in trained.steps or ()}
    standardised = any("standardise" in step for step in steps)
    return source.alignment is not None or ALIGNMENT in steps or (trained.unit not in UNITS and not standardised)


def _compared(recorded: Recorded) -> Recorded:
    """Metadata with the steps of :data:`COMPARED_STEPS` only."""
    if recorded.steps is None:
        return recorded
    return replace(recorded, steps=tuple(step for step in recorded.steps if step["step"] in COMPARED_STEPS))


# ---- initial weights


@torch.no_grad()
def initialize_from(
    model: nn.Module,
    source: EEGDecoder,
    x: Tensor,
    y: Tensor,
    ch_names: tuple[str, ...] | None,
    class_names: tuple[str, ...],
    class_weights: Tensor | None = None,
    domain: Tensor | None = None,
    sample_weight: Tensor | None = None,
) -> None:
    """Copy the weights of a network that was trained on aligned recordings of other subjects.

    The spatial filters are multiplied by the whitening of the training trials, so that the network receives aligned
    recordings.  Channels are matched by name if the names are known in both recordings; the weights of additional
    channels are 0 at first.  The last layer is copied if the classes are the same; otherwise it is a logistic
    regression of the embedded training trials.  The statistics of the batch normalisation stay fixed during training.

    Parameters
    ----------
    model : GBWAtt
        With :func:`model_options` of ``source``; changed in place.
    source : EEGDecoder
        Trained on trials that :class:`~gbwatt.decoding.EuclideanAlignment` has whitened, or with the option
        ``alignment``.
    x : Tensor, shape (n, n_chans, n_times)
        Training epochs.
    y : Tensor, shape (n,)
        Class numbers.
    ch_names : tuple of str or None
        Names of the channels.
    class_names : tuple of str
        Names of the classes.
    class_weights : Tensor, shape (n_classes,), optional
        Weights of the classes in the loss.
    domain : Tensor, shape (n,), optional
        Numbers of the domains of the epochs, for networks with ``domain_norm``, whose statistics are estimated from
        these epochs.
    sample_weight : Tensor, shape (n,), optional
        Weights of the trials in the logistic regression.

    Raises
    ------
    MismatchError
        If channels of ``source`` are missing, if the sampling rate differs, or if the network has templates and the
        number of samples differs.
    """
    trained: Any = source.net_.module_
    own: Any = model
    _require_same_rate(trained.config["sfreq"], own.config["sfreq"])
    if isinstance(trained.templates, Templates) and trained.config["n_times"] != own.config["n_times"]:
        raise MismatchError(
            f"initialization: the weights have templates of {trained.config['n_times']} samples, but the epochs have "
            f"{own.config['n_times']}; crop the epochs to the same window."
        )
    columns = _channel_columns(source, ch_names, x.shape[1])
    aligned_filters = trained.features.spatial.weight[..., 0].double() * source.scale_
    filters = x.new_zeros(len(aligned_filters), x.shape[1], dtype=torch.float64)
    whitener = ALIGNMENTS[source.alignment or "euclidean"]().whitener(x[:, columns].numpy())
    filters[:, columns] = aligned_filters @ torch.from_numpy(whitener)
    same_classes = tuple(class_names) == source.class_names_
    left_out = {"features.spatial.weight", *(() if same_classes else ("final_layer.weight", "final_layer.bias"))}
    left_out |= {f"domain_norm.{name}" for name in ("running_mean", "running_var", "n_batches")}  # of other domains
    own.load_state_dict(_without(trained.state_dict(), left_out), strict=False)
    own.features.spatial.weight.copy_(filters[..., None])
    own.features.freeze_statistics()
    own.eval()
    adapt_domains(own, x, domain)
    if not same_classes:
        initialize_final_layer(own, x, y, class_weights, domain, sample_weight)


def _without(tensors: Mapping[str, Tensor], names: set[str]) -> dict[str, Tensor]:
    """Tensors without those of the given names."""
    return {name: tensor for name, tensor in tensors.items() if name not in names}


def _require_same_rate(trained: float | None, own: float | None) -> None:
    """Raise MismatchError if both sampling rates are known and differ by more than :data:`SAME_RATE`."""
    if trained is not None and own is not None and abs(trained - own) > SAME_RATE * trained:
        raise MismatchError(
            f"the weights were trained at {trained:g} Hz, but the epochs are sampled at {own:g} Hz; "
            f"resample them by epochs.resample({trained:g}), Resample({trained:g}) or --preprocess "
            f"'resample={trained:g}'."
        )


def _channel_columns(source: EEGDecoder, ch_names: tuple[str, ...] | None, n_chans: int) -> list[int]:
    """Indices of the channels that the trained network uses, in its order.

    Without names, both must have the same number of channels, which are assumed to be in the same order.
    """
    trained = None if source.recorded_ is None else source.recorded_.ch_names
    if trained is None or ch_names is None:
        if n_chans != source.signal_.n_chans:
            raise MismatchError(
                f"initialization: the weights are for {source.signal_.n_chans} channels, but the epochs have "
                f"{n_chans}; select these channels, or pass Trials or mne.Epochs, whose channels have names."
            )
        return list(range(n_chans))
    places = {comparable_name(name): number for number, name in enumerate(ch_names)}
    missing = [name for name in trained if comparable_name(name) not in places]
    if missing:
        raise MismatchError(
            f"initialization: the epochs lack the channels {', '.join(missing)} of the weights; interpolate them, for "
            "example with mne.Epochs.interpolate_bads, or train without these weights."
        )
    return [places[comparable_name(name)] for name in trained]

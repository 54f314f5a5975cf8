"""Adapters for models of braindecode: EEGNet, ShallowConvNet, SCCNet, FBCNet, ATCNet and EEG Conformer.

braindecode is imported only when one of them is built.  It requires torchaudio; ``python -m
gbwatt.models.torchaudio_repair`` repairs an installation built for CUDA that does not load with a torch without CUDA.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict, replace
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from gbwatt.errors import PackageError, ParameterError
from gbwatt.models.presets import CONVOLUTIONAL, Task, Training
from gbwatt.models.registry import register
from gbwatt.models.signal import Signal, as_epochs

REPAIR = "python -m gbwatt.models.torchaudio_repair"
_LONGEST_AS_MATRIX = 512  # samples; Fourier transforms are as fast for longer epochs


def braindecode_models() -> Any:
    """Import ``braindecode.models``; raise PackageError, which names the remedy, if that fails."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Montage name .* is deprecated")  # braindecode's, not the user's
            return import_module("braindecode.models")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("braindecode", "torchaudio"):
            raise
        raise PackageError.missing(str(error.name), "a model of braindecode", "braindecode") from error
    except (OSError, RuntimeError) as error:  # what torchaudio raises when its libraries do not load, or do not match
        if "torchaudio" not in str(error).lower() and ".so" not in str(error):
            raise
        raise PackageError(
            f"braindecode requires torchaudio, which cannot load its compiled libraries: {error}. Most likely it was "
            "built for CUDA and torch was not. Install a torchaudio of the same build as torch, or disable these "
            f"libraries, which braindecode does not need: {REPAIR}"
        ) from error


class BraindecodeModel(nn.Module):
    """A network of braindecode with the interface of this package: (batch, n_chans, n_times) -> (batch, n_outputs).

    Parameters
    ----------
    network : nn.Module
        The network of braindecode.
    signal : Signal
        Input for which it was built.
    options : mapping
        Further arguments with which it was built; part of ``config``.
    """

    def __init__(self, network: nn.Module, signal: Signal, options: Mapping[str, Any]) -> None:
        super().__init__()
        self.network = network
        self.config: dict[str, Any] = {**asdict(signal), **options}

    @property
    def final_layer(self) -> nn.Module:
        """The classifier: a linear layer, or a module that contains one."""
        return self.network.get_submodule("final_layer")

    def forward(self, x: Tensor) -> Tensor:
        """Logits of epochs (batch, n_chans, n_times), or (batch, 1, n_chans, n_times)."""
        logits: Tensor = self.network(as_epochs(x, self.config["n_chans"], self.config["n_times"], self))
        return logits


class FilterMatrix(nn.Module):
    """Fixed linear filters, computed as a product with one matrix.

    (batch, n_chans, n_times) -> (batch, n_bands, n_chans, n_times).

    Parameters
    ----------
    filters : nn.Module
        Linear filters of each channel, with the same input and output shapes.
    n_chans, n_times : int
    """

    matrix: Tensor  # (n_times, n_bands, n_times)

    def __init__(self, filters: nn.Module, n_chans: int, n_times: int) -> None:
        super().__init__()
        pulses = torch.eye(n_times, dtype=torch.float64)[:, None].expand(-1, n_chans, -1)
        with torch.no_grad():
            responses: Tensor = filters.double()(pulses)
        self.register_buffer("matrix", responses[:, :, 0].to(torch.get_default_dtype()), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Filter (batch, n_chans, n_times)."""
        bands: Tensor = (x @ self.matrix.flatten(1)).unflatten(-1, self.matrix.shape[1:])
        return bands.transpose(-2, -3)


def _build(name: str, signal: Signal, presets: Mapping[str, Any], options: Mapping[str, Any]) -> BraindecodeModel:
    """Build class ``name`` of braindecode with the given presets, which options of the caller override.

    The network is applied to an epoch of zeros, since some networks do not raise an error before that.
    """
    network_class = getattr(braindecode_models(), name)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Time dimension .* not divisible")  # FBCNet warns that it pads
        warnings.filterwarnings("ignore", message="Using padding='same' with even kernel")  # ATCNet; once in a process
        try:
            network = network_class(**asdict(signal), **{**presets, **options})
            with torch.no_grad():
                network.eval()(torch.zeros(1, signal.n_chans, signal.n_times))
            network.train()
        except (ValueError, RuntimeError, ZeroDivisionError) as error:
            raise ParameterError(
                f"braindecode's {name} cannot be built for n_chans={signal.n_chans}, n_times={signal.n_times}, "
                f"sfreq={signal.sfreq} and {dict(options)}; epochs may be too short for its kernels and pools. "
                f"Its error: {error}"
            ) from error
    return BraindecodeModel(network, signal, options)


def _require_sfreq(signal: Signal, name: str) -> float:
    """Return the sampling rate; raise an error if it is unknown."""
    if signal.sfreq is None:
        raise ParameterError(f"{name} has filters defined in seconds or Hz: give sfreq, the sampling rate in Hz.")
    return signal.sfreq


#: EEGNet has not converged after 180 epochs with a learning rate of 1e-3: with 5e-3 its accuracy on the validation
#: trials of three subjects of MAMEM-SSVEP-II is 70 % instead of 58 %.
_EEGNET = {**CONVOLUTIONAL, "ssvep": replace(CONVOLUTIONAL["ssvep"], lr=5e-3)}
#: ShallowConvNet and SCCNet benefit from the paper's weight decay: 50 % and 46 % instead of 43 % and 43 % on the
#: validation trials of all subjects of MAMEM-SSVEP-II.
_SHALLOW = {**CONVOLUTIONAL, "ssvep": replace(CONVOLUTIONAL["ssvep"], weight_decay=0.1)}


def _training_with_lr(lr: float) -> dict[str, Training]:
    """Default training of convolutional networks, by task, with the learning rate of a network's authors."""
    return {task: replace(training, lr=lr) for task, training in CONVOLUTIONAL.items()}


@register("eegnet", "EEGNet-8,2 (Lawhern et al. 2018)", training=_EEGNET, extra="braindecode")
def _eegnet(signal: Signal, _task: Task | None, **options: Any) -> nn.Module:
    """Build EEGNet of braindecode for the registry."""
    return _build("EEGNet", signal, {"final_layer_with_constraint": True}, options)


@register("shallowconvnet", "ShallowConvNet (Schirrmeister et al. 2017)", training=_SHALLOW, extra="braindecode")
def _shallow(signal: Signal, _task: Task | None, **options: Any) -> nn.Module:
    """Build ShallowConvNet of braindecode for the registry."""
    # half the original lengths, which are for 250 Hz: the data are sampled at 125 Hz
    lengths = {"filter_time_length": 13, "pool_time_length": 35, "pool_time_stride": 7}
    return _build("ShallowFBCSPNet", signal, lengths, options)


@register(
    "sccnet",
    "SCCNet, spatial component-wise convolutions (Wei et al. 2019)",
    training=_SHALLOW,
    extra="braindecode",
)
def _sccnet(signal: Signal, _task: Task | None, **options: Any) -> nn.Module:
    """Build SCCNet of braindecode for the registry."""
    _require_sfreq(signal, "sccnet")
    return _build("SCCNet", signal, {}, options)


@register(
    "fbcnet",
    "FBCNet, a filter bank and spatial filters (Mane et al. 2021)",
    training=CONVOLUTIONAL,
    extra="braindecode",
)
def _fbcnet(signal: Signal, _task: Task | None, **options: Any) -> nn.Module:
    """Build FBCNet of braindecode for the registry."""
    model = _build("FBCNet", signal, {"n_bands": filter_bands(_require_sfreq(signal, "fbcnet"))}, options)
    if signal.n_times <= _LONGEST_AS_MATRIX:  # otherwise the Fourier transforms of all bands take half of every step
        filters = model.network.get_submodule("spectral_filtering")
        model.network.spectral_filtering = FilterMatrix(filters, signal.n_chans, signal.n_times)
    return model


def filter_bands(sfreq: float) -> list[tuple[float, float]]:
    """Bands of 4 Hz from 4 to 40 Hz, limited to frequencies below half the sampling rate.

    Examples
    --------
    >>> filter_bands(25.0)
    [(4.0, 8.0), (8.0, 12.0)]
    """
    bands = [(float(low), low + 4.0) for low in range(4, 40, 4) if low + 4 < sfreq / 2]
    if not bands:
        raise ParameterError(f"sfreq={sfreq} is too low for fbcnet; more than 16 Hz is required.")
    return bands


@register(
    "atcnet",
    "ATCNet, attention and temporal convolutions in sliding windows (Altaheri et al. 2022)",
    training=_training_with_lr(9e-4),
    extra="braindecode",
)
def _atcnet(signal: Signal, _task: Task | None, **options: Any) -> nn.Module:
    """Build ATCNet of braindecode for the registry."""
    return _build("ATCNet", signal, atcnet_lengths(signal.n_times, _require_sfreq(signal, "atcnet")), options)


def atcnet_lengths(n_times: int, sfreq: float) -> dict[str, int]:
    """Kernels and pools of ATCNet for an input.

    The first kernel and pool have the duration of the paper, 256 and 32 ms, so that the layers behind them see the rate
    for which they were designed, about 31 Hz.  The second pool has 7 samples, as in the paper, or fewer in short
    epochs: 5 sliding windows and temporal convolutions over 7 samples need at least 11.

    Examples
    --------
    >>> atcnet_lengths(1125, 250.0)  # the paper's
    {'conv_block_kernel_length_1': 64, 'conv_block_pool_size_1': 8, 'conv_block_pool_size_2': 7}
    >>> atcnet_lengths(125, 125.0)
    {'conv_block_kernel_length_1': 32, 'conv_block_pool_size_1': 4, 'conv_block_pool_size_2': 2}
    """
    first = max(1, round(0.032 * sfreq))
    return {
        "conv_block_kernel_length_1": max(1, round(0.256 * sfreq)),
        "conv_block_pool_size_1": first,
        "conv_block_pool_size_2": min(7, max(1, n_times // (11 * first))),
    }


@register(
    "eegconformer",
    "EEG Conformer, convolutions and a transformer (Song et al. 2023)",
    training=_training_with_lr(2e-4),
    extra="braindecode",
)
def _eegconformer(signal: Signal, _task: Task | None, **options: Any) -> nn.Module:
    """Build EEG Conformer of braindecode for the registry."""
    return _build("EEGConformer", signal, conformer_lengths(_require_sfreq(signal, "eegconformer")), options)


def conformer_lengths(sfreq: float) -> dict[str, int]:
    """Kernel and pool of EEG Conformer: 100 ms, and 300 ms in steps of 60 ms, as in the paper at 250 Hz.

    Examples
    --------
    >>> conformer_lengths(250.0)
    {'filter_time_length': 25, 'pool_time_length': 75, 'pool_time_stride': 15}
    """
    seconds = {"filter_time_length": 0.1, "pool_time_length": 0.3, "pool_time_stride": 0.06}
    return {name: max(1, round(length * sfreq)) for name, length in seconds.items()}
